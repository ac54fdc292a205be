//! Which mistakes of the mask are known: which cells are blocked, when, and with what?

use candle_core::{D, DType, Tensor};

use super::{Mistake, Situation, Way, after, before, none, omit, omitted, one, read, replace};
use crate::candidate::Edits;
use base::error::Result;
use config::CausalAlign;
use program::{
    Axis, BlockedKeys, ByPosition, Fill, Heads, Hides, Kind, Masking, Name, Op, QueryRows,
    Rearrange, signed,
};

const FUTURE: &str =
    "Training looks better than it should, as the answer leaks; shapes and row sums stay right.";
const CORNER: &str = "It shows only where queries and keys differ in number, as with a cache.";
const PADDED: &str = "Only padded items differ, and only by what the padding happens to hold.";
const TRIANGLE: &str = "mask = torch.triu(torch.ones(T, T), diagonal=1).bool()";
const BEHIND_CACHE: &str = "mask = torch.ones(T, S).bool().triu(S - T + 1)";
const FROM_FIRST: &str = "mask = torch.ones(T, S).bool().triu(1)";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "mask-missing",
        kind: Kind::Omitted,
        silent: FUTURE,
        ways: &[Way {
            summary: "the mask is built and never applied",
            wrong: "scores.masked_fill(mask, -1e9)  # the result is dropped",
            right: "scores = scores.masked_fill(mask, -1e9)",
            edits: |run| omitted(run, Name::MaskedScores),
        }],
        seen: &["facebookresearch/xformers#1185", "QwenLM/Qwen#933"],
    },
    Mistake {
        id: "mask-inverted",
        kind: Kind::Mask,
        silent: "Every row still sums to 1. True means attend in scaled_dot_product_attention, and blocked in \
                 nn.MultiheadAttention.",
        ways: &[Way {
            summary: "the mask blocks what it should let through",
            wrong: "scores = scores.masked_fill(mask == 0, -1e9)  # where true means blocked",
            right: "scores = scores.masked_fill(mask, -1e9)",
            edits: |run| {
                if run.has(Name::Mask) {
                    one([after(Name::Mask, Masking::Not, &[])])
                } else {
                    none()
                }
            },
        }],
        seen: &["rasbt/LLMs-from-scratch#1061", "InseeFrLab/torchTextClassifiers#92"],
    },
    Mistake {
        id: "mask-causal-excludes-self",
        kind: Kind::Mask,
        silent: "Only the first row stands out, which sees nothing.",
        ways: &[Way {
            summary: "the diagonal is blocked as well: no token sees itself",
            wrong: "mask = torch.triu(torch.ones(T, T)).bool()",
            right: TRIANGLE,
            edits: |run| causal(run, |own| ByPosition { first: own.first - 1, ..own }),
        }],
        seen: &["karpathy/nanoGPT#170", "pytorch/tutorials#2250"],
    },
    Mistake {
        id: "mask-causal-sees-next",
        kind: Kind::Mask,
        silent: FUTURE,
        ways: &[Way {
            summary: "one key too many is visible: a token sees the next one",
            wrong: "mask = torch.triu(torch.ones(T, T), diagonal=2).bool()",
            right: TRIANGLE,
            edits: |run| causal(run, |own| ByPosition { first: own.first + 1, ..own }),
        }],
        seen: &[],
    },
    Mistake {
        id: "mask-causal-bottom-right",
        kind: Kind::Mask,
        silent: CORNER,
        ways: &[Way {
            summary: "the causal mask is aligned to the last query and key instead of the first",
            wrong: BEHIND_CACHE,
            right: FROM_FIRST,
            edits: |run| other_corner(run, CausalAlign::BottomRight),
        }],
        seen: &["Dao-AILab/flash-attention#517", "onnx/onnx#8068"],
    },
    Mistake {
        id: "mask-causal-top-left",
        kind: Kind::Mask,
        silent: CORNER,
        ways: &[Way {
            summary: "the causal mask is aligned to the first query and key instead of the last",
            wrong: "mask = torch.ones(T, S).bool().triu(1)  # behind a cache, queries start at S - T",
            right: BEHIND_CACHE,
            edits: |run| other_corner(run, CausalAlign::TopLeft),
        }],
        seen: &["Dao-AILab/flash-attention#517", "onnx/onnx#8068"],
    },
    Mistake {
        id: "mask-causal-reversed",
        kind: Kind::Mask,
        silent: "Every row still sums to 1, and the mask is still a triangle.",
        ways: &[Way {
            summary: "the past is blocked instead of the future",
            wrong: "mask = torch.tril(torch.ones(T, T), diagonal=-1).bool()",
            right: TRIANGLE,
            edits: |run| causal(run, |own| ByPosition { hides: Hides::Past, ..own }),
        }],
        seen: &[],
    },
    Mistake {
        id: "mask-padding-missing",
        kind: Kind::Mask,
        silent: PADDED,
        ways: &[Way {
            summary: "the padding mask is not applied: padded keys are attended to",
            wrong: "scores = scores.masked_fill(causal, -1e9)",
            right: "scores = scores.masked_fill(causal | padding, -1e9)",
            edits: |run| {
                let parts = run.inputs(Name::Mask);
                let (padding, others): (Vec<Name>, Vec<Name>) =
                    parts.into_iter().partition(|name| is_padding(*name));
                match (padding.is_empty() || others.contains(&Name::FileMask), others.is_empty()) {
                    (true, _) => none(),
                    (false, true) => one([omit(Name::MaskedScores)]),
                    (false, false) => one([read(Name::Mask, others)]),
                }
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "mask-padding-on-queries",
        kind: Kind::Mask,
        silent: PADDED,
        ways: &[Way {
            summary: "padding blocks the rows of padded queries, not the columns of padded keys",
            wrong: "scores = scores.masked_fill(padding[:, None, :, None], -1e9)",
            right: "scores = scores.masked_fill(padding[:, None, None, :], -1e9)",
            edits: padding_on_queries,
        }],
        seen: &["hyunwoongko/transformer#40"],
    },
    Mistake {
        id: "mask-after-softmax",
        kind: Kind::Moved,
        silent: "The masked weights are zero, as they should be.",
        ways: &[Way {
            summary: "the weights are zeroed after softmax, so that their rows no longer sum to 1",
            wrong: "weights = torch.softmax(scores, dim=-1).masked_fill(mask, 0.0)",
            right: "weights = torch.softmax(scores.masked_fill(mask, -1e9), dim=-1)",
            edits: |run| {
                let zero = Masking::Fill { fill: Fill(0.0) };
                match run.right.mask_of_scores() {
                    Some(mask) if run.has(Name::MaskedScores) => {
                        one([omit(Name::MaskedScores), after(Name::Weights, zero, &[mask.name])])
                    }
                    Some(_) | None => none(),
                }
            },
        }],
        seen: &["huggingface/pytorch-image-models#2236"],
    },
    Mistake {
        id: "mask-batch-head-mixed",
        kind: Kind::Mask,
        silent: "It shows only where the items' masks differ.",
        ways: &[Way {
            summary: "the mask is tiled over the items (0 1 0 1) instead of repeated per head (0 0 1 1): items get each other's mask",
            wrong: "scores.view(B * H, T, T).masked_fill(mask.repeat(H, 1, 1), -1e9)",
            right: "scores.view(B * H, T, T).masked_fill(mask.repeat_interleave(H, dim=0), -1e9)",
            edits: batch_head_mixed,
        }],
        seen: &["lsdefine/attention-is-all-you-need-keras#36"],
    },
    Mistake {
        id: "mask-fill-too-small",
        kind: Kind::Parameter,
        silent: "With small scores the masked weights are tiny, and grow with the scores.",
        ways: &[Way {
            summary: "the mask fill is not low enough: blocked keys keep some weight",
            wrong: "scores = scores.masked_fill(mask, 1e-9)",
            right: "scores = scores.masked_fill(mask, -1e9)  # or float(\"-inf\")",
            edits: fill_too_small,
        }],
        seen: &["TransformerLensOrg/TransformerLens#385"],
    },
];

fn is_padding(mask: Name) -> bool {
    [Name::KeyMask, Name::LengthMask].contains(&mask)
}

/// A mask by positions that the run has.
pub fn by_position<'a>(run: &'a Situation, at: Name) -> Option<&'a ByPosition> {
    let Some(Op::Masking(Masking::ByPosition(mask))) = run.op(at) else { return None };
    Some(mask)
}

