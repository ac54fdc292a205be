//! Rows of heads that are read from memory by other strides than they have.

use candle_core::Tensor;

use super::along::taken;
use crate::axis::Dim;
use crate::misread::Misread;

/// How rows of heads, (batch, head, token, feature), are read from memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strides {
    /// Whether memory has them as (batch, token, head, feature), not as they stand here.
    pub is_by_token: bool,
    /// How many heads in a row stand for one in memory.
    pub group: usize,
    /// How far apart items, heads and tokens are taken to be.
    pub strides: [usize; 3],
    /// How many numbers of each row are read.
    pub width: usize,
    /// With which number of a row that begins.
    pub first: usize,
}

impl Strides {
    /// Those that rows of this shape, items, heads, tokens and features, have.
    #[must_use]
    pub fn of([_, heads, tokens, features]: [usize; 4], group: usize, is_by_token: bool) -> Self {
        let (heads, row) = (heads / group.max(1), features);
        let (of_head, of_token) =
            if is_by_token { (row, heads * row) } else { (tokens * row, row) };
        Self {
            is_by_token,
            group,
            strides: [heads * tokens * row, of_head, of_token],
            width: row,
            first: 0,
        }
    }

    /// What is read. Behind the last number are zeros.
    pub(super) fn value(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let (items, heads, tokens, _) = x.dims4()?;
        let own = taken(x, 1, &(0..heads).step_by(self.group.max(1)).collect::<Vec<_>>())?;
        let own = if self.is_by_token { own.transpose(1, 2)? } else { own };
        let memory = own.contiguous()?.flatten_all()?;
        let end = memory.elem_count();
        let memory = Tensor::cat(&[&memory, &memory.narrow(0, 0, 1)?.zeros_like()?], 0)?;
        let [of_item, of_head, of_token] = self.strides;
        let mut places = Vec::with_capacity(items * heads * tokens * self.width);
        for item in 0..items {
            for head in 0..heads {
                let first = self.first + item * of_item + head / self.group.max(1) * of_head;
                for start in (0..tokens).map(|token| first + token * of_token) {
                    places.extend((start..start + self.width).map(|place| place.min(end)));
                }
            }
        }
        taken(&memory, 0, &places)?.reshape((items, heads, tokens, self.width))
    }

    pub(super) fn axes(&self, x: &[Dim]) -> Result<Vec<Dim>, Misread> {
        let &[item, head, token, (axis, _)] = x else { return Err(Misread) };
        let is_whole = self.group > 0 && head.1.is_multiple_of(self.group);
        if is_whole { Ok(vec![item, head, token, (axis, self.width)]) } else { Err(Misread) }
    }
}
