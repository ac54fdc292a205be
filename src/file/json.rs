//! The JSON format: `{"format": "mha-trace", "version": 1, "config": {…}, "steps": [{"name", "data", …}, …]}`.
//!
//! Numbers are written as the shortest decimal that reads back to the same value, non-finite ones as the strings
//! "NaN", "Infinity" and "-Infinity". A plain nested array, or an object of them, is read too.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use candle_core::{DType, Tensor, WithDType};
use rayon::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::array::{Array, Kind};
use super::bare_words::quote_bare_words;
use super::bundle::{Bundle, Opener, refuse_beyond_memory};
use super::index;
use super::input::{Input, unreadable};
use super::record::{Entry, FORMAT, Head, Record, Said, VERSION, dtype_name, dtype_named};
use super::setting_text::parse_settings;
use super::text::{Members, Object, not_json, parse, parse_object};
use crate::config::Settings;
use crate::error::{Error, Result, bytes, quoted, shown_json};

/// Opens a trace, a plain array, an object of them, or the index of a checkpoint in several files.
pub fn open(path: &Path, input: Input, opener: Opener) -> Result<Bundle> {
    let text = read_text(path, input)?;
    if !text.trim_start().starts_with('{') {
        let entries = vec![plain(path, String::new(), &parse(path, &text)?)?];
        return Ok(Bundle::of_record(path, Record { config: None, entries }));
    }
    if let Some(record) = trace_at_once(path, &text) {
        return Ok(Bundle::of_record(path, record));
    }
    let head = head(path, &text)?;
    if head.format.is_some() {
        return Ok(Bundle::of_record(path, read_trace(path, &text)?));
    }
    if head.weight_map.is_some_and(|map| map.is_object()) {
        return index::open(path, &text, opener);
    }
    let entries = arrays(path, &text)?.into_iter().map(|(name, array)| plain(path, name, &array));
    let entries = entries.collect::<Result<_>>()?;
    Ok(Bundle::of_record(path, Record { config: None, entries }))
}

/// Writes a record to a file.
pub fn write_file(record: &Record, file: &File) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    write(record, &mut writer)?;
    writer.flush()
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
        return Err(Error::file(path, what, "check that it is the file that was meant"));
    }
    parse(path, &read_text(path, input)?)
}

/// Labels of tokens and configs of models are smaller.
const MAX_STATED: u64 = 16 << 20;

/// A JSON object of settings, or a recorded trace.
pub fn read_config(path: &Path) -> Result<Record> {
    let text = read_text(path, Input::open(path)?)?;
    if text.trim_start().starts_with('[') {
        let fix = tr!("give an object of settings, as {\"heads\": 2}, or a trace written with -o");
        return Err(Error::file(path, "is an array, not a config", fix));
    }
    if head(path, &text)?.format.is_some() {
        return read_trace(path, &text);
    }
    let settings: Settings = parse_settings(path, &text)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    Ok(Record { config: Some(settings.in_folder(folder)), entries: Vec::new() })
}