/// The run with another causal mask; none where it has none of its own.
fn causal(run: &Situation, faulty: impl Fn(ByPosition) -> ByPosition) -> Result<Vec<Edits>> {
    let Some(own) = by_position(run, Name::CausalMask) else { return none() };
    one([replace(Name::CausalMask, Masking::ByPosition(faulty(own.clone())))])
}

/// A causal mask of the other corner, also that of the computed queries alone. Its window goes with it.
fn other_corner(run: &Situation, align: CausalAlign) -> Result<Vec<Edits>> {
    let Some(causal) = by_position(run, Name::CausalMask) else { return none() };
    let of_rows = match align {
        CausalAlign::BottomRight => signed(causal.keys) - signed(causal.queries),
        CausalAlign::TopLeft => 0,
    };
    // Documents whose last keys are meant have each their own: those of the row are no corner of a mask.
    let is_meant = align == CausalAlign::BottomRight && run.config.align() == align;
    if is_meant && !causal.shifts.is_empty() {
        return none();
    }
    let mut starts = vec![run.config.first_seen(align), of_rows];
    starts.dedup();
    let shifts = run.config.shifts(align);
    let at = |first: i64| {
        let moved = |name: Name| {
            let own = by_position(run, name)?.clone();
            let shifts = shifts.clone();
            Some(replace(name, Masking::ByPosition(ByPosition { first, shifts, ..own })))
        };
        [Name::CausalMask, Name::WindowMask].into_iter().filter_map(moved).collect()
    };
    let is_other = |first: &i64| *first != causal.first || shifts != causal.shifts;
    Ok(starts.into_iter().filter(is_other).map(at).collect())
}

