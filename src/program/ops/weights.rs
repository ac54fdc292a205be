//! From scores to weights: softmax and dropout.

use candle_core::{D, DType, Device, Tensor};

use super::differential::Differential;
use super::functions::Weigh;
use super::gradient::Gradient;
use super::loops;
use super::mask::broadcasts;
use crate::adjoint::{Adjoint, Operand};
use crate::axis::{Axes, Axis, Dim};
use crate::misread::{Misread, read};
use crate::operation::{Facts, Operation};
use crate::part::Part;
use crate::pattern::{Multiplier, Pattern, Place, Products, Read};
use crate::rows::Rows;
use crate::terms::{Term, Value};
use base::error::Result;

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

/// Weights, from scores or from other weights.
#[derive(Debug, Clone, PartialEq)]
pub enum Weighting {
    /// exp(s) / Σ exp(s) over the keys of every row. Reads scores (batch, head, query, key), and perhaps sinks (head): one
    /// score per head that stands beside those of the keys, takes its share and is dropped ("gpt-oss", `OpenAI`, 2025).
    Softmax {
        /// What a row that is −∞ throughout becomes.
        empty_row: EmptyRow,
    },
    /// log Σ exp(s) over the keys of every row, as kernels keep it for the backward pass ("`FlashAttention`", Dao et al.,
    /// 2022, algorithm 1: L = m + log ℓ). Reads what softmax reads. −∞ where all scores are.
    LogSumExp,
    /// Zeros in the rows whose keys are all blocked, the weights elsewhere. Reads weights and a boolean mask.
    ZeroEmptyRows,
    /// What kept weights are multiplied by: 1 / (1 − p), and 0 for p = 1, which keeps none. It is an f32 in runs of any
    /// type.
    ///
    /// Formula: `_dropout_impl` in `ATen/native/Dropout.cpp`, `noise.div_(1 - p)`: the difference in f64, rounded
    /// to f32, then the division in f32.
    DropoutScale {
        /// The probability of dropping a weight.
        p: f64,
    },
    /// Weights · keep · scale. Reads weights, a boolean keep-mask of their shape, and the scale, a single number.
    Dropout {
        /// The probability of dropping a weight, for the formula.
        p: f64,
    },
    /// The mean over the heads, as `nn.MultiheadAttention` returns weights (`average_attn_weights`). Reads weights.
    MeanOverHeads,
    /// λ, and the weights of pairs of heads subtracted.
    Differential(Differential),
    /// Weights · a factor where they are kept, and 0 elsewhere: dropout of which the draw is known from its result.
    KeepSome(KeepSome),
}

/// Which weights are kept, and what they are multiplied by.
#[derive(Debug, Clone)]
pub struct KeepSome {
    /// Which weights are kept: `U8`, of their shape.
    pub keep: Tensor,
    /// What they are multiplied by.
    pub factor: f64,
}

impl PartialEq for KeepSome {
    fn eq(&self, other: &Self) -> bool {
        self.keep.id() == other.keep.id() && self.factor.total_cmp(&other.factor).is_eq()
    }
}

/// What kept weights are multiplied by, as [`Weighting::DropoutScale`] has it.
#[allow(clippy::float_cmp, reason = "PyTorch compares p with 1 for equality")]
pub fn dropout_scale(p: f64) -> f32 {
    if p == 1.0 {
        return 0.0;
    }
    #[allow(clippy::cast_possible_truncation, reason = "PyTorch rounds to the tensor's type")]
    let divisor = (1.0 - p) as f32;
    1.0 / divisor
}

impl Weighting {
    /// Softmax over the keys.
    pub fn softmax(empty_row: EmptyRow) -> Self {
        Self::Softmax { empty_row }
    }
}

