//! Mistakes of the mask: which cells are blocked, when, and with what.

use candle_core::{D, DType, Tensor};

use super::{Mutation, Site, one};
use crate::config::{CausalAlign, Config, Fill, Mask};
use crate::error::Result;
use crate::source::{Masks, before_window, causal};
use crate::trace::Op;

const FUTURE: &str =
    "Training looks better than it should, as the answer leaks; shapes and row sums stay right.";
const CORNER: &str = "It shows only where queries and keys differ in number, as with a cache.";
const PADDED: &str = "Only padded items differ, and only by what the padding happens to hold.";

pub const ALL: &[Mutation] = &[
    Mutation {
        id: "mask-missing",
        summary: "the mask is built and never applied",
        silent: FUTURE,
        example: "scores.masked_fill(mask, -1e9)  # the result is dropped",
        fix: "scores = scores.masked_fill(mask, -1e9)",
        steps: &["masked_scores"],
        faulty: |site| one(site.input().cloned()),
    },
    Mutation {
        id: "mask-inverted",
        summary: "the mask blocks what it should let through",
        silent: "Every row still sums to 1. True means attend in scaled_dot_product_attention, and blocked in \
                 nn.MultiheadAttention.",
        example: "scores = scores.masked_fill(mask == 0, -1e9)  # where true means blocked",
        fix: "scores = scores.masked_fill(mask, -1e9)",
        steps: &["masked_scores"],
        faulty: |site| with_mask(site, site.value("mask").map(invert).transpose()?),
    },
    Mutation {
        id: "mask-causal-excludes-self",
        summary: "the diagonal is blocked as well: no token sees itself",
        silent: "Only the first row stands out, which sees nothing.",
        example: "mask = torch.triu(torch.ones(T, T)).bool()",
        fix: "mask = torch.triu(torch.ones(T, T), diagonal=1).bool()",
        steps: &["masked_scores"],
        faulty: |site| with_causal(site, |query, key| key >= query || outside(site, query, key)),
    },
    Mutation {
        id: "mask-causal-sees-next",
        summary: "one key too many is visible: a token sees the next one",
        silent: FUTURE,
        example: "mask = torch.triu(torch.ones(T, T), diagonal=2).bool()",
        fix: "mask = torch.triu(torch.ones(T, T), diagonal=1).bool()",
        steps: &["masked_scores"],
        faulty: |site| with_causal(site, |query, key| key > query + 1 || outside(site, query, key)),
    },
    Mutation {
        id: "mask-causal-bottom-right",
        summary: "the causal mask is aligned to the last query and key in place of the first",
        silent: CORNER,
        example: "mask = torch.ones(T, S).bool().triu(S - T + 1)",
        fix: "mask = torch.ones(T, S).bool().triu(1)",
        steps: &["masked_scores"],
        faulty: |site| other_corner(site, CausalAlign::BottomRight),
    },
    Mutation {
        id: "mask-causal-top-left",
        summary: "the causal mask is aligned to the first query and key in place of the last",
        silent: CORNER,
        example: "mask = torch.ones(T, S).bool().triu(1)  # behind a cache, queries start at S - T",
        fix: "mask = torch.ones(T, S).bool().triu(S - T + 1)",
        steps: &["masked_scores"],
        faulty: |site| other_corner(site, CausalAlign::TopLeft),
    },
    Mutation {
        id: "mask-causal-reversed",
        summary: "the past is blocked in place of the future",
        silent: "Every row still sums to 1, and the mask is still a triangle.",
        example: "mask = torch.tril(torch.ones(T, T), diagonal=-1).bool()",
        fix: "mask = torch.triu(torch.ones(T, T), diagonal=1).bool()",
        steps: &["masked_scores"],
        faulty: |site| with_causal(site, |query, key| key < query || outside(site, query, key)),
    },
    Mutation {
        id: "mask-padding-missing",
        summary: "only the causal half of the mask is applied, padding is attended to",
        silent: PADDED,
        example: "scores = scores.masked_fill(causal, -1e9)",
        fix: "scores = scores.masked_fill(causal | padding, -1e9)",
        steps: &["masked_scores"],
        faulty: |site| {
            let only_causal = Config { key_mask: None, lengths: None, ..site.config.clone() };
            match (padding(site)?, Masks::compose(&only_causal, None)?.blocked) {
                (Some(_), Some(causal)) => with_mask(site, Some(causal)),
                (Some(_), None) => one(site.input().cloned()),
                (None, _) => one(None),
            }
        },
    },
    Mutation {
        id: "mask-padding-on-queries",
        summary: "padding blocks the rows of padded queries, not the columns of padded keys",
        silent: PADDED,
        example: "scores = scores.masked_fill(padding[:, None, :, None], -1e9)",
        fix: "scores = scores.masked_fill(padding[:, None, None, :], -1e9)",
        steps: &["masked_scores"],
        faulty: |site| {
            let (Some(padding), None) = (padding(site)?, site.config.kv_len) else {
                return one(None);
            };
            let (first, count) = (site.config.first_position(), site.config.query_count());
            let rows = padding.transpose(2, 3)?.narrow(2, first, count)?;
            with_mask(site, Some(or_causal(site, &rows)?))
        },
    },
    Mutation {
        id: "mask-after-softmax",
        summary: "the weights are zeroed after softmax, so that their rows no longer sum to 1",
        silent: "The masked weights are zero, as they should be.",
        example: "weights = torch.softmax(scores, dim=-1).masked_fill(mask, 0.0)",
        fix: "weights = torch.softmax(scores.masked_fill(mask, -1e9), dim=-1)",
        steps: &["masked_scores", "weights"],
        faulty: |site| {
            if site.step.name == "masked_scores" {
                return one(site.input().cloned());
            }
            let Some(mask) = site.value("mask") else { return one(None) };
            one(Some(Op::MaskFill { fill: Fill(0.0) }.eval(&[&site.correct()?, mask])?))
        },
    },
    Mutation {
        id: "mask-batch-head-mixed",
        summary: "a mask tiled batch-major meets head-major scores: items get each other's mask",
        silent: "It shows only where the items' masks differ.",
        example: "scores.view(B * H, T, T).masked_fill(mask.repeat(H, 1, 1), -1e9)",
        fix: "scores.view(B * H, T, T).masked_fill(mask.repeat_interleave(H, dim=0), -1e9)",
        steps: &["masked_scores"],
        faulty: batch_head_mixed,
    },
    Mutation {
        id: "mask-fill-too-small",
        summary: "masked scores become a number that real scores exceed, or that leaves them weight",
        silent: "With small scores the masked weights are tiny, and grow with the scores.",
        example: "scores = scores.masked_fill(mask, 1e-9)",
        fix: "scores = scores.masked_fill(mask, -1e9)  # or float(\"-inf\")",
        steps: &["masked_scores"],
        faulty: fill_too_small,
    },
];

