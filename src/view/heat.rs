//! Scores and weights as shades.

use candle_core::{DType, Tensor};

use super::number::number;
use crate::program::{Axis, Step};

/// From the lowest values to the highest.
const SHADES: [&str; 5] = ["   ", "░░░", "▒▒▒", "▓▓▓", "███"];

/// What the shades of a table stand for.
pub struct Heat {
    low: f64,
    high: f64,
}

impl Heat {
    /// The heat of a table of queries and keys: of weights from 0 to 1, of scores from the lowest to the highest, but for
    /// masked ones. Other tables, and masks, have none.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(step: &Step, values: &Tensor) -> candle_core::Result<Option<Self>> {
        let axes: Vec<Axis> = step.axes.iter().map(|(axis, _)| axis).collect();
        if !axes.ends_with(&[Axis::Query, Axis::Key]) || !values.dtype().is_float() {
            return Ok(None);
        }
        let operation = step.op.operation();
        if let Some((low, high)) = operation.range() {
            return Ok(Some(Self { low, high }));
        }
        let masked = operation.fill().map_or(f64::NEG_INFINITY, |fill| fill / 2.0);
        let values = values.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let seen = || values.iter().copied().filter(|value| value.is_finite() && *value > masked);
        let heat = Self {
            low: seen().fold(f64::INFINITY, f64::min),
            high: seen().fold(f64::NEG_INFINITY, f64::max),
        };
        Ok((heat.low <= heat.high).then_some(heat))
    }

    /// How high a value is between the lowest and the highest, from 0 to 1.
    pub fn share(&self, value: f64) -> Option<f64> {
        let share = (value - self.low) / (self.high - self.low);
        value.is_finite().then(|| if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) })
    }

    /// A value's shade; a dot for a masked one.
    pub fn shade(&self, value: f64, is_masked: bool) -> String {
        if is_masked {
            return "·".to_owned();
        }
        let Some(share) = self.share(value) else { return number(value, 0) };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 to 4")]
        let at = (share * 5.0).clamp(0.0, 4.0) as usize;
        SHADES.get(at).copied().unwrap_or_default().to_owned()
    }

    /// What the shades mean.
    pub fn legend(&self, decimals: usize) -> String {
        let (low, high) = (number(self.low, decimals), number(self.high, decimals));
        format!("{low} [{}] {high}", SHADES.concat())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shades_are_fifths() {
        let heat = Heat { low: 0.0, high: 1.0 };
        let shades = [0.0, 0.19, 0.2, 0.5, 0.79, 0.8, 1.0].map(|value| heat.shade(value, false));
        assert_eq!(shades, ["   ", "   ", "░░░", "▒▒▒", "▓▓▓", "███", "███"]);
        assert_eq!([heat.shade(0.5, true), heat.shade(f64::NAN, false)], ["·", "nan"]);
        assert_eq!(Heat { low: 2.0, high: 2.0 }.shade(2.0, false), "███");
    }
}
