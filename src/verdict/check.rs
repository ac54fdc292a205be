//! `check` recomputes a recorded file from its own numbers; `diff` compares two files.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use candle_core::Tensor;

use super::compare::compare;
use super::diagnose::diagnose;
use super::evidence::Evidence;
use super::finding::Diagnosis;
use super::non_finite::NonFinite;
use super::tolerance::{Tolerance, Tolerances};
use super::{Report, Status, StepReport};
use crate::config::Settings;
use crate::error::{Error, Result};
use crate::file::{Entry, Record};
use crate::source::{Role, Sources};
use crate::trace::{Axes, Axis, Op, Program, Run, Trace};

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
    // What was not recorded is not asked for; what was recorded and is no step of this run cannot be right.
    let mut steps = Vec::new();
    for step in trace.steps().iter().filter(|step| step.op != Op::Given) {
        if let Some(recorded) = record.tensor(&step.name) {
            let (value, axes) = (&step.value, Some(&step.axes));
            steps.push(compare_step(&step.name, recorded, value, axes, tolerances)?);
        }
    }
    let mut diagnosis = None;
    if steps.iter().any(|step| step.status == Status::Differs) {
        let recorded = in_the_runs_type(&record, &trace)?;
        let evidence = Evidence::new(run.config(), &trace, &recorded, &record)?;
        diagnosis = Some(diagnose(&mut steps, &evidence, run.program(), tolerances.noise_counts)?);
    }
    let computed = record.entries.iter().filter(|entry| Role::of(&entry.name).is_none());
    let unknown = computed.filter(|entry| trace.step(&entry.name).is_none());
    steps.extend(unknown.map(|entry| missing(&entry.name)));
    let non_finite = NonFinite::first(&record, &trace)?;
    finish(path, steps, diagnosis, non_finite, tolerances)
}

/// The recorded values, and the trace's given ones, in the type that the run is computed in.
fn in_the_runs_type(record: &Record, trace: &Trace) -> Result<HashMap<String, Tensor>> {
    let mut values = HashMap::new();
    for step in trace.steps() {
        if step.op == Op::Given {
            values.insert(step.name.clone(), step.value.clone());
        } else if let Some(recorded) = record.tensor(&step.name)
            && recorded.dims() == step.value.dims()
        {
            values.insert(step.name.clone(), recorded.to_dtype(step.value.dtype())?);
        }
    }
    Ok(values)
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
        steps.push(match other.tensor(name) {
            Some(other) => compare_step(name, tensor, other, axes.as_ref(), tolerances)?,
            None => missing(name),
        });
    }
    let unknown = other.entries.iter().filter(|entry| record.tensor(&entry.name).is_none());
    steps.extend(unknown.map(|entry| missing(&entry.name)));
    mark_inherited(&mut steps, &Program::complete()?, &[], &[]);
    finish(left, steps, None, None, tolerances)
}

fn finish(
    path: &Path,
    steps: Vec<StepReport>,
    diagnosis: Option<Diagnosis>,
    non_finite: Option<NonFinite>,
    tolerances: &Tolerances,
) -> Result<Report> {
    let known: HashSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    if let Some(name) = tolerances.steps().find(|name| !known.contains(name)) {
        let what = format!("a tolerance is set for {name}, and no step is called that");
        return Err(Error::config(what, "use a name from the report"));
    }
    let report = Report { path: path.display().to_string(), steps, diagnosis, non_finite };
    if report.compared() == 0 {
        let fix = "record at least one computed step under its name, such as output";
        return Err(Error::file(path, "there is no step to compare", fix));
    }
    Ok(report)
}

fn compare_step(
    name: &str,
    left: &Tensor,
    right: &Tensor,
    axes: Option<&Axes>,
    tolerances: &Tolerances,
) -> Result<StepReport> {
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

/// A step that differs downstream of one that differs has inherited it, unless it is wrong by itself.
pub fn mark_inherited(
    steps: &mut [StepReport],
    program: &Program,
    wrong_by_itself: &[String],
    right_by_itself: &[String],
) {
    let differing = steps.iter().filter(|step| step.status == Status::Differs);
    let differing: Vec<String> = differing.map(|step| step.name.clone()).collect();
    let downstream = program.downstream_of(&differing);
    for step in steps.iter_mut().filter(|step| step.status == Status::Differs) {
        let inherits = downstream.contains(&step.name) || right_by_itself.contains(&step.name);
        if inherits && !wrong_by_itself.contains(&step.name) {
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
