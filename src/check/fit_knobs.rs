//! The numbers of an operation that come nearest to what was recorded.

use candle_core::Tensor;

use super::fit::{cells, distance, least, ratio, refined};
use super::grammar::numbers::stated;
use super::mistakes::{Knob, Range};
use super::sieve::Given;
use base::error::Result;
use program::Axis;

/// The search for the number of a step that comes nearest to what was recorded.
pub struct Fits<'f> {
    /// What was recorded.
    pub found: &'f Tensor,
    /// The places of an axis that alone are looked at.
    pub part: Option<((usize, &'f [usize]), Axis)>,
    /// What a number gives.
    pub give: &'f dyn Fn(f64) -> Result<Option<Given>>,
}

impl Fits<'_> {
    /// The numbers that come nearest to what was recorded.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(&self, knob: &Knob) -> Result<Vec<f64>> {
        let error = |value: f64| self.error(value);
        Ok(match knob.range {
            Range::Factor => self.factor()?.into_iter().collect(),
            Range::Cell => {
                let found = cells(self.found, self.part.map(|(part, _)| part))?;
                let least = found.iter().copied().fold(f64::INFINITY, f64::min);
                let most = found.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                vec![least, most]
            }
            Range::Positive => refined(knob.value, &error)?.into_iter().collect(),
            Range::Stated => refined(knob.value, &error)?.and_then(stated).into_iter().collect(),
            Range::Whole(from, to) => {
                #[allow(clippy::cast_precision_loss, reason = "places are below 2^53")]
                let values = (from..=to).map(|value| value as f64);
                least(values, error)?.into_iter().collect()
            }
        })
    }

    /// What is looked at, of what was recorded and of what a number gives.
    fn seen<R>(
        &self,
        value: f64,
        see: impl Fn(&Given, Option<(usize, &[usize])>) -> Result<R>,
    ) -> Result<Option<R>> {
        let Some(given) = (self.give)(value)? else { return Ok(None) };
        let Some(((at, places), axis)) = self.part else { return see(&given, None).map(Some) };
        see(&given, Some((at, &given.places(axis, places)))).map(Some)
    }

    /// How far what a number gives is from what was recorded.
    fn error(&self, value: f64) -> Result<f64> {
        let apart = self.seen(value, |given, part| distance(&given.found, &given.value, part))?;
        Ok(apart.unwrap_or(f64::INFINITY))
    }

    /// The factor, from what 0 and 1 give.
    fn factor(&self) -> Result<Option<f64>> {
        let both = |given: &Given, part: Option<(usize, &[usize])>| {
            Ok((cells(&given.found, part)?, cells(&given.value, part)?))
        };
        let (Some((found, zero)), Some((_, one))) = (self.seen(0.0, both)?, self.seen(1.0, both)?)
        else {
            return Ok(None);
        };
        let rise: Vec<f64> = one.iter().zip(&zero).map(|(one, zero)| one - zero).collect();
        let own: Vec<f64> = found.iter().zip(&zero).map(|(own, zero)| own - zero).collect();
        Ok(Some(ratio(&own, &rise)).filter(|value| value.is_finite()))
    }
}
