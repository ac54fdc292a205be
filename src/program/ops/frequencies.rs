//! The frequencies of rotary positions, and how a checkpoint's config changes them.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_lossless,
    reason = "sizes and settings become 32-bit numbers where torch makes them so"
)]

use std::f64::consts::{PI, TAU};

use candle_core::DType;

use super::rope_scaling::{Llama3, RopeScaling, Yarn};
use crate::pattern::{Multiplier, Pattern, Products};
use base::error::{Error, Result};

/// (pairs): the frequencies of a run's rotary positions.
///
/// They are the inverse frequencies of `dims` rotated features, one per pair: θᵢ = base^(−2i / dims) (`RoFormer`, Su et al.,
/// 2021, section 3.2.2), scaled as a checkpoint's config says.
///
/// - `linear`: θᵢ / factor (Position Interpolation, Chen et al., 2023, section 2.3).
/// - `dynamic`: the base is multiplied by (factor · n / L − (factor − 1))^(dims / (dims − 2)) where the run's n positions
///   are more than L (`YaRN`, Peng et al., 2023, sections 3.1, which has the exponent, and 3.3; the rest is
///   emozilla's code, as `transformers` has it).
/// - `llama3`: divided, kept or between by the wave length (`apply_scaling` in the code released with Llama 3.1).
/// - `longrope`: θᵢ / `long_factor`ᵢ where the run's positions are more than L, otherwise θᵢ / `short_factor`ᵢ.
/// - `proportional`: θᵢ / factor of the first ⌊part · dims / 2⌋ pairs; 0 of the others.
/// - `yarn`: divided, kept or between by the turns that a pair makes in L positions (`YaRN`, section 3.2, with the ramp
///   over features as in the paper's code).
///
/// The arithmetic is in 32 bits and in the order of `transformers` 5.23 (`modeling_rope_utils.py`). With torch's vector
/// instructions off the same bits come out (glibc). With AVX2 it raises 16 numbers at a time (32 with AVX-512) by an
/// approximation of Sleef's, and calls `powf` for fewer and for those left over: from that many frequencies on, about 1
/// in 80 differs in its last bits. Raising in 64 bits and rounding is no nearer to either.
#[derive(Debug, Clone, PartialEq)]
pub struct Frequencies {
    /// The number of features that are turned.
    pub dims: usize,
    /// What the frequencies are powers of.
    pub base: f64,
    /// How they are changed.
    pub scaling: Option<RopeScaling>,
    /// The number of positions of the run, by which some scalings go.
    pub positions: usize,
    /// The type of the run.
    pub dtype: DType,
}

impl Frequencies {
    /// Every frequency: a power of the base, and what the scaling makes of that.
    pub(super) fn pattern(&self) -> Pattern {
        let Ok(numbers) = self.numbers() else { return Pattern::ByCell };
        let Self { dims, base, scaling, .. } = self;
        let powers: Vec<f64> = inverses(*dims, *base as f32).map(f64::from).collect();
        let named = powers.iter().enumerate();
        let named = named.map(|(pair, power)| (format!("{base}^(−{} / {dims})", 2 * pair), *power));
        let mut factors = vec![Multiplier::Listed(0, named.collect())];
        factors.extend(scaling.as_ref().map(|scaling| {
            let name = tr!("{kind} scaling", kind = scaling.kind());
            let scaled = numbers.iter().zip(&powers);
            let scaled = scaled.map(|(number, power)| (name.clone(), f64::from(*number) / power));
            Multiplier::Listed(0, scaled.collect())
        }));
        Pattern::Sum(vec![Products::one(factors)])
    }

