//! `check` recomputes a recorded file from its own numbers; `diff` compares two files.

use std::collections::HashSet;
use std::path::Path;

use candle_core::Tensor;

use super::compare::compare;
use super::tolerance::{Tolerance, Tolerances};
use super::{Report, Status, StepReport};
use crate::config::Settings;
use crate::error::{Error, Result};
use crate::file::{Entry, Record};
use crate::source::{Role, Sources};
use crate::trace::{Axes, Axis, Op, Program, Run};

/// Recomputes every recorded step of the file at `path` from its own inputs, weights and masks, and compares.
/// `flags` override the file's config. Left is recorded, right recomputed.
///
/// # Errors
/// If the file cannot be read, holds no computed step, or does not fit its own config.
pub fn check(path: &Path, flags: &Settings, tolerances: &Tolerances) -> Result<Report> {
    let record = Record::read(path)?;
    let (settings, sources) =
        Sources::of_record(&record, flags).map_err(|error| in_file(path, &error))?;
    let run = Run::new(&settings, sources).map_err(|error| in_file(path, &error))?;
    let trace = run.trace().map_err(|error| in_file(path, &error))?;
    let mut steps = Vec::new();
    for step in trace.steps().iter().filter(|step| step.op != Op::Given) {
        let recorded = record.tensor(&step.name);
        let step =
            compare_step(&step.name, recorded, Some(&step.value), Some(&step.axes), tolerances)?;
        steps.push(step);
    }
    // What was not recorded is not asked for; what was recorded and is no step of this run cannot be right.
    steps.retain(|step| step.status != Status::Missing);
    let computed = record.entries.iter().filter(|entry| Role::of(&entry.name).is_none());
    let unknown = computed.filter(|entry| trace.step(&entry.name).is_none());
    steps.extend(unknown.map(|entry| missing(&entry.name)));
    finish(path, steps, run.program(), tolerances)
}

/// Compares two recorded files step by step; nothing is recomputed.
///
/// # Errors
/// If a file cannot be read, or they have no step in common.
pub fn diff(left: &Path, right: &Path, tolerances: &Tolerances) -> Result<Report> {
    let (record, other) = (Record::read(left)?, Record::read(right)?);
    let mut steps = Vec::new();
    for Entry { name, axes, tensor, .. } in &record.entries {
        let axes = axes.as_ref().and_then(|axes| named_axes(axes, tensor.dims()));
        steps.push(compare_step(
            name,
            Some(tensor),
            other.tensor(name),
            axes.as_ref(),
            tolerances,
        )?);
    }
    let unknown = other.entries.iter().filter(|entry| record.tensor(&entry.name).is_none());
    steps.extend(unknown.map(|entry| missing(&entry.name)));
    finish(left, steps, &Program::complete()?, tolerances)
}

fn finish(
    path: &Path,
    mut steps: Vec<StepReport>,
    program: &Program,
    tolerances: &Tolerances,
) -> Result<Report> {
    let known: HashSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    if let Some(name) = tolerances.steps().find(|name| !known.contains(name)) {
        let what = format!("a tolerance is set for {name}, and no step is called that");
        return Err(Error::config(what, "use a name from the report"));
    }
    mark_inherited(&mut steps, program);
    let report = Report { path: path.display().to_string(), steps };
    if report.compared() == 0 {
        let fix = "record at least one computed step under its name, such as output";
        return Err(Error::file(path, "there is no step to compare", fix));
    }
    Ok(report)
}

fn compare_step(
    name: &str,
    left: Option<&Tensor>,
    right: Option<&Tensor>,
    axes: Option<&Axes>,
    tolerances: &Tolerances,
) -> Result<StepReport> {
    let (Some(left), Some(right)) = (left, right) else { return Ok(missing(name)) };
    let mut report = StepReport {
        name: name.to_owned(),
        status: Status::Differs,
        axes: axes.cloned(),
        comparison: None,
        shapes: None,
    };
    if left.dims() != right.dims() {
        report.shapes = Some((left.dims().to_vec(), right.dims().to_vec()));
        return Ok(report);
    }
    let default = Tolerance::of(left.dtype()).looser(Tolerance::of(right.dtype()));
    let comparison = compare(left, right, tolerances.of(name, default))?;
    if comparison.mismatched == 0 {
        report.status = Status::Same;
    }
    report.comparison = Some(comparison);
    Ok(report)
}

fn missing(name: &str) -> StepReport {
    let name = name.to_owned();
    StepReport { name, status: Status::Missing, axes: None, comparison: None, shapes: None }
}

/// A step that differs only downstream of one that differs has inherited it.
fn mark_inherited(steps: &mut [StepReport], program: &Program) {
    let differing: Vec<String> = steps
        .iter()
        .filter(|step| step.status == Status::Differs)
        .map(|step| step.name.clone())
        .collect();
    let downstream = program.downstream_of(&differing);
    for step in steps {
        if step.status == Status::Differs && downstream.contains(&step.name) {
            step.status = Status::Inherited;
        }
    }
}

/// The axes that a file names, where they are known and as many as the tensor has.
fn named_axes(names: &[String], dims: &[usize]) -> Option<Axes> {
    let axes: Option<Vec<(Axis, usize)>> =
        names.iter().zip(dims).map(|(name, size)| Some((Axis::named(name)?, *size))).collect();
    axes.filter(|axes| axes.len() == dims.len()).map(Axes::new)
}

/// The error, with the file that it comes from.
fn in_file(path: &Path, error: &Error) -> Error {
    match error {
        Error::TooLarge { needed, available } => {
            Error::TooLarge { needed: *needed, available: *available }
        }
        other => Error::file(path, other.to_string(), other.fix()),
    }
}
