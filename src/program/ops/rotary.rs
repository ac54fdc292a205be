//! Rotary positions.

use candle_core::{DType, Device, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};

use super::frequencies::Frequencies;
use crate::error::Result;
use crate::program::axis::Axis::HeadDim;
use crate::program::axis::{Axes, Dim};
use crate::program::choices;
use crate::program::op::{Misread, Operation, at, read};
use crate::program::terms::{Term, Value, factor};

choices! {
    /// Which features of a head rotary positions turn together ("`RoFormer`", Su et al., 2021, section 3.4).
    Pairing {
        /// i and i + r/2 of the r that are rotated, as in Llama and GPT-NeoX.
        #[default]
        Half = "half",
        /// 2i and 2i + 1, as in the paper and in GPT-J.
        Interleaved = "interleaved",
    }
}

/// Rotary positions, and what they are made of.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Rotary {
    /// (pairs): the frequencies of the pairs.
    Frequencies(Frequencies),
    /// Pairs of features turned by their positions.
    Rotate(Rotate),
}

/// The pair i of every head's features is turned by position · `θ_i` ("`RoFormer`", Su et al., 2021, equation 34). Reads
/// heads (batch, head, token, `head_dim`) and θ (one per pair); features beyond the pairs stay.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotate {
    /// Which features are a pair.
    pub pairing: Pairing,
    /// The position of the first token.
    pub first: usize,
    /// What cosine and sine are multiplied by.
    pub factor: f64,
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
                    scaling.as_ref().map(|scaling| format!(", scaled {}", scaling.kind()));
                Ok(format!("{base}^(−2i / {dims}){}", scaling.unwrap_or_default()))
            }
            Self::Rotate(rotate) => {
                let ([heads, freqs], first) = (read(names)?, rotate.first);
                let pairs = match rotate.pairing {
                    Pairing::Half => "(i, i + r/2)",
                    Pairing::Interleaved => "(2i, 2i + 1)",
                };
                let by = rotate.own_factor().map(|factor| format!(" and times {factor}"));
                let by = by.unwrap_or_default();
                Ok(format!(
                    "{heads}, pairs {pairs} turned by position · {freqs}, from position {first}{by}"
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
                let scaling = scaling.as_ref().map(|scaling| format!("{} scaling", scaling.kind()));
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
}

impl Rotate {
    /// What cosine and sine are multiplied by, if not by 1.
    #[allow(clippy::float_cmp, reason = "1 exactly")]
    fn own_factor(&self) -> Option<f64> {
        Some(self.factor).filter(|factor| *factor != 1.0)
    }

    fn value(&self, heads: &Tensor, freqs: &Tensor) -> candle_core::Result<Tensor> {
        let (tokens, head_dim) = (heads.dim(2)?, heads.dim(3)?);
        let turned = 2 * freqs.dim(0)?;
        let end = u32::try_from(self.first + tokens).map_err(candle_core::Error::wrap)?;
        let start = u32::try_from(self.first).map_err(candle_core::Error::wrap)?;
        let positions = Tensor::arange(start, end, heads.device())?.to_dtype(freqs.dtype())?;
        let angles = positions.unsqueeze(1)?.broadcast_mul(freqs)?;
        let cos = angles.cos()?.affine(self.factor, 0.0)?;
        let sin = angles.sin()?.affine(self.factor, 0.0)?;
        let part = heads.narrow(3, 0, turned)?.contiguous()?;
        let part = match self.pairing {
            Pairing::Half => rope(&part, &cos, &sin)?,
            Pairing::Interleaved => rope_i(&part, &cos, &sin)?,
        };
        if turned == head_dim {
            return Ok(part);
        }
        let rest = heads.narrow(3, turned, head_dim - turned)?.contiguous()?;
        Tensor::cat(&[part, rest], 3)
    }

    /// A turned feature: itself times the cosine, and its partner times the sine, of the pair's angle.
    fn terms(&self, heads: &Value, freqs: &Value, cell: &[usize]) -> Result<Vec<Term>> {
        let ([b, h, t, d], pairs) = (at(cell)?, freqs.tensor.dim(0)?);
        if d >= 2 * pairs {
            return Ok(vec![Term(vec![heads.at(cell)?])]);
        }
        let (pair, partner, is_first) = match self.pairing {
            Pairing::Half if d < pairs => (d, d + pairs, true),
            Pairing::Half => (d - pairs, d - pairs, false),
            Pairing::Interleaved => (d / 2, d ^ 1, d % 2 == 0),
        };
        let frequency = freqs.at(&[pair])?;
        let position = self.first + t;
        #[allow(clippy::cast_precision_loss, reason = "positions are below 2^24")]
        let angle = position as f64 * frequency.value;
        // As it is multiplied: in the type of the run.
        let is_narrow = freqs.tensor.dtype() == DType::F32;
        #[allow(clippy::cast_possible_truncation, reason = "the product is rounded so")]
        let angle = if is_narrow { f64::from(angle as f32) } else { angle };
        let name = format!("{position} · {}", frequency.name);
        let (sign, minus) = if is_first { (-1.0, "−") } else { (1.0, "") };
        let own = [heads.at(cell)?, factor(format!("cos({name})"), angle.cos())];
        let other = heads.at(&[b, h, t, partner])?;
        let others = [other, factor(format!("{minus}sin({name})"), sign * angle.sin())];
        let by = self.own_factor().map(|by| factor("attention factor", by));
        Ok([own, others]
            .map(|factors| Term(factors.into_iter().chain(by.clone()).collect()))
            .into())
    }
}
