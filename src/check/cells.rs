//! The numbers of tensors: how far two lists are apart, and what factor lies between them.

use candle_core::{DType, Tensor};

use super::thresholds::{EQUAL_GAIN, FILL};
use base::error::Result;
use program::of_pairs;

/// The numbers of a tensor, row-major.
pub fn cells(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
}

/// The numbers at one place of an axis.
pub fn cells_at(tensor: &Tensor, axis: usize, place: usize) -> Result<Vec<f64>> {
    cells(&tensor.narrow(axis, place, 1)?)
}

/// Whether a value is finite, and small enough to be no fill of a mask.
pub fn is_number(value: f64) -> bool {
    value.is_finite() && value.abs() < FILL
}

/// How far two tensors are apart: the sum of the absolute differences, of which no single one counts much. Infinite where
/// they have other shapes or one alone has a NaN.
pub fn distance(recorded: &Tensor, value: &Tensor) -> Result<f64> {
    if recorded.dims() != value.dims() {
        return Ok(f64::INFINITY);
    }
    let apart = |recorded: &[f64], value: &[f64]| -> f64 {
        recorded
            .iter()
            .zip(value)
            .map(|(left, right)| difference(*left, *right).abs().min(1e3))
            .sum()
    };
    let sum: f64 = of_pairs(recorded, value, apart)?.into_iter().sum();
    Ok(if sum.is_nan() { f64::INFINITY } else { sum })
}

/// The difference of two numbers; none where it is infinite, as between a number and a mask's −∞, and none of equal ones.
pub fn difference(left: f64, right: f64) -> f64 {
    let difference = left - right;
    if left.total_cmp(&right).is_eq() || difference.is_infinite() { 0.0 } else { difference }
}

/// How much nearer `value` comes to what was recorded than the `expected` one does.
pub fn gain(recorded: &Tensor, value: &Tensor, expected: &Tensor) -> Result<f64> {
    let gain = distance(recorded, expected)? - distance(recorded, value)?;
    Ok(if gain.is_nan() { 0.0 } else { gain })
}

/// Whether a gain is the most that there is, but for what sums in another order make of it.
pub fn is_as_near(gain: f64, most: f64) -> bool {
    gain >= most - EQUAL_GAIN * most.abs()
}

/// The factor that comes nearest, by least squares over what is a number.
pub fn ratio(recorded: &[f64], expected: &[f64]) -> f64 {
    let pairs = recorded.iter().zip(expected);
    let pairs = pairs.filter(|(recorded, expected)| is_number(**recorded) && is_number(**expected));
    let (above, below) = pairs.fold((0.0, 0.0), |(above, below), (recorded, expected)| {
        (above + recorded * expected, below + expected * expected)
    });
    above / below
}

/// Adds up what the rows of two tensors of one shape give, some on each core; the parts are joined in the order of the rows.
pub fn over_rows<T: Clone + Send + Sync>(
    left: &Tensor,
    right: &Tensor,
    none: T,
    add: impl Fn(&mut T, &[f64], &[f64]) + Sync,
    join: impl Fn(&mut T, &mut T),
) -> Result<T> {
    let width = left.dims().last().copied().unwrap_or(1).max(1);
    let parts = of_pairs(left, right, |left, right| {
        let mut sum = none.clone();
        let rows = left.chunks(width).zip(right.chunks(width));
        rows.for_each(|(left, right)| add(&mut sum, left, right));
        sum
    })?;
    Ok(parts.into_iter().fold(none, |mut all, mut part| {
        join(&mut all, &mut part);
        all
    }))
}

/// The largest finite number that the rows of two tensors of one shape give, and 0 where none is larger.
pub fn largest_of_rows(
    left: &Tensor,
    right: &Tensor,
    number: impl Fn(&[f64], &[f64]) -> f64 + Sync,
) -> Result<f64> {
    let larger = |most: &mut f64, number: f64| {
        if number.is_finite() {
            *most = most.max(number);
        }
    };
    let add = |most: &mut f64, left: &[f64], right: &[f64]| larger(most, number(left, right));
    over_rows(left, right, 0.0, add, |most, other| larger(most, *other))
}
