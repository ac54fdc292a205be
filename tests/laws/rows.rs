//! A run of some rows, by `queries` or behind a cache, is those rows of the whole run.

use candle_core::{Device, Tensor};
use mha_trace::Trace;
use mha_trace::config::{AttnMaskTrue, DrawInputs, Fill, Mask};
use mha_trace::file::{Output, Record};
use mha_trace::program::Axis;
use proptest::prelude::*;
use proptest::sample::Index;

use super::common::{Named, bits, values};
use super::reading::{
    ROUNDING, VALUES, entry, first_of, given, keys, query_rows, seen, value, worst,
};
use super::strategy::{cases, wide_cases};

/// A mask over the last of (batch, head, query, key), each whole or 1.
#[derive(Debug, Clone)]
struct FileMask {
    whole: Vec<bool>,
    is_float: bool,
    meaning: Option<AttnMaskTrue>,
    numbers: Vec<f32>,
}

fn file_masks() -> impl Strategy<Value = FileMask> {
    let whole = prop::collection::vec(any::<bool>(), 1..=4);
    let meaning = prop::option::of(prop::sample::select(AttnMaskTrue::ALL));
    let numbers = prop::collection::vec(-2.0..2.0_f32, 50);
    (whole, any::<bool>(), meaning, numbers).prop_map(|(whole, is_float, meaning, numbers)| {
        let meaning = meaning.filter(|_| !is_float);
        FileMask { whole, is_float, meaning, numbers }
    })
}

impl FileMask {
    /// The mask for scores of this shape.
    fn over(&self, scores: [usize; 4]) -> Tensor {
        let sizes = scores[4 - self.whole.len()..].iter().zip(&self.whole);
        let shape: Vec<usize> = sizes.map(|(size, whole)| if *whole { *size } else { 1 }).collect();
        let numbers = self.numbers.iter().copied().cycle().take(shape.iter().product());
        let mask = Tensor::from_iter(numbers, &Device::Cpu).and_then(|t| t.reshape(shape));
        let mask = mask.expect("made");
        if self.is_float { mask } else { mask.gt(0.0).expect("compares") }
    }
}

/// Whether the steps that have a row for every query are those rows of the whole run, and the given steps that
/// are not of the tokens its very bits.
fn assert_rows(part: &Trace, whole: &Trace, [tokens, first, count]: [usize; 3]) {
    for step in part.outer() {
        let is_of_tokens = ["x", "k_past", "v_past"].contains(&step.name.as_str());
        let has_queries = step.axes.iter().any(|(axis, _)| axis == Axis::Query);
        if is_of_tokens || !(has_queries || step.name.is_given()) {
            continue;
        }
        let of_whole = whole.step(step.name).unwrap_or_else(|| panic!("no step {}", step.name));
        let expected = query_rows(of_whole, tokens, first, count);
        assert_eq!(step.value.dims(), expected.dims(), "{}", step.name);
        if step.name.is_given() {
            assert_eq!(bits(&step.value), bits(&expected), "{}", step.name);
        }
        let worst = worst(&values(&step.value), &values(&expected));
        assert!(worst <= ROUNDING, "{}: {worst:e}", step.name);
    }
}

