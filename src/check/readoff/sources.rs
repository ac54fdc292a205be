//! From where are gathered keys and values, and scales, when each place is looked up by its numbers in what it was taken from?

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::rows::are_near;
use super::{MOST_PLACES, TOLD, tell_some};
use crate::candidate::{Candidate, cost};
use crate::cells::{cells, cells_at, largest};
use crate::grammar::pages::{key_places, page_size};
use crate::scope::Scope;
use crate::thresholds::MOVED;
use base::error::Result;
use base::lang;
use program::{
    Along, Block, Change, Edit, Heads, Kind, Name, Op, Scaling, Slip, Starts, Step, places,
};

/// Of more numbers nothing is looked up.
const MOST_NUMBERS: usize = 1 << 24;

/// The mistake that the values of a step show that takes its numbers from elsewhere.
///
/// # Errors
/// If candle fails.
pub fn candidates(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let Some(step) = scope.trace().step(at) else { return Ok(Vec::new()) };
    let found = match &step.op {
        Op::Heads(Heads::Gather) => gathered(scope, step)?,
        Op::Scaling(Scaling::Dequantize(_)) => scaled(scope, step)?,
        _ => None,
    };
    Ok(found.into_iter().collect())
}

/// Keys or values that stand elsewhere in the cache: each head of each key is a run of numbers that is looked up by its first.
fn gathered(scope: &Scope, step: &Step) -> Result<Option<Candidate>> {
    let (Some(found), Some(inputs)) = (scope.recorded(step.name), scope.inputs(step)) else {
        return Ok(None);
    };
    let [pages, slots] = inputs[..] else { return Ok(None) };
    let [1, heads, keys, width] = found.dims()[..] else { return Ok(None) };
    let memory = cells(&pages.transpose(1, 2)?.contiguous()?)?;
    let rows = cells(&found.transpose(1, 2)?.contiguous()?)?;
    let own = places(slots)?;
    if own.len() != keys || width == 0 || memory.len() > MOST_NUMBERS {
        return Ok(None);
    }
    let mut known: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, number) in memory.iter().enumerate() {
        known.entry(number.to_bits()).or_default().push(place);
    }
    let right = |row: usize| (own[row / heads] * heads + row % heads) * width;
    let (mut starts, mut lost) = (Vec::with_capacity(keys * heads), Vec::new());
    for (row, numbers) in rows.chunks(width).enumerate() {
        let Some(first) = numbers.first() else { return Ok(None) };
        // A row that stands where it should is not looked for elsewhere.
        let options = known.get(&first.to_bits()).map(Vec::as_slice).unwrap_or_default();
        let options = std::iter::once(right(row)).chain(options.iter().copied().take(MOST_PLACES));
        let is_it = |start: &usize| memory.get(*start..start + width) == Some(numbers);
        let mut options = options.filter(is_it);
        let is_nothing = || numbers.iter().all(|number| *number == 0.0);
        let start = options.next().or_else(|| is_nothing().then_some(memory.len()));
        starts.push(start.unwrap_or_else(|| right(row)));
        lost.extend(start.is_none().then_some(row / heads));
    }
    lost.dedup();
    if !lost.is_empty() {
        return unwritten(scope, step, [found, pages], &lost);
    }
    let page = page_size(scope.trace()).unwrap_or(1).max(1);
    let sequences = key_places(scope.trace(), keys);
    let told = match slots_of(&starts, heads, width) {
        Some(read) => told_slots(&read, &own, page, &sequences),
        None => told_starts(&starts, right, (heads, width)),
    };
    let Some(told) = told else { return Ok(None) };
    let Some(pages) = scope.trace().read_by(step).first().map(|pages| pages.name) else {
        return Ok(None);
    };
    let change = Change::Become(Slip::Starts(Starts { starts, keys }).into(), vec![pages]);
    let edits = vec![Edit::new(step.name, change)];
    let name = step.name;
    let summary = format!("{name}: {told}");
    Ok(Some(Candidate::new(Kind::Axes, cost::FITTED, edits, summary)))
}

