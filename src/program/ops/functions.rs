//! Functions of single numbers, and what stands where softmax should.

use candle_core::{D, DType, Device, Tensor};
use serde::Serialize;

use base::error::Result;

/// What a function makes of every number of a tensor.
type Function = fn(&Tensor) -> candle_core::Result<Tensor>;

table! {
    /// A function of every number.
    #[derive(Serialize)]
    #[serde(rename_all = "snake_case")]
    Map: (&'static str, Function) {
        /// max(x, 0).
        Relu => ("ReLU", Tensor::relu),
        /// x · Φ(x).
        Gelu => ("GELU", Tensor::gelu_erf),
        /// x · Φ(x), Φ approximated by tanh ("Gaussian Error Linear Units", Hendrycks and Gimpel, 2016, section 2).
        GeluTanh => (tr!("GELU by tanh"), Tensor::gelu),
        /// x · σ(1.702 · x), as in CLIP.
        QuickGelu => (tr!("quick GELU"), |x| x * candle_nn::ops::sigmoid(&(x * 1.702)?)?),
        /// max(x, 0)², as in Primer.
        ReluSquared => (tr!("ReLU²"), |x| x.relu()?.sqr()),
        /// x · σ(x).
        Silu => ("SiLU", Tensor::silu),
        /// tanh(x).
        Tanh => ("tanh", Tensor::tanh),
        /// σ(x).
        Sigmoid => ("sigmoid", candle_nn::ops::sigmoid),
        /// exp(x).
        Exp => ("exp", Tensor::exp),
        /// −x.
        Negative => (tr!("a minus sign"), Tensor::neg),
        /// |x|.
        Absolute => (tr!("an absolute value"), Tensor::abs),
        /// x².
        Square => (tr!("a square"), Tensor::sqr),
        /// ln(1 + exp(x)).
        Softplus => ("softplus", |x| x.relu()? + (x.abs()?.neg()?.exp()? + 1.0)?.log()?),
        /// x, and exp(x) − 1 below 0.
        Elu => ("ELU", |x| x.elu(1.0)),
        /// x / (1 + |x|).
        Softsign => ("softsign", |x| x.broadcast_div(&(x.abs()? + 1.0)?)),
        /// ln(x).
        Log => (tr!("a logarithm"), Tensor::log),
    }
}

impl Map {
    /// What people call it.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub(super) fn value(self, x: &Tensor) -> candle_core::Result<Tensor> {
        self.row().1(x)
    }

    /// That of one number.
    pub(crate) fn of(self, x: f64) -> Result<f64> {
        let value = self.value(&Tensor::new(&[x], &Device::Cpu)?)?.to_vec1::<f64>()?;
        Ok(value.first().copied().unwrap_or(f64::NAN))
    }
}

table! {
    /// A power of two in place of a number.
    PowerOfTwo: (&'static str, Function) {
        /// The next one that is no smaller.
        Above => (tr!("the next one above"), Tensor::ceil),
        /// The next one that is no larger.
        Below => (tr!("the next one below"), Tensor::floor),
        /// The one whose exponent is nearest.
        Near => (tr!("the nearest one"), Tensor::round),
    }
}

impl PowerOfTwo {
    /// Which one it is.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    pub(super) fn value(self, x: &Tensor) -> candle_core::Result<Tensor> {
        let exponent = x.to_dtype(DType::F64)?.log()?.affine(std::f64::consts::LOG2_E, 0.0)?;
        // The last digits of a logarithm are no part of the exponent.
        let near = exponent.round()?;
        let is_whole = (&exponent - &near)?.abs()?.lt(1e-9)?;
        let exponent = self.row().1(&is_whole.where_cond(&near, &exponent)?)?;
        exponent.affine(std::f64::consts::LN_2, 0.0)?.exp()?.to_dtype(x.dtype())
    }
}

/// What stands where softmax should.
#[derive(Debug, Clone, PartialEq)]
pub enum Weigh {
    /// Softmax over several axes together, counted from the last.
    Over(Vec<usize>),
    /// Softmax of the scores times a number: ln 2 for base 2.
    OfTimes(f64),
    /// The logarithm of softmax.
    Log,
    /// exp(s) / (n + Σ exp(s)).
    Plus(f64),
    /// exp(s − max) / (ε + Σ exp(s − max)).
    Epsilon(f64),
    /// Softmax over the k largest scores of a row, 0 elsewhere.
    Top(usize),
    /// A function of the scores, over their number.
    Mean(Map),
    /// exp(s − max), not divided by its sum.
    Unnormalised,
    /// s / Σ s.
    Linear,
    /// The same, and 0 where Σ s is.
    LinearOrZero,
    /// 1 for the largest score of a row, 0 elsewhere.
    Largest,
    /// The scores of a row over their largest.
    ByLargest,
    /// A function of the scores, over its sum.
    Share(Map),
    /// The same weight for every score that is no fill.
    Equal,
    /// The scores of a row less their largest.
    LessLargest,
    /// The scores of a row less their mean.
    LessMean,
    /// Softmax beside so many scores of 0, for each row its own number; of log-sum-exps, those with them.
    Zeros(Vec<f64>),
}

