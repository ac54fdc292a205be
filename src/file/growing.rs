//! How are tensors written to a file as they are made, in any order?

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;

use candle_core::{DType, Tensor};

use super::at::write_at;
use super::element::{self, written_as};
use super::input::unwritable;
use base::error::Result;

/// Where the numbers of each tensor belong.
pub type Places = HashMap<String, Place>;

/// Where the numbers of a tensor belong.
pub struct Place {
    /// The first byte.
    pub start: u64,
    /// The type that they are made in.
    pub dtype: DType,
    /// How many there are.
    pub count: usize,
}

/// A file that is being written.
pub struct Growing<'a> {
    pub(super) path: &'a Path,
    pub(super) file: &'a File,
    pub(super) places: Places,
}

impl Growing<'_> {
    /// Writes a tensor.
    ///
    /// # Errors
    /// If the disk is full, or the file has become unwritable.
    pub fn whole(&self, name: &str, value: &Tensor) -> Result<()> {
        let mut bytes = self.at(name, 0, value.dtype(), value.elem_count())?;
        element::write(value, &mut bytes).map_err(|error| unwritable(self.path, &error))
    }

    /// Writes some numbers of a tensor of f32, from the one at `first` on.
    ///
    /// # Errors
    /// As [`Growing::whole`].
    pub fn part(&self, name: &str, first: usize, numbers: &[f32]) -> Result<()> {
        let bytes = element::bytes_of(numbers, f32::to_le_bytes);
        let at = self.at(name, first, DType::F32, numbers.len())?;
        write_at(at.file, &bytes, at.next).map_err(|error| unwritable(self.path, &error))
    }

    /// The place of a number of a tensor of that type; so many are written from there on.
    fn at(&self, name: &str, first: usize, dtype: DType, count: usize) -> Result<Onward<'_>> {
        let place = self.places.get(name).filter(|place| {
            written_as(place.dtype) == written_as(dtype)
                && first.checked_add(count).is_some_and(|end| end <= place.count)
        });
        let Some(place) = place else {
            let lacking = io::Error::other(tr!("it has no place for {name}", name).to_owned());
            return Err(unwritable(self.path, &lacking));
        };
        let before = (first * written_as(dtype).size()) as u64;
        Ok(Onward { file: self.file, next: place.start + before })
    }
}

/// Writes to a file from a place on.
struct Onward<'a> {
    file: &'a File,
    next: u64,
}

impl io::Write for Onward<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write_at(self.file, bytes, self.next)?;
        self.next += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
