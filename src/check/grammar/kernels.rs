//! What goes wrong in loops over blocks, in buffers and in slots, in kernels and caches?

use std::ops::Range;

use super::numbers::scaled;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{
    Along, Change, Edit, Gradient, Heads, Kind, Linear, Name, Op, Product, Rearrange, Slip, Step,
    Stream, StreamSlip, Trace, Weighting,
};

/// The sizes of blocks that kernels have.
pub const BLOCKS: [usize; 10] = [1, 2, 3, 4, 6, 8, 16, 32, 64, 128];

/// Loops of more blocks are not run for each mistake: nobody takes thousands of them.
const MOST_BLOCKS: u128 = 512;

/// Of more tiles than these, none is left out by a mistake that other rows would not show.
const MOST_TILES: usize = 32;

impl Grammar<'_> {
    pub(super) fn kernels(&mut self, step: &Step) {
        if matches!(step.name, Name::HeadOutputs | Name::Output) {
            self.found.extend(scaled(step.name, 0.0, self.sizes));
        }
        match &step.op {
            Op::Linear(linear) => {
                self.part_of_sum(step);
                if *linear == Linear::WeightedSum {
                    self.streamed(step);
                }
            }
            Op::Weighting(Weighting::Softmax { .. }) => self.streamed(step),
            Op::Gradient(_) => self.part_of_sum(step),
            Op::Heads(Heads::Append) => self.slots(step),
            Op::Heads(Heads::Repeat { times, .. }) => {
                self.repeated_behind(step, *times);
                self.rounded_group(step, *times);
            }
            _ => {}
        }
    }

    /// Softmax and the weighted sum in one pass over blocks of keys: at the weights, or at the sum.
    fn streamed(&mut self, step: &Step) {
        let read = self.right.read_by(step);
        let (weights, values) = match read[..] {
            [weights, values] => (weights, Some(values.name)),
            _ => (step, None),
        };
        // Dropout or a sink would have to be in the kernel too.
        let [scores] = self.read(weights)[..] else { return };
        if weights.name != Name::Weights {
            return;
        }
        let keys = weights.axes.last_size();
        let halves = self.sizes.keys().div_ceil(2);
        let mut blocks = BLOCKS.to_vec();
        blocks.push(halves);
        blocks.sort_unstable();
        blocks.dedup();
        for (slip, told) in StreamSlip::ALL.map(|slip| (slip, slip.told())) {
            // Without a rest there is nothing to go wrong with it.
            // Values have features, weights have none.
            if slip == StreamSlip::AlongFeatures && values.is_none() {
                continue;
            }
            let is_of_rest = matches!(slip, StreamSlip::FullBlocks | StreamSlip::Padded);
            let fits = |block: &usize| {
                let block = *block as u128;
                let is_rest = is_of_rest && keys.is_multiple_of(block);
                block < keys && keys / block <= MOST_BLOCKS && !is_rest
            };
            for block in blocks.iter().copied().filter(fits) {
                let is_one_way = slip.is_of_any_block();
                let told = if is_one_way {
                    told.to_owned()
                } else {
                    tr!("{told} (blocks of {block} keys)", told, block)
                };
                let stream = Stream { block, slip };
                let read = std::iter::once(scores).chain(values).collect();
                let edit = Edit::new(step.name, Change::Become(Slip::Stream(stream).into(), read));
                // One loop makes both.
                let kept = self.right.step(Name::Lse).map(|lse| {
                    let kept = Change::Become(Slip::StreamLse(stream).into(), self.read(lse));
                    Edit::new(Name::Lse, kept)
                });
                if matches!(slip, StreamSlip::Log2 | StreamSlip::BinaryMaximum) {
                    let edits = kept.into_iter().collect();
                    self.add_all(Kind::Replaced, cost::COMMON, edits, Name::Lse, &told);
                    break;
                }
                let both = kept.filter(|_| slip.is_of_sum()).map(|kept| vec![edit.clone(), kept]);
                for edits in both.into_iter().chain([vec![edit]]) {
                    self.add_all(Kind::Replaced, cost::RARE, edits, step.name, &told);
                }
                if is_one_way {
                    break;
                }
            }
        }
    }

    /// Sums of which a part is left out: the rest of a vector loop, or what another worker has.
    pub(super) fn part_of_sum(&mut self, step: &Step) {
        for (input, axis, size) in summed(self.right, step) {
            let is_sum = matches!(step.op, Op::Gradient(_));
            let mut counts: Vec<usize> =
                [2, 4, 8, 16, 32].into_iter().map(|by| size / by * by).collect();
            // Loops over features that are cut off at what a tile has room for.
            counts.extend([size / 2, size.next_power_of_two() / 2]);
            counts.extend([1, size.saturating_sub(1)].iter().filter(|_| is_sum));
            counts.retain(|count| (1..size - usize::from(!is_sum)).contains(count));
            counts.sort_unstable();
            counts.dedup();
            for count in counts {
                for (is_head, count) in [(true, count), (false, size - count)] {
                    let (change, told) = part_of_sum(step, is_head, count, (input, axis, size));
                    self.add(Kind::Axes, cost::RARE, step.name, change, told);
                }
            }
            for tile in tiles(size).filter(|tile| tile.start > 0 && tile.end < size) {
                let told = tr!(
                    "products {first} to {last} of {size} are left out",
                    first = tile.start,
                    last = tile.end - 1,
                    size
                );
                let zeros = Slip::Along(axis, Along::Zero(tile.collect()));
                let change = Change::before(input, zeros);
                self.add(Kind::Axes, cost::RARE, step.name, change, told);
            }
        }
    }

    /// New keys and values that are written one slot too early or too late.
    fn slots(&mut self, step: &Step) {
        let Some(axis) = step.axes.iter().position(|(axis, _)| axis == program::Axis::Key) else {
            return;
        };
        let (past, keys) = (self.sizes.past_len, self.sizes.keys());
        if past == 0 || keys <= past {
            return;
        }
        let early: Vec<usize> = (0..past - 1).chain(past..keys).chain([keys - 1]).collect();
        let late: Vec<usize> = (0..past).chain([past]).chain(past..keys - 1).collect();
        for (places, empty, told) in [
            (
                early,
                keys - 1,
                tr!("new tokens are written one slot too early, and the last slot is empty"),
            ),
            (
                late,
                past,
                tr!("new tokens are written one slot too late, and a slot before them is empty"),
            ),
        ] {
            let along = |along| Edit::new(step.name, after(Slip::Along(axis, along), &[]));
            // The later edit is made closer to the step.
            let edits = vec![along(Along::Zero(vec![empty])), along(Along::Take(places))];
            self.add_all(Kind::Axes, cost::PLAIN, edits, step.name, told);
        }
    }

    /// Query heads whose key head is found by the next power of two of a group.
    fn rounded_group(&mut self, step: &Step, times: usize) {
        let (wide, heads) = (times.next_power_of_two(), self.sizes.heads);
        if wide == times {
            return;
        }
        let places = (0..heads).map(|head| head / wide * times).collect();
        let change = after(Slip::Along(1, Along::Take(places)), &[]);
        let told = tr!(
            "the key head of a query head is head // {wide}, the next power of two of a group's {times}",
            wide,
            times
        );
        self.add(Kind::Axes, cost::PLAIN, step.name, change, told);
    }

    /// Heads that are repeated behind the token axis, and viewed as heads.
    fn repeated_behind(&mut self, step: &Step, times: usize) {
        let shape = step.axes.shape();
        let [batch, heads, tokens, features] = shape[..] else { return };
        let rearrange = Rearrange {
            blocks: Vec::new(),
            view: vec![batch, heads / times.max(1), times, tokens, features],
            order: vec![0, 1, 3, 2, 4],
            result: step.axes.iter().collect(),
        };
        let told = tr!("each token is repeated, not each head, and the result viewed as heads");
        let change = after(Heads::Rearrange(rearrange), &[]);
        self.add(Kind::Axes, cost::PLAIN, step.name, change, told);
    }
}

