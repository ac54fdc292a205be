//! What places in a tensor are called.

use super::number::number;
use config::{Config, Labels};
use program::{Axes, Axis, BlockedCells, Dim, Fill, Move, Name, Program, Role, Step};

/// The longest text of blocked cells that is not rounded as numbers are.
const LONGEST_FILL: usize = 8;

/// `query`; `kv head` where heads are shared.
pub fn axis_name(config: &Config, step: Name, axis: Axis) -> &'static str {
    let sizes = &config.sizes;
    let is_of_keys = axis == Axis::Head && step.row().has_key_heads();
    if is_of_keys && sizes.kv_heads < sizes.heads { tr!("kv head") } else { axis.told() }
}

/// Whether the only place of an axis stands for all, as a mask leaves it.
pub fn is_every(config: &Config, step: Name, (axis, size): Dim) -> bool {
    let length = step.row().sizes.iter().find(|length| length.axis() == axis);
    size == 1 && length.is_some_and(|length| config.sizes.of(*length) > 1)
}

/// The number in a step's formula, and what it is made of: `scale = 1 / √head_dim = 0.500`.
pub fn constant<V>(step: &Step<V>, decimals: usize) -> Option<String> {
    let (name, of, value) = step.op.operation().facts().constant?;
    Some(format!("{name} = {of} = {}", number(value, decimals)))
}

/// Whether a step's tables show which of its cells a mask blocks.
pub fn shows_blocked<V>(step: &Step<V>) -> bool {
    step.name.row().blocked != BlockedCells::Unknown && step.is_computed()
}

/// What stands in the cells that a step fills; nothing where it is to be rounded as numbers are, as the zeros of gradients.
pub fn fill<V>(step: &Step<V>) -> Option<String> {
    let fill = step.op.operation().facts().fill.filter(|_| shows_blocked(step));
    let fill = fill.map(|fill| Fill(fill).to_string());
    fill.filter(|fill| fill.len() <= LONGEST_FILL)
}

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
    named(labels, step, axes, index, |_| false)
}

/// The same of a run's own step, whose only place on an axis may stand for all: `batch 0, every head, every query, key 1`.
pub fn cell_of<V>(
    config: &Config,
    labels: Option<&Labels>,
    step: &Step<V>,
    index: &[usize],
) -> String {
    let is_every = |axis| is_every(config, step.name, axis);
    named(labels, Some(step.name), &step.axes, index, is_every)
}

fn named(
    labels: Option<&Labels>,
    step: Option<Name>,
    axes: &Axes,
    index: &[usize],
    is_every: impl Fn(Dim) -> bool,
) -> String {
    if index.is_empty() {
        return tr!("its only number").to_owned();
    }
    let item = axes.item(index);
    let place = |((axis, size), at): (Dim, &usize)| {
        let told = axis.told();
        match token(labels, step, (axis, size), item, *at) {
            _ if is_every((axis, size)) => tr!("every {axis}", axis = told),
            Some(token) => format!("{told} {at} ({token})"),
            None => format!("{told} {at}"),
        }
    };
    axes.iter().zip(index).map(place).collect::<Vec<_>>().join(tr!(", "))
}

/// The moves that a step is made of, a line each: `reshape (batch 1, query 4, model 8) to (batch 1, query 4, head 2,
/// head_dim 4)`.
pub fn moves<V>(program: &Program<V>, step: &Step<V>) -> Vec<String> {
    let Some(input) = program.read_by(step).into_iter().next() else { return Vec::new() };
    let moves = step.op.moves(&input.axes).into_iter().enumerate();
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

/// A step's axes; of a mask or a bias also those to which it is broadcast where it is used, if they are others:
/// `(batch 3, head 1, query 1, key 2), broadcast over head and query to (batch 3, head 8, query 2, key 2)`.
pub fn shape<V>(program: &Program<V>, step: &Step<V>) -> String {
    let shape = step.axes.to_string();
    let Some(whole) = broadcast_to(program, step) else { return shape };
    let of_step = |axis: Axis| step.axes.iter().find(|(own, _)| *own == axis).map(|(_, size)| size);
    let over = whole.iter().filter(|(axis, size)| of_step(*axis) != Some(*size));
    let over: Vec<&str> = over.map(|(axis, _)| axis.told()).collect();
    tr!("{shape}, broadcast over {over} to {whole}", shape, over = over.join(tr!(" and ")), whole)
}

/// The axes to which a mask or a bias is broadcast by the first computed step that reads it.
pub fn broadcast_to<'a, V>(program: &'a Program<V>, step: &Step<V>) -> Option<&'a Axes> {
    if step.name.role() != Role::Setting || !step.name.row().is_of_scores() {
        return None;
    }
    let at = program.position(step.name)?;
    let mut computed = program.steps().iter().enumerate().filter(|(_, other)| other.is_computed());
    let (_, reader) =
        computed.find(|(place, _)| program.ancestors(*place).get(at) == Some(&true))?;
    let (own, whole) = (step.axes.shape(), reader.axes.shape());
    // Masks and biases get columns for keys that are added before they are used.
    let fits = own.iter().rev().zip(whole.iter().rev()).all(|(own, size)| own == size || *own == 1);
    (fits && own != whole).then_some(&reader.axes)
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
