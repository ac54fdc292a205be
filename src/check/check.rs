//! Is a recorded file what its own numbers give? `check` recomputes it.

use std::collections::HashMap;
use std::path::Path;

use candle_core::Tensor;

use super::explained::explained;
use super::finding::Diagnosis;
use super::flash::flash_errors;
use super::mask_words::told_mask;
use super::non_finite::NonFinite;
use super::other_settings::{fits_under, fitting_keys, fitting_layer};
use super::recomputed::{Recomputed, in_the_runs_type};
use super::recorded::own_trace;
use super::report::Report;
use super::step_report::{Status, StepReport};
use super::streamed::same;
use super::tolerance::Tolerances;
use super::written::holds_nan;
use base::error::{Error, Result};
use config::{Config, Mask, Settings, Start};
use file::{Record, open_place, read_place};
use foreign::{NameMap, is_gradient, unknown};
use program::{Name, Op, Trace};

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
    let mut files = open_place(path)?;
    // What is wrong with the file is told where it is checked as a whole.
    if *map == NameMap::default()
        && let Ok(Some((run, steps))) = same(&mut files, flags, tolerances)
        && let Ok(report) = Report::of(path, steps, tolerances)
    {
        return Ok(Report { labels: run.config().labels(), ..report });
    }
    checked_whole(path, files.read()?, flags, map, tolerances).map(|checked| checked.report)
}

/// A checked file: what was found, and the numbers of both sides.
#[derive(Debug, Clone)]
pub struct Checked {
    /// What was found.
    pub report: Report,
    /// The setting that the file was read under.
    pub config: Config,
    /// What was recomputed.
    pub trace: Trace,
    record: Record,
}

impl Checked {
    /// What was recorded, in the type of the run, where it has the shape that it should have; of steps that are not
    /// computed, what the run was given.
    ///
    /// # Errors
    /// If candle fails.
    pub fn recorded(&self) -> Result<HashMap<Name, Tensor>> {
        in_the_runs_type(&self.record, &self.trace)
    }

    /// The trace of the file's own numbers, and where it lacks a step of those that follow from them.
    ///
    /// # Errors
    /// If candle fails.
    pub fn own_trace(&self) -> Result<Trace> {
        own_trace(&self.record, &self.trace)
    }
}

/// The same as [`check`], with the numbers.
///
/// # Errors
/// As [`check`].
pub fn checked(
    path: &Path,
    flags: &Settings,
    map: &NameMap,
    tolerances: &Tolerances,
) -> Result<Checked> {
    checked_whole(path, read_place(path)?, flags, map, tolerances)
}

/// Whether a finding is that values are read where what attention makes of them is meant, as it is of one key alone.
fn skips_attention(diagnosis: &Diagnosis) -> bool {
    let of_values = [Name::V, Name::VHeads, Name::VRepeated].map(Some);
    diagnosis.findings.iter().any(|found| of_values.contains(&found.instead))
}

/// The same of a record that has been read, or put together.
pub(super) fn checked_whole(
    path: &Path,
    mut record: Record,
    flags: &Settings,
    map: &NameMap,
    tolerances: &Tolerances,
) -> Result<Checked> {
    let is_foreign = record.config.is_none();
    let mapped = map.apply(&mut [record.names_mut()]).map_err(|error| error.in_file(path))?;
    let found = explained(&record, flags, tolerances).map_err(|error| error.in_file(path))?;
    let Recomputed {
        run,
        trace,
        named,
        mut steps,
        matches,
        unmatched,
        is_trivial,
        padded_rows,
        diagnosis,
        mut contradictions,
        ..
    } = found;
    let is_of_run = |name: &str| {
        Name::in_files(name).is_some_and(|name| name.is_given() || trace.step(name).is_some())
    };
    // What our own file has before the start or behind the end that a flag states is left aside.
    let is_cut_off = |name: &str| {
        let step = Name::in_files(name).filter(|_| !is_foreign);
        step.is_some_and(|step| run.config().lies_outside(step))
    };
    let others = named.record.entries.iter();
    let others = others.filter(|entry| !is_of_run(&entry.name) && !is_cut_off(&entry.name));
    steps.extend(others.map(|entry| StepReport::missing(&entry.name)));
    let non_finite = NonFinite::first(&named.record, &trace)?;
    contradictions.extend(holds_nan(non_finite.as_ref(), &named.record)?);
    let flash = tolerances.flash.then(|| flash_errors(&named.record, &trace)).transpose()?;
    for beyond in flash.iter().flatten().filter(|error| !error.is_within()) {
        let beyond = steps.iter_mut().filter(|step| step.step == Some(beyond.step));
        beyond
            .filter(|step| step.status == Status::Same)
            .for_each(|step| step.status = Status::Differs);
    }
    let unknown = if steps.is_empty() { unknown(&record) } else { String::new() };
    if !unknown.is_empty() {
        let what = tr!("there is no step to compare; no step has the name {unknown}", unknown);
        return Err(Error::file(
            path,
            what,
            tr!(
                "say which step one of them is, for example `map={unknown}=output`",
                unknown = unknown.split(", ").next().unwrap_or_default()
            ),
        ));
    }
    let report = Report::of(path, steps, tolerances)?;
    let differs = report.first_divergence().is_some();
    let other = if run.config().start == Start::Inputs { Mask::None } else { Mask::Causal };
    let fits = |others: Settings| fits_under(&others, &record, tolerances);
    let may_be_other = is_foreign && flags.mask.is_none() && flags.preset.is_none();
    let fits_other =
        differs && may_be_other && fits(Settings { mask: Some(other), ..flags.clone() })?;
    let fits_single_tokens = is_foreign
        && diagnosis.as_ref().is_some_and(skips_attention)
        && flags.seq_len.is_none()
        && unmatched.is_empty()
        && explained(&record, &Settings { seq_len: Some(1), ..flags.clone() }, tolerances)
            .is_ok_and(|found| found.is_same() && found.unmatched.is_empty());
    let unexplained = diagnosis.as_ref().is_some_and(|found| !found.unexplained.is_empty());
    let is_open = differs && is_foreign && unexplained;
    let weights = named.record.tensor(Name::Weights.as_str());
    let fits_keys = match weights.filter(|_| differs && is_foreign) {
        Some(weights) => fitting_keys(weights, &record, flags, tolerances)?,
        None => None,
    };
    let fits_layer = if is_open { fitting_layer(&record, flags, tolerances)? } else { None };
    let read_as = is_foreign.then(|| run.config().clone());
    let mask_read = trace.step(Name::Mask).filter(|mask| is_foreign && mask.op == Op::Given);
    let mask_read = mask_read.map(|mask| told_mask(&mask.value)).transpose()?;
    let matches = mapped.into_iter().chain(matches).chain(named.matches).collect();
    let is_unchecked = unmatched.iter().any(|tensor| is_gradient(&tensor.tensor));
    let report = Report {
        has_unchecked_gradients: is_unchecked && !tolerances.ignores_gradients,
        labels: run.config().labels(),
        contradictions,
        diagnosis,
        non_finite,
        read_as,
        mask_read,
        fits_unmasked: fits_other && other == Mask::None,
        fits_causal: fits_other && other == Mask::Causal,
        fits_single_tokens: is_trivial || fits_single_tokens,
        fits_layer,
        fits_keys,
        flash,
        matches,
        padded_rows,
        unmatched,
        ..report
    };
    Ok(Checked { report, config: run.config().clone(), trace, record: named.record })
}
