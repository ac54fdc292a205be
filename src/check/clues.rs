//! What can be said where nothing explains the numbers? Where they are off, and how.

use candle_core::Tensor;
use rayon::prelude::*;

use super::candidate::{places_in_words, ranges};
use super::cells::{cells, have_equal_sums, is_number};
use super::compare::compare;
use super::finding::{Clue, Diagnosis};
use super::grammar::documents;
use super::grammar::numbers::short;
use super::grammar::pages::page_size;
use super::rounding::narrow_type;
use super::scope::Scope;
use super::thresholds::{LEAST_CELLS, MOST_OF_A_BIAS, MOST_OF_IT, MOVED, OF_SUMS};
use super::tolerance::Tolerance;
use base::error::Result;
use program::{Axis, Name, Precision, Role, Step};

/// What can be said of steps that nothing explains.
///
/// # Errors
/// If candle fails.
pub fn clues(scope: &Scope, unexplained: &[Name]) -> Result<Vec<Clue>> {
    let mut clues = Vec::new();
    for name in unexplained {
        if let (Some(step), Some((recorded, expected))) =
            (scope.trace().step(*name), scope.pair(*name))
        {
            clues.extend(of_step(scope, step, recorded, expected)?);
        }
    }
    Ok(clues)
}

/// The first split or tile that differs of the first wrong step that has such, where that is explained.
///
/// # Errors
/// If candle fails.
pub fn first_wrong_part(
    scope: &Scope,
    wrong: &[Name],
    diagnosis: &Diagnosis,
) -> Result<Option<Clue>> {
    let steps = wrong.iter().filter_map(|name| scope.trace().step(*name));
    let Some(step) = steps.into_iter().find(|step| step.is_of_parts()) else { return Ok(None) };
    if diagnosis.unexplained.contains(&step.name) || scope.pair(step.name).is_none() {
        return Ok(None);
    }
    Ok(first_part(scope, step)?.map(|summary| Clue { step: step.name, summary }))
}

/// What can be said of one step.
fn of_step(scope: &Scope, step: &Step, found: &Tensor, right: &Tensor) -> Result<Vec<Clue>> {
    let axes: Vec<(Axis, usize)> = step.axes.iter().collect();
    let (own, meant) = (cells(found)?, cells(right)?);
    // Two infinities are not apart.
    let apart = |(own, meant): (&f64, &f64)| {
        if own.total_cmp(meant).is_eq() { 0.0 } else { own - meant }
    };
    let excess: Vec<f64> = own.iter().zip(&meant).map(apart).collect();
    let whole = same_change(&excess, &meant, |_| true).or_else(|| like_a_bias(&excess, &axes));
    let mut lines: Vec<String> = whole.into_iter().collect();
    lines.extend(first_part(scope, step)?);
    if lines.len() <= usize::from(step.is_of_parts()) {
        for (axis, places) in scope.places_off(step.name)? {
            let apart = sum_by_place(&excess, &step.axes.shape(), axis);
            let (off, right): (Vec<_>, Vec<_>) =
                apart.iter().enumerate().partition(|(place, _)| places.contains(place));
            let largest = right.into_iter().map(|(_, apart)| *apart).fold(0.0, f64::max);
            // What is off as much in the other places is not off in these alone.
            if off.into_iter().all(|(_, apart)| *apart > 2.0 * largest) {
                let told = in_sequences(scope, axes[axis], &places);
                let places = told.unwrap_or_else(|| places_in_words(axes[axis].0, &places));
                lines.push(tr!("it is off {places}", places));
            }
        }
        let tolerance = of_type(scope, step, found);
        let is_off = |at: usize| tolerance.excess(own[at], meant[at]) > 1.0;
        if !lines.is_empty()
            && let Some(told) = same_change(&excess, &meant, is_off)
        {
            lines.push(tr!("there {told}", told));
        }
    }
    if have_equal_sums(found, right, OF_SUMS)? && are_moved(&own, &meant) {
        lines.push(tr!("it has the right numbers in other places").to_owned());
    }
    if let Some((precision, _)) = narrow_type(scope, step.name)? {
        let name = precision.name();
        lines.push(tr!(
            "the differences have the size of the rounding of {name}, and no direction",
            name
        ));
    }
    lines.extend(multiple_of(scope, step, &excess)?);
    if lines.is_empty() {
        let tolerance = of_type(scope, step, found);
        let off = compare(found, right, tolerance)?;
        let (off, all) = (off.mismatched, off.count);
        lines.push(tr!("{off} of its {all} numbers are off, along all of its axes", off, all));
    }
    Ok(lines.into_iter().map(|summary| Clue { step: step.name, summary }).collect())
}

/// What the type that was recorded may be off by.
fn of_type(scope: &Scope, step: &Step, found: &Tensor) -> Tolerance {
    let half = scope.agreement().half().and_then(Precision::dtype);
    let own = Tolerance::of(half.unwrap_or(found.dtype()));
    own.at_loss(Some(step.name), scope.agreement().loss())
}

