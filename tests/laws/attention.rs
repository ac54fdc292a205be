//! Laws of attention itself.

use candle_core::{Device, Tensor};
use mha_trace::config::{DrawInputs, Mask, Positions};
use mha_trace::program::Op;
use proptest::prelude::*;

use super::common::{Named, bits, values};
use super::reading::{blocked, entry, pick, rows, seen, value};
use super::strategy::{Case, cases};

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
        prop_assume!(!case.has("sinks"));
        let trace = case.trace();
        for (row, blocked) in rows(value(&trace, "weights")).iter().zip(rows(&blocked(&trace))) {
            if blocked.contains(&0.0) {
                // Up to ten f32 terms that sum to 1, each rounded to 2⁻²⁴ of itself, and so the sum that they are
                // divided by.
                prop_assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{row:?}");
                let masked = row.iter().zip(&blocked).filter(|(_, blocked)| **blocked > 0.0);
                prop_assert!(masked.into_iter().all(|(weight, _)| weight.abs() < f64::MIN_POSITIVE), "{row:?} {blocked:?}");
            }
        }
    }

    #[test]
    fn sinks_take_the_weight_that_the_keys_do_not(mut case in cases()) {
        case.settings.sinks = Some(true);
        let own = || case.given.iter().filter(|entry| entry.name != "sinks").cloned();
        let weights_with = |sink: f32| {
            let heads = case.settings.heads.expect("set");
            let sinks = entry("sinks", Tensor::full(sink, heads, &Device::Cpu).expect("fits"));
            let given = own().chain([sinks]).collect();
            rows(value(&Case { given, ..case.clone() }.trace(), "weights"))
        };
        let (low, medium) = (weights_with(-1e30), weights_with(0.5));
        let empty = rows(&blocked(&case.trace())).into_iter().map(|row| !row.contains(&0.0));
        for (empty, (low, medium)) in empty.zip(low.iter().zip(&medium)) {
            // With no sink to speak of, the keys have all the weight; with one, every key has the same part of what it had.
            let sum: f64 = medium.iter().sum();
            prop_assert!(empty || (low.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{low:?}");
            prop_assert!(sum < 1.0 + 1e-6, "{medium:?}");
            prop_assert!(empty || low.iter().zip(medium).all(|(low, weight)| (low * sum - weight).abs() < 1e-6), "{low:?} {medium:?}");
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
    fn a_window_as_long_as_the_sequence_is_none(mut case in cases(), more in 0..3_usize) {
        case.settings.mask = Some(Mask::Causal);
        case.settings.window = None;
        let run = case.run_with(Vec::new());
        let without = run.trace().expect("the case runs");
        // Queries of another sequence that is longer may be beyond the last key.
        case.settings.window = Some(run.config().sizes.keys().max(run.config().sizes.seq_len) + more);
        prop_assert_eq!(bits(value(&case.trace(), "weights")), bits(value(&without, "weights")));
    }

    #[test]
    fn a_query_sees_its_window_and_no_other_key(mut case in cases(), window in 1..7_usize) {
        case.settings.mask = Some(Mask::Causal);
        case.settings.window = Some(window);
        case.settings.chunk = None;
        case.unmask();
        let run = case.run_with(Vec::new());
        let (config, mask) = (run.config(), value(&run.trace().expect("the case runs"), "mask").clone());
        let (queries, keys) = mask.dims2().expect("query and key");
        prop_assert_eq!((queries, keys), (config.sizes.query_count(), config.sizes.keys()));
        for (row, blocked) in rows(&mask).iter().enumerate() {
            let seen = seen(config, config.sizes.first_query() + row);
            for (key, blocked) in blocked.iter().enumerate() {
                prop_assert_eq!(*blocked < 1.0, key < seen && key + window >= seen);
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
        case.settings.draw_inputs = Some(DrawInputs::All);
        let before = case.trace();
        let batch = value(&before, "x").dim(0).expect("has items");
        let rotated = || (0..batch).map(|item| (item + by) % batch);
        let of_items = ["x", "memory", "memory_v", "k_past", "v_past", "k_shared", "v_shared"].iter().filter_map(|name| before.named(name));
        let given = of_items.map(|step| entry(step.name.as_str(), pick(&step.value, 0, rotated())));
        if let Some(rows) = &mut case.settings.key_mask {
            rows.rotate_left(by % batch);
        }
        if let Some(lengths) = &mut case.settings.lengths {
            lengths.rotate_left(by % batch);
        }
        if let Some(positions) = &mut case.settings.positions {
            let mut rows = positions.0.to_vec();
            for items in rows.iter_mut().filter(|items| items.len() == batch) {
                items.rotate_left(by % batch);
            }
            *positions = Positions::new(rows);
        }
        let after = case.trace_with(given.collect());
        let expected = pick(value(&before, "output"), 0, rotated());
        prop_assert_eq!(bits(value(&after, "output")), bits(&expected));
    }
}