impl Weigh {
    pub(super) fn value(&self, scores: &Tensor) -> candle_core::Result<Tensor> {
        let softmax = candle_nn::ops::softmax_last_dim;
        let share = |all: &Tensor| all.broadcast_div(&all.sum_keepdim(D::Minus1)?);
        let largest = scores.max_keepdim(D::Minus1)?;
        let shifted = || scores.broadcast_sub(&largest);
        match self {
            Self::Over(over) => {
                let axes: Vec<usize> =
                    over.iter().filter_map(|at| scores.rank().checked_sub(*at)).collect();
                let largest =
                    axes.iter().try_fold(scores.clone(), |x, axis| x.max_keepdim(*axis))?;
                let exp = scores.broadcast_sub(&largest)?.exp()?;
                let sum = axes.iter().try_fold(exp.clone(), |x, axis| x.sum_keepdim(*axis))?;
                exp.broadcast_div(&sum)
            }
            Self::OfTimes(factor) => softmax(&(scores * *factor)?),
            Self::Log => candle_nn::ops::log_softmax(scores, D::Minus1),
            Self::Plus(more) => {
                let exp = shifted()?.exp()?;
                let sum = (exp.sum_keepdim(D::Minus1)? + (largest.neg()?.exp()? * *more)?)?;
                exp.broadcast_div(&sum)
            }
            Self::Epsilon(more) => {
                let exp = shifted()?.exp()?;
                exp.broadcast_div(&(exp.sum_keepdim(D::Minus1)? + *more)?)
            }
            Self::Top(count) => {
                let (sorted, _) = scores.contiguous()?.sort_last_dim(false)?;
                let at = count.saturating_sub(1).min(scores.dim(D::Minus1)?.saturating_sub(1));
                let is_lower = scores.broadcast_lt(&sorted.narrow(D::Minus1, at, 1)?)?;
                let none = (scores.zeros_like()? - f64::INFINITY)?;
                softmax(&is_lower.where_cond(&none, scores)?)
            }
            Self::Mean(map) => {
                let keys = scores.dim(D::Minus1)? as f64;
                map.value(scores)? / keys
            }
            Self::Unnormalised => shifted()?.exp(),
            Self::Linear => share(scores),
            Self::LinearOrZero => {
                let all = share(scores)?;
                let is_none = scores.sum_keepdim(D::Minus1)?.eq(0.0)?;
                is_none.broadcast_as(all.shape())?.where_cond(&all.zeros_like()?, &all)
            }
            Self::Largest => scores.broadcast_eq(&largest)?.to_dtype(scores.dtype()),
            Self::ByLargest => scores.broadcast_div(&largest),
            Self::Share(map) => share(&map.value(scores)?),
            Self::LessLargest => shifted(),
            Self::LessMean => scores.broadcast_sub(&scores.mean_keepdim(D::Minus1)?),
            Self::Zeros(counts) => with_zeros(scores, counts),
            Self::Equal => share(&scores.gt(-1e8)?.to_dtype(scores.dtype())?),
        }
    }
}

/// Softmax of scores (batch, head, query, key), or their log-sum-exp (batch, head, query), beside so many scores of 0 for each
/// query.
fn with_zeros(x: &Tensor, counts: &[f64]) -> candle_core::Result<Tensor> {
    let logs = counts.iter().map(|count| count.ln()).collect();
    let logs = Tensor::from_vec(logs, counts.len(), x.device())?.to_dtype(x.dtype())?;
    if let Ok((batch, heads, queries)) = x.dims3() {
        let logs = logs.broadcast_as((batch, heads, queries))?;
        let largest = logs.maximum(x)?;
        let sum = (x.sub(&largest)?.exp()? + logs.sub(&largest)?.exp()?)?;
        return largest + sum.log()?;
    }
    let (batch, heads, queries, keys) = x.dims4()?;
    let logs = logs.reshape((1, 1, queries, 1))?.broadcast_as((batch, heads, queries, 1))?;
    let all = Tensor::cat(&[x, &logs.contiguous()?], D::Minus1)?;
    candle_nn::ops::softmax_last_dim(&all)?.narrow(D::Minus1, 0, keys)?.contiguous()
}

/// sin and cos of position / 10000^(2i / features).
pub(super) fn sinusoid(x: &Tensor, is_in_halves: bool) -> candle_core::Result<Tensor> {
    let (_, tokens, features) = x.dims3()?;
    let mut table = Vec::with_capacity(tokens * features);
    for token in 0..tokens {
        for feature in 0..features {
            let half = features.div_ceil(2);
            let (pair, is_sine) = if is_in_halves {
                (feature % half, feature < half)
            } else {
                (feature / 2, feature.is_multiple_of(2))
            };
            let angle = token as f64 / 10000_f64.powf(2.0 * pair as f64 / features as f64);
            table.push(if is_sine { angle.sin() } else { angle.cos() });
        }
    }
    Tensor::from_vec(table, (1, tokens, features), x.device())?.to_dtype(x.dtype())
}
