//! Laws of attention itself.

use candle_core::{D, DType, IndexOp, Tensor};
use mha_trace::config::Mask;
use mha_trace::trace::Op;
use mha_trace::{Settings, Trace};
use proptest::prelude::*;

use super::common::{bits, values};
use super::strategy::{Case, cases, entry};

fn value<'a>(trace: &'a Trace, name: &str) -> &'a Tensor {
    &trace.step(name).unwrap_or_else(|| panic!("no step {name}")).value
}

fn rows(tensor: &Tensor) -> Vec<Vec<f64>> {
    let length = tensor.dim(D::Minus1).expect("has axes");
    values(tensor).chunks(length).map(<[f64]>::to_vec).collect()
}

/// 1 where a key is masked, over (batch, head, query, key).
fn blocked(trace: &Trace) -> Tensor {
    let scores = value(trace, "scores");
    let mask = match trace.step("mask") {
        Some(step) => step.value.broadcast_as(scores.shape()).expect("broadcasts"),
        None => Tensor::zeros(scores.shape(), DType::U8, scores.device()).expect("made"),
    };
    let Some(step) = trace.step("attn_bias") else { return mask };
    let infinite = step.value.eq(f64::NEG_INFINITY).expect("compares");
    mask.broadcast_maximum(&infinite).expect("broadcasts")
}

