//! What explains a number adds up to it.

use candle_core::DType;
use mha_trace::Trace;
use mha_trace::program::{Cell, Explanation, Move, Name, Op, Reach, Step, Term, Tree, Working};
use proptest::prelude::*;

use super::common::{unravel, values};
use super::strategy::cases;

/// Whether the terms that are shown and what the others add up to make the number, in all parts of a tree; and the
/// largest come first.
fn adds_up(tree: &Tree) -> Result<(), TestCaseError> {
    let terms = || tree.branches.iter().map(|branch| branch.term.value());
    let rest = tree.rest.map_or(0.0, |(_, rest)| rest);
    let size = terms().map(f64::abs).fold(tree.value.abs().max(rest.abs()), f64::max);
    let sum = terms().sum::<f64>() + rest;
    // Of a sum that cancels: as many roundings of its largest term in f32 as heads and rows are long.
    let is_same = tree.branches.is_empty() || sum.is_nan() || sum.is_infinite();
    prop_assert!(is_same || (sum - tree.value).abs() <= 1e-5 * size.max(1e-2), "{:?}", tree);
    prop_assert!(
        terms().is_sorted_by(|left, right| left.is_nan() || left.abs() >= right.abs()),
        "{:?}",
        tree
    );
    for branch in &tree.branches {
        for factor in &branch.factors {
            let named = branch.term.0.iter().find(|own| own.cell.as_ref() == Some(&factor.cell));
            prop_assert!(named.is_some(), "{:?}", factor);
            adds_up(factor)?;
        }
    }
    Ok(())
}

/// The moves of a step make its value, to the bit.
fn moves_make_it(trace: &Trace, step: &Step) -> Result<(), TestCaseError> {
    let Some(input) = trace.read_by(step).into_iter().next() else { return Ok(()) };
    let all = step.op.moves(&input.axes);
    let mut tensor = input.value.clone();
    for (how, axes) in &all {
        let next = match how {
            Move::Reshape => tensor.reshape(axes.shape()),
            Move::Transpose => tensor.transpose(1, 2).and_then(|next| next.contiguous()),
        };
        tensor = next.expect("it moves");
        prop_assert_eq!(tensor.dims(), axes.shape(), "{}", step.name);
    }
    if let Some((_, last)) = all.last() {
        prop_assert_eq!(last, &step.axes);
        let bits = |tensor| values(tensor).into_iter().map(f64::to_bits).collect::<Vec<_>>();
        prop_assert_eq!(bits(&tensor), bits(&step.value), "{}", step.name);
    }
    Ok(())
}

proptest! {
    // A cell of every step of these runs: more than 10,000.
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_terms_of_a_cell_sum_to_its_value(case in cases(), place in 0.0..1.0_f64, backward in any::<bool>()) {
        let mut case = case;
        case.settings.backward = Some(backward);
        let trace = case.trace();
        for step in trace.steps().iter().filter(|step| step.axes.rank() > 0) {
            moves_make_it(&trace, step)?;
            let all = values(&step.value);
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within")]
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
            let reach = Reach { depth: 3, terms: 2, numbers: 1000 };
            let tree = trace.follow(&cell, reach).expect("the cell is there").tree;
            prop_assert_eq!(tree.value.to_bits(), value.to_bits());
            adds_up(&tree)?;
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
