//! Mistakes of the four projections: transposed, without bias, in each other's place.

use candle_core::Tensor;

use super::{Mutation, Site, one};
use crate::config::Config;
use crate::error::Result;

const SWAPPED: &str = "All three projections have one shape.";

/// The two mistakes that each projection can have by itself.
macro_rules! single {
    ($transposed:literal, $missing:literal, $step:literal, $name:literal) => {
        [
            Mutation {
                id: $transposed,
                summary: concat!("the ", $name, " projection computes x·W in place of x·Wᵀ"),
                silent: "A square weight fits either way round.",
                example: "x @ weight + bias",
                fix: "x @ weight.T + bias  # nn.Linear stores (out, in)",
                steps: &[$step],
                faulty: transposed,
            },
            Mutation {
                id: $missing,
                summary: concat!("the ", $name, " projection drops its bias"),
                silent: "The shapes do not tell, and fresh models have small biases.",
                example: "x @ weight.T",
                fix: "x @ weight.T + bias",
                steps: &[$step],
                faulty: without_bias,
            },
        ]
    };
}

pub const QUERY: &[Mutation] = &single!("weight-transposed-q", "bias-missing-q", "q", "query");
pub const KEY: &[Mutation] = &single!("weight-transposed-k", "bias-missing-k", "k", "key");
pub const VALUE: &[Mutation] = &single!("weight-transposed-v", "bias-missing-v", "v", "value");
pub const OUTPUT: &[Mutation] =
    &single!("weight-transposed-o", "bias-missing-o", "output", "output");

pub const ALL: &[Mutation] = &[
    Mutation {
        id: "qk-swapped",
        summary: "the query and key projections change places",
        silent: SWAPPED,
        example: "q, k = k_proj(x), q_proj(x)",
        fix: "q, k = q_proj(x), k_proj(x)",
        steps: &["q", "k"],
        faulty: |site| swapped(site, "q", "k"),
    },
    Mutation {
        id: "kv-swapped",
        summary: "the key and value projections change places",
        silent: SWAPPED,
        example: "k, v = v_proj(x), k_proj(x)",
        fix: "k, v = k_proj(x), v_proj(x)",
        steps: &["k", "v"],
        faulty: |site| swapped(site, "k", "v"),
    },
    Mutation {
        id: "qv-swapped",
        summary: "the query and value projections change places",
        silent: SWAPPED,
        example: "q, v = v_proj(x), q_proj(x)",
        fix: "q, v = q_proj(x), v_proj(x)",
        steps: &["q", "v"],
        faulty: |site| swapped(site, "q", "v"),
    },
    Mutation {
        id: "packed-qkv-per-head",
        summary: "a packed QKV matrix of three blocks is read as q, k, v of head 0, of head 1, …",
        silent: "The packed matrix has one shape in both layouts.",
        example: "q, k, v = qkv(x).view(B, T, H, 3 * d_k).chunk(3, dim=-1)",
        fix: "q, k, v = qkv(x).chunk(3, dim=-1)",
        steps: &["q", "k", "v"],
        faulty: |site| packed(site, &in_blocks(site.config), &per_head(site.config)),
    },
    Mutation {
        id: "packed-qkv-per-head",
        summary: "a packed QKV matrix of q, k, v of head 0, of head 1, … is read as three blocks",
        silent: "The packed matrix has one shape in both layouts.",
        example: "q, k, v = qkv(x).chunk(3, dim=-1)",
        fix: "q, k, v = qkv(x).view(B, T, H, 3 * d_k).chunk(3, dim=-1)",
        steps: &["q", "k", "v"],
        faulty: |site| packed(site, &per_head(site.config), &in_blocks(site.config)),
    },
    Mutation {
        id: "output-projection-missing",
        summary: "the concatenated heads are returned as the output",
        silent: "Both have one shape.",
        example: "return concat",
        fix: "return out_proj(concat)",
        steps: &["output"],
        faulty: |site| one(site.input().cloned()),
    },
];

fn transposed(site: &Site) -> Result<Vec<Tensor>> {
    let [x, weight, bias @ ..] = site.inputs.as_slice() else { return one(None) };
    let (outputs, inputs) = weight.dims2()?;
    if outputs != inputs {
        return one(None);
    }
    let weight = weight.t()?.contiguous()?;
    let inputs: Vec<&Tensor> = [*x, &weight].into_iter().chain(bias.iter().copied()).collect();
    one(Some(site.step.op.eval(&inputs)?))
}

fn without_bias(site: &Site) -> Result<Vec<Tensor>> {
    let [x, weight, _] = site.inputs.as_slice() else { return one(None) };
    one(Some(site.step.op.eval(&[x, weight])?))
}

/// The projection that changes places with the step's own, where it has the same shape.
fn swapped(site: &Site, left: &str, right: &str) -> Result<Vec<Tensor>> {
    let other = if site.step.name == left { right } else { left };
    let weight = site.value(&format!("w_{other}"));
    let bias = site.value(&format!("b_{other}"));
    match (site.inputs.as_slice(), weight) {
        ([x, own, ..], Some(weight)) if own.dims() == weight.dims() => {
            let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
            one(Some(site.step.op.eval(&inputs)?))
        }
        _ => one(None),
    }
}

/// The blocks of `d_k` rows of a packed matrix, by step and head.
type Order = Vec<(&'static str, usize)>;

/// All query heads, all key heads, all value heads.
fn in_blocks(config: &Config) -> Order {
    let heads = [("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)];
    heads.into_iter().flat_map(|(step, heads)| (0..heads).map(move |head| (step, head))).collect()
}

/// The query heads of key head 0, key head 0, value head 0, those of key head 1, …
fn per_head(config: &Config) -> Order {
    let shared = config.heads / config.kv_heads;
    let group = |head: usize| {
        let queries = (head * shared..(head + 1) * shared).map(|query| ("q", query));
        queries.chain([("k", head), ("v", head)])
    };
    (0..config.kv_heads).flat_map(group).collect()
}

/// The projection by the rows that a packed matrix yields for this step when it is stored in one order and read in
/// another.
fn packed(site: &Site, stored: &Order, read: &Order) -> Result<Vec<Tensor>> {
    let head_dim = site.config.head_dim;
    let blocks = |kind: &str| -> Result<Option<Tensor>> {
        let mut parts = Vec::new();
        for (from, _) in stored.iter().zip(read).filter(|(_, to)| to.0 == site.step.name) {
            let Some(tensor) = site.value(&format!("{kind}_{}", from.0)) else { return Ok(None) };
            parts.push(tensor.narrow(0, from.1 * head_dim, head_dim)?);
        }
        Ok(Some(Tensor::cat(&parts, 0)?))
    };
    // Memory has a matrix of its own.
    if site.config.kv_len.is_some() {
        return one(None);
    }
    let (Some(weight), Some(x)) = (blocks("w")?, site.input()) else { return one(None) };
    let bias = blocks("b")?;
    let inputs: Vec<&Tensor> = [x, &weight].into_iter().chain(bias.as_ref()).collect();
    one(Some(site.step.op.eval(&inputs)?))
}
