//! Types with fewer bits.

use candle_core::{DType, Tensor};

use crate::pairs::first_number;
use base::error::Result;

table! {
    /// A type with fewer bits, the coarsest first: its name, the type that tensors can have, if they can, and the bits behind
    /// the leading one.
    Precision: (&'static str, Option<DType>, i32) {
        /// 3 bits of significand in 8, nothing beyond 57344.
        E5m2 => ("fp8 (e5m2)", None, 2),
        /// 4 bits of significand in 8, nothing beyond 448 ("FP8 Formats for Deep Learning", Micikevicius et al., 2022).
        E4m3 => ("fp8 (e4m3)", None, 3),
        /// 8 bits of significand.
        Bf16 => ("bf16", Some(DType::BF16), 7),
        /// 11 bits of significand, nothing beyond 65504.
        F16 => ("f16", Some(DType::F16), 10),
        /// 11 bits of significand, in the range of f32: what tensor cores read.
        Tf32 => ("TF32", None, 10),
        /// The same, with the other bits cut off, not rounded.
        CutTf32 => (tr!("TF32 (cut, not rounded)"), None, 10),
    }
}

/// A tensor in f32, or in f64 if it is that.
///
/// # Errors
/// If candle fails.
pub fn wide(tensor: &Tensor) -> Result<Tensor> {
    Ok(if tensor.dtype() == DType::F64 { tensor.clone() } else { tensor.to_dtype(DType::F32)? })
}

impl Precision {
    /// The name.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The type that tensors can have, if they can.
    pub fn dtype(self) -> Option<DType> {
        self.row().1
    }

    /// The largest relative difference of a number and the next.
    pub fn spacing(self) -> f64 {
        f64::from(-self.row().2).exp2()
    }

    /// That of tensors in a 16-bit type.
    pub fn of_tensors(dtype: DType) -> Option<Self> {
        Self::ALL.into_iter().find(|precision| precision.dtype() == Some(dtype))
    }

    /// Up to here it holds all whole numbers.
    pub fn most_whole(self) -> usize {
        let (_, _, bits) = self.row();
        1 << (bits + 1)
    }

    /// Numbers of this type of 16 bits whose bits are read as those of another; NaN of others.
    pub(super) fn read_as(self, other: Self, x: &Tensor) -> candle_core::Result<Tensor> {
        let read = |number: &f32| {
            let bits = match self {
                Self::Bf16 => half::bf16::from_f32(*number).to_bits(),
                Self::F16 => half::f16::from_f32(*number).to_bits(),
                _ => return f32::NAN,
            };
            match other {
                Self::Bf16 => half::bf16::from_bits(bits).to_f32(),
                Self::F16 => half::f16::from_bits(bits).to_f32(),
                _ => f32::NAN,
            }
        };
        let numbers = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let numbers: Vec<f32> = numbers.iter().map(read).collect();
        Tensor::from_vec(numbers, x.shape(), x.device())?.to_dtype(x.dtype())
    }

    /// A number, rounded to it.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "rounded twice, as f32 is what it comes from"
    )]
    pub fn of(self, value: f64) -> f64 {
        match self {
            Self::Bf16 => half::bf16::from_f64(value).to_f64(),
            Self::F16 => half::f16::from_f64(value).to_f64(),
            Self::Tf32 => f64::from(tf32(value as f32)),
            Self::CutTf32 => f64::from(f32::from_bits((value as f32).to_bits() & !0x1fff)),
            Self::E4m3 => eight_bits(value, self.row().2, -6, 448.0),
            Self::E5m2 => eight_bits(value, self.row().2, -14, 57_344.0),
        }
    }

    /// Whether it holds a number exactly, as every type holds NaN.
    pub fn holds(self, value: f64) -> bool {
        #[allow(clippy::float_cmp, reason = "exactly the same")]
        let is_held = self.of(value) == value;
        is_held || value.is_nan()
    }

    /// Whether it holds every number of a tensor exactly.
    ///
    /// # Errors
    /// If candle fails.
    pub fn holds_all(self, numbers: &Tensor) -> Result<bool> {
        // What a type does not hold mostly shows at once.
        Ok(first_number(numbers, |number| !self.holds(number))?.is_none())
    }

    /// A tensor's numbers, rounded to it and in their own type again.
    ///
    /// # Errors
    /// If candle fails.
    pub fn round(self, x: &Tensor) -> candle_core::Result<Tensor> {
        if let Some(dtype) = self.dtype() {
            return x.to_dtype(dtype)?.to_dtype(x.dtype());
        }
        let numbers = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        #[allow(clippy::cast_possible_truncation, reason = "it is an f32")]
        let round = |number: f32| self.of(f64::from(number)) as f32;
        let numbers: Vec<f32> = numbers.into_iter().map(round).collect();
        Tensor::from_vec(numbers, x.shape(), x.device())?.to_dtype(x.dtype())
    }
}

/// The nearest number of so many bits behind the leading one, ties to even: below the exponent `least` the steps stay,
/// and what is beyond `most` is none.
fn eight_bits(value: f64, bits: i32, least: i32, most: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = i32::try_from(value.to_bits() >> 52 & 0x7ff).unwrap_or_default() - 1023;
    let step = f64::from(exponent.max(least) - bits).exp2();
    let rounded = (value / step).round_ties_even() * step;
    if rounded.abs() > most { f64::NAN } else { rounded }
}

/// The nearest number of 11 bits, ties to even.
fn tf32(x: f32) -> f32 {
    if !x.is_finite() {
        return x;
    }
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff;
    f32::from_bits(rounded)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `torch.tensor(x).to(torch.float8_e4m3fn).float()` has them, and e5m2.
    #[test]
    fn eight_bits_are_torchs() {
        let given = [0.1, -0.3, 1.0625, 1.1875, 17.5, 300.0, 0.001, 0.003, -0.0];
        let e4m3 =
            [0.101_562_5, -0.3125, 1.0, 1.25, 18.0, 288.0, 0.001_953_125, 0.003_906_25, -0.0];
        let e5m2 =
            [0.09375, -0.3125, 1.0, 1.25, 16.0, 320.0, 0.000_976_562_5, 0.002_929_687_5, -0.0];
        for (at, value) in given.into_iter().enumerate() {
            let found = [Precision::E4m3.of(value), Precision::E5m2.of(value)];
            assert_eq!(found.map(f64::to_bits), [e4m3[at], e5m2[at]].map(f64::to_bits), "{value}");
        }
    }
}
