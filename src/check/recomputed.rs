//! How do a file's tensors compare with those of its run, under one reading of the file?

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use candle_core::{D, DType, Tensor};

use super::agreement::Agreement;
use super::catalogue::{Situation, candidates};
use super::diagnose::Case;
use super::finding::{Contradiction, Diagnosis};
use super::half::half;
use super::padding::{PaddedRows, Padding};
use super::products::Lowered;
use super::reading::Reading;
use super::readings::readings;
use super::scope::where_seen;
use super::step_report::{Status, StepReport};
use super::thresholds::WEIGHTLESS;
use super::tolerance::{Tolerances, size_of_loss};
use base::error::Result;
use config::{Settings, Start};
use file::Record;
use foreign::{Match, Named, Orders, Unmatched, as_kept, distance, is_of_flashinfer, name_steps};
use program::{Name, Precision, Role, Step, Trace};
use run::Run;

/// A file's tensors beside those of its run.
pub struct Recomputed {
    pub run: Run,
    pub trace: Trace,
    pub named: Named,
    pub steps: Vec<StepReport>,
    pub matches: Vec<Match>,
    pub unmatched: Vec<Unmatched>,
    /// Whether X was read as (`seq_len`, batch, `d_in`).
    pub tokens_first: bool,
    /// Whether attention does nothing to X as it was read, and nothing says that it was meant so.
    pub is_trivial: bool,
    /// The rows that are left out.
    padding: Option<Padding>,
    pub padded_rows: Option<PaddedRows>,
    pub diagnosis: Option<Diagnosis>,
    /// Where this goes by what was recorded, and not by what was stated.
    pub contradictions: Vec<Contradiction>,
    /// The mistakes that were tried in another run of the file, as they are told: they are not tried again.
    pub tried: Option<Arc<HashSet<String>>>,
}

impl Recomputed {
    pub fn is_same(&self) -> bool {
        !self.steps.is_empty() && self.same() == self.steps.len()
    }

    /// Whether mistakes are named that give all that differs.
    pub fn is_explained(&self) -> bool {
        self.diagnosis.as_ref().is_none_or(|found| found.unexplained.is_empty())
    }

    /// Whether none is named of what differs.
    pub fn is_unknown(&self) -> bool {
        !self.is_explained()
            && self.diagnosis.as_ref().is_some_and(|found| found.findings.is_empty())
    }

    /// Whether what is named goes wrong where splits are merged, and says of these themselves that they are kept in another way.
    pub fn is_of_the_merge(&self) -> bool {
        let findings = self.diagnosis.iter().flat_map(|found| &found.findings);
        let is_state = |name: Name| self.trace.step(name).is_some_and(Step::is_of_parts);
        self.trace.step(Name::Sinks).is_some()
            && findings.into_iter().any(|found| {
                is_state(found.step)
                    && found.step != Name::SplitWeights
                    && found.is_told_at(Name::SplitWeights)
            })
    }

    /// The mistakes that can have been made in this run, as they are told.
    pub fn mistakes(&self) -> Result<HashSet<String>> {
        let recorded = &in_the_runs_type(&self.named.record, &self.trace)?;
        let situation = Situation { config: self.run.config(), right: &self.trace, recorded };
        Ok(candidates(&situation)?.into_iter().map(|one| one.summary).collect())
    }

    /// The file's tensors that are states of splits or tiles.
    pub fn states_of_parts(&self) -> Vec<String> {
        let steps =
            self.trace.steps().iter().filter(|step| step.is_of_parts() && step.is_computed());
        steps.filter_map(|step| self.tensor_of(step.name)).collect()
    }

    /// Whether a state of splits or tiles is as it should be.
    pub fn has_right_parts(&self) -> bool {
        let is_right = |step: &StepReport| {
            let is_of_parts =
                |own: &Step| own.is_of_parts() && own.is_computed() && Some(own.name) == step.step;
            step.status == Status::Same && self.trace.steps().iter().any(is_of_parts)
        };
        self.steps.iter().any(is_right)
    }

