//! The table of formats: which file name means which, and what reads and writes it.

use std::io;
use std::path::Path;

use super::bundle::{Bundle, Opener};
use super::input::{Input, extension, refuse_folder};
use super::record::Record;
use super::{gguf, json, npy, npz, safetensors, torch};
use crate::error::{Error, Result, quoted};

/// A format of files.
pub struct Format {
    /// The extensions of its files, in lower case.
    extensions: &'static [&'static str],
    /// Opens a file. The path is for errors, and for files beside it, which the last argument opens.
    open: fn(&Path, Input, Opener) -> Result<Bundle>,
    /// Writes a file to a path, whatever is there, if the format is one that is written.
    ///
    /// Writing and reading keep every bit of every bool, i64, f32 and f64, but in JSON for the sign and payload of a
    /// NaN, and for an i64 from 2⁵³ on, which is refused when it is read;
    /// narrower floats are written as f32.
    pub write: Option<Write>,
}

/// What writes a file.
pub type Write = fn(&Record, &Path) -> io::Result<()>;

const FORMATS: &[Format] = &[
    Format { extensions: &["json"], open: json::open, write: Some(json::write_file) },
    Format {
        extensions: &["safetensors"],
        open: |path, input, _| safetensors::open(path, input),
        write: Some(safetensors::write),
    },
    Format {
        extensions: &["npz"],
        open: |path, input, _| npz::open(path, input),
        write: Some(npz::write),
    },
    Format { extensions: &["npy"], open: |path, input, _| npy::open(path, input), write: None },
    Format { extensions: &["gguf"], open: |path, input, _| gguf::open(path, input), write: None },
    Format {
        extensions: &["pt", "pth", "bin"],
        open: |path, input, _| torch::open(path, input),
        write: None,
    },
];

/// The extensions of the formats that are read, or of those alone that are written, as recorded traces are.
fn extensions(only_written: bool) -> Vec<&'static str> {
    let formats = FORMATS.iter().filter(|format| !only_written || format.write.is_some());
    formats.flat_map(|format| format.extensions).copied().collect()
}

/// Whether the file's name is that of a recorded trace.
#[must_use]
pub fn is_recorded(path: &Path) -> bool {
    extension(path).is_some_and(|extension| extensions(true).contains(&extension.as_str()))
}

/// The format that a file's name tells.
fn format(path: &Path, only_written: bool) -> Result<&'static Format> {
    refuse_folder(path)?;
    let extension = extension(path);
    let is_it = |format: &&Format| {
        let known = extension.as_deref().is_some_and(|own| format.extensions.contains(&own));
        known && (!only_written || format.write.is_some())
    };
    FORMATS.iter().find(is_it).ok_or_else(|| unknown(path, extension.as_deref(), only_written))
}

fn unknown(path: &Path, extension: Option<&str>, only_written: bool) -> Error {
    let what = match extension {
        Some(extension) if extensions(false).contains(&extension) => {
            format!("`.{extension}` is a format that is read, not written")
        }
        Some(extension) => format!("`.{}` is not a known format", quoted(extension)),
        None => "the name has no extension to tell the format".to_owned(),
    };
    let known = extensions(only_written);
    let (last, others) = known.split_last().unwrap_or((&"", &[]));
    Error::file(path, what, format!("use .{} or .{last}", others.join(", .")))
}

/// What writes a file of that name.
pub fn writer(path: &Path) -> Result<Write> {
    let write = format(path, true)?.write;
    write.ok_or_else(|| unknown(path, extension(path).as_deref(), true))
}

impl Bundle {
    /// Opens a file in the format that its name tells.
    ///
    /// # Errors
    /// If the file is missing, a folder, unreadable, broken, or not what its name says.
    pub fn open(path: &Path) -> Result<Self> {
        let format = format(path, false)?;
        (format.open)(path, Input::open(path)?, Self::open)
    }

    /// Opens what is in memory as the file of that name would be.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn from_bytes(name: &Path, bytes: Vec<u8>) -> Result<Self> {
        (format(name, false)?.open)(name, Input::of_bytes(bytes), Self::open)
    }
}

impl Record {
    /// Reads a file in the format that its extension names.
    ///
    /// # Errors
    /// If the file is missing, a folder, unreadable, broken, or not what its extension says.
    pub fn read(path: &Path) -> Result<Self> {
        Bundle::open(path)?.read()
    }
}

/// Reads a config: a JSON object of settings, or any recorded trace, which then comes whole.
///
/// # Errors
/// As [`Record::read`], and for unknown keys and wrong types with their line and column.
pub fn read_config(path: &Path) -> Result<Record> {
    let is_json = extension(path).as_deref() == Some("json");
    let record = if is_json { json::read_config(path)? } else { Record::read(path)? };
    if record.config.is_none() {
        let fix = "give a JSON file of settings, or a trace written with -o";
        return Err(Error::file(path, "holds no config", fix));
    }
    Ok(record)
}
