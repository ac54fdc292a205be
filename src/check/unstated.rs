//! Which settings do the tensors of a file tell of that nothing states?

use candle_core::DType;

use super::cells::cells;
use super::reading::Draft;
use base::error::Result;
use config::{Setting, Settings};
use file::{Entry, Record};
use foreign::{Evidence, asked, last_segment, meanings};
use program::Name;

/// `ALiBi`, where it was stated that there is none and a model's file has its biases.
pub fn alibi_left_out(draft: &Draft) -> Option<Evidence> {
    let is_left_out = Setting::named("alibi")?.is_left_out(&draft.settings);
    let is_it = |entry: &&Entry| last_segment(&entry.name) == Name::Alibi.as_str();
    let entry = draft.record.entries.iter().find(is_it).filter(|_| is_left_out)?;
    Some(Evidence::of("alibi", Name::Alibi, entry, true.to_string()))
}

/// The probability of dropout, where none was stated and the file has the weights that it kept.
pub fn dropped(draft: &Draft) -> Result<Option<Evidence>> {
    let Draft { record, settings, .. } = draft;
    let is_left_out = Setting::named("dropout").is_some_and(|own| own.is_left_out(settings));
    if !is_left_out && settings.dropout != Some(0.0)
        || record.tensor(Name::DropoutKeep.as_str()).is_none()
    {
        return Ok(None);
    }
    let of = |name: Name| {
        let is_it = |entry: &&Entry| asked(&entry.name).first() == Some(&name);
        record.entries.iter().find(is_it)
    };
    let (Some(before), Some(behind)) = (of(Name::Weights), of(Name::WeightsDropped)) else {
        return Ok(None);
    };
    let (weights, dropped) = (cells(&before.tensor)?, cells(&behind.tensor)?);
    let (sum, all) = weights
        .iter()
        .zip(&dropped)
        .filter(|(_, own)| **own != 0.0)
        .fold((0.0, 0.0), |(sum, all), (weight, dropped)| (sum + weight, all + dropped));
    // Of f32, a sum of many is exact to this place.
    let share = ((1.0 - sum / all) * 1e6).round() / 1e6;
    let is_it = weights.len() == dropped.len() && share > 0.0 && share < 1.0;
    let evidence = || Evidence::of("dropout", Name::WeightsDropped, behind, share.to_string());
    Ok(is_it.then(evidence))
}

/// So many numbers tell their type.
const SAMPLE: usize = 1000;

/// Whether all numbers that other code wrote are in f64, and are not those of a narrower type that was widened.
pub fn is_of_f64(record: &Record) -> Result<bool> {
    let is_float =
        |entry: &&Entry| entry.tensor.dtype().is_float() && entry.tensor.elem_count() > 1;
    let floats = || record.entries.iter().filter(is_float);
    if floats().any(|entry| entry.tensor.dtype() != DType::F64) {
        return Ok(false);
    }
    for entry in floats() {
        #[allow(clippy::cast_possible_truncation, reason = "it is asked what that loses")]
        let is_wide = |number: &&f64| {
            number.is_finite() && f64::from(**number as f32).total_cmp(number).is_ne()
        };
        // Texts have numbers of f32 in eleven digits at most.
        let is_more = |number: &f64| format!("{number:.10e}").parse() != Ok(*number);
        if cells(&entry.tensor)?.iter().filter(is_wide).take(SAMPLE).any(is_more) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Has the run compute what the file has steps of that not every run has, where the settings do not say it.
pub fn bring_steps(record: &Record, settings: &mut Settings) {
    let has = |is_it: &dyn Fn(&Entry) -> bool| record.entries.iter().any(is_it);
    let may_be = |entry: &Entry, name| meanings(&entry.name).contains(&name);
    if has(&|entry| may_be(entry, Name::Lse)) {
        settings.lse.get_or_insert(true);
    }
    // With an axis of heads, the weights of every head have the same names.
    if has(&|entry| entry.tensor.rank() == 3 && may_be(entry, Name::WeightsMean)) {
        settings.mean_weights.get_or_insert(true);
    }
    let is_absorbed = |entry: &Entry| {
        let named = meanings(&entry.name);
        named.first().is_some_and(|name| [Name::QAbsorbed, Name::LatentOutputs].contains(name))
    };
    let has_latent =
        settings.kv_lora_rank.is_some() || record.tensor(Name::WDkv.as_str()).is_some();
    if has_latent && has(&is_absorbed) {
        settings.absorb.get_or_insert(true);
    }
}
