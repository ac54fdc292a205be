//! `diff` compares two files.

use std::path::Path;

use super::report::{Report, StepReport, mark_inherited};
use super::tolerance::Tolerances;
use crate::error::Result;
use crate::file::{Entry, Record, read_place};
use crate::foreign::{Match, NameMap, meanings};
use crate::program::{Axes, Axis, Dim, Name};
use crate::run::Sources;

/// Compares two recorded files step by step; nothing is recomputed. Steps are paired by name, which `map` may give
/// them, else by names that mean one step. Two files of one tensor each are compared whatever their names.
///
/// # Errors
/// If a file cannot be read, or they have no step in common.
pub fn diff(left: &Path, right: &Path, map: &NameMap, tolerances: &Tolerances) -> Result<Report> {
    let (mut record, mut other) = (read_place(left)?, read_place(right)?);
    let mut matches = map.apply(&mut [&mut record, &mut other])?;
    matches.extend(pair_up(&record, &mut other));
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
    mark_inherited(&mut steps, Name::descendants, &[], &[]);
    let config = record
        .config
        .as_ref()
        .map(|settings| Sources::recorded(&record, |_| true).resolve(settings));
    let labels = config.and_then(Result::ok).and_then(|config| config.labels());
    Ok(Report { labels, matches, ..Report::of(left, steps, tolerances)? })
}

/// Gives the tensors of `other` that mean a step of `record` its name, where only one of that shape does.
fn pair_up(record: &Record, other: &mut Record) -> Vec<Match> {
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
            taken.push(Match::as_it_is(name, &only.name).read("the name beside it"));
            only.name.clone_from(name);
        }
    }
    taken
}

/// Whether two names can mean one step.
fn mean_one_step(left: &str, right: &str) -> bool {
    let right = meanings(right);
    meanings(left).iter().any(|step| right.contains(step))
}

/// The axes that a file names, where they are known and as many as the tensor has.
fn named_axes(names: &[String], dims: &[usize]) -> Option<Axes> {
    let axes: Option<Vec<Dim>> =
        names.iter().zip(dims).map(|(name, size)| Some((Axis::named(name)?, *size))).collect();
    axes.filter(|axes| axes.len() == dims.len()).map(Axes::new)
}
