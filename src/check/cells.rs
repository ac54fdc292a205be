//! How far are two lists of numbers apart, and what factor lies between them?

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

/// No single difference counts more in how far tensors are apart, and a NaN on one side as much.
const MOST: f64 = 1e3;

/// How far two tensors are apart: the sum of the absolute differences, of which no single one counts much. Infinite where
/// they have other shapes.
pub fn distance(recorded: &Tensor, value: &Tensor) -> Result<f64> {
    if recorded.dims() != value.dims() {
        return Ok(f64::INFINITY);
    }
    let apart = |recorded: &[f64], value: &[f64]| -> f64 {
        recorded
            .iter()
            .zip(value)
            .map(|(left, right)| match (left.is_nan(), right.is_nan()) {
                (false, false) => difference(*left, *right).abs().min(MOST),
                (true, true) => 0.0,
                _ => MOST,
            })
            .sum()
    };
    Ok(of_pairs(recorded, value, apart)?.into_iter().sum())
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

/// What solves normal equations, of which the matrix is positive: each row with its right side at the end. Nothing where they do
/// not tell.
pub fn solved(mut rows: Vec<Vec<f64>>) -> Option<Vec<f64>> {
    let count = rows.len();
    for at in 0..count {
        let pivot = rows[at].clone();
        if pivot[at] <= 0.0 || !pivot[at].is_normal() {
            return None;
        }
        for (_, row) in rows.iter_mut().enumerate().filter(|(other, _)| *other != at) {
            let share = row[at] / pivot[at];
            row.iter_mut().zip(&pivot).for_each(|(own, pivot)| *own -= share * pivot);
        }
    }
    Some(rows.iter().enumerate().map(|(at, row)| row[count] / row[at]).collect())
}

/// What a system of equations is solved for.
pub struct Solved {
    /// The rows, and by how much the error of a right side may grow in each.
    pub rows: Vec<(Vec<f64>, f64)>,
    /// By how much the equations are off at most.
    pub rest: f64,
}

/// Each pivot has so much left of its column, or a system does not tell.
const LEAST_LEFT: f64 = 1e-4;

/// What comes nearest to solving equations, by least squares: `known` times this is `found`, both row by row. Nothing where
/// they do not tell every row of it.
pub fn least_squares(known: &[Vec<f64>], found: &[Vec<f64>]) -> Option<Solved> {
    let dot = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| one * other).sum()
    };
    let columns = |rows: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let width = rows.first().map_or(0, Vec::len);
        (0..width).map(|at| rows.iter().map(|row| row[at]).collect()).collect()
    };
    let (mut known_columns, found_columns) = (columns(known), columns(found));
    let count = known_columns.len();
    // Gram and Schmidt, twice each: once leaves too much of the others.
    let mut upper: Vec<Vec<f64>> = Vec::with_capacity(count);
    for at in 0..count {
        let (before, rest) = known_columns.split_at_mut(at);
        let own = rest.first_mut()?;
        let size = dot(own, own).sqrt();
        let mut shares = vec![0.0; at];
        for _ in 0..2 {
            for (sum, other) in shares.iter_mut().zip(before.iter()) {
                let share = dot(own, other);
                *sum += share;
                own.iter_mut().zip(other).for_each(|(own, other)| *own -= share * other);
            }
        }
        let left = dot(own, own).sqrt();
        if !left.is_normal() || left <= LEAST_LEFT * size {
            return None;
        }
        shares.push(left);
        upper.push(shares);
        for own in own.iter_mut() {
            *own /= left;
        }
    }
    let solve = |mut right: Vec<f64>| {
        for at in (0..count).rev() {
            let known: f64 = (at + 1..count).map(|other| upper[other][at] * right[other]).sum();
            right[at] = (right[at] - known) / upper[at][at];
        }
        right
    };
    let project = |own: &Vec<f64>| known_columns.iter().map(|other| dot(own, other)).collect();
    let solved: Vec<Vec<f64>> = found_columns.iter().map(|own| solve(project(own))).collect();
    let mut growth = vec![0.0; count];
    for at in 0..count {
        let one = (0..count).map(|other| f64::from(u8::from(other == at))).collect();
        let column = solve(one);
        growth.iter_mut().zip(column).for_each(|(sum, own)| *sum += own * own);
    }
    let mut rest: f64 = 0.0;
    for (known, found) in known.iter().zip(found) {
        let apart = solved.iter().zip(found).map(|(own, found)| (dot(known, own) - found).abs());
        rest = apart.fold(rest, |most, own| if own > most || own.is_nan() { own } else { most });
    }
    let rows = growth
        .iter()
        .enumerate()
        .map(|(at, growth)| (solved.iter().map(|own| own[at]).collect(), growth.sqrt()));
    Some(Solved { rows: rows.collect(), rest })
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

