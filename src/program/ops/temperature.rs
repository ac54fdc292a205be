//! Factors of queries that grow with their positions.

use candle_core::Tensor;

use super::scaling::Scaling;
use crate::error::Result;
use crate::program::op::Misread;
use crate::program::slips::{Kind, Knob, Range, Sibling, whole};
use crate::program::terms::{Factor, factor};

/// x · (1 + S · ln(1 + ⌊p / N⌋)) at position p, by which long contexts keep sharp weights ("Scalable-Softmax Is Superior
/// for Attention", Nakanishi, 2025; Llama 4's `attn_temperature_tuning`). Reads queries (batch, head, query, `head_dim`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// S.
    pub scale: f64,
    /// N.
    pub floor: f64,
    /// The position of the first row.
    pub first: usize,
    /// Whether the quotient is rounded down, as it should be.
    pub is_floored: bool,
}

impl Temperature {
    /// The factor of a row.
    #[allow(clippy::cast_precision_loss, reason = "positions are below 2^53")]
    fn of_row(&self, row: usize) -> f64 {
        let quotient = (self.first + row) as f64 / self.floor;
        let quotient = if self.is_floored { quotient.floor() } else { quotient };
        1.0 + self.scale * quotient.ln_1p()
    }

    pub(super) fn value(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.dims4()?.2;
        let factors: Vec<f64> = (0..rows).map(|row| self.of_row(row)).collect();
        let factors = Tensor::from_vec(factors, (rows, 1), x.device())?.to_dtype(x.dtype())?;
        Ok(x.broadcast_mul(&factors)?)
    }

    pub(super) fn formula(&self, x: &str) -> String {
        let Self { scale, floor, first, .. } = self;
        format!("{x} · (1 + {scale} · ln(1 + ⌊position / {floor}⌋)), from position {first}")
    }

    pub(super) fn factor_at(&self, cell: &[usize]) -> Result<Factor> {
        let [_, _, row, _] = cell else { return Err(Misread.into()) };
        let Self { scale, floor, first, .. } = self;
        let name = format!("1 + {scale} · ln(1 + ⌊{} / {floor}⌋)", first + row);
        Ok(factor(name, self.of_row(*row)))
    }

    pub(super) fn knobs(self) -> Vec<Knob> {
        let with = |other: Self| Some(Scaling::Temperature(other).into());
        #[allow(clippy::cast_precision_loss, reason = "positions are below 2^53")]
        let first = self.first as f64;
        let last = i64::try_from(self.first).unwrap_or(i64::MAX).saturating_add(32);
        vec![
            Knob {
                name: "q_temperature",
                value: self.scale,
                range: Range::Stated,
                common: vec![0.1, 1.0],
                with: Box::new(move |scale| with(Self { scale, ..self })),
            },
            Knob {
                name: "q_temperature_floor",
                value: self.floor,
                range: Range::Stated,
                common: Vec::new(),
                with: Box::new(move |floor| {
                    (floor > 0.0).then_some(Self { floor, ..self }).and_then(with)
                }),
            },
            Knob {
                name: "first position",
                value: first,
                range: Range::Whole(0, last),
                common: vec![0.0, first + 1.0, first - 1.0],
                with: Box::new(move |first| with(Self { first: whole(first)?, ..self })),
            },
        ]
    }

    pub(super) fn siblings(self) -> Vec<Sibling> {
        let op = Scaling::Temperature(Self { is_floored: false, ..self });
        let told = "the quotient of position and q_temperature_floor is not rounded down";
        vec![Sibling::new(op, Kind::Replaced, told)]
    }
}
