//! Mistakes in splitting features into heads and putting the heads side by side.

use candle_core::Tensor;

use super::{Mutation, Site, one};
use crate::error::Result;
use crate::trace::Op;

const SPLIT: &[&str] = &["q_heads", "k_heads", "v_heads"];
const SILENT: &str = "The shape is right; the numbers stand in the wrong places.";
const SPLIT_FIX: &str = "q = q.view(B, T, H, d_k).transpose(1, 2)";

/// Tiled heads, of keys and values, or of one of the two.
const fn tiled(steps: &'static [&'static str], summary: &'static str) -> Mutation {
    Mutation {
        id: "gqa-tiled",
        summary,
        silent: "There are as many heads as are needed; with one key head the two are the same.",
        example: "k = k.repeat(1, H // H_kv, 1, 1)",
        fix: "k = k.repeat_interleave(H // H_kv, dim=1)",
        steps,
        faulty: in_tiles,
    }
}

pub const ALL: &[Mutation] = &[
    Mutation {
        id: "split-without-transpose",
        summary: "the features are viewed as (batch, head, token, d_k) directly",
        silent: SILENT,
        example: "q = q.view(B, H, T, d_k)",
        fix: SPLIT_FIX,
        steps: SPLIT,
        faulty: |site| {
            let Some(x) = site.input() else { return one(None) };
            one(Some(x.reshape(site.step.axes.shape())?))
        },
    },
    Mutation {
        id: "split-interleaved",
        summary: "head h takes every H-th feature in place of a block of d_k",
        silent: SILENT,
        example: "q = q.view(B, T, d_k, H).permute(0, 3, 1, 2)",
        fix: SPLIT_FIX,
        steps: SPLIT,
        faulty: |site| {
            let Some(x) = site.input() else { return one(None) };
            let [batch, heads, tokens, head_dim] = site.step.axes.shape()[..] else {
                return one(None);
            };
            let split = x.reshape((batch, tokens, head_dim, heads))?;
            one(Some(split.permute((0, 3, 1, 2))?.contiguous()?))
        },
    },
    tiled(
        &["k_repeated", "v_repeated"],
        "the key and value heads are tiled, 0 1 0 1, where each should repeat, 0 0 1 1",
    ),
    tiled(&["k_repeated"], "the key heads are tiled, 0 1 0 1, where each should repeat, 0 0 1 1"),
    tiled(&["v_repeated"], "the value heads are tiled, 0 1 0 1, where each should repeat, 0 0 1 1"),
    Mutation {
        id: "merge-without-transpose",
        summary: "the heads' outputs are viewed as (batch, token, model) directly",
        silent: SILENT,
        example: "concat = head_outputs.reshape(B, T, H * d_k)",
        fix: "concat = head_outputs.transpose(1, 2).reshape(B, T, H * d_k)",
        steps: &["concat"],
        faulty: |site| {
            let Some(heads) = site.input() else { return one(None) };
            one(Some(heads.reshape(site.step.axes.shape())?))
        },
    },
    Mutation {
        id: "heads-summed",
        summary: "the heads are added where they should stand side by side",
        silent: "Repeated to the width of the model, the sum fits the output projection.",
        example: "concat = head_outputs.sum(dim=1).repeat(1, 1, H)",
        fix: "concat = head_outputs.transpose(1, 2).reshape(B, T, H * d_k)",
        steps: &["concat"],
        faulty: summed,
    },
];

fn summed(site: &Site) -> Result<Vec<Tensor>> {
    let Some(heads) = site.input() else { return one(None) };
    let sum = heads.sum(1)?;
    one(Some(Tensor::cat(&vec![&sum; site.config.heads], 2)?))
}

fn in_tiles(site: &Site) -> Result<Vec<Tensor>> {
    match (site.step.op, site.input()) {
        (Op::RepeatHeads { times }, Some(heads)) => one(Some(Tensor::cat(&vec![heads; times], 1)?)),
        _ => one(None),
    }
}
