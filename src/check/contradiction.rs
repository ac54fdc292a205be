//! Does what was recorded contradict what was stated?
//!
//! A flag, or a model's config, is a hypothesis too. Where the record says something else of it, and the numbers follow
//! the record, that is what is wrong, and not a step of the code.

use candle_core::DType;
use serde_json::{Value, json};

use super::cells::cells;
use super::finding::Contradiction;
use super::found_masks::masks_beside;
use super::mask_claim::{AgainstMask, by_mask, under_its_mask};
use super::reading::Reading;
use base::error::{Result, quoted};
use config::{Config, Mask, Positions, Rotary, Setting, Settings};
use file::Entry;
use foreign::{Evidence, Match};
use program::{Frequencies, Name};
use run::Run;

/// What a setting is in a run; nothing where it is not there.
fn said(config: &Config, key: &str) -> Option<Value> {
    match key {
        "scale" => Some(json!(config.scale_factor())),
        "positions" | "rope_offset" => {
            let rows = config.places().map(|places| places.rows.to_vec());
            let counted = || {
                let first = config.rope.as_ref()?.offset;
                Some(vec![vec![(first..).take(config.sizes.seq_len).collect()]])
            };
            Some(json!(once(rows.or_else(counted)?)))
        }
        "kv_heads" => Some(json!(config.sizes.kv_heads)),
        "head_dim" => Some(json!(config.sizes.head_dim)),
        _ => Settings::from(config).to_json().get(key).cloned(),
    }
}

/// Positions of all items once where they have the same.
fn once(rows: Vec<Vec<Vec<usize>>>) -> Positions {
    let rows = rows.into_iter().map(|mut items| {
        if items.windows(2).all(|pair| pair[0] == pair[1]) {
            items.truncate(1);
        }
        items
    });
    let mut rows: Vec<Vec<Vec<usize>>> = rows.collect();
    if rows.windows(2).all(|pair| pair[0] == pair[1]) {
        rows.truncate(1);
    }
    Positions::new(rows)
}

/// Whether two values are the same, but for the rounding of what was recorded.
fn is_alike(stated: Option<&Value>, recorded: Option<&Value>, precision: f64) -> bool {
    match (stated, recorded) {
        (None | Some(Value::Bool(false)), None | Some(Value::Bool(false))) => true,
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            let near = |(l, r)| is_alike(Some(l), Some(r), precision);
            left.len() == right.len() && left.iter().zip(right).all(near)
        }
        (Some(left), Some(right)) => match (left.as_f64(), right.as_f64()) {
            (Some(l), Some(r)) => (l - r).abs() <= precision * l.abs().max(r.abs()),
            _ => left == right,
        },
        _ => false,
    }
}

