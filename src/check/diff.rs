//! `diff` compares two files.

use std::collections::HashSet;
use std::path::Path;

use super::report::{Report, StepReport, mark_inherited};
use super::tolerance::Tolerances;
use crate::error::{Error, Result, bytes};
use crate::file::{Entry, Record, read_place, split_path};
use crate::foreign::{AxisOrder, Match, NameMap, Unmatched, fitting, meanings};
use crate::lang::Language;
use crate::memory::lacking;
use crate::program::{Axes, Axis, Dim, Name};
use crate::run::Sources;

/// What is done about the steps that one side alone has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OneSided {
    /// They are a difference.
    #[default]
    Differ,
    /// They are named, and left out.
    LeftOut,
}

/// Compares two recorded files step by step; nothing is recomputed. Steps are paired by name, which `map` may give
/// them, else by names that mean one step, in whatever order of axes where a file names its axes. Two files of one
/// tensor each are compared whatever their names, but for the names of two steps, if these were not asked for.
///
/// # Errors
/// If a file cannot be read, or they have no step in common.
pub fn diff(
    left: &Path,
    right: &Path,
    map: &NameMap,
    tolerances: &Tolerances,
    one_sided: OneSided,
) -> Result<Report> {
    compared(left, right, map, tolerances, one_sided).map(|compared| compared.report)
}

/// Two compared files: what was found, and what they hold.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Compared {
    /// What was found.
    pub report: Report,
    /// What the left file holds, under the names of the report.
    pub left: Record,
    /// What the right file holds.
    pub right: Record,
}

/// The same as [`diff`], with the numbers.
///
/// # Errors
/// As [`diff`].
pub fn compared(
    left: &Path,
    right: &Path,
    map: &NameMap,
    tolerances: &Tolerances,
    one_sided: OneSided,
) -> Result<Compared> {
    let spoken = Language::spoken();
    let read = |place| spoken.within(|| read_place(place));
    let (record, other) = rayon::join(|| read(left), || read(right));
    let (mut record, mut other) = (record?, other?);
    refuse_beyond_memory(left, &[&record, &other])?;
    let mut matches = map.apply(&mut [&mut record, &mut other])?;
    let both_chosen = [left, right].into_iter().all(names_a_tensor);
    matches.extend(pair_up(&mut record, &mut other, both_chosen)?);
    let (mut steps, mut unmatched) = (Vec::new(), Vec::new());
    let mut lone = |name: &str, side: &str| match one_sided {
        OneSided::Differ => Some(StepReport::missing(name)),
        OneSided::LeftOut => {
            let why = tr!("only in the {side} file", side);
            unmatched.push(Unmatched { tensor: name.to_owned(), why });
            None
        }
    };
    for Entry { name, axes, tensor, .. } in &record.entries {
        let axes = axes.as_ref().and_then(|axes| named_axes(axes, tensor.dims()));
        steps.extend(match other.tensor(name) {
            Some(other) => Some(StepReport::of(name, tensor, other, axes.as_ref(), tolerances)?),
            None => lone(name, "left"),
        });
    }
    let unknown = other.entries.iter().filter(|entry| record.tensor(&entry.name).is_none());
    steps.extend(unknown.filter_map(|entry| lone(&entry.name, "right")));
    mark_inherited(&mut steps, Name::descendants, &[], &[]);
    let config = record.config.as_ref().map(|settings| {
        let start = settings.start.unwrap_or_default();
        Sources::recorded(&record, start, |_| true).resolve(settings)
    });
    let labels = config.and_then(Result::ok).and_then(|config| config.labels());
    let report = Report { labels, matches, unmatched, ..Report::of(left, steps, tolerances)? };
    Ok(Compared { report, left: record, right: other })
}

/// Refuses tensors that the machine cannot hold once more, as numbers of eight bytes, and their difference.
fn refuse_beyond_memory(path: &Path, records: &[&Record]) -> Result<()> {
    let entries = records.iter().flat_map(|record| &record.entries);
    let largest = entries.map(|entry| entry.tensor.elem_count()).max().unwrap_or(0);
    let needed = (largest as u128).saturating_mul(3 * 8);
    let Some(available) = lacking(needed) else { return Ok(()) };
    let (needed, available) = (bytes(needed), bytes(available.into()));
    let what =
        tr!("takes {needed} to compare, and this machine has {available} free", needed, available);
    Err(Error::file(
        path,
        what,
        "compare one tensor at a time, as FILE:TENSOR, or free some memory",
    ))
}

