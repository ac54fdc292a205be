//! Numbers on their own: norms, scales, caps, clipping and gates.

use candle_core::Tensor;

use super::functions::Map;
use super::norm::Normalize;
use super::score_slips::ScoreSlip;
use super::slip::Slip;
use super::temperature::Temperature;
use crate::axis::{Axes, Dim};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Op, Operation};
use crate::pattern::{Function, Multiplier, Pattern, Products, Read};
use crate::rows::Rows;
use crate::slips::{Kind, Knob, Range, Sibling};
use crate::terms::{Term, Value, factor};
use crate::working::Working;
use base::error::Result;

/// Numbers that are scaled, each or by rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Scaling {
    /// A norm.
    Norm(Normalize),
    /// Scores / √`d_k`.
    Root {
        /// The features of a head, `d_k`.
        head_dim: usize,
    },
    /// Numbers · a factor: scores in place of 1/√`d_k`, or values.
    By {
        /// The factor.
        factor: f64,
    },
    /// C · tanh(scores / C): no score is beyond ±C ("Gemma 2", Gemma Team, 2024, section 2).
    SoftCap {
        /// C.
        cap: f64,
    },
    /// min(max(x, −C), C), as `torch.clamp` (`clip_qkv` of `OLMo` and MPT).
    Clip {
        /// C.
        limit: f64,
    },
    /// x · σ(gate) ("Gated Attention for Large Language Models", Qiu et al., 2025, equation 6). Reads x and the gate, of one
    /// shape.
    Gate {
        /// What the gate goes through.
        map: Map,
    },
    /// A factor for every position.
    Temperature(Temperature),
}

