//! What goes wrong with the state of a tile: it is not reset, is kept in fewer bits, or stands for a part of the tile alone.

use candle_core::{D, Tensor};

use super::Precision;
use super::part_values::floored;
use super::parts::{PartSlip, PartStage, Parted, Parts};
use crate::misread::Misread;
use base::error::Result;

impl Parted {
    /// In how many groups of keys with a maximum of their own tiles are taken, if they are.
    pub(super) fn groups(&self) -> Option<usize> {
        match self.slip {
            Some(PartSlip::HalvesApart) => Some(2),
            Some(PartSlip::QuartersApart) => Some(4),
            _ => None,
        }
    }

    /// In how many groups of keys with a maximum of their own tiles are taken of which one alone is kept, and which.
    pub(super) fn kept_group(&self) -> Option<(usize, usize)> {
        match self.slip {
            Some(PartSlip::FirstHalfKept) => Some((2, 0)),
            Some(PartSlip::LastHalfKept) => Some((2, 1)),
            Some(PartSlip::FirstQuarterKept) => Some((4, 0)),
            Some(PartSlip::LastQuarterKept) => Some((4, 3)),
            _ => None,
        }
    }

    /// What is subtracted from each column of a part of so many groups of keys: the largest of its group and of the old
    /// maximum.
    fn by_groups(&self, groups: usize, columns: &Tensor, old: Option<&Tensor>) -> Result<Tensor> {
        let (PartStage::Sum(parts) | PartStage::Weighted(parts)) = &self.stage else {
            return Err(Misread.into());
        };
        let (size, count) = (parts.count(0), columns.dim(3)?);
        let place = |at: usize| (size * at / groups).min(count);
        let mut all = Vec::new();
        for at in (0..groups).filter(|at| place(*at) < place(at + 1)) {
            let own = columns.narrow(3, place(at), place(at + 1) - place(at))?;
            let largest = own.max_keepdim(D::Minus1)?;
            let largest = match old {
                Some(old) => largest.maximum(&old.unsqueeze(3)?)?,
                None => largest,
            };
            all.push(floored(&largest)?.broadcast_as(own.shape())?);
        }
        Ok(Tensor::cat(&all, 3)?)
    }

    /// What is added in a tile of what it gives, which `waiting` holds for the next one if it is added late.
    pub(super) fn added(
        &self,
        own: Tensor,
        waiting: &mut Tensor,
        is_last: bool,
    ) -> candle_core::Result<Tensor> {
        match self.slip {
            Some(PartSlip::LateToEnd) if is_last => own.add(waiting),
            Some(PartSlip::AddedLate | PartSlip::LateToEnd) => Ok(std::mem::replace(waiting, own)),
            _ => Ok(own),
        }
    }

    /// ℓ or acc, as the sum of those of so many groups of each tile's keys, each by its own maximum.
    pub(super) fn apart(&self, groups: usize, parts: &Parts, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores, _, others @ ..] = inputs else { return Err(Misread.into()) };
        let is_weighted = matches!(self.stage, PartStage::Weighted(_));
        let mut all: Option<Tensor> = None;
        for at in 0..groups {
            let own = parts.group(at, groups);
            let largest = PartStage::Largest(own.clone()).right().largest(&own, &[scores])?;
            let factor = PartStage::Factor.right().factors(&largest)?;
            let values = others.first().filter(|_| is_weighted).copied();
            let read: Vec<&Tensor> =
                [*scores, &largest].into_iter().chain(values).chain([&factor]).collect();
            let stage = if is_weighted { PartStage::Weighted } else { PartStage::Sum };
            let sum = stage(own.clone()).right().sums(&own, &read)?;
            all = Some(all.map_or(Ok(sum.clone()), |all| all.add(&sum))?);
        }
        all.ok_or_else(|| Misread.into())
    }

    /// Whether the maximum that is kept has fewer bits than that which is subtracted.
    pub(super) fn keeps_less(&self) -> bool {
        matches!(self.slip, Some(PartSlip::MaxInBf16 | PartSlip::BinaryMaxInBf16))
    }

    /// The maximum that is kept.
    pub(super) fn kept(&self, largest: &Tensor) -> Result<Tensor> {
        match self.slip {
            Some(PartSlip::MaxInBf16) => Ok(Precision::Bf16.round(largest)?),
            Some(PartSlip::BinaryMaxInBf16) => {
                let binary = (largest * std::f64::consts::LOG2_E)?;
                Ok((Precision::Bf16.round(&binary)? * std::f64::consts::LN_2)?)
            }
            _ => Ok(largest.clone()),
        }
    }

    /// What is subtracted from the scores of a part, (batch, head, query, 1).
    pub(super) fn subtracted_in(
        &self,
        at: usize,
        columns: Option<&Tensor>,
        largest: &Tensor,
    ) -> Result<Tensor> {
        let new = largest.get(at)?;
        let old = at.checked_sub(1).map(|at| largest.get(at)).transpose()?;
        if let (Some((groups, _)), Some(columns)) = (self.kept_group(), columns) {
            return self.by_groups(groups, columns, old.as_ref());
        }
        let own = match (old, columns) {
            // Where no key was visible before, there is no other than the new one.
            (Some(old), _) if self.slip == Some(PartSlip::OldMax) => {
                old.eq(f64::NEG_INFINITY)?.where_cond(&new, &old)?
            }
            (old, Some(columns)) if self.keeps_less() => {
                let own = columns.max(D::Minus1)?;
                floored(&old.map_or(Ok(own.clone()), |old| own.maximum(&old))?)?
            }
            _ => new,
        };
        Ok(self.subtracted(&own)?.unsqueeze(3)?)
    }

    /// What the tile of queries before left in each row's place, if it is not reset: its maximum, and what was added up.
    pub(super) fn carried(
        &self,
        parts: &Parts,
        scores: &Tensor,
        values: Option<&Tensor>,
    ) -> Result<Option<(Tensor, Tensor)>> {
        let is_left = match self.slip {
            Some(PartSlip::AllCarried) => true,
            Some(PartSlip::RowsCarried) => values.is_none(),
            _ => return Ok(None),
        };
        let (batch, heads, queries, _) = scores.dims4()?;
        let rows = parts.queries.unwrap_or_else(|| parts.count(0)).min(queries).max(1);
        let width = values.map_or(Ok(1), |values| values.dim(3))?;
        let empty = |width: usize| {
            Tensor::zeros((batch, heads, rows, width), scores.dtype(), scores.device())
        };
        let (mut largest, mut sum) = (empty(1)?.affine(0.0, f64::NEG_INFINITY)?, empty(width)?);
        let mut all = (Vec::new(), Vec::new());
        for first in (0..queries).step_by(rows) {
            let count = rows.min(queries - first);
            let (before, left) = (largest.narrow(2, 0, count)?, sum.narrow(2, 0, count)?);
            let own = scores.narrow(2, first, count)?;
            largest = own.max_keepdim(D::Minus1)?.maximum(&before)?;
            let m = floored(&largest)?;
            let p = own.broadcast_sub(&m)?.exp()?;
            let share = match values {
                Some(values) => p.contiguous()?.matmul(&values.contiguous()?)?,
                None => p.sum_keepdim(D::Minus1)?,
            };
            sum = left.broadcast_mul(&(&before - &m)?.exp()?)?.add(&share)?;
            all.0.push(before);
            all.1.push(if is_left { left } else { left.zeros_like()? });
        }
        Ok(Some((Tensor::cat(&all.0, 2)?, Tensor::cat(&all.1, 2)?)))
    }
}
