//! In which splits or tiles is a kernel's file that says nothing of them, and has what was kept of each?

use super::best_reading::{best, likely};
use super::recomputed::Recomputed;
use super::tolerance::Tolerances;
use base::error::Result;
use config::{Setting, Settings};
use file::{Entry, Record};
use foreign::{Match, meanings};
use program::Name;

/// How many keys tiles of kernels have, the usual ones first.
const SIZES: [usize; 12] = [16, 32, 64, 128, 256, 8, 4, 24, 48, 96, 80, 12];

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
    for Said { key, text, tensor } in said(record) {
        let mut settings = flags.clone();
        let is_set = Setting::named(key).is_some_and(|own| own.set(&mut settings, &text).is_ok());
        let Some(readings) = likely(record, &settings, tolerances).ok().filter(|_| is_set) else {
            continue;
        };
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
            let how = tr!("as {tensor} has them", tensor);
            other.matches.push(Match::as_it_is(key, text).read(how));
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
    let Some((_, rows)) = queries.split_last() else { return Vec::new() };
    let rows: usize = rows.iter().product();
    // Parts stand first, and each has a number for every row.
    let count = |entry: &Entry| {
        let parts = entry.tensor.dims().first().copied()?;
        let has_rows = entry.tensor.elem_count() == parts * rows;
        (parts > 1 && has_rows && entry.tensor.rank() == queries.len()).then_some(parts)
    };
    let mut all = Vec::new();
    if let Some(entry) = of(&[Name::SplitLse, Name::SplitMax])
        && let Some(parts) = count(entry)
    {
        all.push(Said { key: "splits", text: parts.to_string(), tensor: &entry.name });
    }
    if let Some(entry) = of(&[Name::TileMax, Name::TileSum])
        && let Some(parts) = count(entry)
    {
        let keys = of(&[Name::KHeads, Name::K]).map(|own| own.tensor.dims()).unwrap_or_default();
        let keys = keys.iter().rev().skip(1).take(2);
        let sizes = keys
            .flat_map(|keys| SIZES.into_iter().filter(move |size| keys.div_ceil(*size) == parts));
        let of_size =
            |size: usize| Said { key: "tiles", text: size.to_string(), tensor: &entry.name };
        all.extend(sizes.take(MOST).map(of_size));
    }
    all
}
