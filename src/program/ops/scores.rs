//! Dot products, their scale and cap, and the values that weights add up.

use candle_core::Tensor;

use crate::error::Result;
use crate::program::axis::Axis::{Key, Query};
use crate::program::axis::{Axes, Dim};
use crate::program::op::{Misread, Operation, read};
use crate::program::terms::{Term, Value, factor};

/// Q · Kᵀ of every head. Reads queries and keys (batch, head, token, `head_dim`).
#[derive(Debug, Clone, PartialEq)]
pub struct DotProduct;

impl Operation for DotProduct {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [queries, keys] = read(inputs)?;
        Ok(queries.matmul(&keys.t()?)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[b, h, q @ (Query, _), d], [k_b, k_h, s @ (Key, _), k_d]]
                if (b, h, d) == (k_b, k_h, k_d) =>
            {
                Ok(vec![*b, *h, *q, *s])
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [q, k] = read(names)?;
        Ok(format!("{q} · {k}ᵀ"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([queries, keys], &[b, h, q, k]) = (read(inputs)?, cell) else {
            return Err(Misread.into());
        };
        let term = |d| Ok(Term(vec![queries.at(&[b, h, q, d])?, keys.at(&[b, h, k, d])?]));
        (0..keys.tensor.dim(3)?).map(term).collect()
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(2 * inputs.first().map_or(0, |queries| queries.last_size()))
    }
}

/// Weights · V of every head.
#[derive(Debug, Clone, PartialEq)]
pub struct WeightedSum;

impl Operation for WeightedSum {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [weights, values] = read(inputs)?;
        Ok(weights.matmul(values)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[b, h, q, s @ (Key, _)], [v_b, v_h, v_s, d]] if (b, h, s) == (v_b, v_h, v_s) => {
                Ok(vec![*b, *h, *q, *d])
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [weights, v] = read(names)?;
        Ok(format!("{weights} · {v}"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([weights, values], &[b, h, q, d]) = (read(inputs)?, cell) else {
            return Err(Misread.into());
        };
        let term = |k| Ok(Term(vec![weights.at(&[b, h, q, k])?, values.at(&[b, h, k, d])?]));
        (0..values.tensor.dim(2)?).map(term).collect()
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(2 * inputs.first().map_or(0, |weights| weights.last_size()))
    }
}

/// Scores / √`d_k`.
#[derive(Debug, Clone, PartialEq)]
pub struct Scale {
    /// The features of a head, `d_k`.
    pub head_dim: usize,
}

impl Scale {
    /// √`d_k`.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 features")]
    pub fn root(&self) -> f64 {
        (self.head_dim as f64).sqrt()
    }
}

impl Operation for Scale {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores] = read(inputs)?;
        Ok(scores.broadcast_div(&number(self.root(), scores)?)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        same(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [scores] = read(names)?;
        Ok(format!("{scores} / √d_k"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [scores] = read(inputs)?;
        let scale = factor(format!("1 / √{}", self.head_dim), self.root().recip());
        Ok(vec![Term(vec![scores.at(cell)?, scale])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count()
    }

    fn constant(&self) -> Option<(&'static str, String, f64)> {
        Some(("√d_k", format!("√{}", self.head_dim), self.root()))
    }
}

/// Scores · a factor, in place of 1/√`d_k`.
#[derive(Debug, Clone, PartialEq)]
pub struct ScaleBy {
    /// The factor.
    pub factor: f64,
}

impl Operation for ScaleBy {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores] = read(inputs)?;
        Ok(scores.broadcast_mul(&number(self.factor, scores)?)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        same(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [scores] = read(names)?;
        Ok(format!("{scores} · {}", self.factor))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [scores] = read(inputs)?;
        Ok(vec![Term(vec![scores.at(cell)?, factor("scale", self.factor)])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count()
    }
}

/// C · tanh(scores / C): no score is beyond ±C ("Gemma 2", Gemma Team, 2024, section 2).
#[derive(Debug, Clone, PartialEq)]
pub struct SoftCap {
    /// C.
    pub cap: f64,
}

impl Operation for SoftCap {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores] = read(inputs)?;
        let cap = number(self.cap, scores)?;
        Ok(scores.broadcast_div(&cap)?.tanh()?.broadcast_mul(&cap)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        same(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let ([scores], Self { cap }) = (read(names)?, self);
        Ok(format!("{cap} · tanh({scores} / {cap})"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([scores], Self { cap }) = (read(inputs)?, self);
        let score = scores.at(cell)?;
        let name = format!("tanh({} / {cap})", score.name);
        Ok(vec![Term(vec![factor("softcap", *cap), factor(name, (score.value / cap).tanh())])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(3)
    }
}

/// A number as a tensor of the type that it is to meet.
pub(super) fn number(value: f64, beside: &Tensor) -> candle_core::Result<Tensor> {
    Tensor::new(value, beside.device())?.to_dtype(beside.dtype())
}

/// The axes of an operation whose value has those of its only input.
pub(super) fn same(inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
    let [only] = read(inputs)?;
    Ok(only.to_vec())
}
