//! In which splits or tiles is a kernel's file that says nothing of them, and has what was kept of each?

use super::best_reading::{best, likely};
use super::recomputed::Recomputed;
use super::tolerance::Tolerances;
use base::error::Result;
use config::{Setting, Settings};
use file::{Entry, Record};
use foreign::{Match, is_called, meanings};
use program::Name;

/// How many keys tiles of kernels have, the usual ones first.
const SIZES: [usize; 12] = [16, 32, 64, 128, 256, 8, 4, 24, 48, 96, 80, 12];

/// The longest prefix of the states of a prefix and a suffix,
const MOST_PREFIX: usize = 256;
/// which is looked for where there are no more scores than these.
const MOST_SCORES: u128 = 1 << 16;

/// So many sizes of tiles are tried.
const MOST: usize = 2;

/// A setting that the states of parts say, as its text, and the tensor that says it.
struct Said<'r> {
    key: &'static str,
    text: String,
    tensor: &'r str,
    /// Whether it is one of the lengths that a prefix may have.
    is_prefix: bool,
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
    let (mut right, mut others) = (Vec::new(), Vec::new());
    for Said { key, text, tensor, is_prefix } in said(record) {
        let mut settings = flags.clone();
        if Setting::named(key).is_none_or(|own| own.set(&mut settings, &text).is_err()) {
            continue;
        }
        let Ok(readings) = likely(record, &settings, tolerances) else { continue };
        let scores = readings.likeliest.iter().filter_map(|own| own.trace.step(Name::Weights));
        let is_large = scores.map(|step| step.axes.count()).max() > Some(MOST_SCORES);
        let is_right = readings.likeliest.iter().any(Recomputed::has_right_parts);
        let one = (readings, Match::as_it_is(key, text), tensor);
        match (is_right, is_prefix) {
            (true, _) => right.push(one),
            (false, false) if others.len() <= MOST => others.push(one),
            (false, _) => {}
        }
        // One length of a prefix is its own; of a large run they are not looked for.
        if is_prefix && (is_right || is_large) {
            break;
        }
    }
    // Those in which a state is right come first.
    let all = right.into_iter().chain(others);
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
fn said<'r>(record: &'r Record) -> Vec<Said<'r>> {
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
        let numbers = entry.tensor.elem_count();
        let each = if entry.tensor.rank() > queries.len() { rows * width } else { rows }.max(1);
        let parts = numbers / each;
        let is_whole = numbers == parts * each && entry.tensor.dims().contains(&parts);
        (parts > 1 && is_whole).then_some(parts)
    };
    let keys = [Name::KHeads, Name::K, Name::KCached, Name::KPast, Name::KQuantized];
    let keys = of(&keys).map(|own| own.tensor.dims()).unwrap_or_default();
    let keys: Vec<usize> = keys.iter().rev().skip(1).take(2).copied().collect();
    let sizes = |parts: usize| {
        let fits = move |keys: &usize, size: &usize| keys.div_ceil(*size) == parts;
        let of_keys = |keys: usize| SIZES.into_iter().filter(move |size| fits(&keys, size));
        keys.iter().copied().flat_map(of_keys).take(MOST).collect::<Vec<_>>()
    };
    let said =
        |key, text, entry: &'r Entry| Said { key, text, tensor: &entry.name, is_prefix: false };
    let mut all = Vec::new();
    // A prefix that sequences share ends where one state of the prefix says so.
    if let Some(entry) = record.entries.iter().find(|entry| is_called(&entry.name, &["prefix_lse"]))
    {
        let of_length =
            |length| Said { is_prefix: true, ..said("splits", format!("0,{length}"), entry) };
        all.extend((1..=MOST_PREFIX).map(of_length));
    }
    if let Some(entry) = of(&[Name::SplitLse, Name::SplitMax, Name::SplitSum, Name::SplitOutputs])
        && let Some(parts) = count(entry)
    {
        all.push(said("splits", parts.to_string(), entry));
        for size in sizes(parts) {
            let starts: Vec<String> = (0..parts).map(|at| (at * size).to_string()).collect();
            all.push(said("splits", starts.join(","), entry));
        }
    }
    if let Some(entry) = of(&[Name::TileMax, Name::TileSum])
        && let Some(parts) = count(entry)
    {
        for size in sizes(parts) {
            all.push(said("tiles", size.to_string(), entry));
        }
    }
    all
}
