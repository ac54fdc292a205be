//! How high scores and weights are.

use candle_core::{DType, Tensor};

use super::number::number;
use program::{Axis, Step};

/// The lowest and the highest number of a table.
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
        if !Self::is_of(step) {
            return Ok(None);
        }
        let facts = step.op.operation().facts();
        if let Some((low, high)) = facts.range {
            return Ok(Some(Self { low, high }));
        }
        let masked = facts.fill.map_or(f64::NEG_INFINITY, |fill| fill / 2.0);
        let values = values.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let seen = || values.iter().copied().filter(|value| value.is_finite() && *value > masked);
        let heat = Self {
            low: seen().fold(f64::INFINITY, f64::min),
            high: seen().fold(f64::NEG_INFINITY, f64::max),
        };
        Ok((heat.low <= heat.high).then_some(heat))
    }

    /// Whether a step is a table of queries and keys, and no mask.
    pub fn is_of(step: &Step) -> bool {
        let axes: Vec<Axis> = step.axes.iter().map(|(axis, _)| axis).collect();
        axes.ends_with(&[Axis::Query, Axis::Key]) && step.value.dtype().is_float()
    }

    /// How high a value is between the lowest and the highest, in thousandths.
    pub fn thousandths(&self, value: f64) -> Option<u16> {
        let share = (value - self.low) / (self.high - self.low);
        let share = if share.is_nan() { 1.0 } else { share.clamp(0.0, 1.0) };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within 0 to 1000"
        )]
        value.is_finite().then(|| (share * 1000.0).round() as u16)
    }

    /// The lowest and the highest value.
    pub fn scale(&self, decimals: usize) -> (String, String) {
        (number(self.low, decimals), number(self.high, decimals))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heat_is_a_share_of_the_range() {
        let heat = Heat { low: -1.0, high: 1.0 };
        let of = |value| heat.thousandths(value);
        assert_eq!([of(-1.0), of(0.5), of(1.0), of(7.0)], [0, 750, 1000, 1000].map(Some));
        assert_eq!([of(f64::NAN), of(f64::NEG_INFINITY)], [None, None]);
        assert_eq!(Heat { low: 2.0, high: 2.0 }.thousandths(2.0), Some(1000));
    }
}
