//! `diff` compares two files.

use std::path::Path;

use super::foreign::{self, step_names};
use super::report::{Report, StepReport, mark_inherited};
use super::tolerance::Tolerances;
use crate::error::Result;
use crate::file::{Entry, Record};
use crate::source::{NameMap, Sources, Taken, meanings};
use crate::trace::{Axes, Axis, Program};

/// Compares two recorded files step by step; nothing is recomputed. Steps are paired by name, which `map` may give
/// them, else by names that mean one step. Two files of one tensor each are compared whatever their names.
///
/// # Errors
/// If a file cannot be read, or they have no step in common.
pub fn diff(left: &Path, right: &Path, map: &NameMap, tolerances: &Tolerances) -> Result<Report> {
    let (mut record, mut other) = (foreign::read(left)?, foreign::read(right)?);
    let mut taken = map.apply(&mut [&mut record, &mut other], &step_names()?)?;
    taken.extend(pair_up(&record, &mut other));
    let mut steps = Vec::new();
    for Entry { name, axes, tensor, .. } in &record.entries {
        let axes = axes.as_ref().and_then(|axes| named_axes(axes, tensor.dims()));
        steps.push(match other.tensor(name) {
            Some(other) => StepReport::of(name, tensor, other, axes.as_ref(), tolerances)?,
            None => StepReport::missing(name),
        });
    }
    let unknown = other.entries.iter().filter(|entry| record.tensor(&entry.name).is_none());
    steps.extend(unknown.map(|entry| StepReport::missing(&entry.name)));
    mark_inherited(&mut steps, &Program::complete()?, &[], &[]);
    let config = record
        .config
        .as_ref()
        .map(|settings| Sources::recorded(&record, |_| true).resolve(settings));
    let labels = config.and_then(Result::ok).and_then(|config| config.labels());
    Ok(Report { labels, taken, ..Report::of(left, steps, tolerances)? })
}

/// Gives the tensors of `other` that mean a step of `record` its name, where only one of that shape does.
fn pair_up(record: &Record, other: &mut Record) -> Vec<Taken> {
    let mut taken = Vec::new();
    let both_single = record.entries.len() == 1 && other.entries.len() == 1;
    for Entry { name, tensor, .. } in &record.entries {
        if other.tensor(name).is_some() {
            continue;
        }
        let may_be = |entry: &&mut Entry| {
            record.tensor(&entry.name).is_none()
                && (both_single
                    || entry.tensor.dims() == tensor.dims() && mean_one_step(&entry.name, name))
        };
        let mut candidates: Vec<&mut Entry> = other.entries.iter_mut().filter(may_be).collect();
        if let [only] = candidates.as_mut_slice() {
            taken.push(Taken::as_it_is(name, &only.name).read("the name beside it"));
            only.name.clone_from(name);
        }
    }
    taken
}

/// Whether two names can mean one step.
fn mean_one_step(left: &str, right: &str) -> bool {
    meanings(left).iter().any(|step| meanings(right).contains(step))
}

/// The axes that a file names, where they are known and as many as the tensor has.
fn named_axes(names: &[String], dims: &[usize]) -> Option<Axes> {
    let axes: Option<Vec<(Axis, usize)>> =
        names.iter().zip(dims).map(|(name, size)| Some((Axis::named(name)?, *size))).collect();
    axes.filter(|axes| axes.len() == dims.len()).map(Axes::new)
}
