//! Which rows of biases, and of results of splits, are read as far apart as others stand in memory?

use super::Grammar;
use crate::candidate::cost;
use program::{Along, Change, Edit, Kind, Name, Parts, Slip};

/// Rows are as long as whole blocks of so many numbers, where they are padded.
const BLOCKS: [usize; 5] = [4, 8, 16, 32, 64];
/// Of more numbers nothing is tried.
const MOST: usize = 1 << 18;

/// How far apart rows of so many places may be taken to stand.
fn pitches(size: usize) -> Vec<usize> {
    let mut all = vec![size + 1, size.saturating_sub(1), size.next_power_of_two()];
    all.extend(BLOCKS.map(|block| size.next_multiple_of(block)));
    all.retain(|pitch| *pitch != size && *pitch > 0);
    all.sort_unstable();
    all.dedup();
    all
}

impl Grammar<'_> {
    /// Rows of a bias, (head, query, key), that are read as far apart as wider or narrower ones stand.
    pub(super) fn pitch_of_bias(&mut self) {
        let Some(step) = self.right.step(Name::ScoresBiased) else { return };
        let Some(bias) = self.right.read_by(step).get(1).copied() else { return };
        let shape = bias.axes.shape();
        let [.., queries, keys] = shape[..] else { return };
        let count: usize = shape.iter().product();
        if queries < 2 || count > MOST {
            return;
        }
        let (input, plane) = (bias.name, queries * keys);
        let mut all = pitches(keys);
        all.extend(Some(queries).filter(|pitch| *pitch != keys && !all.contains(pitch)));
        for pitch in all {
            let told = tr!(
                "the rows of {input} are read {pitch} numbers apart, and are {keys} apart",
                input,
                pitch,
                keys
            );
            let within = |at: usize| at / keys % queries * pitch + at % keys;
            // What stands behind the end of a head is the next head, or is taken for 0.
            let on = |at: usize| (at / plane * plane + within(at)).min(count);
            let ended = |at: usize| if within(at) < plane { on(at) } else { count };
            let all_rows = |at: usize| (at / keys * pitch + at % keys).min(count);
            let places: [&dyn Fn(usize) -> usize; 3] = [&on, &ended, &all_rows];
            for place in places {
                let slip = Slip::Elsewhere((0..count).map(place).collect());
                self.add(Kind::Axes, cost::PLAIN, step.name, Change::before(1, slip), &told);
            }
        }
    }

    /// Position biases by the place in a part.
    pub(super) fn local_bias(&mut self, parts: &Parts) {
        let Some(step) = self.right.step(Name::ScoresBiased) else { return };
        let Some(bias) = self.right.read_by(step).get(1).copied() else { return };
        let axis = bias.axes.rank().saturating_sub(1);
        let keys = bias.axes.shape().last().copied().unwrap_or_default();
        let starts = Self::starts(parts, keys);
        let name = parts.axis.told();
        let last = starts.last().copied().unwrap_or_default();
        let end_of = |start: usize| starts.iter().copied().find(|own| *own > start).unwrap_or(keys);
        let local = |key: usize| key - starts[key];
        let rules: [(&dyn Fn(usize) -> usize, String); 3] = [
            (
                &local,
                tr!(
                    "the position bias counts keys from the start of the {name}: a local index, not a global one",
                    name
                ),
            ),
            (
                &|key| if starts[key] == last { local(key) } else { key },
                tr!(
                    "the position bias counts keys from the start of the last {name} there: a local index, not a global one",
                    name
                ),
            ),
            (
                &|key| key + keys - end_of(starts[key]),
                tr!(
                    "the position bias counts keys from the end of each {name}, as if all keys ended there",
                    name
                ),
            ),
        ];
        for (place, told) in rules {
            let places: Vec<usize> = (0..starts.len()).map(place).collect();
            if places.iter().copied().ne(0..keys) {
                let change = Change::before(1, Slip::Along(axis, Along::Take(places)));
                self.add(Kind::Axes, cost::COMMON, Name::ScoresBiased, change, told);
            }
        }
    }

    /// Results of splits, which lie in memory as (item, head, split), read with as many splits for each head as others have: one
    /// more or less, up to a whole block, or those that the item's keys fill.
    pub(super) fn pitch_of_splits(&mut self) {
        let Some(lse) = self.right.step(Name::SplitLse) else { return };
        let [splits, items, heads, 1] = lse.axes.shape()[..] else { return };
        let width = |name: Name| self.right.step(name)?.axes.shape().last().copied();
        let width = width(Name::SplitOutputs).unwrap_or_default();
        if lse.axes.shape().iter().product::<usize>().saturating_mul(width) > MOST {
            return;
        }
        let sizes = [splits, items, heads];
        let of = |apart: Vec<usize>, moves_items| Pitch { sizes, apart, moves_items };
        let mut all: Vec<Pitch> =
            pitches(splits).into_iter().map(|pitch| of(vec![pitch; items], true)).collect();
        let filled = self.filled_splits(splits, items);
        all.extend(Some(of(filled, false)).filter(|own| own.apart != vec![splits; items]));
        for pitch in all {
            let mut apart: Vec<String> = pitch.apart.iter().map(ToString::to_string).collect();
            apart.dedup();
            let told = tr!(
                "the merge reads the splits of each head {apart} splits apart in memory, and they are {splits} apart",
                apart = apart.join(", "),
                splits
            );
            let read = |name: Name, width: usize| {
                Edit::new(name, Change::before(0, Slip::Elsewhere(pitch.places(width))))
            };
            let outputs = read(Name::HeadOutputs, width);
            let sums = [Name::Lse, Name::SplitWeights].map(|name| read(name, 1)).to_vec();
            let both = sums.iter().chain([&outputs]).cloned().collect();
            for (edits, at, told) in [
                (vec![outputs], Name::HeadOutputs, tr!("{told}: their outputs", told)),
                (sums, Name::Lse, tr!("{told}: their log-sum-exps", told)),
                (both, Name::Lse, told.clone()),
            ] {
                self.add_all(Kind::Axes, cost::PLAIN, edits, at, told);
            }
        }
    }

    /// How many of so many splits the keys of each item fill, wholly or in part.
    fn filled_splits(&self, splits: usize, items: usize) -> Vec<usize> {
        let size = self.right.parts().and_then(|parts| parts.keys.first()?.first().copied());
        let size = size.map_or(0, |(from, to)| to - from);
        let seen = self.own_mask().map(|own| own.seen_ends()).unwrap_or_default();
        let filled = |end: &usize| if size > 0 { end.div_ceil(size) } else { splits };
        (0..items).map(|item| seen.get(item).map_or(splits, filled)).collect()
    }
}

/// How results of splits are read that lie in memory as (item, head, split).
struct Pitch {
    /// How many splits, items and heads there are.
    sizes: [usize; 3],
    /// How many splits apart the heads of each item are read.
    apart: Vec<usize>,
    /// Whether items are as many heads apart, and not where they stand.
    moves_items: bool,
}

impl Pitch {
    /// The place that is read for each of (split, item, head, feature).
    fn places(&self, width: usize) -> Vec<usize> {
        let [splits, items, heads] = self.sizes;
        let count = splits * items * heads * width;
        let place = |at: usize| {
            let (feature, head) = (at % width, at / width % heads);
            let (item, split) = (at / width / heads % items, at / width / heads / items);
            let apart = self.apart[item];
            let first = item * heads * if self.moves_items { apart } else { splits };
            let read = first + head * apart + split;
            let (item, head, split) = (read / splits / heads, read / splits % heads, read % splits);
            if item < items {
                ((split * items + item) * heads + head) * width + feature
            } else {
                count
            }
        };
        (0..count).map(place).collect()
    }
}