fn invert(mask: &Tensor) -> candle_core::Result<Tensor> {
    mask.eq(0_u8)
}

/// The scores under another mask; nothing where there is none.
fn with_mask(site: &Site, mask: Option<Tensor>) -> Result<Vec<Tensor>> {
    match (mask, site.input()) {
        (Some(mask), Some(scores)) => one(Some(site.step.op.eval(&[scores, &mask])?)),
        _ => one(None),
    }
}

/// The padding of the run, (batch, 1, 1, key), true = blocked.
fn padding(site: &Site) -> Result<Option<Tensor>> {
    let alone = Config { mask: Mask::None, ..site.config.clone() };
    Ok(Masks::compose(&alone, None)?.blocked.filter(|_| site.config.attn_mask.is_none()))
}

fn or_causal(site: &Site, padding: &Tensor) -> Result<Tensor> {
    let alone = Config { key_mask: None, lengths: None, ..site.config.clone() };
    Ok(match Masks::compose(&alone, None)?.blocked {
        Some(causal) => padding.broadcast_maximum(&causal)?,
        None => padding.clone(),
    })
}

/// Whether the key is before the query's window.
fn outside(site: &Site, query: i64, key: i64) -> bool {
    before_window(site.config.window, query, key)
}

/// The scores under another mask by positions, with the padding as it is. `hides` gets the last key that the query is
/// to see, and the key.
pub fn with_causal(site: &Site, hides: impl Fn(i64, i64) -> bool) -> Result<Vec<Tensor>> {
    if site.config.mask != Mask::Causal || site.config.attn_mask.is_some() {
        return one(None);
    }
    let causal = causal(site.config, hides)?;
    let mask = match padding(site)? {
        Some(padding) => padding.broadcast_maximum(&causal)?,
        None => causal,
    };
    with_mask(site, Some(mask))
}

