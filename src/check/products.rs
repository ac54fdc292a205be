//! Matrix products in fewer bits, as tensor cores and automatic casts compute them.

use candle_core::Tensor;

use super::fit::cells;
use crate::error::Result;
use crate::program::{Linear, Op, Precision, Step};

/// Which matrix products are computed from numbers of fewer bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Products {
    /// The type.
    pub precision: Precision,
    /// Which products they are.
    which: Which,
    /// Whether the results are rounded to it as well.
    is_result: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Projections,
    Attention,
}

/// From so much of the difference on, that goes the way of the rounding, it is that.
const SHARED: f64 = 0.5;

impl Products {
    /// What code computes in fewer bits, the likeliest first.
    pub fn all() -> impl Iterator<Item = Self> {
        let types = [Precision::Tf32, Precision::CutTf32, Precision::F16, Precision::Bf16];
        types.into_iter().flat_map(|precision| {
            let is_type = matches!(precision, Precision::F16 | Precision::Bf16);
            let products = move |is_result| {
                let each = [Which::All, Which::Attention, Which::Projections].into_iter();
                each.map(move |which| Self { precision, which, is_result })
            };
            products(false).chain(products(true).filter(move |_| is_type))
        })
    }

    /// `the matrix products are computed in bf16`.
    pub fn told(self) -> String {
        let which = match self.which {
            Which::All => "the matrix products",
            Which::Projections => "the projections",
            Which::Attention => "the products of queries, keys and values",
        };
        format!("{which} are computed in {}", self.precision.name())
    }

    /// A step's value, if its product is one of these.
    ///
    /// # Errors
    /// If candle fails.
    pub fn eval(self, step: &Step, inputs: &[&Tensor]) -> Result<Tensor> {
        let is_one = match (&step.op, self.which) {
            (Op::Linear(_), Which::All) => true,
            (Op::Linear(linear), which) => {
                matches!(linear, Linear::Project { .. }) == (which == Which::Projections)
            }
            _ => false,
        };
        if !is_one {
            return step.op.eval(inputs);
        }
        let read = inputs.iter().map(|input| self.precision.round(input));
        let read: Vec<Tensor> = read.collect::<candle_core::Result<_>>()?;
        let value = step.op.eval(&read.iter().collect::<Vec<_>>())?;
        Ok(if self.is_result { self.precision.round(&value)? } else { value })
    }
}

/// Whether what a value is off by goes the way of what `rounded` is off by, cell by cell.
///
/// # Errors
/// If candle fails.
pub fn goes_with(found: &Tensor, value: &Tensor, rounded: &Tensor) -> Result<bool> {
    let off = |other: &Tensor| -> Result<Vec<f64>> {
        let apart = other.to_dtype(value.dtype())?.sub(value)?;
        Ok(cells(&apart, None)?
            .into_iter()
            .map(|off| if off.is_finite() { off } else { 0.0 })
            .collect())
    };
    let (found, rounded) = (off(found)?, off(rounded)?);
    let dot = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| left * right).sum()
    };
    let both = dot(&found, &rounded);
    Ok(both > SHARED * (dot(&found, &found) * dot(&rounded, &rounded)).sqrt())
}
