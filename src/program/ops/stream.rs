//! Softmax and the weighted sum in one pass over blocks of keys, as kernels have them, and what goes wrong there.

use candle_core::{D, Tensor};

use super::Precision;
use super::part_values::along_features;

/// The weighted sum over blocks of keys, with a running maximum and a running sum ("Online normalizer calculation for
/// softmax", Milakov and Gimelshein, 2018, algorithm 3). Reads scores (batch, head, query, key) and values (batch, head,
/// key, `head_dim`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stream {
    /// Keys in a block.
    pub block: usize,
    /// What goes wrong.
    pub slip: StreamSlip,
}

clauses! {
    /// What goes wrong in a pass over blocks of keys, with a clause that tells it.
    StreamSlip {
        /// What was added up so far is not rescaled.
        Output => "what was added up is not rescaled when the running maximum grows",
        /// The sum of the exponentials so far is not.
        Sum => "the running sum is not rescaled when the running maximum grows",
        /// Neither is.
        Both => "nothing is rescaled when the running maximum grows",
        /// Both are rescaled by the inverse.
        Inverse => "the rescaling has the wrong sign: exp(new − old), not exp(old − new)",
        /// What was added up so far is.
        InverseOutput => "what was added up is rescaled by exp(new − old), not exp(old − new)",
        /// What was added up so far is rescaled twice.
        Squared => "what was added up is rescaled twice when the running maximum grows",
        /// Both are rescaled by the factor of base 2.
        Binary => "the rescaling is exp2(old − new), where exp is taken of the scores",
        /// What was added up so far is rescaled along another axis.
        AlongFeatures => "what was added up is rescaled along the features, not the rows: feature j by the factor of query j in a tile of as many queries",
        /// The result is not divided.
        Undivided => "the result is not divided by the running sum",
        /// The result is divided twice.
        DividedTwice => "the result is divided by the running sum twice",
        /// The last key of each block is not in the sum.
        SumShort => "the running sum lacks the last key of each block",
        /// What was added up is divided in every block.
        DividedEach => "what was added up is divided by the running sum after every block, not once at the end",
        /// Every block is divided by its own sum.
        Averaged => "every block has its own softmax, and the blocks are averaged",
        /// The same, and they are added up.
        Added => "every block has its own softmax, and the blocks are added up",
        /// The logarithm of the sum is of base 2, and the maximum is not.
        Log2 => "the log-sum-exp is the maximum + log2 of the sum, not its natural logarithm",
        /// The maximum is of base 2, and the logarithm of the sum is not.
        BinaryMaximum => "the log-sum-exp is the maximum in base 2 (m · log2 e) + the natural logarithm of the sum",
        /// The sum is rounded.
        SumInBf16 => "the running sum is kept in bf16",
        /// What was added up is.
        OutputInBf16 => "what was added up of the values is kept in bf16",
        /// Both are.
        BothInBf16 => "the running sum and what was added up of the values are kept in bf16",
        /// The last block stands for all.
        Last => "the last block stands in for all: what came before is overwritten",
        /// The rest is left out.
        FullBlocks => "the keys behind the last full block are left out",
        /// The rest is filled up.
        Padded => "the zeros that fill up the last block count as scores",
    }
}

impl StreamSlip {
    /// Whether the sum of the exponentials is another than it should be, and with it the log-sum-exp.
    #[must_use]
    pub fn is_of_sum(self) -> bool {
        use StreamSlip::{
            Binary, Both, BothInBf16, FullBlocks, Inverse, Last, Padded, Sum, SumInBf16, SumShort,
        };
        matches!(self, Sum | SumShort | Both | Binary | Inverse | Last | FullBlocks | Padded)
            || matches!(self, SumInBf16 | BothInBf16)
    }

    /// Whether what is kept is rounded.
    #[must_use]
    pub fn rounds(self) -> bool {
        matches!(self, Self::SumInBf16 | Self::OutputInBf16 | Self::BothInBf16)
    }

    /// Whether it gives the same numbers in blocks of any size.
    #[must_use]
    pub fn is_of_any_block(self) -> bool {
        matches!(self, Self::Undivided | Self::DividedTwice | Self::Log2 | Self::BinaryMaximum)
    }
}

impl Stream {
    /// What each value comes to be weighted by: the result for values of which each is 1 in a feature of its own.
    pub(super) fn weights(self, scores: &Tensor) -> candle_core::Result<Tensor> {
        let (batch, heads, _, keys) = scores.dims4()?;
        let one = Tensor::eye(keys, scores.dtype(), scores.device())?;
        self.value(scores, &one.broadcast_as((batch, heads, keys, keys))?.contiguous()?)
    }

    pub(super) fn value(self, scores: &Tensor, values: &Tensor) -> candle_core::Result<Tensor> {
        let Passed { output, sum, blocks, .. } = self.passed(scores, values)?;
        match self.slip {
            StreamSlip::Undivided | StreamSlip::Added | StreamSlip::DividedEach => Ok(output),
            StreamSlip::Averaged => output / f64::from(blocks),
            StreamSlip::DividedTwice => output.broadcast_div(&sum.sqr()?),
            _ => output.broadcast_div(&sum),
        }
    }

    /// The log-sum-exp of the rows that is kept: (batch, head, query).
    pub(super) fn lse(self, scores: &Tensor) -> candle_core::Result<Tensor> {
        let (batch, heads, _, keys) = scores.dims4()?;
        let values = Tensor::zeros((batch, heads, keys, 1), scores.dtype(), scores.device())?;
        let Passed { maximum, sum, .. } = self.passed(scores, &values)?;
        let by = if self.slip == StreamSlip::Log2 { std::f64::consts::LOG2_E } else { 1.0 };
        let of_maximum =
            if self.slip == StreamSlip::BinaryMaximum { std::f64::consts::LOG2_E } else { 1.0 };
        ((maximum * of_maximum)? + (sum.log()? * by)?)?.squeeze(D::Minus1)
    }

