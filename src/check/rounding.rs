//! Are differences those of rounding: of this run's own type, or of fewer bits in some of its steps?

use std::collections::HashMap;

use candle_core::Tensor;

use super::agreement::{Claim, is_same_rounding};
use super::cells::{cells, is_number, ratio};
use super::finding::{Diagnosis, Finding};
use super::products::Lowered;
use super::scope::Scope;
use super::step_report::StepReport;
use super::thresholds::{
    ALLOWED, LEAST_CELLS, LEAST_ROUNDING, LEAST_TELLING, MOST_ROUNDING, USUAL,
};
use base::error::Result;
use foreign::distance;
use program::{Kind, Name, Precision};

/// With so many numbers, products in fewer bits are looked for alone, and not together with a cache in another type.
const TYPES_ALONE: usize = 1 << 21;

/// What to call differences that no step makes by itself. There is no mistake where all that steps read was recorded. Where
/// some was not, a small one may hide in what rounding is allowed.
pub fn rounding(scope: &Scope) -> Result<Finding> {
    let mut furthest: Option<(f64, Name)> = None;
    let mut is_told = true;
    for step in scope.trace().steps() {
        let Some((recorded, expected)) = scope.pair(step.name) else { continue };
        is_told &= scope.is_direct(step);
        if let Some(factor) = scope.agreement().multiple(step.name, recorded, expected)?
            && furthest.is_none_or(|(most, _)| factor > most)
        {
            furthest = Some((factor, step.name));
        }
    }
    let is_usual = furthest.is_none_or(|(factor, _)| factor <= USUAL);
    let precision = scope.agreement().half().map(Precision::name);
    let summary = match precision {
        Some(_) if is_told => tr!("no bug: the differences are those of 16-bit arithmetic"),
        Some(_) if is_usual => {
            tr!("the differences are no larger than those of 16-bit arithmetic")
        }
        Some(name) => &tr!(
            "the differences are larger than this run's own rounding, and too small to tell a mistake from rounding in {name}: record more steps",
            name
        ),
        None if is_told => tr!("no bug: the differences are those of rounding, which adds up"),
        None if is_usual => {
            tr!("the differences are no larger than those of rounding, which adds up")
        }
        None => tr!(
            "the differences are larger than this run's own rounding, and too small to tell a mistake from it: record more steps"
        ),
    };
    let id = if precision.is_some() { "half-precision" } else { "noise" };
    let step = furthest.map_or(Name::Output, |(_, step)| step);
    // More than that is within what the type's numbers may differ by, and says nothing.
    let factor = furthest.map(|(factor, _)| factor).filter(|factor| *factor <= ALLOWED);
    Ok(Finding { factor, ..Finding::rounding(id, step, summary) })
}

/// The type with fewer bits whose rounding alone can be what a step is off by, and whether all its recorded numbers are of
/// that type: none is further off than a few of its steps, and there is no direction in it.
pub fn narrow_type(scope: &Scope, at: Name) -> Result<Option<(Precision, bool)>> {
    let Some((recorded, value)) = scope.pair(at) else { return Ok(None) };
    let (found, expected) = (cells(recorded)?, cells(value)?);
    // Rounding makes no NaN of a number, nor an infinity.
    let is_no_rounding = |(found, expected): (&f64, &f64)| {
        found.is_nan() || expected.is_nan() || !found.is_finite() && is_number(*expected)
    };
    if found.iter().zip(&expected).any(is_no_rounding) {
        return Ok(None);
    }
    let pairs = || {
        found.iter().zip(&expected).filter(|(left, right)| is_number(**left) && is_number(**right))
    };
    let size = pairs().map(|(_, expected)| expected.abs()).fold(0.0, f64::max);
    let furthest = pairs().map(|(found, expected)| (found - expected).abs()).fold(0.0, f64::max);
    let factor = ratio(&found, &expected);
    // What the run's own type does to a step was looked at before the step was called wrong.
    let half = scope.agreement().half();
    let is_coarser =
        |precision: &Precision| half.is_none_or(|half| precision.spacing() > half.spacing());
    for precision in [Precision::F16, Precision::Bf16].into_iter().filter(is_coarser) {
        let spacing = precision.spacing();
        // It is in most numbers that are none of the type.
        let exact = cells(&precision.round(value)?)?;
        let others = |numbers: &[f64]| {
            let pairs = numbers.iter().zip(&expected);
            pairs.filter(|(number, expected)| number.total_cmp(expected).is_ne()).count()
        };
        let (open, off) = (others(&exact), others(&found));
        if off < LEAST_CELLS || 2 * off < open {
            continue;
        }
        // What is as it should be, as the past of a cache is, need not be of that type.
        let rounded = cells(&precision.round(recorded)?)?;
        let mut each = found.iter().zip(&expected).zip(&rounded);
        let are_of_type = each.all(|((found, expected), rounded)| {
            found.total_cmp(rounded).is_eq() || found.total_cmp(expected).is_eq()
        });
        // What is far smaller is the rounding of another type.
        let is_as_large = are_of_type || furthest >= LEAST_ROUNDING * spacing * size;
        if is_as_large && furthest <= 2.0 * spacing * size && (factor - 1.0).abs() <= spacing {
            return Ok(Some((precision, are_of_type)));
        }
    }
    Ok(None)
}

