//! How is a single number written without loss, as text and as JSON?

use candle_core::DType;
use serde_json::{Value, json};

/// The shortest decimal that reads back to the value in its own type.
pub fn shortest(value: f64, dtype: DType) -> String {
    #[allow(clippy::cast_possible_truncation, reason = "it was widened")]
    if dtype == DType::F64 { format!("{value:?}") } else { format!("{:?}", value as f32) }
}

/// A number, or the string that files have for a non-finite one.
pub fn json_number(value: f64, dtype: DType) -> Value {
    match value {
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value if value.is_nan() => json!("NaN"),
        value => shortest(value, dtype).parse::<f64>().map_or(Value::Null, |value| json!(value)),
    }
}