impl Operation for Weighting {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match self {
            Self::Softmax { empty_row } => {
                let [scores, sinks @ ..] = inputs else { return Err(Misread.into()) };
                let all = beside(scores, sinks)?;
                let weights = candle_nn::ops::softmax_last_dim(&all)?;
                let keys = scores.dim(D::Minus1)?;
                let weights = if sinks.is_empty() {
                    weights
                } else {
                    weights.narrow(D::Minus1, 0, keys)?.contiguous()?
                };
                match empty_row {
                    EmptyRow::Nan => weights,
                    EmptyRow::Zero => {
                        let empty = scores.eq(f64::NEG_INFINITY)?.min_keepdim(D::Minus1)?;
                        zero(&weights, &empty)?
                    }
                }
            }
            Self::LogSumExp => {
                let [scores, sinks @ ..] = inputs else { return Err(Misread.into()) };
                let scores = beside(scores, sinks)?;
                // Of −∞ alone the largest is −∞ too, and what is subtracted must be a number.
                let largest = scores.max_keepdim(D::Minus1)?.maximum(f64::from(f32::MIN))?;
                let sum = scores.broadcast_sub(&largest)?.exp()?.sum_keepdim(D::Minus1)?;
                (sum.log()? + largest)?.squeeze(D::Minus1)?
            }
            Self::MeanOverHeads => read::<1, _>(inputs)?[0].mean(1)?,
            Self::ZeroEmptyRows => {
                let [weights, mask] = read(inputs)?;
                zero(weights, &mask.min_keepdim(D::Minus1)?)?
            }
            Self::DropoutScale { p } => Tensor::new(dropout_scale(*p), &Device::Cpu)?,
            Self::Dropout { .. } => {
                let [weights, keep, scale] = read(inputs)?;
                kept(weights, keep, scale.to_dtype(DType::F64)?.to_scalar::<f64>()?)?
            }
            Self::Differential(own) => own.value(inputs)?,
            Self::KeepSome(own) => kept(read::<1, _>(inputs)?[0], &own.keep, own.factor)?,
        })
    }

    fn rows<'a>(&'a self, read: &[usize], others: &[&'a Tensor]) -> Option<Rows<'a>> {
        let is_plain = *self == Self::softmax(EmptyRow::Nan) && others.is_empty();
        if is_plain { Some(loops::softmax(*read.last()?)) } else { None }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [first, others @ ..] = inputs else {
            let is_single = matches!(self, Self::DropoutScale { .. });
            return if is_single { Ok(Vec::new()) } else { Err(Misread) };
        };
        let heads = || first.iter().filter(|(axis, _)| *axis == Axis::Head);
        let are_sinks = others.len() <= 1 && others.iter().all(|own| own.iter().eq(heads()));
        let fits = match self {
            Self::Differential(own) => return own.axes(inputs),
            Self::Softmax { .. } => are_sinks,
            Self::LogSumExp => {
                let [rows @ .., _] = first else { return Err(Misread) };
                return if are_sinks { Ok(rows.to_vec()) } else { Err(Misread) };
            }
            Self::MeanOverHeads => {
                let ([batch, (Axis::Head, _), rows @ ..], []) = (first, others) else {
                    return Err(Misread);
                };
                return Ok([&[*batch], rows].concat());
            }
            Self::ZeroEmptyRows => {
                others.len() == 1 && others.iter().all(|mask| broadcasts(mask, first))
            }
            Self::Dropout { .. } => others == [*first, &[]],
            Self::KeepSome(own) => first.iter().map(|(_, size)| size).eq(own.keep.dims()),
            Self::DropoutScale { .. } => false,
        };
        if fits { Ok(first.to_vec()) } else { Err(Misread) }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, second] = [0, 1].map(|at| names.get(at).copied().unwrap_or_default());
        Ok(match self {
            Self::Softmax { .. } => {
                let sinks =
                    if names.len() == 2 { tr!(" and {second}", second) } else { String::new() };
                tr!("softmax({first}) over {over}{sinks}", first, over = tr!("keys"), sinks)
            }
            Self::LogSumExp if names.len() == 2 => {
                tr!("log Σ exp({first}) over keys and {second}", first, second)
            }
            Self::LogSumExp => tr!("log Σ exp({first}) over keys", first),
            Self::MeanOverHeads => tr!("mean of {first} over heads", first),
            Self::ZeroEmptyRows => {
                tr!("0 where {second} blocks every key, else {first}", second, first)
            }
            Self::DropoutScale { p } => format!("1 / (1 − {p})"),
            Self::Dropout { p } => format!("{first} · {second} / (1 − {p})"),
            Self::Differential(own) => own.formula(names)?,
            Self::KeepSome(_) => return Err(Misread),
        })
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let number = |name: &str, value: f64| Multiplier::Number(name.to_owned(), value, None);
        let scale = |p: f64| number("1 / (1 − p)", dropout_scale(p).into());
        let own = |input| inputs.first().map(|first| Read::same(input, first));
        let sum = |factors: Option<Vec<Multiplier>>| {
            let product = factors.map(|factors| Pattern::Sum(vec![Products::one(factors)]));
            product.unwrap_or(Pattern::ByCell)
        };
        match self {
            Self::Softmax { empty_row } => Pattern::Softmax { zero: *empty_row == EmptyRow::Zero },
            Self::LogSumExp => Pattern::LogSumExp,
            Self::MeanOverHeads => {
                let heads = inputs.first().and_then(|axes| axes.shape().get(1).copied());
                let heads = heads.unwrap_or_default();
                let of_head = Read::of(0, [0, 3, 1, 2].map(Place::on));
                let share = number(tr!("1 / heads"), (heads as f64).recip());
                Pattern::Sum(vec![Products::many(heads, of_head, share)])
            }
            Self::DropoutScale { p } => sum(Some(vec![scale(*p)])),
            Self::Dropout { p } => {
                let both = own(0).zip(own(1));
                sum(both.map(|(own, keep)| vec![own.into(), keep.into(), scale(*p)]))
            }
            Self::ZeroEmptyRows => sum(own(0).map(|own| vec![own.into()])),
            Self::Differential(own) => own.pattern(inputs),
            Self::KeepSome(_) => Pattern::ByCell,
        }
    }

    fn terms(&self, inputs: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        if let Self::Differential(own) = self { own.terms(inputs) } else { Ok(Vec::new()) }
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
            Self::Differential(own) => return own.flops(inputs, output),
            Self::Softmax { .. } => 5,
            // The maximum, its subtraction, the exponential and the sum for every score, and the logarithm.
            Self::LogSumExp => 4 * inputs.first().map_or(0, |scores| scores.last_size()) + 2,
            // A sum over the heads, and a division.
            Self::MeanOverHeads => {
                let heads = inputs.first().and_then(|weights| weights.shape().get(1).copied());
                u128::try_from(heads.unwrap_or_default()).unwrap_or_default() + 1
            }
            Self::ZeroEmptyRows => 0,
            Self::DropoutScale { .. } => 2,
            Self::Dropout { .. } | Self::KeepSome(_) => 1,
        })
    }

    fn adjoint(&self, input: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        match (self, input) {
            (Self::Softmax { .. }, 0) => {
                let reads = [Operand::Value, Operand::Gradient, Operand::Delta];
                Adjoint::of(Gradient::Softmax, reads)
            }
            (Self::Softmax { .. }, _) => {
                let reads = [Operand::Input(0), Operand::Input(1), Operand::Delta];
                Adjoint::of(Gradient::Sinks, reads)
            }
            (Self::ZeroEmptyRows, 0) => {
                Adjoint::of(self.clone(), [Operand::Gradient, Operand::Input(1)])
            }
            (Self::Dropout { .. }, 0) => {
                let reads = [Operand::Gradient, Operand::Input(1), Operand::Input(2)];
                Adjoint::of(self.clone(), reads)
            }
            (Self::KeepSome(_), _) => Adjoint::on_gradient(self.clone()),
            (Self::Differential(own), _) => own.adjoint(input),
            (Self::LogSumExp | Self::MeanOverHeads, _) => Adjoint::Unknown,
            (Self::ZeroEmptyRows | Self::Dropout { .. } | Self::DropoutScale { .. }, _) => {
                Adjoint::Nothing
            }
        }
    }

    fn narrowed(&self, part: Part, _: &[&Axes], whole: &Axes) -> Option<Self> {
        let at = part.position(whole);
        match self {
            Self::Softmax { .. } if at.is_some_and(|at| at + 1 == whole.rank()) => None,
            Self::KeepSome(own) => {
                let keep = at.map_or(Ok(own.keep.clone()), |at| part.of(&own.keep, at));
                Some(Self::KeepSome(KeepSome { keep: keep.ok()?, factor: own.factor }))
            }
            Self::Softmax { .. }
            | Self::LogSumExp
            | Self::MeanOverHeads
            | Self::ZeroEmptyRows
            | Self::DropoutScale { .. }
            | Self::Differential(_)
            | Self::Dropout { .. } => Some(self.clone()),
        }
    }

    fn facts(&self) -> Facts {
        let has_range =
            !matches!(self, Self::LogSumExp | Self::DropoutScale { .. } | Self::Differential(_));
        Facts {
            range: has_range.then_some((0.0, 1.0)),
            is_share: matches!(self, Self::Softmax { .. }),
            ..Facts::default()
        }
    }
}

