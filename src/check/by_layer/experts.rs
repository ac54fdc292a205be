//! What does a mixture of experts compute? It is read by what it gives in the reference, and then by what the port gives for
//! its own input.

use candle_core::{D, DType, Tensor};

use super::super::cells::{cells, ratio};
use super::measure::{apart, usual};
use super::mixture::{Groups, Mixture, Routing, Score, Shared, Unit};
use super::part::Parameters;
use base::error::Result;
use program::{Map, Misread, Op, Slip};

/// Mixtures of more numbers are not computed again.
const MOST_NUMBERS: usize = 1 << 28;
/// No more experts than these are tried for each token.
const MOST_CHOSEN: usize = 8;
/// Where the numbers of gpt-oss's experts are cut off, and by what σ's argument is multiplied there ("gpt-oss", `OpenAI`,
/// 2025).
const LIMIT: f64 = 7.0;

/// The expert that all tokens have may be added by each rank: once, and by so many. Of as many each may go by its own experts.
const TIMES: [usize; 4] = [1, 2, 4, 8];

/// What a unit gives for all rows: of each expert, and of the one that all tokens have.
struct Made {
    unit: Unit,
    experts: Vec<Vec<f64>>,
    shared: Option<Vec<f64>>,
}

/// Rows of what goes into a mixture, and its parameters.
pub struct Experts {
    x: Tensor,
    parameters: Parameters,
    logits: Vec<Vec<f64>>,
    correction: Option<Vec<f64>>,
    /// (out, in) of the first projections and of the second, expert by expert, with their biases.
    first: Vec<(Tensor, Option<Tensor>)>,
    second: Vec<(Tensor, Option<Tensor>)>,
}

impl Experts {
    /// Nothing where these parameters are of no mixture. `x` is (1, rows, features).
    pub fn new(x: &Tensor, parameters: &Parameters) -> Result<Option<Self>> {
        let x = x.squeeze(0)?.to_dtype(DType::F32)?;
        let features = x.dim(1)?;
        let called = |names: &[&str]| of(parameters, names);
        let (Some(router), Some(first), Some(second)) = (
            called(&["gate.weight", "router.weight", "router.layer.weight", "gate.wg.weight"]),
            called(&["experts.gate_up_proj"]),
            called(&["experts.down_proj"]),
        ) else {
            return Ok(None);
        };
        let count = router.dim(0)?;
        if first.elem_count() > MOST_NUMBERS || first.rank() != 3 || first.dim(0)? != count {
            return Ok(None);
        }
        let numbers = |own: &Tensor| own.to_dtype(DType::F32);
        let each = |whole: &Tensor, bias: Option<&Tensor>, from: usize| -> Result<Vec<_>> {
            let whole =
                if whole.dim(2)? == from { whole.clone() } else { whole.transpose(1, 2)? };
            let one = |at: usize| {
                let bias = bias.map(|bias| numbers(&bias.get(at)?)).transpose()?;
                Ok((numbers(&whole.get(at)?)?.contiguous()?, bias))
            };
            (0..count).map(one).collect()
        };
        let first = each(first, called(&["experts.gate_up_proj_bias"]), features)?;
        let Some(hidden) = first.first().map(|(own, _)| own.dims()[0] / 2) else { return Ok(None) };
        let second = each(second, called(&["experts.down_proj_bias"]), hidden)?;
        let mut logits = x.matmul(&numbers(router)?.t()?)?;
        if let Some(bias) = called(&["gate.bias", "router.bias"]) {
            logits = logits.broadcast_add(&numbers(bias)?)?;
        }
        let logits = logits.to_dtype(DType::F64)?.to_vec2()?;
        let correction =
            called(&["gate.e_score_correction_bias", "router.e_score_correction_bias"]);
        let correction = correction.map(cells).transpose()?;
        let parameters = parameters.clone();
        Ok(Some(Self { x, parameters, logits, correction, first, second }))
    }

