//! The safetensors format: tensors by step name; config and order as JSON under the metadata key `mha-trace`.
//!
//! The order stands in the metadata because the format sorts its tensors.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::path::Path;

use candle_core::safetensors::Load;
use candle_core::{DType, Device, Tensor};
use safetensors::tensor::{Dtype, SafeTensorError, SafeTensors, TensorView, View};
use serde::Deserialize;
use serde_json::json;

use super::text::parse;
use super::{Entry, FORMAT, Format, Head, Record, VERSION, read_bytes};
use crate::config::Settings;
use crate::error::{Error, Result};

pub struct Safetensors;

#[derive(Deserialize)]
struct About {
    config: Option<Settings>,
    #[serde(default)]
    steps: Vec<StepAbout>,
}

#[derive(Deserialize)]
struct StepAbout {
    name: String,
    formula: Option<String>,
    axes: Option<Vec<String>>,
}

impl Format for Safetensors {
    fn read(&self, path: &Path) -> Result<Record> {
        let bytes = read_bytes(path)?;
        let broken = |error| broken(path, &bytes, &error);
        let (_, header) = SafeTensors::read_metadata(&bytes).map_err(broken)?;
        let tensors = SafeTensors::deserialize(&bytes).map_err(broken)?;
        let about = header.metadata().as_ref().and_then(|metadata| metadata.get(FORMAT));
        let About { config, steps } = match about {
            Some(text) => {
                parse::<Head>(path, text)?.check(path)?;
                parse(path, text)?
            }
            None => About { config: None, steps: Vec::new() },
        };
        let mut views: HashMap<String, TensorView> = tensors.tensors().into_iter().collect();
        let mut entries = Vec::with_capacity(views.len());
        for StepAbout { name, formula, axes } in steps {
            let Some(view) = views.remove(&name) else {
                let what = format!("its metadata names \"{name}\" and it holds no such tensor");
                return Err(Error::file(path, what, "the file is damaged: write it again"));
            };
            let tensor = load(path, &name, &view)?;
            entries.push(Entry { name, formula, axes, tensor });
        }
        let mut others: Vec<_> = views.into_iter().collect();
        others.sort_by(|(left, _), (right, _)| left.cmp(right));
        for (name, view) in others {
            let tensor = load(path, &name, &view)?;
            entries.push(Entry { name, formula: None, axes: None, tensor });
        }
        Ok(Record { config, entries })
    }

    fn write(&self, record: &Record, path: &Path) -> io::Result<()> {
        let steps = record.entries.iter().map(
            |entry| json!({ "name": entry.name, "formula": entry.formula, "axes": entry.axes }),
        );
        let about = json!({
            "format": FORMAT,
            "version": VERSION,
            "config": record.config.as_ref().map(Settings::to_json),
            "steps": steps.collect::<Vec<_>>(),
        });
        let metadata = HashMap::from([(FORMAT.to_owned(), about.to_string())]);
        let tensors = record.entries.iter().map(|entry| {
            Ok((entry.name.as_str(), Bytes::of(&entry.tensor).map_err(io::Error::other)?))
        });
        let tensors: Vec<_> = tensors.collect::<io::Result<_>>()?;
        safetensors::serialize_to_file(tensors, Some(metadata), path).map_err(|error| match error {
            SafeTensorError::IoError(error) => error,
            other => io::Error::other(other.to_string()),
        })
    }
}

/// A tensor in one of the types that the format is written with. Its bytes are made when they are asked for, so
/// that only one tensor's are in memory at a time.
struct Bytes(Tensor);

impl Bytes {
    fn of(tensor: &Tensor) -> candle_core::Result<Self> {
        let dtype = match tensor.dtype() {
            known @ (DType::U8 | DType::I64 | DType::F64) => known,
            _ => DType::F32,
        };
        Ok(Self(tensor.flatten_all()?.to_dtype(dtype)?.reshape(tensor.shape())?))
    }

    fn little_endian(&self) -> candle_core::Result<Vec<u8>> {
        let flat = self.0.flatten_all()?;
        Ok(match flat.dtype() {
            DType::U8 => flat.to_vec1::<u8>()?,
            DType::I64 => flat.to_vec1::<i64>()?.into_iter().flat_map(i64::to_le_bytes).collect(),
            DType::F64 => flat.to_vec1::<f64>()?.into_iter().flat_map(f64::to_le_bytes).collect(),
            _ => flat.to_vec1::<f32>()?.into_iter().flat_map(f32::to_le_bytes).collect(),
        })
    }
}

impl View for Bytes {
    fn dtype(&self) -> Dtype {
        match self.0.dtype() {
            DType::U8 => Dtype::BOOL,
            DType::I64 => Dtype::I64,
            DType::F64 => Dtype::F64,
            _ => Dtype::F32,
        }
    }
    fn shape(&self) -> &[usize] {
        self.0.dims()
    }
    fn data(&self) -> Cow<'_, [u8]> {
        // Reading a CPU tensor by its own type cannot fail.
        Cow::Owned(self.little_endian().unwrap_or_default())
    }
    fn data_len(&self) -> usize {
        self.0.elem_count() * self.0.dtype().size_in_bytes()
    }
}

fn load(path: &Path, name: &str, view: &TensorView) -> Result<Tensor> {
    let loaded = match view.dtype() {
        Dtype::BOOL => {
            let bits: Vec<u8> = view.data().iter().map(|byte| u8::from(*byte != 0)).collect();
            Tensor::from_vec(bits, view.shape(), &Device::Cpu)
        }
        _ => view.load(&Device::Cpu),
    };
    loaded.map_err(|_| {
        let what = format!("tensor \"{name}\" is of type {}, which cannot be read", view.dtype());
        Error::file(path, what, "store it as F64, F32, F16, BF16, I64 or BOOL")
    })
}

fn broken(path: &Path, bytes: &[u8], error: &SafeTensorError) -> Error {
    // The header is an object behind its length.
    if bytes.get(8) != Some(&b'{') {
        let what = "is not a safetensors file, though its name says so";
        return Error::file(path, what, "check the file, or give it the extension of its format");
    }
    match error {
        SafeTensorError::InvalidHeaderLength | SafeTensorError::MetadataIncompleteBuffer => {
            let what = "its data ends before its header says";
            Error::file(path, what, "it is truncated: write or copy it again")
        }
        other => Error::file(path, other.to_string(), "the file is damaged: write it again"),
    }
}
