//! Whose scale can numbers in few bits be given, and where can it be applied?

use std::collections::HashSet;

use candle_core::Tensor;

use super::blocks::{Loaded, taken_from};
use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use crate::cells::cells;
use program::{
    Along, Axis, Block, Change, Edit, Kind, Name, Parts, PowerOfTwo, Scaling, Slip, Step,
};

/// The scale that a kernel reads for a query head of an item, as its place in memory, where there are so many query heads
/// and key heads.
type Place = fn(usize, usize, [usize; 2]) -> usize;

impl Grammar<'_> {
    pub(super) fn scales(&mut self, step: &Step, scale: Name) {
        let at = step.name;
        self.scales_of_query_heads(at);
        self.scales_of_others(at, scale);
        self.scales_of_groups(at, scale);
        self.scale_behind_cap(step);
        self.summed_with_scales(step);
        self.other_exponents(step, scale);
        for power in PowerOfTwo::ALL {
            let name = power.name();
            let told = tr!("{scale} is rounded to a power of two: {name}", scale, name);
            let change = Change::before(1, Slip::ToPower(power));
            self.add(Kind::Replaced, cost::COMMON, at, change, told);
        }
    }

    /// Scales that are powers of two, kept as exponents, of which the bias is taken for another.
    fn other_exponents(&mut self, step: &Step, scale: Name) {
        let own = self.right.read_by(step).get(1).and_then(|own| cells(&own.value).ok());
        let is_power = |own: &f64| *own > 0.0 && own.log2().fract() == 0.0;
        if !own.is_some_and(|own| own.len() > 1 && own.iter().all(is_power)) {
            return;
        }
        for (bias, factor) in [(128, 0.5), (126, 2.0)] {
            let told = tr!(
                "{scale} is 2^(e − {bias}) and not 2^(e − 127): the exponents have another bias",
                scale,
                bias
            );
            let change = Change::before(1, Scaling::By { factor });
            self.add(Kind::Inserted, cost::COMMON, step.name, change, told);
        }
    }

    /// The scales of a step by item and head, where they are alike along all else; how many items and heads have their own.
    pub(super) fn by_head(&self, at: Name) -> Option<(Vec<f64>, [usize; 2])> {
        let scale = *self.right.read_by(self.right.step(at)?).get(1)?;
        let is_of_heads = |(axis, size)| size == 1 || matches!(axis, Axis::Batch | Axis::Head);
        let [items, heads, ..] = scale.axes.shape()[..] else { return None };
        let numbers = cells(&scale.value).ok()?;
        let is_it = scale.axes.iter().all(is_of_heads) && numbers.iter().all(|own| *own != 0.0);
        (is_it && numbers.len() == items * heads).then_some((numbers, [items, heads]))
    }

    /// Each item and query head of a step times its own number.
    fn each_head(&self, at: Name, number: impl Fn(usize, usize) -> f64) -> Option<Edits> {
        let items = self.right.step(at)?.axes.shape().first().copied()?;
        let factors = |item: usize| -> Vec<f64> {
            (0..self.sizes.heads).map(|head| number(item, head)).collect()
        };
        let each = |item| Along::Each(factors(item));
        let alike = (1..items).all(|item| factors(item) == factors(0));
        let edit = |along| Edit::new(at, after(Slip::Along(1, along), &[]));
        Some(if alike {
            vec![edit(each(0))]
        } else {
            let within = |item| {
                let (axis, places, along) = (0, vec![item], Box::new(each(item)));
                edit(Along::Within { axis, places, along })
            };
            (0..items).map(within).collect()
        })
    }

    /// Scales of key heads that each query head takes by another rule than its keys or values.
    fn scales_of_query_heads(&mut self, at: Name) {
        let (heads, groups) = (self.sizes.heads, self.sizes.kv_heads.max(1));
        if groups < 2 || heads <= groups {
            return;
        }
        let rules: [(Place, &str); 3] = [
            (
                |item, head, [_, groups]| item * groups + head % groups,
                tr!(
                    "each query head has the scale at its own number modulo the key heads, not its key head's"
                ),
            ),
            (
                |item, head, [_, groups]| item * groups + head,
                tr!(
                    "each query head has the scale at its own number, not its key head's: it runs into those of other key heads and items"
                ),
            ),
            (
                |item, head, [heads, _]| item * heads + head,
                tr!(
                    "each query head has the scale at item · query heads + its own number, as if there were one for each query head"
                ),
            ),
        ];
        let mut known = HashSet::new();
        for (place, told) in rules {
            // What is made of the keys, or the values, has their scales as factors.
            let all =
                [(Name::KDequantized, Name::ScoresRaw), (Name::VDequantized, Name::HeadOutputs)];
            let edits = |(own, made): (Name, Name)| {
                let (numbers, [items, count]) = self.by_head(own)?;
                // What lies behind the last one is not known.
                let read = |item: usize, head: usize| {
                    let item = if items == 1 { 0 } else { item };
                    let right = item * groups + head * groups / heads;
                    let read = place(item, head, [heads, groups]) % numbers.len();
                    numbers[read] / numbers[right]
                };
                let edits = (count == groups).then(|| self.each_head(made, read))??;
                Some((own, edits))
            };
            let edits: Vec<(Name, Edits)> = all.into_iter().filter_map(edits).collect();
            if !known.insert(format!("{edits:?}")) {
                continue;
            }
            if let [(first, key), (_, value)] = &edits[..]
                && at == *first
            {
                let both = [key.clone(), value.clone()].concat();
                self.add_all(Kind::Axes, cost::COMMON, both, Name::ScoresRaw, told);
            }
            for (_, edits) in edits.into_iter().filter(|(own, _)| *own == at) {
                let Some(made) = edits.first().map(|edit| edit.at) else { continue };
                self.add_all(Kind::Axes, cost::COMMON, edits, made, told);
            }
        }
    }

    /// Scores that are capped before the scale of the keys or queries, which is applied behind.
    fn scale_behind_cap(&mut self, step: &Step) {
        let (at, capped) = (step.name, Name::ScoresCapped);
        if at == Name::VDequantized || self.right.step(capped).is_none() {
            return;
        }
        let Some((numbers, [items, count])) = self.by_head(at) else { return };
        let heads = self.sizes.heads.max(1);
        let own = |item: usize, head: usize| {
            let item = if items == 1 { 0 } else { item };
            numbers[item * count + head * count / heads]
        };
        let Some(mut edits) = self.each_head(capped, own) else { return };
        let without = match self.read(step)[..] {
            [codes, _, zero] => {
                let less = Slip::Add { factor: -1.0, addend: 0.0 };
                Change::Become(less.into(), vec![codes, zero])
            }
            _ => Change::Omit,
        };
        let told =
            tr!("the soft cap is applied before the scale of {at}, which comes behind it", at);
        // Where what has the scale was recorded, it was taken out of the scores.
        let taken_out = self.each_head(capped, |item, head| own(item, head).recip());
        let taken_out = taken_out.into_iter().flatten().map(|edit| match edit.change {
            Change::After(op, others) => Edit::new(edit.at, Change::Before(0, op, others)),
            change => Edit::new(edit.at, change),
        });
        let in_scores = taken_out.chain(edits.iter().cloned()).collect();
        self.add_all(Kind::Moved, cost::COMMON, in_scores, capped, &told);
        edits.insert(0, Edit::new(at, without));
        self.add_all(Kind::Moved, cost::COMMON, edits, capped, told);
    }

    /// Scales of the values that the weights are multiplied by before they are summed: what they are divided by has them too.
    fn summed_with_scales(&mut self, step: &Step) {
        let [codes, scale, zero @ ..] = &self.right.read_by(step)[..] else { return };
        let (Some(weights), Some(output), true) = (
            self.right.step(Name::Weights),
            self.right.step(Name::HeadOutputs),
            step.name == Name::VDequantized,
        ) else {
            return;
        };
        let [_, heads, _, 1] = scale.axes.shape()[..] else { return };
        let is_repeated = self.right.step(Name::VRepeated);
        let (reader, slot) = is_repeated.map_or((output, 1), |repeated| (repeated, 0));
        if self.read(reader).get(slot) != Some(&step.name) || heads == 0 {
            return;
        }
        let group = if heads > 1 { self.sizes.heads / heads } else { 1 };
        let logarithms = || {
            let all: Vec<usize> = (0..heads * group).map(|head| head / group).collect();
            let all: Vec<u32> =
                all.into_iter().map(u32::try_from).collect::<Result<_, _>>().ok()?;
            let all = Tensor::new(all, scale.value.device()).ok()?;
            let rows = scale.value.contiguous().ok()?.index_select(&all, 1).ok()?;
            rows.transpose(2, 3).ok()?.log().ok()?.contiguous().ok()
        };
        let Some(cells) = logarithms() else { return };
        let counted = Change::before(0, Slip::Counted(Block { cells, fill: 0.0 }));
        let names = [codes, scale].map(|step| step.name);
        let unscaled = Slip::Add { factor: -1.0, addend: 0.0 };
        let read = std::iter::once(names[0]).chain(zero.iter().map(|zero| zero.name)).collect();
        let mut edits = vec![
            Edit::new(reader.name, Change::Feed(slot, unscaled.into(), read)),
            Edit::new(weights.name, counted.clone()),
        ];
        let lse = self.right.step(Name::Lse).filter(|lse| self.read(lse) == self.read(weights));
        edits.extend(lse.map(|lse| Edit::new(lse.name, counted)));
        let told = tr!(
            "the weights are multiplied by {scale} before they are summed, and what they are divided by has it too",
            scale = names[1]
        );
        self.add_all(Kind::Moved, cost::COMMON, edits, weights.name, told);
    }

    /// One scale that serves all, and groups of features that are taken to be longer or shorter.
    fn scales_of_groups(&mut self, at: Name, scale: Name) {
        let Some(step) = self.right.step(scale) else { return };
        let shape = step.axes.shape();
        let take = |axis: usize, places: Vec<usize>| {
            let take = Slip::Along(axis, Along::Take(places));
            Edit::new(at, Change::before(1, take))
        };
        let long: Vec<usize> = (0..shape.len()).filter(|axis| shape[*axis] > 1).collect();
        let last = shape.len().saturating_sub(1);
        let heads: Vec<usize> = long.iter().copied().filter(|axis| *axis < 2).collect();
        let told = tr!("one number of {scale}, the first, serves all items and heads", scale);
        if heads.len() > 1 {
            let first = heads.iter().map(|axis| take(*axis, vec![0; shape[*axis]]));
            self.add_all(Kind::Axes, cost::COMMON, first.collect(), at, told);
        }
        let is_token = |(axis, size)| matches!(axis, Axis::Key | Axis::Query) && size > 1;
        let of_keys = step.axes.iter().position(is_token);
        for axis in of_keys.into_iter().chain([last]) {
            let Some((size, count)) = Self::group(step, axis) else { continue };
            let what = if Some(axis) == of_keys { tr!("tokens") } else { tr!("features") };
            for read in [2 * size, size / 2] {
                let place = |at: usize| (at / read.max(1) * size).min(count - 1);
                let told =
                    tr!("groups of {size} {what} are taken for such of {read}", size, what, read);
                let places: Vec<usize> = (0..count).map(place).collect();
                let of_zero = self.right.step(at).and_then(|own| self.read(own).get(2).copied());
                let both = of_zero.and_then(|zero| {
                    let is_whole = self.right.step(zero)?.axes.shape().get(axis) == Some(&count);
                    let take = Slip::Along(axis, Along::Take(places.clone()));
                    is_whole.then(|| Edit::new(at, Change::before(2, take)))
                });
                let edits = vec![take(axis, places)];
                let both = both.map(|zero| [edits.clone(), vec![zero]].concat());
                for edits in std::iter::once(edits).chain(both) {
                    self.add_all(Kind::Axes, cost::COMMON, edits, at, &told);
                }
            }
        }
    }

    /// How many places of an axis have one number each time, the most, and how many places there are.
    pub(super) fn group(step: &Step, axis: usize) -> Option<(usize, usize)> {
        let last = step.axes.rank().checked_sub(1)?;
        let count = step.axes.shape().get(axis).copied().filter(|count| *count > 3)?;
        let numbers = cells(&step.value.transpose(axis, last).ok()?).ok()?;
        let are_alike = |size: &usize| {
            numbers.chunks(count).all(|row| {
                row.chunks(*size).all(|own| own.iter().all(|one| one.total_cmp(&own[0]).is_eq()))
            })
        };
        (2..count).rev().find(are_alike).map(|size| (size, count))
    }

    /// Scales of tokens that are read in the place of others': those of another token of the page or tile, or of another one.
    fn scales_of_others(&mut self, at: Name, scale: Name) {
        let Some(step) = self.right.step(scale) else { return };
        let is_token = |(axis, size)| matches!(axis, Axis::Key | Axis::Query) && size > 1;
        let Some(axis) = step.axes.iter().position(is_token) else { return };
        let tokens = step.axes.shape()[axis];
        let is_of_queries = at == Name::QDequantized;
        let lengths = self.documents().and_then(|own| {
            if is_of_queries { own.queries.first() } else { own.keys.first() }.cloned()
        });
        let all_parts = Self::parts_of(&lengths.unwrap_or_else(|| vec![tokens]));
        let mut known = HashSet::new();
        let mut add = |grammar: &mut Self, places: Vec<usize>, told: String| {
            if known.insert(places.clone()) {
                let take = Change::before(1, Slip::Along(axis, Along::Take(places)));
                grammar.add(Kind::Axes, cost::COMMON, at, take, told);
            }
        };
        for parts in &all_parts {
            let size = parts.keys.first().and_then(|spans| spans.first());
            let size = size.map_or(0, |(from, to)| to - from);
            for (places, told) in scales_within(parts, tokens) {
                let told = tr!("{told} (pages or tiles of {size})", told, size);
                add(self, places, told);
            }
        }
        let mut firsts = vec![0; tokens];
        let of_first = all_parts.first().and_then(|parts| parts.keys.first());
        for (first, _) in of_first.into_iter().flatten() {
            firsts.iter_mut().skip(*first).for_each(|own| *own = *first);
        }
        let places =
            firsts.iter().enumerate().map(|(token, first)| token.saturating_sub(1).max(*first));
        let told = tr!(
            "each token reads the scale of the token before, and the first of a sequence its own"
        );
        add(self, places.collect(), told.to_owned());
        let place = |token: usize| {
            let next = (token + 1).min(tokens - 1);
            if firsts[next] == next && next > 0 { token } else { next }
        };
        let told =
            tr!("each token reads the scale of the next token, and the last of a sequence its own");
        add(self, (0..tokens).map(place).collect(), told.to_owned());
    }
}

