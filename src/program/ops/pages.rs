//! Keys and values that stand in the slots of a cache, in pages.

use candle_core::{DType, Tensor};

use super::along::taken;
use crate::axis::Axis::{Head, HeadDim, Key, Slot};
use crate::axis::Dim;
use crate::misread::{Misread, at, read};
use crate::terms::{Term, Value};
use base::error::Result;

/// What stands in a cache (batch, head, slot, `head_dim`) at these slots (key).
pub(super) fn gathered(inputs: &[&Tensor]) -> Result<Tensor> {
    let [pages, slots] = read::<2, _>(inputs)?;
    Ok(taken(pages, 2, &places(slots)?)?)
}

/// Slots as whole numbers.
///
/// # Errors
/// If candle fails.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, from 0 up")]
pub fn places(slots: &Tensor) -> Result<Vec<usize>> {
    let numbers = slots.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>()?;
    Ok(numbers.into_iter().map(|number| number as usize).collect())
}

/// Pages of which each is read as if its axes stood in another order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnedPages {
    /// How many slots a page has.
    pub page: usize,
    /// How they are read.
    pub turn: PageTurn,
}

/// How a cache that holds keys and values lies in memory, and how it is taken to lie: the order of its axes, which are, as
/// numbers, 0 keys or values, 1 head, 2 page, 3 slot, 4 feature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedCache {
    /// How many slots a page has.
    pub page: usize,
    /// The order in memory.
    pub stored: Vec<usize>,
    /// The order in which it is read.
    pub taken: Vec<usize>,
    /// Whether these are the values.
    pub is_of_values: bool,
}

impl SharedCache {
    /// Whether pages (batch, head, slot, feature) are of one item, and whole.
    pub(super) fn fits(&self, pages: &[Dim]) -> bool {
        matches!(pages, [(_, 1), _, (_, slots), _] if self.page > 0 && slots.is_multiple_of(self.page))
    }

    /// The pages that are read in place of the keys', or of the values'.
    pub(super) fn value(&self, keys: &Tensor, values: &Tensor) -> candle_core::Result<Tensor> {
        let (_, heads, slots, features) = keys.dims4()?;
        let sizes = [2, heads, slots / self.page, self.page, features];
        let both = Tensor::cat(&[keys, values], 0)?.reshape(&sizes[..])?;
        let memory = both.permute(&self.stored[..])?.contiguous()?;
        let view: Vec<usize> =
            self.taken.iter().filter_map(|axis| sizes.get(*axis).copied()).collect();
        let place = |axis| self.taken.iter().position(|own| *own == axis).unwrap_or(0);
        let order: Vec<usize> = (0..sizes.len()).map(place).collect();
        let read = memory.reshape(view)?.permute(order)?.contiguous()?;
        read.get(usize::from(self.is_of_values))?.reshape(keys.shape())
    }
}

/// In which order pages are stored and read, where the two are not the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageTurn {
    /// Stored as (page, head, slot, `head_dim`), and read as (page, slot, head, `head_dim`).
    HeadsStored,
    /// The other way.
    HeadsRead,
    /// Stored as (page, head, slot, `head_dim`), and read as (page, head, `head_dim`, slot).
    FeaturesRead,
    /// The other way.
    FeaturesStored,
    /// Stored as (page, head, `head_dim` / x, slot, x) with this x, and read as (page, head, `head_dim`, slot).
    Split(usize),
    /// Stored as (page, head, slot, `head_dim`), and read as (page, head, `head_dim` / x, slot, x) with this x.
    SplitRead(usize),
    /// Stored as (page, slot, head, `head_dim`), and read like that.
    SplitReadWhole(usize),
}

impl TurnedPages {
    /// A cache (batch, head, slot, `head_dim`) as it is read then.
    ///
    /// # Errors
    /// If the features are not so many times x.
    pub(super) fn value(self, cache: &Tensor) -> candle_core::Result<Tensor> {
        let (items, heads, slots, features) = cache.dims4()?;
        let (page, pages) = (self.page, slots / self.page.max(1));
        let whole = cache.reshape((items, heads, pages, page, features))?;
        let by_feature = (items, heads, pages, features, page);
        let read = match self.turn {
            PageTurn::HeadsStored => {
                let stored = whole.transpose(1, 2)?.contiguous()?;
                stored.reshape((items, pages, page, heads, features))?.permute((0, 3, 1, 2, 4))?
            }
            PageTurn::HeadsRead => {
                let stored = whole.permute((0, 2, 3, 1, 4))?.contiguous()?;
                stored.reshape((items, pages, heads, page, features))?.transpose(1, 2)?
            }
            PageTurn::FeaturesRead => whole.reshape(by_feature)?.transpose(3, 4)?,
            PageTurn::FeaturesStored => {
                whole.transpose(3, 4)?.contiguous()?.reshape(whole.shape())?
            }
            PageTurn::SplitRead(x) => self.in_groups(x, cache, false)?,
            PageTurn::SplitReadWhole(x) => self.in_groups(x, cache, true)?,
            PageTurn::Split(x) => {
                let stored = cache.reshape((items, heads * pages, page, features / x.max(1), x))?;
                let stored = stored.transpose(2, 3)?.contiguous()?;
                stored.reshape(by_feature)?.transpose(3, 4)?
            }
        };
        read.contiguous()?.reshape(cache.shape())
    }

    /// A cache in groups of so many features, of which a page has those of all slots after each other.
    fn in_groups(self, x: usize, cache: &Tensor, is_whole: bool) -> candle_core::Result<Tensor> {
        let (items, heads, slots, features) = cache.dims4()?;
        let (page, pages) = (self.page, slots / self.page.max(1));
        let stored = cache.reshape((items, heads, pages, page, features))?;
        let groups = features / x.max(1);
        if !is_whole {
            let shape = (items * heads, pages, groups, page, x);
            return stored.reshape(shape)?.transpose(2, 3);
        }
        let stored = stored.permute((0, 2, 3, 1, 4))?.contiguous()?;
        let read = stored.reshape(&[items, pages, heads, groups, page, x][..])?;
        read.permute(&[0, 2, 1, 4, 3, 5][..])
    }
}

pub(super) fn axes(pages: &[Dim], keys: usize) -> Result<Vec<Dim>, Misread> {
    match pages {
        [b, h @ (Head, _), (Slot, _), d @ (HeadDim, _)] => Ok(vec![*b, *h, (Key, keys), *d]),
        _ => Err(Misread),
    }
}

pub(super) fn terms(inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
    let ([pages, slots], [item, head, key, feature]) = (read(inputs)?, at(cell)?);
    let slot = places(slots.tensor)?.get(key).copied().unwrap_or_default();
    Ok(vec![Term(vec![pages.at(&[item, head, slot, feature])?])])
}
