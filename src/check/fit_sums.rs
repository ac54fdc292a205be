//! Sums and factors that are read off the recorded values by least squares.

use candle_core::Tensor;

use super::evidence::Evidence;
use super::finding::Number;
use super::fit::{LEAST_CELLS, cells};
use super::grammar::cost;
use super::grammar::numbers::{numbered, short};
use super::hypothesis::Hypothesis;
use base::error::Result;
use program::{Change, Kind, Name, Op, Role, Slip};

/// Steps to which so many times another one is added, by least squares: to what they should be, or to what they read.
pub fn sums(evidence: &Evidence, at: Name) -> Result<Vec<Hypothesis>> {
    let mut all = Vec::new();
    let Some(step) = evidence.trace.step(at) else { return Ok(all) };
    let (Some(found), Some(value)) = (evidence.recorded.get(&at), evidence.right(step)?) else {
        return Ok(all);
    };
    let first = evidence.trace.read_by(step).first().map(|read| read.name);
    let first = first.filter(|name| evidence.trace.computes(*name));
    let bases =
        [(None, Some(&value)), (first, first.and_then(|name| evidence.recorded.get(&name)))];
    for (name, base) in bases {
        let Some(base) = base.filter(|base| base.dims() == found.dims()) else { continue };
        for other in evidence.trace.steps().iter().filter(|other| other.name != at) {
            let Some(times) = evidence.recorded.get(&other.name) else { continue };
            if times.elem_count() < 2
                || other.name.role() == Role::Input && times.dims() != found.dims()
            {
                continue;
            }
            let one = Op::from(Slip::SUM);
            let zeros = found.zeros_like()?;
            let Ok(spread) = one.eval(&[&zeros, times]) else { continue };
            if spread.dims() != found.dims() {
                continue;
            }
            let excess = Tensor::sub(found, base)?;
            let Some((factor, addend)) = affine(&cells(&excess, None)?, &cells(&spread, None)?)
            else {
                continue;
            };
            if factor.abs() < 1e-6 {
                continue;
            }
            let addend = if addend.abs() < 1e-5 { 0.0 } else { addend };
            let factor =
                if (factor - factor.round()).abs() < 1e-5 { factor.round() } else { factor };
            let op = Op::from(Slip::Add { factor, addend });
            let (change, what) = match name {
                None => (Change::After(op, vec![other.name]), tr!("it")),
                Some(first) => (Change::Become(op, vec![first, other.name]), first.as_str()),
            };
            let more = if addend == 0.0 {
                String::new()
            } else {
                tr!(", and {addend},", addend = short(addend))
            };
            let told = tr!(
                "{factor} times {other}{more} is added to {what}",
                factor = short(factor),
                other = other.name,
                more,
                what
            );
            let number = Number { parameter: "factor", meant: 0.0, found: factor };
            all.push(numbered(Kind::Inserted, cost::FITTED, at, change, &told, number));
        }
    }
    Ok(all)
}

/// The line by least squares, if it passes through what it should: slope and intercept.
fn affine(own: &[f64], other: &[f64]) -> Option<(f64, f64)> {
    let pairs: Vec<(f64, f64)> = own
        .iter()
        .zip(other)
        .map(|(own, other)| (*own, *other))
        .filter(|(own, other)| own.is_finite() && other.is_finite() && own.abs() < 1e8)
        .collect();
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53")]
    let count = pairs.len() as f64;
    let mean = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let (own, other) = (mean(&|pair| pair.0), mean(&|pair| pair.1));
    let spread = mean(&|pair| (pair.1 - other).powi(2));
    let both = mean(&|pair| (pair.1 - other) * (pair.0 - own));
    let whole = mean(&|pair| (pair.0 - own).powi(2));
    let slope = both / spread;
    let is_line = both * both > 0.99 * spread * whole;
    (pairs.len() >= LEAST_CELLS && is_line).then_some((slope, own - slope * other))
}
