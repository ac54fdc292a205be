//! Which splits or tiles can be left out, done twice, begin at another key, or be masked as others are?

use super::Grammar;
use super::cells::Cells;
use crate::candidate::{Edits, cost};
use program::{
    Along, Axis, Change, Collect, Dim, Edit, Gradient, Kind, Name, Op, PartSlip, PartStage, Parted,
    Parts, Scaling, Slip, Weigh,
};

/// The keys of each part.
type Keys = Vec<Vec<(usize, usize)>>;

impl Grammar<'_> {
    /// What goes wrong in attention over splits or tiles of the keys.
    pub(super) fn of_parts(&mut self) {
        let Some(parts) = self.right.parts().cloned() else { return };
        let is_tile = parts.axis == Axis::Tile;
        let steps = if is_tile {
            [Name::TileMax, Name::TileSum, Name::TileAcc]
        } else {
            [Name::SplitMax, Name::SplitSum, Name::SplitAcc]
        };
        self.other_keys(&parts, steps);
        self.together(steps, is_tile);
        self.of_one_part(&parts);
        let size = parts.keys.first().and_then(|spans| spans.first()).map(|(from, to)| to - from);
        if let Some(size) = size.filter(|size| *size > 0) {
            let rows = parts.queries.unwrap_or(size);
            self.mask_with(|grammar, own| grammar.masked_by_part(own, &parts, (rows, size)));
        }
    }

    /// Parts of other keys.
    fn other_keys(&mut self, parts: &Parts, steps: [Name; 3]) {
        let name = parts.axis.told();
        let mut all: Vec<(Keys, String)> = Vec::new();
        // Of each sequence a part has some keys, or none.
        let each = |at: usize, change: fn((usize, usize)) -> (usize, usize)| {
            parts.keys[at].iter().copied().map(change).collect::<Vec<_>>()
        };
        let changed = |at: usize, spans: Vec<(usize, usize)>| {
            let mut keys = parts.keys.clone();
            keys[at] = spans;
            keys
        };
        let late = |(first, end): (usize, usize)| ((first + 1).min(end), end);
        let early =
            |(first, end): (usize, usize)| (first.saturating_sub(usize::from(first < end)), end);
        for (at, spans) in parts.keys.iter().enumerate() {
            let told = match spans[..] {
                _ if spans.iter().all(|(first, end)| first >= end) => continue,
                [(first, end)] => {
                    tr!("{name} {at} (keys {first} to {last})", name, at, first, last = end - 1)
                }
                _ => format!("{name} {at}"),
            };
            all.push((changed(at, Vec::new()), tr!("{told} is skipped: left out", told)));
            let twice = [spans.clone(), spans.clone()].concat();
            all.push((changed(at, twice), tr!("{told} is done twice", told)));
            let one_late = changed(at, each(at, late));
            all.push((
                one_late,
                tr!("{told} starts one key too late: its first key is never seen", told),
            ));
            if at > 0 {
                let one_early = changed(at, each(at, early));
                let told =
                    tr!("{told} starts one key early: the key before it is counted twice", told);
                all.push((one_early, told));
            }
            let shorter =
                changed(at, each(at, |(first, end)| (first, end.saturating_sub(1).max(first))));
            all.push((shorter, tr!("{told} ends one key early: its last key is never seen", told)));
        }
        let moved = |change: fn((usize, usize)) -> (usize, usize)| -> Keys {
            let spans = (1..parts.keys.len()).map(|at| each(at, change));
            parts.keys.first().cloned().into_iter().chain(spans).collect()
        };
        let told = tr!(
            "every {name} but the first starts one key early: keys at the edges are counted twice",
            name
        );
        all.push((moved(early), told));
        let told = tr!(
            "every {name} but the first starts one key too late: keys at the edges are never seen",
            name
        );
        all.push((moved(late), told));
        all.extend(with_first(parts));
        for (keys, told) in all {
            let edits: Edits =
                steps.iter().filter_map(|step| self.with_keys(*step, &keys)).collect();
            self.add_all(Kind::Axes, cost::COMMON, edits, steps[0], told);
        }
    }

    /// A step of parts, of these keys.
    fn with_keys(&self, at: Name, keys: &Keys) -> Option<Edit> {
        let Op::Parted(own) = &self.right.step(at)?.op else { return None };
        let mut own = own.clone();
        if let PartStage::Largest(parts) | PartStage::Sum(parts) | PartStage::Weighted(parts) =
            &mut own.stage
        {
            parts.keys.clone_from(keys);
        }
        Some(Edit::new(at, Change::Replace(own.into())))
    }

    /// A step of parts in which that goes wrong.
    fn slipped(&self, at: Name, slip: PartSlip) -> Option<Edit> {
        let Op::Parted(own) = &self.right.step(at)?.op else { return None };
        let own = Parted { slip: Some(slip), ..own.clone() };
        Some(Edit::new(at, Change::Replace(own.into())))
    }

    /// What goes wrong in several steps at once.
    fn together(&mut self, [of_max, of_sum, of_acc]: [Name; 3], is_tile: bool) {
        let all: [(PartSlip, &[Name]); 11] = [
            (PartSlip::PaddedTail, &[of_sum]),
            (PartSlip::PaddedTail, &[of_max, of_sum]),
            (PartSlip::NotRescaled, &[of_sum, of_acc]),
            (PartSlip::BaseTwo, &[of_sum, of_acc]),
            (PartSlip::BinaryFactor, &[of_sum, of_acc]),
            (PartSlip::Squared, &[of_sum, of_acc]),
            (PartSlip::AlongFeatures, &[of_acc]),
            (PartSlip::InBf16, &[of_sum, of_acc]),
            (PartSlip::EmptyNan, &[Name::TileFactor, of_sum, of_acc]),
            (PartSlip::FromOne, &[of_max, Name::TileFactor, of_sum]),
            (PartSlip::SinkEach, &[of_max, of_sum]),
        ];
        for (slip, steps) in all {
            let is_of_tiles = matches!(
                slip,
                PartSlip::NotRescaled
                    | PartSlip::FromOne
                    | PartSlip::BinaryFactor
                    | PartSlip::Squared
                    | PartSlip::AlongFeatures
            );
            let needs_sinks = slip == PartSlip::SinkEach;
            if is_of_tiles && !is_tile
                || needs_sinks && (is_tile || self.right.step(Name::Sinks).is_none())
            {
                continue;
            }
            let edits: Edits = steps.iter().filter_map(|at| self.slipped(*at, slip)).collect();
            let kind = if slip == PartSlip::InBf16 { Kind::Precision } else { Kind::Replaced };
            self.add_all(kind, cost::COMMON, edits, of_sum, slip.told());
        }
        if is_tile {
            return;
        }
        for slip in [PartSlip::Unshifted, PartSlip::BaseMixed] {
            let edits = [Name::Lse, Name::SplitWeights].iter();
            let edits: Edits = edits.filter_map(|at| self.slipped(*at, slip)).collect();
            self.add_all(Kind::Replaced, cost::COMMON, edits, Name::Lse, slip.told());
        }
        let sums = |stage: PartStage| Parted { stage, slip: Some(PartSlip::PlainSum) };
        let lse = Change::Become(sums(PartStage::Merge).into(), vec![of_max, of_sum]);
        let lse = Edit::new(Name::Lse, lse);
        let share = Change::Become(sums(PartStage::Share).into(), vec![of_max, of_sum]);
        let share = Edit::new(Name::SplitWeights, share);
        let told = PartSlip::PlainSum.told();
        for edits in [vec![lse.clone(), share.clone()], vec![lse], vec![share]] {
            self.add_all(Kind::Replaced, cost::COMMON, edits, Name::Lse, told);
        }
    }

    /// What goes wrong in one part alone.
    fn of_one_part(&mut self, parts: &Parts) {
        let count = parts.keys.len();
        let lse = if parts.axis == Axis::Tile { Name::Lse } else { Name::SplitLse };
        let root = self.right.step(Name::Scores).map(|step| step.op.clone());
        let scale = match root {
            Some(Op::Scaling(Scaling::Root { head_dim })) => {
                #[allow(clippy::cast_precision_loss, reason = "features are few")]
                let root = (head_dim as f64).sqrt();
                Some(root.recip())
            }
            Some(Op::Scaling(Scaling::By { factor })) => Some(factor),
            _ => None,
        };
        for (factor, told) in scale.into_iter().flat_map(|scale| {
            [
                (scale, tr!("the maximum in the log-sum-exp is multiplied by the scale twice")),
                (scale.recip(), tr!("the maximum in the log-sum-exp is that of unscaled scores: the scale is missing")),
            ]
        }) {
            let change = Change::Before(0, Scaling::By { factor }.into(), Vec::new());
            self.add(Kind::Inserted, cost::COMMON, lse, change, told);
        }
        let binary = Scaling::By { factor: std::f64::consts::LOG2_E };
        let change = Change::Before(0, binary.into(), Vec::new());
        let told = tr!("the maximum in the log-sum-exp is in base 2: ln 2 is missing");
        self.add(Kind::Omitted, cost::COMMON, lse, change, told);
        self.local_bias(parts);
        if lse == Name::SplitLse {
            self.of_merge(count, scale);
            self.of_other_splits();
            for at in 1..count {
                let before = at - 1;
                let places = (0..count).map(|place| if place == at { before } else { place });
                let late = Slip::Along(0, Along::Take(places.collect()));
                let told = tr!(
                    "the log-sum-exp of split {at} is stale: still that of split {before}",
                    at,
                    before
                );
                self.add(Kind::Axes, cost::COMMON, lse, super::after(late, &[]), told);
                let told = tr!("split {at} is dropped in the merge: left out", at);
                let none = Slip::Along(0, Along::Zero(vec![at]));
                self.add(
                    Kind::Axes,
                    cost::COMMON,
                    Name::SplitWeights,
                    super::after(none, &[]),
                    told,
                );
            }
        }
    }

    /// Maxima, sums and outputs of splits that are put together with those of others.
    fn of_other_splits(&mut self) {
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
        let count =
            self.right.step(Name::SplitLse).and_then(|step| step.axes.shape().first().copied());
        for at in 0..count.unwrap_or_default() {
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

    /// Log-sum-exps of splits that are weighed by another factor, or of which one stands for all.
    fn of_merge(&mut self, count: usize, scale: Option<f64>) {
        let Some(own) = self.right.step(Name::SplitLse) else { return };
        let read = || vec![Name::SplitLse];
        let weighed =
            Change::Become(Slip::Weigh(Weigh::Over(vec![own.axes.rank()])).into(), read());
        let weighed = Edit::new(Name::SplitWeights, weighed);
        if let Some(factor) = scale {
            let scaled = Change::Before(0, Scaling::By { factor }.into(), Vec::new());
            let edits = vec![weighed.clone(), Edit::new(Name::SplitWeights, scaled)];
            let told = tr!("the log-sum-exps of the splits are multiplied by the scale once more");
            self.add_all(Kind::Inserted, cost::COMMON, edits, Name::SplitWeights, told);
        }
        let axes: Vec<Dim> = own.axes.iter().skip(1).collect();
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

    /// The first key of every key's part.
    fn starts(parts: &Parts, keys: usize) -> Vec<usize> {
        let mut starts = vec![0; keys];
        for (first, end) in parts.keys.iter().flatten() {
            starts.iter_mut().take(*end).skip(*first).for_each(|start| *start = *first);
        }
        starts
    }

    /// Position biases by the place in a part.
    fn local_bias(&mut self, parts: &Parts) {
        let Some(step) = self.right.step(Name::ScoresBiased) else { return };
        let Some(bias) = self.right.read_by(step).get(1).copied() else { return };
        let axis = bias.axes.rank().saturating_sub(1);
        let keys = bias.axes.shape().last().copied().unwrap_or_default();
        let starts = Self::starts(parts, keys);
        let places = starts.iter().enumerate().map(|(key, start)| key - start).collect();
        let local = Slip::Along(axis, Along::Take(places));
        let change = Change::Before(1, local.into(), Vec::new());
        let name = parts.axis.told();
        let told = tr!(
            "the position bias counts keys from the start of the {name}: a local index, not a global one",
            name
        );
        self.add(Kind::Axes, cost::COMMON, Name::ScoresBiased, change, told);
    }

    /// Masks by parts of so many queries and keys.
    fn masked_by_part(
        &self,
        own: &Cells,
        parts: &Parts,
        size: (usize, usize),
    ) -> Vec<(Cells, String, u32)> {
        let mut all = Vec::new();
        self.tile(own, size, &mut |is_blocked, told| {
            let (m, n) = size;
            let told = tr!("{told} (tiles of {m} queries and {n} keys)", told, m, n);
            all.push((own.of(is_blocked), told, cost::COMMON));
        });
        let name = parts.axis.told();
        let starts = Self::starts(parts, own.keys);
        let local = |b: usize, q: usize, k: usize| own.at(b, q, k - starts[k]);
        let told = tr!(
            "the mask counts keys from the start of the {name}: a local index, not a global one",
            name
        );
        all.push((own.of(local), told, cost::COMMON));
        for (at, spans) in parts.keys.iter().enumerate() {
            let Some((first, end)) = spans.first().copied() else { continue };
            let open = |b: usize, q: usize, k: usize| own.at(b, q, k) && !(first..end).contains(&k);
            let told = tr!("the mask is not applied in {name} {at}", name, at);
            all.push((own.of(open), told, cost::COMMON));
        }
        all
    }
}

/// Parts that count the keys of the first, or all before their own, as well.
fn with_first(parts: &Parts) -> Vec<(Keys, String)> {
    let name = parts.axis.told();
    let starts = parts.keys.first().map(Vec::as_slice).unwrap_or_default();
    let with = |is_all: bool| -> Keys {
        let part = |spans: &Vec<(usize, usize)>| {
            let own = spans.iter().zip(starts).flat_map(|((first, end), (start, own))| {
                if is_all { vec![(*start, *end)] } else { vec![(*start, *own), (*first, *end)] }
            });
            own.collect()
        };
        let first = parts.keys.first().cloned();
        first.into_iter().chain(parts.keys.iter().skip(1).map(part)).collect()
    };
    vec![
        (
            with(false),
            tr!(
                "the keys of the first {name}, the prefix, are counted in every other as well",
                name
            ),
        ),
        (
            with(true),
            tr!("every {name} begins at the first key: all before it are counted again", name),
        ),
    ]
}
