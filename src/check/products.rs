//! Matrix products in fewer bits, as tensor cores and automatic casts compute them.

use candle_core::Tensor;

use super::fit::{LEAST_CELLS, cells};
use crate::error::Result;
use crate::program::{Heads, Linear, Op, Precision, Step};

/// Which matrix products are computed in fewer bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Products {
    /// The type.
    pub precision: Precision,
    /// Which they are.
    which: Which,
    /// What of them is rounded to it.
    cast: Cast,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    Projections,
    Attention,
    Scores,
    /// No product, but the keys and values that a cache holds.
    Cache,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cast {
    Inputs,
    Result,
    Both,
}

/// From so much on that goes the way of the rounding, all does: other roundings of the same run share less than 0.9.
const ALL: f64 = 0.95;

/// From so much on it is that, if it is as large: what is not that rounding shares next to nothing with it.
const PART: f64 = 0.5;

impl Products {
    /// What code computes in fewer bits, the likeliest first.
    pub fn all() -> impl Iterator<Item = Self> {
        let types = [Precision::Tf32, Precision::CutTf32, Precision::F16, Precision::Bf16];
        types.into_iter().flat_map(|precision| {
            let is_type = matches!(precision, Precision::F16 | Precision::Bf16);
            let products = move |cast| {
                let each = [Which::All, Which::Attention, Which::Projections, Which::Scores];
                each.into_iter().map(move |which| Self { precision, which, cast })
            };
            let of_type = products(Cast::Both).chain(products(Cast::Result));
            let cache = Self { precision, which: Which::Cache, cast: Cast::Result };
            products(Cast::Inputs).chain(of_type.chain([cache]).filter(move |_| is_type))
        })
    }

    /// `the matrix products are computed in bf16`.
    pub fn told(self) -> String {
        let name = self.precision.name();
        let which = match self.which {
            Which::All => "the matrix products",
            Which::Projections => "the projections",
            Which::Attention => "the products of queries, keys and values",
            Which::Scores => "the products of queries and keys",
            Which::Cache => return format!("the cache holds {name} numbers"),
        };
        match self.cast {
            Cast::Result => format!("the results of {which} are rounded to {name}"),
            Cast::Inputs | Cast::Both => format!("{which} are computed in {name}"),
        }
    }

    fn is_of(self, op: &Op) -> bool {
        match (op, self.which) {
            (Op::Heads(Heads::Append), which) => which == Which::Cache,
            (Op::Linear(_), Which::All) => true,
            (Op::Linear(Linear::Project { .. }), which) => which == Which::Projections,
            (Op::Linear(Linear::WeightedSum), which) => which == Which::Attention,
            (Op::Linear(_), which) => matches!(which, Which::Attention | Which::Scores),
            _ => false,
        }
    }

    /// A step's value, if its product is one of these.
    ///
    /// # Errors
    /// If candle fails.
    pub fn eval(self, step: &Step, inputs: &[&Tensor]) -> Result<Tensor> {
        if !self.is_of(&step.op) {
            return step.op.eval(inputs);
        }
        let value = if self.cast == Cast::Result {
            step.op.eval(inputs)?
        } else {
            let read = inputs.iter().map(|input| self.precision.round(input));
            let read: Vec<Tensor> = read.collect::<candle_core::Result<_>>()?;
            step.op.eval(&read.iter().collect::<Vec<_>>())?
        };
        Ok(if self.cast == Cast::Inputs { value } else { self.precision.round(&value)? })
    }
}

/// How much of what a value is off by goes the way of what rounding makes it off by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shared {
    /// All of it, but for ties that fall on the other side.
    All,
    /// So much that it is that rounding, if it is as large.
    Part,
    /// Too little.
    None,
}

/// How much of what `found` is off by goes the way of what `rounded` is off by, cell by cell: the cosine of the two.
///
/// # Errors
/// If candle fails.
pub fn shared(found: &Tensor, value: &Tensor, rounded: &Tensor) -> Result<Shared> {
    let off = |other: &Tensor| -> Result<Vec<f64>> {
        let apart = other.to_dtype(value.dtype())?.sub(value)?;
        let apart = cells(&apart, None)?.into_iter();
        Ok(apart.map(|off| if off.is_finite() { off } else { 0.0 }).collect())
    };
    let (found, rounded) = (off(found)?, off(rounded)?);
    let dot = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| left * right).sum()
    };
    let both = dot(&found, &rounded) / (dot(&found, &found) * dot(&rounded, &rounded)).sqrt();
    let many = rounded.iter().filter(|off| **off != 0.0).count() >= LEAST_CELLS;
    Ok(match both {
        both if both > ALL && many => Shared::All,
        both if both > PART => Shared::Part,
        _ => Shared::None,
    })
}
