//! How far rounding alone takes each step of a run, and what that explains.

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::compare::{compare, largest_difference};
use super::tolerance::Tolerance;
use crate::error::Result;
use crate::trace::{Op, Trace};

/// What the noise of one run is multiplied by: another order of additions and other instructions give other noise of
/// the same size. With it none of 500 correct runs by PyTorch, in f64, f32, f16 and bf16 and with the products added
/// in random order, is called different (`benches/pytorch.py noise`).
pub const ALLOWED: f64 = 8.0;

/// The noise of every step of one run.
pub struct Noise(HashMap<String, f64>);

impl Noise {
    /// Measures it: the largest difference of every step's value from what it is in f64, when it is computed as it
    /// was recorded, in the type of the run or with every value rounded to `half`.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(trace: &Trace, half: Option<DType>) -> Result<Self> {
        let exact = rerun(trace, DType::F64, |value| Ok(value.clone()))?;
        let rounded = match half {
            Some(half) => Some(rerun(trace, DType::F32, |value| value.to_dtype(half))?),
            None => None,
        };
        let mut noise = HashMap::new();
        for step in trace.steps().iter().filter(|step| step.op != Op::Given) {
            let rounded = match &rounded {
                Some(rounded) => rounded.get(&step.name),
                None => Some(&step.value),
            };
            if let (Some(rounded), Some(exact)) = (rounded, exact.get(&step.name)) {
                noise.insert(step.name.clone(), largest_difference(rounded, exact)?);
            }
        }
        Ok(Self(noise))
    }

    /// Whether two values of a step are the same but for rounding.
    ///
    /// # Errors
    /// If candle fails.
    pub fn agree(&self, step: &str, left: &Tensor, right: &Tensor) -> Result<bool> {
        let rounding = Tolerance { rtol: 0.0, atol: ALLOWED * self.at(step) };
        // What the user allows says what differs, not what explains it.
        let tolerance = Tolerance::of(left.dtype()).looser(rounding);
        Ok(left.dims() == right.dims() && compare(left, right, tolerance)?.mismatched == 0)
    }

    /// The largest difference of two values of a step, in multiples of its noise; nothing where it has none.
    ///
    /// # Errors
    /// If candle fails.
    pub fn multiple(&self, step: &str, left: &Tensor, right: &Tensor) -> Result<Option<f64>> {
        let exact = Tolerance { rtol: 0.0, atol: 0.0 };
        let multiple = compare(left, right, exact)?.max_abs / self.at(step);
        Ok(multiple.is_finite().then_some(multiple))
    }

    fn at(&self, step: &str) -> f64 {
        self.0.get(step).copied().unwrap_or(0.0)
    }
}

/// The computed values of the run in another type, each number rounded as it is made; booleans stay.
fn rerun(
    trace: &Trace,
    dtype: DType,
    round: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<HashMap<String, Tensor>> {
    let mut values: Vec<Tensor> = Vec::new();
    for step in trace.steps() {
        let value = if step.op == Op::Given {
            step.value.clone()
        } else {
            let inputs: Vec<&Tensor> =
                step.inputs.iter().filter_map(|at| values.get(*at)).collect();
            step.op.eval(&inputs)?
        };
        let is_float = value.dtype().is_float();
        values.push(if is_float { round(&value)?.to_dtype(dtype)? } else { value });
    }
    let computed = trace.steps().iter().zip(values).filter(|(step, _)| step.op != Op::Given);
    Ok(computed.map(|(step, value)| (step.name.clone(), value)).collect())
}
