//! Tiles whose rows and columns are read in another layout than they were written in.

use candle_core::Tensor;

use super::along::taken;
use crate::axis::Dim;
use crate::part::Part;

/// How the numbers of a tile change places within its rows and columns: the last two axes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fragment {
    /// Each block of so many rows and columns is transposed.
    Transposed(usize),
    /// Row r has chunk c ^ (r / `rows` % `count`) of so many features in the place of its chunk c.
    Swizzled {
        /// How many features a chunk has.
        chunk: usize,
        /// How many rows have their chunks in the same order.
        rows: usize,
        /// How many orders there are, a power of two.
        count: usize,
    },
}

impl Fragment {
    /// Where what is read for a cell stands.
    fn from(self, row: usize, column: usize) -> (usize, usize) {
        match self {
            Self::Transposed(size) => {
                (row / size * size + column % size, column / size * size + row % size)
            }
            Self::Swizzled { chunk, rows, count } => {
                let other = (column / chunk) ^ (row / rows % count);
                (row, other * chunk + column % chunk)
            }
        }
    }

    /// What is read. Behind the last row are zeros.
    pub(super) fn value(self, x: &Tensor) -> candle_core::Result<Tensor> {
        let shape = x.dims().to_vec();
        let [.., rows, columns] = shape[..] else { return Ok(x.clone()) };
        let cells = rows * columns;
        let flat = x.contiguous()?.reshape((x.elem_count() / cells.max(1), cells))?;
        let flat = Tensor::cat(&[&flat, &flat.narrow(1, 0, 1)?.zeros_like()?], 1)?;
        let place = |at: usize| {
            let (row, column) = self.from(at / columns, at % columns);
            if row < rows { row * columns + column } else { cells }
        };
        taken(&flat, 1, &(0..cells).map(place).collect::<Vec<_>>())?.reshape(shape)
    }

    pub(super) fn fits(self, x: &[Dim]) -> bool {
        let [.., (_, rows), (_, columns)] = x else { return false };
        let (is_usable, wide) = match self {
            Self::Transposed(size) => (size > 0, size),
            Self::Swizzled { chunk, rows, count } => {
                (rows > 0 && count.is_power_of_two(), chunk.saturating_mul(count))
            }
        };
        is_usable && *rows > 0 && wide > 0 && *columns > 0 && columns.is_multiple_of(wide)
    }

    /// The same for a part of the rows; nothing where that depends on the rest.
    pub(super) fn narrowed(self, part: Part) -> Option<Self> {
        let (first, count) = part.places();
        let is_whole = match self {
            Self::Transposed(size) => first.is_multiple_of(size) && count.is_multiple_of(size),
            Self::Swizzled { rows, count, .. } => first.is_multiple_of(rows * count),
        };
        is_whole.then_some(self)
    }
}
