//! Where does the module end whose output a file holds?
//!
//! Some end at their heads, as BERT's `attention.self`, and some behind the residual, as BLOOM's. Such an output is read as
//! what it is, if it is that; one behind a residual that nothing tells is not compared.

use candle_core::Tensor;

use super::finding::Contradiction;
use super::reading::Reading;
use base::error::Result;
use config::End;
use file::{Entry, Record};
use foreign::{Match, Unmatched, adds_residual, is_called, meanings};
use program::Name;

/// Readings of a file's output as that of a module which ends elsewhere, to be taken where they are the same.
///
/// # Errors
/// If candle fails.
pub fn other_endings(reading: &Reading) -> Result<Vec<Reading>> {
    if reading.is_tentative {
        return Ok(Vec::new());
    }
    if reading.record.config.is_some() {
        return Ok(Vec::new());
    }
    if let Some(end) = reading.settings.end {
        return Ok(at_output(reading, end).into_iter().collect());
    }
    Ok(at_heads(reading).into_iter().chain(behind_residual(reading)?).collect())
}

/// The place of the output in a file.
fn output(record: &Record) -> Option<usize> {
    let is_it = |entry: &Entry| meanings(&entry.name).first() == Some(&Name::Output);
    let may_be = |entry: &Entry| meanings(&entry.name).contains(&Name::Output);
    record.entries.iter().position(is_it).or_else(|| record.entries.iter().position(may_be))
}

/// The output as that of the output projection, where the run was stated to end before it.
fn at_output(reading: &Reading, end: End) -> Option<Reading> {
    let at = output(&reading.record).filter(|_| end != End::Output)?;
    let is_named = reading.record.tensor(end.step().as_str()).is_none();
    if !is_named || !reading.sources.has(Name::WO) {
        return None;
    }
    let mut other = reading.clone();
    other.settings.end = Some(End::Output);
    let both = [end, End::Output].map(|end| end.to_string());
    let tensor = &reading.record.entries[at].name;
    other.contradictions.push(Contradiction::of("end", Name::Output, both, tensor));
    Some(Reading { is_tentative: true, ..other })
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
    let how = tr!("of {module}, which ends before the output projection", module);
    other.matches.push(Match::as_it_is(Name::Concat, taken).read(how));
    Some(Reading { is_tentative: true, ..other })
}

/// The output without the residual that the file has too. Where only the model's module is known to add one, it may be X;
/// otherwise the output is left out, as nothing tells the residual.
fn behind_residual(reading: &Reading) -> Result<Vec<Reading>> {
    let Some(at) = output(&reading.record) else { return Ok(Vec::new()) };
    let is_it = |entry: &Entry| is_called(&entry.name, &["residual"]);
    let residual = reading.record.entries.iter().position(is_it);
    if let Some(residual) = residual {
        let Entry { name, tensor, .. } = reading.record.entries[residual].clone();
        let mut other = without(reading, at, &name, &tensor)?;
        if let Some(other) = &mut other {
            other.record.entries.remove(residual);
        }
        return Ok(other.into_iter().collect());
    }
    if !adds_residual(&reading.settings) {
        return Ok(Vec::new());
    }
    let x = reading.sources.tensor(Name::X);
    let of_x = x.map_or(Ok(None), |x| without(reading, at, Name::X.as_str(), x))?;
    let mut open = reading.clone();
    let tensor = open.record.entries.remove(at).name;
    let why =
        tr!("the module adds a residual to it, which the file lacks: record that as residual");
    open.unmatched.push(Unmatched { tensor, why: why.to_owned() });
    Ok(of_x.into_iter().chain([open]).collect())
}

/// A reading with its output at that place less a residual of the same shape.
fn without(reading: &Reading, at: usize, name: &str, residual: &Tensor) -> Result<Option<Reading>> {
    let whole = &reading.record.entries[at];
    let is_like =
        whole.tensor.dims() == residual.dims() && whole.tensor.dtype() == residual.dtype();
    if !is_like {
        return Ok(None);
    }
    let mut other = reading.clone();
    let how = tr!("without {residual}, which the module adds", residual = name);
    other.matches.push(Match::as_it_is(Name::Output, &whole.name).read(how));
    other.record.entries[at].tensor = whole.tensor.sub(residual)?;
    Ok(Some(Reading { is_tentative: true, ..other }))
}
