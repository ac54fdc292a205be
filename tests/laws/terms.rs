//! What explains a number adds up to it.

use candle_core::DType;
use mha_trace::program::{Cell, Explanation, Op, Term};
use proptest::prelude::*;

use super::common::{unravel, values};
use super::strategy::cases;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_terms_of_a_cell_sum_to_its_value(case in cases(), place in 0.0..1.0_f64) {
        let trace = case.trace();
        for step in trace.steps().iter().filter(|step| step.axes.rank() > 0) {
            let all = values(&step.value);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "within")]
            let at = (place * all.len() as f64) as usize;
            let cell = Cell { step: step.name.to_string(), index: unravel(at, step.value.dims()) };
            let Explanation { value, terms, reasons, .. } = trace.explain(&cell).expect("the cell is there");
            prop_assert_eq!(value.to_bits(), all[at].to_bits());
            if step.value.dtype() == DType::U8 {
                // A mask is told by reasons; what dropout keeps has none but the draw.
                prop_assert!(terms.is_empty() && reasons.is_empty() == (value == 0.0), "{}", step.name);
                continue;
            }
            if step.op == Op::Given {
                prop_assert!(terms.is_empty());
                continue;
            }
            let sum: f64 = terms.iter().map(Term::value).sum();
            let size: f64 = terms.iter().map(|term| term.value().abs()).sum();
            // A few tens of roundings of the terms, which may cancel, in the type of the run.
            let rounding = if step.value.dtype() == DType::F64 { 1e-13 } else { 1e-5 };
            let same = sum.to_bits() == value.to_bits() || (sum.is_nan() && value.is_nan());
            prop_assert!(
                same || (sum - value).abs() <= rounding * size.max(1e-3),
                "{}: {} of {:?}", step.name, value, terms
            );
        }
    }
}