    /// The file's tensors that are maxima and log-sum-exps of splits or tiles, and are nearer to what they should be if they are
    /// in base 2, or give the log-sum-exp that was recorded of all, whatever that should be.
    pub fn logarithms_in_base_two(&self) -> Result<Vec<(Name, String)>> {
        let mut all = Vec::new();
        for name in [Name::TileMax, Name::SplitMax, Name::SplitLse] {
            let recorded = self.named.record.tensor(name.as_str());
            if let (Some(step), Some(recorded)) = (self.trace.step(name), recorded)
                && recorded.dtype().is_float()
                && recorded.dims() == step.value.dims()
                && self.is_in_base_two(step, recorded)?
            {
                all.extend(self.tensor_of(name).map(|tensor| (name, tensor)));
            }
        }
        Ok(all)
    }

    fn is_in_base_two(&self, step: &Step, recorded: &Tensor) -> Result<bool> {
        let natural = (recorded * std::f64::consts::LN_2)?;
        let [sums, lse] =
            [Name::TileSum, Name::Lse].map(|name| self.named.record.tensor(name.as_str()));
        if let (Name::TileMax, Some(sums), Some(lse)) = (step.name, sums, lse)
            && sums.dims() == recorded.dims()
            && recorded.dims().get(1..) == Some(lse.dims())
        {
            let last = |x: &Tensor| x.get(x.dim(0)?.saturating_sub(1))?.to_dtype(DType::F64);
            let apart = |largest: &Tensor| distance(lse, &last(largest)?.add(&last(sums)?.log()?)?);
            return Ok(apart(&natural)? < apart(recorded)?);
        }
        Ok(distance(&natural, &step.value)? < distance(recorded, &step.value)?)
    }

    /// The file's tensor that is a step.
    fn tensor_of(&self, step: Name) -> Option<String> {
        let name = step.as_str();
        let matched = self.matches.iter().chain(&self.named.matches).find(|own| own.step == name);
        let is_there = self.named.record.tensor(name).is_some();
        is_there.then(|| matched.map_or(name, |own| own.tensor.as_str()).to_owned())
    }

    /// Whether X may have been meant as items of one token each, where it was read so: a step behind the weights was
    /// recorded, where tokens of one item have been mixed, and nothing else has to be read in a way of its own. Queries, keys
    /// and values have an order of axes that other tensors share.
    pub fn may_be_single_tokens(&self) -> bool {
        let mixed = self.trace.descendants(|step| step.name == Name::Weights);
        let mut mixed = self.trace.steps().iter().zip(mixed).filter(|(_, is_mixed)| *is_mixed);
        let is_compared =
            |step: &Step| self.steps.iter().any(|found| found.step == Some(step.name));
        // Where X is read tokens-first, so is the rest; an output alone may stand in either order.
        let is_turned = self.named.has_turned
            && !self.tokens_first
            && self.steps.len() > 1
            && self.run.config().start == Start::Inputs;
        let is_plain = self.unmatched.is_empty() && !is_turned;
        is_plain && mixed.any(|(step, _)| is_compared(step))
    }

    fn same(&self) -> usize {
        self.steps.iter().filter(|step| step.status == Status::Same).count()
    }

    /// The [`distance`] of every recorded step from the recomputed one, 1 where the shapes differ.
    pub fn distances(&self) -> Result<Vec<f64>> {
        let steps = self.steps.iter().filter_map(|found| self.trace.step(found.step?));
        steps
            .map(|step| {
                let recorded = self.named.record.tensor(step.name.as_str());
                let recorded = recorded.filter(|recorded| recorded.dims() == step.value.dims());
                recorded.map_or(Ok(1.0), |recorded| distance(recorded, &step.value))
            })
            .collect()
    }