/// Where rows that pack several sequences are off, by these; by pages where their keys stand in such.
fn in_sequences(scope: &Scope, (axis, size): (Axis, usize), places: &[usize]) -> Option<String> {
    let own = documents(scope.trace())?;
    let lengths = match axis {
        Axis::Query => &own.queries,
        Axis::Key => &own.keys,
        _ => return None,
    };
    let [lengths] = &lengths[..] else { return None };
    if lengths.len() < 2 || lengths.iter().sum::<usize>() != size {
        return None;
    }
    let (mut all, mut start) = (Vec::new(), 0);
    for (sequence, length) in lengths.iter().enumerate() {
        let own = places.iter().filter(|place| (start..start + length).contains(place));
        let own: Vec<usize> = own.map(|place| place - start).collect();
        if !own.is_empty() {
            all.push((sequence, own, *length));
        }
        start += length;
    }
    let page = page_size(scope.trace()).filter(|page| axis == Axis::Key && *page > 1);
    let numbers: Vec<usize> = all.iter().map(|(sequence, ..)| *sequence).collect();
    Some(match (&all[..], page) {
        ([(sequence, own, length)], Some(page)) if own.len() < *length => {
            let mut pages: Vec<usize> = own.iter().map(|key| key / page).collect();
            pages.dedup();
            tr!(
                "in pages {pages} of sequence {sequence} alone ({page} slots each)",
                pages = ranges(&pages),
                sequence,
                page
            )
        }
        ([(sequence, own, length)], None) if own.len() < *length => {
            let places = places_in_words(axis, own);
            tr!("in sequence {sequence} and there {places}", sequence, places)
        }
        _ if numbers.len() == lengths.len() => return None,
        _ => tr!(
            "in sequences {sequences} of {count} alone",
            sequences = ranges(&numbers),
            count = lengths.len()
        ),
    })
}

/// The first split or tile that differs, and its keys.
fn first_part(scope: &Scope, step: &Step) -> Result<Option<String>> {
    let (Some((axis, all)), true) = (step.axes.iter().next(), step.is_of_parts()) else {
        return Ok(None);
    };
    let places = scope.places_off(step.name)?;
    let off = places.iter().find(|(at, _)| *at == 0).map(|(_, places)| places);
    let at = off.map_or(Some(0), |places| places.first().copied()).unwrap_or_default();
    let Some(parts) = scope.trace().parts() else { return Ok(None) };
    let part = axis.told();
    let spans = parts.keys.get(at).map(Vec::as_slice).unwrap_or_default();
    // Of several sequences those of the longest, from its own first key on.
    let starts = parts.keys.first().map(Vec::as_slice).unwrap_or_default();
    let own =
        spans.iter().zip(starts).map(|((first, end), (start, _))| (first - start, end - start));
    let longest = own.max_by_key(|(first, end)| end.saturating_sub(*first));
    Ok(Some(match longest {
        Some((first, end)) if first < end && spans.len() > 1 => tr!(
            "{part} {at} of {all} (keys {first} to {last} of each sequence) is the first that differs",
            part,
            at,
            all,
            first,
            last = end - 1
        ),
        Some((first, end)) if first < end => tr!(
            "{part} {at} of {all} (keys {first} to {last}) is the first that differs",
            part,
            at,
            all,
            first,
            last = end - 1
        ),
        _ => tr!("{part} {at} of {all} (no keys) is the first that differs", part, at, all),
    }))
}

/// A factor that what is too much comes from, or an addend.
fn same_change(excess: &[f64], meant: &[f64], is_asked: impl Fn(usize) -> bool) -> Option<String> {
    let pairs = || {
        let pairs = excess.iter().copied().zip(meant.iter().copied()).enumerate();
        pairs.filter(|(at, (excess, meant))| {
            // Neither what no number is, nor what masks put there.
            excess.is_finite() && is_number(*meant) && is_asked(*at)
        })
    };
    let (slope, of_factor) = line(pairs().map(|(_, pair)| pair))?;
    let (by, of_addend) = line(pairs().map(|(_, (excess, _))| (excess, 1.0)))?;
    // Where little is left of the numbers, what is left may be no multiple of them at all.
    let squares =
        |of: fn((f64, f64)) -> f64| -> f64 { pairs().map(|(_, pair)| of(pair).powi(2)).sum() };
    let rest = (1.0 - of_factor) * squares(|(excess, _)| excess);
    let is_multiple = rest <= (1.0 - MOST_OF_IT) * squares(|(excess, meant)| excess + meant);
    let of_factor = if is_multiple { of_factor } else { 0.0 };
    if of_factor.max(of_addend) < MOST_OF_IT {
        return None;
    }
    Some(if of_factor >= of_addend {
        // Where digits end before it says more than 1, what it is off by says it.
        let factor = if slope.abs() < 1e-5 {
            format!("1 {} {:.1e}", if slope < 0.0 { '−' } else { '+' }, slope.abs())
        } else {
            short(1.0 + round(slope))
        };
        tr!(
            "it is about {factor} times what it should be, {of_factor}",
            factor,
            of_factor = accounts_for(of_factor)
        )
    } else {
        tr!(
            "about {by} is added to its numbers, {of_addend}",
            by = short(round(by)),
            of_addend = accounts_for(of_addend)
        )
    })
}