    /// The mixture that gives this, the first of all; or that which is nearest to the one that is meant, where one is.
    pub fn read(
        &self,
        output: &Tensor,
        meant: Option<&Mixture>,
        tolerance: f64,
    ) -> Result<Option<Mixture>> {
        let (mut best, mut units) = (None::<(usize, Mixture)>, Vec::new());
        for own in self.all(meant) {
            let far = meant.map_or(0, |meant| own.differences(meant).len());
            if best.as_ref().is_some_and(|(least, _)| far >= *least) {
                continue;
            }
            if let Some(scale) = self.fitted(&own, output, tolerance, &mut units)? {
                best = Some((far, Mixture { scale, ..own }));
                if meant.is_none() {
                    break;
                }
            }
        }
        Ok(best.map(|(_, own)| own))
    }

    /// All mixtures that are tried; of those beside a meant one, such as differ in two ways at most.
    fn all(&self, meant: Option<&Mixture>) -> Vec<Mixture> {
        let shared = match (self.shared(Map::Silu), self.gate()) {
            (Ok(Some(_)), Ok(Some(_))) => vec![Shared::Gated, Shared::Plain, Shared::None],
            (Ok(Some(_)), _) => vec![Shared::Plain, Shared::None],
            _ => vec![Shared::None],
        };
        let shared: Vec<Shared> = match meant.map(|meant| meant.shared) {
            Some(Shared::Gated) => shared.into_iter().chain([Shared::RawGate]).collect(),
            _ => shared,
        };
        let maps = [
            Map::Silu,
            Map::Gelu,
            Map::GeluTanh,
            Map::QuickGelu,
            Map::Relu,
            Map::ReluSquared,
            Map::Sigmoid,
        ];
        let units = maps.into_iter().flat_map(|map| {
            (0..8).map(move |at| Unit {
                map,
                is_exchanged: at & 4 > 0,
                in_turns: at & 2 > 0,
                is_raised: at & 1 > 0,
            })
        });
        let routings = self.routings();
        let times = if meant.is_some() { &TIMES[..] } else { &TIMES[..1] };
        let ways = units.flat_map(|unit| routings.iter().map(move |routing| (unit, *routing)));
        let all = ways.flat_map(|(unit, routing)| {
            shared.iter().flat_map(move |shared| {
                let times = if *shared == Shared::None { &TIMES[..1] } else { times };
                let of = move |times: &usize| Mixture {
                    routing,
                    unit,
                    shared: *shared,
                    times: *times,
                    counted_on: 1,
                    loaded_on: 1,
                    weighs_inputs: false,
                    scale: 1.0,
                };
                times.iter().map(of)
            })
        });
        // Each of these needs experts of its own; models that mean it take sigmoids as they are.
        let of_inputs = |own: &Mixture| {
            if let Some(meant) = meant {
                return *own == Mixture { weighs_inputs: false, scale: own.scale, ..*meant };
            }
            let Routing { score, is_normed, groups, .. } = own.routing;
            score == Score::Sigmoid && !is_normed && groups.is_none()
        };
        let with_inputs = |own: Mixture| {
            let other = of_inputs(&own).then_some(Mixture { weighs_inputs: true, ..own });
            std::iter::once(own).chain(other)
        };
        let mut all: Vec<Mixture> = all.flat_map(with_inputs).collect();
        all.extend(meant.into_iter().flat_map(|meant| self.on_ranks(meant)));
        let is_near = |own: &Mixture| {
            let far = |meant: &Mixture| Mixture { scale: meant.scale, ..*own }.differences(meant);
            meant.is_none_or(|meant| far(meant).len() < 3)
        };
        all.into_iter().filter(is_near).collect()
    }