/// The finding that a step is computed in fewer bits.
pub fn computed_in(step: Name, precision: Precision) -> Finding {
    let summary = tr!(
        "{step}: it is computed in {name}: its numbers are of that type, and off by its rounding alone",
        step,
        name = precision.name()
    );
    precise(step, &summary)
}

/// The finding that a step is off by the rounding of fewer bits, in which other steps are computed.
pub fn off_by(step: Name, precision: Precision) -> Finding {
    let summary = tr!(
        "{step}: what it is off by has the size of the rounding of {name}, and no direction: steps before it are computed in fewer bits",
        step,
        name = precision.name()
    );
    precise(step, &summary)
}

fn precise(step: Name, summary: &str) -> Finding {
    let finding = Finding::rounding(Kind::Precision.name(), step, summary);
    Finding { kind: Some(Kind::Precision), ..finding }
}

/// What is told in place of a diagnosis that leaves steps unexplained and finds rounding alone, if the whole run was
/// computed in fewer bits.
pub fn in_fewer_bits(
    whole: &Scope,
    steps: &[StepReport],
    diagnosis: &Diagnosis,
) -> Result<Option<Diagnosis>> {
    let Some(step) = diagnosis.unexplained.first() else { return Ok(None) };
    // What has another shape was not computed so, in whatever type.
    let has_other_shapes = steps.iter().any(|step| step.shapes.is_some());
    if has_other_shapes || !diagnosis.findings.iter().all(Finding::is_rounding) {
        return Ok(None);
    }
    // A run of each type is made whole where the numbers that are furthest off are its numbers.
    let parts = whole.parts(*step)?;
    let part = parts.iter().find(|part| !part.has_few_keys());
    if part.is_some_and(|part| lowered(part).is_ok_and(|lowered| lowered.is_none())) {
        return Ok(None);
    }
    let Some(lowered) = lowered(whole)? else { return Ok(None) };
    let summary = format!("{step}: {}", lowered.in_words());
    let findings = vec![precise(*step, &summary)];
    Ok(Some(Diagnosis { findings, ..Diagnosis::default() }))
}

/// What of the run was computed in fewer bits, if that alone accounts for every recorded step: what each is off by is
/// as large as such rounding makes it, and goes the same way cell by cell.
fn lowered(scope: &Scope) -> Result<Option<Lowered>> {
    let mut off = HashMap::new();
    for step in scope.trace().steps() {
        let Some((recorded, expected)) = scope.pair(step.name) else { continue };
        if !scope.agreement().holds(step.name, recorded, expected, Claim::Mistake)? {
            let recorded = scope.agreement().over_gaps(recorded, recorded, expected)?;
            off.insert(step.name, (recorded, expected));
        }
    }
    let half = scope.agreement().half();
    // The lowest number of 16 bits swallows the scores that it is added to.
    if let Some(whole) = half.map(Lowered::every_step)
        && accounts_for(scope, whole, &off)?
    {
        return Ok(Some(whole));
    }
    for (recorded, expected) in off.values() {
        if distance(recorded, expected)? > MOST_ROUNDING {
            return Ok(None);
        }
    }
    let numbers: usize = scope.trace().steps().iter().map(|step| step.value.elem_count()).sum();
    for lowered in Lowered::all(numbers < TYPES_ALONE) {
        if accounts_for(scope, lowered, &off)? {
            return Ok(Some(lowered));
        }
    }
    Ok(None)
}

/// Whether the recorded steps that are `off`, beside what they should be, are off by what this is off by.
fn accounts_for(
    scope: &Scope,
    lowered: Lowered,
    off: &HashMap<Name, (Tensor, &Tensor)>,
) -> Result<bool> {
    let mut told = 0;
    let run = scope.trace().run_with(|step, inputs| {
        if !step.is_computed() {
            return Ok(step.value.clone());
        }
        let made = lowered.eval(step, inputs).map_err(Some)?;
        let Some((recorded, expected)) = off.get(&step.name) else { return Ok(made) };
        let rounded = match scope.inputs(step).filter(|_| scope.is_direct(step)) {
            Some(inputs) => lowered.eval(step, &inputs).map_err(Some)?,
            None => made.clone(),
        };
        told += recorded.elem_count();
        let agreement = scope.agreement();
        // Noise of 16 bits would excuse what such a run is off by for another reason.
        let agrees = agreement.half().is_none()
            && agreement.holds(step.name, recorded, &rounded, Claim::Mistake).map_err(Some)?;
        let gaps = scope.pair(step.name).map_or(recorded, |(recorded, _)| recorded);
        let rounded = agreement.over_gaps(gaps, &rounded, expected).map_err(Some)?;
        let is_it = agrees || is_same_rounding(recorded, expected, &rounded).map_err(Some)?;
        // What fails at one step need not be run to its end.
        if is_it { Ok(made) } else { Err(None) }
    });
    match run {
        Ok(_) => Ok(told >= LEAST_TELLING),
        Err(None) => Ok(false),
        Err(Some(error)) => Err(error),
    }
}
