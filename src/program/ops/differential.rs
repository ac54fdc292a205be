//! How are the weights of a pair of heads subtracted from each other? As differential attention does, and what goes wrong
//! there.

use candle_core::{DType, Tensor};

use super::gradient::Gradient;
use super::pairs::OfPairs;
use crate::adjoint::Adjoint;
use crate::adjoint::Operand::{Gradient as Of, Input};
use crate::axis::{Axes, Axis, Dim};
use crate::misread::{Misread, read};
use crate::pattern::{Multiplier, Pattern, Place, Products, Read};
use crate::terms::{Term, Value, factor};
use base::error::Result;

/// Differential attention ("Differential Transformer", Ye et al., 2024, section 2.1).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Differential {
    /// λ = exp(`q₁` · `k₁`) − exp(`q₂` · `k₂`) + `λ_init` (equation 2). Reads the four vectors (`head_dim`), as `q₁`, `k₁`,
    /// `q₂`, `k₂`.
    Lambda {
        /// `λ_init`.
        init: f64,
        /// What goes wrong, if anything does.
        slip: Option<LambdaSlip>,
    },
    /// The weights of head 2i − λ · those of head 2i + 1 (equation 1). Reads weights (batch, head, query, key) and λ, a single
    /// number; gives half as many heads.
    Weights {
        /// What goes wrong, if anything does.
        slip: Option<PairSlip>,
    },
}

clauses! {
    /// What goes wrong where λ is made, with a clause that tells it.
    LambdaSlip {
        /// The dot products stand for their exponentials.
        Bare => "λ has dot products where it should have their exponentials",
        /// The second exponential has the wrong sign.
        Added => "the second exponential of λ is added, not subtracted",
        /// It is missing.
        First => "the second exponential of λ is missing",
        /// Both are.
        Init => "λ is λ_init alone: its vectors are not used",
    }
}

clauses! {
    /// What goes wrong where the weights of pairs are subtracted, with a clause that tells it.
    PairSlip {
        /// Other heads make a pair.
        Halves => "each head of the first half makes a pair with one of the second half, not with its neighbour",
        /// The heads of a pair change places.
        Exchanged => "the first weights of each pair, times λ, are subtracted from the second",
        /// λ is not used.
        Whole => "the second weights of each pair are subtracted whole, not times λ",
        /// Nothing is subtracted.
        Alone => "the second weights of each pair are not subtracted",
    }
}

impl Differential {
    pub(super) fn value(self, inputs: &[&Tensor]) -> Result<Tensor> {
        match self {
            Self::Lambda { init, slip } => {
                let [one, other] = products(inputs)?;
                let exponential = |product: Tensor| match slip {
                    Some(LambdaSlip::Bare) => Ok(product),
                    _ => product.exp(),
                };
                let (one, other) = (exponential(one)?, exponential(other)?);
                let of_vectors = match slip {
                    Some(LambdaSlip::Added) => one + other,
                    Some(LambdaSlip::First) => Ok(one),
                    Some(LambdaSlip::Init) => one.zeros_like(),
                    Some(LambdaSlip::Bare) | None => one - other,
                };
                Ok((of_vectors? + init)?)
            }
            Self::Weights { slip } => {
                let [weights, lambda] = read(inputs)?;
                let (batch, heads, queries, keys) = weights.dims4()?;
                let (pairs, of_pair) = match slip {
                    Some(PairSlip::Halves) => ([2, heads / 2], 1),
                    _ => ([heads / 2, 2], 2),
                };
                let pairs = weights.reshape((batch, pairs[0], pairs[1], queries, keys))?;
                let one = |at| pairs.narrow(of_pair, at, 1)?.squeeze(of_pair);
                let [first, second] = if slip == Some(PairSlip::Exchanged) {
                    [one(1)?, one(0)?]
                } else {
                    [one(0)?, one(1)?]
                };
                Ok(match slip {
                    Some(PairSlip::Alone) => first.contiguous()?,
                    Some(PairSlip::Whole) => first.sub(&second)?,
                    _ => first.sub(&second.broadcast_mul(lambda)?)?,
                })
            }
        }
    }

