//! What the laws read traces with.

use candle_core::{D, DType, Tensor};
use mha_trace::config::CausalAlign;
use mha_trace::file::Entry;
use mha_trace::program::{Axis, Step};
use mha_trace::{Config, Trace};

use super::common::{Named, values};

/// What two f64 runs may differ by that sum the same products in another order, as candle's product of matrices does for
/// another number of rows: 2⁻⁵³ ≈ 10⁻¹⁶ of sums of some tens of numbers below 10², of which a norm of a head near 0
/// makes up to 1/√ε = 10³ times as much, and another product some tens. Of f32 a mistake would be 10⁻⁷.
pub const ROUNDING: f64 = 1e-10;

/// A tensor as a file holds it.
pub fn entry(name: &str, tensor: Tensor) -> Entry {
    Entry::of(name, tensor)
}

/// The value of a step that every such run has.
pub fn value<'a>(trace: &'a Trace, name: &str) -> &'a Tensor {
    &trace.named(name).unwrap_or_else(|| panic!("no step {name}")).value
}

/// The value of the first of these steps that there is.
pub fn first_of<'a>(trace: &'a Trace, names: &[&str]) -> &'a Tensor {
    let step = names.iter().find_map(|name| trace.named(name));
    &step.unwrap_or_else(|| panic!("none of {names:?}")).value
}

/// The keys that the queries meet, before heads are repeated.
pub fn keys(trace: &Trace) -> &Tensor {
    first_of(
        trace,
        &[
            "k_with_zero",
            "k_with_bias",
            "k_cached",
            "k_shared",
            "k_rot_norm",
            "k_joined",
            "k_latent",
            "k_rot",
            "k_clipped",
            "k_norm",
            "k_heads",
            "c_heads",
        ],
    )
}

/// The values that the weights meet, before heads are repeated: the last of these.
pub const VALUES: &[&str] = &[
    "v_with_zero",
    "v_with_bias",
    "v_cached",
    "v_shared",
    "v_rot",
    "v_scaled",
    "v_clipped",
    "v_norm",
    "v_heads",
];

/// The steps that come from outside.
pub fn given(trace: &Trace) -> impl Iterator<Item = &Step> {
    trace.outer().filter(|step| step.name.is_given())
}

/// Every vector along the last axis.
pub fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
    let length = tensor.dim(D::Minus1).expect("has axes");
    values(tensor).chunks(length).map(<[f64]>::to_vec).collect()
}

/// These places of an axis, in this order.
pub fn pick(tensor: &Tensor, axis: usize, places: impl Iterator<Item = usize>) -> Tensor {
    let places: Vec<u32> = places.map(|at| u32::try_from(at).expect("small")).collect();
    let places = Tensor::new(places, tensor.device()).expect("made");
    tensor.contiguous().and_then(|whole| whole.index_select(&places, axis)).expect("within")
}

/// The rows of `count` queries from `first` on, of a step that has a row for each of `tokens`.
pub fn query_rows(step: &Step, tokens: usize, first: usize, count: usize) -> Tensor {
    match step.axes.iter().position(|axis| axis == (Axis::Query, tokens)) {
        Some(axis) => step.value.narrow(axis, first, count).expect("within"),
        None => step.value.clone(),
    }
}

/// How many keys, from the first on, a token sees under the causal mask.
pub fn seen(config: &Config, token: usize) -> usize {
    let sizes = &config.sizes;
    match (config.plain.causal_align, sizes.is_cross) {
        (Some(CausalAlign::TopLeft), _) | (None, true) => token + 1,
        // The last token sees the last key.
        _ => (token + 1 + sizes.keys()).saturating_sub(sizes.seq_len),
    }
}

/// 1 where a key is masked, over (batch, head, query, key).
pub fn blocked(trace: &Trace) -> Tensor {
    let scores = value(trace, "scores");
    let named = |name: &str| trace.named(&format!("{name}_padded")).or_else(|| trace.named(name));
    let mask = match named("mask") {
        Some(step) => step.value.broadcast_as(scores.shape()).expect("broadcasts"),
        None => Tensor::zeros(scores.shape(), DType::U8, scores.device()).expect("made"),
    };
    let Some(step) = named("attn_bias") else { return mask };
    let infinite = step.value.eq(f64::NEG_INFINITY).expect("compares");
    mask.broadcast_maximum(&infinite).expect("broadcasts")
}

/// The largest difference of two numbers, relative to the expected one where that is above 1. A NaN is a NaN, and an
/// infinity the same infinity.
#[allow(clippy::float_cmp, reason = "what is equal differs by nothing, infinities too")]
pub fn worst(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let difference = |(found, expected): (&f64, &f64)| {
        if found == expected || (found.is_nan() && expected.is_nan()) {
            return 0.0;
        }
        let difference = (found - expected).abs() / expected.abs().max(1.0);
        if difference.is_nan() { f64::INFINITY } else { difference }
    };
    found.iter().zip(expected).map(difference).fold(0.0, f64::max)
}
