//! `check` recomputes a recorded file from its own numbers; `diff` compares two files.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use candle_core::Tensor;

use super::compare::compare;
use super::diagnose::{Evidence, Finding};
use super::foreign::{self, Adopted, adopt};
use super::meant::{Meant, meant};
use super::tolerance::{Tolerance, Tolerances};
use super::{Report, Status, StepReport};
use crate::config::Settings;
use crate::error::{Error, Result};
use crate::file::{Entry, Record};
use crate::source::{NameMap, Role, Taken};
use crate::trace::{Axes, Axis, Op, Program, Run, Trace};

/// Recomputes every recorded step of the file at `path` from its own inputs, weights and masks, and compares.
/// `flags` override the file's config; of a file without one, they say what was meant, and `map` which tensor is which
/// step where its name does not. Left is recorded, right recomputed.
///
/// # Errors
/// If the file cannot be read, holds no computed step, or does not fit its own config or the flags.
pub fn check(
    path: &Path,
    flags: &Settings,
    map: &NameMap,
    tolerances: &Tolerances,
) -> Result<Report> {
    let mut record = foreign::read(path)?;
    let is_foreign = record.config.is_none();
    let mapped = map.apply(&mut record, &step_names()?).map_err(|error| error.in_file(path))?;
    let found = judged(&record, flags, tolerances).map_err(|error| error.in_file(path))?;
    let Recomputed { run, trace, adopted, mut steps, taken, diagnosis } = found;
    let computed = adopted.record.entries.iter().filter(|entry| Role::of(&entry.name).is_none());
    let unknown = computed.filter(|entry| trace.step(&entry.name).is_none());
    steps.extend(unknown.map(|entry| missing(&entry.name)));
    let report = finish(path, steps, diagnosis, tolerances)?;
    let read_as = is_foreign.then(|| run.config().clone());
    let taken = mapped.into_iter().chain(taken).chain(adopted.taken).collect();
    Ok(Report { read_as, taken, left: adopted.left, ..report })
}

/// The names of all steps that a run can have.
fn step_names() -> Result<Vec<String>> {
    Ok(Program::complete()?.steps().iter().map(|step| step.name.clone()).collect())
}

/// A file's tensors beside those of its run.
struct Recomputed {
    run: Run,
    trace: Trace,
    adopted: Adopted,
    steps: Vec<StepReport>,
    taken: Vec<Taken>,
    diagnosis: Option<Vec<Finding>>,
}

impl Recomputed {
    fn same(&self) -> usize {
        self.steps.iter().filter(|step| step.status == Status::Same).count()
    }

    /// Explains what differs.
    fn judge(mut self) -> Result<Self> {
        if self.same() < self.steps.len() {
            let recorded = in_the_runs_type(&self.adopted.record, &self.trace)?;
            let config = self.run.config();
            let evidence = Evidence::new(config, &self.trace, &recorded, &self.adopted.record)?;
            self.diagnosis = Some(judge(&mut self.steps, &evidence, self.run.program())?);
        }
        Ok(self)
    }
}

/// The file's run beside the file, explained. Of several ways to understand the file the one with the most steps that
/// are the same is taken; of equal ones, the first that a known mistake explains.
fn judged(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<Recomputed> {
    let (mut found, mut refused) = (Vec::new(), None);
    for meant in meant(record, flags)? {
        match recompute(meant, tolerances) {
            Ok(recomputed) if recomputed.same() == recomputed.steps.len() => return Ok(recomputed),
            Ok(recomputed) => found.push(recomputed),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let most = found.iter().map(Recomputed::same).max();
    let mut best = None;
    for recomputed in found.into_iter().filter(|recomputed| Some(recomputed.same()) == most) {
        let judged = recomputed.judge()?;
        if judged.diagnosis.as_ref().is_some_and(|findings| !findings.is_empty()) {
            return Ok(judged);
        }
        best = best.or(Some(judged));
    }
    let nothing = || Error::config("there is nothing to check", "record a step");
    best.ok_or_else(|| refused.unwrap_or_else(nothing))
}

fn recompute(meant: Meant, tolerances: &Tolerances) -> Result<Recomputed> {
    let settings = meant.decided()?;
    let Meant { record, sources, taken, .. } = meant;
    let run = Run::new(&settings, sources)?;
    let trace = run.trace()?;
    let adopted = if record.config.is_some() {
        Adopted { record, taken: Vec::new(), left: Vec::new() }
    } else {
        adopt(&record, &trace)?
    };
    // What was not recorded is not asked for.
    let mut steps = Vec::new();
    for step in trace.steps().iter().filter(|step| step.op != Op::Given) {
        if let Some(recorded) = adopted.record.tensor(&step.name) {
            let (value, axes) = (&step.value, Some(&step.axes));
            steps.push(compare_step(&step.name, recorded, value, axes, tolerances)?);
        }
    }
    Ok(Recomputed { run, trace, adopted, steps, taken, diagnosis: None })
}

/// Tells the steps that are wrong by themselves from those that only inherit it, and names the mistake.
///
/// A step whose inputs were all recorded is computed again from those: if that gives what was recorded, the step
/// is right. Where inputs are missing, a step that reads a differing one counts as inheriting from it.
fn judge(steps: &mut [StepReport], evidence: &Evidence, program: &Program) -> Result<Vec<Finding>> {
    let (mut at_fault, mut right_by_itself, mut unproven) = (Vec::new(), Vec::new(), false);
    for report in steps.iter() {
        let Some(step) = evidence.trace.step(&report.name) else { continue };
        match evidence.is_right(step)? {
            Some(true) => right_by_itself.push(report.name.clone()),
            Some(false) => at_fault.push(step),
            None => unproven |= report.status == Status::Differs,
        }
    }
    let diagnosis = match (at_fault.as_slice(), unproven) {
        // Every step is right by itself: what differs is rounding, carried on.
        ([], false) => vec![evidence.rounding()],
        ([], true) if evidence.is_right_throughout()? => vec![evidence.rounding()],
        ([], true) => evidence.explain_by_whole_runs()?,
        (at_fault, _) => evidence.explain(at_fault)?,
    };
    if diagnosis.iter().any(Finding::is_rounding) {
        for step in steps.iter_mut().filter(|step| step.status == Status::Differs) {
            step.status = Status::Same;
        }
    } else {
        let wrong: Vec<String> = at_fault.iter().map(|step| step.name.clone()).collect();
        mark_inherited(steps, program, &wrong, &right_by_itself);
    }
    Ok(diagnosis)
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
    finish(left, steps, None, tolerances)
}

fn finish(
    path: &Path,
    steps: Vec<StepReport>,
    diagnosis: Option<Vec<Finding>>,
    tolerances: &Tolerances,
) -> Result<Report> {
    let known: HashSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
    if let Some(name) = tolerances.steps().find(|name| !known.contains(name)) {
        let what = format!("a tolerance is set for {name}, and no step is called that");
        return Err(Error::config(what, "use a name from the report"));
    }
    let path_shown = path.display().to_string();
    let (read_as, taken, left) = (None, Vec::new(), Vec::new());
    let report = Report { path: path_shown, steps, diagnosis, read_as, taken, left };
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
fn mark_inherited(
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
