//! What is added to the scores: linear position biases, and float masks.

use candle_core::{DType, Device, Tensor};

use super::mask::{broadcasts, joined};
use crate::error::Result;
use crate::program::axis::Axis::{Head, Key, Query};
use crate::program::axis::{Axes, Dim};
use crate::program::op::{Misread, Operation, read};
use crate::program::terms::{Term, Value, factor};

/// (head): the slopes of the heads' position biases, in f64.
#[derive(Debug, Clone, PartialEq)]
pub struct AlibiSlopes {
    /// A slope a head.
    pub slopes: Vec<f64>,
}

/// The slopes of so many heads: 2^(−8/n), 2^(−16/n), … for n heads, where n is a power of two; otherwise those of the
/// next lower power, followed by every other one of the next higher, as the paper's code has it ("Train Short, Test
/// Long", Press et al., 2021, section 3).
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "heads are few")]
pub fn alibi_slopes(heads: usize) -> Vec<f64> {
    let of_power = |n: usize| (1..=n).map(move |at| (-8.0 * at as f64 / n as f64).exp2());
    if heads.is_power_of_two() {
        return of_power(heads).collect();
    }
    let lower = heads.next_power_of_two() / 2;
    of_power(lower).chain(of_power(2 * lower).step_by(2)).take(heads).collect()
}

impl Operation for AlibiSlopes {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [] = read(inputs)?;
        Ok(Tensor::new(self.slopes.as_slice(), &Device::Cpu)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [] = read(inputs)?;
        Ok(vec![(Head, self.slopes.len())])
    }

    fn formula(&self, _: &[&str]) -> Result<String, Misread> {
        let slopes: Vec<String> = self.slopes.iter().map(ToString::to_string).collect();
        Ok(slopes.join(", "))
    }

    fn terms(&self, _: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let slope = cell.first().and_then(|head| self.slopes.get(*head)).ok_or(Misread)?;
        Ok(vec![Term(vec![factor("slope", *slope)])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}

/// (head, query, key): −slope · |position of the query − position of the key|, in f64. Reads the slopes.
#[derive(Debug, Clone, PartialEq)]
pub struct Alibi {
    /// The position of the first query row.
    pub first: usize,
    /// Query rows.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
}

impl Operation for Alibi {
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [slopes] = read(inputs)?;
        let slopes = slopes.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let count = slopes.len().saturating_mul(self.queries).saturating_mul(self.keys);
        let mut biases = Vec::with_capacity(count);
        for slope in &slopes {
            for query in (self.first..).take(self.queries) {
                biases.extend((0..self.keys).map(|key| -slope * query.abs_diff(key) as f64));
            }
        }
        Ok(Tensor::from_vec(biases, (slopes.len(), self.queries, self.keys), &Device::Cpu)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[heads @ (Head, _)]] => Ok(vec![*heads, (Query, self.queries), (Key, self.keys)]),
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [slopes] = read(names)?;
        Ok(match self.first {
            0 => format!("−{slopes} · |query − key|"),
            first => format!("−{slopes} · |query + {first} − key|"),
        })
    }

    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 tokens")]
    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([slopes], &[head, query, key]) = (read(inputs)?, cell) else {
            return Err(Misread.into());
        };
        let distance = (self.first + query).abs_diff(key);
        Ok(vec![Term(vec![slopes.at(&[head])?, factor("−distance", -(distance as f64))])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count()
    }
}

/// Position biases and a float mask added up in f64, as one number of the run's type. Reads one or more of them.
#[derive(Debug, Clone, PartialEq)]
pub struct SumBiases {
    /// The type of the run.
    pub dtype: DType,
}

impl Operation for SumBiases {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [first, others @ ..] = inputs else { return Err(Misread.into()) };
        if others.is_empty() {
            return Ok(first.to_dtype(self.dtype)?);
        }
        let wide = first.to_dtype(DType::F64)?;
        let add = |sum: Tensor, bias: &&Tensor| sum.broadcast_add(&bias.to_dtype(DType::F64)?);
        Ok(others.iter().try_fold(wide, add)?.to_dtype(self.dtype)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        joined(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        Ok(names.join(" + "))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        inputs.iter().map(|bias| Ok(Term(vec![bias.broadcast_at(cell)?]))).collect()
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(inputs.len().saturating_sub(1) as u128)
    }
}

/// Scores + position biases or a float mask, broadcast from the right.
#[derive(Debug, Clone, PartialEq)]
pub struct AddMask;

impl Operation for AddMask {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores, mask] = read(inputs)?;
        Ok(scores.broadcast_add(mask)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [scores, mask] if broadcasts(mask, scores) => Ok(scores.to_vec()),
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [scores, mask] = read(names)?;
        Ok(format!("{scores} + {mask}"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [scores, mask] = read(inputs)?;
        Ok(vec![Term(vec![scores.at(cell)?]), Term(vec![mask.broadcast_at(cell)?])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Press et al., 2021: eight heads have 1/2, 1/4 … 1/256; twelve have four of sixteen's after those.
    #[test]
    fn slopes_are_those_of_the_paper() {
        let halves: Vec<f64> = (1..=8).map(|at| 0.5_f64.powi(at)).collect();
        assert_eq!(alibi_slopes(8), halves);
        let sixteen = alibi_slopes(16);
        let some_of_sixteen = [sixteen[0], sixteen[2], sixteen[4], sixteen[6]];
        assert_eq!(alibi_slopes(12), [halves.as_slice(), &some_of_sixteen].concat());
        assert_eq!(sixteen[..1], [0.5_f64.sqrt()]);
        assert_eq!(alibi_slopes(1), [0.5_f64.powi(8)]);
        assert_eq!(alibi_slopes(3).len(), 3);
    }
}
