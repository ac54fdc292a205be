//! The JSON format: `{"format": "mha-trace", "version": 1, "config": {…}, "steps": [{"name", "data", …}, …]}`.
//!
//! Numbers are written as the shortest decimal that reads back to the same value, non-finite ones as the strings
//! "NaN", "Infinity" and "-Infinity". A plain nested array, or an object of them, is read too.

use std::borrow::Cow;
use std::collections::HashSet;
use std::io::{BufReader, Seek};
use std::path::Path;

use candle_core::DType;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::array::{Array, Kind};
use super::bare_words::quote_bare_words;
use super::bundle::{Bundle, Opener, refuse_beyond_memory};
use super::index;
use super::input::Input;
use super::json_step::StepText;
use super::record::{Entry, Head, Record, Said, dtype_named};
use super::setting_text::parse_settings;
use super::text::{Members, Object, not_json, parse, parse_object};
use base::error::{Error, Result, bytes, quoted};
use base::memory::lacking;
use config::Settings;

/// Opens a trace, a plain array, an object of them, or the index of a checkpoint in several files.
pub fn open(mut input: Input, opener: Opener) -> Result<Bundle> {
    let streamed = streamed(&mut input);
    let path = input.path();
    if let Some(record) = streamed {
        return Ok(Bundle::of_record(path, record));
    }
    let text = read_text(&input)?;
    if !text.trim_start().starts_with('{') {
        let entries = vec![plain(path, String::new(), parse(path, &text)?)?];
        return Ok(Bundle::of_record(path, Record { config: None, entries }));
    }
    let head = head(path, &text)?;
    if head.format.is_some() {
        return Ok(Bundle::of_record(path, read_trace(path, &text)?));
    }
    if head.weight_map.is_some_and(|map| map.is_object()) {
        return index::open(path, &text, opener);
    }
    let Members(arrays) = parse(path, &text)?;
    let entries = plains(path, arrays)?;
    Ok(Bundle::of_record(path, Record { config: None, entries }))
}

/// A JSON file that holds such a value.
///
/// # Errors
/// If it cannot be read, or holds something else.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let input = Input::open(path)?;
    if input.length() > MAX_STATED {
        let what = tr!(
            "is {size}, too large for what it should state",
            size = bytes(input.length().into())
        );
        return Err(Error::file(path, what, "check that this is the right file"));
    }
    parse(path, &read_text(&input)?)
}

/// Labels of tokens and configs of models are smaller.
const MAX_STATED: u64 = 16 << 20;

