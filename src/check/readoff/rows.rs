//! Which parts of matrices do the recorded values show: rows of packed weights, and sums that end early?

use candle_core::{DType, Tensor};

use super::MOST_PLACES;
use crate::candidate::{Candidate, cost};
use crate::cells::{cells_at, largest};
use crate::scope::Scope;
use crate::thresholds::MOVED;
use base::error::Result;
use base::lang;
use program::{Along, Axis, Change, Edit, Heads, Kind, Linear, Name, Op, Rearrange, Slip};

/// Projections by other rows of the packed weights than their own: each feature shows which row made it.
///
/// # Errors
/// If candle fails.
pub fn packed(scope: &Scope, at: Name) -> Result<Option<Candidate>> {
    let Some(step) = scope.trace().step(at) else { return Ok(None) };
    let (Some(found), Some(inputs)) = (scope.recorded(at), scope.inputs(step)) else {
        return Ok(None);
    };
    let ([x, weight, bias @ ..], Op::Linear(Linear::Project { tokens, rows })) =
        (&inputs[..], &step.op)
    else {
        return Ok(None);
    };
    let matrices: Vec<(Name, &Tensor)> = Name::PROJECTIONS
        .iter()
        .take(3)
        .filter_map(|(name, _)| Some((*name, scope.known(*name)?)))
        .filter(|(_, other)| other.dim(1).ok() == weight.dim(1).ok())
        .collect();
    if matrices.is_empty() {
        return Ok(None);
    }
    let stacked: Vec<&Tensor> = matrices.iter().map(|(_, tensor)| *tensor).collect();
    let all = Tensor::cat(&stacked, 0)?;
    let project = Op::from(Linear::Project { tokens: *tokens, rows: *rows });
    let columns = |value: &Tensor| -> Result<Vec<Vec<f64>>> {
        let (batch, tokens, width) = value.dims3()?;
        let flat = value.reshape((batch * tokens, width))?.t()?.contiguous()?;
        Ok(flat.to_dtype(DType::F64)?.to_vec2::<f64>()?)
    };
    let own = match bias {
        [bias] => found.broadcast_sub(bias)?,
        _ => found.clone(),
    };
    let (own, made) = (columns(&own)?, columns(&project.eval(&[x, &all])?)?);
    // One number of a token says little: many a row could have made it.
    if own.first().is_none_or(|column| column.len() < 4) || made.len() > 8 * MOST_PLACES {
        return Ok(None);
    }
    let weight_name = scope.trace().read_by(step).get(1).map(|read| read.name);
    let first = matrices.iter().take_while(|(name, _)| Some(*name) != weight_name);
    let first: usize = first.map(|(_, tensor)| tensor.dim(0).unwrap_or(0)).sum();
    let row_of = |(place, column): (usize, &Vec<f64>)| {
        let mut places = std::iter::once(first + place).chain(0..made.len());
        places.find(|row| {
            made.get(*row).is_some_and(|made| are_near(column, made, MOVED, 0.1 * MOVED))
        })
    };
    let rows: Option<Vec<usize>> = own.iter().enumerate().map(row_of).collect();
    let Some(rows) =
        rows.filter(|rows| rows.iter().enumerate().any(|(at, row)| first + at != *row))
    else {
        return Ok(None);
    };
    let read = scope.trace().read_by(step).get(1).copied();
    let rearrange = Rearrange {
        blocks: rows.iter().map(|row| (*row, 1)).collect(),
        view: weight.dims().to_vec(),
        order: vec![0, 1],
        result: read.map_or_else(Vec::new, |weight| weight.axes.iter().collect()),
    };
    let names: Vec<Name> = matrices.iter().map(|(name, _)| *name).collect();
    let listed: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let told = tr!(
        "{rows} of {listed} below each other, not rows {rows_2}",
        rows = tell(&rows),
        listed = lang::list(&listed),
        rows_2 = span(first, rows.len())
    );
    let change = Change::Feed(1, Heads::Rearrange(rearrange).into(), names);
    let summary = tr!("{at}: its weight is {told}", at, told);
    Ok(Some(Candidate::new(Kind::Axes, cost::FITTED, vec![Edit::new(at, change)], summary)))
}

/// `4 to 7`.
fn span(first: usize, count: usize) -> String {
    tr!("{first} to {count}", first, count = first + count.saturating_sub(1))
}

/// Rows in words: a run of them, every other one, or one by one.
fn tell(rows: &[usize]) -> String {
    let first = rows.first().copied().unwrap_or(0);
    let step = match rows {
        [first, second, ..] if second > first => second - first,
        _ => 0,
    };
    if step > 0 && rows.windows(2).all(|pair| pair[1] == pair[0] + step) {
        return match step {
            1 => tr!("rows {rows}", rows = span(first, rows.len())),
            2 => tr!("every second row from {first} on", first),
            3 => tr!("every third row from {first} on", first),
            step => tr!("one row in {step} from {first} on", step, first),
        };
    }
    let shown: Vec<String> = rows.iter().take(8).map(ToString::to_string).collect();
    let more = if rows.len() > shown.len() { ", …" } else { "" };
    tr!("rows {shown}{more}", shown = lang::list(&shown), more)
}

