//! Numbers that are kept in few bits, and what they stand for.

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use crate::adjoint::{Adjoint, Operand};
use crate::axis::{Axes, Dim, stretches};
use crate::misread::Misread;
use crate::pattern::{Multiplier, Pattern, Products, Read};
use base::error::Result;

/// (x − zero point) · scale ("A Survey of Quantization Methods for Efficient Neural Network Inference", Gholami et al.,
/// 2021, equation 3). Reads the numbers as they are kept, their scales and, where there are such, their zero points, which
/// broadcast to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dequantize {
    /// Whether numbers are multiplied by the scale; else faulty code divides by it.
    pub is_multiplied: bool,
    /// What becomes of the zero point.
    pub zero: ZeroPoint,
}

/// What becomes of a zero point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZeroPoint {
    /// It is subtracted before the numbers are scaled.
    Before,
    /// Faulty code adds it.
    Added,
    /// Faulty code subtracts it from the scaled numbers.
    Behind,
}

impl Dequantize {
    /// As it should be.
    pub const RIGHT: Self = Self { is_multiplied: true, zero: ZeroPoint::Before };

    pub(super) fn value(self, x: &Tensor, others: &[&Tensor]) -> Result<Tensor> {
        let [scale, zero @ ..] = others else { return Err(Misread.into()) };
        let scaled = |x: &Tensor| {
            if self.is_multiplied { x.broadcast_mul(scale) } else { x.broadcast_div(scale) }
        };
        Ok(match (zero, self.zero) {
            ([], _) => scaled(x)?,
            ([zero], ZeroPoint::Before) => scaled(&x.broadcast_sub(zero)?)?,
            ([zero], ZeroPoint::Added) => scaled(&x.broadcast_add(zero)?)?,
            ([zero], ZeroPoint::Behind) => scaled(x)?.broadcast_sub(zero)?,
            _ => return Err(Misread.into()),
        })
    }

    pub(super) fn axes(x: &[Dim], others: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let fits = matches!(others.len(), 1 | 2) && others.iter().all(|own| stretches(own, x));
        if fits { Ok(x.to_vec()) } else { Err(Misread) }
    }

    pub(super) fn pattern(self, inputs: &[&Axes]) -> Pattern {
        let [x, others @ ..] = inputs else { return Pattern::ByCell };
        if self != Self::RIGHT {
            return Pattern::ByCell;
        }
        let beside = |at: usize, own: &Axes| Read::broadcast(at, own, x.rank());
        let (own, minus) = (Read::same(0, x), Multiplier::Number("−1".to_owned(), -1.0, None));
        match others {
            [scale] => Pattern::Sum(vec![Products::one([own.into(), beside(1, scale).into()])]),
            [scale, zero] => Pattern::Sum(vec![
                Products::one([own.into(), beside(1, scale).into()]),
                Products::one([minus, beside(2, zero).into(), beside(1, scale).into()]),
            ]),
            _ => Pattern::ByCell,
        }
    }

    /// The numbers as they are kept do not change with what they stand for, which has a gradient all the same.
    pub(super) fn adjoint(self, input: usize) -> Adjoint {
        if self != Self::RIGHT || input > 0 {
            return Adjoint::Unknown;
        }
        Adjoint::of(self, [Operand::Gradient, Operand::Input(1)])
    }
}

table! {
    /// A type of numbers in 8 or 4 bits, with its name, the bits of its significand behind the leading one, the bias of its
    /// exponents, and what its last bit patterns are.
    EightBits: (&'static str, u32, i32, Last) {
        /// 4 bits of exponent, as `torch.float8_e4m3fn` ("FP8 Formats for Deep Learning", Micikevicius et al., 2022).
        E4m3 => ("fp8 (e4m3)", 3, 7, Last::Nan),
        /// 5 bits of exponent, as `torch.float8_e5m2`.
        E5m2 => ("fp8 (e5m2)", 2, 15, Last::InfiniteOrNan),
        /// The same without a negative zero, as `torch.float8_e4m3fnuz` ("8-bit Numerical Formats for Deep Neural Networks",
        /// Noune et al., 2022).
        E4m3Fnuz => ("fp8 (e4m3fnuz)", 3, 8, Last::Finite),
        /// The same of `torch.float8_e5m2fnuz`.
        E5m2Fnuz => ("fp8 (e5m2fnuz)", 2, 16, Last::Finite),
        /// 2 bits of exponent and one of significand in 4, as the OCP's microscaling formats have them.
        E2m1 => ("fp4 (e2m1)", 1, 1, Last::Number),
        /// Whole numbers from −8 up, in 4 bits.
        Int4 => ("int4", 3, 0, Last::Whole),
        /// Whole numbers from 0 up, in 4 bits.
        Uint4 => ("uint4", 4, 0, Last::Whole),
        /// Whole numbers from −128 up.
        Int8 => ("int8", 7, 0, Last::Whole),
        /// Whole numbers from 0 up.
        Uint8 => ("uint8", 8, 0, Last::Whole),
    }
}