/// The tensor with other numbers from a token on.
fn replaced_from(tensor: &Tensor, token: usize, other: f64) -> Tensor {
    let (_, tokens, features) = tensor.dims3().expect("(batch, token, feature)");
    let number = |(at, number)| if at / features % tokens >= token { other } else { number };
    let numbers: Vec<f64> = values(tensor).into_iter().enumerate().map(number).collect();
    Tensor::from_vec(numbers, tensor.dims(), tensor.device()).expect("made")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn computed_queries_are_rows_of_the_whole_run(mut case in wide_cases(), from: Index, to: Index) {
        let tokens = case.settings.seq_len.expect("set");
        let first = from.index(tokens);
        let count = 1 + to.index(tokens - first);
        case.settings.queries = None;
        let whole = case.trace();
        case.settings.queries = format!("{first}..{}", first + count).parse().ok();
        assert_rows(&case.trace(), &whole, [tokens, first, count]);
    }

    #[test]
    fn computed_queries_have_their_rows_of_a_mask_file(mut case in wide_cases(), mask in file_masks(), from: Index) {
        let tokens = case.settings.seq_len.expect("set");
        let first = from.index(tokens);
        case.settings.queries = None;
        case.attn_bias = None;
        let sizes = case.run_with(Vec::new()).config().sizes.clone();
        let (heads, keys) = (sizes.heads, sizes.keys());
        let mask_file = mask.over([case.settings.batch.expect("set"), heads, tokens, keys]);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("mask.safetensors");
        let record = Record { config: None, entries: vec![entry("mask", mask_file)] };
        Output::create(&path).and_then(|output| output.write(&record)).expect("written");
        case.settings.attn_mask = Some(path.to_string_lossy().into_owned().into());
        case.settings.attn_mask_true = mask.meaning;
        let whole = case.trace();
        case.settings.queries = format!("{first}..T").parse().ok();
        assert_rows(&case.trace(), &whole, [tokens, first, tokens - first]);
    }

    #[test]
    fn tokens_behind_a_cache_are_rows_of_the_whole_run(
        mut case in wide_cases().prop_filter("there can be a cache", |case| {
            case.settings.kv_len.is_none() && case.settings.disentangled.is_none()
        }),
        split: Index,
    ) {
        case.unshare();
        // A cache holds keys and values of heads.
        case.settings.absorb = None;
        case.settings.queries = None;
        case.settings.causal_align = None;
        // The part would have a largest position of its own, by which some frequencies go.
        case.settings.positions = None;
        let tokens = case.settings.seq_len.expect("set");
        prop_assume!(tokens > 1);
        let cached = 1 + split.index(tokens - 1);
        let rest = tokens - cached;
        let run = case.run_with(Vec::new());
        let whole = run.trace().expect("the case runs");
        let past = run.config().sizes.past_len + cached;
        let narrowed = |tensor: &Tensor, axis, first, count| tensor.narrow(axis, first, count).expect("within");
        let mut entries = Vec::new();
        for step in given(&whole) {
            let tensor = match step.name.as_str() {
                "x" => narrowed(&step.value, 1, cached, rest),
                "dropout_keep" => narrowed(&step.value, 2, cached, rest),
                // What follows from the settings must follow again.
                "k_past" | "v_past" | "mask" | "attn_bias" | "rope_freqs" => continue,
                _ => step.value.clone(),
            };
            entries.push(entry(step.name.as_str(), tensor));
        }
        for (name, all) in [("k_past", keys(&whole)), ("v_past", first_of(&whole, VALUES))] {
            entries.push(entry(name, narrowed(all, 2, 0, past)));
        }
        case.settings.seq_len = Some(rest);
        case.settings.rope_offset = case.settings.rope_offset.map(|offset| offset + cached);
        case.given.retain(|entry| !entry.name.ends_with("_past"));
        case.attn_bias = case.attn_bias.map(|bias| bias[bias.len() / tokens * cached..].to_vec());
        assert_rows(&case.trace_with(entries), &whole, [tokens, cached, rest]);
    }

    #[test]
    fn the_future_does_not_change_the_past(mut case in cases(), at: Index, other in -3.0..3.0_f64) {
        case.settings.mask = Some(Mask::Causal);
        case.settings.draw_inputs = Some(DrawInputs::All);
        // A fully masked row under a finite fill looks at the future: its keys share the weight.
        case.unmask();
        if case.settings.kv_len.is_some() {
            case.settings.mask_fill = Some(Fill(f64::NEG_INFINITY));
        }
        let run = case.run_with(Vec::new());
        let (config, before) = (run.config(), run.trace().expect("the case runs"));
        let at = at.index(config.sizes.seq_len);
        let mut future = vec![entry("x", replaced_from(value(&before, "x"), at + 1, other))];
        if let Some(memory) = before.named("memory") {
            future.push(entry("memory", replaced_from(&memory.value, seen(config, at), other)));
        }
        let after = case.trace_with(future);
        let count = (at + 1).saturating_sub(config.sizes.first_query()).min(config.sizes.query_count());
        let past = |trace: &Trace| bits(&value(trace, "output").narrow(1, 0, count).expect("within"));
        prop_assert_eq!(past(&before), past(&after));
    }
}
