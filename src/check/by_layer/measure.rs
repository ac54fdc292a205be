//! How far are two recorded tensors apart, row by row? No more of them is in memory than some rows.

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::super::cells::{difference, over_rows};
use super::super::tolerance::Tolerance;
use base::error::Result;
use file::Bundle;
use program::{CHUNK, Misread, Numbers, Precision, wide};

/// A tensor of an opened file, with rows of so many numbers.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub file: &'a Bundle,
    pub at: usize,
    pub width: usize,
}

impl Source<'_> {
    /// Rows of the tensor, as (1, rows, width).
    pub fn rows(&self, first: usize, count: usize) -> Result<Tensor> {
        let flat = self.file.some_of(self.at, first * self.width, count * self.width)?;
        Ok(flat.reshape((1, count, self.width))?)
    }

    /// Single rows of the tensor, in f32, as (1, rows, width).
    pub fn picked(&self, rows: &[usize]) -> Result<Tensor> {
        let rows = rows.iter().map(|row| self.rows(*row, 1)).collect::<Result<Vec<_>>>()?;
        let joined = Tensor::cat(&rows, 1)?;
        wide(&joined)
    }

    /// The type of some of its numbers: sums of what ranks gave in 16 bits are as exact as that, though they are made in f32.
    fn narrow(&self, some: &Tensor) -> Result<DType> {
        let stated = self.file.infos().get(self.at).map(|info| info.dtype);
        stated
            .filter(|own| matches!(own, DType::F16 | DType::BF16))
            .map_or_else(|| narrow(some), Ok)
    }
}

/// Rows of the reference that stand beside rows of the port: in which of its forward passes, and from where on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Beside {
    pub left: usize,
    pub pass: usize,
    pub right: usize,
    pub count: usize,
}

/// How far two tensors are apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measure {
    /// The largest difference in the worst row, relative to the size of the row: that of its largest number, or of the middle
    /// row's where that is larger. NaN or infinities on one side alone are infinitely far.
    pub error: f64,
    /// The same of the middle row.
    pub usual: f64,
    /// The worst row of the reference.
    pub row: usize,
    /// What the types of both may be off by, relative to the same.
    pub tolerance: f64,
    /// The type of the port in 16 bits, if it is one, though its numbers may have been widened.
    pub half: Option<DType>,
}

impl Measure {
    /// Whether they agree but for the rounding of their types.
    pub fn agrees(&self) -> bool {
        self.error <= self.tolerance
    }
}

/// Compares rows of two tensors: of the port there is one tensor in each forward pass.
pub fn measure(
    left: Source,
    right: &[Option<Source>],
    beside: &[Beside],
) -> Result<Option<Measure>> {
    let mut all: Vec<(f64, f64)> = Vec::new();
    let mut places: Vec<(usize, usize)> = Vec::new();
    let (mut tolerance, mut half) = (None, None);
    let most = (CHUNK * 8 / left.width.max(1)).max(1);
    for rows in beside {
        let Some(source) = right.get(rows.pass).copied().flatten() else { continue };
        for first in (0..rows.count).step_by(most) {
            let count = most.min(rows.count - first);
            let own = left.rows(rows.left + first, count)?;
            let other = source.rows(rows.right + first, count)?;
            if tolerance.is_none() {
                let (own, other) = (left.narrow(&own)?, source.narrow(&other)?);
                tolerance = Some(Tolerance::of(own).looser(Tolerance::of(other)));
                half = Some(other).filter(|dtype| matches!(dtype, DType::F16 | DType::BF16));
            }
            places.push((all.len(), rows.left + first));
            all.extend(of_rows(&own, &other)?);
        }
    }
    let Some(tolerance) = tolerance.map(|both| both.rtol + both.atol) else { return Ok(None) };
    let errors = relative(&all);
    let usual = middle_of(errors.iter().copied()).ok_or(Misread)?;
    let (at, error) = errors
        .into_iter()
        .enumerate()
        .fold((0, 0.0), |most: (usize, f64), own| if own.1 > most.1 { own } else { most });
    let (from, first) =
        places.iter().rev().find(|(from, _)| *from <= at).copied().unwrap_or((0, 0));
    Ok(Some(Measure { error, usual, row: first + at - from, tolerance, half }))
}