fn padding_on_queries(run: &Situation) -> Result<Vec<Edits>> {
    let sizes = &run.config.sizes;
    let rows = QueryRows { first: sizes.first_position(), count: sizes.query_count() };
    let on_queries = |name: Name| {
        let Some(Op::Masking(Masking::Keys(blocked))) = run.op(name) else { return None };
        Some((name, BlockedKeys { as_queries: Some(rows), ..blocked.clone() }))
    };
    let parts = run.inputs(Name::Mask);
    if sizes.is_cross || parts.contains(&Name::FileMask) {
        return none();
    }
    let edits: Edits = parts
        .into_iter()
        .filter_map(on_queries)
        .map(|(name, mask)| replace(name, Masking::Keys(mask)))
        .collect();
    if edits.is_empty() { none() } else { Ok(vec![edits]) }
}

/// Head h of item b gets the mask of item (b · heads + h) mod batch.
fn batch_head_mixed(run: &Situation) -> Result<Vec<Edits>> {
    let (shape, heads) = (run.shape(Name::Mask), run.config.sizes.heads);
    let [batch, 1, queries, keys] = shape[..] else { return none() };
    if batch == 1 {
        return none();
    }
    let tiled = Rearrange {
        blocks: vec![(0, batch); heads],
        view: vec![batch, heads, queries, keys],
        order: vec![0, 1, 2, 3],
        result: vec![
            (Axis::Batch, batch),
            (Axis::Head, heads),
            (Axis::Query, queries),
            (Axis::Key, keys),
        ],
    };
    one([before(Name::MaskedScores, 1, Heads::Rearrange(tiled), &[])])
}

/// The fills that people write; where the step was recorded, the number that it really has in a masked cell.
fn fill_too_small(run: &Situation) -> Result<Vec<Edits>> {
    let inputs = run.inputs(Name::MaskedScores);
    let [scores, mask] = inputs[..] else { return none() };
    let (Some(scores), Some(mask)) = (run.value(scores), run.value(mask)) else { return none() };
    let mut fills = vec![-1e5, -1e4, -1e3, -100.0, -10.0, -1.0, 0.0, 1e-9];
    if let Some(found) = run.recorded.get(&Name::MaskedScores) {
        let blocked = mask.broadcast_as(found.shape())?.flatten_all()?.to_vec1::<u8>()?;
        let found = found.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let cells = found.into_iter().zip(blocked);
        fills =
            cells.filter(|(_, blocked)| *blocked == 1).map(|(value, _)| value).take(1).collect();
    }
    let right = run.config.masks.fill.0;
    let least = least_with_weight(scores, mask)?;
    let fills = fills.into_iter().filter(|fill| fill.is_finite() && *fill > right.max(least));
    let replaced =
        fills.map(|fill| vec![replace(Name::MaskedScores, Masking::Fill { fill: Fill(fill) })]);
    Ok(replaced.collect())
}

/// The fill up to which softmax gives masked cells no weight in any row that has a visible one.
fn least_with_weight(scores: &Tensor, mask: &Tensor) -> Result<f64> {
    // What the logarithm of the smallest number of the type is.
    let least = if scores.dtype() == DType::F64 { -745.0 } else { -103.0 };
    let (shape, lowest) = (scores.shape(), f64::NEG_INFINITY);
    let mask = mask.broadcast_as(shape)?;
    let none = Tensor::new(lowest, scores.device())?.to_dtype(scores.dtype())?;
    let visible = mask.where_cond(&none.broadcast_as(shape)?, scores)?;
    let largest = visible.max(D::Minus1)?.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
    let is_masked = mask.max(D::Minus1)?.flatten_all()?.to_vec1::<u8>()?;
    let rows = largest.into_iter().zip(is_masked);
    let rows = rows.filter(|(largest, is_masked)| largest.is_finite() && *is_masked == 1);
    Ok(rows.map(|(largest, _)| largest + least).fold(f64::INFINITY, f64::min))
}
