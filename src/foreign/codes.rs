//! Which numbers are the codes that tensors in few bits hold, and how do they stand in bytes and words?

use candle_core::{DType, Tensor};

use base::error::Result;
use program::EightBits;

/// What the numbers of a tensor are codes of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Codes {
    /// The numbers themselves.
    Numbers,
    /// Bytes of floating-point numbers in 8 bits.
    Bytes(EightBits),
    /// Several numbers in each byte or word.
    Packed {
        /// How many.
        count: usize,
        /// In which order they stand.
        order: Order,
        /// What they are.
        own: EightBits,
        /// What is subtracted from them.
        less: f64,
    },
}

/// In which order the numbers stand that bytes or words hold several of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    LowFirst,
    HighFirst,
    Parts,
}

impl Codes {
    /// The numbers that codes are, and that in words.
    pub(super) fn numbers(self, stored: &Tensor) -> Result<(Tensor, String)> {
        // Words of 32 bits hold 8 of 4 bits or 4 of 8; bytes, with a sign or without, hold 2 of 4.
        let words = || -> Result<(Vec<u32>, bool)> {
            let words = stored.flatten_all()?.to_dtype(DType::I64)?.to_vec1::<i64>()?;
            let is_word = words.iter().any(|word| !(-128..256).contains(word));
            let bits = if is_word { u32::MAX } else { 255 };
            Ok((words.into_iter().map(|word| low(word) & bits).collect(), is_word))
        };
        match self {
            Self::Numbers => Ok((stored.to_dtype(DType::F64)?, String::new())),
            Self::Bytes(own) => {
                let numbers = words()?.0.into_iter().map(|word| own.number(byte(word)));
                let numbers = Tensor::from_iter(numbers, stored.device())?;
                let how = tr!("bytes of {name}", name = own.name());
                Ok((numbers.reshape(stored.shape())?, how))
            }
            Self::Packed { count, order, own, less } => {
                let (words, is_word) = words()?;
                let bits = if is_word { 32 / count } else { 8 / count };
                let own = if bits > 4 { EightBits::Uint8 } else { own };
                let number = |word: u32, at: usize| {
                    let code = word >> (bits * at) & ((1 << bits) - 1);
                    f64::from(own.number(byte(code))) - less
                };
                let mut shape = stored.dims().to_vec();
                let width = shape.last().copied().unwrap_or_default();
                let at = |place: usize| match order {
                    Order::LowFirst => (place / count, place % count),
                    Order::HighFirst => (place / count, count - 1 - place % count),
                    Order::Parts => (place % width, place / width),
                };
                let row = |row: &[u32]| -> Vec<f64> {
                    let places = (0..width * count).map(at);
                    places.map(|(word, place)| number(row[word], place)).collect()
                };
                let numbers: Vec<f64> = words.chunks_exact(width.max(1)).flat_map(row).collect();
                if let Some(last) = shape.last_mut() {
                    *last *= count;
                }
                let how = match order {
                    Order::LowFirst => tr!("{count} in each, the lowest bits first", count),
                    Order::HighFirst => tr!("{count} in each, the highest bits first", count),
                    Order::Parts => {
                        tr!("{count} in each, those of a row's lowest bits first", count)
                    }
                };
                let how = if less > 0.0 { tr!("{how}, less {less}", how, less) } else { how };
                Ok((Tensor::from_vec(numbers, shape, stored.device())?, how))
            }
        }
    }
}

/// The low bits of a whole number.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "what it is for")]
fn low(number: i64) -> u32 {
    number as u32
}

/// The lowest byte of a word.
#[allow(clippy::cast_possible_truncation, reason = "what it is for")]
fn byte(word: u32) -> u8 {
    word as u8
}