    /// The pass over all blocks, to its end.
    fn passed(self, scores: &Tensor, values: &Tensor) -> candle_core::Result<Passed> {
        let keys = scores.dim(D::Minus1)?;
        let block = self.block.max(1);
        let slip = self.slip;
        let first = scores.narrow(3, 0, 1)?;
        let zero = first.zeros_like()?;
        // Far below every score, and finite, so that the difference of two maxima is a number.
        let mut maximum = (&zero - 1e30)?;
        let mut sum = zero.clone();
        let mut output = values.narrow(2, 0, 1)?.zeros_like()?.broadcast_mul(&zero)?;
        let mut blocks = 0;
        for start in (0..keys).step_by(block) {
            let count = block.min(keys - start);
            if count < block && slip == StreamSlip::FullBlocks {
                break;
            }
            let mut own = scores.narrow(3, start, count)?.contiguous()?;
            if count < block && slip == StreamSlip::Padded {
                own = own.pad_with_zeros(3, 0, block - count)?;
            }
            let largest = own.max_keepdim(D::Minus1)?.maximum(&maximum)?;
            let alone = matches!(slip, StreamSlip::Averaged | StreamSlip::Added);
            let largest = if alone { own.max_keepdim(D::Minus1)? } else { largest };
            let exps = own.broadcast_sub(&largest)?.exp()?;
            let of_values = exps.narrow(3, 0, count)?.contiguous()?;
            let added = of_values.matmul(&values.narrow(2, start, count)?.contiguous()?)?;
            let summed =
                if slip == StreamSlip::SumShort { count - 1 } else { exps.dim(D::Minus1)? };
            let share = exps.narrow(3, 0, summed)?.sum_keepdim(D::Minus1)?;
            let shrunk = (&maximum - &largest)?.exp()?;
            blocks += 1;
            (sum, output) = match slip {
                StreamSlip::Averaged | StreamSlip::Added => {
                    (share.ones_like()?, (output + added.broadcast_div(&share)?)?)
                }
                StreamSlip::Last => (share, added),
                _ => {
                    let inverse = if start == 0 { shrunk.clone() } else { shrunk.recip()? };
                    let (of_sum, of_output) = match slip {
                        StreamSlip::Output => (shrunk.clone(), shrunk.ones_like()?),
                        StreamSlip::Sum => (shrunk.ones_like()?, shrunk.clone()),
                        StreamSlip::Both => (shrunk.ones_like()?, shrunk.ones_like()?),
                        StreamSlip::Inverse => (inverse.clone(), inverse),
                        StreamSlip::InverseOutput => (shrunk.clone(), inverse),
                        StreamSlip::Squared => (shrunk.clone(), shrunk.sqr()?),
                        StreamSlip::Binary => {
                            let binary = shrunk.powf(std::f64::consts::LN_2)?;
                            (binary.clone(), binary)
                        }
                        StreamSlip::AlongFeatures => {
                            (shrunk.clone(), along_features(&shrunk, values.dim(3)?)?)
                        }
                        _ => (shrunk.clone(), shrunk.clone()),
                    };
                    ((sum * of_sum)?.add(&share)?, output.broadcast_mul(&of_output)?.add(&added)?)
                }
            };
            if slip == StreamSlip::DividedEach {
                output = output.broadcast_div(&sum)?;
            }
            if matches!(slip, StreamSlip::SumInBf16 | StreamSlip::BothInBf16) {
                sum = Precision::Bf16.round(&sum)?;
            }
            if matches!(slip, StreamSlip::OutputInBf16 | StreamSlip::BothInBf16) {
                output = Precision::Bf16.round(&output)?;
            }
            maximum = largest;
        }
        Ok(Passed { output, maximum, sum, blocks })
    }
}

/// What a pass over blocks has at its end.
struct Passed {
    output: Tensor,
    maximum: Tensor,
    sum: Tensor,
    blocks: u32,
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    /// With one block that holds all keys nothing can go wrong between blocks.
    #[test]
    fn one_block_is_softmax_and_a_weighted_sum() {
        let tensor = |shape: (usize, usize, usize, usize)| {
            Tensor::randn(0.0_f64, 2.0, shape, &Device::Cpu).expect("a tensor")
        };
        let (scores, values) = (tensor((2, 3, 4, 6)), tensor((2, 3, 6, 5)));
        let weights = candle_nn::ops::softmax_last_dim(&scores).expect("weights");
        let right = weights.matmul(&values).expect("outputs");
        let distance = |slip: StreamSlip, block: usize| {
            let found = Stream { block, slip }.value(&scores, &values).expect("computes");
            let apart = (found - &right).and_then(|apart| apart.abs()?.max_all());
            apart.and_then(|apart| apart.to_scalar::<f64>()).expect("a number")
        };
        // The output does not depend on what is kept of a row.
        let is_of_lse =
            |slip: &StreamSlip| matches!(slip, StreamSlip::Log2 | StreamSlip::BinaryMaximum);
        for slip in StreamSlip::ALL.into_iter().filter(|slip| !is_of_lse(slip) && !slip.rounds()) {
            let is_between = !slip.is_of_any_block() && slip != StreamSlip::SumShort;
            assert_eq!(distance(slip, 6) < 1e-12, is_between, "{slip:?}");
            assert!(distance(slip, 4) > 1e-3, "{slip:?}");
        }
    }
}
