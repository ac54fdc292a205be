//! Which cells weights are made of.

use super::weights::{EmptyRow, Weighting, dropout_scale};
use crate::axis::Axes;
use crate::pattern::{Multiplier, Pattern, Place, Products, Read};

/// The rule of an operation that makes weights.
pub(super) fn pattern(weighting: &Weighting, inputs: &[&Axes]) -> Pattern {
    let Some(first) = inputs.first() else { return Pattern::ByCell };
    let number = |name: &str, value: f64| Multiplier::Number(name.to_owned(), value, None);
    let own = || Multiplier::from(Read::same(0, first));
    let factors = match (weighting, first.shape()[..].get(1)) {
        (Weighting::Softmax { axis_from_last: 1, empty_row }, _) => {
            return Pattern::Softmax { zero: *empty_row == EmptyRow::Zero };
        }
        (Weighting::LogSumExp, _) => return Pattern::LogSumExp,
        (Weighting::MeanOverHeads, Some(heads)) => {
            let of_head = Read::of(0, [0, 3, 1, 2].map(Place::on));
            #[allow(clippy::cast_precision_loss, reason = "heads are few")]
            let share = number(tr!("1 / heads"), (*heads as f64).recip());
            return Pattern::Sum(vec![Products::many(*heads, of_head, share)]);
        }
        (Weighting::Dropout { p }, _) => {
            let keep = Read { input: 1, ..Read::same(0, first) };
            vec![own(), keep.into(), number("1 / (1 − p)", dropout_scale(*p).into())]
        }
        (Weighting::ZeroEmptyRows, _) => vec![own()],
        (
            Weighting::Softmax { .. }
            | Weighting::MeanOverHeads
            | Weighting::DropoutScale { .. }
            | Weighting::KeepSome(_),
            _,
        ) => return Pattern::ByCell,
    };
    Pattern::Sum(vec![Products::one(factors)])
}