/// Gives the tensors of `other` that mean a step of `record` its name, where only one of that shape does, and both
/// tensors of a step the order of axes that one of the files names.
fn pair_up(record: &mut Record, other: &mut Record, both_chosen: bool) -> Result<Vec<Match>> {
    let mut taken = Vec::new();
    let both_single = record.entries.len() == 1 && other.entries.len() == 1;
    let names: HashSet<String> = record.entries.iter().map(|entry| entry.name.clone()).collect();
    for entry in &mut record.entries {
        let exact = other.entries.iter().position(|other| other.name == entry.name);
        let found = exact.or_else(|| {
            let fits = |other: &Entry| {
                other.tensor.dims() == entry.tensor.dims() || !orders(entry, other).is_empty()
            };
            let may_be = |other: &Entry| {
                let is_meant = mean_one_step(&other.name, &entry.name) && fits(other)
                    || both_single && (both_chosen || !mean_two_steps(&other.name, &entry.name));
                !names.contains(&other.name) && is_meant
            };
            let mut all = other.entries.iter().enumerate().filter(|(_, other)| may_be(other));
            all.next().filter(|_| all.next().is_none()).map(|(at, _)| at)
        });
        let Some(partner) = found.and_then(|at| other.entries.get_mut(at)) else { continue };
        let order = in_one_order(entry, partner)?;
        if exact.is_none() || order.is_some() {
            let taken_as = Match::as_it_is(&entry.name, &partner.name);
            taken.push(match order {
                Some(order) => taken_as.read(tr!("axes {order}", order)),
                None => taken_as.read(tr!("the name beside it")),
            });
        }
        partner.name.clone_from(&entry.name);
    }
    Ok(taken)
}

/// The orders that the axes of one tensor can have where the other's are named.
fn orders(named: &Entry, open: &Entry) -> Vec<AxisOrder> {
    let axes = named.axes.as_ref().and_then(|axes| named_axes(axes, named.tensor.dims()));
    let orders = axes.map(|axes| AxisOrder::all(&axes, open.tensor.dims())).unwrap_or_default();
    let stated = |order: &AxisOrder| open.axes.as_ref().is_none_or(|axes| order.names() == *axes);
    orders.into_iter().filter(stated).collect()
}

/// Brings one of two tensors into the order of axes that the other's file names, and tells which it had.
fn in_one_order(left: &mut Entry, right: &mut Entry) -> Result<Option<AxisOrder>> {
    let (named, open) = if left.axes.is_some() { (left, right) } else { (right, left) };
    let orders = orders(named, open);
    let read = orders.iter().map(|order| (order, &named.tensor));
    let nearest = fitting(&open.tensor, read)?.unwrap_or(0);
    let Some(order) = orders.into_iter().nth(nearest).filter(|order| !order.is_plain()) else {
        return Ok(None);
    };
    open.tensor = order.apply(&open.tensor)?;
    open.axes.clone_from(&named.axes);
    Ok(Some(order))
}

/// Whether two names can mean one step.
fn mean_one_step(left: &str, right: &str) -> bool {
    let right = meanings(right);
    meanings(left).iter().any(|step| right.contains(step))
}

/// Whether a place is one tensor of a file, or a file that can hold one alone.
fn names_a_tensor(place: &Path) -> bool {
    let (path, asked) = split_path(place);
    asked.is_some() || path.extension().is_some_and(|extension| extension == "npy")
}

/// Whether two names mean steps, and no step is among those of both.
fn mean_two_steps(left: &str, right: &str) -> bool {
    !meanings(left).is_empty() && !meanings(right).is_empty() && !mean_one_step(left, right)
}

/// The axes that a file names, where they are known and as many as the tensor has.
fn named_axes(names: &[String], dims: &[usize]) -> Option<Axes> {
    let axes: Option<Vec<Dim>> =
        names.iter().zip(dims).map(|(name, size)| Some((Axis::named(name)?, *size))).collect();
    axes.filter(|axes| axes.len() == dims.len()).map(Axes::new)
}