/// The differences of rows relative to their sizes, or to that of the middle row where it is larger.
fn relative(rows: &[(f64, f64)]) -> Vec<f64> {
    let middle = middle_of(rows.iter().map(|(_, size)| *size)).unwrap_or(0.0);
    let relative = |(apart, size): &(f64, f64)| match size.max(middle) {
        _ if *apart == 0.0 => 0.0,
        size if size > 0.0 => apart / size,
        _ => f64::INFINITY,
    };
    rows.iter().map(relative).collect()
}

/// The middle one of some numbers.
fn middle_of(numbers: impl Iterator<Item = f64>) -> Option<f64> {
    let mut numbers: Vec<f64> = numbers.collect();
    let middle = numbers.len() / 2;
    (!numbers.is_empty()).then(|| *numbers.select_nth_unstable_by(middle, f64::total_cmp).1)
}

/// The largest difference of each row, and the size of the row on the left.
fn of_rows(left: &Tensor, right: &Tensor) -> Result<Vec<(f64, f64)>> {
    let width = left.dims().last().copied().unwrap_or(1).max(1);
    let (flat_left, flat_right) = (left.flatten_all()?, right.flatten_all()?);
    let of_f32 = Numbers::<f32>::of(&flat_left).zip(Numbers::<f32>::of(&flat_right));
    if let Some((left, right)) = of_f32.filter(|(left, right)| left.len() == right.len()) {
        let rows = left.par_chunks(width).zip(right.par_chunks(width)).with_min_len(LEAST_ROWS);
        return Ok(rows.map(|(left, right)| of_row(left, right)).collect());
    }
    let add =
        |all: &mut Vec<(f64, f64)>, left: &[f64], right: &[f64]| all.push(of_row(left, right));
    over_rows(left, right, Vec::new(), add, Vec::append)
}

/// So many rows are worth a thread.
const LEAST_ROWS: usize = 16;

fn of_row<T: Copy + Into<f64>>(left: &[T], right: &[T]) -> (f64, f64) {
    let pairs = || left.iter().zip(right).map(|(left, right)| ((*left).into(), (*right).into()));
    let (mut apart, mut size, mut is_odd) = (0.0, 0.0, false);
    for (left, right) in pairs() {
        let (own, large) = (f64::abs(left - right), f64::abs(left));
        is_odd |= !own.is_finite();
        apart = if own > apart { own } else { apart };
        size = if large > size { large } else { size };
    }
    if !is_odd {
        return (apart, size);
    }
    // NaN agrees with NaN, and an infinity with its equal.
    let own = |(left, right): (f64, f64)| match left.total_cmp(&right).is_eq()
        || left.is_nan() && right.is_nan()
    {
        true => 0.0,
        false if left.is_finite() && right.is_finite() => difference(left, right).abs(),
        false => f64::INFINITY,
    };
    let finite = pairs().map(|(left, _)| left.abs()).filter(|left| left.is_finite());
    (pairs().map(own).fold(0.0, f64::max), finite.fold(0.0, f64::max))
}

/// The type of a tensor, or the one of 16 bits that holds all its numbers, as recordings are often widened.
pub fn narrow(tensor: &Tensor) -> Result<DType> {
    if tensor.dtype() != DType::F32 {
        return Ok(tensor.dtype());
    }
    for precision in [Precision::Bf16, Precision::F16] {
        if precision.holds_all(tensor)? {
            return Ok(precision.dtype().unwrap_or(DType::F32));
        }
    }
    Ok(DType::F32)
}

/// The measure of two tensors that have been read; infinite where they have other shapes.
pub fn apart(left: &Tensor, right: &Tensor) -> Result<f64> {
    if left.dims() != right.dims() {
        return Ok(f64::INFINITY);
    }
    let rows = of_rows(left, right)?;
    let largest = rows.iter().map(|(_, size)| *size).fold(0.0, f64::max);
    let relative = |(apart, size): &(f64, f64)| {
        let size = size.max(largest / 2.0);
        if *apart == 0.0 { 0.0 } else { apart / size }
    };
    Ok(rows.iter().map(relative).fold(0.0, f64::max))
}

/// The measure of the middle row of two tensors of one shape.
pub fn usual(left: &Tensor, right: &Tensor) -> Result<f64> {
    Ok(middle_of(relative(&of_rows(left, right)?).into_iter()).unwrap_or(0.0))
}

/// What numbers of a type may be off by, relative to the size of a row.
pub fn tolerance_of(tensor: &Tensor) -> Result<f64> {
    let tolerance = Tolerance::of(narrow(tensor)?);
    Ok(tolerance.rtol + tolerance.atol)
}