impl Operation for Scaling {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [x, others @ ..] = inputs else { return Err(Misread.into()) };
        Ok(match (self, others) {
            (Self::Norm(norm), _) => norm.value(x, others)?,
            (Self::Root { head_dim }, _) => x.broadcast_div(&number(root(*head_dim), x)?)?,
            (Self::By { factor }, _) => x.broadcast_mul(&number(*factor, x)?)?,
            (Self::SoftCap { cap }, _) => {
                let cap = number(*cap, x)?;
                x.broadcast_div(&cap)?.tanh()?.broadcast_mul(&cap)?
            }
            (Self::Clip { limit }, _) => x.clamp(-*limit, *limit)?,
            (Self::Gate { map }, [gate]) => x.mul(&map.value(gate)?)?,
            (Self::Gate { .. }, _) => return Err(Misread.into()),
            (Self::Temperature(temperature), _) => temperature.value(x)?,
        })
    }

    #[allow(clippy::cast_possible_truncation, reason = "the type of the numbers")]
    fn rows<'a>(&'a self, read: &[usize], _: &[&'a Tensor]) -> Option<Rows<'a>> {
        match self {
            Self::Root { head_dim } => {
                let root = root(*head_dim) as f32;
                Rows::mapped(read, move |number| number / root)
            }
            Self::By { factor } => {
                let factor = *factor as f32;
                Rows::mapped(read, move |number| number * factor)
            }
            Self::Norm(_)
            | Self::SoftCap { .. }
            | Self::Clip { .. }
            | Self::Gate { .. }
            | Self::Temperature(_) => None,
        }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let sizes = |dims: &[Dim]| dims.iter().map(|(_, size)| *size).collect::<Vec<_>>();
        match (self, inputs) {
            (Self::Norm(norm), [x, others @ ..]) => norm.axes(x, others),
            (Self::Gate { .. }, [x, gate]) if sizes(x) == sizes(gate) => Ok(x.to_vec()),
            (Self::Temperature(_), [x]) if x.len() == 4 => Ok(x.to_vec()),
            (
                Self::Root { .. } | Self::By { .. } | Self::SoftCap { .. } | Self::Clip { .. },
                [x],
            ) => Ok(x.to_vec()),
            (
                Self::Norm(_)
                | Self::Root { .. }
                | Self::By { .. }
                | Self::SoftCap { .. }
                | Self::Clip { .. }
                | Self::Gate { .. }
                | Self::Temperature(_),
                _,
            ) => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [x, others @ ..] = names else { return Err(Misread) };
        Ok(match self {
            Self::Norm(norm) => norm.formula(x, others),
            Self::Root { .. } => format!("{x} / √d_k"),
            Self::By { factor } => format!("{x} · {factor}"),
            Self::SoftCap { cap } => format!("{cap} · tanh({x} / {cap})"),
            Self::Clip { limit } => tr!("{x} within ±{limit}", x, limit),
            Self::Gate { map } => {
                let gate = others.first().ok_or(Misread)?;
                format!("{x} · {}({gate})", map.name())
            }
            Self::Temperature(temperature) => temperature.formula(x),
        })
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [x, others @ ..] = inputs else { return Err(Misread.into()) };
        if let Self::Norm(norm) = self {
            return norm.terms(x, others, cell);
        }
        let own = x.at(cell)?;
        Ok(vec![Term(match self {
            Self::Norm(_) => return Err(Misread.into()),
            Self::Root { head_dim } => {
                vec![own, factor(format!("1 / √{head_dim}"), root(*head_dim).recip())]
            }
            Self::By { factor: by } => vec![own, factor("scale", *by)],
            Self::SoftCap { cap } => {
                let name = format!("tanh({} / {cap})", own.name);
                vec![factor("softcap", *cap), factor(name, (own.value / cap).tanh()).made_of(&own)]
            }
            Self::Clip { limit } if own.value.abs() > *limit => {
                let name = tr!("{own} within ±{limit}", own = own.name, limit);
                vec![factor(name, own.value.clamp(-*limit, *limit)).made_of(&own)]
            }
            Self::Clip { .. } => vec![own],
            Self::Gate { map } => {
                let gate = others.first().ok_or(Misread)?.at(cell)?;
                let through = map.value(&Tensor::new(&[gate.value], x.tensor.device())?)?;
                let through = through.to_vec1::<f64>()?.first().copied().unwrap_or(f64::NAN);
                let name = format!("{}({})", map.name(), gate.name);
                vec![own, factor(name, through).made_of(&gate)]
            }
            Self::Temperature(temperature) => vec![own, temperature.factor_at(cell)?],
        })])
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let Some(x) = inputs.first() else { return Pattern::ByCell };
        let own = || Read::same(0, x);
        let times = |name: String, by| vec![own().into(), Multiplier::Number(name, by, None)];
        let factors = match self {
            Self::Norm(norm) => return norm.pattern(inputs),
            Self::Root { head_dim } => times(format!("1 / √{head_dim}"), root(*head_dim).recip()),
            Self::By { factor } => times("scale".to_owned(), *factor),
            Self::SoftCap { cap } => vec![
                Multiplier::Number("softcap".to_owned(), *cap, None),
                Multiplier::Of(format!("tanh({{}} / {cap})"), Function::Tanh(*cap), own()),
            ],
            Self::Clip { limit } => {
                vec![Multiplier::Of(format!("{{}} within ±{limit}"), Function::Clip(*limit), own())]
            }
            Self::Gate { map: Map::Sigmoid } => {
                let gate = Read { input: 1, ..own() };
                let name = format!("{}({{}})", Map::Sigmoid.name());
                vec![own().into(), Multiplier::Of(name, Function::Sigmoid, gate)]
            }
            Self::Gate { .. } | Self::Temperature(_) => return Pattern::ByCell,
        };
        Pattern::Sum(vec![Products::one(factors)])
    }

    fn working(&self, inputs: &[Value], cell: &[usize]) -> Result<Working> {
        match (self, inputs) {
            (Self::Norm(norm), [x, ..]) => Ok(Working::Normed(norm.normed(x, cell)?)),
            _ => Ok(Working::Plain),
        }
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
            Self::Norm(_) => 4,
            Self::Root { .. } | Self::By { .. } | Self::Clip { .. } | Self::Temperature(_) => 1,
            Self::SoftCap { .. } => 3,
            Self::Gate { .. } => 2,
        })
    }

    fn narrowed(&self, part: Part, _: &[&Axes], whole: &Axes) -> Narrowed {
        match (self, part, part.position(whole)) {
            (Self::Temperature(own), _, Some(_)) => {
                Narrowed::To(Self::Temperature(own.narrowed(part)).into())
            }
            _ => Narrowed::Same,
        }
    }

    fn knobs(&self) -> Vec<Knob> {
        match self {
            Self::Norm(norm) => norm.knobs(),
            Self::Root { .. } | Self::By { .. } => vec![Knob {
                name: "scale",
                value: match self {
                    Self::Root { head_dim } => root(*head_dim).recip(),
                    Self::By { factor } => *factor,
                    _ => 1.0,
                },
                range: Range::Factor,
                common: vec![1.0],
                with: Box::new(|factor| Some(Self::By { factor }.into())),
            }],
            Self::SoftCap { cap } => vec![Knob {
                name: "softcap",
                value: *cap,
                range: Range::Positive,
                common: vec![1.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0],
                with: Box::new(|cap| (cap > 0.0).then(|| Self::SoftCap { cap }.into())),
            }],
            Self::Clip { limit } => vec![Knob {
                name: "clip",
                value: *limit,
                range: Range::Positive,
                common: Vec::new(),
                with: Box::new(|limit| (limit > 0.0).then(|| Self::Clip { limit }.into())),
            }],
            Self::Gate { .. } => Vec::new(),
            Self::Temperature(temperature) => temperature.knobs(),
        }
    }

    fn siblings(&self, inputs: &[&Axes]) -> Vec<Sibling> {
        let replaced = |op: Op, told: &str| Sibling::new(op, Kind::Replaced, told);
        match self {
            Self::Norm(norm) => norm.siblings(inputs),
            Self::SoftCap { cap } => {
                let cap = *cap;
                let part = |outer: f64, inner: f64, told: &str| {
                    let slip = Slip::Scores(ScoreSlip::Cap { outer, inner });
                    Sibling::new(slip, Kind::Omitted, told)
                };
                vec![
                    replaced(
                        Self::Clip { limit: cap }.into(),
                        tr!("the scores are clipped at the cap, without tanh"),
                    ),
                    replaced(
                        Slip::Map(Map::Tanh).into(),
                        tr!("tanh of the scores, without the cap"),
                    ),
                    part(1.0, cap.recip(), tr!("tanh is not multiplied by the cap")),
                    part(cap, 1.0, tr!("the scores are not divided by the cap before tanh")),
                ]
            }
            Self::Clip { limit } => {
                let limit = *limit;
                let bound = |above, told: &str| {
                    Sibling::new(Slip::Bound { limit, above }, Kind::Omitted, told)
                };
                vec![
                    replaced(
                        Self::SoftCap { cap: limit }.into(),
                        tr!("the numbers are capped softly, by tanh, not clipped"),
                    ),
                    bound(true, tr!("the numbers are clipped from above alone")),
                    bound(false, tr!("the numbers are clipped from below alone")),
                ]
            }
            Self::Gate { map } => {
                let maps = Map::ALL.into_iter().filter(|other| other != map);
                let told = |other: Map| {
                    tr!(
                        "the gate goes through {other}, not through {value}",
                        other = other.name(),
                        value = map.name()
                    )
                };
                let gate = |map| replaced(Self::Gate { map }.into(), &told(map));
                let bare = Sibling::new(
                    Slip::Product,
                    Kind::Omitted,
                    tr!("the gate does not go through {value}", value = map.name()),
                );
                maps.map(gate).chain([bare]).collect()
            }
            Self::Temperature(temperature) => temperature.siblings(),
            Self::Root { .. } | Self::By { .. } => Vec::new(),
        }
    }

    fn constant(&self) -> Option<(&'static str, String, f64)> {
        match self {
            Self::Root { head_dim } => Some(("√d_k", format!("√{head_dim}"), root(*head_dim))),
            _ => None,
        }
    }
}

#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 features")]
fn root(head_dim: usize) -> f64 {
    (head_dim as f64).sqrt()
}

/// A number as a tensor of the type that it is to meet.
pub(super) fn number(value: f64, beside: &Tensor) -> candle_core::Result<Tensor> {
    Tensor::new(value, beside.device())?.to_dtype(beside.dtype())
}
