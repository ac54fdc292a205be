//! Rotary positions.

use candle_core::{Device, Tensor};

use super::frequencies::Frequencies;
use super::pairing::Pairing;
use super::precision::Precision;
use super::rotate::Rotate;
use super::slip::Slip;
use super::turn::{Stage, Turn};
use crate::axis::Axis::HeadDim;
use crate::axis::{Axes, Dim};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Op, Operation, at, read};
use crate::pattern::Pattern;
use crate::slips::{Kind, Knob, Range, Sibling, whole};
use crate::terms::{Term, Value, factor};
use crate::working::Working;
use base::error::Result;

/// Rotary positions, and what they are made of.
#[derive(Debug, Clone, PartialEq)]
pub enum Rotary {
    /// (pairs): the frequencies of the pairs.
    Frequencies(Frequencies),
    /// Pairs of features turned by their positions.
    Rotate(Rotate),
}

impl Operation for Rotary {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        match self {
            Self::Frequencies(frequencies) => {
                let [] = read(inputs)?;
                let numbers = Tensor::new(frequencies.numbers()?, &Device::Cpu)?;
                Ok(numbers.to_dtype(frequencies.dtype)?)
            }
            Self::Rotate(rotate) => {
                let [heads, freqs] = read(inputs)?;
                Ok(rotate.value(heads, freqs)?)
            }
        }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Frequencies(frequencies), []) => Ok(vec![(HeadDim, frequencies.dims / 2)]),
            (Self::Rotate(_), [heads @ [.., (HeadDim, d)], [(HeadDim, pairs)]])
                if *pairs <= d / 2 =>
            {
                Ok(heads.to_vec())
            }
            (Self::Frequencies(_) | Self::Rotate(_), _) => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        match self {
            Self::Frequencies(Frequencies { dims, base, scaling, .. }) => {
                let scaling =
                    scaling.as_ref().map(|scaling| tr!(", scaled {kind}", kind = scaling.kind()));
                Ok(format!("{base}^(−2i / {dims}){}", scaling.unwrap_or_default()))
            }
            Self::Rotate(rotate) => {
                let ([heads, freqs], first) = (read(names)?, rotate.first);
                let pairs = match rotate.pairing {
                    Pairing::Half => "(i, i + r/2)",
                    Pairing::Interleaved => "(2i, 2i + 1)",
                };
                let by = rotate.own_factor().map(|factor| tr!(" and times {factor}", factor));
                let by = by.unwrap_or_default();
                let from = match &rotate.places {
                    Some(places) => places.told(),
                    None => tr!("from position {first}", first),
                };
                let last = if rotate.is_at_end { tr!(" of the last features") } else { "" };
                let minus = if rotate.is_backwards { "−" } else { "" };
                Ok(tr!(
                    "{heads}, pairs {pairs}{last} turned by {minus}position · {freqs}, {from}{by}",
                    heads,
                    pairs,
                    last,
                    minus,
                    freqs,
                    from,
                    by
                ))
            }
        }
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        match self {
            Self::Frequencies(frequencies) => {
                let [pair] = at(cell)?;
                let number = f64::from(*frequencies.numbers()?.get(pair).ok_or(Misread)?);
                let power = frequencies.powers().nth(pair).map_or(number, f64::from);
                let Frequencies { dims, base, scaling, .. } = frequencies;
                let scaling =
                    scaling.as_ref().map(|scaling| tr!("{kind} scaling", kind = scaling.kind()));
                let power_of = factor(format!("{base}^(−{} / {dims})", 2 * pair), power);
                let scaled = scaling.map(|name| factor(name, number / power));
                Ok(vec![Term([power_of].into_iter().chain(scaled).collect())])
            }
            Self::Rotate(rotate) => {
                let [heads, freqs] = read(inputs)?;
                rotate.terms(&heads, &freqs, cell)
            }
        }
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        match (self, inputs) {
            (Self::Rotate(rotate), [heads, freqs]) => rotate.pattern(heads, freqs),
            (Self::Frequencies(_) | Self::Rotate(_), _) => Pattern::ByCell,
        }
    }

    fn working(&self, inputs: &[Value], cell: &[usize]) -> Result<Working> {
        let (Self::Rotate(rotate), [heads, freqs]) = (self, inputs) else {
            return Ok(Working::Plain);
        };
        Ok(rotate.turned(heads, freqs, cell)?.map_or(Working::Plain, Working::Turned))
    }

    /// For each feature of a pair two products and a sum; cosines and sines are few.
    fn knobs(&self) -> Vec<Knob> {
        match self {
            Self::Frequencies(own) => {
                let (of_base, of_dims) = (own.clone(), own.clone());
                let with_base = move |base: f64| {
                    let frequencies = Frequencies { base, ..of_base.clone() };
                    (base > 0.0).then(|| Self::Frequencies(frequencies).into())
                };
                let with_dims = move |dims: f64| {
                    let dims = whole(dims).filter(|dims| *dims >= 2 && dims % 2 == 0)?;
                    let frequencies = Frequencies { dims, ..of_dims.clone() };
                    // Of `longrope` there are as many factors as pairs.
                    frequencies.numbers().is_ok().then(|| Self::Frequencies(frequencies).into())
                };
                let most = i64::try_from(2 * own.dims).unwrap_or(i64::MAX);
                #[allow(clippy::cast_precision_loss, reason = "features of a head are few")]
                let dims = own.dims as f64;
                let mut knobs = vec![
                    Knob {
                        name: "rope_base",
                        value: own.base,
                        range: Range::Positive,
                        common: vec![1e4, 5e5, 1e6, 1e5, 1e3, 100.0, 1e7, 1e2, 1e8],
                        with: Box::new(with_base),
                    },
                    Knob {
                        name: "rope_dims",
                        value: dims,
                        range: Range::Whole(2, most),
                        common: Vec::new(),
                        with: Box::new(with_dims),
                    },
                ];
                for (name, value, with) in own.scaling_numbers() {
                    let own = own.clone();
                    knobs.push(Knob {
                        name,
                        value,
                        range: Range::Stated,
                        common: vec![1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0],
                        with: Box::new(move |value| {
                            let scaling = own.scaling.as_ref().map(|scaling| with(scaling, value));
                            let other = Frequencies { scaling, ..own.clone() };
                            Some(Self::Frequencies(other).into())
                        }),
                    });
                }
                knobs
            }
            Self::Rotate(own) => {
                let (of_first, of_factor) = (own.clone(), own.clone());
                let with_first = move |first: f64| {
                    #[allow(clippy::cast_possible_truncation, reason = "a whole number")]
                    let turn = Turn { first: vec![first as i64], ..of_first.turn() };
                    Some(Slip::Turn(turn).into())
                };
                let first = i64::try_from(own.first).unwrap_or(i64::MAX);
                #[allow(clippy::cast_precision_loss, reason = "positions are below 2^24")]
                let value = first as f64;
                let mut knobs = vec![
                    Knob {
                        name: tr!("first position"),
                        value,
                        range: Range::Whole(-first.min(64) - 8, first.saturating_add(32)),
                        common: vec![0.0, value + 1.0, value - 1.0],
                        with: Box::new(with_first),
                    },
                    Knob {
                        name: tr!("attention factor"),
                        value: own.factor,
                        range: Range::Factor,
                        common: vec![1.0],
                        with: Box::new(move |factor| {
                            let rotate = Rotate { factor, ..of_factor.clone() };
                            Some(Self::Rotate(rotate).into())
                        }),
                    },
                ];
                // Given positions have no first.
                if own.places.is_some() {
                    knobs.remove(0);
                }
                knobs
            }
        }
    }

    #[allow(clippy::too_many_lines, reason = "a list of ways, one after the other")]
    fn siblings(&self, _: &[&Axes]) -> Vec<Sibling> {
        match self {
            Self::Frequencies(own) => {
                let unscaled = Frequencies { scaling: None, ..own.clone() };
                let unscaled = own.scaling.as_ref().map(|scaling| {
                    let told =
                        tr!("the frequencies are not scaled ({kind})", kind = scaling.kind());
                    Sibling::new(Self::Frequencies(unscaled), Kind::Omitted, told)
                });
                let exchanged = own.exchanged().map(|(other, told)| {
                    Sibling::new(Self::Frequencies(other), Kind::Parameter, told)
                });
                unscaled.into_iter().chain(exchanged).collect()
            }
            Self::Rotate(own) => {
                let turn =
                    |turn: Turn, told: &str| Sibling::new(Slip::Turn(turn), Kind::Replaced, told);
                let right = own.turn();
                let other = match own.pairing {
                    Pairing::Half => Pairing::Interleaved,
                    Pairing::Interleaved => Pairing::Half,
                };
                let mut all = vec![
                    turn(
                        Turn { is_backwards: !own.is_backwards, ..right.clone() },
                        tr!("the rotation goes the other way: the sine has the wrong sign"),
                    ),
                    turn(
                        Turn { is_exchanged: true, ..right.clone() },
                        tr!("sine and cosine change places"),
                    ),
                    turn(
                        Turn { angles: other, ..right.clone() },
                        tr!(
                            "the two pairings are mixed: cosines and sines are laid out for the other one"
                        ),
                    ),
                    turn(
                        Turn { partners: other, ..right.clone() },
                        tr!("the two pairings are mixed: partners are those of the other one"),
                    ),
                    turn(
                        Turn {
                            is_backwards: !own.is_backwards,
                            partners: other,
                            angles: other,
                            ..right.clone()
                        },
                        tr!("the other pairs are turned, and the other way"),
                    ),
                    turn(
                        Turn { is_unsigned: true, ..right.clone() },
                        tr!("the minus sign of the rotation is missing"),
                    ),
                    turn(
                        Turn { is_at_end: !own.is_at_end, ..right.clone() },
                        if own.is_at_end {
                            tr!("the first features are turned, not the last")
                        } else {
                            tr!("the last features are turned, not the first")
                        },
                    ),
                    turn(
                        Turn { is_in_place: true, ..right.clone() },
                        tr!(
                            "the rotation is made in place: the second partner reads the first as that has become"
                        ),
                    ),
                    turn(
                        Turn { step: -1.0, ..right.clone() },
                        tr!("positions are counted backwards"),
                    ),
                    turn(
                        Turn { step: 0.0, ..right.clone() },
                        tr!("every token has the position of the first"),
                    ),
                    turn(
                        Turn { is_by_head: true, ..right.clone() },
                        tr!("positions are those of the heads, not of the tokens"),
                    ),
                ];
                if let Some(places) = &own.places {
                    // These count up from the first position, which given ones do not.
                    let counts = |sibling: &Sibling| matches!(&sibling.op, Op::Slip(Slip::Turn(turn)) if turn.counts());
                    all.retain(|sibling| !counts(sibling));
                    let others = own.other_places(places).into_iter();
                    all.extend(others.map(|(other, told)| {
                        Sibling::new(Self::Rotate(other), Kind::Replaced, told)
                    }));
                }
                let stages = [
                    (Stage::Positions, "positions"),
                    (Stage::Angles, "angles"),
                    (Stage::Whole, tr!("positions, frequencies and angles")),
                    (Stage::Tables, tr!("cosines and sines")),
                ];
                for precision in Precision::ALL {
                    for (stage, name) in stages {
                        let turn = Turn { rounded: Some((stage, precision)), ..right.clone() };
                        let told = tr!(
                            "the {name} are computed in {precision}",
                            name,
                            precision = precision.name()
                        );
                        all.push(Sibling::new(Slip::Turn(turn), Kind::Precision, told));
                    }
                }
                all
            }
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], whole: &Axes) -> Narrowed {
        match (self, part, part.position(whole)) {
            (Self::Rotate(own), Part::Rows(rows), Some(_)) => {
                let first = own.first + rows.first;
                Narrowed::To(Self::Rotate(Rotate { first, ..own.clone() }).into())
            }
            (Self::Rotate(own), Part::Item(item), Some(_)) => {
                let places = own.places.as_ref().map(|places| places.of_item(item));
                Narrowed::To(Self::Rotate(Rotate { places, ..own.clone() }).into())
            }
            (Self::Rotate(_) | Self::Frequencies(_), ..) => Narrowed::Same,
        }
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        match (self, inputs) {
            (Self::Rotate(_), [heads, freqs]) => {
                let rows = output.count().checked_div(heads.last_size()).unwrap_or(0);
                rows.saturating_mul(6 * freqs.last_size())
            }
            (Self::Frequencies(_) | Self::Rotate(_), _) => 0,
        }
    }
}
