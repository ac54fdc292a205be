//! Matrix products in fewer bits, as tensor cores and automatic casts compute them.

use candle_core::{DType, Tensor};

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
    /// Not only products, but every step.
    Steps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cast {
    Inputs,
    Result,
    Both,
}

/// The cosine of two roundings from which on they are one, but for ties that fall on the other side. A mistake beside it
/// would have to be smaller than the rounding itself.
const ALIKE: f64 = 0.75;

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

    /// Every step of a run in 16 bits is rounded.
    pub fn of_every_step(half: DType) -> Self {
        let precision = if half == DType::F16 { Precision::F16 } else { Precision::Bf16 };
        Self { precision, which: Which::Steps, cast: Cast::Result }
    }

    /// `the matrix products are computed in bf16`.
    pub fn told(self) -> String {
        let name = self.precision.name();
        let which = match self.which {
            Which::All => "the matrix products",
            Which::Projections => "the projections",
            Which::Attention => "the products of queries, keys and values",
            Which::Scores => "the products of queries and keys",
            Which::Steps => "all steps",
            Which::Cache => return format!("the cache holds {name} numbers"),
        };
        match self.cast {
            Cast::Result => format!("the results of {which} are rounded to {name}"),
            Cast::Inputs | Cast::Both => format!("{which} are computed in {name}"),
        }
    }

    fn is_of(self, op: &Op) -> bool {
        match (op, self.which) {
            (_, Which::Steps) | (Op::Linear(_), Which::All) => true,
            (Op::Heads(Heads::Append), which) => which == Which::Cache,
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

/// Whether what `found` is off by is what `rounded` is off by, cell by cell. A factor that all numbers share is looked at
/// apart: rounding that cuts has one too, and so has many a mistake.
///
/// # Errors
/// If candle fails.
pub fn is_off_alike(found: &Tensor, value: &Tensor, rounded: &Tensor) -> Result<bool> {
    let number = |number: f64| if number.is_finite() { number } else { 0.0 };
    let off = |other: &Tensor| -> Result<Vec<f64>> {
        let apart = other.to_dtype(value.dtype())?.sub(value)?;
        Ok(cells(&apart, None)?.into_iter().map(number).collect())
    };
    let dot = |left: &[f64], right: &[f64]| -> f64 {
        left.iter().zip(right).map(|(left, right)| left * right).sum()
    };
    let own: Vec<f64> = cells(value, None)?.into_iter().map(number).collect();
    let (found, rounded) = (off(found)?, off(rounded)?);
    if rounded.iter().filter(|off| **off != 0.0).count() < LEAST_CELLS {
        return Ok(false);
    }
    let shared = |off: &[f64]| dot(off, &own) / dot(&own, &own);
    let (of_found, of_rounded) = (shared(&found), shared(&rounded));
    let rest = |off: &[f64], factor: f64| -> Vec<f64> {
        off.iter().zip(&own).map(|(off, own)| off - factor * own).collect()
    };
    let (rest_found, rest_rounded) = (rest(&found, of_found), rest(&rounded, of_rounded));
    let cosine = dot(&rest_found, &rest_rounded)
        / (dot(&rest_found, &rest_found) * dot(&rest_rounded, &rest_rounded)).sqrt();
    let size = (dot(&rest_rounded, &rest_rounded) / dot(&own, &own)).sqrt();
    Ok(cosine > ALIKE && (of_found - of_rounded).abs() <= size)
}
