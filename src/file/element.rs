//! What the elements of a tensor are in a file, and how their bytes become a tensor.

use std::io::{self, Write};

use candle_core::{DType, Device, Tensor};

use base::error::quoted;
use base::lang;

/// More axes than numpy or PyTorch make of anything real.
const MAX_RANK: usize = 32;

/// The type of a tensor's elements in a file. Every integer becomes an `I64`: `U8` is boolean here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    Bool,
    U8,
    U16,
    U32,
    U64,
    I8,
    I16,
    I32,
    I64,
    F16,
    BF16,
    F32,
    F64,
}

impl Element {
    /// The bytes of one.
    pub fn size(self) -> usize {
        match self {
            Self::Bool | Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The type of the tensor that it is read as.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::U8,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
            _ => DType::I64,
        }
    }

    /// Row-major bytes as a tensor, or why they are none.
    pub fn tensor(
        self,
        mut bytes: Vec<u8>,
        big_endian: bool,
        shape: &[usize],
    ) -> Result<Tensor, Fault> {
        if byte_length(shape, self.size()) != Some(bytes.len()) {
            let what = tr!(
                "its shape {shape} does not fit its {bytes} bytes",
                shape = format!("{shape:?}"),
                bytes = bytes.len()
            );
            return Err(Fault::new(what, DAMAGED));
        }
        if big_endian {
            bytes.chunks_exact_mut(self.size()).for_each(<[u8]>::reverse);
        }
        let integers = match self {
            Self::Bool => {
                for byte in &mut bytes {
                    *byte = u8::from(*byte != 0);
                }
                None
            }
            Self::F16 | Self::BF16 | Self::F32 | Self::F64 => None,
            Self::U8 => Some(widen(&bytes, u8::from_le_bytes)),
            Self::U16 => Some(widen(&bytes, u16::from_le_bytes)),
            Self::U32 => Some(widen(&bytes, u32::from_le_bytes)),
            Self::I8 => Some(widen(&bytes, i8::from_le_bytes)),
            Self::I16 => Some(widen(&bytes, i16::from_le_bytes)),
            Self::I32 => Some(widen(&bytes, i32::from_le_bytes)),
            Self::I64 => Some(widen(&bytes, i64::from_le_bytes)),
            Self::U64 => {
                let (values, _) = bytes.as_chunks();
                let values = values.iter().map(|value| i64::try_from(u64::from_le_bytes(*value)));
                let values = values.collect::<Result<Vec<_>, _>>().map_err(|_| {
                    Fault::new(
                        tr!("holds an integer beyond 9223372036854775807"),
                        tr!("store it as I64"),
                    )
                })?;
                Some(values)
            }
        };
        let tensor = match integers {
            Some(integers) => Tensor::from_vec(integers, shape, &Device::Cpu),
            None => Tensor::from_raw_buffer(&bytes, self.dtype(), shape, &Device::Cpu),
        };
        tensor.map_err(|error| Fault::new(base::error::Error::from(error).to_string(), DAMAGED))
    }
}

fn widen<const N: usize, T: Into<i64>>(bytes: &[u8], read: fn([u8; N]) -> T) -> Vec<i64> {
    let (values, _) = bytes.as_chunks::<N>();
    values.iter().map(|value| read(*value).into()).collect()
}

/// What to do about a file that contradicts itself.
pub const DAMAGED: &str = "the file is damaged: write it again";

/// What is wrong with a part of a file, and what to do. The file's path is added where it is known.
#[derive(Debug, Clone)]
pub struct Fault {
    pub what: String,
    pub fix: String,
}

impl Fault {
    pub fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        let [what, fix] = [what.into(), fix.into()];
        Self { what: lang::text(&what).to_owned(), fix: lang::text(&fix).to_owned() }
    }

    /// The fault of the tensor of that name in the file at `path`.
    pub fn of(self, path: &std::path::Path, name: &str) -> base::error::Error {
        let Self { what, fix } = self;
        let what = quoted(&what);
        let what = if name.is_empty() {
            what
        } else {
            tr!("tensor \"{quoted}\": {what}", quoted = quoted(name), what)
        };
        base::error::Error::file(path, what, fix)
    }
}

/// The bytes of a tensor of that shape, unless it is too large to be counted or has too many axes. An axis of
/// length 0 does not hide how long the others are.
pub fn byte_length(shape: &[usize], size: usize) -> Option<usize> {
    if shape.len() > MAX_RANK {
        return None;
    }
    let bound = shape.iter().try_fold(size, |product, length| product.checked_mul(*length.max(&1)));
    bound.map(|bound| if shape.contains(&0) { 0 } else { bound })
}

