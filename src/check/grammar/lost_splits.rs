//! Which splits does a merge lose, read in another order, or weigh by the log-sum-exps of others?

use std::collections::HashSet;

use candle_core::{Device, Tensor};

use super::Grammar;
use crate::candidate::cost;
use program::{
    Block, Change, Edit, Heads, Kind, Name, PartSlip, PartStage, Parted, Rearrange, Slip, Step,
    Weigh,
};

/// What reads the log-sum-exps of splits.
const READERS: [Name; 2] = [Name::Lse, Name::SplitWeights];

impl Grammar<'_> {
    /// Merges of so many splits that do not take all of them, or take them in another order.
    pub(super) fn of_lost_splits(&mut self, count: usize) {
        let Some(shape) = self.right.step(Name::SplitLse).map(|step| step.axes.shape()) else {
            return;
        };
        let Some(items) = shape.get(1).copied() else { return };
        let kept = by_halving(count);
        let lost: Vec<String> =
            (0..count).filter(|at| !kept.contains(at)).map(|at| at.to_string()).collect();
        if !lost.is_empty() {
            let told = tr!(
                "the splits are merged by halving their number, {count}: splits {lost} are lost, as that is no power of two",
                count,
                lost = lost.join(", ")
            );
            self.unmerged((1, |split, _| !kept.contains(&split)), count, &told);
        }
        self.partly_filled(count, items);
        self.between_levels(count);
        self.viewed_in_one_split(count);
        self.splits_as_heads();
        self.next_row(count);
        self.padded_groups();
    }

    /// Results of splits that lie in memory with splits, items and heads in another order than they are read in.
    fn splits_as_heads(&mut self) {
        let (Some(lse), Some(outputs)) =
            (self.right.step(Name::SplitLse), self.right.step(Name::SplitOutputs))
        else {
            return;
        };
        let names = [tr!("split"), tr!("item"), tr!("head")];
        let told = |order: &[usize; 3]| order.map(|at| names[at]).join(", ");
        let turns = |step: &Step, orders: [&[usize; 3]; 2]| {
            let (sizes, result) = (step.axes.shape(), step.axes.iter().collect::<Vec<_>>());
            let turn = |view: Vec<usize>, order: [usize; 3]| {
                let order = order.into_iter().chain(3..sizes.len()).collect();
                let (blocks, result) = (Vec::new(), result.clone());
                Change::before(0, Heads::Rearrange(Rearrange { blocks, view, order, result }))
            };
            // Out of memory's order, and into that of the readers.
            let [stored, read] = orders;
            let view = read.iter().map(|at| sizes[*at]).chain(sizes.iter().skip(3).copied());
            let back = [0, 1, 2].map(|at| read.iter().position(|own| *own == at).unwrap_or(at));
            [turn(sizes.clone(), *stored), turn(view.collect(), back)]
        };
        let sizes = lse.axes.shape();
        let mut known = HashSet::from([(0..sizes.iter().take(3).product()).collect::<Vec<_>>()]);
        for (stored, read) in
            ORDERS.iter().flat_map(|own| ORDERS.iter().map(move |other| (own, other)))
        {
            if !known.insert(read_as(&sizes, stored, read)) {
                continue;
            }
            let of_lse = turns(lse, [stored, read]);
            let of_lse =
                READERS.map(|name| of_lse.clone().map(|own| Edit::new(name, own))).concat();
            let of_outputs =
                turns(outputs, [stored, read]).map(|own| Edit::new(Name::HeadOutputs, own));
            let both = [of_lse.clone(), of_outputs.to_vec()].concat();
            let (stored, read) = (told(stored), told(read));
            for (edits, at, told) in [
                (
                    of_lse,
                    Name::Lse,
                    tr!(
                        "the log-sum-exps of the splits lie as ({stored}), and are read as ({read})",
                        stored,
                        read
                    ),
                ),
                (
                    of_outputs.to_vec(),
                    Name::HeadOutputs,
                    tr!(
                        "the outputs of the splits lie as ({stored}), and are read as ({read})",
                        stored,
                        read
                    ),
                ),
                (
                    both,
                    Name::Lse,
                    tr!(
                        "the outputs and the log-sum-exps of the splits lie as ({stored}), and are read as ({read})",
                        stored,
                        read
                    ),
                ),
            ] {
                self.add_all(Kind::Axes, cost::COMMON, edits, at, told);
            }
        }
    }

    /// One split whose tokens and heads lie in memory the other way round than they are read.
    fn viewed_in_one_split(&mut self, count: usize) {
        let Some(lse) = self.right.step(Name::SplitLse) else { return };
        let (sizes, result) = (lse.axes.shape(), lse.axes.iter().collect::<Vec<_>>());
        let &[splits, items, heads, queries] = sizes.as_slice() else { return };
        if heads < 2 || queries < 2 {
            return;
        }
        let turned = vec![splits, items, queries, heads];
        for (view, told) in [
            (sizes, tr!("lies as (query, head) and is read as (head, query)")),
            (turned, tr!("lies as (head, query) and is read as (query, head)")),
        ] {
            for at in 0..count {
                let (view, order, result) = (view.clone(), vec![0, 1, 3, 2], result.clone());
                let turn = Heads::Rearrange(Rearrange { blocks: Vec::new(), view, order, result });
                let in_part = Slip::InPart { axis: 0, places: vec![at], moved: turn };
                let change = Change::before(0, in_part);
                let edits = READERS.map(|name| Edit::new(name, change.clone())).to_vec();
                let told = tr!("the log-sum-exp of split {at} {told}", at, told);
                self.add_all(Kind::Axes, cost::COMMON, edits, Name::Lse, told);
            }
        }
    }

    /// Query heads of each key head that take as many rows as a tile has, and are read or written as if there were no others.
    fn padded_groups(&mut self) {
        let group = self.sizes.heads / self.sizes.kv_heads.max(1);
        let Some(lse) = self.right.step(Name::SplitLse).filter(|_| self.sizes.kv_heads > 1) else {
            return;
        };
        let shape = lse.axes.shape();
        let [splits, items, heads, queries] = shape[..] else { return };
        let count = splits * items * heads * queries;
        let mut wides = vec![group.next_power_of_two(), 8, 16];
        wides.retain(|wide| *wide > group);
        wides.dedup();
        for wide in wides {
            let place = |at: usize| {
                let (query, head) = (at % queries, at / queries % heads);
                let first = at / queries / heads * heads;
                ((first + head / group * wide + head % group) * queries + query).min(count)
            };
            let places = (0..count).map(place).collect();
            let read = Change::before(0, Slip::Elsewhere(places));
            let edits = READERS.map(|name| Edit::new(name, read.clone())).to_vec();
            let told = tr!(
                "the log-sum-exps of the splits have {group} rows for each key head, and are read as if they had {wide}",
                group,
                wide
            );
            self.add_all(Kind::Axes, cost::COMMON, edits, Name::Lse, told);
        }
    }

    /// Splits that are loaded up to a power of two.
    fn next_row(&mut self, count: usize) {
        if count.is_power_of_two() || self.right.step(Name::Sinks).is_some() {
            return;
        }
        let slip = PartSlip::NextRow;
        let read = vec![Name::SplitOutputs, Name::SplitLse];
        let merged = Parted { stage: PartStage::Merged, slip: Some(slip) };
        let merged = Edit::new(Name::HeadOutputs, Change::Become(merged.into(), read));
        self.slipped_merge(Kind::Axes, slip, merged);
    }

    /// A slip of the merge in what reads its log-sum-exps, in the one that is merged as well or not.
    fn slipped_merge(&mut self, kind: Kind, slip: PartSlip, reader: Edit) {
        let merge = Parted { stage: PartStage::Merge, slip: Some(slip) };
        let lse = Edit::new(Name::Lse, Change::Replace(merge.into()));
        for edits in [vec![lse, reader.clone()], vec![reader]] {
            self.add_all(kind, cost::COMMON, edits, Name::Lse, slip.told());
        }
    }

    /// A slip of the merge in the weights of the splits.
    pub(super) fn slipped_weights(&mut self, slip: PartSlip) {
        let share = Parted { stage: PartStage::Share, slip: Some(slip) };
        let weights = Edit::new(Name::SplitWeights, Change::Replace(share.into()));
        self.slipped_merge(Kind::Replaced, slip, weights);
    }

    /// Splits that the last keys of an item fill in part, which are not merged where splits are counted rounded down.
    fn partly_filled(&mut self, count: usize, items: usize) {
        let (Some(own), Some(parts)) = (self.own_mask(), self.right.parts()) else { return };
        let size =
            parts.keys.first().and_then(|spans| spans.first()).map_or(0, |own| own.1 - own.0);
        if size == 0 || self.documents().is_some() {
            return;
        }
        let seen = own.seen_ends();
        let told = tr!(
            "the splits of an item are counted as its keys // {size}: the last one, which is not full, is not merged",
            size
        );
        self.unmerged(
            (items, |split, item: usize| seen.get(item).is_some_and(|seen| split >= seen / size)),
            count,
            &told,
        );
    }

    /// Splits that the merge leaves out, for each of so many items, or all alike.
    fn unmerged(
        &mut self,
        (items, is_lost): (usize, impl Fn(usize, usize) -> bool),
        count: usize,
        told: &str,
    ) {
        let cells = (0..count).flat_map(|split| (0..items).map(move |item| (split, item)));
        let cells: Vec<u8> = cells.map(|(split, item)| u8::from(is_lost(split, item))).collect();
        if !cells.contains(&1) {
            return;
        }
        let Ok(cells) = Tensor::from_vec(cells, (count, items, 1, 1), &Device::Cpu) else { return };
        let block = Slip::Block(Block { cells, fill: f64::NEG_INFINITY });
        let change = Change::before(0, block);
        let both = READERS.map(|name| Edit::new(name, change.clone())).to_vec();
        // The log-sum-exp may be right, and the weights made up to 1 by themselves.
        let rank = self.right.step(Name::SplitLse).map_or(0, |own| own.axes.rank());
        let weighed =
            Change::Become(Slip::Weigh(Weigh::Over(vec![rank])).into(), vec![Name::SplitLse]);
        let weights = vec![Edit::new(READERS[1], weighed), Edit::new(READERS[1], change.clone())];
        for edits in [both, weights] {
            self.add_all(Kind::Axes, cost::COMMON, edits, Name::Lse, told);
        }
    }

    /// Merges in steps that go wrong between these.
    fn between_levels(&mut self, count: usize) {
        for slip in [
            PartSlip::SignExchanged,
            PartSlip::SignTurned,
            PartSlip::PartBefore,
            PartSlip::PairFirst,
            PartSlip::RingSignExchanged,
            PartSlip::RingSignTurned,
        ] {
            if count > 2 {
                self.slipped_weights(slip);
            }
        }
        let Some(own) = self.right.step(Name::HeadOutputs) else { return };
        let Some(slot) = self.read(own).iter().position(|read| *read == Name::SplitWeights) else {
            return;
        };
        let slip = PartSlip::FinalFirst;
        let share = Parted { stage: PartStage::Share, slip: Some(slip) };
        let change = Change::Feed(slot, share.into(), vec![Name::SplitLse, Name::Lse]);
        let features = own.axes.shape().last().copied().unwrap_or_default();
        let told = slip.told();
        self.add(Kind::Axes, cost::COMMON, Name::HeadOutputs, change.clone(), told);
        for block in [8, 16, 32, 64, 128].into_iter().filter(|block| *block < features) {
            let places = (block..features).collect();
            let behind = Change::Confined(Box::new(change.clone()), 3, places);
            let told = tr!("{told}: those of features {block} on", told, block);
            self.add(Kind::Axes, cost::COMMON, Name::HeadOutputs, behind, told);
        }
    }
}

