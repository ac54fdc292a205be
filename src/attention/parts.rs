//! Attention over parts of the keys: in splits that are merged, or tile by tile.

use super::Builder;
use base::error::Result;
use program::{Axis, Name, PartStage, Parted, Parts};

/// The operation that makes the outputs, and what it reads.
pub(super) type Outputs = (Parted, Vec<usize>);

impl Builder<'_> {
    /// What each split or tile has, and the log-sum-exp of all. `beside` are the scores and, behind them, the sinks.
    pub(super) fn parted(
        &mut self,
        parts: Parts,
        beside: &[usize],
        values: usize,
    ) -> Result<Outputs> {
        let (scores, sinks) =
            beside.split_first().map_or((0, beside), |(first, rest)| (*first, rest));
        let with_sinks = |read: &[usize]| [read, sinks].concat();
        let is_split = parts.axis == Axis::Split;
        let [of_max, of_sum, of_acc] = if is_split {
            [Name::SplitMax, Name::SplitSum, Name::SplitAcc]
        } else {
            [Name::TileMax, Name::TileSum, Name::TileAcc]
        };
        // Of splits the first has the sinks, of tiles what follows the last.
        let own_sinks = if is_split { sinks } else { &[] };
        let read = [&[scores], own_sinks].concat();
        let largest = self.then(of_max, PartStage::Largest(parts.clone()).right(), &read)?;
        let factor = if is_split {
            None
        } else {
            Some(self.then(Name::TileFactor, PartStage::Factor.right(), &[largest])?)
        };
        let read = |own: &[usize]| own.iter().copied().chain(factor).collect::<Vec<_>>();
        let sum = PartStage::Sum(parts.clone()).right();
        let sum =
            self.then(of_sum, sum, &[read(&[scores, largest]), own_sinks.to_vec()].concat())?;
        let acc = PartStage::Weighted(parts).right();
        let acc = self.then(of_acc, acc, &read(&[scores, largest, values]))?;
        if !is_split {
            let lse = with_sinks(&[largest, sum]);
            self.then(Name::Lse, PartStage::LastLogSum.right(), &lse)?;
            let read =
                if sinks.is_empty() { vec![acc, sum] } else { with_sinks(&[acc, sum, largest]) };
            return Ok((PartStage::Last.right(), read));
        }
        let outputs = self.then(Name::SplitOutputs, PartStage::Quotient.right(), &[acc, sum])?;
        let own = self.then(Name::SplitLse, PartStage::LogSum.right(), &[largest, sum])?;
        let merged = self.then(Name::Lse, PartStage::Merge.right(), &[own])?;
        let weights = self.then(Name::SplitWeights, PartStage::Share.right(), &[own, merged])?;
        Ok((PartStage::Merged.right(), vec![outputs, weights]))
    }
}