    pub(super) fn axes(self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Lambda { .. }, [first @ [_], others @ ..])
                if others.len() == 3 && others.iter().all(|other| other == first) =>
            {
                Ok(Vec::new())
            }
            (Self::Weights { .. }, [[batch, (Axis::Head, heads), query, key], []])
                if heads % 2 == 0 =>
            {
                Ok(vec![*batch, (Axis::Head, heads / 2), *query, *key])
            }
            (Self::Lambda { .. } | Self::Weights { .. }, _) => Err(Misread),
        }
    }

    pub(super) fn formula(self, names: &[&str]) -> Result<String, Misread> {
        match self {
            Self::Lambda { init, .. } => {
                let [q_1, k_1, q_2, k_2] = read(names)?;
                Ok(format!("exp({q_1} · {k_1}) − exp({q_2} · {k_2}) + {init}"))
            }
            Self::Weights { .. } => {
                let [weights, lambda] = read(names)?;
                Ok(tr!("even heads of {weights} − {lambda} · odd heads", weights, lambda))
            }
        }
    }

    pub(super) fn pattern(self, inputs: &[&Axes]) -> Pattern {
        let (Self::Weights { .. }, Some(weights)) = (self, inputs.first()) else {
            return Pattern::ByCell;
        };
        let heads = weights.shape().get(1).copied().unwrap_or_default();
        let head = |first: usize| {
            let heads = Place::listed(1, (first..heads).step_by(2));
            Multiplier::from(Read::of(0, [Place::on(0), heads, Place::on(2), Place::on(3)]))
        };
        let minus = Multiplier::Number("−1".to_owned(), -1.0, None);
        let less = [minus, Read::of(1, []).into(), head(1)];
        Pattern::Sum(vec![Products::one([head(0)]), Products::one(less)])
    }

    /// The terms of λ.
    pub(super) fn terms(self, inputs: &[Value]) -> Result<Vec<Term>> {
        let Self::Lambda { init, .. } = self else { return Ok(Vec::new()) };
        let [q_1, k_1, q_2, k_2] = read(inputs)?;
        let [one, other] = products(&[q_1.tensor, k_1.tensor, q_2.tensor, k_2.tensor])?;
        let exponential = |[q, k]: [Value; 2], product: Tensor| -> Result<_> {
            let value = product.exp()?.to_dtype(DType::F64)?.to_scalar()?;
            Ok(factor(format!("exp({} · {})", q.name, k.name), value))
        };
        Ok(vec![
            Term(vec![exponential([q_1, k_1], one)?]),
            Term(vec![factor("−1", -1.0), exponential([q_2, k_2], other)?]),
            Term(vec![factor("λ_init", init)]),
        ])
    }

    pub(super) fn adjoint(self, input: usize) -> Adjoint {
        let of = |own, reads: &[_]| Adjoint::of(Gradient::Pairs(own), reads);
        match (self, input) {
            (Self::Weights { slip: None }, 0) => of(OfPairs::Weights, &[Of, Input(1)]),
            (Self::Weights { slip: None }, _) => of(OfPairs::Lambda, &[Of, Input(0)]),
            (Self::Lambda { slip: None, .. }, _) => {
                // q₁ stands beside k₁, and q₂ beside k₂.
                let vector = OfPairs::Vector { is_subtracted: input >= 2 };
                of(vector, &[Of, Input(input), Input(input ^ 1)])
            }
            (Self::Weights { .. } | Self::Lambda { .. }, _) => Adjoint::Unknown,
        }
    }

    pub(super) fn flops(self, inputs: &[&Axes], output: &Axes) -> u128 {
        match self {
            // Two dot products, two exponentials and two sums.
            Self::Lambda { .. } => inputs.first().map_or(0, |vector| 4 * vector.count()) + 4,
            Self::Weights { .. } => 2 * output.count(),
        }
    }
}

/// `q₁` · `k₁` and `q₂` · `k₂`.
fn products(vectors: &[&Tensor]) -> Result<[Tensor; 2]> {
    let [q_1, k_1, q_2, k_2] = read(vectors)?;
    Ok([q_1.mul(k_1)?.sum_all()?, q_2.mul(k_2)?.sum_all()?])
}
