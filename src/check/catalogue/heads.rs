//! Which mistakes are known in splitting features into heads and putting the heads side by side?

use super::{Mistake, Situation, Way, after, none, one, replace};
use crate::candidate::Edits;
use base::error::Result;
use program::{Along, Edit, Heads, Kind, Name, Op, Rearrange, Slip};

const SPLIT: [Name; 3] = [Name::QHeads, Name::KHeads, Name::VHeads];
const SILENT: &str = "The shape is right; the numbers stand in the wrong places.";
const RIGHT_SPLIT: &str = "q = q.view(B, T, H, d_k).transpose(1, 2)";
const RIGHT_MERGE: &str = "concat = head_outputs.transpose(1, 2).reshape(B, T, H * d_k)";
const TILED: &str = "k = k.repeat(1, H // H_kv, 1, 1)";
const REPEATED: &str = "k = k.repeat_interleave(H // H_kv, dim=1)";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "split-without-transpose",
        kind: Kind::Axes,
        silent: SILENT,
        ways: &[Way {
            summary: "the features are reshaped to (batch, head, token, d_k) without a transpose",
            wrong: "q = q.view(B, H, T, d_k)",
            right: RIGHT_SPLIT,
            edits: |run| {
                split(run, |[batch, heads, tokens, head_dim]| {
                    (vec![batch, heads, tokens, head_dim], vec![0, 1, 2, 3])
                })
            },
        }],
        seen: &["reczoo/FuxiCTR#30"],
    },
    Mistake {
        id: "split-interleaved",
        kind: Kind::Axes,
        silent: SILENT,
        ways: &[Way {
            summary: "head h takes every H-th feature instead of a block of d_k",
            wrong: "q = q.view(B, T, d_k, H).permute(0, 3, 1, 2)",
            right: RIGHT_SPLIT,
            edits: |run| {
                split(run, |[batch, heads, tokens, head_dim]| {
                    (vec![batch, tokens, head_dim, heads], vec![0, 3, 1, 2])
                })
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "gqa-tiled",
        kind: Kind::Axes,
        silent: "There are as many heads as are needed; with one key head the two are the same.",
        ways: &[
            Way {
                summary: "key and value heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)",
                wrong: TILED,
                right: REPEATED,
                edits: |run| tiled(run, &[Name::KRepeated, Name::VRepeated]),
            },
            Way {
                summary: "query head h reads key head h // (number of key heads), not h // (heads of a group)",
                wrong: "kv_head = head // num_kv_heads",
                right: "kv_head = head // (num_heads // num_kv_heads)",
                edits: |run| by_key_heads(run),
            },
            Way {
                summary: "key heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)",
                wrong: TILED,
                right: REPEATED,
                edits: |run| tiled(run, &[Name::KRepeated]),
            },
            Way {
                summary: "value heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)",
                wrong: "v = v.repeat(1, H // H_kv, 1, 1)",
                right: "v = v.repeat_interleave(H // H_kv, dim=1)",
                edits: |run| tiled(run, &[Name::VRepeated]),
            },
            Way {
                summary: "query and key heads are tiled (0 1 0 1) instead of repeated (0 0 1 1)",
                wrong: "q, k = q.repeat(1, H_v // H, 1, 1), k.repeat(1, H_v // H, 1, 1)",
                right: "q, k = q.repeat_interleave(H_v // H, dim=1), k.repeat_interleave(H_v // H, dim=1)",
                edits: |run| tiled(run, &[Name::QRepeated, Name::KRepeated]),
            },
        ],
        seen: &["ekzhang/jax-js#180", "onnx/onnx#7274"],
    },
    Mistake {
        id: "merge-without-transpose",
        kind: Kind::Axes,
        silent: SILENT,
        ways: &[Way {
            summary: "the heads' outputs are reshaped to (batch, token, model) without a transpose",
            wrong: "concat = head_outputs.reshape(B, T, H * d_k)",
            right: RIGHT_MERGE,
            edits: |run| {
                let shape = run.shape(Name::Concat);
                one([rearranged(run, Name::Concat, shape, vec![0, 1, 2])])
            },
        }],
        seen: &["jsbaan/transformer-from-scratch#6", "pytorch/pytorch#67651"],
    },
    Mistake {
        id: "heads-summed",
        kind: Kind::Axes,
        silent: "Repeated to the width of the model, the sum fits the output projection.",
        ways: &[Way {
            summary: "the heads are summed instead of concatenated",
            wrong: "concat = head_outputs.sum(dim=1).repeat(1, 1, H)",
            right: RIGHT_MERGE,
            edits: |_| one([replace(Name::Concat, Heads::Sum)]),
        }],
        seen: &["awf/functional-transformer#8"],
    },
];

/// The step's numbers viewed as another shape, with its axes in another order.
fn rearranged(run: &Situation, at: Name, view: Vec<usize>, order: Vec<usize>) -> Edit {
    let result = run.right.step(at).map(|step| step.axes.iter().collect()).unwrap_or_default();
    replace(at, Heads::Rearrange(Rearrange { blocks: vec![], view, order, result }))
}

/// The shape that numbers are viewed as, and the order of its axes, of a step of these sizes.
type View = fn([usize; 4]) -> (Vec<usize>, Vec<usize>);

/// Heads split in another way; `view` says of (batch, head, token, feature) how the features are viewed, and in which
/// order the axes are then.
fn split(run: &Situation, view: View) -> Result<Vec<Edits>> {
    let edit = |at: Name| {
        let sizes: [usize; 4] = run.shape(at).try_into().ok()?;
        let (view, order) = view(sizes);
        Some(rearranged(run, at, view, order))
    };
    match SPLIT.into_iter().map(edit).collect::<Option<Edits>>() {
        Some(edits) => one(edits),
        None => none(),
    }
}

/// Query heads that divide their number by that of the key heads.
fn by_key_heads(run: &Situation) -> Result<Vec<Edits>> {
    let (heads, kv_heads) = (run.config.sizes.heads, run.config.sizes.kv_heads.max(1));
    let group = heads / kv_heads;
    if group < 2 || kv_heads < 2 || group == kv_heads {
        return none();
    }
    let places = (0..heads).map(|head| (head / kv_heads).min(kv_heads - 1) * group).collect();
    let take = Slip::Along(1, Along::Take(places));
    let steps = [Name::KRepeated, Name::VRepeated];
    if !steps.iter().all(|name| run.has(*name)) {
        return none();
    }
    one(steps.map(|name| after(name, take.clone(), &[])))
}

fn tiled(run: &Situation, steps: &[Name]) -> Result<Vec<Edits>> {
    let edit = |at: &Name| {
        let Some(Op::Heads(Heads::Repeat { times, .. })) = run.op(*at) else { return None };
        Some(replace(*at, Heads::Repeat { times: *times, is_tiled: true }))
    };
    match steps.iter().map(edit).collect::<Option<Edits>>() {
        Some(edits) => one(edits),
        None => none(),
    }
}