    /// How many steps are wrong for no known reason.
    pub fn unexplained(&self) -> usize {
        self.diagnosis.as_ref().map_or(0, |diagnosis| diagnosis.unexplained.len())
    }

    /// Whether tensors are read in another order of axes than their names have, though their lengths allow that one.
    pub fn is_turned(&self) -> bool {
        self.tokens_first || self.named.is_reordered
    }

    /// Whether one mistake is all that is wrong.
    fn has_one_mistake(&self) -> bool {
        let findings = self.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
        self.unexplained() == 0 && findings.filter(|found| !found.is_rounding()).count() == 1
    }

    /// Whether this reading, in which nothing is turned, needs one mistake alone where another one turns something as well.
    pub fn is_plainer(&self, other: &Self) -> bool {
        other.is_turned() && other.unexplained() == self.unexplained() && self.has_one_mistake()
    }

    /// Explains what differs. Numbers of 16 bits may all be within the tolerance of their type, and be off together by more
    /// than rounding: that differs too, unless the tolerance was asked for.
    pub fn judge(mut self, tolerances: &Tolerances, patience: Option<Duration>) -> Result<Self> {
        // Rows that are left out have the run's numbers, and say nothing of the type.
        let half = match &self.padding {
            Some(padding) => half(&padding.emptied(&self.named.record, &self.trace)?, &self.trace)?,
            None => half(&self.named.record, &self.trace)?,
        };
        let may_share = !tolerances.are_set() && half.is_some();
        if self.same() == self.steps.len() && !may_share {
            return Ok(self);
        }
        let mut recorded = in_the_runs_type(&self.named.record, &self.trace)?;
        let config = self.run.config();
        if let Some(padding) = &self.padding {
            padding.unrecorded(&self.trace, &mut recorded)?;
        }
        let has_gaps = self.padding.is_some();
        let agreement = Agreement::measured(&self.trace, &recorded, half, has_gaps, tolerances)?;
        let (trace, noise_counts) = (&self.trace, tolerances.noise_counts);
        let (recorded, agreement) = (&recorded, &agreement);
        let tried = self.tried.as_deref();
        let case = Case { config, trace, recorded, agreement, noise_counts, tried };
        if may_share {
            let off = case.off_within_tolerance(&self.steps)?;
            let off = self
                .steps
                .iter_mut()
                .filter(|found| found.step.is_some_and(|step| off.contains(&step)));
            off.for_each(|found| found.status = Status::Differs);
        }
        if self.steps.iter().any(|found| found.status != Status::Same) {
            self.diagnosis = Some(case.diagnose(&mut self.steps, patience)?);
        }
        Ok(self)
    }
}

/// The file's runs under other settings, but for those that cannot be made.
pub fn all_under(
    record: &Record,
    settings: &Settings,
    tolerances: &Tolerances,
) -> Result<impl Iterator<Item = Recomputed>> {
    // What attention does nothing to is the same under any mask.
    let all = readings(record, settings)?.into_iter();
    let all = all.filter(|reading| !reading.is_trivial && !reading.is_tentative);
    Ok(all.filter_map(move |mut reading| {
        let run = reading.run().ok()?;
        recompute(reading, run, tolerances, Orders::Any).ok()
    }))
}

