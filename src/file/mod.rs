//! Recorded traces as files, written and read without loss: one format, one file.

mod archive;
mod array;
mod bundle;
mod element;
mod index;
mod input;
mod json;
mod npy;
mod npz;
mod output;
mod pickle;
mod safetensors;
mod text;
mod torch;

pub use bundle::{Bundle, Info};
pub use output::Output;

use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use serde::Deserialize;
use serde_json::Value;

use self::input::Input;
use crate::config::Settings;
use crate::error::{Error, Result};

/// The name that files carry to say what they are.
const FORMAT: &str = "mha-trace";
/// The version of the format.
const VERSION: u64 = 1;

/// What a file says that it is.
#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct Head {
    format: Option<Value>,
    version: Option<Value>,
    /// Of a checkpoint in several files.
    weight_map: Option<Value>,
}

impl Head {
    /// Refuses another format, and a version that is not understood here.
    fn check(&self, path: &Path) -> Result<()> {
        match (&self.format, &self.version) {
            (Some(format), _) if format != FORMAT => {
                let what = format!("its format is {format}, not \"{FORMAT}\"");
                Err(Error::file(path, what, "give a trace written with -o"))
            }
            (Some(_), Some(version)) if version != VERSION => {
                let what = format!("its version is {version}, and only {VERSION} is understood");
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

impl Record {
    /// The tensor of that name.
    #[must_use]
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.tensor)
    }

    /// Reads a file in the format that its extension names.
    ///
    /// # Errors
    /// If the file is missing, a folder, unreadable, broken, or not what its extension says.
    pub fn read(path: &Path) -> Result<Self> {
        Bundle::open(path)?.read()
    }
}

/// Opens a file of some format. The path is for errors, and for files beside it.
type Open = fn(&Path, Input) -> Result<Bundle>;

/// Writes a file of some format to a path, whatever is there.
///
/// Writing and reading keep every bit of every bool, i64, f32 and f64, but for the sign and payload of a NaN in JSON;
/// narrower floats are written as f32.
type Write = fn(&Record, &Path) -> std::io::Result<()>;

/// The extensions that can be written, and that a recorded trace can have.
pub const EXTENSIONS: [&str; 3] = ["json", "safetensors", "npz"];

/// The extensions that can be read.
pub const READ_EXTENSIONS: [&str; 7] = ["json", "safetensors", "npz", "npy", "pt", "pth", "bin"];

/// The extension of a recorded trace's file, in lower case.
fn extension(path: &Path) -> Option<String> {
    path.extension()?.to_str().map(str::to_ascii_lowercase)
}

/// Whether the file's name is that of a recorded trace.
#[must_use]
pub fn is_recorded(path: &Path) -> bool {
    extension(path).is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

fn opener(path: &Path) -> Result<Open> {
    refuse_folder(path)?;
    match extension(path).as_deref() {
        Some("json") => Ok(json::open),
        Some("safetensors") => Ok(safetensors::open),
        Some("npz") => Ok(npz::open),
        Some("npy") => Ok(npy::open),
        Some("pt" | "pth" | "bin") => Ok(torch::open),
        other => Err(unknown(path, other, &READ_EXTENSIONS)),
    }
}

fn writer(path: &Path) -> Result<Write> {
    refuse_folder(path)?;
    match extension(path).as_deref() {
        Some("json") => Ok(json::write_file),
        Some("safetensors") => Ok(safetensors::write),
        Some("npz") => Ok(npz::write),
        other => Err(unknown(path, other, &EXTENSIONS)),
    }
}

fn unknown(path: &Path, extension: Option<&str>, known: &[&str]) -> Error {
    let what = match extension {
        Some(extension) if READ_EXTENSIONS.contains(&extension) => {
            format!("`.{extension}` is a format that is read, not written")
        }
        Some(extension) => format!("`.{extension}` is not a known format"),
        None => "the name has no extension to tell the format".to_owned(),
    };
    let (last, others) = known.split_last().unwrap_or((&"", &[]));
    Error::file(path, what, format!("use .{} or .{last}", others.join(", .")))
}

/// Writes `record` to `writer` as JSON.
///
/// # Errors
/// If the writer fails, or candle cannot read a tensor.
pub fn write_json(record: &Record, writer: &mut dyn std::io::Write) -> std::io::Result<()> {
    json::write(record, writer)
}

/// A JSON file that holds such a value.
///
/// # Errors
/// If it cannot be read, or holds something else.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    json::read_json(path)
}

/// Reads a config: a JSON object of settings, or any recorded trace, which then comes whole.
///
/// # Errors
/// As [`Record::read`], and for unknown keys and wrong types with their line and column.
pub fn read_config(path: &Path) -> Result<Record> {
    if extension(path).as_deref() == Some("json") {
        return json::read_config(path);
    }
    let record = Record::read(path)?;
    if record.config.is_none() {
        let fix = "give a JSON file of settings, or a trace written with -o";
        return Err(Error::file(path, "holds no config", fix));
    }
    Ok(record)
}

/// The `.npy` files in a folder, by name.
///
/// # Errors
/// If the folder cannot be listed, or has none.
pub fn arrays_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let what = format!("cannot be listed: {}", io_reason(&error));
        Error::file(folder, what, "make it readable")
    })?;
    let paths = entries.filter_map(std::io::Result::ok).map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        paths.filter(|path| extension(path).as_deref() == Some("npy")).collect();
    if paths.is_empty() {
        let fix = "name a file in it, or a folder of .npy files";
        return Err(Error::file(folder, "is a folder without .npy files", fix));
    }
    paths.sort();
    Ok(paths)
}

fn refuse_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(Error::file(path, "is a folder", "name a file in it"));
    }
    Ok(())
}

/// The system's reason, without the number it appends.
fn io_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" (os error").next().unwrap_or(&text);
    reason.to_lowercase()
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
fn dtype_named(name: &str) -> Option<DType> {
    let known = [DType::U8, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64];
    known.into_iter().find(|dtype| dtype_name(*dtype) == name)
}
