//! What people write in the place of the derivatives of softmax, of a soft cap and of a norm.

use candle_core::{D, Tensor};

use super::functions::Map;
use super::norm::{Norm, Parts};
use crate::axis::{Dim, sizes};
use crate::misread::{Misread, read};
use base::error::Result;

/// A derivative that is wrong. Each has the shape of what it reads first.
#[derive(Debug, Clone, PartialEq)]
pub enum GradientSlip {
    /// Of scores. Reads weights P, their gradient d, and delta.
    Softmax(SoftmaxSlip),
    /// Of scores before a soft cap. Reads d and the capped scores.
    Cap(CapSlip, f64),
    /// Of the input of a norm. Reads d, x, and the weight if there is one.
    Norm(NormSlip, Norm),
    /// Of a gate. Reads the gate, d and x.
    Gate(GateSlip, Map),
}

clauses! {
    /// What stands in the place of P · (d − delta), with a clause that tells it.
    SoftmaxSlip {
        /// P · d − delta.
        Outside => "delta stands outside of the brackets: P · dP − delta",
        /// P · (d + delta).
        Plus => "delta is added, not subtracted",
        /// d − delta.
        Bare => "the weights are left out: dP − delta",
        /// P² · (d − delta).
        Squared => "the weights count twice: P² · (dP − delta)",
        /// P · (1 − P) · d.
        Diagonal => "only the diagonal of the derivative is there: P · (1 − P) · dP",
        /// P · d − P · Σ P · d over the queries.
        Queries => "the sum runs over the queries in place of the keys: P · (dP − Σ P · dP)",
        /// d − P · Σ d.
        Log => "it is the derivative of log-softmax: dP − P · Σ dP",
    }
}

clauses! {
    /// What stands in the place of 1 − t², where t is the score's tanh, with a clause that tells it.
    CapSlip {
        /// 1 − t.
        Straight => "the tanh is not squared: 1 − t, not 1 − t²",
        /// 1 − |t|.
        Absolute => "the tanh is not squared: 1 − |t|, not 1 − t²",
        /// 1 + t².
        Plus => "the derivative of the soft cap has the other sign: 1 + t², not 1 − t²",
        /// (1 − t²) / C.
        Divided => "the derivative of the soft cap is divided by the cap, which stands before the tanh, too",
        /// 1 − (C · t)².
        Undivided => "the capped scores are not divided by the cap: 1 − y², not 1 − (y / C)²",
    }
}

clauses! {
    /// What stands in the place of (g − n · mean(g · n)) / root, with a clause that tells it.
    NormSlip {
        /// g / root.
        Straight => "the root counts as a constant: the part through the norm's mean of squares is left out",
        /// With the sum of g · n.
        Sum => "the norm's derivative has a sum over the features where it should have a mean",
        /// With the mean of g · x.
        Once => "the norm's derivative divides x by the root once where it should twice",
        /// With the mean over the features of a head.
        ByHead => "the norm's derivative has a mean over each head where the norm runs over all heads",
        /// Without the mean of g.
        Uncentred => "the norm's derivative lacks the mean of the gradient, which LayerNorm subtracts",
        /// Not divided by the root.
        Undivided => "the norm's derivative is not divided by the root",
    }
}

clauses! {
    /// What stands in the place of d · x · f′(gate), with a clause that tells it.
    GateSlip {
        /// d · x.
        Straight => "the derivative of the gate's function is left out: d · x",
        /// d · x · f(gate).
        Value => "the gate's function stands in the place of its derivative",
    }
}

impl NormSlip {
    /// Whether it is another derivative than that of this norm.
    pub fn differs(self, norm: &Norm) -> bool {
        match self {
            Self::ByHead => norm.over.len() > 1,
            Self::Uncentred => norm.is_centred,
            Self::Straight | Self::Sum | Self::Once | Self::Undivided => true,
        }
    }
}

