//! Does what was recorded contradict what was stated?
//!
//! A flag, or a model's config, is a hypothesis too. Where the record says something else of it, and the numbers follow
//! the record, that is what is wrong, and not a step of the code.

use candle_core::{DType, Tensor};
use serde_json::{Value, json};

use super::bias_claim::{under_its_bias, without_its_bias};
use super::cells::cells;
use super::finding::{Contradiction, told};
use super::found_masks::masks_beside;
use super::gradients::of_ones;
use super::mask_claim::{AgainstMask, by_mask, under_its_mask};
use super::reading::Reading;
use super::rotation::is_another;
use base::error::{Result, quoted};
use config::{Config, Mask, OutputGradient, Positions, Rotary, Setting, Settings};
use file::Entry;
use foreign::{Evidence, Match, Tables, Unmatched};
use program::{Frequencies, Name};
use run::{Run, positions_in};

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

/// What is to be said where this was recorded, and something else stated.
fn against(evidence: &Evidence, stated: Option<&Value>, recorded: Option<&Value>) -> Contradiction {
    let Evidence { key, tensor, step, .. } = evidence;
    let (stated, recorded) = (told(stated), told(recorded));
    if !tensor.is_empty() {
        return Contradiction::of(key, *step, [stated, recorded], tensor);
    }
    let summary = tr!("{key} was stated as {stated}; the file holds no {step}", key, stated, step);
    Contradiction::told(key, *step, [stated, recorded], summary)
}

/// The readings with what was recorded in place of what was stated or left open; none where the two say the same.
///
/// # Errors
/// If candle fails.
pub fn as_recorded(reading: &Reading) -> Result<Vec<Reading>> {
    let mut evidence = reading.evidence.clone();
    evidence.extend(reading.said_by_tensors());
    evidence.extend(positions_of_tables(reading)?);
    let mut all: Vec<Reading> = by_evidence(reading, &evidence)?.into_iter().collect();
    // Frequencies may be those of another module.
    if let Some(tables) = &reading.freqs {
        let mut without = Reading { freqs: None, ..reading.clone() };
        let why = tr!("other frequencies were stated, and the numbers fit without these");
        let tensor = tables.freqs.name.clone();
        without.unmatched.push(Unmatched { tensor, why: why.to_owned() });
        all.extend(by_evidence(&without, &evidence)?);
    }
    // What may say two things says each.
    if evidence.iter().any(|one| one.or.is_some()) {
        for one in &mut evidence {
            one.text = one.or.take().unwrap_or_else(|| one.text.clone());
        }
        all.extend(by_evidence(reading, &evidence)?);
    }
    let biased: Vec<Reading> =
        std::iter::once(reading).chain(&all).filter_map(under_its_bias).collect();
    let stated = without_its_bias(reading).into_iter().collect();
    Ok([all, stated, biased].concat())
}

/// The reading with what this says in place of what was stated or left open.
fn by_evidence(reading: &Reading, evidence: &[Evidence]) -> Result<Option<Reading>> {
    let mut other = reading.clone();
    let stated = reading.run_as_it_is().ok();
    let is_open = reading.settings.mask == Some(Mask::Recorded);
    let by_mask = if reading.is_told("mask") { None } else { by_mask(reading)? };
    for evidence in evidence {
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
        other.unmatched.retain(|tensor| tensor.tensor != evidence.tensor);
        if is_stated(reading, key) {
            let found = against(evidence, own.as_ref(), found.as_ref());
            other.contradictions.extend(Some(found).filter(|_| !is_of_mask || !is_open));
        } else {
            let how = tr!("which is {numbers}", numbers = told(found.as_ref()));
            other.matches.push(Match::as_it_is(key, &evidence.tensor).read(how));
        }
    }
    if let Some(found) = by_mask {
        other = under_its_mask(other, found);
    }
    if let Some(tables) = reading.freqs.as_ref().filter(|_| !reading.is_told(ROPE)) {
        other = under_its_tables(other, tables)?;
    }
    let is_other =
        other.settings != reading.settings || other.contradictions != reading.contradictions;
    Ok(Some(other).filter(|_| is_other))
}

/// What recorded tables of cosines and sines say of the positions, under the frequencies that were stated.
fn positions_of_tables(reading: &Reading) -> Result<Option<Evidence>> {
    let Some(tables) = &reading.freqs else { return Ok(None) };
    let Ok(run) = reading.run_as_it_is() else { return Ok(None) };
    let Some(rope) = &run.config().rope else { return Ok(None) };
    let found = tables.positions(&frequencies_of(reading, rope)?)?;
    let said = |positions: Tensor| -> Result<Evidence> {
        let text = positions_in(&positions)?.to_string();
        Ok(Evidence::of("positions", Name::QRot, &tables.freqs, text))
    };
    found.map(said).transpose()
}

/// The rotary frequencies that were stated, by settings or by a file that they name.
fn frequencies_of(reading: &Reading, rope: &Rotary) -> Result<Vec<f64>> {
    let in_file = reading.sources.tensor(Name::RopeFreqs);
    match in_file.filter(|_| reading.settings.rope_freqs.is_some()) {
        Some(own) => cells(own),
        None => stated_frequencies(rope),
    }
}

/// The reading with the frequencies of its file, and what those say against what was stated.
fn under_its_tables(mut reading: Reading, tables: &Tables) -> Result<Reading> {
    const FACTOR: &str = "rope_attention_factor";
    let Tables { freqs: Entry { name, tensor, .. }, factor, .. } = tables;
    let Ok(run) = reading.run_as_it_is() else { return Ok(reading) };
    let Some(rope) = &run.config().rope else { return Ok(reading) };
    let stated = frequencies_of(&reading, rope)?;
    let by_freqs = match tables.elsewhere {
        Some(_) => None,
        None => by_frequencies(&stated, &cells(tensor)?, name),
    };
    // Tables that are plain say 1 where something else was stated.
    let factor = factor.or(rope.attention_factor.map(|_| 1.0));
    let is_other = |factor: &f64| is_another(*factor, rope.attention_factor.unwrap_or(1.0));
    let factor = factor.filter(is_other);
    if by_freqs.is_none() && factor.is_none() {
        return Ok(reading);
    }
    // Where rotation was left out, no frequencies were stated.
    let is_open = reading.is_told(ROPE);
    let by_factor = factor.map(|factor| {
        let stated = rope.attention_factor.unwrap_or(1.0);
        let both = [stated, factor].map(|factor| factor.to_string());
        Contradiction::of(FACTOR, Name::QRot, both, name)
    });
    reading.contradictions.extend(by_freqs.into_iter().chain(by_factor).filter(|_| !is_open));
    let settings = &mut reading.settings;
    if tables.elsewhere.is_none() {
        reading.sources = reading.sources.replaced(Name::RopeFreqs, tensor.clone());
        (settings.rope_base, settings.rope_dims, settings.rope_scaling) = (None, None, None);
        settings.rope_freqs = Some(name.as_str().into());
    }
    settings.rope_attention_factor = factor.or(settings.rope_attention_factor);
    Ok(reading)
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
    if let (Some(OutputGradient::Ones), Some(name)) =
        (&settings.d_output, settings.first_gradient())
        && let Some(recorded) = sources.tensor(name)
        && !of_ones(recorded)
    {
        let stated = OutputGradient::Ones.to_string();
        found.push(Contradiction::of_numbers("d_output", name, stated, name.as_str()));
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
    Some(Contradiction::told(ROPE, Name::RopeFreqs, [stated, recorded], summary))
}

/// Frequencies as the powers of their base, if they are that.
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