/// Steps whose rows, heads or features all stand somewhere else in the right value.
pub fn moved(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let Some(step) = scope.trace().step(at) else { return Ok(all) };
    let Some((found, value)) = scope.pair(at) else { return Ok(all) };
    let slack = scope.agreement().half().map_or(MOVED, |half| IN_16_BITS * half.spacing());
    let floor = slack * largest(value)?;
    for (axis, (kind, size)) in step.axes.iter().enumerate() {
        if !(2..=MOST_PLACES).contains(&size) {
            continue;
        }
        let slices = |tensor: &Tensor| -> Result<Vec<Vec<f64>>> {
            (0..size).map(|place| cells_at(tensor, axis, place)).collect()
        };
        let (found, value) = (slices(found)?, slices(value)?);
        // A place that is where it should be stays there.
        let is_empty = |place: usize| found[place].iter().all(|own| *own == 0.0);
        let from = |place: usize| {
            let own = std::iter::once(place).chain(0..size);
            let found =
                own.into_iter().find(|other| are_near(&found[place], &value[*other], slack, floor));
            found.or(is_empty(place).then_some(place))
        };
        let Some(places) = (0..size).map(from).collect::<Option<Vec<usize>>>() else { continue };
        let moved: Vec<String> = places
            .iter()
            .enumerate()
            .filter(|(place, from)| place != *from)
            .map(|(place, from)| tr!("{place} has {from}", place, from))
            .collect();
        let empty: Vec<usize> = (0..size).filter(|place| is_empty(*place)).collect();
        let told = match moved.len() {
            0 => continue,
            1..=6 => lang::list(&moved),
            more => {
                tr!("{moved}, and {more} more", moved = lang::list(&moved[..4]), more = more - 4)
            }
        };
        let summary = tr!("{at}: places of the {kind} axis are mixed up: {told}", at, kind, told);
        let take = Edit::new(at, Change::after(Slip::Along(axis, Along::Take(places))));
        let (edits, summary) = if empty.is_empty() {
            (vec![take], summary)
        } else {
            let zero = Edit::new(at, Change::after(Slip::Along(axis, Along::Zero(empty.clone()))));
            let empty: Vec<String> = empty.iter().map(usize::to_string).collect();
            let told = tr!("{summary}; 0 is in {empty}", summary, empty = lang::list(&empty));
            (vec![zero, take], told)
        };
        all.push(Candidate::new(Kind::Axes, cost::FITTED, edits, summary));
    }
    Ok(all)
}

/// Steps of which each item has its rows at places of its own: those of the right value, or zeros.
pub fn moved_in_items(scope: &Scope, at: Name) -> Result<Option<Candidate>> {
    let Some((found, value)) = scope.pair(at) else { return Ok(None) };
    let Some(step) = scope.trace().step(at) else { return Ok(None) };
    let mut dims = step.axes.iter().enumerate();
    let of_rows = dims.find(|(_, (axis, _))| matches!(axis, Axis::Query | Axis::Key));
    let Some((axis, (kind, size))) = of_rows.filter(|(axis, _)| *axis > 0) else { return Ok(None) };
    let items = step.axes.shape().first().copied().unwrap_or_default();
    if items < 2 || !(2..=MOST_PLACES).contains(&size) || found.dims() != value.dims() {
        return Ok(None);
    }
    let slack = scope.agreement().half().map_or(MOVED, |half| IN_16_BITS * half.spacing());
    let floor = slack * largest(value)?;
    let (mut edits, mut told) = (Vec::new(), Vec::new());
    for item in 0..items {
        let rows = |tensor: &Tensor| -> Result<Vec<Vec<f64>>> {
            let own = tensor.narrow(0, item, 1)?;
            (0..size).map(|place| cells_at(&own, axis, place)).collect()
        };
        let (found, value) = (rows(found)?, rows(value)?);
        let is_empty = |place: &usize| found[*place].iter().all(|own| *own == 0.0);
        let empty: Vec<usize> = (0..size).filter(is_empty).collect();
        let from = |place: usize| {
            let mut options = std::iter::once(place).chain(0..size);
            let from = options.find(|other| are_near(&found[place], &value[*other], slack, floor));
            from.or(is_empty(&place).then_some(place))
        };
        let Some(places) = (0..size).map(from).collect::<Option<Vec<usize>>>() else {
            return Ok(None);
        };
        let first = places.iter().enumerate().find(|(place, from)| place != *from);
        let Some((place, from)) = first else { continue };
        told.push(tr!("in item {item} {place} has {from}", item, place, from));
        let within = |along| {
            let within = Along::Within { axis: 0, places: vec![item], along: Box::new(along) };
            Edit::new(at, Change::after(Slip::Along(axis, within)))
        };
        let is_right = |place: &usize| value[*place].iter().all(|own| *own == 0.0);
        let empty: Vec<usize> = empty.into_iter().filter(|place| !is_right(place)).collect();
        if !empty.is_empty() {
            edits.push(within(Along::Zero(empty)));
        }
        edits.push(within(Along::Take(places)));
    }
    if edits.is_empty() {
        return Ok(None);
    }
    let summary = tr!(
        "{at}: each item has its rows of the {kind} axis at places of its own, as where those of padded items are put back as if they had none, or had it at the other end: {told}",
        at,
        kind,
        told = told.join("; ")
    );
    Ok(Some(Candidate::new(Kind::Axes, cost::FITTED, edits, summary)))
}

/// How many spacings of 16 bits, of the largest number, a moved row may be off by: its sums were rounded on the way too.
const IN_16_BITS: f64 = 4.0;

/// Whether two lists are one but for rounding, relative to a number or to the size of their terms: sums of products are off
/// by that, `floor`, also where they cancel out.
pub(super) fn are_near(left: &[f64], right: &[f64], slack: f64, floor: f64) -> bool {
    let near = |left: f64, right: f64| (left - right).abs() <= floor + slack * right.abs();
    // Infinite numbers have no difference.
    left.iter().zip(right).all(|(left, right)| left.total_cmp(right).is_eq() || near(*left, *right))
}
