//! Which 16-bit type were a file's values computed in?

use candle_core::{DType, Tensor};

use base::error::Result;
use file::{Entry, Record};
use program::{Name, Precision, Role, Step, Trace};

/// Whether a step stays in f32 where softmax is computed in it and all else has 16 bits.
pub fn is_of_softmax(step: Name) -> bool {
    step.row().is_of_scores() || step == Name::Weights
}

/// The 16-bit type that a file's values were computed in: that of a tensor, or the one that all its computed values
/// are numbers of, as `NumPy` has no bf16 and people widen what they record.
///
/// # Errors
/// If candle fails.
pub fn half(record: &Record, trace: &Trace) -> Result<Option<DType>> {
    let is_half = |dtype: &DType| matches!(dtype, DType::F16 | DType::BF16);
    let mut dtypes = record.entries.iter().map(|entry| entry.tensor.dtype());
    if let Some(dtype) = dtypes.find(is_half) {
        return Ok(Some(dtype));
    }
    let computed = record.entries.iter().filter(|entry| {
        Name::in_files(&entry.name).is_none_or(|name| {
            trace.step(name).map_or(name.role() == Role::Computed, Step::is_computed)
        })
    });
    let (of_softmax, others): (Vec<&Entry>, Vec<&Entry>) =
        computed.partition(|entry| Name::in_files(&entry.name).is_some_and(is_of_softmax));
    let telling = if others.is_empty() { of_softmax } else { others };
    let computed: Vec<&Tensor> = telling.into_iter().map(|entry| &entry.tensor).collect();
    for precision in [Precision::Bf16, Precision::F16] {
        let mut fit = !computed.is_empty();
        for values in &computed {
            fit = fit && precision.holds_all(values)?;
        }
        if fit {
            return Ok(precision.dtype());
        }
    }
    Ok(None)
}