    /// All ways to choose experts and to weigh them that are tried.
    fn routings(&self) -> Vec<Routing> {
        let both = [true, false];
        let corrected: &[(bool, bool)] = if self.correction.is_some() {
            &[(true, false), (false, false), (true, true)]
        } else {
            &[(false, false)]
        };
        let scores =
            Score::ALL.into_iter().flat_map(|score| both.map(|is_normed| (score, is_normed)));
        let counts = 1..=self.first.len().min(MOST_CHOSEN);
        let routings = scores.flat_map(|(score, is_normed)| {
            counts.clone().flat_map(move |count| {
                corrected.iter().map(move |(is_corrected, has_corrected_weights)| Routing {
                    score,
                    is_normed,
                    count,
                    is_corrected: *is_corrected,
                    has_corrected_weights: *has_corrected_weights,
                    groups: None,
                    ranks: 1,
                })
            })
        });
        let mut routings: Vec<Routing> = routings.collect();
        let in_groups = |groups: Groups| {
            let of = move |own: &Routing| Routing { groups: Some(groups), ..*own };
            routings.iter().map(of).collect::<Vec<_>>()
        };
        let in_groups: Vec<Routing> =
            Groups::of(self.first.len()).into_iter().flat_map(in_groups).collect();
        routings.extend(in_groups);
        routings
    }

    /// What ranks that have some of the experts each may make of a mixture.
    fn on_ranks(&self, meant: &Mixture) -> Vec<Mixture> {
        let ranks = TIMES.iter().skip(1).filter(|ranks| self.first.len().is_multiple_of(**ranks));
        let of = |ranks: &usize| {
            let split = Routing { ranks: *ranks, ..meant.routing };
            let split = Mixture { routing: split, ..*meant };
            let split = meant.routing.is_normed.then_some(split);
            [Mixture { counted_on: *ranks, ..*meant }, Mixture { loaded_on: *ranks, ..*meant }]
                .into_iter()
                .chain(split)
        };
        ranks.flat_map(of).collect()
    }

    /// What the routed experts are multiplied by, where a mixture gives this.
    fn fitted(
        &self,
        own: &Mixture,
        output: &Tensor,
        tolerance: f64,
        units: &mut Vec<Made>,
    ) -> Result<Option<f64>> {
        if !units.iter().any(|made| made.unit == own.unit) {
            units.push(self.made(own.unit)?);
        }
        let made = units.iter().find(|made| made.unit == own.unit).ok_or(Misread)?;
        let [routed, beside] = self.parts(own, made, output.dim(D::Minus1)?)?;
        let rest: Vec<f64> =
            cells(output)?.iter().zip(&beside).map(|(own, beside)| own - beside).collect();
        // Factors are numbers of few digits.
        let scale = (ratio(&rest, &routed) * 1e3).round() / 1e3;
        let given = added(&[routed, beside], scale, output)?;
        Ok((apart(output, &given)? <= tolerance).then_some(scale))
    }

    /// How far the middle row of an output is from what a mixture gives: rounding may choose other experts in some rows.
    pub fn usually_off(&self, own: &Mixture, output: &Tensor) -> Result<f64> {
        let parts = self.parts(own, &self.made(own.unit)?, output.dim(D::Minus1)?)?;
        usual(&added(&parts, own.scale, output)?, output)
    }

    fn made(&self, unit: Unit) -> Result<Made> {
        let each = (0..self.first.len()).map(|at| cells(&self.expert(&self.x, at, unit)?));
        Ok(Made {
            unit,
            experts: each.collect::<Result<_>>()?,
            shared: self.shared(unit.map)?.as_ref().map(cells).transpose()?,
        })
    }

