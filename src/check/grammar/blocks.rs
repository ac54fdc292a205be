//! What is taken from another tile, left out within some tiles, or laid along another axis, in loops over tiles?

use std::collections::HashSet;

use super::kernels::BLOCKS;
use super::sequences::Sequences;
use super::tiles::pairs;
use super::{Grammar, after};
use crate::candidate::{Edits, cost};
use base::lang;
use program::{
    Along, Axis, Block, Change, Edit, Heads, Kind, Linear, Name, Op, PartStage, Parted, Parts,
    Rearrange, Slip, Step, signed, spans,
};

/// Beyond so many tiles no kernel has so small ones.
const MOST_TILES: usize = 32;

/// Beyond so many cells of all heads no masks are drawn that heads do not share.
const MOST_CELLS: usize = 1 << 22;

impl Grammar<'_> {
    /// What goes wrong in loops over tiles, whether the run has tiles, or only the kernel.
    pub(super) fn of_tiles(&mut self) {
        let stated = self.right.parts().cloned();
        for parts in stated.clone().map_or_else(|| self.possible_parts(), |own| vec![own]) {
            self.of_other_tiles(&parts, stated.is_some());
        }
        self.within_tiles(stated.as_ref());
        self.packed_groups();
        self.blocks_of_features();
    }

    /// The products of queries, keys and values: the step, the slot that reads one of them, and what it reads. Their tokens are
    /// on the third axis.
    pub(super) fn products(&self) -> Vec<(Name, usize, Name)> {
        let slots = |step: &Step| -> &'static [usize] {
            match &step.op {
                Op::Linear(Linear::DotProduct) => &[0, 1],
                Op::Linear(Linear::WeightedSum) => &[1],
                Op::Parted(Parted { stage: PartStage::Weighted(_), .. }) => &[2],
                _ => &[],
            }
        };
        let steps = self.right.steps().iter().filter(|step| !step.name.is_gradient());
        let all = steps.flat_map(|step| {
            let read = self.read(step);
            slots(step).iter().filter_map(move |slot| Some((step.name, *slot, *read.get(*slot)?)))
        });
        all.collect()
    }

    /// Tiles of the sizes that kernels have, of each sequence by itself.
    pub(super) fn possible_parts(&self) -> Vec<Parts> {
        let keys = self.sizes.keys();
        let lengths = self.documents().and_then(|own| own.keys.first().cloned());
        let lengths = lengths.unwrap_or_else(|| vec![keys]);
        Self::parts_of(&lengths)
    }

    /// Tiles of the sizes that kernels have, of sequences of these lengths.
    pub(super) fn parts_of(lengths: &[usize]) -> Vec<Parts> {
        let longest = lengths.iter().max().copied().unwrap_or_default();
        let sequences = spans(lengths);
        let blocks = BLOCKS
            .into_iter()
            .filter(|block| (2..longest).contains(block) && longest.div_ceil(*block) <= MOST_TILES);
        let parts = |block: usize| {
            let starts: Vec<usize> = (0..longest).step_by(block).collect();
            Parts::starting(Axis::Tile, &starts, &sequences)
        };
        blocks.map(parts).collect()
    }

    /// Keys, values or biases that a tile reads of the tile before, of the next, or of the first.
    fn of_other_tiles(&mut self, parts: &Parts, is_stated: bool) {
        let size = parts.keys.first().and_then(|spans| spans.first());
        let size = size.map_or(0, |(from, to)| to - from);
        let cost = if is_stated { cost::COMMON } else { cost::RARE };
        self.scaled_in_every_tile(parts, cost, (!is_stated).then_some(size));
        let mut slots = self.products();
        slots.retain(|(_, slot, _)| *slot > 0);
        let count = slots.len();
        if let Some(step) = self.right.step(Name::ScoresBiased) {
            slots.extend(self.read(step).get(1).map(|bias| (step.name, 1, *bias)));
        }
        let moved = [-1, 1, 0].map(Loaded::By).into_iter();
        for by in moved.chain(STAGES.map(|(stored, read)| Loaded::Ring { stored, read })) {
            let edit = |(reader, slot, input): &(Name, usize, Name)| {
                let dims: Vec<_> = self.right.step(*input)?.axes.iter().collect();
                let at = dims.iter().rposition(|(axis, size)| *axis == Axis::Key && *size > 1)?;
                let take = Along::Take(taken_from(parts, by, dims[at].1)?);
                let change = Change::before(*slot, Slip::Along(at, take));
                Some((*input, Edit::new(*reader, change)))
            };
            let all: Vec<(Name, Edit)> = slots.iter().filter_map(edit).collect();
            let alone = all.iter().map(std::slice::from_ref);
            // Keys and values are loaded together.
            let both = all.get(..count).filter(|both| both.len() > 1);
            for edits in alone.chain(both) {
                let input: Vec<&str> = edits.iter().map(|(input, _)| input.as_str()).collect();
                let told = of_other_tile(parts.axis.told(), &lang::list(&input), by);
                let told =
                    if is_stated { told } else { tr!("{told} (tiles of {size} keys)", told, size) };
                let edits: Edits = edits.iter().map(|(_, edit)| edit.clone()).collect();
                let at = edits[0].at;
                self.add_all(Kind::Axes, cost, edits, at, told);
            }
        }
    }

    /// Queries that are scaled in every tile, so that the scores of later tiles have the scale several times.
    fn scaled_in_every_tile(&mut self, parts: &Parts, cost: u32, size: Option<usize>) {
        let Some(scale) = self.scale_at(Name::Scores).filter(|scale| *scale > 0.0) else { return };
        let mut factors = vec![1.0; self.sizes.keys()];
        for (at, spans) in parts.keys.iter().enumerate() {
            let Ok(times) = i32::try_from(at) else { return };
            for (first, end) in spans {
                factors.iter_mut().take(*end).skip(*first).for_each(|own| *own = scale.powi(times));
            }
        }
        let told = tr!(
            "the queries are scaled again in every {name}: the scores of {name} i are multiplied by the scale {power} times",
            name = parts.axis.told(),
            power = "i + 1"
        );
        let told = match size {
            Some(size) => tr!("{told} (tiles of {size} keys)", told, size),
            None => told,
        };
        let change = after(Slip::Along(3, Along::Each(factors)), &[]);
        self.add(Kind::Repeated, cost, Name::Scores, change, told);
    }

    /// Scaling, capping and biases that are left out in tiles that the mask blocks in part, or in all others.
    fn within_tiles(&mut self, stated: Option<&Parts>) {
        let Some(own) = self.own_mask().filter(|own| own.blocked.contains(&true)) else { return };
        let size = stated.and_then(|parts| {
            let (from, to) = parts.keys.first()?.first()?;
            Some((parts.queries.unwrap_or(to - from), to - from))
        });
        let tiles = size.map_or_else(|| pairs(&own), |size| vec![size]);
        let mut known = HashSet::new();
        for (m, n) in tiles.into_iter().filter(|(m, n)| m * n > 1) {
            let counts = own.in_tiles((m, n));
            let in_part = own.of(|b, q, k| counts(b, q, k).iter().all(|count| *count > 0));
            let others = own.of(|b, q, k| !in_part.at(b, q, k));
            if known.insert(in_part.blocked.clone()) {
                self.filled_at_the_edge(&own, &in_part, (m, n), stated.is_some());
                known.remove(&in_part.blocked);
            }
            for (cells, told, place) in [
                (
                    in_part,
                    tr!("left out in tiles that the mask blocks in part"),
                    tr!("in tiles that the mask blocks in part"),
                ),
                (
                    others,
                    tr!("left out in all tiles but those that the mask blocks in part"),
                    tr!("in all tiles but those that the mask blocks in part"),
                ),
            ] {
                // Whole items are told as that.
                let is_new = known.insert(cells.blocked.clone()) && !cells.hides_whole_items(&own);
                let Ok(cells) = cells.tensor() else { return };
                let cost = if stated.is_some() { cost::COMMON } else { cost::RARE };
                for (fill, how) in [
                    (std::f64::consts::LN_2, tr!("exp2 is taken of scores without log2 e")),
                    (std::f64::consts::LOG2_E, tr!("exp is taken of scores with log2 e")),
                ] {
                    let multiplied = Slip::Times(Block { cells: cells.clone(), fill });
                    let told =
                        tr!("{how} {place} (tiles of {m} queries and {n} keys)", how, place, m, n);
                    if is_new {
                        self.add(
                            Kind::Replaced,
                            cost,
                            Name::MaskedScores,
                            after(multiplied, &[]),
                            told,
                        );
                    }
                }
                for name in [Name::Scores, Name::ScoresCapped, Name::ScoresBiased] {
                    let Some(step) = self.right.step(name).filter(|_| is_new) else { continue };
                    let Some(before) = self.read(step).first().copied() else { continue };
                    let within = Slip::Within(Block { cells: cells.clone(), fill: 0.0 });
                    let told = tr!("{told} (tiles of {m} queries and {n} keys)", told, m, n);
                    let what = tr!("it is {told}", told);
                    self.add(Kind::Omitted, cost, name, after(within, &[before]), what);
                }
            }
        }
    }

    /// Query heads of one key head that are packed into rows beside the tokens, which are told apart wrongly.
    fn packed_groups(&mut self) {
        let (heads, kv_heads) = (self.sizes.heads, self.sizes.kv_heads.max(1));
        let group = heads / kv_heads;
        let Some(queries) = self.own_mask().map(|own| own.queries) else { return };
        if group < 2 || queries < 2 {
            return;
        }
        let products = self.products().into_iter().filter(|(_, slot, _)| *slot == 0);
        let mut places: Vec<(Name, Option<usize>, Name)> =
            products.map(|(reader, slot, input)| (reader, Some(slot), input)).collect();
        places.extend([Name::Lse, Name::HeadOutputs].map(|name| (name, None, name)));
        for (tokens_first, told) in [
            (false, tr!("rows of a packed group are (token, head), and are read as (head, token)")),
            (true, tr!("rows of a packed group are (head, token), and are read as (token, head)")),
        ] {
            let mut both: Vec<Edit> = Vec::new();
            for (name, slot, input) in &places {
                let Some(step) = self.right.step(*input) else { continue };
                let dims: Vec<_> = step.axes.iter().collect();
                let [(_, items), _, (_, tokens), rest @ ..] = &dims[..] else { continue };
                let rows = if tokens_first { [*tokens, group] } else { [group, *tokens] };
                let features = rest.iter().map(|(_, size)| *size);
                let view = [*items, kv_heads].into_iter().chain(rows).chain(features).collect();
                let order = [0, 1, 3, 2, 4].into_iter().take(dims.len() + 1).collect();
                let rearrange = Rearrange { blocks: Vec::new(), view, order, result: dims };
                let op: Op = Heads::Rearrange(rearrange).into();
                let change = match slot {
                    Some(slot) => Change::Before(*slot, op, Vec::new()),
                    None => after(op, &[]),
                };
                if slot.is_none() {
                    both.push(Edit::new(*name, change.clone()));
                }
                self.add(Kind::Axes, cost::PLAIN, *name, change, told);
            }
            if let [first, _] = &both[..] {
                let at = first.at;
                self.add_all(Kind::Axes, cost::PLAIN, both, at, told);
            }
        }
        self.packed_masks(group);
    }

    /// The causal mask of such rows, by another token than the row's own.
    fn packed_masks(&mut self, group: usize) {
        let (Some(own), Some((first, window))) = (self.own_mask(), self.causal()) else { return };
        let heads = self.sizes.heads;
        if own.blocked.len() * heads > MOST_CELLS {
            return;
        }
        let row = |token: usize, head: usize| token * group + head % group;
        let turned = |token: usize, head: usize, tokens: usize| head % group * tokens + token;
        let kv_heads = (heads / group).max(1);
        let all: [(TokenOf, &str); 5] = [
            (
                &|token, head, _| row(token, head) / kv_heads,
                tr!(
                    "in a packed group of rows (token, head) the mask takes row // key heads for the token, which is row // heads of the group"
                ),
            ),
            (
                &|token, head, tokens| row(token, head) % tokens,
                tr!(
                    "in a packed group of rows (token, head) the mask takes row % tokens for the token, which is row // heads of the group"
                ),
            ),
            (
                &|token, head, _| row(token, head),
                tr!(
                    "in a packed group of rows (token, head) the mask takes the row for the token: it is not divided by the heads of the group"
                ),
            ),
            (
                &|token, head, tokens| turned(token, head, tokens) / group,
                tr!(
                    "in a packed group of rows (head, token) the mask takes row // heads of the group for the token, which is row % tokens"
                ),
            ),
            (
                &turned,
                tr!(
                    "in a packed group of rows (head, token) the mask takes the row for the token, not modulo the tokens"
                ),
            ),
        ];
        let documents = self.documents();
        let sequences = Sequences::new(documents, &own);
        let mut made = Vec::new();
        for (token, told) in all {
            let mut cells = Vec::with_capacity(own.blocked.len() * heads);
            for (item, head) in (0..own.items).flat_map(|b| (0..heads).map(move |h| (b, h))) {
                for (query, key) in
                    (0..own.queries).flat_map(|q| (0..own.keys).map(move |k| (q, k)))
                {
                    let is_hidden = sequences.pair(item, query, key).is_none_or(|pair| {
                        let tokens = usize::try_from(pair.queries).unwrap_or(1).max(1);
                        let place = usize::try_from(pair.query).unwrap_or_default();
                        let at = token(place, head, tokens);
                        let edge = documents.map_or(first, |_| pair.keys - pair.queries);
                        let last = signed(at) + edge;
                        let is_early = window.is_some_and(|window| last - pair.key >= window);
                        // What else hides keys does so by the token that it is taken for.
                        let other = (query + at).checked_sub(place).filter(|_| at < tokens);
                        pair.key > last
                            || is_early
                            || other.is_some_and(|other| own.at(item, other, key))
                    });
                    cells.push(u8::from(is_hidden));
                }
            }
            let shape = (own.items, heads, own.queries, own.keys);
            made.extend(
                candle_core::Tensor::from_vec(cells, shape, &candle_core::Device::Cpu)
                    .ok()
                    .map(|cells| (cells, told)),
            );
        }
        for (cells, told) in made {
            self.masked_as(cells, told, cost::PLAIN);
        }
    }
}

