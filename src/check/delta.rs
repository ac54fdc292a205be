//! In which ways can a file of the delta rule be understood?

use super::reading::{Draft, Reading};
use base::error::Result;
use config::Settings;
use file::{Entry, Record};
use foreign::{
    Inputs, Unmatched, WeightScales, delta_rules, find_inputs, is_called, take_arguments,
    take_evidence, take_gradients,
};
use program::Name;

/// The ways to understand a file of the delta rule. Its gradients are left aside.
///
/// # Errors
/// If a tensor is missing, or none of them fits.
pub fn of_delta_rule(mut record: Record, flags: &Settings) -> Result<Vec<Reading>> {
    // What is called delta here is no gradient's.
    let is_written =
        |entry: &&mut Entry| is_called(&entry.name, &["delta"]) && entry.tensor.rank() > 2;
    if let Some(written) = record.entries.iter_mut().find(is_written) {
        written.name = Name::VNew.to_string();
    }
    // Nor are its chunks those of a mask.
    let is_of_mask = |entry: &&mut Entry| is_called(&entry.name, &["chunk_size", "chunk"]);
    if let Some(size) = record.entries.iter_mut().find(is_of_mask) {
        "bt".clone_into(&mut size.name);
    }
    let gradients = take_gradients(&mut record);
    let unread =
        |entry: &Entry, why: &str| Unmatched { tensor: entry.name.clone(), why: why.to_owned() };
    let not_computed = tr!("gradients of the delta rule are not computed");
    let mut left: Vec<Unmatched> =
        gradients.iter().map(|entry| unread(entry, not_computed)).collect();
    // Beside w, u is (1 + A)⁻¹ β v of a chunk, and not what is written.
    if record.entries.iter().any(|entry| is_called(&entry.name, &["w"])) {
        let of_chunk = |entry: &mut Entry| is_called(&entry.name, &["w", "u"]);
        let why = tr!("products within a chunk are no steps of the rule");
        left.extend(record.entries.extract_if(.., of_chunk).map(|entry| unread(&entry, why)));
    }
    let Inputs { mut record, matches, unmatched, .. } = find_inputs(record, flags)?;
    let mut settings = Settings { prefix: None, ..flags.clone() };
    let evidence = take_evidence(&mut record, |setting| setting.is_set(flags))?;
    let mut taken = matches;
    taken.extend(take_arguments(&mut record, &mut settings)?);
    let mut all = Vec::new();
    let mut refused = None;
    let is_norm_told = taken.iter().any(|own| own.step == "qk_norm");
    for rule in delta_rules(record, &settings, is_norm_told)? {
        let draft = Draft {
            record: rule.record,
            settings: rule.settings,
            matches: [taken.clone(), rule.matches].concat(),
            unmatched: unmatched.clone(),
            evidence: evidence.clone(),
            scales: WeightScales::default(),
        };
        match draft.reading(None) {
            Ok(reading) => all.push(Reading { is_tentative: rule.is_tentative, ..reading }),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    for reading in &mut all {
        reading.unmatched.extend(left.iter().cloned());
    }
    match refused {
        Some(error) if all.is_empty() => Err(error),
        _ => Ok(all),
    }
}
