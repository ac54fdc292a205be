//! What places in a tensor are called.

use crate::config::Labels;
use crate::trace::{Axes, Axis};

/// The label of a token on an axis of `size` places, if it has one.
pub fn token(
    labels: Option<&Labels>,
    step: &str,
    (axis, size): (Axis, usize),
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
pub fn cell(labels: Option<&Labels>, step: &str, axes: &Axes, index: &[usize]) -> String {
    let item = axes.item(index);
    let named = axes.iter().zip(index).map(|((axis, size), at)| {
        match token(labels, step, (axis, size), item, *at) {
            Some(token) => format!("{axis} {at} ({token})"),
            None => format!("{axis} {at}"),
        }
    });
    named.collect::<Vec<_>>().join(", ")
}
