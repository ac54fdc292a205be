//! `check` recomputes a recorded file from its own numbers.

use std::collections::HashMap;
use std::path::Path;

use candle_core::Tensor;

use super::diagnose::diagnose;
use super::evidence::Evidence;
use super::finding::Diagnosis;
use super::interpretation::{Interpretation, interpretations, told_mask};
use super::non_finite::NonFinite;
use super::report::{Report, Status, StepReport};
use super::tolerance::Tolerances;
use crate::config::{Mask, Settings};
use crate::error::{Error, Result};
use crate::file::{Record, read_place};
use crate::foreign::{Match, NameMap, Named, name_steps};
use crate::program::{Name, Op, Role, Trace};
use crate::run::Run;

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
    let mut record = read_place(path)?;
    let is_foreign = record.config.is_none();
    let mapped = map.apply(&mut [&mut record]).map_err(|error| error.in_file(path))?;
    let found = judged(&record, flags, tolerances).map_err(|error| error.in_file(path))?;
    let Recomputed { run, trace, named, mut steps, matches, diagnosis } = found;
    let is_of_run = |name: &str| {
        Name::in_files(name).is_some_and(|name| name.is_given() || trace.step(name).is_some())
    };
    let others = named.record.entries.iter().filter(|entry| !is_of_run(&entry.name));
    steps.extend(others.map(|entry| StepReport::missing(&entry.name)));
    let non_finite = NonFinite::first(&named.record, &trace)?;
    let report = Report::of(path, steps, tolerances)?;
    let differs = report.first_divergence().is_some();
    let fits_unmasked = differs && is_foreign && fits_unmasked(&record, flags, tolerances)?;
    let read_as = is_foreign.then(|| run.config().clone());
    let mask_read = trace.step(Name::Mask).filter(|mask| is_foreign && mask.op == Op::Given);
    let mask_read = mask_read.map(|mask| told_mask(&mask.value)).transpose()?;
    let matches = mapped.into_iter().chain(matches).chain(named.matches).collect();
    Ok(Report {
        labels: run.config().labels(),
        diagnosis,
        non_finite,
        read_as,
        mask_read,
        fits_unmasked,
        matches,
        unmatched: named.unmatched,
        ..report
    })
}

