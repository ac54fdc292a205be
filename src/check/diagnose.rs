//! From differences to what they come from.

use std::collections::HashSet;
use std::time::Duration;

use super::clues::clues;
use super::evidence::Evidence;
use super::explain::{Explained, explain};
use super::finding::{Diagnosis, Finding};
use super::products::is_off_alike;
use super::report::{Status, StepReport, mark_inherited};
use super::sieve::Sieve;
use super::whole_runs::WholeRuns;
use base::error::Result;
use program::{Kind, Name, Op, Program};

/// Tells the steps that are wrong by themselves from those that only inherit it, and names the mistakes. Where all
/// is rounding, the steps are the same, unless `noise_counts`.
///
/// A step whose inputs were all recorded is computed again from those: if that gives what was recorded, the step
/// is right. Where inputs are missing, a step is right if it follows, in a whole run, from those that are wrong by
/// themselves; if it does not, it or a step that was not recorded is wrong too. Whole runs with mistakes that would take
/// longer than `patience` are not made.
///
/// # Errors
/// If candle fails.
pub fn diagnose(
    steps: &mut [StepReport],
    evidence: &Evidence,
    program: &Program,
    noise_counts: bool,
    patience: Duration,
) -> Result<Diagnosis> {
    let (mut at_fault, mut right_by_itself, mut is_proven) = (Vec::new(), Vec::new(), true);
    for report in steps.iter() {
        let Some(step) = report.step.and_then(|name| evidence.trace.step(name)) else { continue };
        match evidence.is_right(step)? {
            Some(true) => right_by_itself.push(step.name),
            Some(false) => at_fault.push(step.name),
            None => is_proven &= report.status != Status::Differs,
        }
    }
    let settled: HashSet<Name> = at_fault.iter().copied().collect();
    let mut hidden = Vec::new();
    let mut diagnosis = Diagnosis::default();
    if !is_proven {
        let runs = WholeRuns::new(evidence, &settled)?;
        hidden = runs.unproven();
        hidden.retain(|name| !right_by_itself.contains(name));
        if !hidden.is_empty() {
            diagnosis = runs.explain(patience)?;
            let inheriting = inheriting(program, &hidden);
            hidden.retain(|name| !inheriting.contains(name));
            if diagnosis.findings.is_empty() {
                diagnosis.unexplained.clone_from(&hidden);
            }
        }
    }
    if at_fault.is_empty() && hidden.is_empty() {
        diagnosis.findings = vec![evidence.rounding()?];
        if noise_counts {
            mark_inherited(steps, |from| inheriting(program, from), &[], &[]);
        } else {
            call_same(steps, |_| true);
        }
        return Ok(diagnosis);
    }
    let explained = explain(evidence, &at_fault)?;
    if !diagnosis.unexplained.is_empty() {
        // What explains recorded steps may reach others by way of one that was not recorded.
        let given = given(evidence, &explained, &settled, &diagnosis.unexplained)?;
        diagnosis.unexplained.retain(|name| !given.contains(name));
        hidden.retain(|name| !given.contains(name));
    }
    diagnosis.findings.splice(..0, explained.findings);
    diagnosis.unexplained.splice(..0, explained.unexplained);
    if let Some(lowered) = in_fewer_bits(steps, evidence, &diagnosis)? {
        diagnosis = lowered;
    }
    diagnosis.clues = clues(evidence, &diagnosis.unexplained)?;
    let is_rounding = diagnosis.unexplained.is_empty()
        && diagnosis.findings.iter().all(Finding::is_rounding)
        && !steps.iter().any(has_overflowed);
    if is_rounding && !noise_counts {
        call_same(steps, |_| true);
        return Ok(diagnosis);
    }
    let wrong = [at_fault, hidden].concat();
    if !noise_counts {
        let reached = inheriting(program, &wrong);
        call_same(steps, |name| !wrong.contains(&name) && !reached.contains(&name));
    }
    mark_inherited(steps, |from| inheriting(program, from), &wrong, &right_by_itself);
    Ok(diagnosis)
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

/// What is told in place of a diagnosis that leaves steps unexplained and finds rounding alone, if the whole run was
/// computed in fewer bits.
fn in_fewer_bits(
    steps: &[StepReport],
    evidence: &Evidence,
    diagnosis: &Diagnosis,
) -> Result<Option<Diagnosis>> {
    let Some(step) = diagnosis.unexplained.first() else { return Ok(None) };
    // What has another shape was not computed so, in whatever type.
    let has_other_shapes = steps.iter().any(|step| step.shapes.is_some());
    if has_other_shapes || !diagnosis.findings.iter().all(Finding::is_rounding) {
        return Ok(None);
    }
    // A run of each type is made whole where the numbers that are furthest off are its numbers.
    if Sieve::of(evidence, &[*step])?.part().lowered()?.is_none() {
        return Ok(None);
    }
    let Some(lowered) = evidence.lowered()? else { return Ok(None) };
    let told = format!("{step}: {}", lowered.told());
    let finding = Finding::rounding(Kind::Precision.name(), *step, &told);
    let findings = vec![Finding { kind: Some(Kind::Precision), ..finding }];
    Ok(Some(Diagnosis { findings, ..Diagnosis::default() }))
}

/// Those of some recorded steps that a run with the mistakes of all findings gives. Steps of `settled` are in it as they
/// were recorded.
fn given(
    evidence: &Evidence,
    explained: &Explained,
    settled: &HashSet<Name>,
    steps: &[Name],
) -> Result<Vec<Name>> {
    if explained.edits.is_empty() {
        return Ok(Vec::new());
    }
    let Ok(program) = evidence.trace.edited(&explained.edits) else { return Ok(Vec::new()) };
    let run = program.run_with(|step, inputs| {
        let recorded = evidence.recorded.get(&step.name).filter(|_| settled.contains(&step.name));
        let known = || evidence.trace.step(step.name).map(|right| &right.value);
        match recorded.or_else(|| known().filter(|_| step.op == Op::Given)) {
            Some(known) => Ok(known.clone()),
            None => step.op.eval(inputs),
        }
    });
    // Code that fails is no mistake that is shipped.
    let Ok(run) = run else { return Ok(Vec::new()) };
    let is_precision = explained.findings.iter().all(Finding::is_rounding);
    let mut given = Vec::new();
    for name in steps {
        let (Some(found), Some(right), Some(made)) =
            (evidence.recorded.get(name), evidence.trace.step(*name), run.step(*name))
        else {
            continue;
        };
        // Sums in another order are rounded to the other side here and there.
        let is_given = evidence.noise.agree(*name, found, &made.value)?
            || is_precision && is_off_alike(found, &right.value, &made.value)?;
        if is_given {
            given.push(*name);
        }
    }
    Ok(given)
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
fn inheriting(program: &Program, from: &[Name]) -> HashSet<Name> {
    let reached = program.descendants(|step| from.contains(&step.name));
    let steps = program.steps().iter().zip(reached).filter(|(_, reached)| *reached);
    steps.map(|(step, _)| step.name).collect()
}