fn read_text(path: &Path, mut input: Input) -> Result<String> {
    // The text, its twin without bare words, and numbers of eight bytes that take two letters each.
    let needed = u128::from(input.length()).saturating_mul(6);
    let fix = "write it as .safetensors or .npz, or free some memory";
    refuse_beyond_memory(path, needed, fix)?;
    let bytes = input.whole().map_err(|error| unreadable(path, &error))?;
    let text = String::from_utf8(bytes).map_err(|_| not_json(path))?;
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
struct TraceText<D> {
    format: Option<Said>,
    version: Option<Said>,
    config: Option<Object<Settings>>,
    #[serde(default = "Vec::new")]
    steps: Vec<Object<StepText<D>>>,
}

#[derive(Deserialize)]
#[serde(expecting = "an object")]
struct StepText<D> {
    name: String,
    formula: Option<String>,
    axes: Option<Vec<String>>,
    dtype: Option<String>,
    shape: Option<Vec<usize>>,
    data: D,
}

/// The trace in a text, whose arrays are read on all cores. Nothing where the text is something else or something is wrong
/// with it, which reading it in order tells.
fn trace_at_once(path: &Path, text: &str) -> Option<Record> {
    // Other objects are not read through for nothing.
    if !text.contains("\"format\"") {
        return None;
    }
    let Object(trace) = serde_json::from_str::<Object<TraceText<&RawValue>>>(text).ok()?;
    let TraceText { format, version, config, steps } = trace;
    let head = Head { format, version, weight_map: None };
    head.format.as_ref().filter(|_| head.check(path).is_ok())?;
    if twice(&steps).is_some() {
        return None;
    }
    let entries = steps.into_par_iter().map(|Object(step)| {
        let StepText { name, formula, axes, dtype, shape, data } = step;
        let data = serde_json::from_str(data.get()).ok()?;
        entry(path, StepText { name, formula, axes, dtype, shape, data }).ok()
    });
    let entries = entries.collect::<Option<_>>()?;
    Some(Record { config: config.map(|Object(config)| config), entries })
}

fn read_trace(path: &Path, text: &str) -> Result<Record> {
    let TraceText { config, steps, .. } = parse_object(path, text)?;
    if let Some(twice) = twice(&steps) {
        let what = tr!("step \"{twice}\" is there twice", twice = quoted(twice));
        return Err(Error::file(path, what, "keep one of them"));
    }
    let entries = steps.into_iter().map(|Object(step)| entry(path, step)).collect::<Result<_>>()?;
    Ok(Record { config: config.map(|Object(config)| config), entries })
}

/// The name that a second step has as well.
fn twice<D>(steps: &[Object<StepText<D>>]) -> Option<&str> {
    let mut names = HashSet::new();
    let mut all = steps.iter().map(|Object(step)| step.name.as_str());
    all.find(|name| !names.insert(*name))
}

fn entry(path: &Path, step: StepText<Array>) -> Result<Entry> {
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
    let tensor = step.data.tensor(dtype)?;
    Ok(Entry { name: step.name, formula: step.formula, axes: step.axes, tensor })
}

/// The arrays of an object, by name, of which there may be only one of each.
fn arrays(path: &Path, text: &str) -> Result<BTreeMap<String, Array>> {
    let Members(members) = parse::<Members<Array>>(path, text)?;
    let mut arrays = BTreeMap::new();
    for (name, array) in members {
        if arrays.contains_key(&name) {
            let what = tr!("array \"{quoted}\" is there twice", quoted = quoted(&name));
            return Err(Error::file(path, what, "keep one of them"));
        }
        arrays.insert(name, array);
    }
    Ok(arrays)
}

/// An array that stands alone, without a dtype: integers stay integers, to be told from a float mask.
fn plain(path: &Path, name: String, array: &Array) -> Result<Entry> {
    let dtype = match array.kind {
        Kind::Bool => DType::U8,
        Kind::Integer => DType::I64,
        Kind::Float => DType::F64,
    };
    let tensor = array.tensor(dtype).map_err(|error| {
        Error::file(path, Error::from(error).to_string(), "give a nested array of numbers")
    })?;
    Ok(Entry { name, formula: None, axes: None, tensor })
}

/// Writes a record as JSON, one line per step.
///
/// # Errors
/// If the writer fails, or candle cannot read a tensor.
pub fn write(record: &Record, writer: &mut dyn Write) -> io::Result<()> {
    write!(writer, "{{\n\"format\": \"{FORMAT}\",\n\"version\": {VERSION},\n")?;
    if let Some(settings) = &record.config {
        writeln!(writer, "\"config\": {},", shown_json(&settings.to_json().to_string()))?;
    }
    write!(writer, "\"steps\": [")?;
    for (at, entry) in record.entries.iter().enumerate() {
        writer.write_all(if at == 0 { b"\n" } else { b",\n" })?;
        write_entry(entry, writer)?;
    }
    writeln!(writer, "\n]\n}}")
}

fn write_entry(entry: &Entry, writer: &mut dyn Write) -> io::Result<()> {
    let Entry { name, formula, axes, tensor } = entry;
    // Names and labels may come from elsewhere, and people look at files.
    let text = |value: Value| shown_json(&value.to_string()).into_owned();
    write!(writer, "{{\"name\": {}", text(json!(name)))?;
    if let Some(formula) = formula {
        write!(writer, ", \"formula\": {}", text(json!(formula)))?;
    }
    if let Some(axes) = axes {
        write!(writer, ", \"axes\": {}", text(json!(axes)))?;
    }
    let dtype = dtype_name(tensor.dtype());
    write!(writer, ", \"dtype\": \"{dtype}\", \"shape\": {}, \"data\": ", json!(tensor.dims()))?;
    let dims = tensor.dims();
    match tensor.dtype() {
        DType::U8 => write_data::<u8>(tensor, dims, writer, |bit, text| {
            text.extend_from_slice(if bit == 0 { b"false" } else { b"true" });
            Ok(())
        }),
        DType::I64 => write_data::<i64>(tensor, dims, writer, |value, text| {
            Ok(serde_json::to_writer(text, &value)?)
        }),
        DType::F64 => write_data::<f64>(tensor, dims, writer, |value, text| match value {
            value if value.is_finite() => Ok(serde_json::to_writer(text, &value)?),
            value => non_finite(value, text),
        }),
        _ => write_data::<f32>(tensor, dims, writer, |value, text| match value {
            value if value.is_finite() => Ok(serde_json::to_writer(text, &value)?),
            value => non_finite(value.into(), text),
        }),
    }?;
    writer.write_all(b"}")
}

fn non_finite(value: f64, text: &mut Vec<u8>) -> io::Result<()> {
    text.write_all(match value {
        f64::INFINITY => b"\"Infinity\"",
        f64::NEG_INFINITY => b"\"-Infinity\"",
        _ => b"\"NaN\"",
    })
}

type WriteNumber<T> = fn(T, &mut Vec<u8>) -> io::Result<()>;

fn write_data<T: WithDType + Sync>(
    tensor: &Tensor,
    dims: &[usize],
    writer: &mut dyn Write,
    number: WriteNumber<T>,
) -> io::Result<()> {
    let widened = tensor.to_dtype(T::DTYPE).and_then(|tensor| tensor.flatten_all()?.to_vec1::<T>());
    write_rows(&widened.map_err(io::Error::other)?, dims, writer, number)
}

/// So many numbers are put into words by one thread at a time.
const PIECE: usize = 1 << 16;

/// Numbers as nested arrays, many on all cores.
fn write_rows<T: Copy + Sync>(
    values: &[T],
    dims: &[usize],
    writer: &mut dyn Write,
    number: WriteNumber<T>,
) -> io::Result<()> {
    let row = row_length(values, dims);
    let Some((_, inner)) = dims.split_first().filter(|_| values.len() > PIECE) else {
        let mut text = Vec::new();
        append(values, dims, &mut text, number)?;
        return writer.write_all(&text);
    };
    writer.write_all(b"[")?;
    let rows_at_once = (PIECE / row).max(1);
    let pieces_at_once = if row > PIECE { 1 } else { 4 * rayon::current_num_threads() };
    for (at, some) in values.chunks(row * rows_at_once * pieces_at_once).enumerate() {
        if at > 0 {
            writer.write_all(b", ")?;
        }
        if row > PIECE {
            write_rows(some, inner, writer, number)?;
            continue;
        }
        let pieces = some.par_chunks(row * rows_at_once);
        let texts = pieces.map(|rows| {
            let mut text = Vec::new();
            append_rows(rows, row, inner, &mut text, number).map(|()| text)
        });
        for (at, text) in texts.collect::<io::Result<Vec<_>>>()?.into_iter().enumerate() {
            writer.write_all(if at > 0 { b", " } else { b"" })?;
            writer.write_all(&text)?;
        }
    }
    writer.write_all(b"]")
}

/// How many numbers stand in a row of the first axis.
fn row_length<T>(values: &[T], dims: &[usize]) -> usize {
    (values.len() / dims.first().copied().unwrap_or(1).max(1)).max(1)
}

/// Numbers as nested arrays, one behind the other in `text`.
fn append<T: Copy>(
    values: &[T],
    dims: &[usize],
    text: &mut Vec<u8>,
    number: WriteNumber<T>,
) -> io::Result<()> {
    let Some((_, inner)) = dims.split_first() else {
        return values.iter().try_for_each(|value| number(*value, text));
    };
    text.push(b'[');
    append_rows(values, row_length(values, dims), inner, text, number)?;
    text.push(b']');
    Ok(())
}

fn append_rows<T: Copy>(
    values: &[T],
    row: usize,
    inner: &[usize],
    text: &mut Vec<u8>,
    number: WriteNumber<T>,
) -> io::Result<()> {
    for (at, row) in values.chunks(row).enumerate() {
        if at > 0 {
            text.extend_from_slice(b", ");
        }
        append(row, inner, text, number)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn written(tensor: Tensor) -> String {
        let entry = Entry { name: "x".into(), formula: None, axes: None, tensor };
        let mut bytes = Vec::new();
        write_entry(&entry, &mut bytes).expect("written");
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn numbers_are_shortest_and_non_finite_ones_are_strings() {
        let values = [0.1_f32, -0.0, 1e9, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        let tensor = Tensor::from_slice(&values, (2, 3), &Device::Cpu).expect("tensor");
        assert_eq!(
            written(tensor),
            r#"{"name": "x", "dtype": "f32", "shape": [2,3], "data": [[0.1, -0.0, 1000000000.0], ["NaN", "Infinity", "-Infinity"]]}"#
        );
    }

    /// Many numbers are written piece by piece, whatever their shape is.
    #[test]
    fn many_numbers_are_nested_as_few_are() {
        for dims in [&[300_000][..], &[100_000, 3], &[2, 3, 50_000], &[3, 100_000], &[70, 1, 5000]]
        {
            let count = dims.iter().product::<usize>();
            let values: Vec<i64> = (0..).take(count).collect();
            let (mut whole, mut text) = (Vec::new(), Vec::new());
            let number: WriteNumber<i64> = |value, text| Ok(serde_json::to_writer(text, &value)?);
            write_rows(&values, dims, &mut whole, number).expect("written");
            append(&values, dims, &mut text, number).expect("written");
            assert!(whole == text, "{dims:?}");
            let read: Array = serde_json::from_slice(&whole).expect("reads");
            assert_eq!(read.shape, dims);
        }
    }

    #[test]
    fn booleans_are_booleans() {
        let tensor = Tensor::from_slice(&[0_u8, 1], 2, &Device::Cpu).expect("tensor");
        assert!(
            written(tensor).ends_with(r#""dtype": "bool", "shape": [2], "data": [false, true]}"#)
        );
    }
}
