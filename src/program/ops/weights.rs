//! From scores to weights: softmax, dropout, and what faulty code makes of them.

use candle_core::{D, DType, Device, Tensor};

use super::loops;
use super::mask::broadcasts;
use super::weight_pattern::pattern;
use super::weight_slips::{knobs, siblings};
use crate::axis::{Axes, Axis, Dim};
use crate::narrow::{Narrowed, Part};
use crate::op::{Misread, Operation};
use crate::pattern::Pattern;
use crate::rows::Rows;
use crate::slips::{Knob, Sibling};
use crate::terms::{Term, Value, factor};
use crate::working::{Exponential, Exponentials, Working};
use base::error::Result;
use base::lang;

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
        /// The axis that is summed over, counted from the last: 1 for the keys, as it should be.
        axis_from_last: usize,
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
#[must_use]
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
    #[must_use]
    pub fn softmax(empty_row: EmptyRow) -> Self {
        Self::Softmax { empty_row, axis_from_last: 1 }
    }
}

impl Operation for Weighting {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match (self, inputs) {
            (Self::Softmax { empty_row, axis_from_last }, [scores, sinks @ ..]) => {
                let weights = match (axis_from_last, sinks) {
                    (1, [sinks]) => beside_sinks(scores, sinks)?,
                    (1, _) => candle_nn::ops::softmax_last_dim(scores)?,
                    (other, _) => {
                        let axis = scores.rank().checked_sub(*other).ok_or(Misread)?;
                        candle_nn::ops::softmax(scores, axis)?
                    }
                };
                match empty_row {
                    EmptyRow::Nan => weights,
                    EmptyRow::Zero => {
                        let empty = scores.eq(f64::NEG_INFINITY)?.min_keepdim(D::Minus1)?;
                        zero(&weights, &empty)?
                    }
                }
            }
            (Self::LogSumExp, [scores, sinks @ ..]) => {
                let scores = match sinks {
                    [sinks, ..] => &with_sinks(scores, sinks)?,
                    [] => scores,
                };
                // Of −∞ alone the largest is −∞ too, and what is subtracted must be a number.
                let largest = scores.max_keepdim(D::Minus1)?.maximum(f64::from(f32::MIN))?;
                let sum = scores.broadcast_sub(&largest)?.exp()?.sum_keepdim(D::Minus1)?;
                (sum.log()? + largest)?.squeeze(D::Minus1)?
            }
            (Self::MeanOverHeads, [weights]) => weights.mean(1)?,
            (Self::ZeroEmptyRows, [weights, mask]) => zero(weights, &mask.min_keepdim(D::Minus1)?)?,
            (Self::DropoutScale { p }, []) => Tensor::new(dropout_scale(*p), &Device::Cpu)?,
            (Self::Dropout { .. }, [weights, keep, scale]) => {
                kept(weights, keep, scale.to_dtype(DType::F64)?.to_scalar::<f64>()?)?
            }
            (Self::KeepSome(KeepSome { keep, factor }), [weights]) => kept(weights, keep, *factor)?,
            (
                Self::Softmax { .. }
                | Self::LogSumExp
                | Self::MeanOverHeads
                | Self::ZeroEmptyRows
                | Self::DropoutScale { .. }
                | Self::Dropout { .. }
                | Self::KeepSome(_),
                _,
            ) => return Err(Misread.into()),
        })
    }

    fn rows<'a>(&'a self, read: &[usize], others: &[&'a Tensor]) -> Option<Rows<'a>> {
        match (self, others) {
            (Self::Softmax { empty_row: EmptyRow::Nan, axis_from_last: 1 }, []) => {
                Some(loops::softmax(*read.last()?))
            }
            _ => None,
        }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        if let (Self::MeanOverHeads, [[batch, (Axis::Head, _), rows @ ..]]) = (self, inputs) {
            return Ok([&[*batch], rows].concat());
        }
        let (fits, axes): (bool, &[Dim]) = match (self, inputs) {
            (Self::DropoutScale { .. }, []) => (true, &[]),
            (Self::Softmax { .. } | Self::LogSumExp, [scores, others @ ..]) => {
                let heads = scores.iter().filter(|(axis, _)| *axis == Axis::Head);
                let is_one_a_head = |sinks: &&[Dim]| sinks.iter().eq(heads.clone());
                let axes = match (self, scores) {
                    (Self::LogSumExp, [rows @ .., _]) => rows,
                    _ => scores,
                };
                (others.len() <= 1 && others.iter().all(is_one_a_head), axes)
            }
            (Self::ZeroEmptyRows, [weights, others @ ..]) => {
                (others.len() == 1 && others.iter().all(|mask| broadcasts(mask, weights)), weights)
            }
            (Self::Dropout { .. }, [weights, others @ ..]) => (others == [*weights, &[]], weights),
            (Self::KeepSome(KeepSome { keep, .. }), [weights, ..]) => {
                (weights.iter().map(|(_, size)| size).eq(keep.dims()), weights)
            }
            (Self::DropoutScale { .. } | Self::MeanOverHeads, _) | (_, []) => (false, &[]),
        };
        if fits { Ok(axes.to_vec()) } else { Err(Misread) }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, second] = [0, 1].map(|at| names.get(at).copied().unwrap_or_default());
        Ok(match self {
            Self::Softmax { axis_from_last, .. } => {
                let over = ["keys", "queries", "heads"].get(axis_from_last - 1);
                let sinks =
                    if names.len() == 2 { tr!(" and {second}", second) } else { String::new() };
                let over = over.unwrap_or(&"batch items");
                let over = lang::text(over);
                tr!("softmax({first}) over {over}{sinks}", first, over, sinks)
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
            Self::KeepSome(KeepSome { factor, .. }) => {
                tr!("some of {first} · {factor}, the others 0", first, factor)
            }
        })
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        if let (Self::MeanOverHeads, [weights], [item, rest @ ..]) = (self, inputs, cell) {
            let heads = weights.tensor.dims().get(1).copied().unwrap_or_default();
            #[allow(clippy::cast_precision_loss, reason = "heads are few")]
            let share = factor(tr!("1 / heads"), (heads as f64).recip());
            let of_head = |head| weights.at(&[&[*item, head], rest].concat());
            let term = |head| Ok(Term(vec![of_head(head)?, share.clone()]));
            return (0..heads).map(term).collect();
        }
        if let (Self::LogSumExp, [scores, sinks @ ..]) = (self, inputs) {
            let row = Exponentials::of(scores, sinks.first(), cell)?;
            if row.largest == f64::NEG_INFINITY {
                return Ok(vec![Term(vec![factor(tr!("-inf, as every score is"), row.largest)])]);
            }
            let log =
                factor(tr!("log Σ exp(s − max) over {over}", over = row.over()), row.sum.ln());
            let largest =
                factor(tr!("max of the row of {scores}", scores = scores.name), row.largest);
            return Ok(vec![Term(vec![largest]), Term(vec![log])]);
        }
        let own = || inputs.first().ok_or(Misread)?.at(cell);
        Ok(vec![Term(match (self, inputs, cell) {
            (Self::Softmax { empty_row, .. }, [scores, sinks @ ..], [row @ .., key]) => {
                let row = Exponentials::of(scores, sinks.first(), row)?;
                if *empty_row == EmptyRow::Zero && row.is_empty() {
                    return Ok(vec![Term(vec![factor(tr!("0, as every key is blocked"), 0.0)])]);
                }
                let Exponential { score, exp, .. } = row.keys.get(*key).ok_or(Misread)?;
                let exp =
                    factor(tr!("exp({score} − max)", score = score.name), *exp).made_of(score);
                let name = tr!("1 / Σ exp(s − max) over {over}", over = row.over());
                vec![exp, factor(name, row.sum.recip())]
            }
            (Self::DropoutScale { p }, ..) => vec![factor("1 / (1 − p)", dropout_scale(*p).into())],
            (Self::Dropout { .. }, [_, keep, scale], _) => {
                vec![own()?, keep.at(cell)?, factor("1 / (1 − p)", scale.at(&[])?.value)]
            }
            (Self::KeepSome(KeepSome { factor: by, .. }), ..) => vec![own()?, factor("kept", *by)],
            (Self::ZeroEmptyRows, ..) => vec![own()?],
            (
                Self::Softmax { .. } | Self::LogSumExp | Self::MeanOverHeads | Self::Dropout { .. },
                ..,
            ) => {
                return Err(Misread.into());
            }
        })])
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        pattern(self, inputs)
    }

    fn working(&self, inputs: &[Value], cell: &[usize]) -> Result<Working> {
        Ok(match (self, inputs, cell) {
            (Self::Softmax { axis_from_last: 1, .. }, [scores, sinks @ ..], [row @ .., _])
            | (Self::LogSumExp, [scores, sinks @ ..], row) => {
                Working::Softmax(Exponentials::of(scores, sinks.first(), row)?)
            }
            (Self::Dropout { p }, [_, keep, _], _) => {
                Working::Dropped { is_kept: keep.at(cell)?.value != 0.0, p: *p }
            }
            _ => Working::Plain,
        })
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        output.count().saturating_mul(match self {
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

    fn narrowed(&self, part: Part, _: &[&Axes], whole: &Axes) -> Narrowed {
        match (self, part.position(whole)) {
            (Self::Softmax { axis_from_last, .. }, Some(at))
                if whole.rank().checked_sub(*axis_from_last) == Some(at) =>
            {
                Narrowed::Mixed
            }
            (Self::KeepSome(KeepSome { keep, factor }), Some(at)) => match part.of(keep, at) {
                Ok(keep) => Narrowed::To(Self::KeepSome(KeepSome { keep, factor: *factor }).into()),
                Err(_) => Narrowed::Mixed,
            },
            (
                Self::Softmax { .. }
                | Self::LogSumExp
                | Self::MeanOverHeads
                | Self::ZeroEmptyRows
                | Self::DropoutScale { .. }
                | Self::Dropout { .. }
                | Self::KeepSome(_),
                _,
            ) => Narrowed::Same,
        }
    }

    fn siblings(&self, inputs: &[&Axes]) -> Vec<Sibling> {
        siblings(self, inputs)
    }

    fn knobs(&self) -> Vec<Knob> {
        knobs(self)
    }

    fn is_share(&self) -> bool {
        match self {
            Self::Softmax { .. } => true,
            Self::LogSumExp
            | Self::MeanOverHeads
            | Self::ZeroEmptyRows
            | Self::DropoutScale { .. }
            | Self::Dropout { .. }
            | Self::KeepSome(_) => false,
        }
    }

    fn range(&self) -> Option<(f64, f64)> {
        match self {
            Self::LogSumExp | Self::DropoutScale { .. } => None,
            Self::Softmax { .. }
            | Self::MeanOverHeads
            | Self::ZeroEmptyRows
            | Self::Dropout { .. }
            | Self::KeepSome(_) => Some((0.0, 1.0)),
        }
    }
}

/// Softmax over the keys and a sink, which is dropped.
fn beside_sinks(scores: &Tensor, sinks: &Tensor) -> candle_core::Result<Tensor> {
    let keys = scores.dim(D::Minus1)?;
    let all = with_sinks(scores, sinks)?;
    candle_nn::ops::softmax_last_dim(&all)?.narrow(3, 0, keys)?.contiguous()
}

/// Scores of keys and, behind them, of no key.
fn with_sinks(scores: &Tensor, sinks: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, heads, queries, _) = scores.dims4()?;
    let sinks = sinks.reshape((1, heads, 1, 1))?.broadcast_as((batch, heads, queries, 1))?;
    Tensor::cat(&[scores, &sinks.contiguous()?], 3)
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
}
