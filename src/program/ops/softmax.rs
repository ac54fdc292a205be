//! From scores to weights.

use candle_core::{D, Tensor};

use super::mask::broadcasts;
use super::scores::same;
use crate::error::Result;
use crate::program::axis::{Axes, Dim};
use crate::program::choices;
use crate::program::op::{Misread, Operation, read};
use crate::program::terms::{Term, Value, factor};

choices! {
    /// What softmax makes of a row that is −∞ throughout.
    EmptyRow {
        /// NaN, as PyTorch's softmax.
        #[default]
        Nan = "nan",
        /// Zeros.
        Zero = "zero",
    }
}

/// exp(s) / Σ exp(s) over the keys of every row.
#[derive(Debug, Clone, PartialEq)]
pub struct Softmax {
    /// What a row that is −∞ throughout becomes.
    pub empty_row: EmptyRow,
    /// The axis that is summed over, counted from the last: 1 for the keys, as it should be.
    pub axis_from_last: usize,
}

impl Softmax {
    /// Over the keys.
    #[must_use]
    pub fn over_keys(empty_row: EmptyRow) -> Self {
        Self { empty_row, axis_from_last: 1 }
    }
}

impl Operation for Softmax {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores] = read(inputs)?;
        let weights = match self.axis_from_last {
            1 => candle_nn::ops::softmax_last_dim(scores)?,
            other => {
                let axis = scores.rank().checked_sub(other).ok_or(Misread)?;
                candle_nn::ops::softmax(scores, axis)?
            }
        };
        Ok(match self.empty_row {
            EmptyRow::Nan => weights,
            EmptyRow::Zero => {
                let empty = scores.eq(f64::NEG_INFINITY)?.min_keepdim(D::Minus1)?;
                let zeros = weights.zeros_like()?;
                empty.broadcast_as(weights.shape())?.where_cond(&zeros, &weights)?
            }
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        same(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [scores] = read(names)?;
        let over = match self.axis_from_last {
            1 => "keys",
            2 => "queries",
            3 => "heads",
            _ => "batch items",
        };
        Ok(format!("softmax({scores}) over {over}"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([scores], [row @ .., _]) = (read(inputs)?, cell) else { return Err(Misread.into()) };
        let row = scores.row(row)?;
        if self.empty_row == EmptyRow::Zero && row.iter().all(|s| *s == f64::NEG_INFINITY) {
            return Ok(vec![Term(vec![factor("0, as every key is blocked", 0.0)])]);
        }
        let largest = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|score| (score - largest).exp()).sum();
        let score = scores.at(cell)?;
        let own = factor(format!("exp({} − max)", score.name), (score.value - largest).exp());
        Ok(vec![Term(vec![own, factor("1 / Σ exp(s − max) over keys", sum.recip())])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(5)
    }

    fn mixes_items(&self) -> bool {
        self.axis_from_last > 3
    }

    fn is_share(&self) -> bool {
        true
    }

    fn range(&self) -> Option<(f64, f64)> {
        Some((0.0, 1.0))
    }
}

/// Zeros in the rows whose keys are all blocked, the weights elsewhere. Reads weights and a boolean mask.
#[derive(Debug, Clone, PartialEq)]
pub struct ZeroEmptyRows;

impl Operation for ZeroEmptyRows {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [weights, mask] = read(inputs)?;
        let empty = mask.min_keepdim(D::Minus1)?.broadcast_as(weights.shape())?;
        Ok(empty.where_cond(&weights.zeros_like()?, weights)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [weights, mask] if broadcasts(mask, weights) => Ok(weights.to_vec()),
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [weights, mask] = read(names)?;
        Ok(format!("0 where {mask} blocks every key, else {weights}"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [weights, _] = read(inputs)?;
        Ok(vec![Term(vec![weights.at(cell)?])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn only_a_row_of_minus_infinity_alone_is_empty() {
        let (nan, inf) = (f32::NAN, f32::NEG_INFINITY);
        let rows = [[inf, inf], [inf, nan], [nan, inf], [inf, 0.0]];
        let scores = Tensor::new(&rows, &Device::Cpu).expect("tensor");
        let weights = Softmax::over_keys(EmptyRow::Zero).value(&[&scores]);
        let weights = weights.and_then(|weights| Ok(weights.to_vec2::<f32>()?)).expect("computes");
        assert_eq!(
            (weights[0].as_slice(), weights[3].as_slice()),
            (&[0.0, 0.0][..], &[0.0, 1.0][..])
        );
        assert!(weights[1].iter().chain(&weights[2]).all(|weight| weight.is_nan()));
    }
}