/// Some keys or values that stand nowhere in the cache as it was recorded, and so are what was read; the others may be right.
fn unwritten(
    scope: &Scope,
    step: &Step,
    [found, pages]: [&Tensor; 2],
    lost: &[usize],
) -> Result<Option<Candidate>> {
    let keys = found.dim(2)?;
    let Some((_, right)) = scope.pair(step.name).filter(|_| 4 * lost.len() <= keys) else {
        return Ok(None);
    };
    // Numbers of another scale are no rows that were there before.
    if largest(found)? > 4.0 * largest(pages)? {
        return Ok(None);
    }
    let ratio = (found.to_dtype(DType::F64)? / right.to_dtype(DType::F64)?)?;
    let cells = found.ne(right)?.where_cond(&ratio, &ratio.ones_like()?)?;
    let sequences = key_places(scope.trace(), keys);
    let told: Vec<String> = lost
        .iter()
        .map(|key| {
            let before = sequences.get(..=*key).unwrap_or_default();
            let sequence = before.iter().filter(|place| **place == 0).count().saturating_sub(1);
            let place = before.last().copied().unwrap_or_default();
            tr!("key {place} of sequence {sequence}", place, sequence)
        })
        .collect();
    let told = tr!(
        "{listed} is what stands nowhere in the cache as it was recorded: it was read before it was written, or has been written over since",
        listed = tell_some(&told, "; ")
    );
    let change = Change::After(Slip::Rescaled(Block { cells, fill: 0.0 }).into(), Vec::new());
    Ok(Some(Candidate::at(step.name, Kind::Input, cost::ODD, change, told)))
}

/// The slot of each key, where all heads of it stand in one, each at its own place.
fn slots_of(starts: &[usize], heads: usize, width: usize) -> Option<Vec<usize>> {
    let each = starts.chunks(heads).map(|of_key| {
        let slot = of_key.first()? / (heads * width);
        let is_whole = |(head, start): (usize, &usize)| *start == (slot * heads + head) * width;
        of_key.iter().enumerate().all(is_whole).then_some(slot)
    });
    each.collect()
}

/// Slots that are read in place of the keys', by a formula if one fits; nothing where all are right.
fn told_slots(read: &[usize], own: &[usize], page: usize, places: &[usize]) -> Option<String> {
    let others = read.iter().zip(own).enumerate().filter(|(_, (read, own))| read != own);
    let others: Vec<(usize, usize, usize)> =
        others.map(|(key, (read, own))| (key, *read, *own)).collect();
    if others.is_empty() {
        return None;
    }
    let tell = |(key, read, own): &(usize, usize, usize)| {
        tr!(
            "key {key} is slot {slot} of page {page}, not slot {slot_2} of page {page_2}",
            key,
            slot = read % page,
            page = read / page,
            slot_2 = own % page,
            page_2 = own / page
        )
    };
    let listed = tell_some(&others.iter().map(tell).collect::<Vec<_>>(), "; ");
    let is_within = read.iter().zip(own).all(|(read, own)| read / page == own / page);
    let fits =
        |slot: Slot| read.iter().zip(places).all(|(read, place)| read % page == slot(*place));
    let formula = is_within.then(|| within_a_page(page, &fits)).flatten();
    Some(match formula {
        Some(formula) => {
            tr!("{listed}: the slot in its page is {formula} of the key's place", listed, formula)
        }
        None => listed,
    })
}

/// The slot in a page by the place of a key.
type Slot<'a> = &'a dyn Fn(usize) -> usize;

/// The formula of the slot in a page, where one of these gives all of them.
fn within_a_page(page: usize, fits: &impl Fn(Slot) -> bool) -> Option<String> {
    for by in 1..=2 * page {
        if by != page && fits(&|place| place % by) {
            return Some(format!("i % {by}"));
        }
        if fits(&|place| place & by) {
            return Some(format!("i & {by}"));
        }
        if by < page && fits(&|place| (place + by) % page) {
            return Some(format!("(i + {by}) % {page}"));
        }
        if by > 1 && by < page && fits(&|place| place * by % page) {
            return Some(format!("i · {by} % {page}"));
        }
        if by < page && fits(&|place| (place % page) ^ by) {
            return Some(format!("i % {page} ^ {by}"));
        }
    }
    None
}

