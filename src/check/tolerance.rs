//! How far may two values be apart and still agree, as the user states it?

use std::collections::HashMap;
use std::str::FromStr;

use candle_core::{DType, Tensor};

use super::cells::{largest, largest_of_rows};
use base::error::Result;
use program::{Name, Op, Role, Trace};

/// Two values agree if |left − right| ≤ atol + rtol · |right|.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Relative.
    pub rtol: f64,
    /// Absolute.
    pub atol: f64,
}

impl Tolerance {
    /// The defaults of `torch.testing.assert_close` for a type; integers and booleans agree exactly.
    #[must_use]
    pub fn of(dtype: DType) -> Self {
        let (rtol, atol) = match dtype {
            DType::F64 => (1e-7, 1e-7),
            DType::F32 => (1.3e-6, 1e-5),
            DType::F16 => (1e-3, 1e-5),
            DType::BF16 => (1.6e-2, 1e-5),
            _ => (0.0, 0.0),
        };
        Self { rtol, atol }
    }

    /// That of a step where the gradient of the output is no larger than this: what a gradient may be off by goes with the
    /// size of the loss's, below 1.
    #[must_use]
    pub fn at_loss(self, step: Option<Name>, largest: f64) -> Self {
        let is_gradient = matches!(step, Some(Name::Gradient(_) | Name::Delta));
        if is_gradient { self.of_size(largest) } else { self }
    }

    /// That of a step of the forward pass with this value: what is small as a whole may be off by less.
    ///
    /// # Errors
    /// If candle fails.
    pub(super) fn sized(self, step: Option<Name>, value: &Tensor) -> Result<Self> {
        let is_forward = step.is_some_and(|step| {
            step.role() == Role::Computed && !matches!(step, Name::Gradient(_) | Name::Delta)
        });
        if !is_forward || !value.dtype().is_float() {
            return Ok(self);
        }
        let largest = |row: &[f64], _: &[f64]| {
            let finite = row.iter().map(|number| number.abs()).filter(|size| size.is_finite());
            finite.fold(0.0, f64::max)
        };
        Ok(self.of_size(largest_of_rows(value, value, largest)?))
    }

    /// That of numbers of which the largest is this: less where it is below 1.
    #[must_use]
    pub(super) fn of_size(self, largest: f64) -> Self {
        Self { atol: self.atol * largest.min(1.0), ..self }
    }

    /// The looser of two, in each part.
    #[must_use]
    pub fn looser(self, other: Self) -> Self {
        Self { rtol: self.rtol.max(other.rtol), atol: self.atol.max(other.atol) }
    }

    /// |left − right| as a multiple of what is allowed: agreement is at most 1. NaN agrees with NaN and an
    /// infinity with its equal; otherwise a non-finite value is infinitely far.
    #[must_use]
    pub fn excess(self, left: f64, right: f64) -> f64 {
        #[allow(clippy::float_cmp, reason = "equal infinities and exact agreement")]
        if left == right || (left.is_nan() && right.is_nan()) {
            return 0.0;
        }
        let difference = (left - right).abs();
        if !difference.is_finite() {
            return f64::INFINITY;
        }
        // 0 / 0 cannot come: the values differ.
        difference / (self.atol + self.rtol * right.abs())
    }
}

/// Tolerances that a user sets: for all steps, and for single ones.
#[derive(Debug, Clone, Default, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag")]
pub struct Tolerances {
    /// Relative ones.
    pub rtol: PerStep,
    /// Absolute ones.
    pub atol: PerStep,
    /// Whether differences beyond these count that are noise.
    pub noise_counts: bool,
    /// Whether the rows of padded queries are left out.
    pub ignores_padding: bool,
    /// Whether gradients that are not checked do not matter.
    pub ignores_gradients: bool,
    /// Whether files in 16-bit types are also held to the tolerance of `FlashAttention`'s tests.
    pub flash: bool,
    /// The largest number of the gradient of the output, where it is known.
    pub loss: Option<f64>,
}

impl Tolerances {
    /// The tolerance of a step: what is set for it, or for all, or the default.
    #[must_use]
    pub fn of(&self, step: &str, default: Tolerance) -> Tolerance {
        let default = default.at_loss(Name::in_files(step), self.loss.unwrap_or(1.0));
        Tolerance {
            rtol: self.rtol.of(step).unwrap_or(default.rtol),
            atol: self.atol.of(step).unwrap_or(default.atol),
        }
    }

    /// Whether any is set.
    #[must_use]
    pub fn are_set(&self) -> bool {
        self.rtol != PerStep::default() || self.atol != PerStep::default()
    }

