//! What does a recorded file say of its mask?

use candle_core::{DType, Tensor};

use super::cells::cells;
use base::error::Result;
use config::Settings;
use file::Record;
use foreign::{FoundMask, are_booleans, either_way};
use program::{Name, first_number};

/// Whether the settings say what a mask of the file's would.
pub fn replaces_mask(record: &Record, settings: &Settings) -> bool {
    record.tensor(Name::Mask.as_str()).is_some()
        && settings.attn_mask.is_none()
        && settings.replace("attn_mask")
}

/// The ways to read a file's `mask` beside the one that the run has it by: all where the settings say what it would, and
/// else 1 as what is seen, as its name does not say what 1 means.
///
/// # Errors
/// If candle fails.
pub fn masks_against(record: &Record, settings: &Settings) -> Result<Vec<FoundMask>> {
    let mut ways = masks_beside(record)?;
    if !replaces_mask(record, settings) {
        ways.drain(..ways.len().min(1));
    }
    Ok(if settings.attn_mask.is_some() { Vec::new() } else { ways })
}

/// The ways to read a file's `mask`: floats are added to the scores, and 1 may mean either.
///
/// # Errors
/// If candle fails.
pub fn masks_beside(record: &Record) -> Result<Vec<FoundMask>> {
    let name = Name::Mask.as_str();
    let Some(mask) = record.tensor(name) else { return Ok(Vec::new()) };
    if mask.dtype().is_float() && !are_booleans(&cells(mask)?) {
        return Ok(vec![FoundMask::of(name, mask.clone(), tr!("added to the scores"))]);
    }
    Ok(either_way(name, mask)?.into())
}

/// What a mask is, in words, true where it blocks; keys that it hides from every query are padding beside that.
///
/// # Errors
/// If candle fails.
pub fn told_mask(mask: &Tensor) -> Result<String> {
    let [queries, keys] = *mask.dims().last_chunk::<2>().unwrap_or(&[1, 1]);
    let cells: Vec<bool> =
        mask.flatten_all()?.to_vec1::<u8>()?.into_iter().map(|cell| cell != 0).collect();
    if let Some(told) = usual(&cells, queries, keys) {
        return Ok(told);
    }
    let by_rows = cells
        .chunks(keys * queries)
        .all(|item| item.chunks(keys).all(|row| Some(row) == item.chunks(keys).next()));
    let blocked = cells.iter().filter(|cell| **cell).count();
    if by_rows {
        let of_keys = tr!(
            "one of keys alone, the same for every query ({blocked} of {cells} cells)",
            blocked,
            cells = cells.len()
        );
        let lengths = || {
            counts(&cells, queries, keys, false)
                .map(|all| tr!("lengths {lengths}", lengths = all.join(",")))
        };
        let left = || {
            let count = counts(&cells, queries, keys, true)?.join(", ");
            Some(tr!("one of keys alone, with {count} keys of padding on the left", count))
        };
        return Ok(lengths().or_else(left).unwrap_or(of_keys));
    }
    let (shown, hidden) = without_padding(&cells, queries, keys);
    if !hidden.is_empty()
        && let Some(told) = usual(&shown, queries, keys)
    {
        let of = |plane| hidden.iter().filter(|(own, _)| *own == plane).count();
        let mut counts: Vec<String> =
            (0..cells.len() / (queries * keys)).map(|plane| of(plane).to_string()).collect();
        // What all items have alike is told once.
        if counts.iter().all(|count| Some(count) == counts.first()) {
            counts.truncate(1);
        }
        let count = counts.join(", ");
        // Of each item, the keys that come first or last.
        let at_an_end = |is_it: fn(usize, usize) -> bool| {
            hidden.iter().all(|(plane, key)| {
                hidden.iter().filter(|(other, own)| other == plane && is_it(*own, *key)).count()
                    == (0..keys).filter(|own| is_it(*own, *key)).count()
            })
        };
        return Ok(match () {
            () if at_an_end(|own, key| own < key) => {
                tr!("{told}, with {count} keys of padding on the left", told, count)
            }
            () if at_an_end(|own, key| own > key) => {
                tr!("{told}, with {count} keys of padding on the right", told, count)
            }
            () => tr!("{told}, with {count} keys of padding", told, count),
        });
    }
    Ok(tr!(
        "none of the usual ones: it blocks {blocked} of {cells} cells",
        blocked,
        cells = cells.len()
    ))
}

/// How many keys come first in each item that are blocked alike, and the others are not; or with the two exchanged.
fn counts(cells: &[bool], queries: usize, keys: usize, are_blocked: bool) -> Option<Vec<String>> {
    let count = |item: &[bool]| {
        let row = item.get(..keys)?;
        let count = row.iter().take_while(|cell| **cell == are_blocked).count();
        row.iter().skip(count).all(|cell| *cell != are_blocked).then(|| count.to_string())
    };
    cells.chunks((queries * keys).max(1)).map(count).collect()
}

/// Which keys a query may not see.
type Blocks<'b> = &'b dyn Fn(usize, usize) -> bool;