/// What is too much, if it is one number for every feature: how much of it that accounts for.
fn like_a_bias(excess: &[f64], axes: &[(Axis, usize)]) -> Option<String> {
    let is_feature = |axis: Axis| {
        matches!(axis, Axis::Head | Axis::Model | Axis::HeadDim | Axis::Input | Axis::Bucket)
    };
    let last = axes.last().filter(|(axis, _)| is_feature(*axis) && *axis != Axis::Head)?;
    let features: usize =
        axes.iter().filter(|(axis, _)| is_feature(*axis)).map(|(_, size)| size).product();
    // The place among the features: that of the head, if there is one, and that within it.
    let inner = |axis: usize| axes[axis + 1..].iter().map(|(_, size)| size).product::<usize>();
    let head = axes.iter().position(|(axis, _)| *axis == Axis::Head);
    let head = head.map(|at| (inner(at), axes[at].1));
    let place = |at: usize| {
        let of_head = head.map_or(0, |(inner, heads)| at / inner.max(1) % heads);
        of_head * last.1 + at % last.1
    };
    let each = excess.len().checked_div(features).filter(|each| *each > 1)?;
    let mut sums = vec![0.0; features];
    for (at, excess) in excess.iter().enumerate() {
        *sums.get_mut(place(at))? += excess;
    }
    let squares: f64 = excess.iter().map(|excess| excess * excess).sum();
    let share = sums.iter().map(|sum| sum * sum).sum::<f64>() / each as f64 / squares;
    (share > MOST_OF_A_BIAS).then(|| {
        tr!(
            "what is too much is one number for each feature, as a bias is, {share}",
            share = accounts_for(share)
        )
    })
}

/// How much of a difference something accounts for, in words.
fn accounts_for(share: f64) -> String {
    tr!(
        "which accounts for {share} % of the difference",
        share = format!("{:.0}", (100.0 * share).floor())
    )
}

/// How far numbers are off at each place of an axis, all together: every place has as many.
fn sum_by_place(excess: &[f64], shape: &[usize], axis: usize) -> Vec<f64> {
    let (size, inner) = (shape[axis], shape[axis + 1..].iter().product::<usize>().max(1));
    let mut sums = vec![0.0; size];
    for (at, excess) in excess.iter().enumerate() {
        sums[at / inner % size] += if excess.is_nan() { f64::INFINITY } else { excess.abs() };
    }
    sums
}

/// Another step of which a multiple is what is too much.
fn multiple_of(scope: &Scope, step: &Step, excess: &[f64]) -> Result<Option<String>> {
    let shape = step.axes.shape();
    for other in scope.trace().steps() {
        if other.name == step.name
            || other.axes.shape() != shape
            || other.name.row().is_boolean
            || other.name.role() == Role::Setting
        {
            continue;
        }
        let Some(value) = scope.known(other.name) else { continue };
        let value = cells(value)?;
        let pairs = excess.iter().copied().zip(value);
        let pairs = pairs.filter(|(excess, value)| excess.is_finite() && value.is_finite());
        if let Some((slope, share)) = line(pairs)
            && share > 0.99
        {
            let told = tr!(
                "what is too much is {slope} times {other}",
                slope = short(round(slope)),
                other = other.name
            );
            return Ok(Some(told));
        }
    }
    Ok(None)
}

/// The factor between two lists of numbers, and how much of the first's squares it accounts for.
fn line(pairs: impl Iterator<Item = (f64, f64)>) -> Option<(f64, f64)> {
    let (mut count, mut own, mut other, mut both) = (0, 0.0, 0.0, 0.0);
    for (left, right) in pairs {
        count += 1;
        own += left * left;
        other += right * right;
        both += left * right;
    }
    let share = both * both / (own * other);
    (count >= LEAST_CELLS && share.is_finite()).then(|| (both / other, share))
}

/// Three digits, which is as much as such a number says.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// Whether two lists hold the same numbers in other places, in as many digits as rounding leaves, and not in these.
fn are_moved(own: &[f64], meant: &[f64]) -> bool {
    let size = meant
        .iter()
        .filter(|meant| meant.is_finite())
        .fold(0.0, |size: f64, meant| size.max(meant.abs()));
    let is_off = |(own, meant): (&f64, &f64)| {
        own.is_finite() && meant.is_finite() && (own - meant).abs() > MOVED * size
    };
    if !own.iter().zip(meant).any(is_off) {
        return false;
    }
    let sorted = |values: &[f64]| {
        let mut values = values.to_vec();
        values.par_sort_unstable_by(f64::total_cmp);
        values
    };
    let is_near = |(own, meant): (&f64, &f64)| {
        own.total_cmp(meant).is_eq() || (own - meant).abs() <= MOVED * meant.abs()
    };
    sorted(own).iter().zip(&sorted(meant)).all(is_near)
}
