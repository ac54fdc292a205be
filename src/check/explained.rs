//! What explains a file best: as it is read, in the splits or tiles that it has states of, or without what it keeps in a way of
//! its own?

use std::sync::Arc;

use super::best_reading::{best, likely};
use super::recomputed::Recomputed;
use super::recorded_parts::in_recorded_parts;
use super::tolerance::Tolerances;
use base::error::Result;
use config::{Settings, Start};
use file::Record;
use foreign::{Match, Unmatched};
use program::Name;

/// The file's run beside the file, explained. Of the [`likely`] readings the one is taken that leaves the fewest steps without
/// an explanation, the likeliest first.
///
/// # Errors
/// If the file cannot be understood, or candle fails.
pub fn explained(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<Recomputed> {
    let found = best(likely(record, flags, tolerances)?, tolerances)?;
    if let Some(other) = in_recorded_parts(record, flags, tolerances, &found)? {
        return Ok(other);
    }
    let is_of_merge = found.is_of_the_merge();
    if !found.is_unknown() && !is_of_merge || record.config.is_some() {
        return Ok(found);
    }
    let states = found.states_of_parts();
    if states.is_empty() && is_of_merge {
        return Ok(found);
    }
    if states.is_empty() {
        return Ok(in_splits(record, flags, tolerances, &found).unwrap_or(found));
    }
    if let Some(other) = in_base_two(record, &found, flags, tolerances)? {
        return Ok(other);
    }
    // Kernels keep them in ways of their own; where they go with nothing, the results alone may say what is wrong.
    let mut rest = record.clone();
    rest.entries.retain(|entry| !states.contains(&entry.name));
    let mut other = best(likely(&rest, flags, tolerances)?, tolerances)?;
    if !other.is_explained() {
        return Ok(found);
    }
    let why = tr!("what is found gives the results, and this is kept in another way than here");
    let aside = states.into_iter().map(|tensor| Unmatched { tensor, why: why.to_owned() });
    other.unmatched.extend(aside);
    Ok(other)
}

/// What a kernel's file would be whose maxima and log-sum-exps are in base 2, where they are nearer in that and a mistake gives
/// its numbers then.
fn in_base_two(
    record: &Record,
    found: &Recomputed,
    flags: &Settings,
    tolerances: &Tolerances,
) -> Result<Option<Recomputed>> {
    let binary = found.logarithms_in_base_two()?;
    if binary.is_empty() {
        return Ok(None);
    }
    let mut natural = record.clone();
    for entry in &mut natural.entries {
        if binary.iter().any(|(_, tensor)| *tensor == entry.name) {
            entry.tensor = (&entry.tensor * std::f64::consts::LN_2)?;
        }
    }
    let mut other = best(likely(&natural, flags, tolerances)?, tolerances)?;
    if !other.is_explained() || other.states_of_parts().is_empty() {
        return Ok(None);
    }
    for (step, tensor) in binary {
        let how = tr!("in base 2, times ln 2");
        other.matches.push(Match::as_it_is(step.as_str(), tensor).read(how));
    }
    Ok(Some(other))
}

/// How many splits of the keys decoding kernels have that do not say so.
const SPLITS: [usize; 4] = [2, 4, 8, 3];

/// Beyond so many scores a kernel's splits have to be stated, as each number of them is searched as a whole.
const MOST_SCORES: usize = 1 << 16;

/// What a kernel's file would be in splits of which nothing was said, where a mistake in these gives its numbers.
fn in_splits(
    record: &Record,
    flags: &Settings,
    tolerances: &Tolerances,
    found: &Recomputed,
) -> Option<Recomputed> {
    let is_kernel = found.run.config().start != Start::Inputs;
    let scores = found.trace.step(Name::Weights).map(|step| step.value.elem_count());
    if !is_kernel || found.trace.parts().is_some() || scores.is_none_or(|all| all > MOST_SCORES) {
        return None;
    }
    let tried = Arc::new(found.mistakes().ok()?);
    for count in SPLITS.into_iter().filter(|count| 2 * count <= found.run.config().sizes.keys()) {
        let flags = Settings { splits: Some(vec![count]), ..flags.clone() };
        let Ok(mut readings) = likely(record, &flags, tolerances) else { continue };
        for reading in readings.likeliest.iter_mut().chain(&mut readings.plain) {
            reading.tried = Some(Arc::clone(&tried));
        }
        let Ok(mut other) = best(readings, tolerances) else { continue };
        // What splits do not have, as gradients, is not left out for them.
        let is_whole = other.unmatched.len() <= found.unmatched.len();
        if is_whole && other.is_explained() && !other.is_same() {
            let how = tr!("nothing says so, and what is found goes by them");
            other.matches.push(Match::as_it_is("splits", count.to_string()).read(how));
            return Some(other);
        }
    }
    None
}
