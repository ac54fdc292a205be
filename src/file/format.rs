//! The table of formats: which file name means which, and what reads and writes it.

use std::fs::File;
use std::io;
use std::path::Path;

use super::bundle::{Bundle, Info, Opener};
use super::growing::Places;
use super::input::{Input, extension, refuse_folder, unreadable};
use super::record::Record;
use super::{gguf, json, json_write, npy, npz, safetensors, torch};
use base::error::{Error, Result, quoted};
use config::Settings;

/// A format of files.
pub struct Format {
    /// The extensions of its files, in lower case.
    extensions: &'static [&'static str],
    /// Opens a file, if the format is one that is read, and those that it names beside it, which the last argument opens.
    open: Option<Open>,
    /// Writes to an empty file, if the format is one that is written.
    ///
    /// Writing and reading keep every bit of every bool, i64, f32 and f64, but in JSON for the sign and payload of a
    /// NaN, and for an i64 from 2⁵³ on, which is refused when it is read;
    /// narrower floats are written as f32.
    write: Option<Writer>,
}

/// What opens a file.
type Open = fn(Input, Opener) -> Result<Bundle>;

/// What writes a file.
#[derive(Clone, Copy)]
pub enum Writer {
    /// From a record of the trace, which can be read back.
    Record(fn(&Record, &File) -> io::Result<()>),
    /// The same, or step by step while the trace is made.
    Steps(fn(&Record, &File) -> io::Result<()>, Begin),
    /// As a page to look at, which is handed over ready.
    Page(Page),
}

/// What writes all of a file but the numbers of its tensors, which have places then.
type Begin = fn(&[Info], Option<&Settings>, &File) -> io::Result<Places>;

/// A kind of page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// For a browser.
    Html,
    /// For notes.
    Markdown,
    /// For slides and papers.
    Latex,
}

/// A format that is read.
const fn read(extensions: &'static [&'static str], open: Open) -> Format {
    Format { extensions, open: Some(open), write: None }
}

/// One that is written as a page.
const fn page(extensions: &'static [&'static str], page: Page) -> Format {
    Format { extensions, open: None, write: Some(Writer::Page(page)) }
}

const FORMATS: &[Format] = &[
    read(&["json"], json::open).and_written(Writer::Record(json_write::write_file)),
    read(&["safetensors"], |input, _| safetensors::open(input))
        .and_written(Writer::Steps(safetensors::write, safetensors::begin)),
    read(&["npz"], |input, _| npz::open(input)).and_written(Writer::Record(npz::write)),
    read(&["npy"], |input, _| npy::open(input)),
    read(&["gguf"], |input, _| gguf::open(input)),
    read(&["pt", "pth", "bin"], |input, _| torch::open(input)),
    page(&["html"], Page::Html),
    page(&["md"], Page::Markdown),
    page(&["tex"], Page::Latex),
];

/// What a file is named for.
#[derive(Clone, Copy, PartialEq)]
enum Use {
    Read,
    Write,
}

impl Format {
    const fn and_written(self, write: Writer) -> Self {
        Self { write: Some(write), ..self }
    }

    fn is_for(&self, wanted: Use) -> bool {
        match wanted {
            Use::Read => self.open.is_some(),
            Use::Write => self.write.is_some(),
        }
    }
}

fn extensions(wanted: Use) -> Vec<&'static str> {
    let formats = FORMATS.iter().filter(|format| format.is_for(wanted));
    formats.flat_map(|format| format.extensions).copied().collect()
}

/// Whether the file's name is that of a recorded trace: of a format that is both written and read.
pub fn is_recorded(path: &Path) -> bool {
    named(path).is_some_and(|format| format.is_for(Use::Read) && format.is_for(Use::Write))
}

/// Whether the file's name is that of a format that is read.
pub fn is_opened(path: &Path) -> bool {
    named(path).is_some_and(|format| format.is_for(Use::Read))
}

fn named(path: &Path) -> Option<&'static Format> {
    let extension = extension(path)?;
    FORMATS.iter().find(|format| format.extensions.contains(&extension.as_str()))
}

/// What the format that a file's name tells has of that use.
fn of_name<T>(path: &Path, wanted: Use, has: fn(&Format) -> Option<T>) -> Result<T> {
    refuse_folder(path)?;
    named(path).and_then(has).ok_or_else(|| unknown(path, wanted))
}

fn unknown(path: &Path, wanted: Use) -> Error {
    let extension = extension(path);
    if wanted == Use::Read && extension.is_none() && !path.exists() {
        if path.to_string_lossy().starts_with('[') {
            let fix = tr!(
                "numbers are read from a file here: write them to a .json file, and give its name"
            );
            return Error::file(path, tr!("is not the name of a file"), fix);
        }
        if let Err(error) = File::open(path) {
            return unreadable(path, &error);
        }
    }
    let is_code = matches!(extension.as_deref(), Some("py" | "ipynb"));
    if wanted == Use::Read && is_code {
        let fix = tr!(
            "save its tensors, by np.savez, torch.save or mha_trace.record, and give that file"
        );
        return Error::file(path, tr!("is code; what is read here are saved tensors"), fix);
    }
    let what = match (&extension, named(path), wanted) {
        (Some(extension), Some(_), Use::Write) => {
            tr!("`.{extension}` is a format that is read, not written", extension)
        }
        (Some(extension), Some(_), Use::Read) => {
            tr!("`.{extension}` is a format that is written, not read", extension)
        }
        (Some(extension), None, _) => {
            tr!("`.{extension}` is not a known format", extension = quoted(extension))
        }
        (None, ..) => tr!("the name has no extension to tell the format").to_owned(),
    };
    let known = extensions(wanted);
    let (last, others) = known.split_last().unwrap_or((&"", &[]));
    Error::file(path, what, tr!("use .{others} or .{last}", others = others.join(", ."), last))
}

/// What writes a file of that name.
pub fn writer(path: &Path) -> Result<Writer> {
    of_name(path, Use::Write, |format| format.write)
}

/// What writes JSON.
pub fn json_writer() -> Writer {
    Writer::Record(json_write::write_file)
}

/// What opens a file of that name.
fn opener(path: &Path) -> Result<Open> {
    of_name(path, Use::Read, |format| format.open)
}

impl Bundle {
    /// Opens a file in the format that its name tells.
    ///
    /// # Errors
    /// If the file is missing, a folder, unreadable, broken, or not what its name says.
    pub fn open(path: &Path) -> Result<Self> {
        opener(path)?(Input::open(path)?, Self::open)
    }

    /// Opens what is in memory as the file of that name would be.
    ///
    /// # Errors
    /// As [`Bundle::open`].
    pub fn from_bytes(name: &Path, bytes: Vec<u8>) -> Result<Self> {
        opener(name)?(Input::of_bytes(name, bytes), Self::open)
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
    // What is not there has no format either.
    let is_absent = named(path).is_none() && !path.exists();
    let is_json = extension(path).as_deref() == Some("json") || is_absent;
    let record = if is_json { json::read_config(path)? } else { Record::read(path)? };
    if record.config.is_none() {
        let fix = tr!("give a JSON file of settings, or a trace written with -o");
        return Err(Error::file(path, "holds no config", fix));
    }
    Ok(record)
}
