//! What places in a tensor are called.

use crate::config::Labels;
use crate::program::{Axes, Axis, Dim, Name};

/// The label of a token on an axis of `size` places, if it has one.
pub fn token(
    labels: Option<&Labels>,
    step: Option<Name>,
    (axis, size): Dim,
    item: usize,
    at: usize,
) -> Option<String> {
    match axis {
        Axis::Query => labels?.query(item, size, at),
        Axis::Key => labels?.key(step, item, size, at),
        _ => None,
    }
}

/// A cell by axis name, with the tokens' labels: `batch 0, head 1, query 2 (sat), key 0 (the)`.
pub fn cell(labels: Option<&Labels>, step: Option<Name>, axes: &Axes, index: &[usize]) -> String {
    let item = axes.item(index);
    let named = axes.iter().zip(index).map(|((axis, size), at)| {
        match token(labels, step, (axis, size), item, *at) {
            Some(token) => format!("{axis} {at} ({token})"),
            None => format!("{axis} {at}"),
        }
    });
    named.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_spelt_by_axis() {
        let axes = Axes::new([(Axis::Batch, 2), (Axis::Head, 3), (Axis::Query, 5), (Axis::Key, 5)]);
        let spelt = cell(None, Some(Name::Scores), &axes, &[1, 0, 4, 2]);
        assert_eq!(spelt, "batch 1, head 0, query 4, key 2");
    }
}