/// Which tile another one reads in its own place.
#[derive(Debug, Clone, Copy)]
pub enum Loaded {
    /// The one before (−1), the next (1), or the first (0).
    By(isize),
    /// Tile j is loaded into stage j % `stored` of a ring, and stage j % `read` is read.
    Ring { stored: usize, read: usize },
}

/// Rings of so many stages, of which another number is read.
const STAGES: [(usize, usize); 5] = [(2, 1), (3, 2), (4, 2), (4, 3), (3, 1)];

/// What a tile reads of another one, in words.
fn of_other_tile(part: &str, input: &str, by: Loaded) -> String {
    match by {
        Loaded::Ring { stored, read } => tr!(
            "each {part} reads {input} from stage j % {read} of a ring of {stored} stages, into which {part} j is loaded at j % {stored}",
            part,
            input,
            read,
            stored
        ),
        Loaded::By(0) => tr!(
            "each {part} reads {input} of the first {part}: the pointer does not move on",
            part,
            input
        ),
        Loaded::By(1) => tr!("each {part} reads {input} of the next {part}", part, input),
        Loaded::By(_) => {
            tr!("each {part} reads {input} of the {part} before, which is stale", part, input)
        }
    }
}

/// The token that a query and its head are taken for, of so many tokens.
type TokenOf<'a> = &'a dyn Fn(usize, usize, usize) -> usize;

/// The places that keys are taken from where each part reads that of another one; nothing where a part would have more than
/// there is.
pub fn taken_from(parts: &Parts, by: Loaded, keys: usize) -> Option<Vec<usize>> {
    let mut places: Vec<usize> = (0..keys).collect();
    for (at, spans) in parts.keys.iter().enumerate() {
        let from = match by {
            Loaded::By(0) => Some(0),
            Loaded::By(by) => at.checked_add_signed(by),
            Loaded::Ring { stored, read } => {
                (0..=at).rev().find(|own| own % stored == at % read % stored)
            }
        };
        // The first and the last have no other.
        let Some(others) = from.and_then(|from| parts.keys.get(from)) else { continue };
        for ((first, end), (other, _)) in spans.iter().zip(others) {
            for key in *first..*end {
                *places.get_mut(key)? = (other + key - first).min(keys.checked_sub(1)?);
            }
        }
    }
    Some(places)
}
