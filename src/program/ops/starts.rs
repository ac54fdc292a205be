//! Numbers, and heads of keys, that are read from anywhere in memory.

use candle_core::Tensor;

use super::along::taken;
use crate::part::Part;

/// Where heads of keys begin in a cache that has its numbers as (slot, head, feature).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Starts {
    /// The first number of each head of each key, key after key; one behind the last of all is that of zeros.
    pub starts: Vec<usize>,
    /// How many keys there are.
    pub keys: usize,
}

impl Starts {
    pub(super) fn value(&self, pages: &Tensor) -> candle_core::Result<Tensor> {
        let (_, heads, _, features) = pages.dims4()?;
        let memory = pages.transpose(1, 2)?.contiguous()?.flatten_all()?;
        let end = memory.elem_count();
        let memory = Tensor::cat(&[&memory, &memory.narrow(0, 0, 1)?.zeros_like()?], 0)?;
        let cells = |start: &usize| (*start..*start + features).map(move |at| at.min(end));
        let places: Vec<usize> = self.starts.iter().flat_map(cells).collect();
        let rows = taken(&memory, 0, &places)?.reshape((1, self.keys, heads, features))?;
        rows.transpose(1, 2)?.contiguous()
    }

    /// Whether they are those of so many heads of one item.
    pub(super) fn fits(&self, items: usize, heads: usize) -> bool {
        items == 1 && self.starts.len() == self.keys * heads
    }

    /// The same of the first keys alone.
    pub(super) fn narrowed(&self, part: Part) -> Self {
        let Part::Keys(count) = part else { return self.clone() };
        let heads = self.starts.len() / self.keys.max(1);
        let starts = self.starts.iter().copied().take(count * heads).collect();
        Self { starts, keys: count.min(self.keys) }
    }
}

/// The numbers at these places of a tensor's memory, in its shape; one behind the last is 0.
pub(super) fn elsewhere(x: &Tensor, places: &[usize]) -> candle_core::Result<Tensor> {
    let memory = x.contiguous()?.flatten_all()?;
    let memory = Tensor::cat(&[&memory, &memory.narrow(0, 0, 1)?.zeros_like()?], 0)?;
    taken(&memory, 0, places)?.reshape(x.shape())
}

/// The tokens of each head, and the first ones of the next head, or of the next item.
pub(super) fn beyond(x: &Tensor, count: usize, is_by_token: bool) -> candle_core::Result<Tensor> {
    let (batch, heads, tokens, features) = x.dims4()?;
    let count = count.min(tokens);
    let (rows, each) = if is_by_token { (batch, heads) } else { (batch * heads, 1) };
    let all = x.contiguous()?.reshape((rows, each, tokens, features))?;
    let none = all.narrow(0, 0, 1)?.narrow(2, 0, count)?.zeros_like()?;
    let next = all.narrow(0, 1, rows - 1)?.narrow(2, 0, count)?;
    let next = Tensor::cat(&[&next, &none], 0)?;
    Tensor::cat(&[&all, &next], 2)?.reshape((batch, heads, tokens + count, features))
}
