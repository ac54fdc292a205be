//! Which keys does each split or tile have, by what it adds up? The exponentials of its scores come to its sum: of all runs of keys
//! one does, in every row alike; or the part is there in some rows, and not in others, or twice.

use candle_core::{DType, Tensor};

use super::counted::{Counts, candidate as counted};
use crate::candidate::{Candidate, ranges};
use crate::cells::cells;
use crate::grammar::{Keys, with_keys};
use crate::scope::Scope;
use base::error::Result;
use config::Sizes;
use program::{Axis, Name, Parts};

/// A sum is another where it is off by so much of itself, or of all that was added up before.
const OFF: f64 = 1e-4;
/// Of longer rows no runs of keys are looked for.
const MOST_KEYS: usize = 2048;
/// So many parts are told of, and no more.
const TOLD: usize = 4;
/// No part counts more often.
const MOST_TIMES: u8 = 3;

/// What is known of a row: the weights of its keys beside the largest score, what is added up before each key, and what each part
/// adds up, with what that may be off by.
struct Row {
    before: Vec<f64>,
    sums: Vec<(f64, f64)>,
}

impl Row {
    /// What the keys of a run come to.
    fn sum(&self, (first, end): (usize, usize)) -> f64 {
        let at = |place: usize| self.before.get(place).copied().unwrap_or_default();
        at(end.max(first)) - at(first)
    }

    fn is(&self, part: usize, sum: f64) -> bool {
        self.sums.get(part).is_some_and(|(own, off)| (own - sum).abs() <= *off)
    }
}

/// The keys by which what parts added up comes about.
///
/// # Errors
/// If candle fails.
pub fn candidate(scope: &Scope, at: Name, sizes: &Sizes) -> Result<Option<Candidate>> {
    let trace = scope.trace();
    let is_asked = matches!(at, Name::SplitLse | Name::SplitSum | Name::TileSum | Name::TileMax);
    let Some(parts) = trace.parts().filter(|_| is_asked) else { return Ok(None) };
    let Some((rows, scores)) = rows(scope, parts)? else { return Ok(None) };
    let own: Option<Vec<(usize, usize)>> = parts.keys.iter().map(|spans| one(spans)).collect();
    let Some(own) = own else { return Ok(None) };
    let found: Option<Vec<(usize, usize)>> =
        own.iter().enumerate().map(|(part, own)| run_of(&rows, part, *own)).collect();
    if let Some(found) = found {
        let told = others_told(parts, &own, &found);
        let keys: Keys = found.into_iter().map(|own| vec![own]).collect();
        return Ok(if told.is_empty() { None } else { with_keys(trace, sizes, &keys, told) });
    }
    in_some_rows(scope, sizes, (&own, &rows), &scores)
}

/// Which parts have other keys than they should, in words.
fn others_told(parts: &Parts, own: &[(usize, usize)], found: &[(usize, usize)]) -> String {
    let name = parts.axis.told();
    let mut told = Vec::new();
    for (part, (own, found)) in own.iter().zip(found).enumerate() {
        let [found, meant] =
            [found, own].map(|(first, end)| ranges(&(*first..*end).collect::<Vec<_>>()));
        if found.is_empty() && !meant.is_empty() {
            told.push(tr!("{name} {part} has no keys, not {meant}", name, part, meant));
        } else if found != meant {
            told.push(tr!(
                "{name} {part} has the keys {found}, not {meant}",
                name,
                part,
                found,
                meant
            ));
        }
    }
    let is_more = told.len() > TOLD;
    told.truncate(TOLD);
    told.join("; ") + if is_more { "; …" } else { "" }
}

/// The one run of a part's keys.
fn one(spans: &[(usize, usize)]) -> Option<(usize, usize)> {
    match spans {
        [own] => Some(*own),
        _ => None,
    }
}

