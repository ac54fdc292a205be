//! Loops over many f32 numbers on all cores and many at once, where candle's are on one or take one number at a time.

use std::f64::consts::{LN_2, LOG2_E};

use pulp::{Arch, NullaryFnOnce};

use crate::rows::{Numbers, Rows};

/// Softmax over rows of so many numbers. The exponentials are those of f64, rounded.
pub(super) fn softmax<'a>(columns: usize) -> Rows<'a> {
    let arch = Arch::new();
    let make = move |_: usize, scores: &[f32], shares: &mut [f32]| {
        arch.dispatch(SoftmaxRows { scores, shares, columns });
    };
    Rows::new(columns, make)
}

/// Softmax of rows of scores.
struct SoftmaxRows<'a> {
    scores: &'a [f32],
    shares: &'a mut [f32],
    columns: usize,
}

/// How many numbers are taken at once: as many f32 as fit the widest registers.
const LANES: usize = 16;

impl NullaryFnOnce for SoftmaxRows<'_> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::inline_always, reason = "it is compiled for the processor that is there")]
    fn call(self) {
        let rows = self.shares.chunks_mut(self.columns).zip(self.scores.chunks(self.columns));
        for (shares, scores) in rows {
            softmax_row(scores, shares);
        }
    }
}

/// P · (d − delta) over rows of so many numbers: of the scores that softmax makes weights P of.
pub(super) fn softmax_gradient<'a>(
    columns: usize,
    gradients: Numbers<'a, f32>,
    deltas: Numbers<'a, f32>,
) -> Rows<'a> {
    Rows::new(columns, move |first, weights, made| {
        let gradients = gradients.get(first * columns..).unwrap_or_default().chunks(columns);
        let deltas = deltas.get(first..).unwrap_or_default();
        let rows = made.chunks_mut(columns).zip(weights.chunks(columns)).zip(gradients.zip(deltas));
        for ((made, weights), (gradients, delta)) in rows {
            for ((made, weight), gradient) in made.iter_mut().zip(weights).zip(gradients) {
                *made = weight * (gradient - delta);
            }
        }
    })
}

/// The sum of every row of so many numbers times those of another tensor, added up in f64.
#[allow(clippy::cast_possible_truncation, reason = "the type of the numbers")]
pub(super) fn summed_products(columns: usize, others: Numbers<'_, f32>) -> Rows<'_> {
    Rows::reduced(move |first, rows, made| {
        let others = others.get(first * columns..).unwrap_or_default().chunks(columns);
        for (made, (row, others)) in made.iter_mut().zip(rows.chunks(columns).zip(others)) {
            let (lanes, rest) = row.as_chunks::<LANES>();
            let (other_lanes, other_rest) = others.as_chunks::<LANES>();
            let mut sums = [0.0_f64; LANES];
            for (one, other) in lanes.iter().zip(other_lanes) {
                for (sum, (one, other)) in sums.iter_mut().zip(one.iter().zip(other)) {
                    *sum += f64::from(*one) * f64::from(*other);
                }
            }
            let rest = rest.iter().zip(other_rest);
            let rest: f64 = rest.map(|(one, other)| f64::from(*one) * f64::from(*other)).sum();
            *made = (sums.iter().sum::<f64>() + rest) as f32;
        }
    })
}

/// exp(s − max) / Σ exp(s − max).
#[inline(always)]
#[allow(clippy::inline_always, reason = "see above")]
#[allow(clippy::cast_possible_truncation, reason = "numbers are those of f32")]
fn softmax_row(scores: &[f32], shares: &mut [f32]) {
    let (lanes, rest) = scores.as_chunks::<LANES>();
    let mut largest = [f32::NEG_INFINITY; LANES];
    for scores in lanes {
        for (largest, score) in largest.iter_mut().zip(scores) {
            *largest = if *score > *largest { *score } else { *largest };
        }
    }
    let largest = largest.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    for (shares, scores) in shares.chunks_mut(LANES).zip(scores.chunks(LANES)) {
        // Many keys are blocked side by side, and shares are zeros until they are computed.
        if scores.iter().all(|score| f64::from(*score) - largest < LEAST) {
            continue;
        }
        for (share, score) in shares.iter_mut().zip(scores) {
            *share = exp(f64::from(*score) - largest) as f32;
        }
    }
    let (lanes, rest) = shares.as_chunks::<LANES>();
    let mut sums = [0.0_f64; LANES];
    for shares in lanes {
        for (sum, share) in sums.iter_mut().zip(shares) {
            *sum += f64::from(*share);
        }
    }
    let sum: f64 = sums.iter().sum::<f64>() + rest.iter().copied().map(f64::from).sum::<f64>();
    let sum = sum as f32;
    for share in shares {
        *share /= sum;
    }
}

/// What e is raised to where f32 has nothing but 0.
const LEAST: f64 = -110.0;

/// e^x of numbers that are 0 or less, to about 1e-9 of itself: 2^n · e^r, where n is whole and e^r a Taylor series. There are
/// no branches and no calls in it, so that a loop takes many numbers at once.
#[inline(always)]
#[allow(clippy::inline_always, reason = "see above")]
fn exp(x: f64) -> f64 {
    // Added to a number, this leaves no place for what is behind its point.
    const WHOLE: f64 = 6_755_399_441_055_744.0;
    const BIAS: u64 = 1023;
    const MANTISSA_BITS: u32 = 52;
    /// 1 / k!, the last first.
    const SERIES: [f64; 9] = [
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        1.0 / 2.0,
        1.0,
        1.0,
    ];
    let x = if x < LEAST { LEAST } else { x };
    let shifted = x * LOG2_E + WHOLE;
    let r = x - (shifted - WHOLE) * LN_2;
    let series = SERIES.iter().fold(0.0, |sum, one| sum * r + one);
    series * f64::from_bits(shifted.to_bits().wrapping_add(BIAS) << MANTISSA_BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_rounded_as_rarely_wrong_as_those_of_f64() {
        for step in 0..120_000 {
            let x = -f64::from(step) / 1000.0;
            let (own, right) = (exp(x), x.max(LEAST).exp());
            assert!((own / right - 1.0).abs() < 1e-9, "e^{x} is {right}, not {own}");
        }
        assert!(exp(f64::NAN).is_nan());
        assert!(exp(f64::NEG_INFINITY) < f64::from(f32::from_bits(1)) / 2.0);
    }
}
