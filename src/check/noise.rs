//! How far does rounding alone take a step, relative to the size of its rows?

use candle_core::Tensor;

use super::cells::{difference, largest_of_rows, over_rows};
use super::thresholds::{BEYOND_SCORES, OF_CANCELLED, OF_LARGE_NOISE};
use base::error::Result;
use program::{Axis, Step};

/// The noise of a step, relative to the size of its rows, a row being what the last axis runs over. So the rounding of
/// one huge token does not excuse what the others differ by.
#[derive(Clone, Copy, Default)]
pub struct Noise {
    /// The largest difference of a row that rounding alone makes, divided by the row's size.
    pub ratio: f64,
    /// The size that a row is taken to have at least: that of the middle one. The noise of a small row can come from
    /// larger numbers that cancelled.
    least: f64,
    /// The same of what is added up, where that cancels out and leaves nothing but noise; otherwise 0.
    pub terms: f64,
    /// What the noise is multiplied by.
    pub allowed: f64,
    /// Whether large noise is that of a sum that cancels out, as gradients are.
    cancels: bool,
    /// What masked cells hold, if it is a number. They say nothing of a row's size.
    fill: Option<f64>,
}

impl Noise {
    /// That of a value that is `rounded` where it would be `exact`. Where a sum is nothing but noise, as that of a key's bias
    /// is, the noise is relative to the `terms` that cancel out in it, whose rounding does not.
    pub fn of(
        step: &Step,
        exact: &Tensor,
        rounded: &Tensor,
        allowed: f64,
        terms: impl FnOnce() -> Result<Option<Tensor>>,
    ) -> Result<Self> {
        let fill = step.op.operation().facts().fill.filter(|fill| fill.is_finite());
        let fill = fill.map_or_else(|| lowest_score(step, exact), |fill| Ok(Some(fill)))?;
        let mut noise = Self { allowed, fill, ..Self::default() };
        noise.least = noise.middle(exact)?;
        noise.ratio = noise.ratio(exact, rounded)?;
        noise.cancels = step.name.is_gradient() && noise.ratio <= 1.0;
        if noise.ratio > 1.0
            && let Some(terms) = terms()?
        {
            noise.terms = noise.middle(&terms)?;
            noise.least = noise.least.max(noise.terms);
            noise.ratio = noise.ratio(exact, rounded)?;
        }
        Ok(noise)
    }

    fn ratio(&self, exact: &Tensor, rounded: &Tensor) -> Result<f64> {
        largest_of_rows(rounded, exact, |rounded, exact| {
            self.difference(rounded, exact) / self.size(exact)
        })
    }

    /// The size of the middle one of a value's rows that are not 0, as the gradients of keys are that nothing sees.
    fn middle(&self, value: &Tensor) -> Result<f64> {
        let size = |sizes: &mut Vec<f64>, row: &[f64], _: &[f64]| sizes.push(self.size(row));
        let mut sizes = over_rows(value, value, Vec::new(), size, Vec::append)?;
        sizes.retain(|size| *size > 0.0);
        let middle = sizes.len() / 2;
        if sizes.is_empty() {
            return Ok(0.0);
        }
        Ok(*sizes.select_nth_unstable_by(middle, f64::total_cmp).1)
    }

    /// What the numbers of a row may be off by, relative to its size: `of_large_noise` where that is more than all that was
    /// recorded.
    pub fn allowed(&self, recorded: &Tensor, of_large_noise: f64) -> Result<f64> {
        let allowed = self.allowed * self.ratio;
        if allowed <= OF_LARGE_NOISE {
            return Ok(allowed);
        }
        let largest = largest_of_rows(recorded, recorded, |row, _| {
            let finite = row.iter().copied().filter(|value| value.is_finite());
            finite.map(f64::abs).fold(0.0, f64::max)
        })?;
        Ok(match of_large_noise {
            _ if allowed * self.least <= largest => allowed,
            least if self.cancels && least > 0.0 => least.max(OF_CANCELLED * self.ratio),
            least => least,
        })
    }

    /// The largest size of a row's finite values, but for masked ones.
    pub fn size(&self, row: &[f64]) -> f64 {
        let counts = |value: &f64| value.is_finite() && !self.is_masked(*value);
        row.iter().copied().filter(counts).map(f64::abs).fold(self.least, f64::max)
    }

    /// The largest finite difference of two rows, but for masked cells.
    pub fn difference(&self, left: &[f64], right: &[f64]) -> f64 {
        let cells = left.iter().zip(right).filter(|(_, right)| !self.is_masked(**right));
        let differences = cells.map(|(left, right)| difference(*left, *right).abs());
        differences.filter(|difference| difference.is_finite()).fold(0.0, f64::max)
    }

    /// Whether a value is the mask's fill, rounded or not, or lies beyond it where no score does.
    pub fn is_masked(&self, value: f64) -> bool {
        let is_beyond = |fill: f64| fill.abs() >= BEYOND_SCORES && value / fill >= 0.5;
        self.fill.is_some_and(|fill| (value - fill).abs() <= fill.abs() / 100.0 || is_beyond(fill))
    }
}

/// The lowest finite score, if no score is as low: it comes from a mask that is added, here or before.
fn lowest_score(step: &Step, value: &Tensor) -> Result<Option<f64>> {
    if step.axes.iter().last().is_none_or(|(axis, _)| axis != Axis::Key) {
        return Ok(None);
    }
    let lowest = -largest_of_rows(value, value, |row, _| {
        -row.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::min)
    })?;
    Ok(Some(lowest).filter(|lowest| *lowest <= -BEYOND_SCORES))
}