/// The run of keys that gives what a part added up, in all rows: its own if that does, or else the one that is nearest to it.
fn run_of(rows: &[Row], part: usize, own: (usize, usize)) -> Option<(usize, usize)> {
    let is_it = |run: (usize, usize)| rows.iter().all(|row| row.is(part, row.sum(run)));
    if is_it(own) {
        return Some(own);
    }
    let count = |row: &&Row| row.before.windows(2).filter(|pair| pair[1] > pair[0]).count();
    let row = rows.iter().max_by_key(count)?;
    let keys = row.before.len() - 1;
    let mut runs = Vec::new();
    for first in 0..=keys {
        // Sums grow with each key: those that are near stand side by side.
        let (sum, off) = *row.sums.get(part)?;
        let least = sum - off + row.before[first];
        let from = row.before.partition_point(|before| *before < least).max(first);
        let ends = (from..=keys).take_while(|end| row.is(part, row.sum((first, *end))));
        runs.extend(ends.map(|end| (first, end)));
    }
    let apart = |(first, end): &(usize, usize)| first.abs_diff(own.0) + end.abs_diff(own.1);
    runs.sort_by_key(apart);
    runs.into_iter().find(|run| is_it(*run))
}

/// Parts that are left out in some rows, or counted more than once.
fn in_some_rows(
    scope: &Scope,
    sizes: &Sizes,
    (own, rows): (&[(usize, usize)], &[Row]),
    scores: &Tensor,
) -> Result<Option<Candidate>> {
    let &[items, heads, queries, keys] = scores.dims() else { return Ok(None) };
    let blocked = scores.to_dtype(DType::F64)?.le(-1e8)?.flatten_all()?.to_vec1::<u8>()?;
    let mut counts = Counts::of(&blocked, [items, heads, queries, keys]);
    for (at, row) in rows.iter().enumerate() {
        let (item, query) = (at / queries / heads, at % queries);
        for (part, span) in own.iter().enumerate() {
            let sum = row.sum(*span);
            let is_it = |times: &u8| row.is(part, f64::from(*times) * sum);
            let Some(times) = [1, 0].into_iter().chain(2..=MOST_TIMES).find(is_it) else {
                return Ok(None);
            };
            for key in (span.0..span.1).filter(|_| times != 1) {
                if blocked[at * keys + key] == 0 {
                    counts.set([item, query, key], times);
                }
            }
        }
    }
    counted(scope, sizes, &counts)
}

/// The rows of all items and heads, and the scores.
fn rows(scope: &Scope, parts: &Parts) -> Result<Option<(Vec<Row>, Tensor)>> {
    let is_tile = parts.axis == Axis::Tile;
    let [of_max, of_sum] =
        if is_tile { [Name::TileMax, Name::TileSum] } else { [Name::SplitMax, Name::SplitSum] };
    let scores = scope.trace().step(of_sum).and_then(|step| scope.inputs(step)?.first().copied());
    let logs = match scope.recorded(Name::SplitLse).filter(|_| !is_tile) {
        Some(lse) => Some(lse.to_dtype(DType::F64)?),
        None => match (scope.recorded(of_max), scope.recorded(of_sum)) {
            (Some(most), Some(sum)) => {
                let [most, sum] = [most, sum].map(|own| own.to_dtype(DType::F64));
                Some((most? + sum?.log()?)?)
            }
            _ => None,
        },
    };
    let (Some(scores), Some(logs)) = (scores, logs) else { return Ok(None) };
    let &[items, heads, queries, keys] = scores.dims() else { return Ok(None) };
    let (count, all) = (parts.keys.len(), items * heads * queries);
    if logs.dims() != [count, items, heads, queries] || keys > MOST_KEYS || keys == 0 {
        return Ok(None);
    }
    let (own, logs) = (cells(scores)?, cells(&logs)?);
    let row = |(at, scores): (usize, &[f64])| {
        let most = scores.iter().copied().fold(f64::from(f32::MIN), f64::max);
        let mut sum = 0.0;
        let weights = scores.iter().map(|score| {
            sum += (score - most).exp();
            sum
        });
        let before: Vec<f64> = std::iter::once(0.0).chain(weights).collect();
        let mut last = 0.0;
        let sums = (0..count).map(|part| {
            let own = (logs[part * all + at] - most).exp();
            let own = if own.is_nan() { 0.0 } else { own };
            let added = if is_tile { own - last } else { own };
            last = own;
            (added, OFF * own.max(f64::MIN_POSITIVE))
        });
        let sums = sums.collect();
        Row { before, sums }
    };
    let rows = own.chunks(keys).enumerate().map(row).collect();
    Ok(Some((rows, scores.clone())))
}
