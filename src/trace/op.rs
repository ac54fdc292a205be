//! The operations that a trace is made of: each knows its value, its axes, its formula and its cost.

use candle_core::{D, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};

use super::axis::{Axes, Axis};
use crate::config::{EmptyRows, Fill, Queries, Rope, Rows, root};
use crate::error::{Error, Result};
use crate::source::dropout_scale;

/// One step's operation. `eval` computes it with candle; the formulas are those of
/// "Attention Is All You Need" (Vaswani et al., 2017), section 3.2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// An input, a weight or a mask: its value comes from outside.
    Given,
    /// x · Wᵀ (+ b), as `nn.Linear`. Reads x (…, in), W (out, in) and perhaps b (out).
    Project {
        /// What the rows of the result are: queries or keys.
        tokens: Axis,
        /// The rows of x that are projected, if not all are.
        rows: Option<Rows>,
    },
    /// (batch, token, model) to (batch, head, token, `head_dim`): head h is features `h·d_k` … `(h+1)·d_k − 1`.
    SplitHeads {
        /// The number of heads.
        heads: usize,
    },
    /// x / √(mean(x²) + ε) · w over the features of every head ("Root Mean Square Layer Normalization", Zhang and
    /// Sennrich, 2019, equation 4). Reads heads (batch, head, token, `head_dim`) and w (`head_dim`).
    RmsNorm {
        /// ε.
        eps: f64,
    },
    /// Rotary positions ("`RoFormer`", Su et al., 2021, equation 34): the pair i of every head's features is turned by
    /// position · `θ_i`. Reads heads (batch, head, token, `head_dim`) and θ (one a pair); features beyond the pairs stay.
    Rotate {
        /// Which features are a pair.
        pairing: Rope,
        /// The position of the first token.
        first: usize,
        /// What cosine and sine are multiplied by.
        factor: f64,
    },
    /// The keys or values of a cache, and behind them the run's own.
    Append,
    /// Every head so many times, one after the other: 0 0 1 1 ("GQA", Ainslie et al., 2023).
    RepeatHeads {
        /// How many query heads share a key head.
        times: usize,
    },
    /// Q · Kᵀ of every head. Reads queries and keys (batch, head, token, `head_dim`).
    DotProduct,
    /// Scores / √`d_k`.
    Scale {
        /// The features of a head, `d_k`.
        head_dim: usize,
    },
    /// Scores · a factor, in place of 1/√`d_k`.
    ScaleBy {
        /// The factor.
        factor: f64,
    },
    /// C · tanh(scores / C): no score is beyond ±C ("Gemma 2", Gemma Team, 2024, section 2).
    SoftCap {
        /// C.
        cap: f64,
    },
    /// Scores + a float mask, broadcast from the right.
    AddMask,
    /// The fill where the mask is true, the score elsewhere. Reads scores and a boolean mask.
    MaskFill {
        /// What a masked score becomes.
        fill: Fill,
    },
    /// exp(s) / Σ exp(s) over the keys of every row.
    Softmax {
        /// What a row that is −∞ throughout becomes.
        empty_rows: EmptyRows,
    },
    /// Weights · keep / (1 − p). Reads weights and a boolean keep-mask.
    Dropout {
        /// The probability of dropping a weight.
        p: f64,
    },
    /// Weights · V of every head.
    WeightedSum,
    /// (batch, head, query, `head_dim`) to (batch, query, model): the heads side by side.
    MergeHeads,
}