/// The distance between neighbours along each axis, in elements, where the last axis varies fastest.
pub fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides: Vec<usize> = shape
        .iter()
        .rev()
        .scan(1_usize, |stride, length| {
            let this = *stride;
            *stride = stride.saturating_mul(*length);
            Some(this)
        })
        .collect();
    strides.reverse();
    strides
}

/// The elements, each of `size` bytes, that stand `strides` apart, in row-major order. `None` where they reach
/// beyond `bytes`.
pub fn gather(bytes: &[u8], size: usize, shape: &[usize], strides: &[usize]) -> Option<Vec<u8>> {
    let mut gathered = Vec::with_capacity(byte_length(shape, size)?);
    if shape.contains(&0) {
        return Some(gathered);
    }
    let mut index = vec![0; shape.len()];
    let mut at = 0_usize;
    loop {
        let start = at.checked_mul(size)?;
        gathered.extend_from_slice(bytes.get(start..start.checked_add(size)?)?);
        let mut axes = index.iter_mut().zip(shape).zip(strides).rev();
        loop {
            let Some(((position, length), stride)) = axes.next() else { return Some(gathered) };
            if *position + 1 < *length {
                *position += 1;
                at = at.checked_add(*stride)?;
                break;
            }
            at = at.checked_sub(position.checked_mul(*stride)?)?;
            *position = 0;
        }
    }
}

/// Writes the numbers of a tensor as files have them: little endian, row-major. Narrower floats are widened to f32. They
/// are written some at a time, so that no second copy of them all is made.
pub fn write(tensor: &Tensor, writer: &mut impl Write) -> io::Result<()> {
    const PIECE: usize = 1 << 16;
    let flat = tensor.flatten_all().map_err(io::Error::other)?;
    let count = flat.elem_count();
    for start in (0..count).step_by(PIECE) {
        let piece = flat.narrow(0, start, PIECE.min(count - start));
        writer.write_all(&piece.and_then(|piece| encoded(&piece)).map_err(io::Error::other)?)?;
    }
    Ok(())
}

fn encoded(flat: &Tensor) -> candle_core::Result<Vec<u8>> {
    Ok(match written_as(flat.dtype()) {
        Element::Bool => flat.to_vec1::<u8>()?,
        Element::I64 => bytes_of(&flat.to_vec1()?, i64::to_le_bytes),
        Element::F64 => bytes_of(&flat.to_vec1()?, f64::to_le_bytes),
        _ => bytes_of(&flat.to_dtype(DType::F32)?.to_vec1()?, f32::to_le_bytes),
    })
}

/// The type that [`write`] writes a tensor as.
pub fn written_as(dtype: DType) -> Element {
    match dtype {
        DType::U8 => Element::Bool,
        DType::I64 => Element::I64,
        DType::F64 => Element::F64,
        _ => Element::F32,
    }
}

/// The bytes of numbers, one behind the other.
pub fn bytes_of<const N: usize, T: Copy>(values: &[T], write: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    let mut bytes = vec![0; values.len() * N];
    for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = write(*value);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strided_elements_come_in_row_major_order() {
        let bytes: Vec<u8> = (0..6).collect();
        assert_eq!(gather(&bytes, 1, &[3, 2], &[1, 3]), Some(vec![0, 3, 1, 4, 2, 5]));
        assert_eq!(gather(&bytes, 2, &[2, 3], &[0, 1]), Some([0, 1, 2, 3, 4, 5].repeat(2)));
        assert_eq!(gather(&bytes, 1, &[], &[]), Some(vec![0]));
        assert_eq!(gather(&bytes, 1, &[0, 9], &[9, 9]), Some(vec![]));
        assert_eq!(gather(&bytes, 1, &[3, 2], &[2, 3]), None);
    }

    #[test]
    fn a_length_of_zero_hides_no_overflow() {
        assert_eq!(byte_length(&[2, 0, 3], 4), Some(0));
        assert_eq!(byte_length(&[0, usize::MAX, 2], 4), None);
        assert_eq!(byte_length(&[1; 33], 4), None);
    }

    #[test]
    fn an_unsigned_integer_that_i64_lacks_is_refused() {
        let bytes = (u64::MAX / 2 + 1).to_le_bytes().to_vec();
        let fault = Element::U64.tensor(bytes, false, &[1]).expect_err("refused");
        assert_eq!(fault.what, "holds an integer beyond 9223372036854775807");
    }
}
