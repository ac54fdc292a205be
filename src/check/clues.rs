//! What can be said where nothing explains the numbers: where they are off, and how.

use candle_core::{DType, Tensor};

use super::compare::compare;
use super::evidence::Evidence;
use super::finding::Clue;
use super::fit::precision;
use super::grammar::numbers::short;
use super::hypothesis::told;
use super::noise::Noise;
use super::tolerance::Tolerance;
use crate::error::Result;
use crate::program::{Axis, Name, Role, Step};

/// Along each axis, the places where a step is wrong, if it is right at others; the narrowest first.
///
/// # Errors
/// If candle fails.
pub fn parts(
    noise: &Noise,
    step: &Step,
    found: &Tensor,
    right: &Tensor,
) -> Result<Vec<(usize, Vec<usize>)>> {
    let mut parts = Vec::new();
    if found.dims() != right.dims() {
        return Ok(Vec::new());
    }
    for (axis, (_, size)) in step.axes.iter().enumerate().filter(|(_, (_, size))| *size > 1) {
        let mut places = Vec::new();
        for place in 0..size {
            let slice = |tensor: &Tensor| tensor.narrow(axis, place, 1)?.contiguous();
            if !noise.agree(step.name, &slice(found)?, &slice(right)?)? {
                places.push(place);
            }
        }
        if !places.is_empty() && places.len() < size {
            parts.push((axis, places, size));
        }
    }
    parts.sort_by(|(_, left, of_left), (_, right, of_right)| {
        (left.len() * of_right).cmp(&(right.len() * of_left))
    });
    Ok(parts.into_iter().map(|(axis, places, _)| (axis, places)).collect())
}

/// What can be said of steps that nothing explains.
///
/// # Errors
/// If candle fails.
pub fn clues(evidence: &Evidence, unexplained: &[Name]) -> Result<Vec<Clue>> {
    let mut clues = Vec::new();
    for name in unexplained {
        let Some(step) = evidence.trace.step(*name) else { continue };
        let Some(found) = evidence.recorded.get(name) else { continue };
        let value = evidence.expected(step)?;
        if found.dims() != value.dims() {
            continue;
        }
        clues.extend(of_step(evidence, step, found, &value)?);
    }
    Ok(clues)
}

/// What can be said of one step.
fn of_step(evidence: &Evidence, step: &Step, found: &Tensor, right: &Tensor) -> Result<Vec<Clue>> {
    let axes: Vec<(Axis, usize)> = step.axes.iter().collect();
    let mut lines = Vec::new();
    for (axis, places) in parts(&evidence.noise, step, found, right)? {
        lines.push(format!("it is off {}", told(axes[axis].0, &places)));
    }
    let (own, meant) = (numbers(found)?, numbers(right)?);
    let finite: Vec<(f64, f64)> = own
        .iter()
        .zip(&meant)
        .map(|(own, meant)| (*own, *meant))
        .filter(|(own, meant)| own.is_finite() && meant.is_finite() && meant.abs() < 1e8)
        .collect();
    if let Some((slope, share)) = line(&finite)
        && share > 0.9
        && (slope - 1.0).abs() > 0.02
    {
        let told = format!(
            "it is about {} times what it should be ({:.0} % of its size)",
            short(round(slope)),
            100.0 * share
        );
        lines.push(told);
    }
    if sorted(&own) == sorted(&meant) {
        lines.push("it has the right numbers in other places".to_owned());
    }
    if let Some((precision, _)) = precision(evidence, step.name)? {
        let name = precision.name();
        lines.push(format!(
            "the differences have the size of the rounding of {name}, and no direction"
        ));
    }
    lines.extend(multiple_of(evidence, step, &own, &meant)?);
    if lines.is_empty() {
        let off = compare(found, right, Tolerance::of(found.dtype()))?;
        let (off, all) = (off.mismatched, off.count);
        lines.push(format!("{off} of its {all} numbers are off, along all of its axes"));
    }
    Ok(lines.into_iter().map(|summary| Clue { step: step.name, summary }).collect())
}

/// Another step of which a multiple is what is too much.
fn multiple_of(
    evidence: &Evidence,
    step: &Step,
    own: &[f64],
    meant: &[f64],
) -> Result<Option<String>> {
    let shape = step.axes.shape();
    let excess: Vec<f64> = own.iter().zip(meant).map(|(own, meant)| own - meant).collect();
    for other in evidence.trace.steps() {
        if other.name == step.name
            || other.axes.shape() != shape
            || other.name.row().is_boolean
            || other.name.role() == Role::Setting
        {
            continue;
        }
        let Some(value) = evidence.recorded.get(&other.name) else { continue };
        let value = numbers(value)?;
        let pairs: Vec<(f64, f64)> = excess
            .iter()
            .zip(&value)
            .map(|(excess, value)| (*excess, *value))
            .filter(|(excess, value)| excess.is_finite() && value.is_finite())
            .collect();
        if let Some((slope, share)) = line(&pairs)
            && share > 0.99
        {
            let told = format!("what is too much is {} times {}", short(round(slope)), other.name);
            return Ok(Some(told));
        }
    }
    Ok(None)
}

/// The factor between two lists of numbers, and how much of the first's squares it accounts for.
fn line(pairs: &[(f64, f64)]) -> Option<(f64, f64)> {
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let (own, other, both) = (sum(&|p| p.0 * p.0), sum(&|p| p.1 * p.1), sum(&|p| p.0 * p.1));
    let share = both * both / (own * other);
    (pairs.len() >= 8 && share.is_finite()).then(|| (both / other, share))
}

/// Three digits, which is as much as such a number says.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
}

/// The numbers in order, in as many digits as rounding leaves.
fn sorted(values: &[f64]) -> Vec<String> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.iter().map(|value| format!("{value:.4e}")).collect()
}
