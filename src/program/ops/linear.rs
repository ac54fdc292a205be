//! Projections.

use candle_core::Tensor;

use crate::error::Result;
use crate::program::axis::{Axes, Axis, Dim};
use crate::program::op::{Misread, Operation};
use crate::program::terms::{Term, Value};

/// Rows that are computed of the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryRows {
    /// The first row.
    pub first: usize,
    /// How many rows.
    pub count: usize,
}

/// x · Wᵀ (+ b), as `nn.Linear`. Reads x (batch, token, in), W (out, in) and perhaps b (out).
#[derive(Debug, Clone, PartialEq)]
pub struct Project {
    /// What the rows of the result are: queries or keys.
    pub tokens: Axis,
    /// The rows of x that are projected, if not all are.
    pub rows: Option<QueryRows>,
}

impl Operation for Project {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [x, weight, bias @ ..] = inputs else { return Err(Misread.into()) };
        let x = match self.rows {
            Some(rows) => &x.narrow(1, rows.first, rows.count)?.contiguous()?,
            None => *x,
        };
        let (batch, tokens, inputs) = x.dims3()?;
        let outputs = weight.dim(0)?;
        // One matrix product over all tokens.
        let product = x.reshape((batch * tokens, inputs))?.matmul(&weight.t()?)?;
        let product = product.reshape((batch, tokens, outputs))?;
        Ok(match bias {
            [] => product,
            [bias] => product.broadcast_add(bias)?,
            _ => return Err(Misread.into()),
        })
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [[b, t, i], [o, w_i], bias @ ..]
                if i.1 == w_i.1 && bias.len() <= 1 && bias.iter().all(|bias| *bias == [*o]) =>
            {
                let tokens = self.rows.map_or(t.1, |rows| rows.count);
                Ok(vec![*b, (self.tokens, tokens), (Axis::Model, o.1)])
            }
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [x, w, bias @ ..] = names else { return Err(Misread) };
        let rows = self.rows.map(|rows| format!("[{}..{}]", rows.first, rows.first + rows.count));
        let product = format!("{x}{} · {w}ᵀ", rows.unwrap_or_default());
        Ok([&[product.as_str()], bias].concat().join(" + "))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([x, w, bias @ ..], &[b, t, o]) = (inputs, cell) else { return Err(Misread.into()) };
        let t = t + self.rows.map_or(0, |rows| rows.first);
        let inner = 0..w.tensor.dim(1)?;
        let terms = inner.map(|i| Ok(Term(vec![x.at(&[b, t, i])?, w.at(&[o, i])?])));
        let bias = bias.iter().map(|bias| Ok(Term(vec![bias.at(&[o])?])));
        terms.chain(bias).collect()
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let count = output.count();
        let bias = if inputs.len() == 3 { count } else { 0 };
        let inner = inputs.first().map_or(0, |x| x.last_size());
        count.saturating_mul(2 * inner).saturating_add(bias)
    }
}
