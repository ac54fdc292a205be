//! Loops over many f32 numbers on all cores and many at once, where candle's are on one or take one number at a time.

use std::f64::consts::{LN_2, LOG2_E};

use candle_core::{CpuStorage, Device, Storage, Tensor};
use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

/// Fewer numbers than this are done before other threads have begun.
const MANY: usize = 1 << 16;

/// How many numbers a thread takes at once.
const PIECE: usize = 1 << 13;

/// Every number through a function; nothing where candle's own loop is as good, or `x` is not of f32.
pub(super) fn mapped(x: &Tensor, function: impl Fn(f32) -> f32 + Sync) -> Option<Tensor> {
    with_numbers(x, |numbers| {
        let mut result = vec![0.0; numbers.len()];
        let pieces = result.par_chunks_mut(PIECE).zip(numbers.par_chunks(PIECE));
        pieces.for_each(|(result, numbers)| {
            for (result, number) in result.iter_mut().zip(numbers) {
                *result = function(*number);
            }
        });
        Tensor::from_vec(result, x.shape(), &Device::Cpu).ok()
    })
}

/// `fill` where a mask of booleans is true, the number of `x` elsewhere; nothing as in [`mapped`], or where the mask does
/// not broadcast to `x`.
pub(super) fn filled(x: &Tensor, mask: &Tensor, fill: f32) -> Option<Tensor> {
    let mask = mask.broadcast_as(x.shape()).ok()?;
    let (storage, layout) = mask.storage_and_layout();
    let Storage::Cpu(CpuStorage::U8(blocked)) = &*storage else { return None };
    let ([rows @ .., columns], [steps @ .., step]) = (x.dims(), layout.stride()) else {
        return None;
    };
    let start = |row: usize| {
        let mut left = row;
        rows.iter().zip(steps).rev().fold(layout.start_offset(), |at, (size, step)| {
            let place = left % size;
            left /= size;
            at + place * step
        })
    };
    with_numbers(x, |numbers| {
        let mut result = vec![0.0; numbers.len()];
        let pieces = result.par_chunks_mut(*columns).zip(numbers.par_chunks(*columns));
        pieces.enumerate().for_each(|(row, (result, numbers))| {
            let blocked = blocked.get(start(row)..).unwrap_or_default();
            let cells = result.iter_mut().zip(numbers);
            let choose = |number: f32, blocked: u8| if blocked == 0 { number } else { fill };
            match (*step, blocked.first()) {
                (1, _) => cells
                    .zip(blocked)
                    .for_each(|((cell, number), blocked)| *cell = choose(*number, *blocked)),
                (_, Some(blocked)) => {
                    cells.for_each(|(cell, number)| *cell = choose(*number, *blocked));
                }
                (_, None) => {}
            }
        });
        Tensor::from_vec(result, x.shape(), &Device::Cpu).ok()
    })
}