/// The tiles of so many products, where they are not too many to have one forgotten.
fn tiles(size: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = BLOCKS.into_iter().filter(move |block| *block > 1 && size / block <= MOST_TILES);
    blocks.flat_map(move |block| {
        (0..size).step_by(block).map(move |first| first..(first + block).min(size))
    })
}

/// The axes that a step adds up of one of its inputs, and their sizes.
pub fn summed(right: &Trace, step: &Step) -> Vec<(usize, usize, usize)> {
    // Each query has a share of a sink's gradient by its delta.
    let input = if step.op == Gradient::Sinks.into() { 2 } else { 0 };
    let inner = right.read_by(step).get(input).map(|read| read.axes.shape()).unwrap_or_default();
    let axes: Vec<usize> = match &step.op {
        Op::Linear(_) => vec![inner.len().saturating_sub(1)],
        Op::Gradient(Gradient::Product(Product::Transposed)) => vec![2],
        Op::Gradient(Gradient::Product(Product::Weight { .. })) => vec![0, 1],
        Op::Gradient(Gradient::Sinks) => vec![0, 2],
        Op::Gradient(Gradient::NormWeight { .. }) if inner.len() == 4 => vec![0, 1, 2],
        Op::Gradient(Gradient::Collect(own)) => {
            let sizes = own.view.iter().map(|(_, size)| size).zip(&inner).enumerate();
            let is_cut = |at: usize| own.slice.is_some_and(|(axis, _)| axis == at);
            let mut sizes = sizes.filter(|(at, _)| !is_cut(*at));
            let is_kept = own.view.len() == inner.len() && sizes.all(|(_, (own, all))| own == all);
            let over = own.over.iter().copied().filter(|at| !is_cut(*at));
            if is_kept { over.collect() } else { Vec::new() }
        }
        _ => Vec::new(),
    };
    axes.into_iter().filter_map(|axis| Some((input, axis, *inner.get(axis)?))).collect()
}

/// A sum along an axis of which only the first or the last `count` products are added up, and that in words.
pub fn part_of_sum(
    step: &Step,
    is_head: bool,
    count: usize,
    (input, axis, size): (usize, usize, usize),
) -> (Change, String) {
    let what = match (&step.op, axis) {
        (
            Op::Gradient(
                Gradient::Product(Product::Weight { .. })
                | Gradient::Collect(_)
                | Gradient::NormWeight { .. }
                | Gradient::Sinks,
            ),
            0,
        ) => tr!("items"),
        (Op::Gradient(Gradient::NormWeight { .. } | Gradient::Collect(_)), 1) => tr!("heads"),
        (Op::Gradient(Gradient::Sinks), _) => tr!("queries"),
        (Op::Gradient(Gradient::Product(Product::Weight { .. })), _) => tr!("tokens"),
        _ => tr!("products"),
    };
    let (which, left_out) =
        if is_head { (tr!("first"), count..size) } else { (tr!("last"), 0..size - count) };
    let zeros = Slip::Along(axis, Along::Zero(left_out.collect()));
    let told = match count {
        1 => tr!(
            "the {which} of {size} {what} counts alone: they are not added up",
            which,
            size,
            what
        ),
        _ => {
            tr!("only the {which} {count} of {size} {what} are added up", which, count, size, what)
        }
    };
    (Change::before(input, zeros), told)
}
