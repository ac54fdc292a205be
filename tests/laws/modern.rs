//! Laws of what later models do: rotary positions, shared key heads, heads of a size of their own, position biases.

use std::f64::consts::SQRT_2;

use candle_core::DType::F32;
use candle_core::{Device, Tensor};
use mha_trace::config::{DType, NormOver, RopeScaling, Rotary, Sizes};
use mha_trace::program::{Name, Step};
use mha_trace::{Settings, Trace};
use proptest::prelude::*;
use proptest::sample::Index;

use super::common::{Named, bits, values};
use super::reading::{ROUNDING, VALUES, entry, first_of, given, keys, pick, rows, value, worst};
use super::strategy::{Case, cases, wide_cases};

fn rotated() -> impl Strategy<Value = Case> {
    wide_cases().prop_filter("has rotary positions", |case| case.settings.rope.is_some())
}

fn assert_same_bits(left: &Trace, right: &Trace) {
    let names = |trace: &Trace| -> Vec<String> {
        trace.steps().iter().map(|step| step.name.to_string()).collect()
    };
    assert_eq!(names(left), names(right));
    for (left, right) in left.steps().iter().zip(right.steps()) {
        assert_eq!(left.value.dims(), right.value.dims(), "{}", left.name);
        assert_eq!(bits(&left.value), bits(&right.value), "{}", left.name);
    }
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|x| x * x).sum::<f64>().sqrt()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn rotation_keeps_the_length_of_every_vector(case in rotated()) {
        let run = case.run_with(Vec::new());
        let trace = run.trace().expect("the case runs");
        let factor = run.config().rope.as_ref().map_or(1.0, Rotary::factor);
        let turned = 2 * value(&trace, "rope_freqs").dim(0).expect("one per pair");
        for (before, after) in [(["q_clipped", "q_norm", "q_heads"], "q_rot"), (["k_clipped", "k_norm", "k_heads"], "k_rot"), (["k_r_heads"; 3], "k_r_rot")] {
            if trace.step(after.parse().expect("a step")).is_none() {
                continue;
            }
            for (before, after) in rows(first_of(&trace, &before)).iter().zip(rows(value(&trace, after))) {
                let is_at_end = run.config().rope.as_ref().is_some_and(|rope| rope.at_end);
                let start = if is_at_end { before.len() - turned } else { 0 };
                let pairs = &before[start..][..turned];
                let rest = [&before[..start], &before[start + turned..]].concat();
                let unturned = [&after[..start], &after[start + turned..]].concat();
                let after = &after[start..][..turned];
                // Cosine, sine, the products and their sums are each rounded to 2⁻⁵³ of themselves.
                let difference = norm(after) - norm(pairs) * factor.abs();
                prop_assert!(difference.abs() <= 1e-14 * norm(pairs), "{difference:e}");
                prop_assert_eq!(unturned, rest);
            }
        }
    }

    #[test]
    fn scores_depend_on_relative_positions_alone(
        mut case in rotated().prop_filter("keys of a cache stay, and norms come before", |case| {
            !case.has("k_past") && case.settings.qk_norm_after_rope != Some(true)
        }),
        offset in 0..2000_usize,
    ) {
        case.settings.positions = None;
        // Of this one the factor of cos and sin, too, depends on the farthest position.
        case.settings.rope_scaling =
            case.settings.rope_scaling.filter(|scaling| !matches!(scaling, RopeScaling::Longrope(_)));
        // Those depend on positions by themselves.
        case.settings.q_temperature = Some(0.0);
        // Values that turn bear their positions.
        case.settings.rope_value = None;
        case.unshare();
        // The learned key is at no position.
        case.settings.add_bias_kv = None;
        let before = case.trace();
        // Dynamic scaling depends on the farthest position.
        let freqs = value(&before, "rope_freqs").clone();
        case.settings.rope_offset = Some(offset);
        let after = case.trace_with(vec![entry("rope_freqs", freqs)]);
        for name in ["scores_raw", "output"] {
            let worst = worst(&values(value(&after, name)), &values(value(&before, name)));
            // An angle of 2000 is rounded by 2000 · 2⁻⁵³ ≈ 2 · 10⁻¹³, and queries and keys are some ten long.
            prop_assert!(worst <= 10.0 * ROUNDING, "{name}: {worst:e}");
        }
    }

    #[test]
    fn a_key_head_for_every_head_is_what_nothing_says(
        mut case in cases().prop_filter("as many", |case| case.settings.kv_heads == case.settings.heads),
    ) {
        let said = case.trace();
        case.settings.kv_heads = None;
        assert_same_bits(&said, &case.trace());
    }

    #[test]
    fn a_head_dim_that_follows_changes_no_bit_when_said(
        mut case in cases().prop_filter("follows", |case| case.settings.head_dim.is_none()),
        multi_query: bool,
    ) {
        case.unshare();
        let is_shared = case.settings.qk_norm_over.is_none_or(|over| over == NormOver::Head);
        let of = &case.settings;
        let is_free = of.absorb.is_none() && of.lambda_init.is_none() && of.disentangled.is_none();
        if multi_query && !case.has("k_past") && is_shared && is_free {
            case.settings.kv_heads = Some(1);
        }
        let silent = case.trace();
        case.settings.head_dim = case.settings.d_model.zip(case.settings.heads).map(|(d_model, heads)| d_model / heads);
        assert_same_bits(&case.trace(), &silent);
    }

    #[test]
    fn shared_key_heads_are_equal_heads(
        mut case in wide_cases().prop_filter("shared", |case| case.settings.kv_heads < case.settings.heads),
    ) {
        let run = case.run_with(Vec::new());
        let shared = run.trace().expect("the case runs");
        let &Sizes { heads, kv_heads, head_dim, v_head_dim, latent, .. } = &run.config().sizes;
        let own = head_dim - latent.map_or(0, |latent| latent.shared);
        let group = |head: usize| head / (heads / kv_heads);
        let value_heads = if case.settings.lambda_init.is_some() { heads / 2 } else { heads };
        let features = |count: usize, size: usize| (0..count).flat_map(move |head| (0..size).map(move |at| group(head) * size + at));
        let repeated = |step: &Step| entry(step.name.as_str(), match step.name.as_str() {
            "w_k" | "b_k" | "bias_k" => pick(&step.value, 0, features(heads, own)),
            "w_v" | "b_v" | "bias_v" => pick(&step.value, 0, features(value_heads, v_head_dim)),
            "w_k_norm" | "b_k_norm" if step.value.rank() == 2 => pick(&step.value, 0, (0..heads).map(group)),
            "k_past" | "v_past" | "k_shared" | "v_shared" => pick(&step.value, 1, (0..heads).map(group)),
            _ => step.value.clone(),
        });
        case.settings.kv_heads = None;
        let whole = case.trace_with(given(&shared).map(repeated).collect());
        prop_assert!(whole.named("k_repeated").is_none() && whole.named("v_repeated").is_none());
        let of_values = first_of(&whole, VALUES);
        let mut pairs = vec![(value(&shared, "k_repeated"), keys(&whole)), (value(&shared, "v_repeated"), of_values)];
        let from = whole.steps().iter().skip_while(|step| step.name != Name::ScoresRaw);
        pairs.extend(from.map(|step| (value(&shared, step.name.as_str()), &step.value)));
        for (shared, whole) in pairs {
            prop_assert_eq!(shared.dims(), whole.dims());
            let worst = worst(&values(shared), &values(whole));
            prop_assert!(worst <= ROUNDING, "{worst:e}");
        }
    }

    #[test]
    fn position_biases_have_the_slopes_of_the_paper(
        sixteen: bool,
        tokens in 1..7_usize,
        past in 0..4_usize,
        first: Index,
    ) {
        let eight = [1.0 / 2.0, 1.0 / 4.0, 1.0 / 8.0, 1.0 / 16.0, 1.0 / 32.0, 1.0 / 64.0, 1.0 / 128.0, 1.0 / 256.0];
        // Of 16 heads every other one has the slope of one of 8, and those between the geometric mean of their neighbours.
        let between = |slope: f64| [slope * SQRT_2, slope];
        let slopes: Vec<f64> = if sixteen { eight.into_iter().flat_map(between).collect() } else { eight.to_vec() };
        let heads = slopes.len();
        let first = first.index(tokens);
        let settings = Settings {
            heads: Some(heads),
            d_model: Some(heads),
            seq_len: Some(tokens),
            alibi: Some(true),
            queries: format!("{first}..T").parse().ok(),
            dtype: Some(DType::F64),
            ..Settings::default()
        };
        let shape = [1, heads, past, 1];
        let cache = ["k_past", "v_past"].map(|name| entry(name, Tensor::zeros(&shape, F32, &Device::Cpu).expect("made")));
        let given = if past > 0 { cache.to_vec() } else { Vec::new() };
        let trace = Case { settings, given, attn_bias: None }.trace();
        let bias = value(&trace, "attn_bias");
        prop_assert_eq!(bias.dims(), [heads, tokens - first, past + tokens]);
        for (at, bias) in rows(bias).iter().enumerate() {
            let (slope, position) = (slopes[at / (tokens - first)], past + first + at % (tokens - first));
            for (key, bias) in bias.iter().enumerate() {
                let expected = -slope * position.abs_diff(key) as f64;
                // The root of 2 and the products are each rounded to 2⁻⁵³ of themselves.
                prop_assert!((bias - expected).abs() <= 1e-15 * expected.abs(), "{bias} {expected}");
            }
        }
    }
}