/// In which orders splits, items and heads may lie.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Of every split, item and head in that order, the one that is read in its place.
fn read_as(sizes: &[usize], stored: &[usize; 3], read: &[usize; 3]) -> Vec<usize> {
    let size = |axis: usize| sizes.get(axis).copied().unwrap_or(1);
    let count = size(0) * size(1) * size(2);
    let of = |at: usize| {
        let own = [at / (size(1) * size(2)), at / size(2) % size(1), at % size(2)];
        let mut place = read.iter().fold(0, |place, axis| place * size(*axis) + own[*axis]);
        let mut other = [0; 3];
        for axis in stored.iter().rev() {
            other[*axis] = place % size(*axis);
            place /= size(*axis);
        }
        (other[0] * size(1) + other[1]) * size(2) + other[2]
    };
    (0..count).map(of).collect()
}

/// The splits that are merged where half of them take the other half, until one is left.
fn by_halving(count: usize) -> Vec<usize> {
    let mut held: Vec<Vec<usize>> = (0..count).map(|at| vec![at]).collect();
    let mut stride = count / 2;
    while stride > 0 {
        for at in 0..stride {
            let taken = held.get_mut(at + stride).map(std::mem::take).unwrap_or_default();
            if let Some(own) = held.get_mut(at) {
                own.extend(taken);
            }
        }
        stride /= 2;
    }
    held.into_iter().next().unwrap_or_default()
}
