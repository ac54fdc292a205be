//! Rotary positions.

use candle_core::{Device, Tensor};

use super::frequencies::Frequencies;
use super::pairing::Pairing;
use super::rotate::Rotate;
use crate::adjoint::{Adjoint, Operand};
use crate::axis::Axis::HeadDim;
use crate::axis::{Axes, Dim};
use crate::misread::{Misread, read};
use crate::operation::Operation;
use crate::part::Part;
use crate::pattern::Pattern;
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
                    "{heads}, pairs {pairs}{last} rotated by {minus}position · {freqs}, {from}{by}",
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

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        match self {
            Self::Frequencies(frequencies) => frequencies.pattern(),
            Self::Rotate(rotate) => match inputs {
                [heads, freqs] => rotate.pattern(heads, freqs),
                _ => Pattern::ByCell,
            },
        }
    }

    /// For each feature of a pair two products and a sum; cosines and sines are few.
    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        match (self, inputs) {
            (Self::Rotate(_), [heads, freqs]) => {
                let rows = output.count().checked_div(heads.last_size()).unwrap_or(0);
                rows.saturating_mul(6 * freqs.last_size())
            }
            (Self::Frequencies(_) | Self::Rotate(_), _) => 0,
        }
    }

    fn adjoint(&self, input: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        match (self, input) {
            (Self::Rotate(own), 0) => {
                let back = Rotate { is_backwards: !own.is_backwards, ..own.clone() };
                Adjoint::of(Self::Rotate(back), [Operand::Gradient, Operand::Input(1)])
            }
            (Self::Rotate(_) | Self::Frequencies(_), _) => Adjoint::Nothing,
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], whole: &Axes) -> Option<Self> {
        Some(match self {
            Self::Rotate(own) if part.position(whole).is_some() => Self::Rotate(own.narrowed(part)),
            Self::Rotate(_) | Self::Frequencies(_) => self.clone(),
        })
    }
}
