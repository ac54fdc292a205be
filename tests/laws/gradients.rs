//! Gradients are what a small change of a number does to the loss.

use candle_core::Tensor;
use mha_trace::Trace;
use mha_trace::program::{Name, Op, Step};
use proptest::prelude::*;

use super::common::values;
use super::strategy::wide_cases;

/// The sum of the outputs when one number of a given tensor is changed by `by`.
fn loss(trace: &Trace, of: Name, at: usize, by: f64) -> f64 {
    let changed = trace.run_with(|step: &Step, inputs: &[&Tensor]| {
        if step.op != Op::Given {
            return step.op.eval(inputs);
        }
        let mut numbers = values(&step.value);
        if step.name == of {
            numbers[at] += by;
        }
        let tensor = Tensor::new(numbers, step.value.device())?.reshape(step.value.shape())?;
        Ok(tensor.to_dtype(step.value.dtype())?)
    });
    let output = changed.expect("runs").step(Name::Output).map(|step| values(&step.value));
    output.expect("there").iter().sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_gradient_is_what_a_small_change_does(case in wide_cases(), place in 0.0..1.0_f64) {
        let mut case = case;
        case.settings.backward = Some(true);
        // Numbers that are clipped have a corner.
        case.settings.clip_qkv = None;
        let trace = case.trace();
        let is_own = |step: &&Step| step.op == Op::Given && !matches!(step.name, Name::Gradient(_));
        let given = trace.steps().iter().filter(is_own);
        for step in given {
            let Some(gradient) = trace.step(step.name.gradient()) else { continue };
            let all = values(&gradient.value);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within")]
            let at = (place * all.len() as f64) as usize;
            // A bias of −∞ cannot be changed.
            if !values(&step.value)[at].is_finite() {
                continue;
            }
            let h = 1e-6;
            let slope = (loss(&trace, step.name, at, h) - loss(&trace, step.name, at, -h)) / (2.0 * h);
            let is_none = slope.is_nan() || all[at].is_nan();
            let size = all.iter().fold(1.0, |size: f64, own| size.max(own.abs()));
            prop_assert!(is_none || (slope - all[at]).abs() <= 1e-5 * size, "{}[{at}]: {slope} {}", gradient.name, all[at]);
        }
    }
}
