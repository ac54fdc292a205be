//! In which ways can a file be understood that holds queries, keys and values in place of X and weights?

use candle_core::Tensor;

use super::reading::{Draft, Reading, of_cells};
use base::error::Result;
use config::{End, Settings, Start};
use file::{Entry, Record};
use foreign::{Caller, FoundMask, Match, Qkv, take_bias, take_mask};
use program::Name;

/// The ways to understand a file as that of a run which starts at queries, keys and values.
pub fn cores(mut draft: Draft, readings: Vec<Qkv>) -> Result<Vec<Reading>> {
    let has_output =
        draft.settings.weights.is_some() || draft.record.tensor(Name::WO.as_str()).is_some();
    draft.settings.end.get_or_insert(if has_output { End::default() } else { End::Concat });
    let masks = match draft.settings.attn_mask {
        None => take_mask(&mut draft.record, Caller::Core)?,
        Some(_) => Vec::new(),
    };
    let bias = if draft.settings.attn_bias.is_none() { take_bias(&mut draft.record) } else { None };
    let biased = |reading: Reading| match &bias {
        Some(bias) => reading.with_bias(bias),
        None => reading,
    };
    let masks: Vec<Option<FoundMask>> =
        if masks.is_empty() { vec![None] } else { masks.into_iter().map(Some).collect() };
    if draft.settings.q.is_some() {
        return masks.into_iter().map(|mask| draft.clone().reading(mask).map(biased)).collect();
    }
    let readings = not_denied(readings, &draft.record, &draft.settings);
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
        let mut own = draft.clone();
        let taken = |name: &str| reading.matches.iter().any(|taken| taken.tensor == name);
        own.record.entries.retain(|entry| !taken(&entry.name));
        let entry = |(name, tensor): (Name, Tensor)| Entry::of(name.as_str(), tensor);
        own.record.entries.extend(reading.tensors.into_iter().map(entry));
        own.settings.start = Some(reading.start);
        own.settings.heads = own.settings.heads.or(reading.heads);
        // What is a cache by its name may be all the keys.
        let (caches, others): (Vec<Match>, Vec<Match>) =
            own.matches.into_iter().partition(|other| taken(&other.step));
        let by_its_name = |found: &Match| {
            let cache = caches.iter().find(|cache| cache.step == found.tensor);
            let tensor = cache.map_or_else(|| found.tensor.clone(), |cache| cache.tensor.clone());
            Match { tensor, ..found.clone() }
        };
        let matches = others.into_iter().chain(reading.matches.iter().map(by_its_name));
        let own = Draft { matches: matches.collect(), ..own };
        for mask in &masks {
            match own.clone().reading(mask.clone()) {
                Ok(reading) => all.push(biased(reading)),
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
