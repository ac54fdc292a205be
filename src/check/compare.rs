//! How far are two tensors of one shape apart, element by element?

use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::tolerance::Tolerance;
use base::error::Result;
use file::InFile;
use program::{CHUNK, Misread, Numbers, chunk, unravel};

/// How two tensors of one shape differ.
#[derive(Debug, Clone, PartialEq)]
pub struct Comparison {
    /// The largest |left − right|; NaN where one side alone is NaN.
    pub max_abs: f64,
    /// The largest |left − right| / |right|, likewise.
    pub max_rel: f64,
    /// The number of elements that do not agree within the tolerance.
    pub mismatched: usize,
    /// The number of elements.
    pub count: usize,
    /// The index of the element that exceeds its tolerance most.
    pub worst: Vec<usize>,
    /// Its value on the left.
    pub left: f64,
    /// Its value on the right.
    pub right: f64,
    /// The types of the two sides.
    pub dtypes: (DType, DType),
}

/// Compares two tensors of one shape.
///
/// # Errors
/// If candle fails, as it does for shapes that differ.
pub fn compare(left: &Tensor, right: &Tensor, tolerance: Tolerance) -> Result<Comparison> {
    let (flat_left, flat_right) = (left.flatten_all()?, right.flatten_all()?);
    let count = flat_left.elem_count();
    let of_f32 = Numbers::<f32>::of(&flat_left).zip(Numbers::<f32>::of(&flat_right));
    let of_f32 = of_f32.filter(|(left, right)| left.len() == right.len());
    let part = |start: &usize| {
        let Some((left, right)) = &of_f32 else {
            let part = |flat| chunk(flat, *start, CHUNK);
            let (left, right) = (part(&flat_left)?, part(&flat_right)?);
            return Ok(Part::of(*start, left.into_iter().zip(right), tolerance));
        };
        let part = |all: &[f32]| *start..all.len().min(*start + CHUNK);
        let part = (left.get(part(left)), right.get(part(right)));
        let (Some(left), Some(right)) = part else { return Err(Misread.into()) };
        Ok(Part::of_f32(*start, left, right, tolerance))
    };
    joined(count, left.dims(), (left.dtype(), right.dtype()), part)
}

/// Compares two tensors of f32 that stand in files, of which only some numbers are ever in memory. They have `dims`.
///
/// # Errors
/// If a file has become unreadable.
pub fn compare_in_files(
    left: &InFile,
    right: &InFile,
    dims: &[usize],
    tolerance: Tolerance,
) -> Result<Comparison> {
    let count: usize = dims.iter().product();
    let part = |start: &usize| {
        let length = CHUNK.min(count - start);
        let read = |file: &InFile| {
            let mut bytes = vec![0; length * size_of::<f32>()];
            file.read(*start, &mut bytes).map(|()| bytes)
        };
        let (left, right) = (read(left)?, read(right)?);
        // As in memory: of numbers of the same bits the first is as far off as any.
        let taken = if left == right { 1 } else { length };
        let pairs = left.as_chunks().0.iter().zip(right.as_chunks().0).take(taken);
        let wide = |bytes: &[u8; 4]| f64::from(f32::from_le_bytes(*bytes));
        let pairs = pairs.map(|(left, right)| (wide(left), wide(right)));
        Ok(Part::of(*start, pairs, tolerance))
    };
    joined(count, dims, (DType::F32, DType::F32), part)
}

/// Numbers of f32 that are compared as they come, in any order and by several threads.
#[derive(Default)]
pub struct Parts(Mutex<Vec<(usize, Part)>>);

impl Parts {
    /// Compares some, from the one at `start` on, and tells whether they agree.
    pub fn add(&self, start: usize, left: &[f32], right: &[f32], tolerance: Tolerance) -> bool {
        let part = Part::of_f32(start, left, right, tolerance);
        let agree = part.mismatched == 0;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((start, part));
        agree
    }

    /// The comparison of all, of two tensors that have `dims`.
    pub fn whole(self, dims: &[usize]) -> Comparison {
        let mut parts = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        parts.sort_by_key(|(start, _)| *start);
        Part::all(parts.into_iter().map(|(_, part)| part), dims, (DType::F32, DType::F32))
    }
}

/// The comparison of all parts of so many elements, of which each is known by its first.
fn joined(
    count: usize,
    dims: &[usize],
    dtypes: (DType, DType),
    part: impl Fn(&usize) -> Result<Part> + Send + Sync,
) -> Result<Comparison> {
    let starts: Vec<usize> = (0..count).step_by(CHUNK).collect();
    // One part alone is done before another thread has begun.
    let parts: Result<Vec<Part>> = match starts.as_slice() {
        [] | [_] => starts.iter().map(part).collect(),
        _ => starts.par_iter().map(part).collect(),
    };
    Ok(Part::all(parts?.into_iter(), dims, dtypes))
}

/// How some elements differ.
#[derive(Default)]
struct Part {
    max_abs: f64,
    max_rel: f64,
    mismatched: usize,
    worst: usize,
    excess: f64,
    left: f64,
    right: f64,
}

