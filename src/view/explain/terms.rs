//! The terms of a number: how they are written, and whether they make it.

use candle_core::DType;
use serde_json::Value;

use crate::number::brief;
use file::json_number;
use program::Term;

/// A sum of more terms than this is cut to its edges, unless all are asked for.
pub const MOST: usize = 20;

/// The least positive number of f16: what is recorded in it can be off by as much.
const LEAST: f64 = 6e-8;

/// Whether a recorded number is another one than what it is made of gives, which is a sum of numbers of that size.
pub fn is_apart(value: f64, worked: f64, size: f64) -> bool {
    if !(value.is_finite() && worked.is_finite()) {
        return value.to_bits() != worked.to_bits() && !(value.is_nan() && worked.is_nan());
    }
    let size = size.max(value.abs()).max(worked.abs());
    // Numbers of 16 bits have three digits, and are no further off than these.
    (worked - value).abs() > LEAST.max(0.01 * size)
}

/// `q[0,1,2] 1.500 · 1 / √4 0.500`
pub fn product(term: &Term, decimals: usize) -> String {
    let factors = term.0.iter().map(|f| format!("{} ({})", brief(f.value, decimals), f.name));
    factors.collect::<Vec<_>>().join(" · ")
}

/// A number of a run in that type, or what is computed from such in f64: the shortest that reads back in its own.
pub fn exact(value: f64, dtype: DType) -> Value {
    #[allow(clippy::cast_possible_truncation, reason = "asks whether it was widened")]
    let is_narrow = dtype != DType::F64 && f64::from(value as f32).to_bits() == value.to_bits();
    json_number(value, if is_narrow { DType::F32 } else { DType::F64 })
}