/// The file's tensors beside those of a run, under a reading of the file, with tensors of steps' names in these
/// `orders` of axes.
///
/// # Errors
/// If two tensors would be the same step, or candle fails.
pub fn recompute(
    reading: Reading,
    run: Run,
    tolerances: &Tolerances,
    orders: Orders,
) -> Result<Recomputed> {
    let fill_is_open = reading.settings.mask_fill.is_none() && reading.record.config.is_none();
    // What follows from heads stands in their order, unless its numbers say another.
    let known = (reading.tokens_first, reading.settings.qkv_format.or(reading.format));
    let Reading {
        record, matches, mut unmatched, tokens_first, is_trivial, contradictions, ..
    } = reading;
    let trace = run.trace()?;
    let tolerances = &Tolerances { loss: Some(size_of_loss(&trace)?), ..tolerances.clone() };
    let is_read = |taken: &Match| {
        let parameter = Name::named(&taken.step).filter(|name| name.role() == Role::Parameter);
        parameter.is_none_or(|name| trace.step(name).is_some())
    };
    let (matches, in_vain): (Vec<Match>, Vec<Match>) = matches.into_iter().partition(is_read);
    let mut unread: Vec<String> = run.unread().map(str::to_owned).collect();
    let in_vain = in_vain.into_iter().filter(|taken| !taken.filled);
    unread.extend(in_vain.map(|taken| taken.tensor));
    unread.sort();
    unread.dedup();
    unmatched.extend(unread.into_iter().map(Unmatched::unread));
    let mut named = if record.config.is_some() {
        Named::as_it_is(record)
    } else {
        let rounded = in_the_files_type(&record, &trace)?;
        let own = rounded.as_ref().unwrap_or(&trace);
        let tensors = matches.iter().map(|own| own.tensor.as_str());
        let said = reading.evidence.iter().map(|own| own.tensor.as_str());
        let others = record.entries.iter().map(|own| own.name.as_str());
        let is_binary = is_of_flashinfer(tensors.chain(said).chain(others));
        as_kept(name_steps(&record, own, known, orders)?, own, is_binary)?
    };
    let left_out = tolerances.ignores_padding.then(|| Padding::of(run.config(), &trace));
    let padding = left_out.transpose()?.flatten();
    // What was not recorded is not asked for.
    let mut steps = Vec::new();
    for step in trace.steps().iter().filter(|step| step.is_computed()) {
        let name = step.name.as_str();
        let Some(recorded) = named.record.tensor(name) else { continue };
        let filled = padding.as_ref().map(|left| left.replaced(step, recorded, &step.value));
        let filled = filled.transpose()?.flatten();
        let recorded = filled.as_ref().unwrap_or(recorded);
        let (report, seen) = compared(&trace, step, recorded, fill_is_open, tolerances)?;
        if let Some(other) = seen.or(filled) {
            named.record.replace(name, other);
        }
        steps.push(report);
    }
    let padded_rows = match &padding {
        Some(padding) => Some(PaddedRows { rows: padding.told()?, left_out: true }),
        None => only_padded_rows(&run, &trace, &named.record, &steps, tolerances)?,
    };
    unmatched.append(&mut named.unmatched);
    // An output that was there and not compared is not the same.
    let ends = run.config().ends();
    let is_compared = steps.iter().any(|step| step.step.is_some_and(|step| ends.contains(&step)));
    let may_be = |tensor: &Unmatched| ends.iter().any(|end| tensor.may_be(*end));
    if !is_compared && unmatched.iter().any(may_be) {
        steps.push(StepReport::missing(Name::Output.as_str()));
    }
    Ok(Recomputed {
        run,
        trace,
        named,
        steps,
        matches,
        unmatched,
        tokens_first,
        is_trivial,
        padding,
        padded_rows,
        diagnosis: None,
        contradictions,
        tried: None,
    })
}

/// The run with every step in the 16-bit type that the file was computed in, if it was in one: what such a file holds can
/// be told by these numbers where rounding leads far away from the others.
fn in_the_files_type(record: &Record, trace: &Trace) -> Result<Option<Trace>> {
    let Some(half) = half(record, trace)? else { return Ok(None) };
    let Some(precision) = Precision::of_tensors(half) else { return Ok(None) };
    let lowered = Lowered::every_step(precision);
    let eval = |step: &Step, inputs: &[&Tensor]| {
        if step.is_computed() { lowered.eval(step, inputs) } else { Ok(step.value.clone()) }
    };
    trace.run_with(eval).map(Some)
}

