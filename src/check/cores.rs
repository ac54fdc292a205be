//! The ways to understand a file that holds queries, keys and values in place of X and weights.

use candle_core::Tensor;

use super::interpretation::{Interpretation, Seen, of_cells};
use base::error::Result;
use config::{End, Settings, Start};
use file::{Entry, Record};
use foreign::{Caller, FoundMask, Match, Qkv, take_mask};
use program::Name;

/// The ways to understand a file as that of a run which starts at queries, keys and values.
pub fn cores(
    record: &Record,
    settings: &Settings,
    (matches, unmatched): &Seen,
    readings: Vec<Qkv>,
) -> Result<Vec<Interpretation>> {
    let mut record = record.clone();
    let mut settings = settings.clone();
    let has_output = settings.weights.is_some() || record.tensor(Name::WO.as_str()).is_some();
    if !has_output {
        settings.end.get_or_insert(End::Concat);
    }
    settings.end.get_or_insert_default();
    let masks = match settings.attn_mask {
        None => take_mask(&mut record, Caller::Core)?,
        Some(_) => Vec::new(),
    };
    let masks: Vec<Option<FoundMask>> =
        if masks.is_empty() { vec![None] } else { masks.into_iter().map(Some).collect() };
    if settings.q.is_some() {
        let with = |mask| {
            let seen = (matches.clone(), unmatched.clone());
            Interpretation::of(record.clone(), &settings, seen, mask)
        };
        return masks.into_iter().map(with).collect();
    }
    let readings = not_denied(readings, &record, &settings);
    // Attention to one key is none: whatever it lacks would seem right.
    let keys = |reading: &Qkv| {
        let axis = if reading.start == Start::Heads { 2 } else { 1 };
        reading.tensors.get(1).and_then(|(_, tensor)| tensor.dims().get(axis).copied())
    };
    let most = readings.iter().map(keys).max().flatten();
    let (mut all, mut refused) = (Vec::new(), None);
    for reading in
        readings.into_iter().filter(|reading| keys(reading) != Some(1) || most == Some(1))
    {
        let mut record = record.clone();
        let taken = |name: &str| reading.matches.iter().any(|taken| taken.tensor == name);
        record.entries.retain(|entry| !taken(&entry.name));
        let entry = |(name, tensor): (Name, Tensor)| Entry::of(name.as_str(), tensor);
        record.entries.extend(reading.tensors.into_iter().map(entry));
        let mut settings = settings.clone();
        settings.start = Some(reading.start);
        settings.heads = settings.heads.or(reading.heads);
        // What is a cache by its name may be all the keys.
        let (caches, others): (Vec<Match>, Vec<Match>) =
            matches.iter().cloned().partition(|other| taken(&other.step));
        let by_its_name = |own: &Match| {
            let cache = caches.iter().find(|cache| cache.step == own.tensor);
            let tensor = cache.map_or_else(|| own.tensor.clone(), |cache| cache.tensor.clone());
            Match { tensor, ..own.clone() }
        };
        let own = reading.matches.iter().map(by_its_name);
        let matches: Vec<Match> = others.into_iter().chain(own).collect();
        for mask in masks.clone() {
            let seen = (matches.clone(), unmatched.clone());
            match Interpretation::of(record.clone(), &settings, seen, mask) {
                Ok(interpretation) => all.push(interpretation),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    match refused {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}

/// The orders of axes in which the queries have the lengths that settings and recorded scores or weights state; all if there
/// is none.
fn not_denied(readings: Vec<Qkv>, record: &Record, settings: &Settings) -> Vec<Qkv> {
    let cells = of_cells(record).map(|entry| entry.tensor.dims());
    let cells: Vec<&[usize]> = cells.filter(|dims| dims.len() == 4).collect();
    let is_stated = |reading: &Qkv| {
        let queries = reading.tensors.first().map_or(&[][..], |(_, queries)| queries.dims());
        let &[batch, heads, tokens, _] = queries else { return true };
        let agrees =
            |(stated, length): (Option<usize>, usize)| stated.is_none_or(|stated| stated == length);
        let of_settings =
            [(settings.batch, batch), (settings.heads, heads), (settings.seq_len, tokens)];
        of_settings.into_iter().all(agrees)
            && cells.iter().all(|dims| dims.starts_with(&[batch, heads, tokens]))
    };
    let (stated, denied): (Vec<Qkv>, Vec<Qkv>) = readings.into_iter().partition(is_stated);
    if stated.is_empty() { denied } else { stated }
}
