//! What the elements of a tensor are in a file, and how their bytes become a tensor.

use std::io::{self, Read, Write};

use candle_core::{DType, Device, Tensor, WithDType};
use half::{bf16, f16};
use safetensors::tensor::Dtype;

use super::input::unreadable;
use base::error::quoted;
use base::lang;
use program::EightBits;

/// More axes than numpy or PyTorch make of anything real.
const MAX_RANK: usize = 32;

/// A type of elements that is read, by its names in the formats.
#[derive(Debug, PartialEq, Eq)]
pub struct Element {
    /// That of safetensors.
    pub dtype: Dtype,
    /// That of numpy, behind the order of the bytes.
    numpy: &'static str,
    /// Those of PyTorch: the type's, and that of its storages.
    torch: [&'static str; 2],
}

const fn row(dtype: Dtype, numpy: &'static str, torch: [&'static str; 2]) -> Element {
    Element { dtype, numpy, torch }
}

const F32: Element = row(Dtype::F32, "f4", ["float32", "FloatStorage"]);

const ELEMENTS: &[Element] = &[
    row(Dtype::BOOL, "b1", ["bool", "BoolStorage"]),
    row(Dtype::U8, "u1", ["uint8", "ByteStorage"]),
    row(Dtype::U16, "u2", ["uint16"; 2]),
    row(Dtype::U32, "u4", ["uint32"; 2]),
    row(Dtype::U64, "u8", ["uint64"; 2]),
    row(Dtype::I8, "i1", ["int8", "CharStorage"]),
    row(Dtype::F8_E4M3, "float8_e4m3fn", ["float8_e4m3fn"; 2]),
    row(Dtype::F8_E5M2, "float8_e5m2", ["float8_e5m2"; 2]),
    row(Dtype::F8_E4M3FNUZ, "float8_e4m3fnuz", ["float8_e4m3fnuz"; 2]),
    row(Dtype::F8_E5M2FNUZ, "float8_e5m2fnuz", ["float8_e5m2fnuz"; 2]),
    row(Dtype::I16, "i2", ["int16", "ShortStorage"]),
    row(Dtype::I32, "i4", ["int32", "IntStorage"]),
    row(Dtype::I64, "i8", ["int64", "LongStorage"]),
    row(Dtype::F16, "f2", ["float16", "HalfStorage"]),
    // What numpy writes for the bfloat16 of ml_dtypes.
    row(Dtype::BF16, "V2", ["bfloat16", "BFloat16Storage"]),
    F32,
    row(Dtype::F64, "f8", ["float64", "DoubleStorage"]),
];

