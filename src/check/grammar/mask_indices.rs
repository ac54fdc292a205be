//! Which cells of another place may a mask be read from?

use candle_core::{Device, Tensor};

use super::cells::Cells;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{Along, Axis, Kind, Name, Op, Slip, Step};

/// The row of a head and a query, where the heads of a group are packed.
type Rows<'a> = &'a dyn Fn(usize, usize) -> usize;

/// Masks of more cells are not made for each head.
const MOST_PACKED: usize = 1 << 20;

impl Grammar<'_> {
    /// What is given of pairs of tokens, read by indices that wrap round.
    pub(super) fn wrapped(&mut self) {
        for step in
            [Name::FileMask, Name::AttnBias].iter().filter_map(|name| self.right.step(*name))
        {
            for (at, (axis, size)) in step.axes.iter().enumerate() {
                if !matches!(axis, Axis::Batch | Axis::Head | Axis::Query) {
                    continue;
                }
                for by in wraps(size) {
                    let places = (0..size).map(|place| place % by).collect();
                    let told = tr!("places of the {axis} axis are counted modulo {by}", axis, by);
                    let change = after(Slip::Along(at, Along::Take(places)), &[]);
                    self.add(Kind::Axes, cost::PLAIN, step.name, change, told);
                }
            }
        }
    }

    /// Queries of a group that are packed as rows of one tile, whose mask takes another token's place for a row's.
    pub(super) fn packed_rows(&mut self) {
        let Some(own) = self.own_mask().filter(|own| own.blocked.contains(&true)) else { return };
        let (heads, groups) = (self.sizes.heads, self.sizes.kv_heads.max(1));
        let group = heads / groups;
        if group < 2 || own.blocked.len().saturating_mul(heads) > MOST_PACKED {
            return;
        }
        // Rows token by token, or head by head.
        let by_token = |head: usize, query: usize| query * group + head % group;
        let by_head = |head: usize, query: usize| head % group * own.queries + query;
        let row = |n: usize| {
            tr!(
                "the rows of packed heads have the mask of the token row // {n}, not row // {group}",
                n,
                group
            )
        };
        let mut all: Vec<(Rows, String, usize)> = Vec::new();
        for by in [groups, heads].into_iter().filter(|by| *by != group) {
            all.push((&by_token, row(by), by));
        }
        let told = tr!("the rows of packed heads have the mask of the token of their own number");
        all.push((&by_token, told.to_owned(), 1));
        all.push((&by_head, told.to_owned(), 1));
        for (rows, told, by) in all {
            let mut cells = Vec::with_capacity(own.blocked.len() * heads);
            for item in 0..own.items {
                for (head, query) in
                    (0..heads).flat_map(|head| (0..own.queries).map(move |query| (head, query)))
                {
                    let token = (rows(head, query) / by).min(own.queries - 1);
                    cells.extend((0..own.keys).map(|key| u8::from(own.at(item, token, key))));
                }
            }
            let shape = (own.items, heads, own.queries, own.keys);
            let Ok(cells) = Tensor::from_vec(cells, shape, &Device::Cpu) else { return };
            self.masked_as(cells, told, cost::RARE);
        }
    }

    /// A mask that is given may come in bits, query after query, of which each byte is read from its other end; what fills up
    /// the last is no key.
    pub(super) fn in_other_bits(&self, own: &Cells) -> Option<(Cells, String, u32)> {
        let is_given = |step: &Step| step.op == Op::Given;
        let mask = self.right.mask_of_scores()?;
        let parts = self.right.read_by(mask);
        if !is_given(mask) && !parts.into_iter().any(|part| part.name == Name::FileMask) {
            return None;
        }
        // Each sequence has bytes of its own.
        let sequences = sequences(own);
        let bit = |b, q, k| {
            let is_in = |((row, end), (first, last)): &&((usize, usize), (usize, usize))| {
                (*row..*end).contains(&q) && (*first..*last).contains(&k)
            };
            let Some(((row, end), (first, last))) = sequences.iter().find(is_in) else {
                return own.at(b, q, k);
            };
            let width = last - first;
            let at = (q - row) * width + k - first;
            let turned = at - at % 8 + 7 - at % 8;
            turned >= (end - row) * width || own.at(b, row + turned / width, first + turned % width)
        };
        let told = tr!("the bits of each byte of the mask are read from the other end");
        Some((own.of(bit), told.to_owned(), cost::RARE))
    }
}

/// The queries and keys of the sequences that a mask keeps apart, each from the first to behind the last: a sequence begins
/// where no query sees what earlier ones do.
fn sequences(own: &Cells) -> Vec<((usize, usize), (usize, usize))> {
    let seen = |row: usize| (0..own.keys).filter(move |key| !own.at(0, row, *key));
    let mut starts = vec![(0, 0)];
    let mut most = None;
    // The first key that this query or a later one sees.
    let mut firsts = vec![own.keys; own.queries + 1];
    for row in (0..own.queries).rev() {
        firsts[row] = seen(row).next().unwrap_or(own.keys).min(firsts[row + 1]);
    }
    for (row, first) in firsts.iter().enumerate().take(own.queries) {
        if most.is_some_and(|most| *first > most) && *first < own.keys {
            starts.push((row, *first));
        }
        most = most.max(seen(row).next_back());
    }
    let ends = starts.iter().skip(1).copied().chain([(own.queries, own.keys)]);
    starts.iter().zip(ends).map(|(from, to)| ((from.0, to.0), (from.1, to.1))).collect()
}

/// So many queries are few enough for any number of them to be one that indices wrap round at.
const FEW: usize = 32;

/// Where indices of so many places may wrap round: at powers of two, at whole blocks, of few places anywhere.
fn wraps(count: usize) -> impl Iterator<Item = usize> {
    let is_usual = |by: &usize| by.is_power_of_two() || by.is_multiple_of(16) && *by <= 1024;
    (2..count).filter(move |by| count <= FEW || is_usual(by))
}
