//! Mistakes of the four projections: transposed, without bias, in each other's place.

use candle_core::Tensor;

use super::{Mutation, Site, one};
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
        faulty: |site| packed(site, [site.config.heads, 3]),
    },
    Mutation {
        id: "packed-qkv-per-head",
        summary: "a packed QKV matrix of q, k, v of head 0, of head 1, … is read as three blocks",
        silent: "The packed matrix has one shape in both layouts.",
        example: "q, k, v = qkv(x).chunk(3, dim=-1)",
        fix: "q, k, v = qkv(x).view(B, T, H, 3 * d_k).chunk(3, dim=-1)",
        steps: &["q", "k", "v"],
        faulty: |site| packed(site, [3, site.config.heads]),
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

/// The projection that changes places with the step's own.
fn swapped(site: &Site, left: &str, right: &str) -> Result<Vec<Tensor>> {
    let other = if site.step.name == left { right } else { left };
    let weight = site.value(&format!("w_{other}"));
    let bias = site.value(&format!("b_{other}"));
    match (site.input(), weight) {
        (Some(x), Some(weight)) => {
            let inputs: Vec<&Tensor> = [x, weight].into_iter().chain(bias).collect();
            one(Some(site.step.op.eval(&inputs)?))
        }
        _ => one(None),
    }
}

/// The projection by the rows that a packed matrix yields for this step when its blocks of `d_k` rows, `outer` groups
/// of `inner`, are read as `inner` groups of `outer`.
fn packed(site: &Site, [outer, inner]: [usize; 2]) -> Result<Vec<Tensor>> {
    let (d_k, width) = (site.config.head_dim(), site.config.d_model);
    let at = match site.step.name.as_str() {
        "q" => 0,
        "k" => width,
        _ => 2 * width,
    };
    let all = |kind: &str| {
        ["q", "k", "v"].iter().map(|name| site.value(&format!("{kind}_{name}"))).collect()
    };
    let part = |tensors: Option<Vec<&Tensor>>| -> Result<Option<Tensor>> {
        let Some(tensors) = tensors else { return Ok(None) };
        let packed = Tensor::cat(&tensors, 0)?;
        let packed = if packed.rank() == 1 { packed.unsqueeze(1)? } else { packed };
        let blocks = packed.reshape((outer, inner, d_k, packed.dim(1)?))?.transpose(0, 1)?;
        Ok(Some(blocks.contiguous()?.flatten(0, 2)?.narrow(0, at, width)?.contiguous()?))
    };
    let Some(weight) = part(all("w"))? else { return one(None) };
    let bias = part(all("b"))?.map(|bias| bias.squeeze(1)).transpose()?;
    let Some(x) = site.input() else { return one(None) };
    let inputs: Vec<&Tensor> = [x, &weight].into_iter().chain(bias.as_ref()).collect();
    one(Some(site.step.op.eval(&inputs)?))
}
