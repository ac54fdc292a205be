//! The ε of norms, read off the recorded values: that of several at once, as code states it once.

use super::evidence::Evidence;
use super::fit::{distance, least, refined};
use super::grammar::cost;
use super::grammar::numbers::{few_digits, with_number};
use super::hypothesis::Hypothesis;
use super::mistakes::{Knob, knobs};
use base::error::Result;
use base::lang;
use config::Sizes;
use program::{Name, Step, Trace};

/// Norms of which code states one ε.
const SHARED: &[&[Name]] = &[
    &[Name::QNorm, Name::KNorm, Name::VNorm],
    &[Name::QNorm, Name::KNorm],
    &[Name::QRotNorm, Name::KRotNorm],
    &[Name::CQNorm, Name::CKvNorm],
];

/// The norms of a run that may have another ε: those that share one first, then each alone.
pub fn norms(trace: &Trace) -> Vec<Vec<Name>> {
    let has_eps = |name: &Name| trace.step(*name).is_some_and(|step| eps(step).is_some());
    let shared = SHARED.iter().filter(|names| names.iter().all(has_eps));
    let alone = trace.steps().iter().map(|step| vec![step.name]);
    let alone = alone.filter(|names| names.iter().all(has_eps));
    shared.map(|names| names.to_vec()).chain(alone).collect()
}

fn eps(step: &Step) -> Option<Knob> {
    knobs(&step.op).into_iter().find(|knob| knob.name == "eps")
}

/// The mistake that these norms have another ε, which is as likely in whatever digits.
pub fn with_eps(trace: &Trace, norms: &[Name], found: f64, sizes: &Sizes) -> Option<Hypothesis> {
    let one = |name: &Name| with_number(*name, &eps(trace.step(*name)?)?, found, sizes);
    let all = norms.iter().map(one).collect::<Option<Vec<Hypothesis>>>()?;
    let first = all.first()?;
    let names: Vec<&str> = norms.iter().map(|name| name.as_str()).collect();
    let told = first.summary.strip_prefix(names.first()?)?;
    Some(Hypothesis {
        summary: format!("{}{told}", lang::list(&names)),
        edits: all.iter().flat_map(|made| made.edits.clone()).collect(),
        cost: cost::COMMON,
        ..first.clone()
    })
}

/// The mistake that these norms have the ε that leaves the least error, in few digits where those do as well: by the
/// error in a part of the run first, and then, near the best there, by that in the `whole`.
///
/// # Errors
/// Those of the errors.
pub fn fitted(
    trace: &Trace,
    norms: &[Name],
    sizes: &Sizes,
    part: impl Fn(&Hypothesis) -> Result<f64>,
    whole: impl Fn(&Hypothesis) -> Result<f64>,
) -> Result<Option<Hypothesis>> {
    let Some(meant) = norms.first().and_then(|name| eps(trace.step(*name)?)) else {
        return Ok(None);
    };
    let with = |found: f64| with_eps(trace, norms, found, sizes);
    let error = |found: f64| with(found).map_or(Ok(f64::INFINITY), |made| part(&made));
    let Some(best) = refined(meant.value, &error)? else { return Ok(None) };
    let near = (-NEAR..=NEAR).map(|step| best * STEP.powi(step));
    let error = |found: f64| with(found).map_or(Ok(f64::INFINITY), |made| whole(&made));
    let best = least(near, error)?.unwrap_or(best);
    let most = ENOUGH * error(best)?;
    for found in few_digits(best) {
        if error(found)? <= most {
            return Ok(with(found));
        }
    }
    Ok(with(best))
}

/// So many times the least error is no more than what rounding makes of it.
const ENOUGH: f64 = 1.01;

/// So many steps on either side of what a part of the run tells are tried in the whole, each so much larger.
const NEAR: i32 = 8;
const STEP: f64 = 1.1;

/// The same of norms that were recorded beside what they read, some of which are `faulty`. `part` is a part of the
/// evidence.
///
/// # Errors
/// If candle fails.
pub fn recorded(evidence: &Evidence, part: &Evidence, faulty: &[Name]) -> Result<Vec<Hypothesis>> {
    let mut all = Vec::new();
    for norms in norms(evidence.trace) {
        let is_told = |name: &Name| evidence.recorded.contains_key(name);
        if !norms.iter().all(is_told) || !norms.iter().any(|name| faulty.contains(name)) {
            continue;
        }
        let error = |evidence: &Evidence, made: &Hypothesis| {
            let Some(program) = made.program(evidence.trace) else { return Ok(f64::INFINITY) };
            let mut sum = 0.0;
            for name in &norms {
                let value = evidence.of(&program, *name)?;
                let found = evidence.recorded.get(name);
                let (Some(found), Some(value)) = (found, value) else { return Ok(f64::INFINITY) };
                sum += distance(found, &value, None)?;
            }
            Ok(sum)
        };
        let (trace, sizes) = (evidence.trace, &evidence.config.sizes);
        let by = |evidence| move |made: &Hypothesis| error(evidence, made);
        all.extend(fitted(trace, &norms, sizes, by(part), by(evidence))?);
    }
    Ok(all)
}
