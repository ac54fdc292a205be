//! How one number came about: the terms that an operation adds up, and their factors.

use candle_core::{DType, IndexOp, Tensor};

use super::cell::Cell;
use super::name::Name;
use base::error::Result;

/// A factor of a term.
#[derive(Debug, Clone, PartialEq)]
pub struct Factor {
    /// What it is: `q_heads[0,1,2,0]`, `1 / √4`.
    pub name: String,
    /// Its value.
    pub value: f64,
    /// The cell that it is read from, or made of.
    pub cell: Option<Cell>,
}

/// A product of factors. A number is the sum of its terms.
#[derive(Debug, Clone, PartialEq)]
pub struct Term(pub Vec<Factor>);

impl Term {
    /// The product.
    pub fn value(&self) -> f64 {
        self.0.iter().map(|factor| factor.value).product()
    }
}

impl Factor {
    /// The same number, made of what stands in a cell.
    pub(super) fn made_of(self, other: &Self) -> Self {
        Self { cell: other.cell.clone(), ..self }
    }
}

pub(super) fn factor(name: impl Into<String>, value: f64) -> Factor {
    Factor { name: name.into(), value, cell: None }
}

/// Why a key is blocked for a query. Places are counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The key lies after the query.
    LaterKey {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
    },
    /// The key lies before the query, in a mask that is the wrong way round.
    EarlierKey {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
    },
    /// The key lies before the query's window.
    BeforeWindow {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
        /// How many keys a query sees.
        window: usize,
    },
    /// The key lies too far from the query, on either side.
    OutsideWindow {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
        /// How many positions away is too far.
        window: usize,
    },
    /// The key is of another chunk.
    OtherChunk {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
        /// How many keys a chunk has.
        chunk: usize,
    },
    /// The key was not chosen for the query.
    NotChosen {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
    },
    /// The key is a token of a tree that the query does not come from.
    OtherBranch {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
    },
    /// The batch item has fewer tokens.
    BeyondLength {
        /// The batch item.
        item: usize,
        /// The key.
        key: usize,
        /// How many tokens the item has.
        length: usize,
    },
    /// The item's key mask has a 0 there.
    BlockedKey {
        /// The batch item.
        item: usize,
        /// The key.
        key: usize,
    },
    /// The key is of another document of a packed row.
    OtherDocument {
        /// The query row.
        query: usize,
        /// The key.
        key: usize,
    },
    /// A mask that came from outside says so.
    Given(Name),
    /// A float mask or bias that came from outside is −∞ there.
    Infinite(Name),
}

/// The index that is broadcast to `cell` in a tensor of this shape.
pub fn broadcast(cell: &[usize], shape: &[usize]) -> Vec<usize> {
    let skipped = cell.len().saturating_sub(shape.len());
    let own = cell.iter().skip(skipped).zip(shape);
    own.map(|(at, size)| if *size == 1 { 0 } else { *at }).collect()
}

/// A tensor that an operation reads, and its name.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    /// The step's name.
    pub name: Name,
    /// Its value.
    pub tensor: &'a Tensor,
}

impl Value<'_> {
    /// The number in a cell, and what it is called.
    ///
    /// # Errors
    /// If there is no such cell.
    pub fn at(&self, index: &[usize]) -> Result<Factor> {
        let mut value = self.tensor.clone();
        for at in index {
            value = value.i(*at)?;
        }
        Ok(self.named(index, value.to_dtype(DType::F64)?.to_scalar()?))
    }

    /// The number that stands in a cell, under its name.
    pub(super) fn named(&self, index: &[usize], value: f64) -> Factor {
        let cell = Cell { step: self.name.to_string(), index: index.to_vec() };
        Factor { name: cell.to_string(), value, cell: Some(cell) }
    }

    /// The cell that is broadcast to `index`.
    ///
    /// # Errors
    /// If there is no such cell.
    pub fn broadcast_at(&self, index: &[usize]) -> Result<Factor> {
        self.at(&broadcast(index, self.tensor.dims()))
    }

    /// The values along the last axis.
    ///
    /// # Errors
    /// If there is no such row.
    pub fn row(&self, index: &[usize]) -> Result<Vec<f64>> {
        let mut row = self.tensor.clone();
        for at in index {
            row = row.i(*at)?;
        }
        Ok(row.to_dtype(DType::F64)?.to_vec1()?)
    }
}
