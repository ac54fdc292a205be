//! Which splits or tiles can be left out, done twice, begin at another key, or be masked as others are?

use super::part_keys::{Keys, apart_by_others, rounded, with_first};
use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use candle_core::{Device, Tensor};
use program::{
    Along, Axis, Block, Change, Edit, Kind, Name, Op, PartSlip, PartStage, Parted, Parts, Scaling,
    Slip,
};

/// How many queries tiles of kernels have.
const ROWS: [usize; 9] = [8, 16, 24, 32, 48, 64, 96, 128, 192];

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
        self.one_part_of_others(&parts, steps[2]);
        self.together(&parts, steps, is_tile);
        self.of_one_part(&parts);
        self.other_loads(&parts, steps[2]);
        self.beyond_its_head(&parts, steps);
        self.undone_in_one(&parts);
        self.scaled_otherwise_in_one(&parts);
        let size = parts.keys.first().and_then(|spans| spans.first()).map(|(from, to)| to - from);
        if let Some(size) = size.filter(|size| *size > 0) {
            let rows = parts.queries.unwrap_or(size);
            if is_tile {
                self.floored_maximum();
                self.in_one_tile(&parts, steps);
                self.moved_bias((rows, size));
                self.edge_twice([steps[1], steps[2]], (rows, size));
                self.in_two_stages([steps[1], steps[2]], (rows, size), cost::COMMON);
                // A tile of queries that is not stated may have another length than one of keys.
                let others = if parts.queries.is_none() { &ROWS[..] } else { &[] };
                for other in others.iter().copied().filter(|other| other % size > 0) {
                    self.in_two_stages([steps[1], steps[2]], (other, size), cost::PLAIN);
                }
                self.factor_of_first_row([steps[1], steps[2]], rows);
                self.factor_of_other_scale();
                self.reduced_again(steps[1]);
                self.other_queries(rows);
                self.turned_bias((rows, size));
                self.not_rescaled([steps[1], steps[2]], (rows, size));
                self.capped_at_the_edge((rows, size));
                self.not_cleared([steps[1], steps[2]], rows);
                self.keys_of_last(&parts, rows);
            }
            self.sum_before_mask(steps[1], (if is_tile { rows } else { usize::MAX }, size));
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
                let before = &parts.keys[at - 1];
                let same = before.iter().zip(spans).map(|((first, end), own)| {
                    (*first, (*end).min(first + own.1.saturating_sub(own.0)))
                });
                let stale = tr!("{told} reads the keys of the one before it", told);
                all.push((changed(at, same.collect()), stale));
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
        all.extend(rounded(parts));
        let most = parts.keys.iter().flatten().map(|(_, end)| *end).max().unwrap_or_default();
        let longer =
            |(first, end): (usize, usize)| (first, (end + usize::from(first < end && end < most)));
        let ends = parts.keys.iter().map(|spans| spans.iter().copied().map(longer).collect());
        let told = tr!(
            "every {name} ends with the first key of the next (an inclusive end): keys at the edges are counted twice",
            name
        );
        all.push((ends.collect(), told));
        all.extend(with_first(parts));
        all.extend(apart_by_others(parts, most));
        let count = |spans: &[(usize, usize)]| spans.first().map_or(0, |(from, to)| to - from);
        if let [first, .., last] = &parts.keys[..]
            && count(last) > count(first)
            && count(first) > 0
        {
            let cut = last.iter().map(|(from, to)| (*from, (*to).min(from + count(first))));
            let told = tr!(
                "the last {name} is no longer than the first: the keys behind it are never seen",
                name
            );
            all.push((changed(parts.keys.len() - 1, cut.collect()), told));
        }
        if let [first, .., last] = &parts.keys[..]
            && count(last) < count(first)
        {
            let whole = last.iter().map(|(_, to)| (to.saturating_sub(count(first)), *to));
            let told = tr!(
                "the last {name} is as long as the first, and ends with the last key: keys before it are counted twice",
                name
            );
            all.push((changed(parts.keys.len() - 1, whole.collect()), told));
        }
        for (keys, told) in all {
            let edits: Edits =
                steps.iter().filter_map(|step| self.with_keys(*step, &keys)).collect();
            self.add_all(Kind::Axes, cost::COMMON, edits, steps[0], told);
        }
    }

    /// A step of parts, of these keys.
    pub(super) fn with_keys(&self, at: Name, keys: &Keys) -> Option<Edit> {
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
    fn together(&mut self, parts: &Parts, [of_max, of_sum, of_acc]: [Name; 3], is_tile: bool) {
        let last = [Name::Lse, Name::HeadOutputs];
        let of_all: &[(PartSlip, &[Name])] = &[
            (PartSlip::TailReversed, &[of_sum]),
            (PartSlip::TailReversed, &[of_max, of_sum]),
            (PartSlip::PaddedTail, &[of_sum]),
            (PartSlip::PaddedTail, &[of_max, of_sum]),
            (PartSlip::ClampedTail, &[of_sum]),
            (PartSlip::ClampedTail, &[of_acc]),
            (PartSlip::ClampedTail, &[of_sum, of_acc]),
            (PartSlip::BaseTwo, &[of_sum, of_acc]),
            (PartSlip::InBf16, &[of_sum, of_acc]),
            (PartSlip::CutInt8, &[of_acc]),
            (PartSlip::CutInt8, &[of_sum, of_acc]),
            (PartSlip::WholeInt8, &[of_acc]),
            (PartSlip::EmptyNan, &[Name::TileFactor, of_sum, of_acc]),
            (PartSlip::PolynomialOfTrunc, &[of_sum, of_acc]),
            (PartSlip::LinearFraction, &[of_sum, of_acc]),
            (PartSlip::WholeAlone, &[of_sum, of_acc]),
            (PartSlip::FractionAlone, &[of_sum, of_acc]),
            (PartSlip::SinkEach, if is_tile { &last } else { &[of_max, of_sum] }),
        ];
        let of_tiles: &[(PartSlip, &[Name])] = &[
            (PartSlip::OldSum, &last),
            (PartSlip::SinkUnshifted, &last),
            (PartSlip::Overwritten, &[of_sum, of_acc]),
            (PartSlip::KeptInBf16, &[of_sum, of_acc]),
            (PartSlip::NotRescaled, &[of_sum, of_acc]),
            (PartSlip::BinaryExp, &[of_sum, of_acc]),
            (PartSlip::BinaryFactor, &[of_sum, of_acc]),
            (PartSlip::Squared, &[of_sum, of_acc]),
            (PartSlip::AlongFeatures, &[of_acc]),
            (PartSlip::FromOne, &[of_max, Name::TileFactor, of_sum]),
            (PartSlip::OldMax, &[of_sum, of_acc]),
            (PartSlip::AllRescaled, &[of_sum, of_acc]),
            (PartSlip::DividedEach, &[of_acc]),
            (PartSlip::DividedBetween, &[of_acc]),
            (PartSlip::MaxRestarted, &[of_max, of_sum, of_acc]),
            (PartSlip::SumsRestarted, &[of_sum]),
            (PartSlip::SumsRestarted, &[of_acc]),
            (PartSlip::SumsRestarted, &[of_sum, of_acc]),
            (PartSlip::LastValues, &[of_acc]),
            (PartSlip::RowsCarried, &[of_max, of_sum, of_acc]),
            (PartSlip::AllCarried, &[of_max, of_sum, of_acc]),
            (PartSlip::HalvesApart, &[of_max, of_sum, of_acc]),
            (PartSlip::QuartersApart, &[of_max, of_sum, of_acc]),
            (PartSlip::FirstHalfKept, &[of_max, of_sum, of_acc]),
            (PartSlip::LastHalfKept, &[of_max, of_sum, of_acc]),
            (PartSlip::FirstQuarterKept, &[of_max, of_sum, of_acc]),
            (PartSlip::LastQuarterKept, &[of_max, of_sum, of_acc]),
            (PartSlip::MaxInBf16, &[of_max, of_sum, of_acc]),
            (PartSlip::BinaryMaxInBf16, &[of_max, of_sum, of_acc]),
        ];
        for (slip, steps) in of_all.iter().chain(of_tiles.iter().filter(|_| is_tile)).copied() {
            let needs_sinks = matches!(slip, PartSlip::SinkEach | PartSlip::SinkUnshifted);
            if needs_sinks && self.right.step(Name::Sinks).is_none() {
                continue;
            }
            let mut edits: Edits = steps.iter().filter_map(|at| self.slipped(*at, slip)).collect();
            if slip == PartSlip::DividedEach {
                edits.extend(self.slipped(Name::HeadOutputs, PartSlip::Undivided));
            }
            let kind = if slip == PartSlip::InBf16 { Kind::Precision } else { Kind::Replaced };
            let at = edits.first().map_or(of_sum, |edit| edit.at);
            self.add_all(kind, cost::COMMON, edits.clone(), at, slip.told());
            if is_tile {
                self.slipped_in_reverse(parts, [of_max, of_sum, of_acc], edits, slip);
            }
        }
        self.half_of_lanes(of_sum);
        if is_tile {
            return;
        }
        for slip in [
            PartSlip::Unshifted,
            PartSlip::BaseMixed,
            PartSlip::BinaryMerge,
            PartSlip::EmptyInfinite,
        ] {
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

    /// A running maximum that begins with 0, or the smallest positive number: it is never below it.
    fn floored_maximum(&mut self) {
        let told = tr!(
            "the running maximum begins at 0, or at the smallest positive number (FLT_MIN), not at −∞: low scores underflow"
        );
        let floor = after(Slip::Bound { limit: 0.0, above: false }, &[]);
        // Where nothing is left of the sum, 0 / 0 is NaN.
        let edits = vec![Edit::new(Name::TileMax, floor)];
        let unguarded = self.slipped(Name::HeadOutputs, PartSlip::EmptyNan);
        let both = unguarded.map(|last| edits.iter().cloned().chain([last]).collect::<Edits>());
        for edits in std::iter::once(edits.clone()).chain(both) {
            self.add_all(Kind::Replaced, cost::COMMON, edits, Name::TileMax, told);
        }
    }

    /// What was added up before is rescaled by the factor of scores that are scaled once more, or not at all.
    fn factor_of_other_scale(&mut self) {
        let Some(scale) = self.scale_at(Name::Scores) else { return };
        for (factor, told) in [
            (
                scale.recip(),
                tr!("the factor that rescales is of unscaled maxima: the scale is missing"),
            ),
            (scale, tr!("the factor that rescales has the scale twice")),
            (
                std::f64::consts::LN_2 / scale,
                tr!(
                    "the factor that rescales is exp2 of unscaled maxima: the scale and log2 e are missing"
                ),
            ),
        ] {
            let change = Change::before(0, Scaling::By { factor });
            self.add(Kind::Inserted, cost::COMMON, Name::TileFactor, change, told);
        }
    }

    /// A sum that lanes or warps share already is reduced over them again at every tile, so that all before it counts several
    /// times.
    fn reduced_again(&mut self, of_sum: Name) {
        let Some(read) = self.right.step(of_sum).map(|step| self.read(step)) else { return };
        let Some(slot) = read.iter().position(|read| *read == Name::TileFactor) else { return };
        for count in [2_u32, 4, 8, 32] {
            let told = tr!(
                "what was summed before is added up over {count} lanes or warps again at every tile: each has the whole sum already",
                count
            );
            let change = Change::before(slot, Scaling::By { factor: f64::from(count) });
            self.add(Kind::Repeated, cost::COMMON, of_sum, change, told);
        }
    }

    /// What was added up before is rescaled by the factor of the first query of each tile, for all of them.
    fn factor_of_first_row(&mut self, steps: [Name; 2], rows: usize) {
        let first = (0..self.sizes.query_count()).map(|row| row / rows.max(1) * rows.max(1));
        let take = Slip::Along(3, Along::Take(first.collect()));
        let edit = |at: Name| {
            let read = self.right.step(at).map(|step| self.read(step))?;
            let slot = read.iter().position(|read| *read == Name::TileFactor)?;
            Some(Edit::new(at, Change::before(slot, take.clone())))
        };
        let told = tr!(
            "what was added up before is rescaled by the factor of the first query of its tile ({rows} queries each), not by each row's own",
            rows
        );
        let edits: Vec<Edits> = vec![
            steps.iter().filter_map(|at| edit(*at)).collect(),
            edit(steps[1]).into_iter().collect(),
        ];
        for edits in edits {
            self.add_all(Kind::Axes, cost::COMMON, edits, steps[0], &told);
        }
    }

    /// A sum of the numbers of every other group of keys, as where half of the lanes of a warp are left out.
    fn half_of_lanes(&mut self, of_sum: Name) {
        let keys = self.sizes.keys();
        for size in [1, 2, 4, 8, 16].into_iter().filter(|size| *size < keys) {
            for (is_first, which) in [(false, tr!("the last")), (true, tr!("the first"))] {
                let out = (0..keys).map(|key| u8::from((key / size).is_multiple_of(2) == is_first));
                let cells = Tensor::from_vec(out.collect(), (1, 1, 1, keys), &Device::Cpu);
                let Ok(cells) = cells else { return };
                let block = Slip::Block(Block { cells, fill: f64::NEG_INFINITY });
                let change = Change::before(0, block);
                let told = tr!(
                    "{which} {size} of every {all} keys are left out of the sum",
                    which,
                    size,
                    all = 2 * size
                );
                self.add(Kind::Axes, cost::RARE, of_sum, change, told);
            }
        }
    }

    /// What goes wrong in one part alone.
    fn of_one_part(&mut self, parts: &Parts) {
        let lse = if parts.axis == Axis::Tile { Name::Lse } else { Name::SplitLse };
        let scale = self.scale_at(Name::Scores);
        for (factor, told) in scale.into_iter().flat_map(|scale| {
            [
                (scale, tr!("the maximum in the log-sum-exp is multiplied by the scale twice")),
                (scale.recip(), tr!("the maximum in the log-sum-exp is that of unscaled scores: the scale is missing")),
            ]
        }) {
            let change = Change::before(0, Scaling::By { factor });
            self.add(Kind::Inserted, cost::COMMON, lse, change, told);
        }
        let binary = Scaling::By { factor: std::f64::consts::LOG2_E };
        let change = Change::before(0, binary);
        let told = tr!("the maximum in the log-sum-exp is in base 2: ln 2 is missing");
        self.add(Kind::Omitted, cost::COMMON, lse, change, told);
        self.local_bias(parts);
        if lse == Name::SplitLse {
            self.of_merge(parts.keys.len(), scale);
        }
    }

    /// The first key of every key's part.
    pub(super) fn starts(parts: &Parts, keys: usize) -> Vec<usize> {
        let mut starts = vec![0; keys];
        for (first, end) in parts.keys.iter().flatten() {
            starts.iter_mut().take(*end).skip(*first).for_each(|start| *start = *first);
        }
        starts
    }
}