/// Softmax over the last axis; nothing where `x` is not of f32. The exponentials are those of f64, rounded.
pub(super) fn softmax(x: &Tensor) -> Option<Tensor> {
    let columns = x.dims().last().copied().filter(|columns| *columns > 0)?;
    with_all_numbers(x, |numbers| {
        let mut result = vec![0.0; numbers.len()];
        let arch = Arch::new();
        let softmax_rows = |(shares, scores): (&mut [f32], &[f32])| {
            arch.dispatch(SoftmaxRows { scores, shares, columns });
        };
        if numbers.len() < MANY {
            softmax_rows((&mut result, numbers));
        } else {
            let rows = (PIECE / columns).max(1) * columns;
            result.par_chunks_mut(rows).zip(numbers.par_chunks(rows)).for_each(softmax_rows);
        }
        Tensor::from_vec(result, x.shape(), &Device::Cpu).ok()
    })
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

/// What is made of many f32 numbers that stand one behind the other.
fn with_numbers(x: &Tensor, made: impl FnOnce(&[f32]) -> Option<Tensor>) -> Option<Tensor> {
    if x.elem_count() < MANY { None } else { with_all_numbers(x, made) }
}

fn with_all_numbers(x: &Tensor, made: impl FnOnce(&[f32]) -> Option<Tensor>) -> Option<Tensor> {
    let (storage, layout) = x.storage_and_layout();
    let Storage::Cpu(CpuStorage::F32(numbers)) = &*storage else { return None };
    let (from, to) = layout.contiguous_offsets()?;
    made(numbers.get(from..to)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(shape: &[usize]) -> Tensor {
        let count: usize = shape.iter().product();
        #[allow(clippy::cast_precision_loss, reason = "small numbers")]
        let numbers = (0..count).map(|at| (at % 1013) as f32 / 7.0 - 40.0);
        Tensor::from_vec(numbers.collect(), shape, &Device::Cpu).expect("fits")
    }

    fn bits(tensor: &Tensor) -> Vec<u32> {
        let flat = tensor.flatten_all().and_then(|flat| flat.to_vec1::<f32>()).expect("f32");
        flat.into_iter().map(f32::to_bits).collect()
    }

    /// f32 has 2^−24 of rounding in each of three places: the exponential, the sum and the quotient.
    #[test]
    fn softmax_is_that_of_f64_but_for_rounding() {
        for shape in [&[3, 5][..], &[2, 1], &[2, 4, 64, 513]] {
            let x = numbers(shape).affine(0.7, 0.0).expect("scaled");
            let own = softmax(&x).expect("f32").to_dtype(candle_core::DType::F64).expect("widened");
            let twin = x.to_dtype(candle_core::DType::F64).expect("widened");
            let twin = candle_nn::ops::softmax_last_dim(&twin).expect("fits");
            let apart = (own.sub(&twin).and_then(|apart| apart.abs())).expect("fits");
            let allowed = (twin * (3.0 / f64::from(1 << 24))).expect("fits");
            let allowed = (allowed + f64::from(f32::from_bits(1))).expect("fits");
            let most = apart.sub(&allowed).and_then(|most| most.max_all()).expect("fits");
            assert!(most.to_scalar::<f64>().expect("a number") <= 0.0, "{shape:?}");
        }
    }

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

    #[test]
    fn rows_without_numbers_have_none() {
        let x = Tensor::new(&[[f32::NEG_INFINITY; 3], [0.0, f32::NAN, 1.0]], &Device::Cpu);
        let shares = softmax(&x.expect("fits")).and_then(|shares| shares.to_vec2::<f32>().ok());
        assert!(shares.expect("f32").concat().iter().all(|share| share.is_nan()));
    }

    #[test]
    fn dividing_gives_the_bits_of_candle() {
        let x = numbers(&[2, 3, 128, 130]);
        let by = Tensor::new(2.828_427_f32, &Device::Cpu).expect("a number");
        let own = mapped(&x, |number| number / 2.828_427).expect("many numbers");
        assert_eq!(bits(&own), bits(&x.broadcast_div(&by).expect("fits")));
        assert!(mapped(&numbers(&[4, 4]), |number| number).is_none());
        assert!(mapped(&x.transpose(2, 3).expect("turns"), |number| number).is_none());
    }

    /// Masks of every shape that a run has, as `where_cond` fills them.
    #[test]
    fn filling_gives_the_bits_of_candle() {
        let x = numbers(&[3, 4, 80, 90]);
        let fill = Tensor::new(-1e9_f32, &Device::Cpu).expect("a number");
        let fill = fill.broadcast_as(x.shape()).expect("fits");
        for shape in [&[80, 90][..], &[3, 1, 80, 90], &[3, 1, 1, 90], &[1, 4, 80, 1], &[1, 1]] {
            let mask = numbers(shape).gt(0.0).expect("booleans");
            let all = mask.broadcast_as(x.shape()).expect("broadcasts");
            let twin = all.where_cond(&fill, &x).expect("fits");
            let own = filled(&x, &mask, -1e9).expect("many numbers");
            assert_eq!(bits(&own), bits(&twin), "{shape:?}");
        }
        assert!(filled(&x, &numbers(&[7]).gt(0.0).expect("booleans"), 0.0).is_none());
    }
}
