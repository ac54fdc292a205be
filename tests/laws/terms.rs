//! What explains a number adds up to it.

use candle_core::DType;
use mha_trace::program::{Cell, Explanation, Name, Op, Term, Working};
use proptest::prelude::*;

use super::common::{unravel, values};
use super::strategy::cases;

proptest! {
    // A cell of every step of these runs: more than 10,000.
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_terms_of_a_cell_sum_to_its_value(case in cases(), place in 0.0..1.0_f64) {
        let trace = case.trace();
        for step in trace.steps().iter().filter(|step| step.axes.rank() > 0) {
            let all = values(&step.value);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "within")]
            let at = (place * all.len() as f64) as usize;
            let cell = Cell { step: step.name.to_string(), index: unravel(at, step.value.dims()) };
            let explanation = trace.explain(&cell).expect("the cell is there");
            let Explanation { value, terms, reasons, working, row, nan, .. } = explanation;
            prop_assert_eq!(value.to_bits(), all[at].to_bits());
            prop_assert_eq!(nan.is_some(), value.is_nan());
            if let Working::Softmax(worked) = &working && step.name == Name::Weights {
                prop_assert_eq!(row.len(), worked.keys.len());
                for (key, own) in worked.keys.iter().zip(&row) {
                    let (share, own) = (key.exp / worked.sum, own.value.expect("a weight a key"));
                    // Shares are at most 1, and the exponents of a row have the size of its scores.
                    let is_zero = worked.is_empty() && own == 0.0;
                    prop_assert!(
                        is_zero || (share.is_nan() && own.is_nan()) || (share - own).abs() <= 1e-5,
                        "{}: {} of {:?}", cell, own, worked
                    );
                }
            }
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
