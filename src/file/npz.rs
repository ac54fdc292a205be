//! numpy's npz format, a zip archive of npy files: arrays by step name, and the config as a text that holds JSON.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::archive::Archive;
use super::bundle::{Bundle, Tensors};
use super::element::{self, DAMAGED, Fault, written_as};
use super::input::{Input, NAMED_WRONGLY};
use super::npy::{self, Header};
use super::record::Record;
use super::text;
use base::error::{Error, Result};
use config::Settings;

/// The array that holds the config.
const CONFIG: &str = "config";
/// A config is a few hundred characters.
const MAX_CONFIG: usize = 1 << 20;

struct Npz {
    path: PathBuf,
    archive: Archive,
    arrays: Vec<Array>,
}

struct Array {
    name: String,
    member: usize,
    header: Header,
}

impl Tensors for Npz {
    fn read(&self, at: usize) -> Result<Tensor> {
        let Array { name, member, header } = &self.arrays[at];
        let fail = |fault: Fault| fault.of(&self.path, name);
        header.element.clone().map_err(fail)?;
        let length = header.data_length().map_err(fail)?;
        let read = |bytes: &mut dyn Read| header.tensor(bytes);
        let tensor = self.archive.read(*member, header.length, length, read);
        tensor.map_err(|unread| unread.of(&self.path, name))
    }
}

/// Opens an npz file. What is no array in it is passed over, as numpy does.
pub fn open(input: Input) -> Result<Bundle> {
    let path = &input.path().to_owned();
    if input.start(2)? != b"PK" {
        let what = tr!("is not an npz archive, though its name says so");
        return Err(Error::file(path, what, NAMED_WRONGLY));
    }
    let mut archive = Archive::open(input)?;
    let (mut config, mut arrays, mut infos) = (None, Vec::new(), Vec::new());
    for at in 0..archive.members().len() {
        let member = &archive.members()[at];
        let Some(name) = member.name.strip_suffix(".npy").map(str::to_owned) else { continue };
        let size = member.size;
        let fail = |fault: Fault| fault.of(path, &name);
        let mut reader = archive.reader(at)?;
        let header = Header::read(&mut reader).map_err(fail)?;
        drop(reader);
        if let Some(characters) = header.text.filter(|_| name == CONFIG) {
            config = Some(read_config(path, &archive, at, &header, characters)?);
            continue;
        }
        let needed = header.data_length().map_err(fail)?;
        let there = size.saturating_sub(header.length);
        if header.element.is_ok() && needed != there {
            let what =
                tr!("its header says {needed} bytes of data, and it holds {there}", needed, there);
            return Err(fail(Fault::new(what, DAMAGED)));
        }
        infos.push(header.info(name.clone()));
        arrays.push(Array { name, member: at, header });
    }
    let npz = Npz { path: path.to_owned(), archive, arrays };
    Ok(Bundle::new(path, config, infos, Box::new(npz)))
}

fn read_config(
    path: &Path,
    archive: &Archive,
    member: usize,
    header: &Header,
    characters: usize,
) -> Result<Settings> {
    if characters > MAX_CONFIG {
        let what = tr!("its config says that it is {characters} characters long", characters);
        return Err(Error::file(path, what, DAMAGED));
    }
    let bytes = archive.range(member, header.length, 4 * characters as u64)?;
    let text = header.decode_text(&bytes);
    let text = text.ok_or_else(|| Error::file(path, "its config is not text", DAMAGED))?;
    text::parse_metadata(path, &text)
}

/// Writes a record to a file. numpy reads it without pickle.
pub fn write(record: &Record, file: &File) -> io::Result<()> {
    let mut zip = ZipWriter::new(Quiet { inner: BufWriter::new(file), at: 0, failed: false });
    for entry in &record.entries {
        // NumPy itself has no bf16, and f32 holds all of its numbers.
        let widened = match entry.tensor.dtype() {
            DType::BF16 => entry.tensor.to_dtype(DType::F32).map_err(io::Error::other)?,
            _ => entry.tensor.clone(),
        };
        let element = written_as(widened.dtype());
        let header = npy::header(&element.in_numpy(), widened.dims());
        let size = widened.elem_count().saturating_mul(element.size());
        start(&mut zip, &entry.name, &header, size)?;
        element::write(&widened, &mut zip)?;
    }
    if let Some(settings) = &record.config {
        let text = settings.to_json().to_string();
        let characters: Vec<u8> =
            text.chars().flat_map(|character| u32::from(character).to_le_bytes()).collect();
        let header = npy::header(&format!("<U{}", characters.len() / 4), &[]);
        start(&mut zip, CONFIG, &header, characters.len())?;
        zip.write_all(&characters)?;
    }
    zip.finish().map_err(of_the_file)?.flush()
}

/// Starts an array of the archive, behind whose header so many bytes will come.
fn start(
    zip: &mut ZipWriter<impl Write + Seek>,
    name: &str,
    header: &[u8],
    size: usize,
) -> io::Result<()> {
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .large_file(u32::try_from(header.len().saturating_add(size)).is_err());
    zip.start_file(format!("{name}.npy"), options).map_err(of_the_file)?;
    zip.write_all(header)
}

/// What the file says where the zip crate hands it on.
fn of_the_file(error: ZipError) -> io::Error {
    if let ZipError::Io(error) = error { error } else { io::Error::other(error) }
}

/// A file that fails once. What the zip crate writes to it later, to end an archive that has been given up, goes nowhere:
/// where it fails again, the crate says so on stderr by itself.
struct Quiet<W> {
    inner: W,
    at: u64,
    failed: bool,
}

impl<W> Quiet<W> {
    fn tried<T>(&mut self, done: io::Result<T>) -> io::Result<T> {
        self.failed |= done.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        done
    }
}

impl<W: Write> Write for Quiet<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = if self.failed { Ok(bytes.len()) } else { self.inner.write(bytes) };
        self.at += written.as_ref().map_or(0, |count| *count as u64);
        self.tried(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = if self.failed { Ok(()) } else { self.inner.flush() };
        self.tried(flushed)
    }
}

impl<W: Seek> Seek for Quiet<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let moved = match to {
            _ if !self.failed => self.inner.seek(to),
            SeekFrom::Start(at) => Ok(at),
            SeekFrom::Current(by) | SeekFrom::End(by) => Ok(self.at.saturating_add_signed(by)),
        };
        self.at = moved.as_ref().map_or(self.at, |at| *at);
        self.tried(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with room for so many bytes.
    struct Disk(usize);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Sizes from 2³² − 1 on stand in a field of zip64, of sort 1, for which the header must have room from the start.
    #[test]
    fn an_array_beyond_32_bits_is_one_of_zip64() {
        let most = usize::try_from(u32::MAX).expect("64 bits");
        // The version of the format that a reader needs: 1.0, or 4.5.
        for (size, version) in [(most - 3, 10), (most - 2, 45), (most, 45)] {
            let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
            start(&mut zip, "x", b"abc", size).expect("starts");
            let bytes = zip.finish().expect("ends").into_inner();
            assert_eq!(&bytes[..4], b"PK\x03\x04");
            assert_eq!(bytes[4], version, "{size}");
        }
    }

    #[test]
    fn what_has_failed_fails_once() {
        let mut file = Quiet { inner: Disk(5), at: 0, failed: false };
        file.write_all(b"1234").expect("there is room");
        let full = file.write_all(b"5678").expect_err("there is no room");
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
        file.write_all(b"9").expect("it goes nowhere");
        file.flush().expect("there is nothing");
        assert_eq!((file.at, file.inner.0), (5, 1));
    }
}
