//! What are the gradients of differential attention made of?

use candle_core::{DType, Tensor};

use super::collect::summed;
use crate::axis::{Axis, Dim, unravel};
use crate::misread::{Misread, at, read};
use crate::terms::{Term, Value, factor};
use base::error::Result;

/// Gradients of what pairs of heads are subtracted by ("Differential Transformer", Ye et al., 2024, equations 1 and 2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfPairs {
    /// Of the weights: d for the first head of each pair, −λ · d for the second. Reads d (batch, pair, query, key) and λ.
    Weights,
    /// Of λ: −Σ d · the weights of the second head of each pair. Reads d and the weights (batch, head, query, key).
    Lambda,
    /// Of a vector of λ: ±d · exp(vector · other) · other. Reads d, the vector and the one that it is multiplied by.
    Vector {
        /// Whether the exponential is the one that is subtracted.
        is_subtracted: bool,
    },
}

impl OfPairs {
    pub(super) fn value(self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match self {
            Self::Weights => {
                let [d, lambda] = read(inputs)?;
                let second = d.broadcast_mul(lambda)?.neg()?;
                Tensor::stack(&[d, &second], 2)?.flatten(1, 2)?
            }
            Self::Lambda => {
                let [d, weights] = read(inputs)?;
                let (batch, heads, queries, keys) = weights.dims4()?;
                let pairs = weights.reshape((batch, heads / 2, 2, queries, keys))?;
                let second = pairs.narrow(2, 1, 1)?.squeeze(2)?;
                summed(&d.mul(&second)?.neg()?, &[0, 1, 2, 3])?.reshape(())?
            }
            Self::Vector { .. } => {
                let [d, own, other] = read(inputs)?;
                let exponential = own.mul(other)?.sum_all()?.exp()?;
                let by = d.mul(&exponential)?.affine(self.sign(), 0.0)?;
                other.broadcast_mul(&by)?
            }
        })
    }

    fn sign(self) -> f64 {
        if self == (Self::Vector { is_subtracted: true }) { -1.0 } else { 1.0 }
    }

    pub(super) fn axes(self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Weights, [[batch, (Axis::Head, pairs), query, key], []]) => {
                Ok(vec![*batch, (Axis::Head, pairs.saturating_mul(2)), *query, *key])
            }
            (Self::Lambda, [[b, (_, pairs), q, k], [w_b, (_, heads), w_q, w_k]])
                if (b, q, k) == (w_b, w_q, w_k) && pairs.checked_mul(2) == Some(*heads) =>
            {
                Ok(Vec::new())
            }
            (Self::Vector { .. }, [[], own @ [_], other]) if own == other => Ok(own.to_vec()),
            (Self::Weights | Self::Lambda | Self::Vector { .. }, _) => Err(Misread),
        }
    }

    pub(super) fn formula(self, names: &[&str]) -> Result<String, Misread> {
        let [d, second, others @ ..] = names else { return Err(Misread) };
        Ok(match (self, others) {
            (Self::Weights, _) => {
                tr!("{d} for even heads, −{lambda} · {d} for odd ones", d, lambda = second)
            }
            (Self::Lambda, _) => tr!("−Σ {d} · odd heads of {weights}", d, weights = second),
            (Self::Vector { is_subtracted }, [other]) => {
                let sign = if is_subtracted { "−" } else { "" };
                format!("{sign}{d} · exp({second} · {other}) · {other}")
            }
            (Self::Vector { .. }, _) => return Err(Misread),
        })
    }

    /// The terms of a cell.
    pub(super) fn terms(self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let minus = || factor("−1", -1.0);
        match self {
            Self::Weights => {
                let [d, lambda] = read(inputs)?;
                let [item, head, query, key] = at(cell)?;
                let own = d.at(&[item, head / 2, query, key])?;
                let is_first = head % 2 == 0;
                let factors =
                    if is_first { vec![own] } else { vec![minus(), lambda.at(&[])?, own] };
                Ok(vec![Term(factors)])
            }
            Self::Lambda => {
                let [d, weights] = read(inputs)?;
                let dims = d.tensor.dims();
                let term = |place: usize| {
                    let own = unravel(place, dims);
                    let [item, pair, query, key] = at(&own)?;
                    let weight = weights.at(&[item, 2 * pair + 1, query, key])?;
                    Ok(Term(vec![minus(), d.at(&own)?, weight]))
                };
                (0..dims.iter().product()).map(term).collect()
            }
            Self::Vector { .. } => {
                let [d, own, other] = read(inputs)?;
                let product = own.tensor.mul(other.tensor)?.sum_all()?.exp()?;
                let name = format!("exp({} · {})", own.name, other.name);
                let product = factor(name, product.to_dtype(DType::F64)?.to_scalar()?);
                let factors = vec![d.at(&[])?, product, other.at(cell)?];
                let sign = (self.sign() < 0.0).then(minus);
                Ok(vec![Term(sign.into_iter().chain(factors).collect())])
            }
        }
    }
}