impl Op {
    /// The operation's value for these inputs. Replaying a trace's steps gives their values again; f64 inputs
    /// give an f64 value.
    ///
    /// # Errors
    /// If the number of inputs is not the operation's, or candle refuses them: check with [`Op::axes`] first.
    pub fn eval(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let value = match (*self, inputs) {
            (Self::Project { rows, .. }, [x, weight]) => project(x, rows, weight)?,
            (Self::Project { rows, .. }, [x, weight, bias]) => {
                project(x, rows, weight)?.broadcast_add(bias)?
            }
            (Self::SplitHeads { heads }, [x]) => {
                let (batch, tokens, model) = x.dims3()?;
                x.reshape((batch, tokens, heads, model / heads))?.transpose(1, 2)?.contiguous()?
            }
            (Self::RmsNorm { eps }, [heads, weight]) => {
                let mean_square = heads.sqr()?.mean_keepdim(D::Minus1)?;
                let root = (mean_square + eps)?.sqrt()?;
                heads.broadcast_div(&root)?.broadcast_mul(weight)?
            }
            (Self::Rotate { pairing, first, factor }, [heads, freqs]) => {
                rotate(heads, freqs, pairing, first, factor)?
            }
            (Self::Append, [past, own]) => Tensor::cat(&[past, own], 2)?,
            (Self::RepeatHeads { times }, [heads]) => {
                let (batch, count, tokens, head_dim) = heads.dims4()?;
                let shared = (batch, count, times, tokens, head_dim);
                heads.unsqueeze(2)?.broadcast_as(shared)?.contiguous()?.flatten(1, 2)?
            }
            (Self::DotProduct, [queries, keys]) => queries.matmul(&keys.t()?)?,
            (Self::Scale { head_dim }, [scores]) => {
                scores.broadcast_div(&number(root(head_dim), scores)?)?
            }
            (Self::ScaleBy { factor }, [scores]) => {
                scores.broadcast_mul(&number(factor, scores)?)?
            }
            (Self::SoftCap { cap }, [scores]) => {
                let cap = number(cap, scores)?;
                scores.broadcast_div(&cap)?.tanh()?.broadcast_mul(&cap)?
            }
            (Self::AddMask, [scores, mask]) => scores.broadcast_add(mask)?,
            (Self::MaskFill { fill }, [scores, mask]) => {
                let fill = number(fill.0, scores)?;
                let shape = scores.shape();
                mask.broadcast_as(shape)?.where_cond(&fill.broadcast_as(shape)?, scores)?
            }
            (Self::Softmax { empty_rows }, [scores]) => {
                let weights = candle_nn::ops::softmax_last_dim(scores)?;
                match empty_rows {
                    EmptyRows::Nan => weights,
                    EmptyRows::Zero => {
                        let empty = scores.eq(f64::NEG_INFINITY)?.min_keepdim(D::Minus1)?;
                        let zeros = weights.zeros_like()?;
                        empty.broadcast_as(weights.shape())?.where_cond(&zeros, &weights)?
                    }
                }
            }
            (Self::Dropout { p }, [weights, keep]) => {
                let scale = f64::from(dropout_scale(p));
                weights.mul(&keep.to_dtype(weights.dtype())?.affine(scale, 0.0)?)?
            }
            (Self::WeightedSum, [weights, values]) => weights.matmul(values)?,
            (Self::MergeHeads, [heads]) => heads.transpose(1, 2)?.contiguous()?.flatten_from(2)?,
            _ => return Err(self.misread(inputs.len())),
        };
        Ok(value)
    }

    /// The axes of the value, from those of the inputs.
    ///
    /// # Errors
    /// If the inputs do not fit the operation: too few, other axes, or lengths that differ.
    pub fn axes(&self, inputs: &[&Axes]) -> Result<Axes> {
        use Axis::{Batch, Head, HeadDim, Key, Model, Query};
        let dims: Vec<Vec<(Axis, usize)>> =
            inputs.iter().map(|axes| axes.iter().collect()).collect();
        let dims: Vec<&[(Axis, usize)]> = dims.iter().map(Vec::as_slice).collect();
        let axes = match (*self, dims.as_slice()) {
            (Self::Project { tokens, rows }, [[b, t, i], [o, w_i], bias @ ..])
                if i.1 == w_i.1 && bias.len() <= 1 && bias.iter().all(|bias| *bias == [*o]) =>
            {
                vec![*b, (tokens, rows.map_or(t.1, |rows| rows.count)), (Model, o.1)]
            }
            (Self::RmsNorm { .. }, [heads @ [.., (HeadDim, d)], [(HeadDim, w)]]) if d == w => {
                heads.to_vec()
            }
            (Self::Rotate { .. }, [heads @ [.., (HeadDim, d)], [(HeadDim, pairs)]])
                if *pairs <= d / 2 =>
            {
                heads.to_vec()
            }
            (Self::Append, [[b, h, (Key, past), d], [o_b, o_h, (Key, own), o_d]])
                if (b, h, d) == (o_b, o_h, o_d) =>
            {
                vec![*b, *h, (Key, past.saturating_add(*own)), *d]
            }
            (Self::RepeatHeads { times }, [[b, (Head, h), t, d]]) => {
                vec![*b, (Head, h.saturating_mul(times)), *t, *d]
            }
            (Self::SplitHeads { heads }, [[b, t, (Model, d)]])
                if heads > 0 && d.is_multiple_of(heads) =>
            {
                vec![*b, (Head, heads), *t, (HeadDim, d / heads)]
            }
            (Self::DotProduct, [[b, h, q @ (Query, _), d], [k_b, k_h, s @ (Key, _), k_d]])
                if (b, h, d) == (k_b, k_h, k_d) =>
            {
                vec![*b, *h, *q, *s]
            }
            (
                Self::Scale { .. }
                | Self::ScaleBy { .. }
                | Self::SoftCap { .. }
                | Self::Softmax { .. },
                [scores],
            ) => scores.to_vec(),
            (Self::AddMask | Self::MaskFill { .. }, [scores, mask]) if broadcasts(mask, scores) => {
                scores.to_vec()
            }
            (Self::Dropout { .. }, [weights, keep]) if weights == keep => weights.to_vec(),
            (Self::WeightedSum, [[b, h, q, s @ (Key, _)], [v_b, v_h, v_s, d]])
                if (b, h, s) == (v_b, v_h, v_s) =>
            {
                vec![*b, *h, *q, *d]
            }
            (Self::MergeHeads, [[b @ (Batch, _), (Head, h), q, (HeadDim, d)]]) => {
                vec![*b, *q, (Model, h.saturating_mul(*d))]
            }
            _ => {
                let found: Vec<_> = inputs.iter().map(ToString::to_string).collect();
                let what = format!("does not fit {}", found.join(" and "));
                return Err(Error::tensor(
                    format!("{self:?}"),
                    what,
                    self.misread(inputs.len()).fix(),
                ));
            }
        };
        Ok(Axes::new(axes))
    }

