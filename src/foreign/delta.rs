//! Files of the delta rule: which tensor is which, in which order its axes stand, and what the file leaves open.

use candle_core::Tensor;

use super::delta_tensors::{Arranged, arranged, found};
use super::matched::Match;
use super::names::{is_called, meanings};
use super::numbers::numbers;
use base::error::Result;
use config::{End, QkNorm, Settings, Start, chunks};
use file::{Entry, Record};
use program::{Name, whole};

/// A way to read a file of the delta rule.
pub struct DeltaRule {
    /// The file, with what the run is given under our names and in our order of axes.
    pub record: Record,
    /// The settings of its run.
    pub settings: Settings,
    /// What was taken as what.
    pub matches: Vec<Match>,
    /// Whether nothing but the numbers says in which order the features of states stand.
    pub is_tentative: bool,
}

/// What says in which order axes stand, how long chunks are, and which tokens there are.
const HEAD_FIRST: &[&str] = &["head_first"];
const CHUNK_SIZE: &[&str] = &["chunk_size", "chunk", "bt", "block_t"];
const LENGTHS: &[&str] =
    &["lengths", "seq_lens", "seqlens", "valid_lens", "valid_lengths", "seq_lengths"];
const KEPT: &[&str] = &["attention_mask", "padding_mask", "mask", "valid_mask"];
/// What kernels are told beside that, which changes nothing here.
const OTHERS: &[&str] = &["output_final_state", "return_final_state"];

/// A tensor that is none of the run's steps, taken out of a file.
fn take(record: &mut Record, names: &[&str]) -> Option<Entry> {
    let at = record.entries.iter().position(|entry| is_called(&entry.name, names))?;
    Some(record.entries.remove(at))
}

/// The ways to read a file of the delta rule, the likeliest first. Unless `is_norm_told`, queries and keys may be normalised or
/// not.
///
/// # Errors
/// If a tensor is missing, or the shapes fit no order of axes.
pub fn delta_rules(
    mut record: Record,
    stated: &Settings,
    is_norm_told: bool,
) -> Result<Vec<DeltaRule>> {
    let mut settings = stated.clone();
    let mut matches = Vec::new();
    for name in OTHERS {
        take(&mut record, &[name]);
    }
    let is_head_first = take(&mut record, HEAD_FIRST);
    let is_head_first = is_head_first.map(|entry| numbers(&entry.tensor)).transpose()?;
    let is_head_first = is_head_first.and_then(|numbers| Some(*numbers.first()? != 0.0));
    let chunk = take(&mut record, CHUNK_SIZE);
    let chunk = chunk.map(|entry| numbers(&entry.tensor)).transpose()?;
    let chunk = chunk.and_then(|numbers| whole(*numbers.first()?));
    taken_lengths(&mut record, &mut settings, &mut matches)?;
    let found = found(&record)?;
    let all = arranged(&found, stated, is_head_first)?;
    let norms = match stated.qk_norm {
        None if !is_norm_told => vec![Some(QkNorm::L2), None],
        own => vec![own],
    };
    let taken: Vec<String> = found.all().map(|entry| entry.name.clone()).collect();
    record.entries.retain(|entry| !taken.contains(&entry.name));
    let mut rules = Vec::new();
    for own in all {
        for norm in &norms {
            for is_turned in [false, true] {
                let rule = own.rule(&record, (&settings, *norm, is_turned), &matches)?;
                rules.extend(rule.into_iter().flat_map(|rule| with_states(rule, chunk)));
            }
        }
    }
    Ok(rules)
}

/// Takes how many tokens each item has.
fn taken_lengths(
    record: &mut Record,
    settings: &mut Settings,
    matches: &mut Vec<Match>,
) -> Result<()> {
    if let Some(entry) = take(record, LENGTHS) {
        let all: Option<Vec<usize>> = numbers(&entry.tensor)?.into_iter().map(whole).collect();
        if settings.lengths.is_none() {
            settings.lengths = all;
            matches.push(Match::as_it_is("lengths", &entry.name));
        }
    }
    let is_of_items = |entry: &Entry| is_called(&entry.name, KEPT) && entry.tensor.rank() == 2;
    if let Some(at) = record.entries.iter().position(is_of_items)
        && settings.lengths.is_none()
        && settings.key_mask.is_none()
    {
        let entry = record.entries.remove(at);
        let (_, tokens) = entry.tensor.dims2()?;
        let cells = numbers(&entry.tensor)?;
        let row =
            |row: &[f64]| row.iter().map(|cell| if *cell == 0.0 { '0' } else { '1' }).collect();
        let rows: Vec<String> = cells.chunks(tokens.max(1)).map(row).collect();
        if rows.iter().any(|row| row.contains('0')) {
            settings.key_mask = Some(rows);
        }
        matches.push(Match::as_it_is("key_mask", &entry.name).read(tr!("1 means a token")));
    }
    Ok(())
}