/// By which factor numbers are these others, where all that is left of them is `within` of their root mean square.
pub fn multiple(own: &[f64], of: &[f64], within: f64) -> Option<f64> {
    let factor = ratio(own, of);
    let squares =
        |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|one| one * one).sum::<f64>();
    let rest = squares(&mut own.iter().zip(of).map(|(own, of)| own - factor * of));
    let is_it = rest.is_finite() && rest <= within * within * squares(&mut own.iter().copied());
    is_it.then_some(factor)
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

/// The size of the largest finite number, 0 where there is none.
///
/// # Errors
/// If candle fails.
pub fn largest(tensor: &Tensor) -> Result<f64> {
    let sizes = cells(tensor)?.into_iter().map(f64::abs).filter(|size| size.is_finite());
    Ok(sizes.fold(0.0, f64::max))
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

/// Whether two tensors may hold the same numbers in other places: their sums, and those of sizes and squares, are off by no
/// more than this part of them. Rows of weights all have the same sum; squares tell.
pub fn have_equal_sums(left: &Tensor, right: &Tensor, part: f64) -> Result<bool> {
    let sums = |left: &[f64], right: &[f64]| {
        let of = |numbers: &[f64], of: fn(f64) -> f64| numbers.iter().copied().map(of).sum::<f64>();
        let apart = |number: fn(f64) -> f64| of(left, number) - of(right, number);
        let square = |number: f64| number * number;
        [
            apart(|number| number),
            apart(f64::abs),
            of(right, f64::abs),
            apart(square),
            of(right, square),
        ]
    };
    let parts = of_pairs(left, right, sums)?;
    let total = |at: usize| parts.iter().map(|sums| sums[at]).sum::<f64>();
    // Of NaN and infinities no sum says anything.
    let is_near = |apart: f64, size: f64| apart.abs() <= part * size || !apart.is_finite();
    let size = total(2);
    Ok(is_near(total(0), size) && is_near(total(1), size) && is_near(total(3), total(4)))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::super::thresholds::{ALLOWED, OF_SUMS, OF_SUMS_IN_16_BITS};
    use super::*;

    /// Moved numbers have the same sums, however they were rounded; a thousandth more of each is told from that.
    #[test]
    fn sums_tell_moved_numbers_from_others() {
        let numbers: Vec<f64> = (0..60).map(|at| f64::from(at * 37 % 60) - 21.5).collect();
        let moved_by = |factor: f64| {
            let moved = numbers.iter().rev().map(|number| number * factor).collect();
            let [left, right] = [moved, numbers.clone()]
                .map(|numbers| Tensor::from_vec(numbers, (6, 10), &Device::Cpu).expect("fits"));
            let equal = |part| have_equal_sums(&left, &right, part).expect("numbers");
            (equal(OF_SUMS), equal(OF_SUMS_IN_16_BITS))
        };
        let spacing = f64::from(f32::EPSILON);
        assert_eq!(moved_by(1.0 + ALLOWED * spacing), (true, true));
        assert_eq!(moved_by(1.0 + 2.0 * OF_SUMS), (false, true));
        // The spacing of bf16.
        assert_eq!(moved_by(1.0 + 1.0 / 256.0), (false, true));
        assert_eq!(moved_by(1.125), (false, false));
    }

    /// Another number in one place shows in the squares of few numbers, where the sums stay.
    #[test]
    fn rows_with_the_same_sum_are_told_by_their_squares() {
        let tensor = |numbers: &[f64]| Tensor::new(numbers, &Device::Cpu).expect("fits");
        let (left, right) = (tensor(&[0.5, 0.25, 0.25]), tensor(&[0.75, 0.125, 0.125]));
        assert!(!have_equal_sums(&left, &right, OF_SUMS).expect("numbers"));
        let nan = tensor(&[f64::NAN, 0.0, 0.0]);
        assert!(have_equal_sums(&nan, &right, OF_SUMS).expect("numbers"));
    }
}
