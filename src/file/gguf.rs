//! GGUF files, as llama.cpp has them: a header of settings and of tensors, and the data behind it.
//!
//! The header is parsed here: candle's reader divides by the alignment that a file states, whatever that is. Quantised
//! blocks are read by candle. <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>

use std::collections::HashMap;
use std::io;

use candle_core::quantized::GgmlDType;
use candle_core::quantized::ggml_file::qtensor_from_ggml;
use candle_core::{DType, Device, Tensor};

use super::bundle::{Bundle, Info, Tensors};
use super::element::DAMAGED;
use super::input::{Input, NAMED_WRONGLY, unreadable};
use base::error::{Error, Result, quoted};

/// The types of tensors that are read, by their numbers in a file.
const TYPES: &[(u32, GgmlDType)] = &[
    (0, GgmlDType::F32),
    (1, GgmlDType::F16),
    (2, GgmlDType::Q4_0),
    (3, GgmlDType::Q4_1),
    (6, GgmlDType::Q5_0),
    (7, GgmlDType::Q5_1),
    (8, GgmlDType::Q8_0),
    (10, GgmlDType::Q2K),
    (11, GgmlDType::Q3K),
    (12, GgmlDType::Q4K),
    (13, GgmlDType::Q5K),
    (14, GgmlDType::Q6K),
    (30, GgmlDType::BF16),
];

/// The architectures whose rows of queries and keys llama.cpp's converter reorders, head by head, so that pairs of
/// features that turn together stand side by side (`LlamaModel.permute`).
const REORDERED: &[&str] = &[
    "llama",
    "granite",
    "granitemoe",
    "smollm3",
    "arcee",
    "olmo",
    "deci",
    "baichuan",
    "xverse",
    "minicpm",
    "internlm2",
];

/// A tensor has at most so many axes, as ggml has it.
const MOST_AXES: u64 = 4;

/// A value of the header, as far as one is needed.
enum Value {
    Number(u64),
    Text(String),
    Other,
}

/// Where a tensor stands, and what it is.
struct Slot {
    name: String,
    /// The type's number.
    code: u32,
    shape: Vec<usize>,
    start: u64,
}

/// An opened file: the header has been read, the data is not.
struct Opened {
    input: Input,
    slots: Vec<Slot>,
    /// The heads of queries and of keys, where their rows are reordered.
    reordered: Option<[usize; 2]>,
}

/// Opens a GGUF file.
pub fn open(input: Input) -> Result<Bundle> {
    let path = &input.path().to_owned();
    let mut header = Header { input, at: 0 };
    let (values, mut slots) = header.read()?;
    slots.sort_by(|left, right| left.name.cmp(&right.name));
    let mut pairs = slots.iter().zip(slots.iter().skip(1));
    if let Some((twice, _)) = pairs.find(|(one, next)| one.name == next.name) {
        let what = tr!("holds two tensors that are \"{twice}\"", twice = quoted(&twice.name));
        return Err(Error::file(path, what, "keep one of them"));
    }
    let number = |key: &str| match values.get(key) {
        Some(Value::Number(number)) => usize::try_from(*number).ok().filter(|number| *number > 0),
        _ => None,
    };
    let reordered = match values.get("general.architecture") {
        Some(Value::Text(name)) if REORDERED.contains(&name.as_str()) => {
            let heads = number(&format!("{name}.attention.head_count"));
            let key_heads = number(&format!("{name}.attention.head_count_kv")).or(heads);
            heads.zip(key_heads).map(|(heads, key_heads)| [heads, key_heads])
        }
        _ => None,
    };
    let info = |slot: &Slot| {
        let dtype = ggml(slot.code).map_or(DType::F32, read_as);
        Info::unlabelled(slot.name.clone(), dtype, slot.shape.clone())
    };
    let infos = slots.iter().map(info).collect();
    let opened = Opened { input: header.input, slots, reordered };
    Ok(Bundle::new(path, None, infos, Box::new(opened)))
}

impl Tensors for Opened {
    fn read(&self, at: usize) -> Result<Tensor> {
        let Slot { name, code, shape, start } = &self.slots[at];
        let path = self.input.path();
        let broken = |what: String| Error::file(path, format!("{}: {what}", quoted(name)), DAMAGED);
        let Some(dtype) = ggml(*code) else {
            let what = tr!(
                "{quoted}: is of GGML type {code}, which is not read",
                quoted = quoted(name),
                code
            );
            let fix = tr!("convert the model to F32, F16, BF16 or Q8_0");
            return Err(Error::file(path, what, fix));
        };
        // Strides are counted of the other axes where one is 0, too.
        let places = shape.iter().try_fold(1_usize, |all, size| all.checked_mul((*size).max(1)));
        let count = places.map(|_| shape.iter().product::<usize>());
        let blocks = count.filter(|count| count.is_multiple_of(dtype.block_size()));
        let bytes =
            blocks.and_then(|count| (count / dtype.block_size()).checked_mul(dtype.type_size()));
        let bytes = bytes.and_then(|bytes| u64::try_from(bytes).ok());
        let bytes = bytes.ok_or_else(|| {
            broken(tr!("its shape {shape} does not fit its type", shape = format!("{shape:?}")))
        })?;
        if bytes == 0 {
            // candle makes a slice of numbers where an empty one of bytes begins, which may be anywhere.
            return Ok(Tensor::zeros(shape.as_slice(), read_as(dtype), &Device::Cpu)?);
        }
        let data = self.input.range(*start, bytes)?;
        let quantised = qtensor_from_ggml(dtype, &data, shape.clone(), &Device::Cpu)?;
        let tensor = quantised.dequantize(&Device::Cpu)?.to_dtype(read_as(dtype))?;
        self.in_halves(name, tensor)
    }
}