/// The x of a case: what it draws, as f32 (drawn numbers are).
fn drawn_x(case: &Case) -> (Vec<f32>, Vec<usize>) {
    let trace = case.trace();
    let x = value(&trace, "x").to_dtype(DType::F32).expect("narrows");
    (x.flatten_all().and_then(|flat| flat.to_vec1()).expect("f32"), x.dims().to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn replaying_a_step_changes_no_bit(case in cases()) {
        let trace = case.trace();
        for step in trace.steps() {
            let again = trace.replay(step).expect("replays");
            prop_assert_eq!(bits(&again), bits(&step.value), "{}", step.name);
        }
    }

    #[test]
    fn a_value_has_the_axes_that_its_program_says(case in cases()) {
        let run = case.run_with(Vec::new());
        let trace = run.trace().expect("the case runs");
        for (step, said) in trace.steps().iter().zip(run.program().steps()) {
            prop_assert_eq!(step.value.dims(), said.axes.shape());
            let read = trace.read_by(step);
            let read: Vec<_> = read.iter().map(|read| &read.axes).collect();
            prop_assert!(step.op == Op::Given || step.op.axes(&read).expect("fits") == step.axes);
        }
    }

    #[test]
    fn weights_sum_to_1_wherever_a_key_is_visible(case in cases()) {
        let trace = case.trace();
        for (row, blocked) in rows(value(&trace, "weights")).iter().zip(rows(&blocked(&trace))) {
            if blocked.contains(&0.0) {
                // Up to six f32 terms below 1, each rounded to 2⁻²⁴ of itself.
                prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{row:?}");
                let masked = row.iter().zip(&blocked).filter(|(_, blocked)| **blocked > 0.0);
                prop_assert!(masked.into_iter().all(|(weight, _)| weight.abs() < f64::MIN_POSITIVE), "{row:?} {blocked:?}");
            }
        }
    }

    #[test]
    fn rows_without_a_visible_key_are_reported(case in cases()) {
        let trace = case.trace();
        let (batch, heads, queries, _) = value(&trace, "weights").dims4().expect("four axes");
        let empty: Vec<bool> = rows(&blocked(&trace)).iter().map(|row| !row.contains(&0.0)).collect();
        let of_item = |item: usize| empty[item * heads * queries..][..heads * queries].iter().filter(|e| **e).count();
        let reported = trace.empty_rows().expect("reports");
        for item in 0..batch {
            let said = reported.iter().find(|rows| rows.item.is_none_or(|said| said == item));
            prop_assert_eq!(said.map_or(0, |rows| rows.rows), of_item(item), "{:?}", reported);
        }
    }

    #[test]
    fn the_future_does_not_change_the_past(mut case in cases(), at in 0..6_usize, other in -3.0..3.0_f32) {
        case.settings.mask = Some(Mask::Causal);
        // A fully masked row under a finite fill looks at the future: its keys share the weight.
        case.settings.key_mask = None;
        case.settings.lengths = None;
        case.attn_bias = None;
        let (mut x, shape) = drawn_x(&case);
        let (tokens, d_in) = (shape[1], shape[2]);
        let at = at % tokens;
        let before = case.run_with(vec![entry("x", &x, &shape)]).trace().expect("runs");
        for (index, number) in x.iter_mut().enumerate() {
            if index / d_in % tokens > at {
                *number = other;
            }
        }
        let after = case.run_with(vec![entry("x", &x, &shape)]).trace().expect("runs");
        let past = |trace: &Trace| bits(&value(trace, "output").i((.., ..=at)).expect("within"));
        prop_assert_eq!(past(&before), past(&after));
    }

    #[test]
    fn a_window_as_long_as_the_sequence_is_none(mut case in cases(), more in 0..3_usize) {
        case.settings.mask = Some(Mask::Causal);
        case.settings.window = None;
        let without = case.trace();
        case.settings.window = case.settings.seq_len.map(|tokens| tokens + more);
        prop_assert_eq!(bits(value(&case.trace(), "weights")), bits(value(&without, "weights")));
    }

    #[test]
    fn a_query_sees_no_key_before_its_window(mut case in cases(), window in 1..7_usize) {
        case.settings.mask = Some(Mask::Causal);
        case.settings.window = Some(window);
        let mask = value(&case.trace(), "mask").clone();
        let tokens = mask.dim(D::Minus1).expect("has keys");
        for (at, row) in rows(&mask).iter().enumerate() {
            let query = at % tokens;
            for (key, blocked) in row.iter().enumerate() {
                prop_assert!(*blocked > 0.0 || (key <= query && key + window > query));
            }
        }
    }

    #[test]
    fn a_huge_soft_cap_is_none_and_a_small_one_bounds(mut case in cases(), cap in 0.1..3.0_f64) {
        case.settings.softcap = None;
        let scores = values(value(&case.trace(), "scores"));
        case.settings.softcap = Some(1e6);
        let capped = values(value(&case.trace(), "scores_capped"));
        // tanh(z) = z − z³/3 …: below 1e-8 here, and f32 rounds four times.
        let near = |(score, capped): (&f64, &f64)| (score - capped).abs() <= 1e-6 * score.abs().max(1e-3);
        prop_assert!(scores.iter().zip(&capped).all(near));
        case.settings.softcap = Some(cap);
        let capped = values(value(&case.trace(), "scores_capped"));
        prop_assert!(capped.iter().all(|score| score.abs() <= cap * (1.0 + 1e-6)));
    }

    #[test]
    fn permuting_the_batch_permutes_the_output(mut case in cases(), by in 0..3_usize) {
        case.settings.dropout = Some(0.0);
        let (mut x, shape) = drawn_x(&case);
        let before = case.run_with(vec![entry("x", &x, &shape)]).trace().expect("runs");
        let item = x.len() / shape[0];
        let by = by % shape[0];
        x.rotate_left(by * item);
        let Settings { key_mask, lengths, .. } = &mut case.settings;
        if let Some(rows) = key_mask {
            rows.rotate_left(by);
        }
        if let Some(lengths) = lengths {
            lengths.rotate_left(by);
        }
        let after = case.run_with(vec![entry("x", &x, &shape)]).trace().expect("runs");
        let mut expected = bits(value(&before, "output"));
        let item = expected.len() / shape[0];
        expected.rotate_left(by * item);
        prop_assert_eq!(bits(value(&after, "output")), expected);
    }
}
