//! Which cells does a mask have?

use candle_core::{Device, Tensor};

use base::error::Result;

/// Beyond so many cells other masks are not drawn: a run of that size shows its mask in every part of it.
const MOST_CELLS: usize = 1 << 22;

/// The cells of a mask, of every item.
#[derive(Clone)]
pub struct Cells {
    pub blocked: Vec<bool>,
    pub items: usize,
    pub queries: usize,
    pub keys: usize,
}

impl Cells {
    /// Those of which this is true: of an item, a query and a key.
    pub fn of(&self, is_blocked: impl Fn(usize, usize, usize) -> bool) -> Self {
        let mut blocked = Vec::with_capacity(self.blocked.len());
        for item in 0..self.items {
            for query in 0..self.queries {
                blocked.extend((0..self.keys).map(|key| is_blocked(item, query, key)));
            }
        }
        Self { blocked, ..*self }
    }

    pub fn at(&self, item: usize, query: usize, key: usize) -> bool {
        let place = (item * self.queries + query) * self.keys + key;
        self.blocked.get(place).copied().unwrap_or_default()
    }

    /// Of each tile of so many queries and keys how many cells are visible, and how many blocked: of an item, a query and a key.
    pub fn in_tiles(
        &self,
        (m, n): (usize, usize),
    ) -> impl Fn(usize, usize, usize) -> [usize; 2] + use<> {
        let (rows, columns) = (self.queries.div_ceil(m), self.keys.div_ceil(n));
        let mut counts = vec![[0_usize; 2]; self.items * rows * columns];
        let place = move |item: usize, q: usize, k: usize| (item * rows + q / m) * columns + k / n;
        for item in 0..self.items {
            for (q, k) in (0..self.queries).flat_map(|q| (0..self.keys).map(move |k| (q, k))) {
                counts[place(item, q, k)][usize::from(self.at(item, q, k))] += 1;
            }
        }
        move |item, q, k| counts[place(item, q, k)]
    }

    /// The last tile of so many keys that a query of the same tile of queries sees, of an item and a query.
    pub fn last_tiles(&self, size: usize) -> impl Fn(usize, usize) -> Option<usize> {
        let counts = self.in_tiles((size, size));
        let tiles = self.keys.div_ceil(size);
        move |item, q| (0..tiles).rev().find(|tile| counts(item, q, tile * size)[0] > 0)
    }

    /// Behind which key of each item no query sees any.
    pub fn seen_ends(&self) -> Vec<usize> {
        let is_seen = |item: usize, key: usize| (0..self.queries).any(|q| !self.at(item, q, key));
        let last = |item: usize| (0..self.keys).rev().find(|key| is_seen(item, *key));
        (0..self.items).map(|item| last(item).map_or(0, |last| last + 1)).collect()
    }

    /// Whether of each query all cells are hidden that another mask shows, or none.
    pub fn hides_whole_rows(&self, other: &Self) -> bool {
        self.hides_whole(other, self.keys)
    }

    /// The same of each item.
    pub fn hides_whole_items(&self, other: &Self) -> bool {
        self.items > 1 && self.hides_whole(other, self.queries * self.keys)
    }

    fn hides_whole(&self, other: &Self, cells: usize) -> bool {
        let [own, other] = [self, other].map(|mask| mask.blocked.chunks(cells.max(1)));
        let is_whole = |(own, other): (&[bool], &[bool])| {
            let mut seen = own.iter().zip(other).filter(|(_, blocked)| !**blocked);
            let first = seen.next().map(|(own, _)| *own);
            seen.all(|(own, _)| Some(*own) == first)
        };
        own.zip(other).all(is_whole)
    }

    /// A mask's cells, if all heads share it.
    pub fn read(mask: &Tensor, scores: &[usize]) -> Result<Option<Self>> {
        let [items, _, queries, keys] = *scores else { return Ok(None) };
        let cells = items.saturating_mul(queries).saturating_mul(keys);
        let heads = mask.dims().len().checked_sub(3).and_then(|at| mask.dims().get(at));
        if heads.is_some_and(|heads| *heads != 1) || cells > MOST_CELLS {
            return Ok(None);
        }
        let mask = mask.broadcast_as((items, 1, queries, keys)).or_else(|_| {
            mask.broadcast_as((1, 1, queries, keys))?.broadcast_as((items, 1, queries, keys))
        })?;
        let blocked = mask.flatten_all()?.to_vec1::<u8>()?.iter().map(|cell| *cell != 0).collect();
        Ok(Some(Self { blocked, items, queries, keys }))
    }

    pub fn tensor(&self) -> Result<Tensor> {
        let cells: Vec<u8> = self.blocked.iter().map(|blocked| u8::from(*blocked)).collect();
        Ok(Tensor::from_vec(cells, (self.items, 1, self.queries, self.keys), &Device::Cpu)?)
    }
}
