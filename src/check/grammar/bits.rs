//! Which steps may be computed in fewer bits, and which numbers kept in fewer?

use std::collections::HashSet;

use super::blocks::{Loaded, taken_from};
use super::{Grammar, after};
use crate::candidate::cost;
use crate::cells::cells;
use program::{
    Along, Axis, Change, Edit, EightBits, Heads, Kind, Linear, Name, Op, Precision, Scaling, Slip,
    Step,
};

/// Of more keys only prefixes of whole blocks are tried.
const MOST_KEYS: usize = 64;

impl Grammar<'_> {
    pub(super) fn precision(&mut self, step: &Step) {
        let read = self.right.read_by(step);
        let is_number = |step: &&Step| !step.name.row().is_boolean && step.axes.rank() > 0;
        let slots: Vec<usize> =
            (0..read.len()).filter(|slot| read.get(*slot).is_some_and(is_number)).collect();
        let names: Vec<Name> = read.iter().map(|read| read.name).collect();
        let is_product = matches!(step.op, Op::Linear(_));
        for precision in Precision::ALL {
            let round = |slot| Change::before(slot, Slip::Round(precision));
            let name = precision.name();
            let result = Edit::new(step.name, after(Slip::Round(precision), &[]));
            let is_type = matches!(precision, Precision::Bf16 | Precision::F16);
            if precision != Precision::Tf32 {
                let told = tr!("its result is rounded to {name}", name);
                let cost = if is_type { cost::RARE } else { cost::ODD };
                self.add_all(Kind::Precision, cost, vec![result.clone()], step.name, told);
            }
            for slot in &slots {
                let Some(own) = names.get(*slot) else { continue };
                let told = tr!("{own}, which it reads, is rounded to {name}", own, name);
                self.add(Kind::Precision, cost::ODD, step.name, round(*slot), told);
            }
            if is_product || is_type {
                let inputs = slots.iter().map(|slot| Edit::new(step.name, round(*slot)));
                let products = inputs.clone().take(2).collect::<Vec<_>>();
                let told = tr!("the product is computed from {name} numbers", name);
                if is_product {
                    // What runs in f32 has products in TF32 sooner than in f16, whose numbers have as many bits.
                    let is_usual = precision == Precision::Tf32;
                    let cost = if is_usual { cost::PLAIN } else { cost::RARE };
                    self.add_all(Kind::Precision, cost, products, step.name, &told);
                }
                let all = inputs.chain([result]).collect();
                let told = tr!("the step is computed in {name}", name);
                if is_type {
                    self.add_all(Kind::Precision, cost::RARE, all, step.name, &told);
                }
            }
        }
    }

    /// Numbers of a setting that are kept in fewer bits.
    pub(super) fn rounded(&mut self, step: &Step) {
        for precision in [Precision::Bf16, Precision::F16] {
            let told = tr!("it is rounded to {precision}", precision = precision.name());
            let change = after(Slip::Round(precision), &[]);
            self.add(Kind::Precision, cost::RARE, step.name, change, told);
        }
    }

    /// Numbers in few bits that are taken for what they are not.
    pub(super) fn few_bits(&mut self, step: &Step) {
        let Op::Scaling(Scaling::Dequantize(own)) = &step.op else { return };
        let read = self.read(step);
        let [codes, scale, zero @ ..] = &read[..] else { return };
        if let [zero] = zero {
            let mut add = |kind, change: Change, told: String| {
                self.add(kind, cost::COMMON, step.name, change, told);
            };
            let told = tr!("{zero} is not subtracted", zero);
            add(Kind::Omitted, Change::Read(vec![*codes, *scale]), told);
            let less = Slip::Add { factor: -1.0, addend: 0.0 };
            let told = tr!("{zero} is subtracted, and nothing is scaled", zero);
            add(Kind::Omitted, Change::Become(less.into(), vec![*codes, *zero]), told);
            let told = tr!("{scale} is applied twice", scale);
            add(Kind::Repeated, after(*own, &[*scale]), told);
            self.constant_zero(step.name, *zero);
            for (by, told) in [
                (1.0, tr!("{zero} + 1 is subtracted", zero)),
                (-1.0, tr!("{zero} − 1 is subtracted", zero)),
            ] {
                let change = Change::before(2, Slip::Add { factor: 1.0, addend: by });
                self.add(Kind::Replaced, cost::COMMON, step.name, change, told);
            }
        }
        self.scales_of_query_heads(step.name);
        self.scales_of_others(step.name, *scale);
        self.scales_of_groups(step.name, *scale);
        self.scaled_prefix(step);
        let Some(numbers) = self.right.step(*codes).map(|step| &step.value) else { return };
        for own in EightBits::holding(numbers).unwrap_or_default() {
            for other in EightBits::ALL.into_iter().filter(|other| *other != own) {
                let (name, other_name) = (own.name(), other.name());
                let told = tr!(
                    "{codes}, which are {name}, are read as {other_name}",
                    codes,
                    name,
                    other_name
                );
                let change = Change::before(0, Slip::ReadAs(own, other));
                self.add(Kind::Replaced, cost::COMMON, step.name, change, told);
            }
        }
    }

    /// Keys and values of a prefix that another kernel scaled before: the scale is applied to these twice, or not at all.
    fn scaled_prefix(&mut self, step: &Step) {
        let both = [Name::KDequantized, Name::VDequantized];
        if step.name != both[0] {
            return;
        }
        let scale_of = |name: Name| {
            let step = self.right.step(name)?;
            let scale = cells(&self.right.read_by(step).get(1)?.value).ok()?;
            let alike = scale.iter().all(|own| own.total_cmp(&scale[0]).is_eq());
            let count = step.axes.shape().get(2).copied()?;
            Some((name, *scale.first().filter(|_| alike)?, count))
        };
        let scales: Vec<(Name, f64, usize)> = both.into_iter().filter_map(scale_of).collect();
        let keys = scales.iter().map(|(_, _, keys)| *keys).min().unwrap_or_default();
        for count in (1..keys).filter(|count| keys <= MOST_KEYS || count.is_multiple_of(16)) {
            for is_twice in [true, false] {
                let edit = |(name, scale, keys): &(Name, f64, usize)| {
                    let own = if is_twice { *scale } else { scale.recip() };
                    let factors = (0..*keys).map(|key| if key < count { own } else { 1.0 });
                    Edit::new(*name, after(Slip::Along(2, Along::Each(factors.collect())), &[]))
                };
                let told = if is_twice {
                    tr!("the scale is applied twice to the first {count} keys and values", count)
                } else {
                    tr!("the scale is not applied to the first {count} keys and values", count)
                };
                let edits = scales.iter().map(edit).collect();
                self.add_all(Kind::Repeated, cost::RARE, edits, step.name, told);
            }
        }
    }

    /// A zero point that stands for all, in place of those that are read: the middle of the numbers that there are.
    fn constant_zero(&mut self, at: Name, zero: Name) {
        for number in [1.0, 7.0, 8.0, 127.0, 128.0] {
            let none = Change::before(2, Scaling::By { factor: 0.0 });
            let all = Change::before(2, Slip::Add { factor: 0.0, addend: number });
            let edits = [none, all].map(|change| Edit::new(at, change)).to_vec();
            let told = tr!("{number} is subtracted throughout: {zero} is not read", number, zero);
            self.add_all(Kind::Replaced, cost::COMMON, edits, at, told);
        }
    }

    /// Scales of key heads that each query head takes by another rule than its keys or values.
    fn scales_of_query_heads(&mut self, at: Name) {
        let (heads, groups) = (self.sizes.heads, self.sizes.kv_heads.max(1));
        if groups < 2 || heads <= groups {
            return;
        }
        // What is made of the keys, or the values, has their scales as factors.
        let all = [(Name::KDequantized, Name::ScoresRaw), (Name::VDequantized, Name::HeadOutputs)];
        let edit = |(own, made): (Name, Name)| {
            let scale = *self.right.read_by(self.right.step(own)?).get(1)?;
            let is_of_heads = scale.axes.iter().all(|(axis, size)| size == 1 || axis == Axis::Head);
            let numbers = cells(&scale.value).ok()?;
            if !is_of_heads || numbers.len() != groups || self.right.step(made).is_none() {
                return None;
            }
            let factor = |head: usize| numbers[head % groups] / numbers[head / (heads / groups)];
            let factors = (0..heads).map(factor).collect();
            let change = after(Slip::Along(1, Along::Each(factors)), &[]);
            let told = tr!(
                "each query head has the number of {scale} at its own number modulo the key heads, not its key head's",
                scale = scale.name
            );
            Some((own, Edit::new(made, change), told))
        };
        let edits: Vec<(Name, Edit, String)> = all.into_iter().filter_map(edit).collect();
        if let [(first, key, told), (_, value, _)] = &edits[..]
            && at == *first
        {
            let both = vec![key.clone(), value.clone()];
            self.add_all(Kind::Axes, cost::COMMON, both, key.at, told);
        }
        for (_, edit, told) in edits.into_iter().filter(|(own, ..)| *own == at) {
            let made = edit.at;
            self.add_all(Kind::Axes, cost::COMMON, vec![edit], made, told);
        }
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
                self.add_all(
                    Kind::Axes,
                    cost::COMMON,
                    vec![take(axis, (0..count).map(place).collect())],
                    at,
                    told,
                );
            }
        }
    }

    /// How many places of an axis have one number each time, the most, and how many places there are.
    fn group(step: &Step, axis: usize) -> Option<(usize, usize)> {
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
        let Some(axis) = step.axes.iter().position(|(axis, size)| axis == Axis::Key && size > 1)
        else {
            return;
        };
        let keys = step.axes.shape()[axis];
        let mut known = HashSet::new();
        let all_parts = self.possible_parts();
        for parts in &all_parts {
            let size = parts.keys.first().and_then(|spans| spans.first());
            let size = size.map_or(0, |(from, to)| to - from);
            let within = |of: &dyn Fn(usize, usize) -> usize| {
                let mut places: Vec<usize> = (0..keys).collect();
                for (first, end) in parts.keys.iter().flatten() {
                    let own = places.iter_mut().enumerate().take(*end).skip(*first);
                    own.for_each(|(key, place)| *place = of(*first, key));
                }
                Some(places)
            };
            let all = [
                (
                    within(&|first, _| first),
                    tr!("the scale of its first slot is read for the whole page"),
                ),
                (
                    within(&|first, key| first.max(key.saturating_sub(1))),
                    tr!(
                        "each slot of a page reads the scale of the slot before, and the first its own"
                    ),
                ),
                (
                    taken_from(parts, Loaded::By(-1), keys),
                    tr!("each page reads the scales of the page before"),
                ),
                (
                    taken_from(parts, Loaded::By(1), keys),
                    tr!("each page reads the scales of the next page"),
                ),
            ];
            for (places, told) in all {
                let Some(places) = places.filter(|places| known.insert(places.clone())) else {
                    continue;
                };
                let take = Slip::Along(axis, Along::Take(places)).into();
                let told = tr!("{told} (pages of {size} slots)", told, size);
                self.add(Kind::Axes, cost::COMMON, at, Change::Before(1, take, Vec::new()), told);
            }
        }
        let mut firsts = vec![0; keys];
        let of_first = all_parts.first().and_then(|parts| parts.keys.first());
        for (first, _) in of_first.into_iter().flatten() {
            firsts.iter_mut().skip(*first).for_each(|own| *own = *first);
        }
        let places =
            firsts.iter().enumerate().map(|(key, first)| key.saturating_sub(1).max(*first));
        let take = Slip::Along(axis, Along::Take(places.collect())).into();
        let told = tr!(
            "each token reads the scale of the token before, and the first of a sequence its own"
        );
        self.add(Kind::Axes, cost::COMMON, at, Change::Before(1, take, Vec::new()), told);
    }

    /// Weights and caches in whole numbers of so many bits, by their largest number.
    pub(super) fn quantised(&mut self, step: &Step) {
        if !matches!(step.op, Op::Linear(Linear::Project { .. }) | Op::Heads(Heads::Append)) {
            return;
        }
        let read = self.read(step);
        for (slot, own) in read.into_iter().enumerate().take(2) {
            for bits in [8, 4] {
                for (is_by_row, by) in [(true, tr!("each row")), (false, tr!("all"))] {
                    let op = Slip::Quantise { bits, is_by_row }.into();
                    let told = tr!(
                        "{own}, which it reads, is rounded to {bits} bits, by the largest number of {by}",
                        own,
                        bits,
                        by
                    );
                    let change = Change::Before(slot, op, Vec::new());
                    self.add(Kind::Precision, cost::RARE, step.name, change, told);
                }
            }
        }
    }
}