/// Whether the file is that of a run without the mask between positions that there is unless another is asked for.
fn fits_unmasked(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<bool> {
    if flags.mask.is_some() || flags.preset.is_some() {
        return Ok(false);
    }
    let unmasked = Settings { mask: Some(Mask::None), ..flags.clone() };
    let found = interpretations(record, &unmasked)?.into_iter().map(|interpretation| {
        let run = interpretation.run()?;
        recompute(interpretation, run, tolerances)
    });
    Ok(found.flatten().any(|found| found.is_same()))
}

/// A file's tensors beside those of its run.
struct Recomputed {
    run: Run,
    trace: Trace,
    named: Named,
    steps: Vec<StepReport>,
    matches: Vec<Match>,
    diagnosis: Option<Diagnosis>,
}

impl Recomputed {
    fn is_same(&self) -> bool {
        !self.steps.is_empty() && self.same() == self.steps.len()
    }

    fn same(&self) -> usize {
        self.steps.iter().filter(|step| step.status == Status::Same).count()
    }

    /// How many steps are wrong for no known reason.
    fn unexplained(&self) -> usize {
        self.diagnosis.as_ref().map_or(0, |diagnosis| diagnosis.unexplained.len())
    }

    /// Explains what differs.
    fn judge(mut self, noise_counts: bool) -> Result<Self> {
        if self.same() < self.steps.len() {
            let recorded = in_the_runs_type(&self.named.record, &self.trace)?;
            let config = self.run.config();
            let evidence = Evidence::new(config, &self.trace, &recorded, &self.named.record)?;
            self.diagnosis =
                Some(diagnose(&mut self.steps, &evidence, self.run.program(), noise_counts)?);
        }
        Ok(self)
    }
}

/// The file's run beside the file, explained. Of several ways to understand the file the one with the most steps that
/// are the same is taken; of equal ones, the first that a known mistake explains.
fn judged(record: &Record, flags: &Settings, tolerances: &Tolerances) -> Result<Recomputed> {
    let (mut found, mut refused) = (Vec::new(), None);
    for interpretation in interpretations(record, flags)? {
        // The settings can tell that a way is not meant, as those of so many items do.
        let run = match interpretation.run() {
            Ok(run) => run,
            Err(error) => {
                refused = refused.or(Some(error));
                continue;
            }
        };
        match recompute(interpretation, run, tolerances) {
            Ok(recomputed) if recomputed.is_same() => return Ok(recomputed),
            Ok(recomputed) => found.push(recomputed),
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => {}
        }
    }
    let most = found.iter().map(Recomputed::same).max();
    let mut best = None;
    found.retain(|recomputed| Some(recomputed.same()) == most);
    // A way that finds no step in the file does not understand it.
    found.sort_by_key(|recomputed| recomputed.steps.is_empty());
    for recomputed in found {
        let judged = recomputed.judge(tolerances.noise_counts)?;
        if judged.unexplained() == 0 {
            return Ok(judged);
        }
        // A reading that needs less to be wrong is likelier; of equal ones the plain one.
        let is_better = |best: &Recomputed| judged.unexplained() < best.unexplained();
        if best.as_ref().is_none_or(is_better) {
            best = Some(judged);
        }
    }
    let nothing = || Error::config("there is nothing to check", "record a step");
    best.ok_or_else(|| refused.unwrap_or_else(nothing))
}

fn recompute(
    interpretation: Interpretation,
    run: Run,
    tolerances: &Tolerances,
) -> Result<Recomputed> {
    let Interpretation { record, matches, tokens_first, .. } = interpretation;
    let trace = run.trace()?;
    let mut named = if record.config.is_some() {
        Named::as_it_is(record)
    } else {
        name_steps(&record, &trace, tokens_first)?
    };
    // What was not recorded is not asked for.
    let mut steps = Vec::new();
    for step in trace.steps().iter().filter(|step| step.name.role() == Role::Computed) {
        if let Some(recorded) = named.record.tensor(step.name.as_str()) {
            let (value, axes) = (&step.value, Some(&step.axes));
            let report =
                |recorded| StepReport::of(step.name.as_str(), recorded, value, axes, tolerances);
            let mut found = report(recorded)?;
            if found.status == Status::Differs
                && let Some(seen) = where_seen(&trace, step.name, recorded, value)?
            {
                let by_seen = report(&seen)?;
                if by_seen.status == Status::Same {
                    named.record.replace(step.name.as_str(), seen);
                    found = by_seen;
                }
            }
            steps.push(found);
        }
    }
    Ok(Recomputed { run, trace, named, steps, matches, diagnosis: None })
}

/// Scores before the mask, with the recomputed ones in the cells that it blocks: nothing reads those.
fn where_seen(
    trace: &Trace,
    name: Name,
    recorded: &Tensor,
    value: &Tensor,
) -> Result<Option<Tensor>> {
    let is_before = trace.position(name) < trace.position(Name::MaskedScores);
    let mask = trace.step(Name::Mask).filter(|_| name.row().is_of_scores() && is_before);
    match mask {
        Some(mask) if recorded.dims() == value.dims() => {
            let value = value.to_dtype(recorded.dtype())?;
            Ok(Some(mask.value.broadcast_as(value.shape())?.where_cond(&value, recorded)?))
        }
        Some(_) | None => Ok(None),
    }
}

/// The recorded values, and the trace's own of what is not computed, in the type that the run is computed in.
fn in_the_runs_type(record: &Record, trace: &Trace) -> Result<HashMap<Name, Tensor>> {
    let mut values = HashMap::new();
    for step in trace.steps() {
        if step.name.role() != Role::Computed {
            values.insert(step.name, step.value.clone());
        } else if let Some(recorded) = record.tensor(step.name.as_str())
            && recorded.dims() == step.value.dims()
        {
            values.insert(step.name, recorded.to_dtype(step.value.dtype())?);
        }
    }
    Ok(values)
}
