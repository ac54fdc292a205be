//! Norms of queries and keys.

use candle_core::{D, Tensor};

use crate::error::Result;
use crate::program::axis::Axis::HeadDim;
use crate::program::axis::{Axes, Dim};
use crate::program::op::{Misread, Operation, read};
use crate::program::terms::{Term, Value, factor};

/// x / √(mean(x²) + ε) · w over the features of every head ("Root Mean Square Layer Normalization", Zhang and
/// Sennrich, 2019, equation 4). Reads heads (batch, head, token, `head_dim`) and w (`head_dim`).
#[derive(Debug, Clone, PartialEq)]
pub struct RmsNorm {
    /// ε.
    pub eps: f64,
}

impl Operation for RmsNorm {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [heads, weight] = read(inputs)?;
        let mean_square = heads.sqr()?.mean_keepdim(D::Minus1)?;
        let root = (mean_square + self.eps)?.sqrt()?;
        Ok(heads.broadcast_div(&root)?.broadcast_mul(weight)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [heads @ [.., (HeadDim, d)], [(HeadDim, w)]] if d == w => Ok(heads.to_vec()),
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [heads, w] = read(names)?;
        Ok(format!("{heads} / √(mean({heads}²) + {:e}) · {w}", self.eps))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([heads, w], [row @ .., d]) = (read(inputs)?, cell) else { return Err(Misread.into()) };
        let row = heads.row(row)?;
        #[allow(clippy::cast_precision_loss, reason = "a head has few features")]
        let mean = row.iter().map(|x| x * x).sum::<f64>() / row.len() as f64;
        let norm = factor("1 / √(mean of squares + ε)", (mean + self.eps).sqrt().recip());
        Ok(vec![Term(vec![heads.at(cell)?, norm, w.at(&[*d])?])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(4)
    }
}