/// A value as flags have it; of a long one the beginning.
fn told(value: Option<&Value>) -> String {
    const TOLD: usize = 40;
    fn whole(value: &Value) -> String {
        match value {
            Value::Null | Value::Bool(false) => "none".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(all) => {
                let by = if all.iter().any(Value::is_array) { "/" } else { "," };
                all.iter().map(whole).collect::<Vec<_>>().join(by)
            }
            other => other.to_string(),
        }
    }
    let text = whole(value.unwrap_or(&Value::Null));
    match text.char_indices().nth(TOLD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// What is to be said where this was recorded, and something else stated.
fn against(evidence: &Evidence, stated: Option<&Value>, recorded: Option<&Value>) -> Contradiction {
    let Evidence { key, tensor, step, .. } = evidence;
    let (stated, recorded) = (told(stated), told(recorded));
    let summary = if tensor.is_empty() {
        tr!("{key} was stated as {stated}; the file holds no {step}", key, stated, step)
    } else {
        tr!(
            "{key} was stated as {stated}; recorded is {recorded}, in {tensor}",
            key,
            stated,
            tensor = quoted(tensor),
            recorded
        )
    };
    Contradiction { setting: key, step: *step, stated, recorded, summary }
}

/// The reading with what was recorded in place of what was stated or left open; nothing where the two say the same.
///
/// # Errors
/// If candle fails.
pub fn as_recorded(reading: &Reading) -> Result<Option<Reading>> {
    let mut other = reading.clone();
    let stated = reading.run_as_it_is().ok();
    let is_open = reading.settings.mask == Some(Mask::Recorded);
    let by_mask = if reading.is_told("mask") { None } else { by_mask(reading)? };
    for evidence in reading.evidence.iter().chain(&reading.said_by_tensors()) {
        let key = evidence.key;
        let is_of_mask = key == "mask";
        // A mask that the file brings says it all.
        let is_said = match &by_mask {
            Some(found) => found.says(key),
            None => is_of_mask && reading.mask.is_some(),
        };
        if reading.is_told(key) || other.is_told(key) || is_said {
            continue;
        }
        let Some(settings) = evidence.applied(&other.settings) else { continue };
        let next = Reading { settings, ..other.clone() };
        let (own, found) = match (&stated, next.run_as_it_is()) {
            (Some(own), Ok(found)) => (said(own.config(), key), said(found.config(), key)),
            (Some(_), Err(_)) => continue,
            // Without the right sizes there is no run.
            (None, _) => {
                let [own, found] = [&reading, &&next].map(|reading| reading.settings.to_json());
                (own.get(key).cloned(), found.get(key).cloned())
            }
        };
        if is_alike(own.as_ref(), found.as_ref(), evidence.precision) {
            continue;
        }
        other = next;
        if is_stated(reading, key) {
            let found = against(evidence, own.as_ref(), found.as_ref());
            other.contradictions.extend(Some(found).filter(|_| !is_of_mask || !is_open));
        } else {
            let how = tr!("which is {numbers}", numbers = told(found.as_ref()));
            other.matches.push(Match::as_it_is(key, &evidence.tensor).read(how));
            other.unmatched.retain(|tensor| tensor.tensor != evidence.tensor);
        }
    }
    if let Some(found) = by_mask {
        other = under_its_mask(other, found);
    }
    if let Some(Entry { name, tensor, .. }) =
        reading.freqs.as_ref().filter(|_| !reading.is_told(ROPE))
        && let Ok(run) = other.run_as_it_is()
        && let Some(rope) = &run.config().rope
        && let Some(found) = by_frequencies(&stated_frequencies(rope)?, &cells(tensor)?, name)
    {
        other.sources = other.sources.replaced(Name::RopeFreqs, tensor.clone());
        other.contradictions.push(found);
    }
    let is_other =
        other.settings != reading.settings || other.contradictions != reading.contradictions;
    Ok(Some(other).filter(|_| is_other))
}

/// What the mask and the frequencies of a file that states its run say against that. Its run goes by them as it is.
///
/// # Errors
/// If candle fails.
pub fn against_its_config(reading: &Reading, run: &Run) -> Result<Vec<Contradiction>> {
    let Reading { record, settings, sources, .. } = reading;
    let mut found = Vec::new();
    if record.config.is_none() {
        return Ok(found);
    }
    let is_named = settings.attn_mask.is_some() || settings.mask == Some(Mask::Recorded);
    if !is_named && run.is_given_otherwise(Name::Mask) {
        let mask = masks_beside(record)?.into_iter().next();
        let against = by_mask(&Reading { mask, ..reading.clone() })?;
        found.extend(against.and_then(AgainstMask::meant_otherwise));
    }
    if settings.rope_freqs.is_none()
        && !reading.is_told(ROPE)
        && run.is_given_otherwise(Name::RopeFreqs)
        && let (Some(rope), Some(recorded)) = (&run.config().rope, sources.tensor(Name::RopeFreqs))
    {
        let (stated, recorded) = (stated_frequencies(rope)?, cells(recorded)?);
        found.extend(by_frequencies(&stated, &recorded, Name::RopeFreqs.as_str()));
    }
    Ok(found)
}

/// The setting that rotary frequencies are of.
const ROPE: &str = "rope";

/// The rotary frequencies that follow from the settings.
fn stated_frequencies(rope: &Rotary) -> Result<Vec<f64>> {
    let Rotary { dims, base, scaling, positions, .. } = rope.clone();
    let numbers = Frequencies { dims, base, scaling, positions, dtype: DType::F64 }.numbers()?;
    Ok(numbers.into_iter().map(f64::from).collect())
}

/// What recorded rotary frequencies say against those that follow from the settings.
fn by_frequencies(stated: &[f64], recorded: &[f64], name: &str) -> Option<Contradiction> {
    let near = |(l, r): (&f64, &f64)| (l - r).abs() <= 1e-5 * l.abs().max(r.abs());
    if stated.len() == recorded.len() && stated.iter().zip(recorded).all(near) {
        return None;
    }
    let are_as_many = stated.len() == recorded.len();
    let [stated, recorded] = [stated, recorded].map(|freqs| {
        if are_as_many {
            told_frequencies(freqs)
        } else {
            tr!("{count} pairs", count = freqs.len())
        }
    });
    let summary = tr!(
        "the rotary frequencies were stated as {stated}; recorded is {recorded}, in {name}",
        stated,
        recorded,
        name = quoted(name)
    );
    Some(Contradiction { setting: ROPE, step: Name::RopeFreqs, stated, recorded, summary })
}

/// Frequencies as the powers of their base, if they are that.
#[allow(clippy::cast_precision_loss, reason = "a head has few features")]
fn told_frequencies(freqs: &[f64]) -> String {
    const TOLD: usize = 4;
    let count = freqs.len() as f64;
    let base = freqs.get(1).map(|second| second.powf(-count));
    let power = |at: usize, base: f64| base.powf(-(at as f64) / count);
    let near = |at: usize, base: f64| (power(at, base) / freqs[at] - 1.0).abs() < 1e-4;
    if let Some(base) = base.filter(|base| (0..freqs.len()).all(|at| near(at, *base))) {
        let rounded = base.round();
        let is_whole = (rounded / base - 1.0).abs() < 1e-5;
        return tr!("those of base {base}", base = if is_whole { rounded } else { base });
    }
    let first: Vec<String> = freqs.iter().take(TOLD).map(|freq| format!("{freq:.4}")).collect();
    tr!("{first} …", first = first.join(", "))
}

/// Whether something states a setting; a file that says its run states all, and so does a model.
fn is_stated(reading: &Reading, key: &str) -> bool {
    let settings = &reading.settings;
    let also: &[&str] = match key {
        "positions" | "rope_offset" => &["positions", "rope_offset"],
        // One in place of the other.
        "window" | "chunk" => &["window", "chunk"],
        _ => &[],
    };
    let is_set = |key: &&str| {
        Setting::named(key)
            .is_some_and(|setting| setting.is_set(settings) || setting.is_left_out(settings))
    };
    reading.record.config.is_some()
        || settings.before_model.is_some()
        || also.iter().chain([&key]).any(is_set)
}