impl Opened {
    /// Queries and keys as their code has them: the partners of pairs in the halves of a head.
    fn in_halves(&self, name: &str, tensor: Tensor) -> Result<Tensor> {
        let Some([heads, key_heads]) = self.reordered else { return Ok(tensor) };
        let of = |module: &str| {
            ["weight", "bias"].iter().any(|last| name.ends_with(&format!("{module}.{last}")))
        };
        let heads = match (of(".attn_q"), of(".attn_k")) {
            (true, _) => heads,
            (_, true) => key_heads,
            _ => return Ok(tensor),
        };
        let rows = tensor.dim(0)?;
        if !rows.is_multiple_of(heads.saturating_mul(2)) {
            let what = tr!(
                "{quoted}: has {rows} rows, which {heads} heads cannot share evenly",
                quoted = quoted(name),
                rows,
                heads
            );
            return Err(Error::file(self.input.path(), what, DAMAGED));
        }
        let width = tensor.elem_count() / rows.max(1);
        let pairs = tensor.reshape((heads, rows / heads / 2, 2, width))?;
        Ok(pairs.transpose(1, 2)?.contiguous()?.reshape(tensor.shape())?)
    }
}

fn ggml(code: u32) -> Option<GgmlDType> {
    TYPES.iter().find(|(own, _)| *own == code).map(|(_, dtype)| *dtype)
}

/// The type that tensors of a type are read as.
fn read_as(dtype: GgmlDType) -> DType {
    match dtype {
        GgmlDType::F16 => DType::F16,
        GgmlDType::BF16 => DType::BF16,
        _ => DType::F32,
    }
}

/// A header that is being read: no memory is taken for what the file is too short to hold.
struct Header {
    input: Input,
    at: u64,
}

impl Header {
    fn read(&mut self) -> Result<(HashMap<String, Value>, Vec<Slot>)> {
        if self.input.start(4)? != b"GGUF" {
            let what = tr!("is not a GGUF file, though its name says so");
            return Err(Error::file(self.input.path(), what, NAMED_WRONGLY));
        }
        self.at = 4;
        let version = self.number(4)?;
        if !(2..=3).contains(&version) {
            let what = tr!("is a GGUF file of version {version}", version);
            let fix = tr!("convert it with a recent llama.cpp");
            return Err(Error::file(self.input.path(), what, fix));
        }
        let (tensors, settings) = (self.number(8)?, self.number(8)?);
        let mut values = HashMap::new();
        for _ in 0..settings {
            let key = self.text()?;
            let kind = self.number(4)?;
            let value = self.value(kind)?;
            values.insert(key, value);
        }
        let mut slots = Vec::new();
        for _ in 0..tensors {
            slots.push(self.slot()?);
        }
        let alignment = match values.get("general.alignment") {
            Some(Value::Number(number)) => *number,
            _ => 32,
        };
        if !alignment.is_power_of_two() {
            return Err(self.broken(tr!("states an alignment of {alignment}", alignment)));
        }
        let data = self.at.checked_next_multiple_of(alignment);
        for slot in &mut slots {
            let start = data.and_then(|data| data.checked_add(slot.start));
            let ends = || unreadable(self.input.path(), &io::ErrorKind::UnexpectedEof.into());
            slot.start = start.ok_or_else(ends)?;
        }
        Ok((values, slots))
    }

    /// That the header is not as the format has it.
    fn broken(&self, what: impl std::fmt::Display) -> Error {
        Error::file(self.input.path(), tr!("its header {what}", what), DAMAGED)
    }

    fn slot(&mut self) -> Result<Slot> {
        let name = self.text()?;
        let axes = self.number(4)?;
        if axes > MOST_AXES {
            let what = tr!("gives \"{quoted}\" {axes} axes", quoted = quoted(&name), axes);
            return Err(self.broken(what));
        }
        let mut shape = Vec::new();
        for _ in 0..axes {
            shape.push(usize::try_from(self.number(8)?).unwrap_or(usize::MAX));
        }
        // The innermost axis stands first.
        shape.reverse();
        let code = u32::try_from(self.number(4)?).unwrap_or(u32::MAX);
        Ok(Slot { name, code, shape, start: self.number(8)? })
    }

    /// A value of a kind that the format numbers.
    fn value(&mut self, kind: u64) -> Result<Value> {
        Ok(match kind {
            0 | 1 | 7 => Value::Number(self.number(1)?),
            2 | 3 => Value::Number(self.number(2)?),
            4 | 5 => Value::Number(self.number(4)?),
            10 | 11 => Value::Number(self.number(8)?),
            8 => Value::Text(self.text()?),
            9 => {
                let (kind, count) = (self.number(4)?, self.number(8)?);
                if kind == 9 {
                    return Err(self.broken(tr!("has arrays in arrays")));
                }
                for _ in 0..count {
                    self.value(kind)?;
                }
                Value::Other
            }
            6 => self.skipped(4)?,
            12 => self.skipped(8)?,
            other => return Err(self.broken(tr!("has a value of kind {other}", other))),
        })
    }

    fn skipped(&mut self, size: usize) -> Result<Value> {
        self.number(size)?;
        Ok(Value::Other)
    }

    fn text(&mut self) -> Result<String> {
        let length = self.number(8)?;
        let mut bytes = vec![0; self.input.size(self.at, length)?];
        self.input.next(&mut bytes)?;
        self.at += length;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A whole number of so many bytes, at most 8.
    fn number(&mut self, size: usize) -> Result<u64> {
        let mut bytes = [0; 8];
        self.input.next(&mut bytes[..size])?;
        self.at += size as u64;
        Ok(u64::from_le_bytes(bytes))
    }
}
