//! Where does the module end whose output a file holds?
//!
//! Some end at their heads, as BERT's `attention.self`, and some behind the residual, as BLOOM's. Such an output is read as
//! what it is, if it is that.

use super::reading::Reading;
use base::error::Result;
use config::End;
use file::{Entry, Record};
use foreign::{Match, last_segment, meanings};
use program::Name;

/// Readings of a file's output as that of a module which ends elsewhere, to be taken where they are the same.
///
/// # Errors
/// If candle fails.
pub fn other_endings(reading: &Reading) -> Result<Vec<Reading>> {
    if reading.is_tentative {
        return Ok(Vec::new());
    }
    if reading.record.config.is_some() || reading.settings.end.is_some() {
        return Ok(Vec::new());
    }
    Ok([at_heads(reading), behind_residual(reading)?].into_iter().flatten().collect())
}

/// The place of the output in a file.
fn output(record: &Record) -> Option<usize> {
    record.entries.iter().position(|entry| meanings(&entry.name).contains(&Name::Output))
}

/// The output as the heads side by side, where the output projection is in another module than the other three.
fn at_heads(reading: &Reading) -> Option<Reading> {
    let tensor = |step: Name| {
        let all = reading.sources.matches().iter().chain(&reading.matches);
        all.rev().find(|taken| taken.step == step.as_str()).map(|taken| taken.tensor.clone())
    };
    let (own, other) = (tensor(Name::WQ)?, tensor(Name::WO)?);
    // `attention.self.query.weight` is in `attention.self`.
    let (module, _) = own.rsplit_once('.')?.0.rsplit_once('.')?;
    let is_apart = !other.starts_with(&format!("{module}."));
    let has_concat = reading.record.tensor(Name::Concat.as_str()).is_some();
    let at = output(&reading.record).filter(|_| is_apart && !has_concat)?;
    let mut other = reading.clone();
    let taken = other.record.entries.get(at)?.name.clone();
    other.record.entries.get_mut(at)?.name = Name::Concat.to_string();
    other.settings.end = Some(End::Concat);
    let how = tr!("of {module}, which ends in front of the output projection", module);
    other.matches.push(Match::as_it_is(Name::Concat, taken).read(how));
    Some(Reading { is_tentative: true, ..other })
}

/// The output without the residual that the file has too.
fn behind_residual(reading: &Reading) -> Result<Option<Reading>> {
    let is_it = |entry: &Entry| last_segment(&entry.name).eq_ignore_ascii_case("residual");
    let entries = &reading.record.entries;
    let (Some(at), Some(residual)) = (output(&reading.record), entries.iter().position(is_it))
    else {
        return Ok(None);
    };
    let [whole, part] = [&entries[at], &entries[residual]];
    if whole.tensor.dims() != part.tensor.dims() || whole.tensor.dtype() != part.tensor.dtype() {
        return Ok(None);
    }
    let mut other = reading.clone();
    let how = tr!("without {residual}, which the module adds", residual = part.name);
    other.matches.push(Match::as_it_is(Name::Output, &whole.name).read(how));
    other.record.entries[at].tensor = whole.tensor.sub(&part.tensor)?;
    other.record.entries.remove(residual);
    Ok(Some(Reading { is_tentative: true, ..other }))
}