impl Element {
    /// That of safetensors' name.
    pub fn of(dtype: Dtype) -> Option<&'static Self> {
        ELEMENTS.iter().find(|element| element.dtype == dtype)
    }

    /// That of numpy's name.
    pub fn of_numpy(name: &str) -> Option<&'static Self> {
        ELEMENTS.iter().find(|element| element.numpy == name)
    }

    /// That of a type of PyTorch, or of a class of storages.
    pub fn of_torch(name: &str) -> Option<&'static Self> {
        ELEMENTS.iter().find(|element| element.torch.contains(&name))
    }

    /// The name by which numpy writes it, little endian.
    pub fn in_numpy(&self) -> String {
        let order = if self.size() == 1 { '|' } else { '<' };
        format!("{order}{}", self.numpy)
    }

    /// The bytes of one.
    pub fn size(&self) -> usize {
        self.dtype.bitsize() / 8
    }

    /// The type of 8 bits that its numbers have, if that is one of floating-point numbers.
    fn eight_bits(&self) -> Option<EightBits> {
        Some(match self.dtype {
            Dtype::F8_E4M3 => EightBits::E4m3,
            Dtype::F8_E5M2 => EightBits::E5m2,
            Dtype::F8_E4M3FNUZ => EightBits::E4m3Fnuz,
            Dtype::F8_E5M2FNUZ => EightBits::E5m2Fnuz,
            _ => return None,
        })
    }

    /// The type of the tensor that it is read as. Every integer becomes an `I64`: `U8` is boolean here.
    pub fn read_as(&self) -> DType {
        match self.dtype {
            _ if self.eight_bits().is_some() => DType::F32,
            Dtype::BOOL => DType::U8,
            Dtype::F16 => DType::F16,
            Dtype::BF16 => DType::BF16,
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            _ => DType::I64,
        }
    }

    /// The same of bytes that are read as they are needed: no second copy of them all is made.
    pub fn read(
        &self,
        bytes: &mut dyn Read,
        big_endian: bool,
        shape: &[usize],
    ) -> Result<Tensor, Unread> {
        match self.read_as() {
            DType::U8 => self.numbers::<u8>(bytes, big_endian, shape),
            DType::I64 => self.numbers::<i64>(bytes, big_endian, shape),
            DType::F16 => self.numbers::<f16>(bytes, big_endian, shape),
            DType::BF16 => self.numbers::<bf16>(bytes, big_endian, shape),
            DType::F64 => self.numbers::<f64>(bytes, big_endian, shape),
            _ => self.numbers::<f32>(bytes, big_endian, shape),
        }
    }

    fn numbers<T: WithDType>(
        &self,
        bytes: &mut dyn Read,
        big_endian: bool,
        shape: &[usize],
    ) -> Result<Tensor, Unread> {
        const PIECE: usize = 1 << 16;
        let count = byte_length(shape, 1).unwrap_or(usize::MAX);
        if count <= PIECE {
            let mut all = vec![0; count * self.size()];
            bytes.read_exact(&mut all)?;
            return Ok(self.tensor(all, big_endian, shape)?);
        }
        let mut numbers: Vec<T> = Vec::new();
        numbers
            .try_reserve_exact(count)
            .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        while numbers.len() < count {
            let next = PIECE.min(count - numbers.len());
            let mut piece = vec![0; next * self.size()];
            bytes.read_exact(&mut piece)?;
            let piece = self.tensor(piece, big_endian, &[next])?.to_vec1::<T>();
            numbers.extend(piece.map_err(not_made)?);
        }
        Ok(Tensor::from_vec(numbers, shape, &Device::Cpu).map_err(not_made)?)
    }

    /// Row-major bytes as a tensor, or why they are none.
    pub fn tensor(
        &self,
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
        let integers = match self.dtype {
            Dtype::U8 => Some(widen(&bytes, u8::from_le_bytes)),
            Dtype::U16 => Some(widen(&bytes, u16::from_le_bytes)),
            Dtype::U32 => Some(widen(&bytes, u32::from_le_bytes)),
            Dtype::I8 => Some(widen(&bytes, i8::from_le_bytes)),
            Dtype::I16 => Some(widen(&bytes, i16::from_le_bytes)),
            Dtype::I32 => Some(widen(&bytes, i32::from_le_bytes)),
            Dtype::I64 => Some(widen(&bytes, i64::from_le_bytes)),
            Dtype::U64 => {
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
            Dtype::BOOL => {
                for byte in &mut bytes {
                    *byte = u8::from(*byte != 0);
                }
                None
            }
            _ => None,
        };
        let tensor = match (integers, self.eight_bits()) {
            (Some(integers), _) => Tensor::from_vec(integers, shape, &Device::Cpu),
            (None, Some(own)) => {
                let numbers: Vec<f32> = bytes.iter().map(|byte| own.number(*byte)).collect();
                Tensor::from_vec(numbers, shape, &Device::Cpu)
            }
            (None, None) => Tensor::from_raw_buffer(&bytes, self.read_as(), shape, &Device::Cpu),
        };
        tensor.map_err(not_made)
    }
}

fn not_made(error: candle_core::Error) -> Fault {
    Fault::new(base::error::Error::from(error).to_string(), DAMAGED)
}

/// Why a tensor was not read.
pub enum Unread {
    /// What its bytes are read from fails.
    Io(io::Error),
    /// They are no tensor.
    Fault(Fault),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for Unread {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Unread {
    /// The error of the tensor of that name in the file at `path`.
    pub fn of(self, path: &std::path::Path, name: &str) -> base::error::Error {
        match self {
            Self::Io(error) => unreadable(path, &error),
            Self::Fault(fault) => fault.of(path, name),
        }
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

/// Writes the numbers of a tensor as files have them: little endian, row-major. They are written some at a time, so that no second copy of them all is made.
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
    Ok(match written_as(flat.dtype()).dtype {
        Dtype::BOOL => flat.to_vec1::<u8>()?,
        Dtype::I64 => bytes_of(&flat.to_vec1()?, i64::to_le_bytes),
        Dtype::F64 => bytes_of(&flat.to_vec1()?, f64::to_le_bytes),
        Dtype::F16 => bytes_of(&flat.to_vec1()?, f16::to_le_bytes),
        Dtype::BF16 => bytes_of(&flat.to_vec1()?, bf16::to_le_bytes),
        _ => bytes_of(&flat.to_dtype(DType::F32)?.to_vec1()?, f32::to_le_bytes),
    })
}

/// The type that [`write`] writes a tensor as.
pub fn written_as(dtype: DType) -> &'static Element {
    let written = match dtype {
        DType::U8 => Dtype::BOOL,
        DType::I64 => Dtype::I64,
        DType::F64 => Dtype::F64,
        DType::F16 => Dtype::F16,
        DType::BF16 => Dtype::BF16,
        _ => Dtype::F32,
    };
    Element::of(written).unwrap_or(&F32)
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
        let fault = Element::of(Dtype::U64)
            .expect("known")
            .tensor(bytes, false, &[1])
            .expect_err("refused");
        assert_eq!(fault.what, "holds an integer beyond 9223372036854775807");
    }
}
