//! Writing the JSON format that [`super::json`] describes.

use std::fs::File;
use std::io::{self, BufWriter, Write};

use candle_core::{DType, Tensor, WithDType};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::record::{Entry, FORMAT, Record, VERSION, dtype_name};
use base::error::shown_json;
use program::Numbers;

/// Writes a record to a file.
pub fn write_file(record: &Record, file: &File) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    write(record, &mut writer)?;
    writer.flush()
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
    let Entry { name, formula, axes, tensor, .. } = entry;
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
    let widened = tensor.to_dtype(T::DTYPE).and_then(|tensor| tensor.contiguous());
    let widened = widened.map_err(io::Error::other)?;
    let numbers = Numbers::<T>::of(&widened);
    write_rows(numbers.as_deref().unwrap_or_default(), dims, writer, number)
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
    let mut made = Vec::new();
    for (at, some) in values.chunks(row * rows_at_once * pieces_at_once).enumerate() {
        if row > PIECE {
            writer.write_all(if at > 0 { b", " } else { b"" })?;
            write_rows(some, inner, writer, number)?;
            continue;
        }
        let texts = || {
            let pieces = some.par_chunks(row * rows_at_once);
            let texts = pieces.map(|rows| {
                let mut text = Vec::new();
                append_rows(rows, row, inner, &mut text, number).map(|()| text)
            });
            texts.collect::<io::Result<Vec<_>>>()
        };
        // What is made is written while more of it is made.
        let mut next = Ok(Vec::new());
        rayon::in_place_scope(|scope| {
            scope.spawn(|_| next = texts());
            write_texts(&made, at > 1, writer)
        })?;
        made = next?;
    }
    write_texts(&made, values.len() > row * rows_at_once * pieces_at_once, writer)?;
    writer.write_all(b"]")
}

/// Writes rows one behind the other, with a comma before the first one if others stand there.
fn write_texts(texts: &[Vec<u8>], follow: bool, writer: &mut dyn Write) -> io::Result<()> {
    for (at, text) in texts.iter().enumerate() {
        writer.write_all(if follow || at > 0 { b", " } else { b"" })?;
        writer.write_all(text)?;
    }
    Ok(())
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
    use super::super::array::Array;
    use super::*;
    use candle_core::Device;

    fn written(tensor: Tensor) -> String {
        let entry = Entry { name: "x".into(), formula: None, axes: None, tensor, called: None };
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
