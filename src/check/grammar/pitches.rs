//! Which rows of biases, and of results of splits, are read as far apart as others stand in memory?

use super::Grammar;
use crate::candidate::cost;
use program::{Change, Edit, Kind, Name, Slip};

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

    /// Results of splits, which lie in memory as (item, head, split), read with as many splits for each head as others have: one
    /// more or less, up to a whole block, or those that the item's keys fill.
    pub(super) fn pitch_of_splits(&mut self) {
        let Some(lse) = self.right.step(Name::SplitLse) else { return };
        let [splits, items, heads, 1] = lse.axes.shape()[..] else { return };
        let size = self.right.parts().and_then(|parts| parts.keys.first()?.first().copied());
        let size = size.map_or(0, |(from, to)| to - from);
        let seen = self.own_mask().map(|own| own.seen_ends()).unwrap_or_default();
        let filled: Vec<usize> = (0..items)
            .map(|item| {
                seen.get(item).filter(|_| size > 0).map_or(splits, |end| end.div_ceil(size))
            })
            .collect();
        let whole = vec![splits; items];
        let mut all: Vec<(Vec<usize>, bool, String)> = Vec::new();
        for pitch in pitches(splits) {
            let told = pitch.to_string();
            all.push((vec![pitch; items], true, told));
        }
        if filled != whole {
            let told: Vec<String> = filled.iter().map(ToString::to_string).collect();
            all.push((filled, false, told.join(", ")));
        }
        for (pitches, moves_items, told) in all {
            let told = tr!(
                "the merge reads the splits of each head {told} splits apart in memory, and they are {splits} apart",
                told,
                splits
            );
            let places = |width: usize| -> Vec<usize> {
                let all = (0..splits * items * heads * width).map(|at| {
                    let feature = at % width;
                    let head = at / width % heads;
                    let item = at / width / heads % items;
                    let split = at / width / heads / items;
                    let pitch = pitches[item];
                    let row = if moves_items {
                        (item * heads + head) * pitch
                    } else {
                        item * heads * splits + head * pitch
                    };
                    let read = row + split;
                    let [item, head, split] =
                        [read / splits / heads, read / splits % heads, read % splits];
                    let place = ((split * items + item) * heads + head) * width + feature;
                    if item < items { place } else { splits * items * heads * width }
                });
                all.collect()
            };
            let width = |name: Name| self.right.step(name)?.axes.shape().last().copied();
            let of_outputs = width(Name::SplitOutputs).map(|width| {
                Edit::new(Name::HeadOutputs, Change::before(0, Slip::Elsewhere(places(width))))
            });
            let of_sums = [Name::Lse, Name::SplitWeights]
                .map(|name| Edit::new(name, Change::before(0, Slip::Elsewhere(places(1)))));
            let outputs: Vec<Edit> = of_outputs.into_iter().collect();
            let both = [&of_sums[..], &outputs[..]].concat();
            for (edits, at, what) in [
                (outputs, Name::HeadOutputs, tr!("{told}: their outputs", told)),
                (of_sums.to_vec(), Name::Lse, tr!("{told}: their log-sum-exps", told)),
                (both, Name::Lse, told.clone()),
            ] {
                if !edits.is_empty() {
                    self.add_all(Kind::Axes, cost::PLAIN, edits, at, what);
                }
            }
        }
    }
}
