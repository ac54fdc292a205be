//! Which tiles do sums of a backward pass leave out, count twice or scale too often?

use super::kernels::{BLOCKS, summed};
use super::tiles::sizes;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{Along, Block, Change, Gradient, Kind, Linear, Name, Op, Product, Slip, Step};

impl Grammar<'_> {
    /// The sum of a tile of keys that goes on into the next.
    pub(super) fn carried_on(&mut self, step: &Step) {
        if step.op != Gradient::Product(Product::Transposed).into() {
            return;
        }
        let tokens = step.axes.shape().get(2).copied().unwrap_or_default();
        for block in BLOCKS.into_iter().filter(|block| (2..tokens).contains(block)) {
            let change = after(Slip::Along(2, Along::CarryOn(block)), &[]);
            let told = tr!(
                "the running sum of a tile of {block} tokens is not reset: it goes on into the next",
                block
            );
            self.add(Kind::Omitted, cost::RARE, step.name, change, told);
        }
    }

    /// Sums to which the first tile or the last is added once more, or the last number for every place behind the end.
    pub(super) fn counted_twice(&mut self, step: &Step) {
        for (input, axis, size) in summed(self.right, step) {
            for block in BLOCKS.into_iter().filter(|block| (1..size).contains(block)) {
                let first = tr!("the first {block} of {size} products count twice", block, size);
                let last = tr!("the last {block} of {size} products count twice", block, size);
                let behind = block - 1 - (size - 1) % block;
                let again = tr!(
                    "the last of {size} products counts for each place behind it in its tile of {block}, too",
                    size,
                    block
                );
                let twice = |is_it: bool| if is_it { 2.0 } else { 1.0 };
                let times = 1.0 + behind as f64;
                self.weighted(step, (input, axis, size), first, |at| twice(at < block));
                self.weighted(step, (input, axis, size), last, |at| twice(at + block >= size));
                if size > 2 * block {
                    for (own, told) in [
                        (0, tr!("the second, the fourth … tile of {block} are left out", block)),
                        (1, tr!("the first, the third … tile of {block} are left out", block)),
                    ] {
                        let kept = |at: usize| if at / block % 2 == own { 1.0 } else { 0.0 };
                        self.weighted(step, (input, axis, size), told, kept);
                    }
                }
                if behind > 0 {
                    let own = |at: usize| if at + 1 == size { times } else { 1.0 };
                    self.weighted(step, (input, axis, size), again, own);
                }
            }
        }
    }

    /// What a product reads of the tile before or behind.
    pub(super) fn of_other_tiles_back(&mut self, step: &Step) {
        let is_product = matches!(&step.op, Op::Linear(Linear::WeightedSum | Linear::DotProduct))
            || step.op == Gradient::Product(Product::Transposed).into();
        let reads: Vec<(Name, usize)> = (self.right.read_by(step).iter())
            .map(|read| (read.name, read.axes.shape().get(2).copied().unwrap_or_default()))
            .collect();
        let Some((input, tokens)) = reads.get(1).copied().filter(|_| is_product) else { return };
        for block in BLOCKS.into_iter().filter(|block| *block > 1 && *block < tokens) {
            let last = (tokens - 1) / block * block;
            let before = |at: usize| if at < block { at } else { at - block };
            let behind = |at: usize| if at >= last { at } else { (at + block).min(tokens - 1) };
            for (places, told) in [
                (
                    (0..tokens).map(before).collect(),
                    tr!("each tile of {block} reads {input} of the tile before", block, input),
                ),
                (
                    (0..tokens).map(behind).collect(),
                    tr!("each tile of {block} reads {input} of the next", block, input),
                ),
            ] {
                let take = Slip::Along(2, Along::Take(places));
                let change = Change::before(1, take);
                self.add(Kind::Axes, cost::RARE, step.name, change, told);
            }
        }
    }

    /// The scale, in every round of a loop over tiles.
    pub(super) fn scaled_each_round(&mut self, step: &Step) {
        let of_raw = Name::ScoresRaw.gradient();
        let Some(factor) = self.scale_at(of_raw) else { return };
        if self.read(step).first() != Some(&of_raw) {
            return;
        }
        for (input, axis, size) in summed(self.right, step) {
            for block in BLOCKS.into_iter().filter(|block| (2..size).contains(block)) {
                let rounds = |at: usize| (size.div_ceil(block) - 1 - at / block).try_into();
                let own = |at: usize| factor.powi(rounds(at).unwrap_or(i32::MAX));
                let told = tr!(
                    "the sum is scaled in every round of a loop over tiles of {block}, not once at the end",
                    block
                );
                self.weighted(step, (input, axis, size), told, own);
            }
        }
    }

    /// A sum of which each place has a weight of its own.
    fn weighted(
        &mut self,
        step: &Step,
        (input, axis, size): (usize, usize, usize),
        told: String,
        weight: impl Fn(usize) -> f64,
    ) {
        let along = Along::Each((0..size).map(weight).collect());
        let change = Change::before(input, Slip::Along(axis, along));
        self.add(Kind::Repeated, cost::RARE, step.name, change, told);
    }

    /// Tiles of queries and keys that the sums over either leave out: those that the mask blocks in part, or where each tile of
    /// keys overwrites what those before it gave, all but the last.
    pub(super) fn left_out_tiles(&mut self) {
        let Some(own) = self.own_mask().filter(|own| own.blocked.contains(&true)) else { return };
        let scores = self.right.step(Name::Weights).map(|step| step.axes.shape());
        let is_sum = |step: &&Step| {
            let first = self.right.read_by(step).first().map(|read| read.axes.shape());
            let is_product = match &step.op {
                Op::Linear(Linear::WeightedSum) => true,
                Op::Gradient(Gradient::Product(product)) => *product == Product::Transposed,
                _ => false,
            };
            step.name.is_gradient() && is_product && first == scores
        };
        let sums: Vec<(Name, bool)> = (self.right.steps().iter().filter(is_sum))
            .map(|step| (step.name, matches!(step.op, Op::Linear(_))))
            .collect();
        for size in sizes(&own) {
            let rows = own.queries.div_ceil(size);
            let (counts, last) = (own.in_tiles((size, size)), own.last_tiles(size));
            let in_part = |b, q, k| counts(b, q, k).iter().all(|count| *count > 0);
            let in_tiles = tr!(" (tiles of {size})", size);
            let told =
                tr!("the tiles that the mask blocks in part are left out{in_tiles}", in_tiles);
            let not_first = tr!("{told}, but for the first", told);
            let not_last = tr!("{told}, but for the last", told);
            let alone = tr!(
                "of each query only the last tile of keys that it sees counts{in_tiles}",
                in_tiles
            );
            let overwritten =
                tr!("each tile of keys overwrites what those before it gave{in_tiles}", in_tiles);
            for (cells, told, is_of_keys) in [
                (own.of(in_part), told, false),
                (own.of(|b, q, k| in_part(b, q, k) && q >= size), not_first, false),
                (own.of(|b, q, k| in_part(b, q, k) && q / size + 1 < rows), not_last, false),
                (own.of(|b, q, k| last(b, q) != Some(k / size)), alone, false),
                (own.of(|b, q, k| last(b, q) != Some(k / size)), overwritten, true),
            ] {
                // Sums that leave out whole queries are told as that.
                if cells.hides_whole_rows(&own) {
                    continue;
                }
                let Ok(cells) = cells.tensor() else { return };
                for (name, _) in sums.iter().filter(|(_, over_keys)| *over_keys || !is_of_keys) {
                    let block = Slip::Block(Block { cells: cells.clone(), fill: 0.0 });
                    let change = Change::before(0, block);
                    self.add(Kind::Axes, cost::RARE, *name, change, &told);
                }
            }
        }
    }
}
