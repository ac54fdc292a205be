//! What do `FlashAttention`'s own tests allow? A kernel may be off by twice as much as PyTorch in the same type.

use candle_core::{DType, Tensor};
use serde::Serialize;

use super::compare::compare;
use super::half::half;
use super::rerun::{exact, rounded};
use super::tolerance::Tolerance;
use base::error::Result;
use file::{Record, dtype_name};
use program::{Name, Trace};

/// How many times PyTorch's error a kernel's may be (`tests/test_flash_attn.py` of `FlashAttention`: "Check that
/// `FlashAttention`'s numerical error is at most twice the numerical error of a Pytorch implementation").
pub const ALLOWED_FACTOR: f64 = 2.0;

/// The error of a recorded step in 16 bits, beside that of PyTorch.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FlashError {
    /// The step.
    pub step: Name,
    /// The 16-bit type.
    pub dtype: &'static str,
    /// The largest difference of the recorded value from the one in f64.
    pub own: f64,
    /// The largest difference of the value from the one in f64 where each step is rounded to the 16-bit type, as PyTorch
    /// rounds the result of every operation.
    pub pytorch: f64,
}

impl FlashError {
    /// The error in multiples of PyTorch's; nothing where both have none.
    #[must_use]
    pub fn factor(&self) -> Option<f64> {
        (self.own > 0.0 || self.pytorch > 0.0).then(|| self.own / self.pytorch)
    }

    /// Whether it is within the tolerance.
    #[must_use]
    pub fn is_within(&self) -> bool {
        // NaN is not.
        self.own <= ALLOWED_FACTOR * self.pytorch
    }
}

/// The errors of what a file in a 16-bit type has of the run's results; none of a file in another type.
///
/// # Errors
/// If candle fails.
pub fn flash_errors(record: &Record, trace: &Trace) -> Result<Vec<FlashError>> {
    let Some(dtype) = half(record, trace)? else { return Ok(Vec::new()) };
    let (exact, rounded) = (exact(trace)?, rounded(trace, dtype)?);
    let mut all = Vec::new();
    for step in [Name::HeadOutputs, Name::Concat, Name::Output] {
        let recorded = record.tensor(step.as_str()).filter(|_| trace.computes(step));
        let (Some(recorded), Some(exact), Some(rounded)) =
            (recorded, exact.get(&step), rounded.get(&step))
        else {
            continue;
        };
        if recorded.dims() == exact.dims() {
            let (own, pytorch) = (furthest(recorded, exact)?, furthest(rounded, exact)?);
            all.push(FlashError { step, dtype: dtype_name(dtype), own, pytorch });
        }
    }
    Ok(all)
}

fn furthest(value: &Tensor, exact: &Tensor) -> Result<f64> {
    let wide = value.to_dtype(DType::F64)?;
    Ok(compare(&wide, exact, Tolerance { rtol: 0.0, atol: 0.0 })?.max_abs)
}