    /// What the experts give that are chosen for each row, without their factor, and what the shared one gives.
    fn parts(&self, own: &Mixture, made: &Made, width: usize) -> Result<[Vec<f64>; 2]> {
        let mut routed = vec![0.0; self.logits.len() * width];
        let mut chosen: Vec<Vec<(usize, f64)>> =
            self.logits.iter().map(|logits| self.weights(own.routing, logits)).collect();
        if own.counted_on > 1 {
            for chosen in &mut chosen {
                *chosen = self.counted(chosen, own.counted_on);
            }
        }
        let each = self.first.len() / own.loaded_on;
        chosen.iter_mut().flatten().for_each(|(expert, _)| *expert %= each.max(1));
        let of_weighed = own.weighs_inputs.then(|| self.of_weighed(own.unit, &chosen));
        let of_weighed = of_weighed.transpose()?;
        for (row, chosen) in chosen.iter().enumerate() {
            for (expert, weight) in chosen {
                let (experts, weight) =
                    of_weighed.as_ref().map_or((&made.experts, *weight), |all| (all, 1.0));
                let from = experts[*expert].iter().skip(row * width);
                routed
                    .iter_mut()
                    .skip(row * width)
                    .take(width)
                    .zip(from)
                    .for_each(|(sum, own)| *sum += weight * own);
            }
        }
        let gate = match own.shared {
            Shared::Gated => self.gate()?.map(|gate| cells(&mapped(Map::Sigmoid, &gate)?)),
            Shared::RawGate => self.gate()?.map(|gate| cells(&gate)),
            _ => None,
        };
        let gate = gate.transpose()?;
        let beside = |at: usize| match (own.shared, &made.shared) {
            (Shared::None, _) | (_, None) => 0.0,
            (_, Some(shared)) => {
                let gate = gate.as_ref().map_or(1.0, |gate| gate[at / width]);
                shared[at] * gate * own.times as f64
            }
        };
        let beside = (0..routed.len()).map(beside).collect();
        Ok([routed, beside])
    }

    /// The experts that are chosen for a token, and their weights.
    fn weights(&self, own: Routing, logits: &[f64]) -> Vec<(usize, f64)> {
        let largest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let total: f64 = logits.iter().map(|own| (own - largest).exp()).sum();
        let score = |logit: f64| match own.score {
            Score::Softmax => (logit - largest).exp() / total,
            Score::Sigmoid | Score::Equal => 1.0 / (1.0 + (-logit).exp()),
        };
        let corrected = |at: usize| match &self.correction {
            Some(bias) if own.is_corrected => bias[at],
            _ => 0.0,
        };
        let mut order: Vec<usize> = (0..logits.len()).collect();
        let by: Vec<f64> = order.iter().map(|at| score(logits[*at]) + corrected(*at)).collect();
        if let Some(groups) = own.groups {
            let admitted = groups.admitted(&by);
            order.retain(|at| admitted[*at]);
        }
        order.sort_by(|left, right| by[*right].total_cmp(&by[*left]));
        order.truncate(own.count);
        let weight = |at: usize| match own.score {
            Score::Equal => 1.0,
            _ if own.has_corrected_weights => by[at],
            _ => score(logits[at]),
        };
        let rank = |at: usize| at * own.ranks / logits.len();
        let sum = |at: usize| -> f64 {
            let beside = order.iter().filter(|other| rank(**other) == rank(at));
            if own.is_normed { beside.map(|other| weight(*other)).sum() } else { 1.0 }
        };
        order.iter().map(|at| (*at, weight(*at) / sum(*at))).collect()
    }

    /// The experts that so many ranks take for those that are chosen, where each counts its own from 0.
    fn counted(&self, chosen: &[(usize, f64)], ranks: usize) -> Vec<(usize, f64)> {
        let each = self.first.len() / ranks;
        let own = chosen.iter().filter(|(expert, _)| *expert < each);
        own.flat_map(|(expert, weight)| (0..ranks).map(move |rank| (rank * each + expert, *weight)))
            .collect()
    }