impl Arranged {
    /// The reading in which queries and keys are normalised so. With `is_turned`, states have the features of values before
    /// those of keys; nothing where that cannot be, or nothing tells it.
    fn rule(
        &self,
        rest: &Record,
        (settings, norm, is_turned): (&Settings, Option<QkNorm>, bool),
        matches: &[Match],
    ) -> Result<Option<DeltaRule>> {
        let dim = |name: Name, axis: usize| {
            let own = self.tensors.iter().find(|(own, ..)| *own == name);
            own.and_then(|(_, _, tensor)| tensor.dims().get(axis).copied()).unwrap_or(0)
        };
        let (features, values) = (dim(Name::KHeads, 3), dim(Name::VHeads, 3));
        let initial = self.tensors.iter().find(|(own, ..)| *own == Name::InitialState);
        if let Some((_, _, state)) = initial {
            let wanted = if is_turned { [values, features] } else { [features, values] };
            let is_later = |entry: &Entry| {
                let means = meanings(&entry.name);
                matches!(means.first(), Some(Name::FinalState | Name::States | Name::ChunkStates))
            };
            // As many features of both say nothing: other states have to stand in that order, too.
            let is_open = is_turned && features == values;
            if state.rank() != 4
                || state.dims()[2..] != wanted
                || is_open && !rest.entries.iter().any(is_later)
            {
                return Ok(None);
            }
        } else if is_turned {
            return Ok(None);
        }
        let turn = |tensor: &Tensor| -> Result<Tensor> {
            let rank = tensor.rank();
            Ok(tensor.transpose(rank - 2, rank - 1)?.contiguous()?)
        };
        let mut record = rest.clone();
        let mut all = matches.to_vec();
        for (step, name, tensor) in &self.tensors {
            let is_state = *step == Name::InitialState;
            let tensor = if is_state && is_turned { turn(tensor)? } else { tensor.clone() };
            let taken = Match::as_it_is(step.as_str(), name);
            let told = match step {
                Name::QHeads | Name::KHeads | Name::VHeads => self.axes,
                Name::InitialState if is_turned => {
                    tr!("axes (batch, head, value_dim, head_dim)")
                }
                _ => "",
            };
            let taken = if told.is_empty() { taken } else { taken.read(told) };
            if taken.tensor != taken.step || !told.is_empty() {
                all.push(taken);
            }
            record.entries.push(Entry::of(step.as_str(), tensor));
        }
        if is_turned {
            for entry in &mut record.entries {
                let is_state = matches!(
                    meanings(&entry.name).first(),
                    Some(Name::FinalState | Name::States | Name::ChunkStates)
                );
                let ends = entry.tensor.dims().ends_with(&[values, features]);
                if is_state && ends && entry.tensor.rank() > 3 {
                    entry.tensor = turn(&entry.tensor)?;
                }
            }
        }
        let mut settings = Settings {
            recurrence: Some(settings.recurrence.unwrap_or(self.recurrence)),
            qk_norm: norm,
            start: Some(Start::Heads),
            qkv_format: Some(self.format),
            ..settings.clone()
        };
        settings.end.get_or_insert(End::Concat);
        let is_tentative = is_turned && features == values;
        Ok(Some(DeltaRule { record, settings, matches: all, is_tentative }))
    }
}

/// Beyond so many numbers of the states of chunks, their size is not taken from a file that has none of them.
const MOST_STATES: usize = 1 << 20;

/// The sizes of chunks that kernels have, the likeliest first.
const CHUNKS: [usize; 8] = [64, 32, 16, 128, 8, 4, 2, 256];

/// The same with the states that the file has: after every token, or before chunks of which the size may be open.
fn with_states(mut rule: DeltaRule, chunk: Option<usize>) -> Vec<DeltaRule> {
    let tokens =
        rule.record.tensor(Name::KHeads.as_str()).and_then(|keys| keys.dims().get(2).copied());
    let tokens = tokens.unwrap_or(0);
    let heads =
        rule.record.tensor(Name::VHeads.as_str()).and_then(|own| own.dims().get(1).copied());
    let of = |name: Name| {
        let is_it = |entry: &&Entry| meanings(&entry.name).first() == Some(&name);
        let found =
            rule.record.entries.iter().find(|entry| is_it(entry) && entry.tensor.rank() > 3)?;
        // Of (batch, token, head) or (batch, head, token) the one that is not the heads.
        let dims = found.tensor.dims();
        let [.., first, second, _, _] = dims else { return None };
        Some(if Some(*first) == heads { *second } else { *first })
    };
    if of(Name::States).is_some() {
        rule.settings.states = Some(true);
    }
    let count = of(Name::ChunkStates);
    // The state of each chunk is a step: of many small chunks these are more than all else.
    let last = |name: Name| rule.record.tensor(name.as_str()).and_then(|own| own.dims().last());
    let state = last(Name::KHeads).zip(last(Name::VHeads)).map_or(0, |(own, other)| own * other);
    let is_small = |size: &usize| {
        let numbers = tokens.div_ceil(*size).saturating_mul(heads.unwrap_or(1));
        numbers.saturating_mul(state) <= MOST_STATES
    };
    if count.is_none() {
        let chunk = chunk.filter(|size| *size > 0).filter(is_small);
        rule.settings.state_chunk = rule.settings.state_chunk.or(chunk);
    }
    let Some(count) = count.filter(|_| rule.settings.state_chunk.is_none()) else {
        return vec![rule];
    };
    let documents = rule.settings.segments.as_ref();
    let fits = |size: &usize| *size > 0 && chunks(documents, tokens, *size) == count;
    let even = tokens.checked_div(count).filter(|_| tokens.is_multiple_of(count));
    let mut sizes: Vec<usize> = chunk.into_iter().chain(CHUNKS).chain(even).filter(fits).collect();
    if chunk.is_some_and(|own| fits(&own)) {
        sizes.truncate(1);
    }
    sizes.dedup();
    if sizes.is_empty() {
        return vec![rule];
    }
    let with = |size: usize| DeltaRule {
        record: rule.record.clone(),
        settings: Settings { state_chunk: Some(size), ..rule.settings.clone() },
        matches: rule.matches.clone(),
        is_tentative: rule.is_tentative,
    };
    sizes.into_iter().map(with).collect()
}
