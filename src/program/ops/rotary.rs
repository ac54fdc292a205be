//! Rotary positions.

use candle_core::{DType, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};

use crate::error::Result;
use crate::program::axis::Axis::HeadDim;
use crate::program::axis::{Axes, Dim};
use crate::program::choices;
use crate::program::op::{Misread, Operation, read};
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

/// Rotary positions ("`RoFormer`", Su et al., 2021, equation 34): the pair i of every head's features is turned by
/// position · `θ_i`. Reads heads (batch, head, token, `head_dim`) and θ (one a pair); features beyond the pairs stay.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotate {
    /// Which features are a pair.
    pub pairing: Pairing,
    /// The position of the first token.
    pub first: usize,
    /// What cosine and sine are multiplied by.
    pub factor: f64,
}

impl Rotate {
    #[allow(clippy::float_cmp, reason = "1 exactly")]
    fn has_factor(&self) -> bool {
        self.factor != 1.0
    }
}

impl Operation for Rotate {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [heads, freqs] = read(inputs)?;
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
        Ok(Tensor::cat(&[part, rest], 3)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [heads @ [.., (HeadDim, d)], [(HeadDim, pairs)]] if *pairs <= d / 2 => {
                Ok(heads.to_vec())
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let ([heads, freqs], first) = (read(names)?, self.first);
        let pairs = match self.pairing {
            Pairing::Half => "(i, i + r/2)",
            Pairing::Interleaved => "(2i, 2i + 1)",
        };
        let by =
            if self.has_factor() { format!(" and times {}", self.factor) } else { String::new() };
        Ok(format!(
            "{heads}, pairs {pairs} turned by position · {freqs}, from position {first}{by}"
        ))
    }

    /// A turned feature: itself times the cosine, and its partner times the sine, of the pair's angle.
    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([heads, freqs], &[b, h, t, d]) = (read(inputs)?, cell) else {
            return Err(Misread.into());
        };
        let pairs = freqs.tensor.dim(0)?;
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
        let mut terms = vec![
            Term(vec![heads.at(cell)?, factor(format!("cos({name})"), angle.cos())]),
            Term(vec![
                heads.at(&[b, h, t, partner])?,
                factor(format!("{minus}sin({name})"), sign * angle.sin()),
            ]),
        ];
        if self.has_factor() {
            for term in &mut terms {
                term.0.push(factor("attention factor", self.factor));
            }
        }
        Ok(terms)
    }

    /// Of every pair two products and a sum a feature; cosines and sines are few.
    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let [heads, freqs] = inputs else { return 0 };
        let rows = output.count().checked_div(heads.last_size()).unwrap_or(0);
        rows.saturating_mul(6 * freqs.last_size())
    }
}
