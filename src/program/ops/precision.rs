//! Types with fewer bits.

use candle_core::{DType, Tensor};

/// A type with fewer bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// 8 bits of significand.
    Bf16,
    /// 11 bits of significand, nothing beyond 65504.
    F16,
    /// 11 bits of significand, in the range of f32: what tensor cores read.
    Tf32,
    /// The same, with the other bits cut off, not rounded.
    CutTf32,
}

impl Precision {
    /// Every type, the coarsest first.
    pub const ALL: [Self; 4] = [Self::Bf16, Self::F16, Self::Tf32, Self::CutTf32];

    /// The name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::Tf32 => "TF32",
            Self::CutTf32 => "TF32 (cut, not rounded)",
        }
    }

    /// The largest relative difference of a number and the next.
    #[must_use]
    pub fn spacing(self) -> f64 {
        match self {
            Self::Bf16 => 1.0 / 128.0,
            Self::F16 | Self::Tf32 | Self::CutTf32 => 1.0 / 1024.0,
        }
    }

    /// A number, rounded to it.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "rounded twice, as f32 is what it comes from"
    )]
    pub(super) fn of(self, value: f64) -> f64 {
        match self {
            Self::Bf16 => half::bf16::from_f64(value).to_f64(),
            Self::F16 => half::f16::from_f64(value).to_f64(),
            Self::Tf32 => f64::from(tf32(value as f32)),
            Self::CutTf32 => f64::from(f32::from_bits((value as f32).to_bits() & !0x1fff)),
        }
    }

    /// A tensor's numbers, rounded to it and in their own type again.
    ///
    /// # Errors
    /// If candle fails.
    pub fn round(self, x: &Tensor) -> candle_core::Result<Tensor> {
        let narrow = match self {
            Self::Bf16 => x.to_dtype(DType::BF16)?,
            Self::F16 => x.to_dtype(DType::F16)?,
            Self::Tf32 | Self::CutTf32 => {
                let numbers = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
                #[allow(clippy::cast_possible_truncation, reason = "it is an f32")]
                let round = |number: f32| self.of(f64::from(number)) as f32;
                let numbers: Vec<f32> = numbers.into_iter().map(round).collect();
                Tensor::from_vec(numbers, x.shape(), x.device())?
            }
        };
        narrow.to_dtype(x.dtype())
    }
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
