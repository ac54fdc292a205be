//! Multi-head attention, as the paper has it.

use super::axis::{Axes, Axis};
use super::op::Op;
use super::program::Program;
use crate::config::{Config, QkNorm, Rope, Settings};
use crate::error::Result;
use crate::source::MaskShapes;

/// The program of multi-head attention ("Attention Is All You Need", section 3.2):
/// softmax(Q·Kᵀ / √`d_k`) · V of every head, the heads side by side, times `w_oᵀ`.
///
/// # Errors
/// If the sizes do not fit each other.
pub fn attention(config: &Config, masks: &MaskShapes) -> Result<Program> {
    let &Config { batch, seq_len, d_in, heads, kv_heads, head_dim, bias, .. } = config;
    let mut p = Program::default();

    let x = p
        .given("x", Axes::new([(Axis::Batch, batch), (Axis::Query, seq_len), (Axis::Input, d_in)]));
    let memory = config.kv_len.map_or(x, |kv_len| {
        let width = (Axis::Input, config.d_memory);
        p.given("memory", Axes::new([(Axis::Batch, batch), (Axis::Key, kv_len), width]))
    });
    let [w_q, w_k, w_v, w_o] =
        ["q", "k", "v", "o"].map(|name| projection(&mut p, name, config.projection(name), bias));
    let norms = config.qk_norm.map(|QkNorm::Rms| {
        ["w_q_norm", "w_k_norm"].map(|name| p.given(name, Axes::new([(Axis::HeadDim, head_dim)])))
    });
    let freqs = config
        .rope
        .as_ref()
        .map(|rope| (rope, p.given("rope_freqs", Axes::new([(Axis::HeadDim, rope.dims / 2)]))));
    let past = (config.past_len > 0).then(|| {
        let keys =
            [(Axis::Head, kv_heads), (Axis::Key, config.past_len), (Axis::HeadDim, head_dim)];
        let axes = Axes::new([&[(Axis::Batch, batch)], &keys[..]].concat());
        ["k_past", "v_past"].map(|name| p.given(name, axes.clone()))
    });
    let (queries, keys) = (config.query_count(), config.key_count());
    let scores =
        [(Axis::Batch, batch), (Axis::Head, heads), (Axis::Query, queries), (Axis::Key, keys)];
    let mask = masks.blocked.as_ref().map(|shape| p.given("mask", over(shape, &scores)));
    let attn_bias = masks.added.as_ref().map(|shape| p.given("attn_bias", over(shape, &scores)));
    let dropout_keep = (config.dropout > 0.0).then(|| p.given("dropout_keep", Axes::new(scores)));

    let of_queries = Op::Project { tokens: Axis::Query, rows: config.queries };
    let of_keys = Op::Project { tokens: Axis::Key, rows: None };
    let q = p.then("q", of_queries, &after(x, &w_q))?;
    let k = p.then("k", of_keys, &after(memory, &w_k))?;
    let v = p.then("v", of_keys, &after(memory, &w_v))?;

    let mut queries = p.then("q_heads", Op::SplitHeads { heads }, &[q])?;
    let mut keys = p.then("k_heads", Op::SplitHeads { heads: kv_heads }, &[k])?;
    let mut values = p.then("v_heads", Op::SplitHeads { heads: kv_heads }, &[v])?;

    if let Some([w_q_norm, w_k_norm]) = norms {
        let norm = Op::RmsNorm { eps: config.qk_norm_eps };
        queries = p.then("q_norm", norm, &[queries, w_q_norm])?;
        keys = p.then("k_norm", norm, &[keys, w_k_norm])?;
    }
    if let Some((rope, freqs)) = freqs {
        let (pairing, factor) = (rope.pairing, rope.factor());
        let rotate = |first| Op::Rotate { pairing, first, factor };
        let first_query = rotate(rope.offset + config.first_query());
        queries = p.then("q_rot", first_query, &[queries, freqs])?;
        keys = p.then("k_rot", rotate(rope.offset), &[keys, freqs])?;
    }
    if let Some([k_past, v_past]) = past {
        keys = p.then("k_cached", Op::Append, &[k_past, keys])?;
        values = p.then("v_cached", Op::Append, &[v_past, values])?;
    }
    if kv_heads < heads {
        let repeat = Op::RepeatHeads { times: heads / kv_heads };
        keys = p.then("k_repeated", repeat, &[keys])?;
        values = p.then("v_repeated", repeat, &[values])?;
    }

    let mut scores = p.then("scores_raw", Op::DotProduct, &[queries, keys])?;
    let scaled = match config.scale {
        Some(factor) => Op::ScaleBy { factor },
        None => Op::Scale { head_dim },
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

    let head_outputs = p.then("head_outputs", Op::WeightedSum, &[weights, values])?;
    let concat = p.then("concat", Op::MergeHeads, &[head_outputs])?;
    let to_model = Op::Project { tokens: Axis::Query, rows: None };
    p.then("output", to_model, &after(concat, &w_o))?;
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
            qk_norm: Some(QkNorm::Rms),
            rope: Some(Rope::Half),
            kv_heads: Some(1),
            past_len: Some(1),
            ..Settings::default()
        };
        let config = Config::resolve(&settings)?;
        let all = Some(vec![config.query_count(), config.key_count()]);
        attention(&config, &MaskShapes { blocked: all.clone(), added: all })
    }
}

/// The weight `w_NAME` (out, in) of a projection and, where there is one, its bias `b_NAME` (out).
fn projection(
    p: &mut Program,
    name: &str,
    (outputs, inputs): (usize, usize),
    bias: bool,
) -> Vec<usize> {
    let from = if name == "o" { Axis::Model } else { Axis::Input };
    let to = (Axis::Model, outputs);
    let weight = p.given(&format!("w_{name}"), Axes::new([to, (from, inputs)]));
    let bias = bias.then(|| p.given(&format!("b_{name}"), Axes::new([to])));
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