/// Scores of keys and, behind them, of no key, where there are sinks.
fn beside(scores: &Tensor, sinks: &[&Tensor]) -> candle_core::Result<Tensor> {
    let [sinks, ..] = sinks else { return Ok(scores.clone()) };
    let (batch, heads, queries, _) = scores.dims4()?;
    let sinks = sinks.reshape((1, heads, 1, 1))?.broadcast_as((batch, heads, queries, 1))?;
    Tensor::cat(&[scores, &sinks.contiguous()?], 3)
}

/// What stands in the place of softmax, of scores and of the sinks beside them.
pub(super) fn weighed(
    weigh: &Weigh,
    scores: &Tensor,
    sinks: &[&Tensor],
) -> candle_core::Result<Tensor> {
    let is_over_keys = !matches!(weigh, Weigh::Over(_) | Weigh::Zeros(_));
    match sinks {
        [own] if is_over_keys && (scores.rank(), own.rank()) == (4, 1) => {
            let all = weigh.value(&beside(scores, sinks)?)?;
            all.narrow(D::Minus1, 0, scores.dim(D::Minus1)?)?.contiguous()
        }
        _ => weigh.value(scores),
    }
}

/// Weights with zeros in these rows.
fn zero(weights: &Tensor, rows: &Tensor) -> candle_core::Result<Tensor> {
    rows.broadcast_as(weights.shape())?.where_cond(&weights.zeros_like()?, weights)
}

