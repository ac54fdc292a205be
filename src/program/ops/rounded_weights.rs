//! Numbers in few bits: symmetric quantisation, and weights that kernels round before they multiply the values by them.

use candle_core::{D, Tensor};

use super::precision::Precision;

/// exp(s − largest) · `factor` of each row, or the weights · `factor`, rounded, and what that comes to of the row's sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundedWeights {
    /// The type that they are rounded to; none of whole numbers.
    pub precision: Option<Precision>,
    /// What they are multiplied by first, so that the largest is the type's.
    pub factor: f64,
    /// Whether they are cut, not rounded.
    pub is_cut: bool,
    /// Whether they are divided by the row's sum before.
    pub is_of_sum: bool,
    /// Whether the result is divided by that again.
    pub is_divided: bool,
}

impl RoundedWeights {
    /// The rounded weights, of those that sum to 1.
    pub(super) fn value(self, weights: &Tensor) -> candle_core::Result<Tensor> {
        let largest = weights.max_keepdim(D::Minus1)?;
        let one = largest.ones_like()?;
        let largest = largest.eq(0.0)?.where_cond(&one, &largest)?;
        let largest = if self.is_of_sum { one } else { largest };
        let exponentials = (weights.broadcast_div(&largest)? * self.factor)?;
        let rounded = match self.precision {
            Some(precision) => precision.round(&exponentials)?,
            None if self.is_cut => exponentials.floor()?,
            None => exponentials.round()?,
        };
        let back = if self.is_divided { self.factor.recip() } else { 1.0 };
        rounded.broadcast_mul(&(largest * back)?)
    }

    /// The name of what they are rounded to.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.precision.map_or("int8", Precision::name)
    }
}

/// Numbers in so many bits, by the largest of a row or of all.
pub(super) fn quantised(x: &Tensor, bits: u32, is_by_row: bool) -> candle_core::Result<Tensor> {
    let size = x.abs()?;
    let largest = if is_by_row { size.max_keepdim(D::Minus1)? } else { size.max_all()? };
    let most = f64::from((1_u32 << (bits - 1)) - 1);
    let step = (largest / most)?.broadcast_as(x.shape())?;
    let whole = x.div(&step)?.round()?.mul(&step)?;
    // A row of zeros stays one.
    step.eq(0.0)?.where_cond(x, &whole)
}
