//! What does a recorded file say of its mask?

use candle_core::{DType, Tensor};

use super::cells::cells;
use base::error::Result;
use config::Settings;
use file::Record;
use foreign::{FoundMask, are_booleans, either_way};
use program::{Name, first_number};

/// Whether the settings say what a mask of the file's would.
pub fn replaces_mask(record: &Record, settings: &Settings) -> bool {
    record.tensor(Name::Mask.as_str()).is_some()
        && settings.attn_mask.is_none()
        && settings.replace("attn_mask")
}

/// The ways to read a file's `mask` beside the one that the run has it by: all where the settings say what it would, and
/// else 1 as what is seen, as its name does not say what 1 means.
///
/// # Errors
/// If candle fails.
pub fn masks_against(record: &Record, settings: &Settings) -> Result<Vec<FoundMask>> {
    let mut ways = masks_beside(record)?;
    if !replaces_mask(record, settings) {
        ways.drain(..ways.len().min(1));
    }
    Ok(if settings.attn_mask.is_some() { Vec::new() } else { ways })
}

/// The ways to read a file's `mask`: floats are added to the scores, and 1 may mean either.
///
/// # Errors
/// If candle fails.
pub fn masks_beside(record: &Record) -> Result<Vec<FoundMask>> {
    let name = Name::Mask.as_str();
    let Some(mask) = record.tensor(name) else { return Ok(Vec::new()) };
    if mask.dtype().is_float() && !are_booleans(&cells(mask)?) {
        return Ok(vec![FoundMask::of(name, mask.clone(), tr!("added to the scores"))]);
    }
    Ok(either_way(name, mask)?.into())
}

/// Whether a boolean mask, true where a query attends, lets some query attend to no key.
///
/// # Errors
/// If candle fails.
pub fn leaves_rows_empty(mask: &Tensor) -> Result<bool> {
    let dims = mask.dims();
    let has_queries = dims.len() > 1 && dims[dims.len() - 2] > 1;
    if mask.dtype().is_float() || !has_queries {
        return Ok(false);
    }
    let most = mask.to_dtype(DType::U8)?.max(dims.len() - 1)?;
    Ok(most.flatten_all()?.to_vec1::<u8>()?.contains(&0))
}

/// Whether a file holds a NaN.
///
/// # Errors
/// If candle fails.
pub fn has_nan(record: &Record) -> Result<bool> {
    for entry in record.entries.iter().filter(|entry| entry.tensor.dtype().is_float()) {
        if first_number(&entry.tensor, f64::is_nan)?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}
