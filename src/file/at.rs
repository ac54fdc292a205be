//! How do several threads read or write bytes at places of a file at once?

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::input::unreadable;
use base::error::Result;

/// The numbers of a tensor of f32, which stand in a file one behind the other, little endian.
pub struct InFile {
    pub(super) path: PathBuf,
    pub(super) file: Arc<File>,
    /// The place of the first byte.
    pub(super) start: u64,
}

impl InFile {
    /// Reads the bytes of numbers, from the one at `first` on.
    ///
    /// # Errors
    /// If the file has become unreadable, or shorter.
    pub fn read(&self, first: usize, bytes: &mut [u8]) -> Result<()> {
        let place = self.start + first as u64 * size_of::<f32>() as u64;
        read_at(&self.file, bytes, place).map_err(|error| unreadable(&self.path, &error))
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, place)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut place: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, place)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                bytes = bytes.get_mut(read..).unwrap_or_default();
                place += read as u64;
            }
        }
    }
    Ok(())
}

/// Writes all bytes from a place on.
#[cfg(unix)]
pub fn write_at(file: &File, bytes: &[u8], place: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, place)
}

/// Writes all bytes from a place on.
#[cfg(windows)]
pub fn write_at(file: &File, mut bytes: &[u8], mut place: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, place)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                bytes = bytes.get(written..).unwrap_or_default();
                place += written as u64;
            }
        }
    }
    Ok(())
}
