//! In which splits or tiles is a kernel's file that says nothing of them, and has what was kept of each?

use super::best_reading::{Likely, best, likely};
use super::recomputed::Recomputed;
use super::tolerance::Tolerances;
use base::error::Result;
use config::{Setting, Settings};
use file::{Entry, Record};
use foreign::{Match, is_called, meanings};
use program::Name;

/// How many keys tiles of kernels have, the usual ones first.
const SIZES: [usize; 12] = [16, 32, 64, 128, 256, 8, 4, 24, 48, 96, 80, 12];

/// The longest prefix of the states of a prefix and a suffix.
const MOST_PREFIX: usize = 64;

/// So many sizes of tiles are tried.
const MOST: usize = 2;

/// A setting that the states of parts say, as its text, and the tensor that says it.
struct Said<'r> {
    key: &'static str,
    text: String,
    tensor: &'r str,
}

/// The file's run in the splits or tiles that it has states of, where nothing is said of them: if it is the same so, or is not
/// the same as `found` and a mistake explains it so, or these states are right in part.
///
/// # Errors
/// If candle fails.
pub fn in_recorded_parts(
    record: &Record,
    flags: &Settings,
    tolerances: &Tolerances,
    found: &Recomputed,
) -> Result<Option<Recomputed>> {
    if record.config.is_some() || flags.splits.is_some() || flags.tiles.is_some() {
        return Ok(None);
    }
    let mut all = Vec::new();
    for Said { key, text, tensor } in said(record) {
        let mut settings = flags.clone();
        let is_set = Setting::named(key).is_some_and(|own| own.set(&mut settings, &text).is_ok());
        let readings = likely(record, &settings, tolerances).ok().filter(|_| is_set);
        all.extend(readings.map(|readings| (readings, Match::as_it_is(key, text), tensor)));
    }
    // Those in which a state is right come first.
    let has_right = |readings: &Likely| readings.likeliest.iter().any(Recomputed::has_right_parts);
    all.sort_by_key(|(readings, ..)| !has_right(readings));
    let right = all.iter().filter(|(readings, ..)| has_right(readings)).count();
    all.truncate(right.max(MOST + 1));
    for (readings, said, tensor) in all {
        let other = if found.is_same() {
            let only = readings.likeliest.into_iter().chain(readings.plain).next();
            only.map(|only| only.judge(tolerances, None)).transpose()?
        } else {
            best(readings, tolerances).ok()
        };
        let Some(mut other) = other else { continue };
        let is_taken = other.is_same()
            || !found.is_same()
                && !other.states_of_parts().is_empty()
                && (other.is_explained() || !found.is_explained() && other.has_right_parts());
        if is_taken {
            other.matches.push(said.read(tr!("as {tensor} has them", tensor)));
            return Ok(Some(other));
        }
    }
    Ok(None)
}

/// The settings that the states of a file's parts may say, the likeliest first.
fn said(record: &Record) -> Vec<Said<'_>> {
    let of = |names: &[Name]| {
        let is_it = |entry: &&Entry| meanings(&entry.name).iter().any(|name| names.contains(name));
        record.entries.iter().find(is_it)
    };
    let Some(queries) = of(&[Name::QHeads, Name::Q]).map(|own| own.tensor.dims()) else {
        return Vec::new();
    };
    let Some((width, rows)) = queries.split_last() else { return Vec::new() };
    let rows: usize = rows.iter().product();
    // Each part has a number for every row, or one of each feature.
    let count = |entry: &Entry| {
        let [numbers, of_all] = [entry.tensor.elem_count(), rows * width];
        let is_of_features = entry.tensor.rank() > queries.len();
        let parts = numbers / if is_of_features { of_all } else { rows }.max(1);
        let is_whole = numbers == parts * if is_of_features { of_all } else { rows };
        (parts > 1 && is_whole && entry.tensor.dims().contains(&parts)).then_some(parts)
    };
    let keys = [Name::KHeads, Name::K, Name::KCached, Name::KPast, Name::KQuantized];
    let keys = of(&keys).map(|own| own.tensor.dims()).unwrap_or_default();
    let keys: Vec<usize> = keys.iter().rev().skip(1).take(2).copied().collect();
    let sizes = |parts: usize| {
        let fits = move |keys: &usize, size: &usize| keys.div_ceil(*size) == parts;
        let of_keys = |keys: usize| SIZES.into_iter().filter(move |size| fits(&keys, size));
        keys.iter().copied().flat_map(of_keys).take(MOST).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    // A prefix that sequences share ends where one state of the prefix says so.
    if let Some(entry) = record.entries.iter().find(|entry| is_called(&entry.name, &["prefix_lse"]))
    {
        let of_length =
            |length| Said { key: "splits", text: format!("0,{length}"), tensor: &entry.name };
        all.extend((1..=MOST_PREFIX).map(of_length));
    }
    if let Some(entry) = of(&[Name::SplitLse, Name::SplitMax, Name::SplitSum, Name::SplitOutputs])
        && let Some(parts) = count(entry)
    {
        all.push(Said { key: "splits", text: parts.to_string(), tensor: &entry.name });
        for size in sizes(parts) {
            let starts: Vec<String> = (0..parts).map(|at| (at * size).to_string()).collect();
            all.push(Said { key: "splits", text: starts.join(","), tensor: &entry.name });
        }
    }
    if let Some(entry) = of(&[Name::TileMax, Name::TileSum])
        && let Some(parts) = count(entry)
    {
        for size in sizes(parts) {
            all.push(Said { key: "tiles", text: size.to_string(), tensor: &entry.name });
        }
    }
    all
}
