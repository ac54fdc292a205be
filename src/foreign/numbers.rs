//! Which numbers does a tensor hold?

use candle_core::{DType, Tensor};

use base::error::Result;

/// A tensor's numbers as they were written: of f32 0.3, and not 0.30000001192092896.
///
/// # Errors
/// If candle fails.
pub fn written(tensor: &Tensor) -> Result<Vec<f64>> {
    let all = numbers(tensor)?;
    if tensor.dtype() != DType::F32 {
        return Ok(all);
    }
    #[allow(clippy::cast_possible_truncation, reason = "they were of that type")]
    let shortest = |number: f64| (number as f32).to_string().parse().unwrap_or(number);
    Ok(all.into_iter().map(shortest).collect())
}

/// A tensor's numbers.
///
/// # Errors
/// If candle fails.
pub fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
}

/// Whether numbers are 0 and 1 alone.
pub fn are_booleans(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| [0.0, 1.0].contains(number))
}

/// Numbers as settings have them: 3,2,4.
pub fn listed<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