/// A recorded step beside the recomputed one, and the value that it was compared by where that is not the recorded one.
fn compared(
    trace: &Trace,
    step: &Step,
    recorded: &Tensor,
    fill_is_open: bool,
    tolerances: &Tolerances,
) -> Result<(StepReport, Option<Tensor>)> {
    let report = |recorded| {
        let name = step.name.as_str();
        StepReport::of(name, recorded, &step.value, Some(&step.axes), tolerances)
    };
    let found = report(recorded)?;
    let seen = || match step.name {
        Name::MaskedScores if fill_is_open => with_its_fill(trace, recorded, &step.value),
        name => where_seen(trace, name, recorded, &step.value),
    };
    if found.status == Status::Differs
        && let Some(seen) = seen()?
    {
        let by_seen = report(&seen)?;
        if by_seen.status == Status::Same {
            return Ok((by_seen, Some(seen)));
        }
    }
    Ok((found, None))
}

/// Scores behind the mask, with the run's fill in the blocked cells that have no weight on either side: which low number that
/// is makes no difference, where nothing states it.
fn with_its_fill(trace: &Trace, recorded: &Tensor, value: &Tensor) -> Result<Option<Tensor>> {
    let mask = trace.mask_of_scores().filter(|_| recorded.dims() == value.dims());
    let Some(mask) = mask else { return Ok(None) };
    let blocked = mask.value.broadcast_as(value.shape())?;
    let unread = without_weight(&blocked, recorded, value)?;
    let value = value.to_dtype(recorded.dtype())?;
    Ok(Some(unread.where_cond(&value, recorded)?))
}

/// The blocked cells that have no weight on either side, as they are so far below the largest score that is seen in their row.
fn without_weight(blocked: &Tensor, recorded: &Tensor, value: &Tensor) -> Result<Tensor> {
    let mut unread = blocked.to_dtype(DType::U8)?;
    for side in [recorded, value] {
        let side = side.to_dtype(DType::F64)?;
        let lowest = Tensor::full(f64::NEG_INFINITY, side.shape(), side.device())?;
        let seen = blocked.where_cond(&lowest, &side)?.max_keepdim(D::Minus1)?;
        unread = (unread * side.broadcast_le(&(seen - WEIGHTLESS)?)?)?;
    }
    Ok(unread)
}

/// The rows of padded queries, if they are all that differs.
fn only_padded_rows(
    run: &Run,
    trace: &Trace,
    record: &Record,
    steps: &[StepReport],
    tolerances: &Tolerances,
) -> Result<Option<PaddedRows>> {
    let differing = steps.iter().filter(|step| step.status == Status::Differs);
    let differing: Vec<&Step> = differing.filter_map(|found| trace.step(found.step?)).collect();
    if differing.is_empty() {
        return Ok(None);
    }
    let Some(padding) = Padding::of(run.config(), trace)? else { return Ok(None) };
    for step in differing {
        let recorded = record.tensor(step.name.as_str());
        let filled = recorded.map(|recorded| padding.replaced(step, recorded, &step.value));
        let Some(filled) = filled.transpose()?.flatten() else { return Ok(None) };
        let found = StepReport::of(step.name.as_str(), &filled, &step.value, None, tolerances)?;
        if found.status != Status::Same {
            return Ok(None);
        }
    }
    Ok(Some(PaddedRows { rows: padding.told()?, left_out: false }))
}

/// The recorded values, and the trace's own of what is not computed, in the type that the run is computed in.
pub fn in_the_runs_type(record: &Record, trace: &Trace) -> Result<HashMap<Name, Tensor>> {
    let mut values = HashMap::new();
    for step in trace.steps() {
        if !step.is_computed() {
            values.insert(step.name, step.value.clone());
        } else if let Some(recorded) = record.tensor(step.name.as_str())
            && recorded.dims() == step.value.dims()
        {
            values.insert(step.name, recorded.to_dtype(step.value.dtype())?);
        }
    }
    Ok(values)
}
