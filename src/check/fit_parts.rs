//! Parts of matrices that are read off the recorded values: rows of packed weights, and sums that end early.

use candle_core::{DType, Tensor};

use super::evidence::Evidence;
use super::fit::{LEAST_CELLS, MOST_PLACES, are_near, distance, least};
use super::grammar::{cost, kernels};
use super::hypothesis::Hypothesis;
use base::error::Result;
use base::lang;
use program::{Change, Edit, Heads, Kind, Linear, Name, Op, Rearrange};

/// Projections by other rows of the packed weights than their own: each feature shows which row made it.
///
/// # Errors
/// If candle fails.
pub fn packed(evidence: &Evidence, at: Name) -> Result<Option<Hypothesis>> {
    let Some(step) = evidence.trace.step(at) else { return Ok(None) };
    let (Some(found), Some(inputs)) = (evidence.recorded.get(&at), evidence.inputs(step)) else {
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
        .filter_map(|(name, _)| Some((*name, evidence.recorded.get(name)?)))
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
    let own_weight = evidence.trace.read_by(step).get(1).map(|read| read.name);
    let first = matrices.iter().take_while(|(name, _)| Some(*name) != own_weight);
    let first: usize = first.map(|(_, tensor)| tensor.dim(0).unwrap_or(0)).sum();
    let row_of = |(place, column): (usize, &Vec<f64>)| {
        let mut places = std::iter::once(first + place).chain(0..made.len());
        places.find(|row| made.get(*row).is_some_and(|made| are_near(column, made, 1e-1)))
    };
    let rows: Option<Vec<usize>> = own.iter().enumerate().map(row_of).collect();
    let Some(rows) =
        rows.filter(|rows| rows.iter().enumerate().any(|(at, row)| first + at != *row))
    else {
        return Ok(None);
    };
    let rearrange = Rearrange {
        blocks: rows.iter().map(|row| (*row, 1)).collect(),
        view: weight.dims().to_vec(),
        order: vec![0, 1],
        result: evidence
            .trace
            .read_by(step)
            .get(1)
            .map_or_else(Vec::new, |w| w.axes.iter().collect()),
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
    Ok(Some(Hypothesis::of_kind(
        Kind::Axes,
        cost::FITTED,
        vec![Edit::new(at, change)],
        tr!("{at}: its weight is {told}", at, told),
    )))
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

/// Products that are added up to some place of the sum alone, or from one on.
///
/// # Errors
/// If candle fails.
pub fn part_of_sum(evidence: &Evidence, at: Name) -> Result<Vec<Hypothesis>> {
    let mut all = Vec::new();
    let Some(step) = evidence.trace.step(at) else { return Ok(all) };
    let (Some(found), Some(inputs), Op::Linear(_)) =
        (evidence.recorded.get(&at), evidence.inputs(step), &step.op)
    else {
        return Ok(all);
    };
    let dims = inputs.first().map(|first| first.dims()).unwrap_or_default();
    let Some((size, axis)) = dims.last().map(|size| (*size, dims.len() - 1)) else {
        return Ok(all);
    };
    // Beyond that the usual sizes are tried alone, which the grammar has.
    let is_large = found.elem_count().saturating_mul(size) > 1 << 22;
    if !(3..=MOST_PLACES).contains(&size) || found.elem_count() < LEAST_CELLS || is_large {
        return Ok(all);
    }
    let made = |is_head: bool, count: usize| {
        let (change, told) = kernels::part_of_sum(is_head, count, (axis, size));
        Hypothesis::of_kind(
            Kind::Axes,
            cost::FITTED,
            vec![Edit::new(at, change)],
            format!("{at}: {told}"),
        )
    };
    for is_head in [true, false] {
        let best = least(1..size, |count| {
            let value = match made(is_head, count).program(evidence.trace) {
                Some(program) => evidence.of(&program, at)?,
                None => None,
            };
            value.map_or(Ok(f64::INFINITY), |value| distance(found, &value, None))
        })?;
        all.extend(best.map(|count| made(is_head, count)));
    }
    Ok(all)
}
