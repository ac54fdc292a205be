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
    /// Whether they are stored as (page, head, slot, `head_dim`) and read as (page, slot, head, `head_dim`), and not the other
    /// way.
    pub heads_first: bool,
}

impl TurnedPages {
    /// A cache (batch, head, slot, `head_dim`) as it is read then.
    pub(super) fn value(self, cache: &Tensor) -> candle_core::Result<Tensor> {
        let (items, heads, slots, features) = cache.dims4()?;
        let (page, pages) = (self.page, slots / self.page.max(1));
        let whole = cache.reshape((items, heads, pages, page, features))?;
        let read = if self.heads_first {
            let stored = whole.transpose(1, 2)?.contiguous()?;
            stored.reshape((items, pages, page, heads, features))?.permute((0, 3, 1, 2, 4))?
        } else {
            let stored = whole.permute((0, 2, 3, 1, 4))?.contiguous()?;
            stored.reshape((items, pages, heads, page, features))?.transpose(1, 2)?
        };
        read.contiguous()?.reshape(cache.shape())
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
