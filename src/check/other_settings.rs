//! Under which other settings would a file be the same?

use std::path::Path;
use std::time::{Duration, Instant};

use candle_core::{DType, Tensor};

use super::recomputed::{Recomputed, all_under};
use super::report::FitsKeys;
use super::tolerance::Tolerances;
use base::error::Result;
use config::Settings;
use file::Record;
use foreign::{FITS, layers_of, with_model};

/// Whether the file is that of a run under these settings.
///
/// # Errors
/// If the file cannot be understood.
pub fn fits_under(settings: &Settings, record: &Record, tolerances: &Tolerances) -> Result<bool> {
    Ok(all_under(record, settings, tolerances)?.any(|found| found.is_same()))
}

/// How long other layers are looked for.
const LAYERS: Duration = Duration::from_secs(10);

/// The layer of the file of weights whose weights give the recorded numbers but for rounding.
///
/// # Errors
/// If the file of weights cannot be read.
pub fn fitting_layer(
    record: &Record,
    flags: &Settings,
    tolerances: &Tolerances,
) -> Result<Option<String>> {
    let Some(weights) = &flags.weights else { return Ok(None) };
    let started = Instant::now();
    let own = flags.prefix.as_deref().unwrap_or_default();
    let layers = layers_of(Path::new(&weights.0))?;
    // The layer that was meant is none other.
    let is_other = |layer: &String| !format!(".{layer}.").contains(&format!(".{own}."));
    for layer in layers.into_iter().filter(is_other) {
        if started.elapsed() > LAYERS {
            break;
        }
        let Ok(others) = of_layer(flags, &layer) else { continue };
        // Layers of other sizes are none that were meant.
        for found in all_under(record, &others, tolerances).into_iter().flatten() {
            let apart = found.distances()?;
            if !apart.is_empty() && apart.iter().sum::<f64>() <= FITS {
                return Ok(Some(layer));
            }
        }
    }
    Ok(None)
}

/// The settings of another layer: a model's may be of another kind, with a window or frequencies of its own.
fn of_layer(flags: &Settings, prefix: &str) -> Result<Settings> {
    let prefix = Some(prefix.to_owned());
    match &flags.before_model {
        None => Ok(Settings { prefix, ..flags.clone() }),
        Some(stated) => {
            let mut words = prefix.iter().flat_map(|prefix| prefix.split('.'));
            let layer = words.find_map(|word| word.parse().ok());
            with_model(Settings { prefix, layer, ..(**stated).clone() })
        }
    }
}

/// The keys that recorded weights leave out, as the setting that says so, if the file is the same under it: those to which
/// no query of their item gives any weight.
///
/// # Errors
/// If the file cannot be understood.
pub fn fitting_keys(
    weights: &Tensor,
    record: &Record,
    flags: &Settings,
    tolerances: &Tolerances,
) -> Result<Option<FitsKeys>> {
    let is_stated = flags.key_mask.is_some() || flags.lengths.is_some();
    let Some(rows) = seen_keys(weights)?.filter(|_| !is_stated) else { return Ok(None) };
    let ends = |row: &String| {
        let length = row.trim_end_matches('0').len();
        Some(length).filter(|length| !row[..*length].contains('0'))
    };
    let lengths: Option<Vec<usize>> = rows.iter().map(ends).collect();
    let (others, told) = if let Some(lengths) = lengths {
        let told: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        let told = format!("lengths={}", told.join(","));
        (Settings { lengths: Some(lengths), ..flags.clone() }, told)
    } else {
        let told = format!("key_mask={}", rows.join(","));
        (Settings { key_mask: Some(rows), ..flags.clone() }, told)
    };
    let found: Vec<Recomputed> = all_under(record, &others, tolerances)?.collect();
    let is_same = found.iter().any(Recomputed::is_same);
    let fits = is_same || found.iter().any(|found| found.padded_rows.is_some());
    Ok(fits.then_some(FitsKeys { setting: told, is_same }))
}

/// The keys of every item that some query gives weight to, 1 and 0; nothing where all are. A query that gives all keys the
/// same weight sees none of them: it is padding.
fn seen_keys(weights: &Tensor) -> Result<Option<Vec<String>>> {
    let Ok((batch, _, _, keys)) = weights.dims4() else { return Ok(None) };
    let rows = weights.reshape((batch, (), keys))?.to_dtype(DType::F64)?.to_vec3::<f64>()?;
    #[allow(clippy::float_cmp, reason = "of one softmax of equal scores")]
    let is_even = |row: &[f64]| row.windows(2).all(|pair| pair[0] == pair[1]);
    let of_item = |rows: &Vec<Vec<f64>>| {
        let rows: Vec<&Vec<f64>> = rows.iter().filter(|row| keys < 2 || !is_even(row)).collect();
        let is_seen = |key: usize| rows.iter().any(|row| row[key] != 0.0);
        (0..keys).map(|key| if is_seen(key) { '1' } else { '0' }).collect::<String>()
    };
    let seen: Vec<String> = rows.iter().map(of_item).collect();
    Ok(Some(seen).filter(|seen| seen.iter().any(|row| row.contains('0') && row.contains('1'))))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn keys_without_weight_are_padding_and_even_rows_tell_nothing() {
        let weights: Vec<f64> = vec![0.5, 0.5, 0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0, 0.2, 0.8, 0.0];
        let weights = Tensor::from_vec(weights, (1, 1, 3, 3), &Device::Cpu).expect("fits");
        assert_eq!(seen_keys(&weights).expect("four axes"), Some(vec!["110".to_owned()]));
        let all = Tensor::ones((1, 1, 3, 3), DType::F64, &Device::Cpu).expect("made");
        assert_eq!(seen_keys(&all).expect("four axes"), None);
    }
}