    /// The formula with the names of the tensors in it: `scores_raw / √d_k`.
    #[must_use]
    pub fn formula(&self, names: &[&str]) -> String {
        match (*self, names) {
            (Self::Project { rows: Some(rows), tokens }, [x, others @ ..]) => {
                let rows = format!("{x}[{}]", Queries::from(rows));
                let all = Self::Project { rows: None, tokens };
                all.formula(&[&[rows.as_str()], others].concat())
            }
            (Self::Project { .. }, [x, w]) => format!("{x} · {w}ᵀ"),
            (Self::Project { .. }, [x, w, b]) => format!("{x} · {w}ᵀ + {b}"),
            (Self::RmsNorm { eps }, [heads, w]) => {
                format!("{heads} / √(mean({heads}²) + {eps:e}) · {w}")
            }
            (Self::Rotate { pairing, first, factor }, [heads, freqs]) => {
                let pairs = match pairing {
                    Rope::Half => "(i, i + r/2)",
                    Rope::Interleaved => "(2i, 2i + 1)",
                };
                #[allow(clippy::float_cmp, reason = "1 exactly")]
                let factor =
                    if factor == 1.0 { String::new() } else { format!(" and times {factor}") };
                format!(
                    "{heads}, pairs {pairs} turned by position · {freqs}, from position {first}{factor}"
                )
            }
            (Self::Append, [past, own]) => format!("{past}, then {own}"),
            (Self::RepeatHeads { times }, [heads]) => {
                format!("every head of {heads} {times} times")
            }
            (Self::SplitHeads { heads: 1 }, [x]) => format!("{x} as one head"),
            (Self::SplitHeads { heads }, [x]) => format!("{x} split into {heads} heads"),
            (Self::DotProduct, [q, k]) => format!("{q} · {k}ᵀ"),
            (Self::Scale { .. }, [scores]) => format!("{scores} / √d_k"),
            (Self::ScaleBy { factor }, [scores]) => format!("{scores} · {factor}"),
            (Self::SoftCap { cap }, [scores]) => format!("{cap} · tanh({scores} / {cap})"),
            (Self::AddMask, [scores, mask]) => format!("{scores} + {mask}"),
            (Self::MaskFill { fill }, [scores, mask]) => {
                format!("{fill} where {mask}, else {scores}")
            }
            (Self::Softmax { .. }, [scores]) => format!("softmax({scores}) over keys"),
            (Self::Dropout { p }, [weights, keep]) => format!("{weights} · {keep} / (1 − {p})"),
            (Self::WeightedSum, [weights, v]) => format!("{weights} · {v}"),
            (Self::MergeHeads, [heads]) => format!("{heads} side by side"),
            _ => "given".to_owned(),
        }
    }

    /// Floating-point operations of the step: a multiply-add counts 2, softmax 5 an element (maximum,
    /// subtraction, exponential, sum, division), a norm 4, a rotation 3, a soft cap 3, moving and selecting numbers nothing.
    #[must_use]
    pub fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let count = output.count();
        let inner = |axes: Option<&&Axes>| {
            axes.and_then(|axes| axes.iter().last()).map_or(0, |(_, size)| size as u128)
        };
        match self {
            Self::Given
            | Self::SplitHeads { .. }
            | Self::Append
            | Self::RepeatHeads { .. }
            | Self::MaskFill { .. }
            | Self::MergeHeads => 0,
            Self::RmsNorm { .. } => count.saturating_mul(4),
            // Of every pair two products and a sum a feature; cosines and sines are few.
            Self::Rotate { .. } => {
                let pairs = inner(inputs.get(1));
                count.checked_div(inner(inputs.first())).unwrap_or(0).saturating_mul(6 * pairs)
            }
            Self::Project { .. } => {
                let bias = if inputs.len() == 3 { count } else { 0 };
                count.saturating_mul(2 * inner(inputs.first())).saturating_add(bias)
            }
            Self::DotProduct | Self::WeightedSum => count.saturating_mul(2 * inner(inputs.first())),
            Self::Scale { .. } | Self::ScaleBy { .. } | Self::AddMask | Self::Dropout { .. } => {
                count
            }
            Self::SoftCap { .. } => count.saturating_mul(3),
            Self::Softmax { .. } => count.saturating_mul(5),
        }
    }

    fn misread(&self, inputs: usize) -> Error {
        let what = format!("cannot be computed from {inputs} tensors");
        Error::tensor(format!("{self:?}"), what, "read the inputs that the operation's page names")
    }
}