/// The tokens whose scales a page or tile can read in place of its own.
fn scales_within(parts: &Parts, tokens: usize) -> Vec<(Vec<usize>, &'static str)> {
    let within = |of: &dyn Fn(usize, usize) -> usize| {
        let mut places: Vec<usize> = (0..tokens).collect();
        for (first, end) in parts.keys.iter().flatten() {
            let own = places.iter_mut().enumerate().take(*end).skip(*first);
            own.for_each(|(token, place)| *place = of(*first, token));
        }
        Some(places)
    };
    let all = [
        (
            within(&|first, _| first),
            tr!("the scale of its first token is read for the whole page or tile"),
        ),
        (
            within(&|first, token| first.max(token.saturating_sub(1))),
            tr!("each slot of a page reads the scale of the slot before, and the first its own"),
        ),
        (
            taken_from(parts, Loaded::By(0), tokens),
            tr!("each page reads the scales of the first: they are read at the index within it"),
        ),
        (
            taken_from(parts, Loaded::By(-1), tokens),
            tr!("each page reads the scales of the page before"),
        ),
        (
            taken_from(parts, Loaded::By(1), tokens),
            tr!("each page reads the scales of the next page"),
        ),
    ];
    all.into_iter().filter_map(|(places, told)| Some((places?, told))).collect()
}