    /// The numbers, in the 32 bits that they are computed in.
    ///
    /// # Errors
    /// If the base gives frequencies that are no numbers, or is 1 beside `yarn`; or if `longrope` has another number of
    /// factors than there are pairs.
    pub fn numbers(&self) -> Result<Vec<f32>> {
        let &Self { dims, base, positions, .. } = self;
        let values: Vec<f32> = match &self.scaling {
            None | Some(RopeScaling::Default) => inverses(dims, base as f32).collect(),
            Some(RopeScaling::Linear { factor }) => {
                inverses(dims, base as f32).map(|frequency| frequency / *factor as f32).collect()
            }
            Some(RopeScaling::Dynamic { factor, max_position_embeddings }) => {
                let base = dynamic_base(dims, base, *factor, *max_position_embeddings, positions);
                inverses(dims, base).collect()
            }
            Some(RopeScaling::Llama3(scaling)) => {
                inverses(dims, base as f32).map(|frequency| llama3(frequency, scaling)).collect()
            }
            Some(RopeScaling::Yarn(scaling)) => yarn(dims, base, scaling),
            Some(RopeScaling::Longrope(own)) => {
                let is_long = own.is_long(positions);
                let (name, factors) = if is_long {
                    ("long_factor", &own.long_factor)
                } else {
                    ("short_factor", &own.short_factor)
                };
                if factors.len() != dims / 2 {
                    let what = tr!(
                        "{name} has {factors} numbers for {dims} pairs",
                        name,
                        factors = factors.len(),
                        dims = dims / 2
                    );
                    return Err(Error::config(what, "give one for every pair that is rotated"));
                }
                let scaled = |(power, factor): (f32, &f64)| (*factor as f32 * power).recip();
                powers(dims, base as f32).zip(factors).map(scaled).collect()
            }
            Some(RopeScaling::Proportional(own)) => {
                let turned = (own.partial_rotary_factor * dims as f64 / 2.0).floor() as usize;
                let of = |(pair, frequency): (usize, f32)| {
                    if pair < turned { frequency / own.factor as f32 } else { 0.0 }
                };
                inverses(dims, base as f32).enumerate().map(of).collect()
            }
        };
        // Logarithms to base 1, which say where the ramp of yarn is, are no numbers either.
        let is_flat = matches!(self.scaling, Some(RopeScaling::Yarn(_))) && base.ln() == 0.0;
        if is_flat || values.iter().any(|value| !value.is_finite()) {
            let what = tr!("rope_base {base} gives frequencies that are not finite numbers", base);
            return Err(Error::config(what, "give a base above 1, such as 10000"));
        }
        Ok(values)
    }
}

/// base^(2i / dims) for every pair.
fn powers(dims: usize, base: f32) -> impl Iterator<Item = f32> {
    (0..dims).step_by(2).map(move |feature| base.powf(feature as f32 / dims as f32))
}

/// base^(−2i / dims) for every pair.
fn inverses(dims: usize, base: f32) -> impl Iterator<Item = f32> {
    powers(dims, base).map(f32::recip)
}

/// The base that `dynamic` scaling has in place of the model's, for a run of so many positions.
///
/// A model computes it in 64 bits as it is made, and again in 32 bits as it sees more positions than `max`; there torch
/// raises a tensor to a number in 64 bits. With two dims the exponent is infinite and the base too, and the one frequency
/// is 1, as ever.
fn dynamic_base(dims: usize, base: f64, factor: f64, max: usize, positions: usize) -> f32 {
    let exponent = dims as f64 / (dims as f64 - 2.0);
    if positions <= max {
        let stretch = factor * max as f64 / max as f64 - (factor - 1.0);
        return (base * stretch.powf(exponent)) as f32;
    }
    let stretch = factor as f32 * positions as f32 / max as f32 - (factor - 1.0) as f32;
    base as f32 * f64::from(stretch).powf(exponent) as f32
}

