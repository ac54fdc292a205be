//! Which recorded steps are wrong by themselves, and why?

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use candle_core::Tensor;

use super::agreement::Agreement;
use super::catalogue::Situation;
use super::clues::{clues, first_wrong_part};
use super::explain::explain;
use super::finding::{Diagnosis, Finding};
use super::rounding::{computed_in, in_fewer_bits, narrow_type, off_by, rounding};
use super::scope::Scope;
use super::step_report::{Status, StepReport, mark_inherited};
use base::error::Result;
use config::Config;
use program::{Kind, Name, Program, Trace};

/// A recorded run that is to be diagnosed.
pub struct Case<'a> {
    /// The setting of the run.
    pub config: &'a Config,
    /// The run, recomputed.
    pub trace: &'a Trace,
    /// Every value that was recorded, in the type of the run.
    pub recorded: &'a HashMap<Name, Tensor>,
    pub agreement: &'a Agreement,
    /// Whether differences beyond the tolerances count that are rounding.
    pub noise_counts: bool,
    /// What was tried in another run of the same file, as it is told.
    pub tried: Option<&'a HashSet<String>>,
}

impl Case<'_> {
    fn whole(&self) -> Result<Scope<'_>> {
        Scope::whole(self.trace, self.recorded, self.agreement)
    }

    /// The steps that are within their tolerance, and yet not what they should be by what was recorded before them.
    pub fn off_within_tolerance(&self, steps: &[StepReport]) -> Result<Vec<Name>> {
        let whole = self.whole()?;
        let same = steps.iter().filter(|report| report.status == Status::Same);
        let same = same.filter_map(|report| self.trace.step(report.step?));
        let off = same.filter(|step| whole.is_direct(step) && whole.wrong().contains(&step.name));
        Ok(off.map(|step| step.name).collect())
    }

    /// Tells the steps that are wrong by themselves from those that only inherit it, and names the mistakes; candidates that
    /// would take longer than `patience` are not tried. Where all is rounding, the steps are the same, unless that counts.
    pub fn diagnose(
        &self,
        steps: &mut [StepReport],
        patience: Option<Duration>,
    ) -> Result<Diagnosis> {
        let program = self.trace.unrun();
        let descendants = |from: &[Name]| descendants(&program, from);
        let whole = self.whole()?;
        let (wrong, right) = self.judged(&whole, steps);
        if wrong.is_empty() {
            let findings = vec![rounding(&whole)?];
            if self.noise_counts {
                mark_inherited(steps, descendants, &[], &[]);
            } else {
                call_same(steps, |_| true);
            }
            return Ok(Diagnosis { findings, ..Diagnosis::default() });
        }
        let Some(patience) = patience else {
            return Ok(Diagnosis { unexplained: wrong, ..Diagnosis::default() });
        };
        let (config, recorded) = (self.config, self.recorded);
        let situation = Situation { config, right: self.trace, recorded };
        let mut diagnosis = explain(situation, &whole, &wrong, patience, self.tried)?;
        // What is rounded of a position grows with it: in a run of 16 bits that is no rounding of its numbers.
        let has_lossy_angles = self.agreement.half().is_some()
            && diagnosis.findings.iter().any(|found| {
                found.kind == Some(Kind::Precision) && matches!(found.step, Name::QRot | Name::KRot)
            });
        let mut unexplained = Vec::new();
        for step in std::mem::take(&mut diagnosis.unexplained) {
            match narrow_type(&whole, step)? {
                // Its numbers are those of that type: it was computed in it, or from here on.
                Some((precision, true)) => diagnosis.findings.push(computed_in(step, precision)),
                narrow => unexplained.push((step, narrow.map(|(precision, _)| precision))),
            }
        }
        // Where all else is the rounding of fewer bits, so is what has its size and no direction.
        let is_lowered = diagnosis.findings.iter().any(|found| found.kind == Some(Kind::Precision))
            && diagnosis.findings.iter().all(Finding::is_rounding);
        for (step, narrow) in unexplained {
            match narrow.filter(|_| is_lowered) {
                Some(precision) => diagnosis.findings.push(off_by(step, precision)),
                None => diagnosis.unexplained.push(step),
            }
        }
        if let Some(lowered) = in_fewer_bits(&whole, steps, &diagnosis)? {
            diagnosis = lowered;
        }
        diagnosis.clues = clues(&whole, &diagnosis.unexplained)?;
        let is_rounding = diagnosis.unexplained.is_empty()
            && diagnosis.findings.iter().all(Finding::is_rounding)
            && !has_lossy_angles
            && !steps.iter().any(has_overflowed);
        if is_rounding && !self.noise_counts {
            call_same(steps, |_| true);
            return Ok(diagnosis);
        }
        if !self.noise_counts {
            let reached = descendants(&wrong);
            call_same(steps, |name| !wrong.contains(&name) && !reached.contains(&name));
        }
        diagnosis.clues.extend(first_wrong_part(&whole, &wrong, &diagnosis)?);
        mark_inherited(steps, descendants, &wrong, &right);
        Ok(diagnosis)
    }

    /// The steps that are wrong by what was recorded before them, and those that are right. Where what a step reads was not
    /// recorded, it is not looked into if it is within the tolerance.
    fn judged(&self, whole: &Scope, steps: &[StepReport]) -> (Vec<Name>, Vec<Name>) {
        let (mut wrong, mut right) = (Vec::new(), Vec::new());
        for report in steps {
            let Some(step) = report.step.and_then(|name| self.trace.step(name)) else { continue };
            let is_off = whole.recorded(step.name).is_none() || whole.wrong().contains(&step.name);
            let counts = whole.is_direct(step) || report.status == Status::Differs;
            if is_off && counts { wrong.push(step.name) } else { right.push(step.name) }
        }
        (wrong, right)
    }
}

/// Calls those known steps the same that differ in their numbers alone, which rounding can do, and no others.
fn call_same(steps: &mut [StepReport], is_rounding: impl Fn(Name) -> bool) {
    let differ = steps.iter_mut().filter(|step| {
        step.status == Status::Differs
            && step.comparison.is_some()
            && step.step.is_some_and(&is_rounding)
    });
    differ.for_each(|step| step.status = Status::Same);
}

/// Whether a step has NaN or an infinity where a number should be: fewer bits can lead to it, and no rounding is so large.
/// A score of −∞ may be what a type makes of a mask's fill.
fn has_overflowed(step: &StepReport) -> bool {
    step.comparison.as_ref().is_some_and(|comparison| {
        let is_fill = comparison.left == f64::NEG_INFINITY
            && step.step.is_some_and(|name| name.row().is_of_scores());
        !is_fill && !comparison.left.is_finite() && comparison.right.is_finite()
    })
}

/// The steps that read one of these, directly or through others.
fn descendants(program: &Program, from: &[Name]) -> HashSet<Name> {
    let reached = program.descendants(|step| from.contains(&step.name));
    let steps = program.steps().iter().zip(reached).filter(|(_, reached)| *reached);
    steps.map(|(step, _)| step.name).collect()
}