impl GradientSlip {
    pub(super) fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        match self {
            Self::Softmax(slip) => of_softmax(*slip, read(inputs)?),
            Self::Cap(slip, cap) => {
                let [d, capped] = read(inputs)?;
                let t = (capped / *cap)?;
                Ok(d.mul(&match slip {
                    CapSlip::Straight => t.affine(-1.0, 1.0)?,
                    CapSlip::Divided => t.sqr()?.affine(-cap.recip(), cap.recip())?,
                    CapSlip::Absolute => t.abs()?.affine(-1.0, 1.0)?,
                    CapSlip::Plus => t.sqr()?.affine(1.0, 1.0)?,
                    CapSlip::Undivided => capped.sqr()?.affine(-1.0, 1.0)?,
                })?)
            }
            Self::Gate(slip, map) => {
                let [gate, d, x] = read(inputs)?;
                let product = d.mul(x)?.reshape(gate.shape())?;
                match slip {
                    GateSlip::Straight => Ok(product),
                    GateSlip::Value => Ok(product.mul(&map.value(gate)?)?),
                }
            }
            Self::Norm(slip, norm) => {
                let [d, x, weight @ ..] = inputs else { return Err(Misread.into()) };
                of_norm(*slip, &norm.gradient_parts(d, x, weight)?)
            }
        }
    }

    pub(super) fn fits(&self, x: &[Dim], others: &[&[Dim]]) -> bool {
        match (self, others) {
            (Self::Softmax(_), [d, rows]) => {
                x == *d && x.len() == rows.len() + 1 && x.starts_with(rows)
            }
            (Self::Cap(..), [capped]) => x == *capped,
            (Self::Norm(_, norm), [own, weight @ ..]) => x == *own && norm.axes(x, weight).is_ok(),
            (Self::Gate(..), [d, own]) => sizes(x) == sizes(d) && sizes(x) == sizes(own),
            _ => false,
        }
    }
}

fn of_softmax(slip: SoftmaxSlip, [weights, d, delta]: [&Tensor; 3]) -> Result<Tensor> {
    let delta = delta.unsqueeze(D::Minus1)?;
    let less = d.broadcast_sub(&delta)?;
    Ok(match slip {
        SoftmaxSlip::Outside => weights.mul(d)?.broadcast_sub(&delta)?,
        SoftmaxSlip::Plus => weights.mul(&d.broadcast_add(&delta)?)?,
        SoftmaxSlip::Bare => less,
        SoftmaxSlip::Squared => weights.sqr()?.mul(&less)?,
        SoftmaxSlip::Diagonal => weights.mul(&weights.affine(-1.0, 1.0)?)?.mul(d)?,
        SoftmaxSlip::Queries => {
            let product = weights.mul(d)?;
            let sum = product.sum_keepdim(D::Minus2)?;
            product.sub(&weights.broadcast_mul(&sum)?)?
        }
        SoftmaxSlip::Log => d.sub(&weights.broadcast_mul(&d.sum_keepdim(D::Minus1)?)?)?,
    })
}

fn of_norm(slip: NormSlip, parts: &Parts) -> Result<Tensor> {
    let Parts { given, normed, along, mean, root } = parts;
    let along = match slip {
        NormSlip::Straight => along.zeros_like()?,
        NormSlip::Sum => (along * (normed.elem_count() as f64 / along.elem_count() as f64))?,
        NormSlip::Once => along.mul(root)?,
        NormSlip::ByHead => given.mul(normed)?.mean_keepdim(D::Minus1)?,
        NormSlip::Uncentred | NormSlip::Undivided => along.clone(),
    };
    let less = given.sub(&normed.broadcast_mul(&along)?)?;
    let less = match mean {
        Some(mean) if !matches!(slip, NormSlip::Straight | NormSlip::Uncentred) => {
            less.broadcast_sub(mean)?
        }
        _ => less,
    };
    if slip == NormSlip::Undivided { Ok(less) } else { Ok(less.broadcast_div(root)?) }
}