/// The scores under a causal mask of the other corner, also that of the computed queries alone.
fn other_corner(site: &Site, align: CausalAlign) -> Result<Vec<Tensor>> {
    let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let right = site.config.causal_offset();
    let of_all = Config { causal_align: Some(align), ..site.config.clone() }.causal_offset();
    let of_rows = match align {
        CausalAlign::TopLeft => 0,
        CausalAlign::BottomRight => {
            signed(site.config.key_count()) - signed(site.config.query_count())
        }
    };
    let mut offsets = vec![of_all, of_rows];
    offsets.dedup();
    let mut faulty = Vec::new();
    for offset in offsets.into_iter().filter(|offset| *offset != right) {
        faulty.extend(with_causal(site, |query, key| {
            let query = query - right + offset;
            key > query || outside(site, query, key)
        })?);
    }
    Ok(faulty)
}

/// Head h of item b gets the mask of item (b · heads + h) mod batch.
fn batch_head_mixed(site: &Site) -> Result<Vec<Tensor>> {
    let Some(mask) = site.value("mask").filter(|mask| mask.rank() == 4) else { return one(None) };
    let (batch, heads, queries, keys) = mask.dims4()?;
    if batch == 1 || heads > 1 {
        return one(None);
    }
    let heads = site.config.heads;
    let tiled = Tensor::cat(&vec![mask; heads], 0)?.reshape((batch, heads, queries, keys))?;
    with_mask(site, Some(tiled))
}

/// The fills that people write; where the step was recorded, the number that it really has in a masked cell.
fn fill_too_small(site: &Site) -> Result<Vec<Tensor>> {
    let (Some(scores), Some(mask)) = (site.input(), site.value("mask")) else { return one(None) };
    let mut fills = vec![-1e5, -1e4, -1e3, -100.0, -10.0, -1.0, 0.0, 1e-9];
    if let Some(found) = site.found {
        let blocked = mask.broadcast_as(found.shape())?.flatten_all()?.to_vec1::<u8>()?;
        let found = found.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let cells = found.into_iter().zip(blocked);
        fills =
            cells.filter(|(_, blocked)| *blocked == 1).map(|(value, _)| value).take(1).collect();
    }
    let above =
        fills.into_iter().filter(|fill| fill.is_finite() && *fill > site.config.mask_fill.0);
    let filled: Result<Vec<Tensor>> =
        above.map(|fill| Op::MaskFill { fill: Fill(fill) }.eval(&[scores, mask])).collect();
    let mut small = Vec::new();
    for scores in filled? {
        if leaves_weight(&scores, mask)? {
            small.push(scores);
        }
    }
    Ok(small)
}

/// Whether softmax gives a masked cell weight in a row that has a visible one.
fn leaves_weight(scores: &Tensor, mask: &Tensor) -> Result<bool> {
    let blocked = mask.broadcast_as(scores.shape())?.to_dtype(scores.dtype())?;
    let on_masked = candle_nn::ops::softmax_last_dim(scores)?.mul(&blocked)?.sum(D::Minus1)?;
    let some_visible = blocked.min(D::Minus1)?.eq(0.0)?.to_dtype(scores.dtype())?;
    let most = on_masked.mul(&some_visible)?.flatten_all()?.max(0)?.to_dtype(DType::F64)?;
    Ok(most.to_scalar::<f64>()? > 0.0)
}