/// Some weights times a factor, the others times 0, so that NaN stays NaN.
fn kept(weights: &Tensor, keep: &Tensor, factor: f64) -> candle_core::Result<Tensor> {
    weights.mul(&keep.to_dtype(weights.dtype())?.affine(factor, 0.0)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_row_of_minus_infinity_alone_is_empty() {
        let (nan, inf) = (f32::NAN, f32::NEG_INFINITY);
        let rows = [[inf, inf], [inf, nan], [nan, inf], [inf, 0.0]];
        let scores = Tensor::new(&rows, &Device::Cpu).expect("tensor");
        let weights = Weighting::softmax(EmptyRow::Zero).value(&[&scores]);
        let weights = weights.and_then(|weights| Ok(weights.to_vec2::<f32>()?)).expect("computes");
        assert_eq!(
            (weights[0].as_slice(), weights[3].as_slice()),
            (&[0.0, 0.0][..], &[0.0, 1.0][..])
        );
        assert!(weights[1].iter().chain(&weights[2]).all(|weight| weight.is_nan()));
    }

    #[test]
    fn the_scale_is_pytorchs() {
        // The f32 nearest to 1 / (1 − p) would be 0x3fa5_cd99.
        assert_eq!(dropout_scale(0.228).to_bits(), 0x3fa5_cd98);
        assert_eq!(
            [dropout_scale(0.0), dropout_scale(1.0)].map(f32::to_bits),
            [1.0_f32, 0.0].map(f32::to_bits)
        );
    }

    /// 2 / (2 + 4 + 1) and 4 / (2 + 4 + 1): the sink stands in the sum, whatever the base.
    #[test]
    fn a_sink_stays_in_the_sum_where_softmax_is_another() -> candle_core::Result<()> {
        let scores = Tensor::new(&[[[[1.0f64, 2.0]]]], &Device::Cpu)?;
        let sinks = Tensor::new(&[0.0f64], &Device::Cpu)?;
        let weights =
            weighed(&Weigh::OfTimes(std::f64::consts::LN_2), &scores, &[&sinks])?.flatten_all()?;
        for (found, meant) in weights.to_vec1::<f64>()?.into_iter().zip([2.0 / 7.0, 4.0 / 7.0]) {
            assert!((found - meant).abs() < 1e-12, "{found} is not {meant}");
        }
        Ok(())
    }
}
