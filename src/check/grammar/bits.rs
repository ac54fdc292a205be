//! Which steps may be computed in fewer bits, and which numbers kept in fewer?

use super::{Grammar, after};
use crate::candidate::cost;
use crate::cells::cells;
use base::error::Result;
use program::{
    Along, Change, Edit, EightBits, Heads, Kind, Linear, Name, Op, Precision, Scaling, Slip, Step,
    Trace,
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
            let is_mean = is_alike_for_keys(self.right, step.name);
            let mut add = |kind, change: Change, told: String| {
                self.add(kind, cost::COMMON, step.name, change, told);
            };
            let left_out = Change::Read(vec![*codes, *scale]);
            let told = if is_mean {
                tr!(
                    "{zero} is not subtracted: the mean of the keys is missing, which softmax hides, and which the log-sum-exp lacks (q · mean · scale)",
                    zero
                )
            } else {
                tr!("{zero} is not subtracted", zero)
            };
            add(Kind::Omitted, left_out.clone(), told);
            for (places, told) in
                some_features(step.axes.shape().last().copied().unwrap_or_default())
            {
                let change = Change::Confined(Box::new(left_out.clone()), 3, places);
                let told = tr!("{zero} is subtracted in {told} alone", zero, told);
                add(Kind::Omitted, change, told);
            }
            let less = Slip::Add { factor: -1.0, addend: 0.0 };
            let told = tr!("{zero} is subtracted, and nothing is scaled", zero);
            add(Kind::Omitted, Change::Become(less.into(), vec![*codes, *zero]), told);
            let told = tr!(
                "the offset is added before the scale, and scaled: (x + offset) · {scale}, not x · {scale} + offset",
                scale
            );
            add(Kind::Replaced, Change::Before(2, Slip::Product.into(), vec![*scale]), told);
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
        self.unscaled_rest(step, *scale);
        self.scales(step, *scale);
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
                if matches!(
                    (own, other),
                    (EightBits::Int4, EightBits::Uint4) | (EightBits::Uint4, EightBits::Int4)
                ) {
                    self.in_one_half(step, &change, &told);
                }
                self.add(Kind::Replaced, cost::COMMON, step.name, change, told);
            }
            self.without_its_middle(step.name, &read, own);
            if matches!(own, EightBits::Int4 | EightBits::Uint4 | EightBits::E2m1) {
                self.halves_of_bytes(step);
            }
        }
    }

    /// The same in the low or the high halves of bytes alone.
    fn in_one_half(&mut self, step: &Step, change: &Change, told: &str) {
        let count = step.axes.shape().last().copied().unwrap_or_default();
        for (first, which) in
            [(0, tr!("the low halves of bytes")), (1, tr!("the high halves of bytes"))]
        {
            let places = (first..count).step_by(2).collect();
            let half = Change::Confined(Box::new(change.clone()), 3, places);
            let told = tr!("{told}, in {which} alone", told, which);
            self.add(Kind::Replaced, cost::COMMON, step.name, half, told);
        }
    }

    /// What a loop over whole tiles of tokens or features leaves unscaled.
    fn unscaled_rest(&mut self, step: &Step, scale: Name) {
        let shape = step.axes.shape();
        for (axis, what) in [(2, tr!("tokens")), (3, tr!("features"))] {
            let size = shape.get(axis).copied().unwrap_or_default();
            let mut known = Vec::new();
            for tile in [4, 8, 16, 32, 64] {
                let rest = size % tile;
                if rest == 0 || rest == size || known.contains(&rest) {
                    continue;
                }
                known.push(rest);
                let omitted =
                    Change::Confined(Box::new(Change::Omit), axis, (size - rest..size).collect());
                let told = tr!(
                    "{scale} is not applied to the last {rest} of {size} {what}, which are behind the last whole tile of {tile}",
                    scale,
                    rest,
                    size,
                    what,
                    tile
                );
                self.add(Kind::Omitted, cost::COMMON, step.name, omitted, told);
            }
        }
    }

    /// Numbers of 4 bits, two in a byte, in another order than they were written in.
    fn halves_of_bytes(&mut self, step: &Step) {
        let count = step.axes.shape().last().copied().unwrap_or_default();
        if count % 2 > 0 {
            return;
        }
        let half = count / 2;
        let orders: [(&dyn Fn(usize) -> usize, &str); 3] = [
            (
                &|at| if at < half { 2 * at } else { 2 * (at - half) + 1 },
                tr!(
                    "the low halves of all bytes come first and the high halves behind: they are not interleaved"
                ),
            ),
            (
                &|at| at / 2 + at % 2 * half,
                tr!(
                    "the halves of each byte are interleaved, and stand for the first and the last half of the features"
                ),
            ),
            (&|at| at + 1 - 2 * (at % 2), tr!("the halves of each byte change places")),
        ];
        // Nothing says in which order they were written but that of the other ones.
        let both = [Name::KDequantized, Name::VDequantized];
        let are_both = both.iter().all(|name| self.right.step(*name).is_some());
        let other = both.into_iter().find(|name| are_both && *name != step.name);
        for (from, told) in orders {
            let told = match other.filter(|_| both.contains(&step.name)) {
                Some(other) => tr!(
                    "the halves of bytes are read in another order than those of {other}, and nothing says which of the two is right: if that is, here {told}",
                    other,
                    told
                ),
                None => told.to_owned(),
            };
            let take = Slip::Along(3, Along::Take((0..count).map(from).collect()));
            self.add(Kind::Axes, cost::COMMON, step.name, Change::before(0, take), told);
        }
    }

    /// Codes from 0 up whose zero point is not subtracted, as if they were two's complement.
    fn without_its_middle(&mut self, at: Name, read: &[Name], own: EightBits) {
        let other = match own {
            EightBits::Uint4 => EightBits::Int4,
            EightBits::Uint8 => EightBits::Int8,
            _ => return,
        };
        let [codes, scale, zero] = read else { return };
        let told = tr!(
            "{codes} are taken for two's complement ({name}), and {zero} is not subtracted",
            codes,
            name = other.name(),
            zero
        );
        let changes =
            [Change::Read(vec![*codes, *scale]), Change::before(0, Slip::ReadAs(own, other))];
        let edits = changes.map(|change| Edit::new(at, change)).to_vec();
        self.add_all(Kind::Replaced, cost::COMMON, edits, at, told);
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
        self.scaled_newest(&scales);
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

    /// The newest keys, or values, which are scaled already where they come in, and are scaled with the rest once more.
    fn scaled_newest(&mut self, scales: &[(Name, f64, usize)]) {
        let mut counts = vec![1, self.sizes.query_count()];
        counts.dedup();
        for count in counts {
            let edit = |(name, scale, keys): &(Name, f64, usize)| {
                let factors = (0..*keys).map(|key| if key + count < *keys { 1.0 } else { *scale });
                Edit::new(*name, after(Slip::Along(2, Along::Each(factors.collect())), &[]))
            };
            let edits: Vec<Edit> = scales.iter().map(edit).collect();
            let alone = edits.iter().map(|edit| vec![edit.clone()]);
            for edits in alone.chain([edits.clone()]) {
                let Some(at) = edits.first().map(|edit| edit.at) else { continue };
                let told = match count {
                    1 => tr!(
                        "the scale is applied twice to the newest token, which is scaled where it comes in"
                    ).to_owned(),
                    count => tr!(
                        "the scale is applied twice to the last {count} tokens, which are scaled where they come in",
                        count
                    ),
                };
                self.add_all(Kind::Repeated, cost::RARE, edits, at, told);
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

/// The features that a sum runs over which does not run over all, and what they are called.
fn some_features(count: usize) -> Vec<(Vec<usize>, String)> {
    let left_out = |is_read: &dyn Fn(usize) -> bool| -> Vec<usize> {
        (0..count).filter(|at| !is_read(*at)).collect()
    };
    let mut all: Vec<(Vec<usize>, String)> = vec![
        (left_out(&|at| at % 2 == 0), tr!("every other feature").to_owned()),
        (left_out(&|at| 2 * at >= count), tr!("the last half of the features").to_owned()),
    ];
    let firsts =
        [count / 2, 16, 32, 64, 128].into_iter().filter(|first| (1..count).contains(first));
    all.extend(
        firsts.map(|first| (left_out(&|at| at < first), tr!("the first {first} features", first))),
    );
    all.dedup_by(|(own, _), (other, _)| own == other);
    all
}

/// Whether what the zero point of the keys comes to is the same for all keys, so that softmax does not see it.
pub fn is_alike_for_keys(right: &Trace, name: Name) -> bool {
    let all = || -> Result<bool> {
        let read = right.step(name).map(|step| right.read_by(step)).unwrap_or_default();
        let [_, scale, zero] = read[..] else { return Ok(false) };
        let offsets = zero.value.broadcast_mul(&scale.value)?;
        let spread = (offsets.max_keepdim(2)? - offsets.min_keepdim(2)?)?;
        let largest = cells(&offsets.abs()?)?.into_iter().fold(0.0, f64::max);
        // It was made in f32, and scaled back.
        Ok(cells(&spread)?.into_iter().all(|spread| spread <= 1e-5 * largest))
    };
    name == Name::KDequantized && all().unwrap_or(false)
}
