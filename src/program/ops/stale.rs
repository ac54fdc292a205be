//! What a kernel that goes on to the next tile of queries does not clear: the first tile of keys adds to what was there.

use candle_core::Tensor;

use super::part_values::{divided, stacked};
use crate::axis::{Axis, Dim};
use crate::misread::Misread;
use base::error::Result;

/// ℓ or acc that begins with what another tile of queries left, and is rescaled like all else from the second tile of keys on.
/// Reads it as it should be, m, and ℓ where acc was divided by it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stale {
    /// How many queries a tile has.
    pub rows: usize,
    /// Whether the first tile of a head begins with what the last one of the head before left.
    pub is_across: bool,
    /// Whether what is left is the output: acc / ℓ.
    pub is_output: bool,
}

impl Stale {
    pub(super) fn fits(self, x: &[Dim], others: &[&[Dim]]) -> bool {
        let rows = x.get(..4);
        x.first().is_some_and(|(axis, _)| *axis == Axis::Tile)
            && others.len() == 1 + usize::from(self.is_output)
            && others.iter().all(|other| rows == Some(*other))
    }

    pub(super) fn value(self, x: &Tensor, others: &[&Tensor]) -> Result<Tensor> {
        let [largest, sums @ ..] = others else { return Err(Misread.into()) };
        let rank = x.rank();
        let own = if rank == 4 { x.unsqueeze(4)? } else { x.clone() };
        let (tiles, batch, heads, queries, width) = own.dims5()?;
        let groups = batch * heads;
        let flat = |x: &Tensor, width: usize| x.reshape((tiles, groups, queries, width));
        let (own, largest) = (flat(&own, width)?, flat(largest, 1)?);
        let sums =
            sums.first().map(|sums| flat(sums, 1)?.get(tiles.saturating_sub(1))).transpose()?;
        // The maximum of the first tile of keys that is seen.
        let mut first = largest.get(tiles.saturating_sub(1))?;
        for at in (0..tiles).rev() {
            let before = largest.get(at)?;
            first = before.gt(f64::NEG_INFINITY)?.where_cond(&before, &first)?;
        }
        let factors = first.broadcast_sub(&largest)?.exp()?;
        let is_seen = largest.gt(f64::NEG_INFINITY)?;
        let factors = is_seen.where_cond(&factors, &factors.zeros_like()?)?;
        let left = self.left(&own, &factors, sums.as_ref())?;
        let mut all = Vec::new();
        for at in 0..tiles {
            all.push((own.get(at)? + left.broadcast_mul(&factors.get(at)?)?)?);
        }
        Ok(stacked(&all)?.reshape(x.shape())?)
    }

    /// What each row begins with: (head of an item, query, feature).
    fn left(self, own: &Tensor, factors: &Tensor, sums: Option<&Tensor>) -> Result<Tensor> {
        let (tiles, groups, queries, width) = own.dims4()?;
        let last = tiles.saturating_sub(1);
        let (own, factors) = (own.get(last)?, factors.get(last)?);
        // Heads go on side by side, or one after the other.
        let each = if self.is_across { 1 } else { groups };
        let rows = self.rows.clamp(1, queries.max(1));
        let mut left = Tensor::zeros((each, rows, width), own.dtype(), own.device())?;
        let mut all = Vec::new();
        for group in (0..groups).step_by(each) {
            let mut of_group = Vec::new();
            for first in (0..queries).step_by(rows) {
                let count = rows.min(queries - first);
                let part = |x: &Tensor| x.narrow(0, group, each)?.narrow(1, first, count);
                let begun = left.narrow(1, 0, count)?;
                let mut end = (part(&own)? + begun.broadcast_mul(&part(&factors)?)?)?;
                if let Some(sums) = sums {
                    end = divided(&end, &part(sums)?.squeeze(2)?)?;
                }
                let rest = Tensor::zeros((each, rows - count, width), end.dtype(), end.device())?;
                left = if count < rows { Tensor::cat(&[&end, &rest], 1)? } else { end };
                of_group.push(begun);
            }
            all.push(Tensor::cat(&of_group, 1)?);
        }
        Ok(Tensor::cat(&all, 0)?)
    }
}
