//! Splitting features into heads, sharing heads, and putting them side by side.

use candle_core::Tensor;

use crate::error::Result;
use crate::program::axis::Axis::{Batch, Head, HeadDim, Key, Model};
use crate::program::axis::{Axes, Dim};
use crate::program::op::{Misread, Operation, read};
use crate::program::terms::{Term, Value};

/// (batch, token, model) to (batch, head, token, `head_dim`): head h is features `h·d_k` … `(h+1)·d_k − 1`.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitHeads {
    /// The number of heads.
    pub heads: usize,
}

impl Operation for SplitHeads {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [x] = read(inputs)?;
        let (batch, tokens, model) = x.dims3()?;
        let split = x.reshape((batch, tokens, self.heads, model / self.heads))?;
        Ok(split.transpose(1, 2)?.contiguous()?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[b, t, (Model, d)]] if self.heads > 0 && d.is_multiple_of(self.heads) => {
                Ok(vec![*b, (Head, self.heads), *t, (HeadDim, d / self.heads)])
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [x] = read(names)?;
        Ok(match self.heads {
            1 => format!("{x} as one head"),
            heads => format!("{x} split into {heads} heads"),
        })
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([x], &[b, h, t, d]) = (read(inputs)?, cell) else { return Err(Misread.into()) };
        let head_dim = x.tensor.dim(2)? / self.heads;
        Ok(vec![Term(vec![x.at(&[b, t, h * head_dim + d])?])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}

/// (batch, head, query, `head_dim`) to (batch, query, model): the heads side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct MergeHeads;

impl Operation for MergeHeads {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [heads] = read(inputs)?;
        Ok(heads.transpose(1, 2)?.contiguous()?.flatten_from(2)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[b @ (Batch, _), (Head, h), q, (HeadDim, d)]] => {
                Ok(vec![*b, *q, (Model, h.saturating_mul(*d))])
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [heads] = read(names)?;
        Ok(format!("{heads} side by side"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([heads], &[b, t, model]) = (read(inputs)?, cell) else { return Err(Misread.into()) };
        let head_dim = heads.tensor.dim(3)?;
        Ok(vec![Term(vec![heads.at(&[b, model / head_dim, t, model % head_dim])?])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}

/// (batch, head, query, `head_dim`) to (batch, query, model): the heads added up, and the sum repeated to their width, as
/// it should not be.
#[derive(Debug, Clone, PartialEq)]
pub struct SumHeads;

impl Operation for SumHeads {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [heads] = read(inputs)?;
        Ok(Tensor::cat(&vec![heads.sum(1)?; heads.dim(1)?], 2)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        MergeHeads.axes(inputs)
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [heads] = read(names)?;
        Ok(format!("the heads of {heads} added up"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([heads], &[b, t, model]) = (read(inputs)?, cell) else { return Err(Misread.into()) };
        let feature = model % heads.tensor.dim(3)?;
        let term = |head| Ok(Term(vec![heads.at(&[b, head, t, feature])?]));
        (0..heads.tensor.dim(1)?).map(term).collect()
    }

    fn flops(&self, inputs: &[&Axes], _: &Axes) -> u128 {
        inputs.first().map_or(0, |heads| heads.count())
    }
}

/// Every head so many times, one after the other: 0 0 1 1 ("GQA", Ainslie et al., 2023).
#[derive(Debug, Clone, PartialEq)]
pub struct RepeatHeads {
    /// How many query heads share a key head.
    pub times: usize,
    /// Whether all heads are repeated together, 0 1 0 1, as they should not be.
    pub is_tiled: bool,
}

impl Operation for RepeatHeads {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [heads] = read(inputs)?;
        if self.is_tiled {
            return Ok(Tensor::cat(&vec![heads; self.times], 1)?);
        }
        let (batch, count, tokens, head_dim) = heads.dims4()?;
        let shared =
            heads.unsqueeze(2)?.broadcast_as((batch, count, self.times, tokens, head_dim))?;
        Ok(shared.contiguous()?.flatten(1, 2)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[b, (Head, h), t, d]] => Ok(vec![*b, (Head, h.saturating_mul(self.times)), *t, *d]),
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [heads] = read(names)?;
        let each = if self.is_tiled { "all heads" } else { "every head" };
        Ok(format!("{each} of {heads} {} times", self.times))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([heads], &[b, h, t, d]) = (read(inputs)?, cell) else { return Err(Misread.into()) };
        let head = if self.is_tiled { h % heads.tensor.dim(1)? } else { h / self.times };
        Ok(vec![Term(vec![heads.at(&[b, head, t, d])?])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}

/// The keys or values of a cache, and behind them the run's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Append;

impl Operation for Append {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(Tensor::cat(&read::<2, _>(inputs)?, 2)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[b, h, (Key, past), d], [o_b, o_h, (Key, own), o_d]]
                if (b, h, d) == (o_b, o_h, o_d) =>
            {
                Ok(vec![*b, *h, (Key, past.saturating_add(*own)), *d])
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [past, own] = read(names)?;
        Ok(format!("{past}, then {own}"))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([past, own], &[b, h, t, d]) = (read(inputs)?, cell) else {
            return Err(Misread.into());
        };
        Ok(vec![Term(vec![match t.checked_sub(past.tensor.dim(2)?) {
            None => past.at(cell)?,
            Some(own_t) => own.at(&[b, h, own_t, d])?,
        }])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        0
    }
}
