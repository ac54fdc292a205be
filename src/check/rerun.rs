//! A run again, without rounding or with more of it.

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use base::error::Result;
use program::{Name, Trace};

/// The computed values of the run in f64.
///
/// # Errors
/// If candle fails.
pub fn exact(trace: &Trace) -> Result<HashMap<Name, Tensor>> {
    rerun(trace, |value| value.to_dtype(DType::F64))
}

/// The computed values of the run, every number rounded to a 16-bit type as it is made.
///
/// # Errors
/// If candle fails.
pub fn rounded(trace: &Trace, half: DType) -> Result<HashMap<Name, Tensor>> {
    rerun(trace, |value| value.to_dtype(half)?.to_dtype(DType::F32))
}

/// The computed values of the run, each number rounded as it is made; booleans stay.
fn rerun(
    trace: &Trace,
    round: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<HashMap<Name, Tensor>> {
    let rounded = trace.run_with(|step, inputs| {
        let is_computed = step.is_computed();
        let value = if is_computed { step.op.eval(inputs)? } else { step.value.clone() };
        let rounded = if value.dtype().is_float() { round(&value)? } else { value.clone() };
        if step.name != Name::RopeFreqs {
            return Ok::<_, base::error::Error>(rounded);
        }
        // Frequencies are powers in f32, of which the last bit is not the same everywhere. Nobody keeps them in 16 bits:
        // positions times them would be nowhere near.
        let wide = value.to_dtype(rounded.dtype())?;
        let is_exact = wide.dtype() == DType::F64;
        Ok(if is_exact { wide.affine(1.0 + f64::from(f32::EPSILON), 0.0)? } else { wide })
    })?;
    let computed = rounded.steps().iter().filter(|step| step.is_computed());
    Ok(computed.map(|step| (step.name, step.value.clone())).collect())
}
