//! The safetensors format: tensors by step name; config and order as JSON under the metadata key `mha-trace`.
//!
//! The order stands in the metadata because the format sorts its tensors.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};

use candle_core::{DType, Device, Tensor};
use safetensors::tensor::{Dtype, Metadata, TensorInfo};
use serde::Deserialize;
use serde_json::json;

use super::at::InFile;
use super::bundle::{Bundle, Info, Tensors};
use super::element::{self, DAMAGED, Element, Fault, byte_length, written_as};
use super::growing::{Place, Places};
use super::input::{Input, NAMED_WRONGLY, unreadable};
use super::record::{FORMAT, Head, Record, VERSION};
use super::text::{Object, parse_metadata};
use base::error::{Error, Result, quoted};
use config::Settings;

/// As the safetensors crate has it.
const MAX_HEADER: u64 = 100_000_000;

#[derive(Deserialize)]
struct About {
    config: Option<Object<Settings>>,
    #[serde(default)]
    steps: Vec<Object<StepAbout>>,
}

#[derive(Deserialize)]
struct StepAbout {
    name: String,
    formula: Option<String>,
    axes: Option<Vec<String>>,
}

/// An opened file: the header has been read, the data is not.
struct Opened {
    input: Input,
    slots: Vec<Slot>,
}

/// Where a tensor stands.
struct Slot {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    start: u64,
    length: u64,
}

impl Tensors for Opened {
    fn in_file(&self, at: usize) -> Option<InFile> {
        let Slot { dtype, shape, start, length, .. } = self.slots.get(at)?;
        let size = byte_length(shape, size_of::<f32>())? as u64;
        let file = self.input.file()?;
        let is_f32 = *dtype == Dtype::F32 && size == *length;
        is_f32.then(|| InFile { path: self.input.path().to_owned(), file, start: *start })
    }

    fn read(&self, at: usize) -> Result<Tensor> {
        let slot = &self.slots[at];
        self.stretch(slot, slot.start, slot.length, &slot.shape)
    }

    fn read_some(&self, at: usize, first: usize, count: usize) -> Result<Tensor> {
        let slot = &self.slots[at];
        let size = type_of(slot.dtype).map_err(|fault| self.fail(slot, fault))?.size();
        // Of numbers that share bytes all are read.
        if byte_length(&slot.shape, size).is_none_or(|bytes| bytes as u64 != slot.length) {
            return Ok(self.read(at)?.flatten_all()?.narrow(0, first, count)?);
        }
        let [first, long] = [first, count].map(|numbers| numbers as u64 * size as u64);
        self.stretch(slot, slot.start + first, long, &[count])
    }
}

impl Opened {
    fn fail(&self, slot: &Slot, fault: Fault) -> Error {
        fault.of(self.input.path(), &slot.name)
    }

    /// The numbers in a stretch of a tensor's bytes, in this shape.
    fn stretch(&self, slot: &Slot, start: u64, length: u64, shape: &[usize]) -> Result<Tensor> {
        let element = type_of(slot.dtype).map_err(|fault| self.fail(slot, fault))?;
        let size = byte_length(shape, element.size());
        if slot.dtype == Dtype::F32 && size.is_some_and(|size| size as u64 == length) {
            return Ok(Tensor::from_vec(
                self.input.numbers(start, length / 4)?,
                shape,
                &Device::Cpu,
            )?);
        }
        let bytes = self.input.range(start, length)?;
        element.tensor(bytes, false, shape).map_err(|fault| self.fail(slot, fault))
    }
}

/// Opens a safetensors file.
pub fn open(input: Input) -> Result<Bundle> {
    let path = &input.path().to_owned();
    let (start, header) = read_header(&input)?;
    let about = header.metadata().as_ref().and_then(|metadata| metadata.get(FORMAT));
    let About { config, steps } = match about {
        Some(text) => {
            parse_metadata::<Head>(path, text)?.check(path)?;
            parse_metadata(path, text)?
        }
        None => About { config: None, steps: Vec::new() },
    };
    let mut tensors = header.tensors();
    let mut infos = Vec::with_capacity(tensors.len());
    let mut slots = Vec::with_capacity(tensors.len());
    let mut add = |about: StepAbout, tensor: &TensorInfo| {
        let StepAbout { name, formula, axes } = about;
        let dtype = type_of(tensor.dtype).map_or(DType::F32, Element::read_as);
        let (from, to) = tensor.data_offsets;
        slots.push(Slot {
            name: name.clone(),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            start: start + from as u64,
            length: (to - from) as u64,
        });
        infos.push(Info { name, formula, axes, dtype, shape: tensor.shape.clone() });
    };
    for Object(step) in steps {
        let Some(tensor) = tensors.remove(&step.name) else {
            let what = tr!(
                "its metadata names \"{step}\" and it holds no such tensor",
                step = quoted(&step.name)
            );
            return Err(Error::file(path, what, DAMAGED));
        };
        add(step, tensor);
    }
    let mut others: Vec<_> = tensors.into_iter().collect();
    others.sort_by(|(left, _), (right, _)| left.cmp(right));
    for (name, tensor) in others {
        add(StepAbout { name, formula: None, axes: None }, tensor);
    }
    let opened = Opened { input, slots };
    let config = config.map(|Object(config)| config);
    Ok(Bundle::new(path, config, infos, Box::new(opened)))
}

