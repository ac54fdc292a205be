//! What is a recorded file as a trace? It has the file's own numbers wherever there are any.

use std::path::Path;

use super::best_reading::understood;
use super::recomputed::in_the_runs_type;
use base::error::Result;
use config::{Config, Settings};
use file::{Record, read_place};
use foreign::NameMap;
use program::{Step, Trace};

/// What a file recorded.
pub struct Recorded {
    /// The config that it is read under.
    pub config: Config,
    /// The file's own numbers, and where it lacks a step those that follow from them.
    pub trace: Trace,
}

/// The trace that a file recorded, understood as [`check`](super::check()) understands it: every step with the file's own
/// numbers, and steps that it lacks computed from those.
///
/// # Errors
/// If the file cannot be read, holds no computed step, or does not fit its own config or the flags.
pub fn recorded(path: &Path, flags: &Settings, map: &NameMap) -> Result<Recorded> {
    let mut record = read_place(path)?;
    map.apply(&mut [record.names_mut()]).map_err(|error| error.in_file(path))?;
    let found = understood(&record, flags).map_err(|error| error.in_file(path))?;
    let trace = own_trace(&found.named.record, &found.trace)?;
    Ok(Recorded { config: found.run.config().clone(), trace })
}

/// A file's own numbers, and where it lacks a step those that follow from them; `meant` is what the same run gives.
pub fn own_trace(record: &Record, meant: &Trace) -> Result<Trace> {
    let own = in_the_runs_type(record, meant)?;
    meant.run_with(|step: &Step, inputs: &[&_]| match own.get(&step.name) {
        Some(own) => Ok(own.clone()),
        None => step.op.eval(inputs),
    })
}