/// A frequency θ of wave length w = 2π/θ under `llama3` scaling: θ where w < L / high, θ / factor where w > L / low, and
/// (1 − t) · θ / factor + t · θ between, t = (L / w − low) / (high − low).
///
/// Torch divides a number by a tensor as the tensor's reciprocal times the number.
fn llama3(frequency: f32, scaling: &Llama3) -> f32 {
    let &Llama3 { factor, low_freq_factor: low, high_freq_factor: high, .. } = scaling;
    let trained = scaling.original_max_position_embeddings as f64;
    let wave_length = frequency.recip() * TAU as f32;
    if wave_length > (trained / low) as f32 {
        return frequency / factor as f32;
    }
    if wave_length < (trained / high) as f32 {
        return frequency;
    }
    let smooth = (wave_length.recip() * trained as f32 - low as f32) / (high - low) as f32;
    (1.0 - smooth) * frequency / factor as f32 + smooth * frequency
}

/// θ / factor · (1 − kept) + θ · kept for every pair, where `kept` falls from 1 to 0 between the pair that makes
/// `beta_fast` turns in L positions and the one that makes `beta_slow`.
fn yarn(dims: usize, base: f64, scaling: &Yarn) -> Vec<f32> {
    let trained = scaling.original_max_position_embeddings as f64;
    // The pair that makes so many turns: 2π · turns = L · base^(−2 · pair / dims), solved for the pair.
    let pair = |turns: f64| (dims as f64 * (trained / (turns * 2.0 * PI)).ln()) / (2.0 * base.ln());
    let (mut low, mut high) = (pair(scaling.beta_fast), pair(scaling.beta_slow));
    if scaling.truncate {
        (low, high) = (low.floor(), high.ceil());
    }
    low = low.max(0.0);
    high = high.min(dims as f64 - 1.0);
    #[allow(clippy::float_cmp, reason = "only equal ones divide by 0")]
    if low == high {
        high += 0.001;
    }
    let of_pair = |(at, power): (usize, f32)| {
        let ramp = ((at as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
        let kept = 1.0 - ramp;
        (scaling.factor as f32 * power).recip() * (1.0 - kept) + power.recip() * kept
    };
    powers(dims, base as f32).enumerate().map(of_pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(dims: usize, base: f64, scaling: &str, positions: usize) -> Vec<f32> {
        let scaling: RopeScaling = scaling.parse().expect("reads");
        numbers(dims, base, Some(scaling), positions).expect("numbers")
    }

    fn numbers(
        dims: usize,
        base: f64,
        scaling: Option<RopeScaling>,
        positions: usize,
    ) -> Result<Vec<f32>> {
        Frequencies { dims, base, scaling, positions, dtype: DType::F32 }.numbers()
    }

    #[test]
    fn without_scaling_they_are_powers_of_the_base() {
        let plain = numbers(8, 10_000.0, None, 4).expect("numbers");
        assert_eq!(plain, [1.0, 0.1, 0.01, 0.001]);
        assert_eq!(values(8, 10_000.0, "{}", 4), plain);
        assert!(numbers(0, 10_000.0, None, 4).expect("none").is_empty());
    }

    #[test]
    fn dynamic_scaling_begins_beyond_the_trained_positions() {
        let scaling = r#"{"type": "dynamic", "factor": 2.0, "max_position_embeddings": 16}"#;
        let plain = numbers(8, 10_000.0, None, 4).expect("numbers");
        assert_eq!(values(8, 10_000.0, scaling, 16), plain);
        let longer = values(8, 10_000.0, scaling, 17);
        assert_eq!(longer[0].to_bits(), plain[0].to_bits());
        assert!(longer[1..].iter().zip(&plain[1..]).all(|(longer, plain)| longer < plain));
        assert_eq!(values(2, 10_000.0, scaling, 17), [1.0]);
    }

    #[test]
    fn a_base_that_gives_no_numbers_is_refused() {
        for base in [-1.0, 0.0, f64::NAN] {
            let error = numbers(8, base, None, 4).expect_err("must be refused");
            assert!(
                error.to_string().starts_with(&format!("rope_base {base} gives frequencies that"))
            );
        }
        let yarn = r#"{"type": "yarn", "factor": 2, "original_max_position_embeddings": 16}"#;
        let yarn: RopeScaling = yarn.parse().expect("reads");
        assert!(numbers(8, 1.0, Some(yarn), 4).is_err());
    }
}