    /// The steps that have one of their own.
    pub fn steps(&self) -> impl Iterator<Item = &str> {
        self.rtol.steps.keys().chain(self.atol.steps.keys()).map(String::as_str)
    }
}

/// The largest number of the gradient that a backward pass starts from; 1 where there is none.
///
/// # Errors
/// If candle fails.
pub fn size_of_loss(trace: &Trace) -> Result<f64> {
    let is_first = |step: &&program::Step| step.name.is_gradient() && step.op == Op::Given;
    let Some(first) = trace.steps().iter().find(is_first) else { return Ok(1.0) };
    let largest = largest(&first.value)?;
    Ok(if largest > 0.0 { largest } else { 1.0 })
}

/// A number for all steps and numbers for single ones: `1e-5,scores=1e-4`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PerStep {
    all: Option<f64>,
    steps: HashMap<String, f64>,
}

impl PerStep {
    fn of(&self, step: &str) -> Option<f64> {
        self.steps.get(step).copied().or(self.all)
    }
}

impl FromStr for PerStep {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let mut parsed = Self::default();
        for part in text.split(',') {
            let (step, number) = match part.split_once('=') {
                Some((step, number)) => (Some(step.trim()), number),
                None => (None, part),
            };
            let value = match number.trim().parse::<f64>() {
                Ok(value) if value >= 0.0 && value.is_finite() => value,
                _ => return Err(tr!("`{part}` is not a number from 0 up, or STEP=NUMBER", part)),
            };
            match step {
                Some(step) => drop(parsed.steps.insert(step.to_owned(), value)),
                None => parsed.all = Some(value),
            }
        }
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn non_finite_values_agree_with_themselves_alone() {
        let t = Tolerance::of(DType::F32);
        assert!(t.excess(f64::NAN, f64::NAN) <= 1.0);
        assert!(t.excess(f64::NEG_INFINITY, f64::NEG_INFINITY) <= 1.0);
        for (left, right) in
            [(f64::NAN, 1.0), (1.0, f64::NAN), (f64::INFINITY, 1.0), (1.0, f64::INFINITY)]
        {
            assert!(t.excess(left, right) > 1.0, "{left} {right}");
        }
        assert!(t.excess(f64::INFINITY, f64::NEG_INFINITY) > 1.0);
    }

    #[test]
    fn the_tolerance_is_that_of_torch_testing() {
        let t = Tolerance::of(DType::F32);
        assert!(t.excess(100.0 + 1.39e-4, 100.0) <= 1.0);
        assert!(t.excess(100.0 + 1.41e-4, 100.0) > 1.0);
        assert!(Tolerance::of(DType::U8).excess(1.0, 0.0) > 1.0);
    }

    #[test]
    fn that_of_a_gradient_goes_with_the_loss() {
        let of = |step| Tolerance::of(DType::F32).at_loss(Some(step), 2e-4).atol;
        assert!((of(Name::Q.gradient()) - 2e-9).abs() < 1e-15);
        assert!((of(Name::Q) - 1e-5).abs() < 1e-15);
    }

    /// As in `assert_close(actual, expected)`, which is of what it should be: |a − b| ≤ atol + rtol · |b|.
    #[test]
    fn what_is_relative_is_so_to_the_right_value() {
        let half = Tolerance { rtol: 0.5, atol: 0.0 };
        assert!(half.excess(1.0, 2.0) <= 1.0);
        assert!(half.excess(2.0, 1.0) > 1.0);
    }

    #[test]
    fn what_is_small_may_be_off_by_less() {
        let value = Tensor::new(&[2e-4_f32, -1e-5], &candle_core::Device::Cpu).expect("tensor");
        let sized = |step| Tolerance::of(DType::F32).sized(step, &value).expect("sized").atol;
        assert!((sized(Some(Name::Output)) - 2e-9).abs() < 1e-15);
        assert!((sized(None) - 1e-5).abs() < 1e-15);
    }

    #[test]
    fn a_step_may_have_its_own() {
        let tolerances = Tolerances {
            atol: "1e-5,scores=1e-4".parse().expect("reads"),
            ..Tolerances::default()
        };
        let default = Tolerance { rtol: 1.0, atol: 2.0 };
        assert_eq!(tolerances.of("scores", default), Tolerance { rtol: 1.0, atol: 1e-4 });
        assert_eq!(tolerances.of("q", default), Tolerance { rtol: 1.0, atol: 1e-5 });
        assert!("-1".parse::<PerStep>().is_err() && "q=nan".parse::<PerStep>().is_err());
    }
}
