//! What would the values of a run be in another type, or had its numbers been rounded?

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::cells::cells;
use base::error::Result;
use program::{Axes, Multiplier, Name, Pattern, Step, Trace};

/// The computed values of the run in f64.
pub fn exact(trace: &Trace) -> Result<HashMap<Name, Tensor>> {
    rerun(trace, |value| value.to_dtype(DType::F64))
}

/// The computed values of the run, every number rounded to a 16-bit type as it is made.
pub fn rounded(trace: &Trace, half: DType) -> Result<HashMap<Name, Tensor>> {
    rerun(trace, |value| value.to_dtype(half)?.to_dtype(DType::F32))
}

/// The computed values of the run, every sum as it may come out in the type of the run, in whatever order it is made: off by
/// up to half of the type's spacing of all that is added up.
pub fn summed(trace: &Trace) -> Result<HashMap<Name, Tensor>> {
    let run = trace.run_with(|step, inputs| {
        if !step.is_computed() {
            return Ok(step.value.clone());
        }
        let value = step.op.eval(inputs)?;
        let spacing = if value.dtype() == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
        let Some(size) = size_of_terms(trace, step, inputs)? else { return Ok(value) };
        shake(&value, &cells(&size)?, spacing / 2.0)
    });
    Ok(values(&run?))
}

/// The sum of the sizes of what a step's cells add up, for these inputs; nothing where a step adds up nothing, or subtracts.
pub fn size_of_terms(trace: &Trace, step: &Step, inputs: &[&Tensor]) -> Result<Option<Tensor>> {
    let axes: Vec<&Axes> = trace.read_by(step).into_iter().map(|read| &read.axes).collect();
    let adds_reads = match step.op.operation().pattern(&axes) {
        Pattern::Sum(products) => {
            let adds_up = products.len() > 1 || products.iter().any(|product| product.count > 1);
            let mut factors = products.iter().flat_map(|product| &product.factors);
            adds_up && factors.all(|factor| matches!(factor, Multiplier::Read(_)))
        }
        _ => false,
    };
    if !adds_reads {
        return Ok(None);
    }
    let sizes = inputs
        .iter()
        .map(|input| if input.dtype().is_float() { input.abs() } else { Ok((*input).clone()) });
    let sizes = sizes.collect::<candle_core::Result<Vec<_>>>()?;
    step.op.eval(&sizes.iter().collect::<Vec<_>>()).map(Some)
}

/// The computed values of the run, each number rounded as it is made; booleans stay.
fn rerun(
    trace: &Trace,
    round: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<HashMap<Name, Tensor>> {
    let rounded = trace.run_with(|step, inputs| {
        let value = if step.is_computed() { step.op.eval(inputs)? } else { step.value.clone() };
        let rounded = if value.dtype().is_float() { round(&value)? } else { value.clone() };
        if step.name != Name::RopeFreqs {
            return Ok::<_, base::Error>(rounded);
        }
        // Frequencies are powers in f32, of which the last bit is not the same everywhere. Nobody keeps them in 16 bits:
        // positions times them would be nowhere near.
        let wide = value.to_dtype(rounded.dtype())?;
        let is_exact = wide.dtype() == DType::F64;
        Ok(if is_exact { wide.affine(1.0 + f64::from(f32::EPSILON), 0.0)? } else { wide })
    })?;
    Ok(values(&rounded))
}

fn values(run: &Trace) -> HashMap<Name, Tensor> {
    let computed = run.steps().iter().filter(|step| step.is_computed());
    computed.map(|step| (step.name, step.value.clone())).collect()
}

/// Numbers as they may have been before they were rounded: each off by up to `by` of its size, equal ones alike, as the
/// tokens of a padded sequence are.
pub fn shake(value: &Tensor, sizes: &[f64], by: f64) -> Result<Tensor> {
    let shake = |(value, size): (f64, &f64)| {
        // The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
        let mut bits = value.to_bits();
        for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
            bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
        }
        let part = (bits ^ (bits >> 31)) as f64 / u64::MAX as f64 * 2.0 - 1.0;
        let shaken = value + by * part * size.abs();
        if value.is_finite() && shaken.is_finite() { shaken } else { value }
    };
    let cells: Vec<f64> = cells(value)?.into_iter().zip(sizes).map(shake).collect();
    Ok(Tensor::from_vec(cells, value.shape(), value.device())?.to_dtype(value.dtype())?)
}