/// Where heads begin that do not stand at whole slots; nothing where all are right.
fn told_starts(
    starts: &[usize],
    right: impl Fn(usize) -> usize,
    (heads, width): (usize, usize),
) -> Option<String> {
    let others: Vec<usize> = (0..starts.len()).filter(|row| starts[*row] != right(*row)).collect();
    let is_linear = |by: &usize| {
        starts.iter().enumerate().all(|(row, start)| *start == right(row) + row % heads * by)
    };
    let first = others.first()?;
    let by = starts[*first].checked_sub(right(*first)).map(|late| late / (first % heads).max(1));
    if let Some(by) = by.filter(is_linear) {
        return Some(tr!(
            "head h of each key begins {by} · h numbers too late: heads are read {taken} numbers apart, and are {width}",
            by,
            taken = width + by,
            width
        ));
    }
    let tell = |row: &usize| {
        let (slot, rest) = (starts[*row] / (heads * width), starts[*row] % (heads * width));
        tr!(
            "head {head} of key {key} begins at feature {feature} of head {head_2} of slot {slot}",
            head = row % heads,
            key = row / heads,
            feature = rest % width,
            head_2 = rest / width,
            slot
        )
    };
    let listed: Vec<String> = others.iter().take(TOLD).map(tell).collect();
    Some(listed.join("; "))
}

/// Scales, with their zero points, that stand at other places of an axis: those that give what was recorded.
fn scaled(scope: &Scope, step: &Step) -> Result<Option<Candidate>> {
    let (Some(found), Some(inputs)) = (scope.recorded(step.name), scope.inputs(step)) else {
        return Ok(None);
    };
    let [codes, scales @ ..] = &inputs[..] else { return Ok(None) };
    let floor = MOVED * largest(found)?;
    for (axis, (kind, size)) in step.axes.iter().enumerate() {
        let is_of_axis = |own: &&Tensor| own.dims().get(axis) == Some(&size);
        let is_large = found.elem_count().saturating_mul(size) > MOST_NUMBERS;
        if is_large || !(2..=MOST_PLACES).contains(&size) || !scales.iter().any(is_of_axis) {
            continue;
        }
        let at = |own: &Tensor, place: usize| {
            if own.dims().get(axis) == Some(&size) {
                own.narrow(axis, place, 1)
            } else {
                Ok(own.clone())
            }
        };
        let mut places = Vec::with_capacity(size);
        for place in 0..size {
            let (own, expected) = (codes.narrow(axis, place, 1)?, cells_at(found, axis, place)?);
            let mut from = None;
            for other in std::iter::once(place).chain(0..size) {
                let scales = scales.iter().map(|own| at(own, other));
                let scales = scales.collect::<candle_core::Result<Vec<_>>>()?;
                let read: Vec<&Tensor> = std::iter::once(&own).chain(&scales).collect();
                if are_near(&expected, &cells(&step.op.eval(&read)?)?, MOVED, floor) {
                    from = Some(other);
                    break;
                }
            }
            places.extend(from);
            if from.is_none() {
                break;
            }
        }
        let others = places.iter().enumerate().filter(|(place, from)| place != *from);
        let others: Vec<String> =
            others.map(|(place, from)| tr!("{place} has that of {from}", place, from)).collect();
        if places.len() < size || others.is_empty() {
            continue;
        }
        let listed = lang::list(&others[..others.len().min(TOLD)]);
        let listed = match others.len().saturating_sub(TOLD) {
            0 => listed,
            more => tr!("{listed}; and {more} more", listed, more),
        };
        let edits =
            scales.iter().enumerate().filter(|(_, own)| is_of_axis(own)).map(|(slot, _)| {
                let take = Slip::Along(axis, Along::Take(places.clone()));
                Edit::new(step.name, Change::before(slot + 1, take))
            });
        let summary = tr!(
            "{name}: the scale is read at another place of the {kind} axis: {listed}",
            name = step.name,
            kind,
            listed
        );
        return Ok(Some(Candidate::new(Kind::Axes, cost::FITTED, edits.collect(), summary)));
    }
    Ok(None)
}