/// A JSON object of settings, or a recorded trace.
pub fn read_config(path: &Path) -> Result<Record> {
    let text = read_text(&Input::open(path)?)?;
    if text.trim_start().starts_with('[') {
        let fix =
            tr!("give an object of settings, such as {\"heads\": 2}, or a trace written with -o");
        return Err(Error::file(path, "is an array, not a config", fix));
    }
    if head(path, &text)?.format.is_some() {
        return read_trace(path, &text);
    }
    let settings: Settings = parse_settings(path, &text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(Record { config: Some(settings.in_folder(folder)), entries: Vec::new() })
}

fn read_text(input: &Input) -> Result<String> {
    let path = input.path();
    // The text, its twin without bare words, and numbers of eight bytes that take two letters each.
    let needed = u128::from(input.length()).saturating_mul(6);
    let fix = "write it as .safetensors or .npz, or free some memory";
    refuse_beyond_memory(path, needed, fix)?;
    let text = String::from_utf8(input.whole()?).map_err(|_| not_json(path))?;
    let marked = text.strip_prefix('\u{feff}');
    match (quote_bare_words(marked.unwrap_or(&text)), marked) {
        (Cow::Owned(quoted), _) => Ok(quoted),
        (Cow::Borrowed(rest), Some(_)) => Ok(rest.to_owned()),
        // The largest texts are not copied.
        (Cow::Borrowed(_), None) => Ok(text),
    }
}

/// What the object says that it is, of a version that is understood here.
fn head(path: &Path, text: &str) -> Result<Head> {
    let head: Head = parse_object(path, text)?;
    head.check(path)?;
    Ok(head)
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct TraceText {
    format: Option<Said>,
    version: Option<Said>,
    config: Option<Object<Settings>>,
    #[serde(default = "Vec::new")]
    steps: Vec<StepText>,
}

/// The trace or the arrays in a file, of whose text no more than a piece is in memory. Nothing where the file is something else
/// or something is wrong with it, which reading the text as a whole tells.
fn streamed(input: &mut Input) -> Option<Record> {
    /// A trace says what it is within so many bytes, if it is read like this.
    const START: u64 = 256;
    const PIECE: usize = 1 << 16;
    let start = input.start(START).ok()?;
    let start = String::from_utf8_lossy(&start);
    // A digit and a comma become eight bytes at most, of which there are half as many again while there is made room for more.
    let needed = u128::from(input.length()).saturating_mul(6);
    if lacking(needed).is_some() {
        return None;
    }
    let path = input.path().to_owned();
    input.rewind().ok()?;
    // Single bytes are asked for.
    let bytes = BufReader::with_capacity(PIECE, input);
    if start.contains("\"format\"") {
        let Object(trace) = serde_json::from_reader::<_, Object<TraceText>>(bytes).ok()?;
        let head = Head { format: trace.format, version: trace.version, weight_map: None };
        head.format.as_ref().filter(|_| head.check(&path).is_ok())?;
        return record(&path, trace.config, trace.steps).ok();
    }
    let entries = if start.trim_start().starts_with('{') {
        let Members(arrays) = serde_json::from_reader(bytes).ok()?;
        let is_head = |name: &str| ["format", "version", "weight_map"].contains(&name);
        plains(&path, arrays).ok().filter(|all| all.iter().all(|entry| !is_head(&entry.name)))?
    } else {
        vec![plain(&path, String::new(), serde_json::from_reader(bytes).ok()?).ok()?]
    };
    Some(Record { config: None, entries })
}

fn read_trace(path: &Path, text: &str) -> Result<Record> {
    let TraceText { config, steps, .. } = parse_object(path, text)?;
    record(path, config, steps)
}

fn record(path: &Path, config: Option<Object<Settings>>, steps: Vec<StepText>) -> Result<Record> {
    let mut names = HashSet::new();
    if let Some(twice) = steps.iter().find(|step| !names.insert(&step.name)) {
        let what = tr!("step \"{twice}\" is there twice", twice = quoted(&twice.name));
        return Err(Error::file(path, what, "keep one of them"));
    }
    let entries = steps.into_iter().map(|step| entry(path, step)).collect::<Result<_>>()?;
    Ok(Record { config: config.map(|Object(config)| config), entries })
}

fn entry(path: &Path, step: StepText) -> Result<Entry> {
    let refuse = |what: String, fix: &str| {
        Err(Error::file(path, tr!("step \"{step}\": {what}", step = quoted(&step.name), what), fix))
    };
    if let Some(shape) = &step.shape
        && *shape != step.data.shape
    {
        let what = tr!(
            "its shape says {shape} and its data is {shape_2}",
            shape = format!("{shape:?}"),
            shape_2 = format!("{:?}", step.data.shape)
        );
        return refuse(what, "the file is damaged: write it again");
    }
    let dtype = match (&step.dtype, step.data.kind) {
        (None, Kind::Bool) => DType::U8,
        (None, _) => DType::F32,
        (Some(name), _) => match dtype_named(name) {
            Some(dtype) => dtype,
            None => {
                return refuse(
                    tr!("its dtype \"{quoted}\" is not known", quoted = quoted(name)),
                    "use f32 or f64",
                );
            }
        },
    };
    if let Err(what) = step.data.fits(dtype) {
        return refuse(what, "correct the value, or the dtype");
    }
    let tensor = step.data.into_tensor(dtype)?;
    Ok(Entry { name: step.name, formula: step.formula, axes: step.axes, tensor, called: None })
}

/// The arrays of an object, by name, of which there may be only one of each.
fn plains(path: &Path, mut arrays: Vec<(String, Array)>) -> Result<Vec<Entry>> {
    arrays.sort_by(|(one, _), (next, _)| one.cmp(next));
    let twice = arrays.iter().zip(arrays.iter().skip(1)).find(|(one, next)| one.0 == next.0);
    if let Some(((twice, _), _)) = twice {
        let what = tr!("array \"{quoted}\" is there twice", quoted = quoted(twice));
        return Err(Error::file(path, what, "keep one of them"));
    }
    arrays.into_iter().map(|(name, array)| plain(path, name, array)).collect()
}

/// An array that stands alone, without a dtype: integers stay integers, to be told from a float mask.
fn plain(path: &Path, name: String, array: Array) -> Result<Entry> {
    let dtype = match array.kind {
        Kind::Bool => DType::U8,
        Kind::Integer => DType::I64,
        Kind::Float => DType::F64,
    };
    let tensor = array.into_tensor(dtype).map_err(|error| {
        Error::file(path, Error::from(error).to_string(), "give a nested array of numbers")
    })?;
    Ok(Entry::of(name, tensor))
}