    /// What each expert gives for the rows that it is chosen for, where these are multiplied by its weights; 0 for others.
    fn of_weighed(&self, unit: Unit, chosen: &[Vec<(usize, f64)>]) -> Result<Vec<Vec<f64>>> {
        let of = |expert: usize| {
            let weight = |own: &Vec<(usize, f64)>| {
                own.iter().find(|(at, _)| *at == expert).map_or(0.0, |(_, weight)| *weight)
            };
            let weights: Vec<f64> = chosen.iter().map(weight).collect();
            let weights = Tensor::from_vec(weights, (chosen.len(), 1), self.x.device())?;
            let x = self.x.broadcast_mul(&weights.to_dtype(DType::F32)?)?;
            cells(&self.expert(&x, expert, unit)?)
        };
        (0..self.first.len()).map(of).collect()
    }

    /// What an expert gives for some rows.
    fn expert(&self, x: &Tensor, at: usize, own: Unit) -> Result<Tensor> {
        let project = |x: &Tensor, (weight, bias): &(Tensor, Option<Tensor>)| -> Result<Tensor> {
            let made = x.matmul(&weight.t()?)?;
            Ok(match bias {
                Some(bias) => made.broadcast_add(bias)?,
                None => made,
            })
        };
        let both = project(x, &self.first[at])?;
        let half = both.dim(1)? / 2;
        let [gate, up] = [0, 1].map(|place: usize| -> Result<Tensor> {
            Ok(if own.in_turns {
                both.reshape(((), half, 2))?.narrow(2, place, 1)?.squeeze(2)?
            } else {
                both.narrow(1, place * half, half)?
            })
        });
        let (gate, up) = if own.is_exchanged { (up?, gate?) } else { (gate?, up?) };
        // Where 1 is added, numbers are cut off before.
        let (gate, up) = if own.is_raised {
            (gate.minimum(LIMIT)?, (up.maximum(-LIMIT)?.minimum(LIMIT)? + 1.0)?)
        } else {
            (gate, up)
        };
        project(&mapped(own.map, &gate)?.mul(&up)?, &self.second[at])
    }

    /// What the expert gives that all tokens have.
    fn shared(&self, map: Map) -> Result<Option<Tensor>> {
        let named = |name: &str| {
            let [one, many] =
                ["shared_expert", "shared_experts"].map(|own| format!("{own}.{name}.weight"));
            of(&self.parameters, &[&one, &many])
        };
        let (Some(gate), Some(up), Some(down)) =
            (named("gate_proj"), named("up_proj"), named("down_proj"))
        else {
            return Ok(None);
        };
        let project = |x: &Tensor, weight: &Tensor| -> Result<Tensor> {
            Ok(x.matmul(&weight.to_dtype(DType::F32)?.t()?)?)
        };
        let hidden = mapped(map, &project(&self.x, gate)?)?.mul(&project(&self.x, up)?)?;
        project(&hidden, down).map(Some)
    }

    /// The gate of that expert for each token, before its sigmoid.
    fn gate(&self) -> Result<Option<Tensor>> {
        let Some(weight) = of(&self.parameters, &["shared_expert_gate.weight"]) else {
            return Ok(None);
        };
        Ok(Some(self.x.matmul(&weight.to_dtype(DType::F32)?.t()?)?))
    }
}

/// What routed experts give times their factor, with what the shared one gives, in the shape and type of an output.
fn added([routed, beside]: &[Vec<f64>; 2], scale: f64, output: &Tensor) -> Result<Tensor> {
    let given: Vec<f64> =
        routed.iter().zip(beside).map(|(own, beside)| scale * own + beside).collect();
    Ok(Tensor::from_vec(given, output.shape(), output.device())?.to_dtype(output.dtype())?)
}

/// The parameter of one of these names.
fn of<'p>(parameters: &'p Parameters, names: &[&str]) -> Option<&'p Tensor> {
    parameters.iter().find(|(own, _)| names.contains(&own.as_str())).map(|(_, own)| own)
}

fn mapped(map: Map, x: &Tensor) -> Result<Tensor> {
    Op::from(Slip::Map(map)).eval(&[x])
}