/// A mask of the usual forms, in words.
fn usual(cells: &[bool], queries: usize, keys: usize) -> Option<String> {
    // Behind a cache the last query sees the last key.
    let seen = |query: usize| query + keys.saturating_sub(queries);
    let all = |is_blocked: &dyn Fn(usize, usize) -> bool| {
        let expected = |at: usize| is_blocked(at / keys % queries, at % keys);
        cells.iter().enumerate().all(|(at, cell)| *cell == expected(at))
    };
    let known: [(&str, Blocks); 7] = [
        (tr!("none: it blocks nothing"), &|_, _| false),
        ("causal", &|query, key| key > seen(query)),
        (tr!("causal and strict: no token sees itself"), &|query, key| key >= seen(query)),
        (tr!("causal, but for the next key, which is seen"), &|query, key| key > seen(query) + 1),
        (tr!("an inverted causal one: it blocks the past and the token itself"), &|query, key| {
            key <= seen(query)
        }),
        (tr!("a reversed causal one: it blocks the past"), &|query, key| key < seen(query)),
        (tr!("causal, aligned to the first query and key"), &|query, key| key > query),
    ];
    if let Some((told, _)) = known.iter().find(|(_, is_blocked)| all(*is_blocked)) {
        return Some((*told).to_owned());
    }
    // The numbers of the others are read off the first row and the last one.
    let row = |query: usize| cells.get(query * keys..(query + 1) * keys);
    let visible = |query: usize| row(query).map(|row| row.iter().filter(|cell| !**cell).count());
    let (first, last) = (visible(0)?, visible(queries.checked_sub(1)?)?);
    if all(&|query, key| key > seen(query) || key + last <= seen(query)) {
        return Some(tr!("causal with a window of {last}", last));
    }
    if all(&|query, key| key > seen(query) + first.saturating_sub(1) || key + first <= seen(query))
    {
        return Some(tr!("a window of {first} to both sides", first));
    }
    if all(&|query, key| key > seen(query) && key >= first) {
        return Some(tr!("causal behind a prefix of {first} keys, which all see", first));
    }
    let shift = first.checked_sub(1 + seen(0));
    if let Some(shift) = shift.filter(|shift| all(&|query, key| key > seen(query) + shift)) {
        return Some(tr!("causal, but for the next {shift} keys, which are seen", shift));
    }
    documents(cells, queries, keys)
}

/// A causal mask of documents or chunks that do not see each other, in words.
fn documents(cells: &[bool], queries: usize, keys: usize) -> Option<String> {
    const TOLD: usize = 8;
    let lengths = |item: &[bool]| {
        let mut ends: Vec<usize> = Vec::new();
        for (query, row) in item.chunks(keys).enumerate() {
            let start = row.iter().position(|cell| !cell)?;
            if start != query && ends.last() != Some(&start) {
                return None;
            }
            let is_it = |(key, cell): (usize, &bool)| *cell == (key < start || key > query);
            if !row.iter().enumerate().all(is_it) {
                return None;
            }
            if query == start {
                ends.push(query);
            }
        }
        ends.push(queries);
        Some(ends.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<usize>>())
    };
    if queries != keys || queries == 0 {
        return None;
    }
    let mut all: Vec<Vec<usize>> =
        cells.chunks(queries * keys).map(lengths).collect::<Option<_>>()?;
    if all.windows(2).all(|pair| pair[0] == pair[1]) {
        all.truncate(1);
    }
    let told = match all.as_slice() {
        [lengths]
            if let [chunk, others @ .., last] = lengths.as_slice()
                && others.iter().all(|length| length == chunk)
                && last <= chunk =>
        {
            tr!("chunks of {chunk}", chunk)
        }
        all if all.len() > TOLD => return None,
        all => {
            let listed = |lengths: &Vec<usize>| {
                lengths.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
            };
            let queries = all.iter().map(listed).collect::<Vec<_>>().join("/");
            tr!("documents {queries}{of_keys}", queries, of_keys = "")
        }
    };
    Some([tr!("causal"), &told].join(tr!(" and ")))
}

/// The cells with the keys shown that no query of an item sees, and how many those are. Queries that are such keys are shown
/// what the others of their row are.
fn without_padding(
    cells: &[bool],
    queries: usize,
    keys: usize,
) -> (Vec<bool>, Vec<(usize, usize)>) {
    let (mut shown, mut hidden) = (cells.to_vec(), Vec::new());
    let seen = |query: usize| query + keys.saturating_sub(queries);
    for (at, plane) in shown.chunks_mut((queries * keys).max(1)).enumerate() {
        for key in 0..keys {
            if plane.iter().skip(key).step_by(keys).all(|cell| *cell) {
                hidden.push((at, key));
                for (query, cell) in plane.iter_mut().skip(key).step_by(keys).enumerate() {
                    *cell = key > seen(query);
                }
            }
        }
    }
    (shown, hidden)
}

/// Whether a boolean mask, true where a query attends, lets some query attend to no key.
///
/// # Errors
/// If candle fails.
pub fn leaves_rows_empty(mask: &Tensor) -> Result<bool> {
    let dims = mask.dims();
    let has_queries = dims.len() > 1 && dims[dims.len() - 2] > 1;
    if mask.dtype().is_float() || !has_queries {
        return Ok(false);
    }
    let most = mask.to_dtype(DType::U8)?.max(dims.len() - 1)?;
    Ok(most.flatten_all()?.to_vec1::<u8>()?.contains(&0))
}

/// Whether a file holds a NaN.
///
/// # Errors
/// If candle fails.
pub fn has_nan(record: &Record) -> Result<bool> {
    for entry in record.entries.iter().filter(|entry| entry.tensor.dtype().is_float()) {
        if first_number(&entry.tensor, f64::is_nan)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
