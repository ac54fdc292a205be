//! What a file holds: tensors by name, and perhaps the config that they come from.

use std::path::Path;

use candle_core::{DType, Tensor};
use serde::Deserialize;
use serde_json::Value;

use crate::config::Settings;
use crate::error::{Error, Result};

/// The name that files carry to say what they are.
pub const FORMAT: &str = "mha-trace";
/// The version of the format.
pub const VERSION: u64 = 1;

/// What a file says that it is.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
pub struct Head {
    pub format: Option<Value>,
    pub version: Option<Value>,
    /// Of a checkpoint in several files.
    pub weight_map: Option<Value>,
}

impl Head {
    /// Refuses another format, and a version that is not understood here.
    pub fn check(&self, path: &Path) -> Result<()> {
        match (&self.format, &self.version) {
            (Some(format), _) if format != FORMAT => {
                let what = tr!("its format is {format}, not \"{FORMAT}\"", format, FORMAT);
                Err(Error::file(path, what, "give a trace written with -o"))
            }
            (Some(_), Some(version)) if version != VERSION => {
                let what = tr!(
                    "its version is {version}, and only {VERSION} is understood",
                    version,
                    VERSION
                );
                Err(Error::file(path, what, "use a newer mha-trace"))
            }
            _ => Ok(()),
        }
    }
}

/// What a file holds: tensors by name, in order, and perhaps the config that they come from.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The setting of the run.
    pub config: Option<Settings>,
    /// The tensors in order of execution.
    pub entries: Vec<Entry>,
}

/// One tensor of a file. A `U8` tensor is a boolean one: 0 or 1.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The step's name.
    pub name: String,
    /// How it was computed, for readers.
    pub formula: Option<String>,
    /// The names of its axes, outermost first.
    pub axes: Option<Vec<String>>,
    /// Its value.
    pub tensor: Tensor,
}

impl Entry {
    /// A tensor of which no more is said than its name.
    #[must_use]
    pub fn of(name: impl Into<String>, tensor: Tensor) -> Self {
        Self { name: name.into(), formula: None, axes: None, tensor }
    }
}

impl Record {
    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.tensor)
    }

    /// Puts another tensor in the place of one of that name.
    pub(crate) fn replace(&mut self, name: &str, tensor: Tensor) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.tensor = tensor;
        }
    }
}

/// The name of a tensor's type in files.
#[must_use]
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "bool",
        other => other.as_str(),
    }
}

/// The type of that name in files.
pub fn dtype_named(name: &str) -> Option<DType> {
    let known = [DType::U8, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64];
    known.into_iter().find(|dtype| dtype_name(*dtype) == name)
}