/// A number as a tensor of the type that it is to meet.
fn number(value: f64, beside: &Tensor) -> candle_core::Result<Tensor> {
    Tensor::new(value, beside.device())?.to_dtype(beside.dtype())
}

/// The heads with positions from `first` on.
fn rotate(
    heads: &Tensor,
    freqs: &Tensor,
    pairing: Rope,
    first: usize,
    factor: f64,
) -> candle_core::Result<Tensor> {
    let (tokens, head_dim) = (heads.dim(2)?, heads.dim(3)?);
    let turned = 2 * freqs.dim(0)?;
    let end = u32::try_from(first + tokens).map_err(candle_core::Error::wrap)?;
    let start = u32::try_from(first).map_err(candle_core::Error::wrap)?;
    let positions = Tensor::arange(start, end, heads.device())?.to_dtype(freqs.dtype())?;
    let angles = positions.unsqueeze(1)?.broadcast_mul(freqs)?;
    let (cos, sin) = (angles.cos()?.affine(factor, 0.0)?, angles.sin()?.affine(factor, 0.0)?);
    let part = heads.narrow(3, 0, turned)?.contiguous()?;
    let part = match pairing {
        Rope::Half => rope(&part, &cos, &sin)?,
        Rope::Interleaved => rope_i(&part, &cos, &sin)?,
    };
    if turned == head_dim {
        return Ok(part);
    }
    let rest = heads.narrow(3, turned, head_dim - turned)?.contiguous()?;
    Tensor::cat(&[part, rest], 3)
}

/// x (batch, token, in) · Wᵀ, or some rows of it, as one matrix product over all tokens.
fn project(x: &Tensor, rows: Option<Rows>, weight: &Tensor) -> candle_core::Result<Tensor> {
    let x = match rows {
        Some(rows) => &x.narrow(1, rows.first, rows.count)?.contiguous()?,
        None => x,
    };
    let (batch, tokens, inputs) = x.dims3()?;
    let outputs = weight.dim(0)?;
    let rows = x.reshape((batch * tokens, inputs))?;
    rows.matmul(&weight.t()?)?.reshape((batch, tokens, outputs))
}

/// Whether a mask's axes, aligned from the right, each are the scores' or 1.
fn broadcasts(mask: &[(Axis, usize)], scores: &[(Axis, usize)]) -> bool {
    mask.len() <= scores.len()
        && mask
            .iter()
            .rev()
            .zip(scores.iter().rev())
            .all(|((mask_axis, m), (axis, s))| mask_axis == axis && (m == s || *m == 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn only_a_row_of_minus_infinity_alone_is_empty() {
        let (nan, inf) = (f32::NAN, f32::NEG_INFINITY);
        let rows = [[inf, inf], [inf, nan], [nan, inf], [inf, 0.0]];
        let scores = Tensor::new(&rows, &Device::Cpu).expect("tensor");
        let softmax = Op::Softmax { empty_rows: EmptyRows::Zero };
        let weights = softmax.eval(&[&scores]).and_then(|weights| Ok(weights.to_vec2::<f32>()?));
        let weights = weights.expect("computes");
        assert_eq!(
            (weights[0].as_slice(), weights[3].as_slice()),
            (&[0.0, 0.0][..], &[0.0, 1.0][..])
        );
        assert!(weights[1].iter().chain(&weights[2]).all(|weight| weight.is_nan()));
    }

    #[test]
    fn inputs_that_do_not_fit_are_refused() {
        let axes = |sizes: &[(Axis, usize)]| Axes::new(sizes.to_vec());
        let x = axes(&[(Axis::Batch, 2), (Axis::Query, 5), (Axis::Input, 7)]);
        let weight = axes(&[(Axis::Model, 12), (Axis::Input, 6)]);
        let project = Op::Project { tokens: Axis::Query, rows: None };
        assert!(project.axes(&[&x, &weight]).is_err());
        assert!(project.axes(&[&x]).is_err());
        assert!(
            Op::SplitHeads { heads: 5 }
                .axes(&[&axes(&[(Axis::Batch, 2), (Axis::Query, 5), (Axis::Model, 12)])])
                .is_err()
        );
    }
}
