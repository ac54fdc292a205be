//! Multi-head attention, as the paper has it.

use super::axis::{Axes, Axis};
use super::op::Op;
use super::program::Program;
use crate::config::{Config, Settings};
use crate::error::Result;
use crate::source::MaskShapes;

/// The program of multi-head attention ("Attention Is All You Need", section 3.2):
/// softmax(Q·Kᵀ / √`d_k`) · V of every head, the heads side by side, times `w_oᵀ`.
///
/// # Errors
/// If the sizes do not fit each other.
pub fn attention(config: &Config, masks: &MaskShapes) -> Result<Program> {
    let &Config { batch, seq_len, d_in, d_model, heads, bias, .. } = config;
    let mut p = Program::default();

    let x = p
        .given("x", Axes::new([(Axis::Batch, batch), (Axis::Query, seq_len), (Axis::Input, d_in)]));
    let from_x = (Axis::Input, d_in);
    let w_q = projection(&mut p, "q", from_x, d_model, bias);
    let w_k = projection(&mut p, "k", from_x, d_model, bias);
    let w_v = projection(&mut p, "v", from_x, d_model, bias);
    let w_o = projection(&mut p, "o", (Axis::Model, d_model), d_model, bias);
    let scores =
        [(Axis::Batch, batch), (Axis::Head, heads), (Axis::Query, seq_len), (Axis::Key, seq_len)];
    let mask = masks.blocked.as_ref().map(|shape| p.given("mask", over(shape, &scores)));
    let attn_bias = masks.added.as_ref().map(|shape| p.given("attn_bias", over(shape, &scores)));
    let dropout_keep = (config.dropout > 0.0).then(|| p.given("dropout_keep", Axes::new(scores)));

    let q = p.then("q", Op::Project { tokens: Axis::Query }, &after(x, &w_q))?;
    let k = p.then("k", Op::Project { tokens: Axis::Key }, &after(x, &w_k))?;
    let v = p.then("v", Op::Project { tokens: Axis::Key }, &after(x, &w_v))?;

    let q_heads = p.then("q_heads", Op::SplitHeads { heads }, &[q])?;
    let k_heads = p.then("k_heads", Op::SplitHeads { heads }, &[k])?;
    let v_heads = p.then("v_heads", Op::SplitHeads { heads }, &[v])?;

    let mut scores = p.then("scores_raw", Op::DotProduct, &[q_heads, k_heads])?;
    let scaled = match config.scale {
        Some(factor) => Op::ScaleBy { factor },
        None => Op::Scale { head_dim: config.head_dim() },
    };
    scores = p.then("scores", scaled, &[scores])?;
    if let Some(cap) = config.softcap {
        scores = p.then("scores_capped", Op::SoftCap { cap }, &[scores])?;
    }
    if let Some(attn_bias) = attn_bias {
        scores = p.then("scores_biased", Op::AddMask, &[scores, attn_bias])?;
    }
    if let Some(mask) = mask {
        scores =
            p.then("masked_scores", Op::MaskFill { fill: config.mask_fill }, &[scores, mask])?;
    }

    let mut weights =
        p.then("weights", Op::Softmax { empty_rows: config.empty_rows }, &[scores])?;
    if let Some(keep) = dropout_keep {
        weights = p.then("weights_dropped", Op::Dropout { p: config.dropout }, &[weights, keep])?;
    }

    let head_outputs = p.then("head_outputs", Op::WeightedSum, &[weights, v_heads])?;
    let concat = p.then("concat", Op::MergeHeads, &[head_outputs])?;
    p.then("output", Op::Project { tokens: Axis::Query }, &after(concat, &w_o))?;
    Ok(p)
}

impl Program {
    /// The program of a run that has every step there is, to tell which step reads which by their names.
    ///
    /// # Errors
    /// Never, as its sizes fit each other.
    pub fn complete() -> Result<Self> {
        let settings = Settings {
            dropout: Some(0.5),
            bias: Some(true),
            softcap: Some(1.0),
            ..Settings::default()
        };
        let config = Config::resolve(&settings)?;
        let all = Some(vec![config.seq_len; 2]);
        attention(&config, &MaskShapes { blocked: all.clone(), added: all })
    }
}

/// The weight `w_NAME` (out, in) of a projection and, where there is one, its bias `b_NAME` (out).
fn projection(
    p: &mut Program,
    name: &str,
    from: (Axis, usize),
    to: usize,
    bias: bool,
) -> Vec<usize> {
    let weight = p.given(&format!("w_{name}"), Axes::new([(Axis::Model, to), from]));
    let bias = bias.then(|| p.given(&format!("b_{name}"), Axes::new([(Axis::Model, to)])));
    std::iter::once(weight).chain(bias).collect()
}

fn after(x: usize, parameters: &[usize]) -> Vec<usize> {
    std::iter::once(x).chain(parameters.iter().copied()).collect()
}

/// The axes of a mask of that shape, which are the last of the scores'.
fn over(shape: &[usize], scores: &[(Axis, usize)]) -> Axes {
    let last = scores.iter().rev().zip(shape.iter().rev()).map(|((axis, _), size)| (*axis, *size));
    let mut axes: Vec<_> = last.collect();
    axes.reverse();
    Axes::new(axes)
}
