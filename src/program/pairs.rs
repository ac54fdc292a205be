//! Numbers of tensors, some at a time: of one, or of two of one shape on all cores.

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::misread::Misread;
use base::error::Result;

/// So many numbers are looked at together, so that large tensors are not copied whole.
pub const CHUNK: usize = 1 << 18;

/// What is made of some whole rows of two tensors of one shape at a time, in the order of the rows.
///
/// # Errors
/// If they have not as many elements, or candle fails.
pub fn of_pairs<T: Send>(
    left: &Tensor,
    right: &Tensor,
    of: impl Fn(&[f64], &[f64]) -> T + Sync,
) -> Result<Vec<T>> {
    if left.elem_count() != right.elem_count() {
        return Err(Misread.into());
    }
    let width = left.dims().last().copied().unwrap_or(1).max(1);
    let (left, right) = (left.flatten_all()?, right.flatten_all()?);
    let whole_rows = width * (CHUNK / width).max(1);
    let part = |start: usize| {
        Ok(of(&chunk(&left, start, whole_rows)?, &chunk(&right, start, whole_rows)?))
    };
    let starts: Vec<usize> = (0..left.elem_count()).step_by(whole_rows).collect();
    // One part alone is done before another thread has begun.
    match starts.as_slice() {
        [] | [_] => starts.into_iter().map(part).collect(),
        _ => starts.into_par_iter().map(part).collect(),
    }
}

/// The elements of a flat tensor from `start` on, at most `length`.
///
/// # Errors
/// If candle fails.
pub fn chunk(flat: &Tensor, start: usize, length: usize) -> Result<Vec<f64>> {
    let part = flat.narrow(0, start, length.min(flat.elem_count() - start))?;
    Ok(part.to_dtype(DType::F64)?.to_vec1()?)
}

/// The first number of a tensor of which something is true, and its place among all.
///
/// # Errors
/// If candle fails.
pub fn first_number(tensor: &Tensor, is_it: impl Fn(f64) -> bool) -> Result<Option<(usize, f64)>> {
    let flat = tensor.flatten_all()?;
    for start in (0..flat.elem_count()).step_by(CHUNK) {
        let numbers = chunk(&flat, start, CHUNK)?;
        if let Some(at) = numbers.iter().position(|number| is_it(*number)) {
            return Ok(Some((start + at, numbers[at])));
        }
    }
    Ok(None)
}
