//! Dropout of the weights.

use candle_core::{DType, Device, Tensor};

use crate::error::Result;
use crate::program::axis::{Axes, Dim};
use crate::program::op::{Misread, Operation, read};
use crate::program::terms::{Term, Value, factor};

/// What the kept weights are multiplied by: 1 / (1 − p), and 0 for p = 1, which keeps none. It is an f32 in runs of any
/// type.
///
/// Formula: `_dropout_impl` in `ATen/native/Dropout.cpp`, `noise.div_(1 - p)`: the difference in f64, rounded
/// to f32, then the division in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct DropoutScale {
    /// The probability of dropping a weight.
    pub p: f64,
}

impl DropoutScale {
    /// The number.
    #[must_use]
    #[allow(clippy::float_cmp, reason = "PyTorch compares p with 1 for equality")]
    pub fn number(&self) -> f32 {
        if self.p == 1.0 {
            return 0.0;
        }
        #[allow(clippy::cast_possible_truncation, reason = "PyTorch rounds to the tensor's type")]
        let divisor = (1.0 - self.p) as f32;
        1.0 / divisor
    }
}

impl Operation for DropoutScale {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [] = read(inputs)?;
        Ok(Tensor::new(self.number(), &Device::Cpu)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [] = read(inputs)?;
        Ok(Vec::new())
    }

    fn formula(&self, _: &[&str]) -> Result<String, Misread> {
        Ok(format!("1 / (1 − {})", self.p))
    }

    fn terms(&self, _: &[Value], _: &[usize]) -> Result<Vec<Term>> {
        Ok(vec![Term(vec![factor("1 / (1 − p)", f64::from(self.number()))])])
    }

    fn flops(&self, _: &[&Axes], _: &Axes) -> u128 {
        2
    }
}

/// Weights · keep · scale. Reads weights, a boolean keep-mask of their shape, and the scale, a single number.
#[derive(Debug, Clone, PartialEq)]
pub struct Dropout {
    /// The probability of dropping a weight, for the formula.
    pub p: f64,
}

impl Operation for Dropout {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [weights, keep, scale] = read(inputs)?;
        let scale = scale.to_dtype(DType::F64)?.to_scalar::<f64>()?;
        Ok(weights.mul(&keep.to_dtype(weights.dtype())?.affine(scale, 0.0)?)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match inputs {
            [weights, keep, []] if weights == keep => Ok(weights.to_vec()),
            _ => Err(Misread),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [weights, keep, _] = read(names)?;
        Ok(format!("{weights} · {keep} / (1 − {})", self.p))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [weights, keep, scale] = read(inputs)?;
        let scale = factor("1 / (1 − p)", scale.at(&[])?.value);
        Ok(vec![Term(vec![weights.at(cell)?, keep.at(cell)?, scale])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count()
    }

    fn range(&self) -> Option<(f64, f64)> {
        Some((0.0, 1.0))
    }
}

/// Weights · a factor where they are kept, and 0 elsewhere: dropout of which the draw is known from its result.
#[derive(Debug, Clone)]
pub struct KeepSome {
    /// Which weights are kept: `U8`, of their shape.
    pub keep: Tensor,
    /// What they are multiplied by.
    pub factor: f64,
}

impl PartialEq for KeepSome {
    fn eq(&self, other: &Self) -> bool {
        self.keep.id() == other.keep.id() && self.factor.total_cmp(&other.factor).is_eq()
    }
}

impl Operation for KeepSome {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [weights] = read(inputs)?;
        Ok(weights.affine(self.factor, 0.0)?.mul(&self.keep.to_dtype(weights.dtype())?)?)
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let [weights] = read(inputs)?;
        let fits = weights.iter().map(|(_, size)| size).eq(self.keep.dims());
        if fits { Ok(weights.to_vec()) } else { Err(Misread) }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [weights] = read(names)?;
        Ok(format!("some of {weights} · {}, the others 0", self.factor))
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let [weights] = read(inputs)?;
        Ok(vec![Term(vec![weights.at(cell)?, factor("kept", self.factor)])])
    }

    fn flops(&self, _: &[&Axes], output: &Axes) -> u128 {
        output.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_pytorchs() {
        let scale = |p| DropoutScale { p }.number().to_bits();
        // The f32 nearest to 1 / (1 − p) would be 0x3fa5_cd99.
        assert_eq!(scale(0.228), 0x3fa5_cd98);
        assert_eq!([scale(0.0), scale(1.0)], [1.0_f32, 0.0].map(f32::to_bits));
    }
}
