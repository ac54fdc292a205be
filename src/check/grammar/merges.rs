//! What goes wrong where splits are merged?

use candle_core::{Device, Tensor};

use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use crate::cells::cells;
use program::{
    Along, Axis, Block, Change, Collect, Dim, Edit, Gradient, Kind, Name, Op, PartSlip, PartStage,
    Parted, Precision, Scaling, Slip, Weigh,
};

impl Grammar<'_> {
    /// What goes wrong where so many splits are merged.
    pub(super) fn of_merge(&mut self, count: usize, scale: Option<f64>) {
        self.other_weights(count, scale);
        self.of_other_splits(count);
        self.stale_splits();
        self.one_split_of_first(count);
        self.in_other_orders(count);
        self.of_lost_splits(count);
        if self.right.step(Name::Sinks).is_some() {
            self.sink_of_merge();
            let merge = Op::from(PartStage::Merge.right());
            let change = Change::Become(merge, vec![Name::SplitLse, Name::Sinks]);
            let told = tr!("the sink is counted in the merge once more");
            self.add(Kind::Repeated, cost::COMMON, Name::Lse, change, told);
        }
        for at in 1..count {
            let before = at - 1;
            let places = (0..count).map(|place| if place == at { before } else { place });
            let late = Slip::Along(0, Along::Take(places.collect()));
            let told = tr!(
                "the log-sum-exp of split {at} is stale: still that of split {before}",
                at,
                before
            );
            self.add(Kind::Axes, cost::COMMON, Name::SplitLse, after(late, &[]), told);
            let told = tr!("split {at} is dropped in the merge: left out", at);
            let none = Slip::Along(0, Along::Zero(vec![at]));
            self.add(Kind::Axes, cost::COMMON, Name::SplitWeights, after(none, &[]), told);
            self.unread_lse(at, count);
        }
    }

    /// A split whose log-sum-exp the merge does not read.
    fn unread_lse(&mut self, at: usize, count: usize) {
        let out = (0..count).map(|own| u8::from(own == at)).collect();
        let Ok(cells) = Tensor::from_vec(out, (count, 1, 1, 1), &Device::Cpu) else { return };
        let none = Slip::Block(Block { cells, fill: f64::NEG_INFINITY });
        let told = tr!("split {at} is dropped in the merge: left out", at);
        let change = Change::before(0, none);
        self.add(Kind::Axes, cost::COMMON, Name::Lse, change, told);
    }

    /// Maxima, sums and outputs of splits that are put together with those of others.
    fn of_other_splits(&mut self, count: usize) {
        let slots = [
            (Name::SplitOutputs, 0),
            (Name::SplitOutputs, 1),
            (Name::SplitLse, 0),
            (Name::SplitLse, 1),
            (Name::HeadOutputs, 0),
            (Name::HeadOutputs, 1),
        ];
        for (name, slot) in slots {
            let read = self.right.step(name).map(|step| self.right.read_by(step));
            let Some(input) = read.and_then(|read| read.get(slot).copied()) else { continue };
            for (op, told, _) in self.moves(input) {
                if matches!(op, Op::Slip(Slip::Along(0, Along::Take(_)))) {
                    let told = tr!("it reads {input} {told}", input = input.name, told);
                    let change = Change::Before(slot, op, Vec::new());
                    self.add(Kind::Axes, cost::PLAIN, name, change, told);
                }
            }
        }
        if let Some(lse) = self.right.step(Name::SplitLse) {
            for (op, told, _) in self.moves(lse) {
                let read = |name| Edit::new(name, Change::Before(0, op.clone(), Vec::new()));
                let edits = [Name::Lse, Name::SplitWeights].map(read).to_vec();
                let told = tr!("the merge reads {lse} {told}", lse = lse.name, told);
                self.add_all(Kind::Axes, cost::PLAIN, edits, Name::Lse, told);
            }
        }
        for at in 0..count {
            for (factor, told) in [
                (
                    std::f64::consts::LOG2_E,
                    tr!(
                        "the log-sum-exp of split {at} is in base 2, and is merged as one of base e",
                        at
                    ),
                ),
                (
                    std::f64::consts::LN_2,
                    tr!(
                        "the log-sum-exp of split {at} is in base e, and is merged as one of base 2",
                        at
                    ),
                ),
            ] {
                let factors = (0..count).map(|own| if own == at { factor } else { 1.0 });
                let scaled = Slip::Along(0, Along::Each(factors.collect()));
                self.add(Kind::Inserted, cost::COMMON, Name::SplitLse, after(scaled, &[]), told);
            }
            let zero = |name| {
                let zero = Slip::Along(0, Along::Zero(vec![at])).into();
                Edit::new(name, Change::Before(0, zero, Vec::new()))
            };
            let edits = vec![zero(Name::Lse), zero(Name::SplitWeights)];
            let told =
                tr!("the log-sum-exp of split {at} is taken for 0: it is merged without it", at);
            self.add_all(Kind::Input, cost::COMMON, edits, Name::Lse, told);
        }
    }

    /// One split of which the merge reads the first item's results, or the first head's, for all.
    fn one_split_of_first(&mut self, count: usize) {
        let read = [
            (Name::HeadOutputs, Name::SplitOutputs),
            (Name::Lse, Name::SplitLse),
            (Name::SplitWeights, Name::SplitLse),
        ];
        for (axis, told) in [
            (1, tr!("of the first item for all of them: the stride of the items is left out")),
            (2, tr!("of the first head for all of them: the stride of the heads is left out")),
        ] {
            for at in 0..count {
                let first = |input: Name| {
                    let size = self.right.step(input)?.axes.shape().get(axis).copied()?;
                    let along = Along::Take(vec![0; size]);
                    let along = Along::Within { axis: 0, places: vec![at], along: along.into() };
                    (size > 1).then_some(Slip::Along(axis, along))
                };
                for names in [&read[..1], &read[1..]] {
                    let edit = |(reader, input): &(Name, Name)| {
                        Some(Edit::new(*reader, Change::before(0, first(*input)?)))
                    };
                    let edits: Edits = names.iter().filter_map(edit).collect();
                    let Some(own) = edits.first().map(|edit| edit.at) else { continue };
                    let input = names[0].1;
                    let told = tr!("the merge reads {input} of split {at} {told}", input, at, told);
                    self.add_all(Kind::Axes, cost::PLAIN, edits, own, told);
                }
            }
        }
    }

    /// Splits that are merged in pairs, and sums that are rescaled in the denominator alone.
    fn in_other_orders(&mut self, count: usize) {
        if count > 2 {
            self.slipped_weights(PartSlip::PairLargest);
        }
        let slip = Some(PartSlip::PlainNumerator);
        let plain = Parted { stage: PartStage::Share, slip };
        let change = Change::Become(plain.into(), vec![Name::SplitMax, Name::SplitSum]);
        let told = PartSlip::PlainNumerator.told();
        self.add(Kind::Replaced, cost::COMMON, Name::SplitWeights, change, told);
    }

    /// Sinks that are counted in the merge alone, and not rescaled there; splits are right without them then.
    fn sink_of_merge(&mut self) {
        let Some(scores) = self.right.step(Name::SplitMax).map(|step| self.read(step)) else {
            return;
        };
        let Some(scores) = scores.first().copied() else { return };
        let slip = |stage: PartStage| Parted { stage, slip: Some(PartSlip::SinkUnshifted) };
        let read = || vec![Name::SplitLse, Name::Sinks];
        let without = [
            Edit::new(Name::SplitMax, Change::Read(vec![scores])),
            Edit::new(Name::SplitSum, Change::Read(vec![scores, Name::SplitMax])),
        ];
        let share = Change::Become(slip(PartStage::Share).into(), read());
        let share = Edit::new(Name::SplitWeights, share);
        for stage in [slip(PartStage::Merge), PartStage::Merge.right()] {
            let lse = Edit::new(Name::Lse, Change::Become(stage.into(), read()));
            let edits = without.iter().cloned().chain([lse, share.clone()]).collect();
            let told =
                tr!("the merge adds exp(sink) to its sum: the maximum is not subtracted from it");
            self.add_all(Kind::Replaced, cost::COMMON, edits, Name::SplitWeights, told);
        }
    }

    /// Splits that an item has no keys in, where the results of another item are left.
    fn stale_splits(&mut self) {
        let Some(Ok(lse)) = self.right.step(Name::SplitLse).map(|step| cells(&step.value)) else {
            return;
        };
        let shape =
            self.right.step(Name::SplitLse).map(|step| step.axes.shape()).unwrap_or_default();
        let [splits, items, ..] = shape[..] else { return };
        let each = lse.len().checked_div(splits * items).unwrap_or(0).max(1);
        let is_empty: Vec<bool> =
            lse.chunks(each).map(|own| own.iter().all(|lse| *lse == f64::NEG_INFINITY)).collect();
        let (first, before) = (|_: usize| 0, |item: usize| item.saturating_sub(1));
        let all: [(&dyn Fn(usize) -> usize, &str); 2] = [
            (
                &first,
                tr!(
                    "splits that an item has no keys in hold the results of item 0, and are merged"
                ),
            ),
            (
                &before,
                tr!(
                    "splits that an item has no keys in hold the results of the item before, and are merged"
                ),
            ),
        ];
        for (from, told) in all {
            let mut edits = Vec::new();
            for split in 0..splits {
                let own = |item: usize| is_empty.get(split * items + item) == Some(&true);
                // What was left there may have been left before.
                let place = |item: usize| {
                    (0..items).fold(item, |at, _| if own(at) { from(at) } else { at })
                };
                let places: Vec<usize> = (0..items).map(place).collect();
                if places.iter().copied().eq(0..items) {
                    continue;
                }
                for name in [Name::SplitOutputs, Name::SplitLse] {
                    let take = after(Slip::Along(1, Along::Take(places.clone())), &[]);
                    edits.push(Edit::new(name, Change::Confined(Box::new(take), 0, vec![split])));
                }
            }
            if !edits.is_empty() {
                self.add_all(Kind::Axes, cost::PLAIN, edits, Name::SplitOutputs, told);
            }
        }
    }

    /// Splits that are averaged by how many keys each has.
    fn by_count(&mut self, count: usize) {
        let Some(Op::Parted(own)) = self.right.step(Name::SplitWeights).map(|step| &step.op) else {
            return;
        };
        let Some(parts) = self.right.parts() else { return };
        let keys: Vec<usize> = parts
            .keys
            .iter()
            .map(|spans| spans.iter().map(|(first, end)| end.saturating_sub(*first)).sum())
            .collect();
        let total: usize = keys.iter().sum();
        // Of as many keys each it is the plain mean.
        if keys.iter().all(|own| Some(own) == keys.first()) || total == 0 {
            return;
        }
        let shares = keys.iter().map(|own| (own * count) as f64 / total as f64).collect();
        let mean = Parted { slip: Some(PartSlip::Mean), ..own.clone() };
        let edits = vec![
            Edit::new(Name::SplitWeights, after(Slip::Along(0, Along::Each(shares)), &[])),
            Edit::new(Name::SplitWeights, Change::Replace(mean.into())),
        ];
        let told = tr!("the splits are averaged by how many keys each has, whatever they weigh");
        self.add_all(Kind::Replaced, cost::COMMON, edits, Name::SplitWeights, told);
    }

    /// Log-sum-exps of splits that are weighed by another factor, or of which one stands for all.
    fn other_weights(&mut self, count: usize, scale: Option<f64>) {
        let Some(own) = self.right.step(Name::SplitLse) else { return };
        let read = || vec![Name::SplitLse];
        let weighed =
            Change::Become(Slip::Weigh(Weigh::Over(vec![own.axes.rank()])).into(), read());
        let weighed = Edit::new(Name::SplitWeights, weighed);
        if let Some(factor) = scale {
            let scaled = Change::before(0, Scaling::By { factor });
            let edits = vec![weighed.clone(), Edit::new(Name::SplitWeights, scaled)];
            let told = tr!("the log-sum-exps of the splits are multiplied by the scale once more");
            self.add_all(Kind::Inserted, cost::COMMON, edits, Name::SplitWeights, told);
        }
        let largest = Change::Become(
            Slip::Weigh(Weigh::Over(vec![own.axes.rank()])).into(),
            vec![Name::SplitMax],
        );
        // log ℓ − m is the log-sum-exp without twice the maximum.
        let twice = Slip::Add { factor: -2.0, addend: 0.0 };
        let twice = Change::Before(0, twice.into(), vec![Name::SplitMax]);
        let edits = vec![weighed.clone(), Edit::new(Name::SplitWeights, twice)];
        let told =
            tr!("the sums of the splits are rescaled by the inverse: exp(M − m) for exp(m − M)");
        self.add_all(Kind::Replaced, cost::COMMON, edits, Name::SplitWeights, told);
        let told = tr!("the splits are weighed by their maxima alone: exp(m), without their sums");
        self.add(Kind::Replaced, cost::COMMON, Name::SplitWeights, largest, told);
        self.by_count(count);
        for precision in [Precision::Bf16, Precision::F16] {
            let round = Change::before(0, Slip::Round(precision));
            let of_weights = Edit::new(Name::SplitWeights, round.clone());
            let of_all = vec![Edit::new(Name::Lse, round), of_weights.clone()];
            let told = tr!(
                "the log-sum-exps of the splits are rounded to {precision} before the merge",
                precision = precision.name()
            );
            for edits in [vec![of_weights.clone()], of_all, vec![weighed.clone(), of_weights]] {
                self.add_all(Kind::Inserted, cost::PLAIN, edits, Name::SplitWeights, &told);
            }
        }
        let axes: Vec<Dim> = own.axes.iter().skip(1).collect();
        let both = |change: &Change| {
            [Name::Lse, Name::SplitWeights].map(|name| Edit::new(name, change.clone())).to_vec()
        };
        for at in 0..count {
            let numbers =
                (0..count).map(|own| if own == at { std::f64::consts::LN_2 } else { 0.0 });
            let cells =
                Tensor::from_vec(numbers.collect::<Vec<_>>(), (count, 1, 1, 1), &Device::Cpu);
            let Ok(cells) = cells else { return };
            let twice = Slip::Counted(Block { cells, fill: 0.0 });
            let told = tr!("split {at} is merged twice", at);
            self.add_all(
                Kind::Repeated,
                cost::COMMON,
                both(&Change::before(0, twice)),
                Name::Lse,
                told,
            );
        }
        for most in [2, 4, 8, 16, 32, 64].into_iter().filter(|most| *most < count) {
            let shape = (count, 1, 1, 1);
            let cells: Vec<u8> = (0..count).map(|at| u8::from(at >= most)).collect();
            let Ok(cells) = Tensor::from_vec(cells, shape, &Device::Cpu) else { return };
            let block = Slip::Block(Block { cells, fill: f64::NEG_INFINITY });
            let edits = both(&Change::before(0, block));
            let told = tr!("only the first {most} of {count} splits are merged", most, count);
            self.add_all(Kind::Axes, cost::COMMON, edits, Name::Lse, told);
        }
        let group = self.sizes.heads / self.sizes.kv_heads.max(1);
        let of_heads: [(&dyn Fn(usize) -> usize, &str); 2] = [
            (
                &|head| head / group,
                tr!("each query head has the log-sum-exps of the head with its key head's number"),
            ),
            (
                &|head| head / group * group,
                tr!("each query head has the log-sum-exps of the first of its group"),
            ),
        ];
        if let Some(axis) =
            own.axes.iter().position(|(axis, _)| axis == Axis::Head).filter(|_| group > 1)
        {
            for (from, told) in of_heads {
                let take = Along::Take((0..self.sizes.heads).map(from).collect());
                let change = Change::before(0, Slip::Along(axis, take));
                let taken = Edit::new(Name::SplitWeights, change.clone());
                for edits in [both(&change), vec![taken.clone()], vec![weighed.clone(), taken]] {
                    self.add_all(Kind::Axes, cost::COMMON, edits, Name::SplitWeights, told);
                }
            }
        }
        for at in [0, count - 1] {
            let view =
                own.axes.iter().take(1).map(|(axis, _)| (axis, 1)).chain(axes.clone()).collect();
            let one = Collect { slice: Some((0, at)), view, over: vec![0], axes: axes.clone() };
            let one = Change::Become(Gradient::Collect(one).into(), read());
            let edits = vec![Edit::new(Name::Lse, one), weighed.clone()];
            let told = tr!("it is that of split {at} alone, not merged", at);
            self.add_all(Kind::Input, cost::COMMON, edits, Name::Lse, told);
        }
    }
}