/// What the bit patterns are that are the largest numbers elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// The last is NaN.
    Nan,
    /// Those of the largest exponent are infinite, or NaN.
    InfiniteOrNan,
    /// All are numbers, and negative zero is NaN.
    Finite,
    /// It is a number.
    Number,
    /// All are whole numbers.
    Whole,
}

impl EightBits {
    /// The name.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// The types that a tensor's numbers may be of: of whole numbers those of as few bits as hold them.
    ///
    /// # Errors
    /// If candle fails.
    pub fn holding(x: &Tensor) -> Result<Vec<Self>> {
        let numbers = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let holds = |own: &Self| {
            let bytes = own.bytes();
            let mut numbers = numbers.iter();
            numbers.all(|number| number.is_nan() || bytes.contains_key(&number.to_bits()))
        };
        let mut all: Vec<Self> = Self::ALL.into_iter().filter(holds).collect();
        if all.iter().any(|own| matches!(own, Self::Int4 | Self::Uint4)) {
            all.retain(|own| !matches!(own, Self::Int8 | Self::Uint8));
        }
        Ok(all)
    }

    /// The number that a byte is.
    pub fn number(self, byte: u8) -> f32 {
        let (_, bits, offset, last) = self.row();
        let negative = if self == Self::E2m1 { 0x8 } else { 0x80 };
        let (all, significand) =
            (u32::from(byte & (negative - 1)), u32::from(byte) & ((1 << bits) - 1));
        let exponent = all >> bits;
        let sign = if byte & negative == 0 { 1.0 } else { -1.0 };
        match last {
            Last::Whole => {
                return match self {
                    Self::Int8 => f32::from(byte.cast_signed()),
                    Self::Int4 => f32::from((byte << 4).cast_signed() >> 4),
                    Self::Uint4 => f32::from(byte & 15),
                    _ => f32::from(byte),
                };
            }
            Last::Nan if all == 0x7f => return f32::NAN,
            Last::InfiniteOrNan if exponent == 0x1f => {
                return if significand == 0 { sign * f32::INFINITY } else { f32::NAN };
            }
            Last::Finite if byte == 0x80 => return f32::NAN,
            Last::Nan | Last::InfiniteOrNan | Last::Finite | Last::Number => {}
        }
        let fraction = significand as f32 / (1_u32 << bits) as f32;
        let power = |by: u32| 2_f32.powi(i32::try_from(by).unwrap_or_default() - offset);
        match exponent {
            0 => sign * fraction * power(1),
            _ => sign * (1.0 + fraction) * power(exponent),
        }
    }

    /// The byte of each number that there is, by the number's bits: the first, where several are one.
    fn bytes(self) -> HashMap<u32, u8> {
        let most = if matches!(self, Self::E2m1 | Self::Int4 | Self::Uint4) { 15 } else { u8::MAX };
        (0..=most).rev().map(|byte| (self.number(byte).to_bits(), byte)).collect()
    }

    /// Numbers of this type whose bytes are read as those of another.
    pub(super) fn read_as(self, other: Self, x: &Tensor) -> candle_core::Result<Tensor> {
        let bytes = self.bytes();
        let read = |number: &f32| {
            bytes.get(&number.to_bits()).map_or(f32::NAN, |byte| other.number(*byte))
        };
        let numbers = x.to_dtype(DType::F32)?.flatten_all()?.to_vec1::<f32>()?;
        let numbers: Vec<f32> = numbers.iter().map(read).collect();
        Tensor::from_vec(numbers, x.shape(), x.device())?.to_dtype(x.dtype())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `torch.tensor(bytes, dtype=torch.uint8).view(dtype).float()` has them, of torch 2.15.
    #[test]
    fn bytes_are_torchs_numbers() {
        let bytes = [0x00, 0x38, 0x7b, 0x7e, 0xb4, 0xc1];
        let all = [
            (EightBits::E4m3, -9, [0.0, 1.0, 352.0, 448.0, -0.75, -2.25]),
            (EightBits::E5m2, -16, [0.0, 0.5, 57344.0, f32::NAN, -0.25, -2.5]),
            (EightBits::E4m3Fnuz, -10, [0.0, 0.5, 176.0, 224.0, -0.375, -1.125]),
            (EightBits::E5m2Fnuz, -17, [0.0, 0.25, 28672.0, 49152.0, -0.125, -1.25]),
        ];
        for (own, smallest, numbers) in all {
            let bits = |number: f32| if number.is_nan() { u32::MAX } else { number.to_bits() };
            assert_eq!(bytes.map(|byte| bits(own.number(byte))), numbers.map(bits), "{own:?}");
            assert_eq!(bits(own.number(1)), bits(2_f32.powi(smallest)), "{own:?}");
        }
        assert!(EightBits::E5m2.number(0xfc) == f32::NEG_INFINITY);
        assert!(EightBits::E4m3.number(0xff).is_nan() && EightBits::E4m3Fnuz.number(0x80).is_nan());
        let byte = |number: f32| EightBits::E4m3.bytes().get(&number.to_bits()).copied();
        assert_eq!(byte(-0.75), Some(0xb4));
        assert_eq!(byte(0.3), None);
    }
}