impl Part {
    fn of(start: usize, pairs: impl Iterator<Item = (f64, f64)>, tolerance: Tolerance) -> Self {
        let mut part = Self { excess: f64::NEG_INFINITY, ..Self::default() };
        for (at, (left, right)) in pairs.enumerate() {
            let excess = tolerance.excess(left, right);
            if excess > 0.0 {
                let difference = (left - right).abs();
                part.max_abs = larger(part.max_abs, difference);
                part.max_rel = larger(part.max_rel, difference / right.abs());
            }
            part.mismatched += usize::from(excess > 1.0);
            if excess > part.excess {
                (part.worst, part.excess) = (start + at, excess);
                (part.left, part.right) = (left, right);
            }
        }
        part
    }

    /// Numbers of the same bits agree, and most that are compared have them: the first is then as far off as any.
    fn of_f32(start: usize, left: &[f32], right: &[f32], tolerance: Tolerance) -> Self {
        let pairs = left.iter().zip(right);
        let apart =
            pairs.clone().fold(0, |bits, (left, right)| bits | (left.to_bits() ^ right.to_bits()));
        let taken = if apart == 0 { 1 } else { left.len() };
        let wide = pairs.take(taken).map(|(left, right)| (f64::from(*left), f64::from(*right)));
        Self::of(start, wide, tolerance)
    }

    /// The comparison of two tensors of which these are all parts, in order.
    fn all(
        parts: impl Iterator<Item = Self>,
        dims: &[usize],
        dtypes: (DType, DType),
    ) -> Comparison {
        let whole = parts.reduce(Self::and).unwrap_or_default();
        Comparison {
            max_abs: whole.max_abs,
            max_rel: whole.max_rel,
            mismatched: whole.mismatched,
            count: dims.iter().product(),
            worst: unravel(whole.worst, dims),
            left: whole.left,
            right: whole.right,
            dtypes,
        }
    }

    /// These elements and those behind them.
    fn and(self, behind: Self) -> Self {
        let max_abs = larger(self.max_abs, behind.max_abs);
        let max_rel = larger(self.max_rel, behind.max_rel);
        let mismatched = self.mismatched + behind.mismatched;
        let worst = if behind.excess > self.excess { behind } else { self };
        Self { max_abs, max_rel, mismatched, ..worst }
    }
}

/// The larger of two, NaN above all.
fn larger(left: f64, right: f64) -> f64 {
    if left.is_nan() || right.is_nan() { f64::NAN } else { left.max(right) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn tensor(values: &[f32], shape: (usize, usize)) -> Tensor {
        Tensor::from_slice(values, shape, &Device::Cpu).expect("tensor")
    }

    #[test]
    fn the_worst_cell_is_found() {
        let left = tensor(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], (2, 3));
        let right = tensor(&[1.0, 2.5, 3.0, 4.0, 5.0, 7.0], (2, 3));
        let found = compare(&left, &right, Tolerance::of(DType::F32)).expect("compares");
        assert_eq!((found.mismatched, found.count, found.worst.as_slice()), (2, 6, &[1, 2][..]));
        assert_eq!((found.max_abs, found.max_rel), (1.0, 0.2));
        assert_eq!((found.left, found.right), (6.0, 7.0));
    }

    /// In every type: a recorded 2 beside a recomputed 1 is off by all of it, and a 1 beside a 2 by a half.
    #[test]
    fn differences_are_relative_to_the_right() {
        let (one, two) = (tensor(&[1.0], (1, 1)), tensor(&[2.0], (1, 1)));
        let half = Tolerance { rtol: 0.5, atol: 0.0 };
        for dtype in [DType::F32, DType::F64, DType::BF16] {
            let [one, two] = [&one, &two].map(|number| number.to_dtype(dtype).expect("converts"));
            let found = |left, right| compare(left, right, half).expect("compares");
            assert_eq!((found(&one, &two).mismatched, found(&one, &two).max_rel), (0, 0.5));
            assert_eq!((found(&two, &one).mismatched, found(&two, &one).max_rel), (1, 1.0));
        }
    }

    #[test]
    fn a_nan_on_one_side_is_the_worst() {
        let left = tensor(&[1.0, f32::NAN, f32::NAN], (1, 3));
        let right = tensor(&[1000.0, f32::NAN, 1.0], (1, 3));
        let found = compare(&left, &right, Tolerance::of(DType::F32)).expect("compares");
        assert!(found.max_abs.is_nan() && found.left.is_nan());
        assert_eq!((found.mismatched, found.worst.as_slice()), (2, &[0, 2][..]));
    }

    #[test]
    fn chunks_are_joined() {
        let zeros = Tensor::zeros((2, CHUNK), DType::F32, &Device::Cpu).expect("tensor");
        let mut values = vec![0.0_f32; 2 * CHUNK];
        values[CHUNK + 3] = 1.0;
        let other = tensor(&values, (2, CHUNK));
        let found = compare(&other, &zeros, Tolerance::of(DType::F32)).expect("compares");
        assert_eq!((found.mismatched, found.worst.as_slice()), (1, &[1, 3][..]));
    }
}
