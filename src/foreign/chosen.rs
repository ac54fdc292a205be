//! What do the readers of chosen keys need of a file?

use candle_core::Tensor;

use super::names::{is_called, meanings};
use super::numbers::numbers;
use base::error::Result;
use config::QkvFormat;
use file::{Entry, Record};
use program::{Name, Selection, whole};

const BLOCK_SIZES: &[&str] = &[
    "block_size",
    "sparse_block_size",
    "kv_block_size",
    "sel_block_size",
    "selected_block_size",
    "selection_block_size",
];

/// A selection, the tensors that say it, and how they were read.
pub struct Found {
    pub selection: Selection,
    pub names: Vec<String>,
    pub how: String,
}

/// How many queries and keys a file has, and in which order their axes stand.
pub struct Sizes {
    pub queries: usize,
    pub keys: usize,
    pub heads_first: bool,
}

impl Sizes {
    /// Those of a file whose axes stand in this order, if it has queries and keys.
    pub fn of(record: &Record, format: QkvFormat) -> Option<Self> {
        let queries = dims_of(record, [Name::Q, Name::QHeads])?;
        let keys = dims_of(record, [Name::K, Name::KHeads])?;
        let heads_first = format == QkvFormat::Bhsd;
        let tokens = |dims: &[usize]| match *dims {
            [_, _, tokens, _] if heads_first => Some(tokens),
            [tokens, _, _, _] if format == QkvFormat::Sbhd => Some(tokens),
            [tokens, _, _] if format == QkvFormat::Thd => Some(tokens),
            [_, tokens, _, _] | [_, tokens] | [_, tokens, _] => Some(tokens),
            _ => None,
        };
        Some(Self { queries: tokens(queries)?, keys: tokens(keys)?, heads_first })
    }
}

/// A file with the queries and keys that chosen keys are to fit.
pub struct File<'r> {
    pub record: &'r Record,
    pub sizes: Sizes,
}

impl<'r> File<'r> {
    /// The first tensor of one of these names.
    pub fn called(&self, names: &[&str]) -> Option<&'r Entry> {
        self.record.entries.iter().find(|entry| is_called(&entry.name, names))
    }

    /// Whole numbers of a tensor of one of these names.
    pub fn whole(&self, names: &[&str]) -> Result<Option<(&'r Entry, Vec<i64>)>> {
        let Some(entry) = self.called(names) else { return Ok(None) };
        Ok(whole_numbers(&entry.tensor)?.map(|numbers| (entry, numbers)))
    }

    /// How many keys, or queries and keys, a block has.
    pub fn block_size(&self) -> Result<Option<(&'r Entry, [usize; 2])>> {
        let Some((entry, sizes)) = self.whole(BLOCK_SIZES)? else { return Ok(None) };
        Ok(match sizes.as_slice() {
            [keys] => size(*keys).map(|size| (entry, [size, size])),
            [queries, keys] => {
                size(*queries).zip(size(*keys)).map(|(queries, keys)| (entry, [queries, keys]))
            }
            _ => None,
        })
    }
}

/// The sizes of the first tensor that is one of these steps.
pub fn dims_of(record: &Record, names: [Name; 2]) -> Option<&[usize]> {
    let is_it =
        |entry: &&Entry| meanings(&entry.name).first().is_some_and(|name| names.contains(name));
    record.entries.iter().find(is_it).map(|entry| entry.tensor.dims())
}

/// A number of keys or queries, of which there is one at least.
pub fn size(number: i64) -> Option<usize> {
    usize::try_from(number).ok().filter(|size| *size > 0)
}

/// Whole numbers, −1 and less too.
pub fn whole_numbers(tensor: &Tensor) -> Result<Option<Vec<i64>>> {
    let number = |number: f64| {
        let size = i64::try_from(whole(number.abs())?).ok()?;
        Some(if number < 0.0 { -size } else { size })
    };
    Ok(numbers(tensor)?.into_iter().map(number).collect())
}
