//! What places in a tensor are called.

use crate::config::{Config, Labels};
use crate::program::{Axes, Axis, Dim, Move, Name, Program, Step};

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

/// What stands beside a place: its position in the sequence where only some queries are computed, and its token's label.
pub fn beside(
    config: &Config,
    labels: Option<&Labels>,
    step: Name,
    axis: Dim,
    item: usize,
    at: usize,
) -> Option<String> {
    let sizes = &config.sizes;
    let is_picked = axis == (Axis::Query, sizes.query_count()) && sizes.queries.is_some();
    let position = is_picked.then(|| tr!("(at {at})", at = sizes.first_query() + at));
    let token = token(labels, Some(step), axis, item, at);
    let parts: Vec<String> = position.into_iter().chain(token).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

/// A cell by axis name, with the tokens' labels: `batch 0, head 1, query 2 (sat), key 0 (the)`.
pub fn cell(labels: Option<&Labels>, step: Option<Name>, axes: &Axes, index: &[usize]) -> String {
    let item = axes.item(index);
    let named = axes.iter().zip(index).map(|((axis, size), at)| {
        match token(labels, step, (axis, size), item, *at) {
            Some(token) => format!("{} {at} ({token})", axis.told()),
            None => format!("{} {at}", axis.told()),
        }
    });
    named.collect::<Vec<_>>().join(tr!(", "))
}

/// The moves that a step is made of, a line each: `reshape (batch 1, query 4, model 8) to (batch 1, query 4, head 2,
/// head_dim 4)`.
pub fn moves<V>(program: &Program<V>, step: &Step<V>) -> Vec<String> {
    let Some(input) = program.read_by(step).into_iter().next() else { return Vec::new() };
    let moves = step.op.operation().moves(&input.axes).into_iter().enumerate();
    moves
        .map(|(at, (how, to))| {
            let how = match how {
                Move::Reshape => tr!("reshape"),
                Move::Transpose => tr!("transpose"),
            };
            let from = if at == 0 { format!(" {}", input.axes) } else { String::new() };
            tr!("{how}{from} to {to}", how, from, to)
        })
        .collect()
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