/// The header, and where the data begins behind it.
fn read_header(input: &Input) -> Result<(u64, Metadata)> {
    let (path, start) = (input.path(), input.start(9)?);
    // The header is an object behind its length.
    let Some((length, b"{")) = start.split_first_chunk() else {
        let what = tr!("is not a safetensors file, though its name says so");
        return Err(Error::file(path, what, NAMED_WRONGLY));
    };
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(Error::file(path, "its header is too large", DAMAGED));
    }
    let text = input.range(8, length)?;
    let header: Metadata = serde_json::from_slice(&text).map_err(|error| {
        let error = error.to_string();
        let reason = error.rsplit_once(" at line ").map_or(error.as_str(), |(reason, _)| reason);
        Error::file(path, tr!("its header is broken: {reason}", reason = quoted(reason)), DAMAGED)
    })?;
    let needed = 8 + length + header.data_len() as u64;
    if input.length() < needed {
        return Err(unreadable(path, &io::ErrorKind::UnexpectedEof.into()));
    }
    if input.length() > needed {
        let what = tr!(
            "holds {needed} bytes that its header does not name",
            needed = input.length() - needed
        );
        return Err(Error::file(path, what, DAMAGED));
    }
    Ok((8 + length, header))
}

/// What the elements of that type are read as.
fn type_of(dtype: Dtype) -> Result<&'static Element, Fault> {
    Element::of(dtype).ok_or_else(|| {
        let what = tr!("is of type {other}, which cannot be read", other = dtype);
        Fault::new(what, tr!("store it as F64, F32, F16, BF16, I64 or BOOL"))
    })
}

/// Writes a record to a file, one tensor after the other.
pub fn write(record: &Record, file: &File) -> io::Result<()> {
    let infos: Vec<Info> = record.entries.iter().map(Info::of).collect();
    let (header, order) = header(&infos, record.config.as_ref())?;
    let mut writer = BufWriter::new(file);
    writer.write_all(&header)?;
    for entry in order.into_iter().filter_map(|at| record.entries.get(at)) {
        element::write(&entry.tensor, &mut writer)?;
    }
    writer.flush()
}

/// Writes the header of a file, behind which its tensors have places.
pub fn begin(infos: &[Info], config: Option<&Settings>, mut file: &File) -> io::Result<Places> {
    let (header, order) = header(infos, config)?;
    file.write_all(&header)?;
    let mut next = header.len() as u64;
    let place = |info: &Info| {
        let (start, count) = (next, info.shape.iter().product());
        next += (count * written_as(info.dtype).size()) as u64;
        (info.name.clone(), Place { start, dtype: info.dtype, count })
    };
    let places = order.into_iter().filter_map(|at| infos.get(at)).map(place).collect();
    reserve(file, next)?;
    Ok(places)
}

/// Makes a file so long, and has the system set room aside where it can: what does not fit is then known before the work.
fn reserve(file: &File, length: u64) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{FallocateFlags, fallocate};
        use rustix::io::Errno;
        // File systems that cannot do it say so by other errors.
        if let Err(error @ (Errno::NOSPC | Errno::FBIG | Errno::DQUOT)) =
            fallocate(file, FallocateFlags::empty(), 0, length)
        {
            return Err(error.into());
        }
    }
    file.set_len(length)
}

/// What stands before the tensors, and the order of these.
fn header(infos: &[Info], config: Option<&Settings>) -> io::Result<(Vec<u8>, Vec<usize>)> {
    let steps = infos
        .iter()
        .map(|info| json!({ "name": info.name, "formula": info.formula, "axes": info.axes }));
    let about = json!({
        "format": FORMAT,
        "version": VERSION,
        "config": config.map(Settings::to_json),
        "steps": steps.collect::<Vec<_>>(),
    });
    let metadata = HashMap::from([(FORMAT.to_owned(), about.to_string())]);
    // In the order that the safetensors crate has: types of many bytes first, so that every tensor is aligned.
    let mut order: Vec<usize> = (0..infos.len()).collect();
    order.sort_by(|left, right| {
        let (left, right) = (&infos[*left], &infos[*right]);
        let dtype = |info: &Info| written_as(info.dtype).dtype;
        dtype(right).cmp(&dtype(left)).then_with(|| left.name.cmp(&right.name))
    });
    let mut end = 0_usize;
    let mut tensors = Vec::with_capacity(infos.len());
    for info in order.iter().filter_map(|at| infos.get(*at)) {
        let start = end;
        let element = written_as(info.dtype);
        let length = byte_length(&info.shape, element.size());
        end = length
            .and_then(|length| start.checked_add(length))
            .ok_or(io::ErrorKind::FileTooLarge)?;
        let (dtype, shape) = (element.dtype, info.shape.clone());
        tensors.push((info.name.clone(), TensorInfo { dtype, shape, data_offsets: (start, end) }));
    }
    let text = Metadata::new(Some(metadata), tensors).map_err(io::Error::other)?;
    let mut text = serde_json::to_vec(&text)?;
    text.resize(text.len().next_multiple_of(8), b' ');
    let length = (text.len() as u64).to_le_bytes();
    Ok(([&length[..], &text].concat(), order))
}
