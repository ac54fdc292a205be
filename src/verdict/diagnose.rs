//! From differences to what they come from.

use std::collections::HashSet;

use super::evidence::Evidence;
use super::finding::Diagnosis;
use super::report::mark_inherited;
use super::whole_runs::{PATIENCE, WholeRuns};
use super::{Status, StepReport};
use crate::error::Result;
use crate::trace::Program;

/// Tells the steps that are wrong by themselves from those that only inherit it, and names the mistakes. Where all
/// is rounding, the steps are the same, unless `noise_counts`.
///
/// A step whose inputs were all recorded is computed again from those: if that gives what was recorded, the step
/// is right. Where inputs are missing, a step is right if it follows, in a whole run, from those that are wrong by
/// themselves; if it does not, it or a step that was not recorded is wrong too.
///
/// # Errors
/// If candle fails.
pub fn diagnose(
    steps: &mut [StepReport],
    evidence: &Evidence,
    program: &Program,
    noise_counts: bool,
) -> Result<Diagnosis> {
    let (mut at_fault, mut right_by_itself, mut is_proven) = (Vec::new(), Vec::new(), true);
    for report in steps.iter() {
        let Some(step) = evidence.trace.step(&report.name) else { continue };
        match evidence.is_right(step)? {
            Some(true) => right_by_itself.push(report.name.clone()),
            Some(false) => at_fault.push(step),
            None => is_proven &= report.status != Status::Differs,
        }
    }
    let mut wrong: Vec<String> = at_fault.iter().map(|step| step.name.clone()).collect();
    let settled: HashSet<String> = wrong.iter().cloned().collect();
    let mut hidden = Vec::new();
    let mut diagnosis = Diagnosis::default();
    if !is_proven {
        let runs = WholeRuns::new(evidence, &settled)?;
        hidden = runs.unproven();
        hidden.retain(|name| !right_by_itself.contains(name));
        if !hidden.is_empty() {
            diagnosis = runs.explain(PATIENCE)?;
            let inheriting = program.downstream_of(&hidden);
            hidden.retain(|name| !inheriting.contains(name));
            if diagnosis.findings.is_empty() {
                diagnosis.unexplained.clone_from(&hidden);
            }
        }
    }
    if at_fault.is_empty() && hidden.is_empty() {
        diagnosis.findings = vec![evidence.rounding()?];
        let differing = steps.iter_mut().filter(|step| step.status == Status::Differs);
        if noise_counts {
            mark_inherited(steps, program, &[], &[]);
        } else {
            differing.for_each(|step| step.status = Status::Same);
        }
        return Ok(diagnosis);
    }
    let (findings, unexplained) = evidence.explain(&at_fault)?;
    diagnosis.findings.splice(..0, findings);
    diagnosis.unexplained.splice(..0, unexplained);
    wrong.extend(hidden);
    mark_inherited(steps, program, &wrong, &right_by_itself);
    Ok(diagnosis)
}
