//! What goes wrong in one step of the loop over tiles alone, or one step late; and the same where the loop goes from the last tile
//! to the first, as kernels have it.

use candle_core::{Device, Tensor};

use super::Grammar;
use super::part_keys::Keys;
use super::tile_loops::MOST_PARTS;
use crate::candidate::{Edits, cost};
use program::{
    Block, Change, Edit, Kind, Name, Op, PartSlip, PartStage, Parted, Parts, Slip, signed, whole,
};

/// What goes by the order of the tiles: the last of them, and what was added up before.
const IN_ORDER: [PartSlip; 12] = [
    PartSlip::OldSum,
    PartSlip::Overwritten,
    PartSlip::KeptInBf16,
    PartSlip::NotRescaled,
    PartSlip::BinaryFactor,
    PartSlip::Squared,
    PartSlip::OldMax,
    PartSlip::AllRescaled,
    PartSlip::DividedEach,
    PartSlip::MaxInBf16,
    PartSlip::AddedLate,
    PartSlip::LateToEnd,
];

/// How far a distance that is extended may be off by rounding.
const EVEN: f64 = 1e-4;

impl Grammar<'_> {
    /// What goes wrong with what was added up before, in one tile or late.
    pub(super) fn in_one_tile(&mut self, parts: &Parts, steps: [Name; 3]) {
        let [_, of_sum, of_acc] = steps;
        let count = parts.keys.len();
        let is_tried = |at: &usize| count <= MOST_PARTS || *at < 3 || *at + 2 >= count;
        let orders = [false, true].into_iter();
        let places = orders.flat_map(|is_reversed| (1..count).map(move |at| (at, is_reversed)));
        for (at, is_reversed) in places.filter(|(at, _)| is_tried(at)) {
            let cells = (0..count).map(|own| u8::from(own == at)).collect();
            let Ok(cells) = Tensor::from_vec(cells, (count, 1, 1, 1), &Device::Cpu) else { return };
            let tile = if is_reversed { count - 1 - at } else { at };
            for (fill, told) in [
                (0.0, tr!("tile {tile} overwrites what was added up before it", tile)),
                (1.0, tr!("what was added up before is not rescaled in tile {tile}", tile)),
            ] {
                let block = || Slip::Block(Block { cells: cells.clone(), fill });
                let edit = |at: Name| {
                    let read = self.right.step(at).map(|step| self.read(step))?;
                    let slot = read.iter().position(|read| *read == Name::TileFactor)?;
                    Some(Edit::new(at, Change::before(slot, block())))
                };
                let (sum, acc) = (edit(of_sum), edit(of_acc));
                for edits in [vec![sum.clone(), acc.clone()], vec![acc], vec![sum]] {
                    let edits: Edits = edits.into_iter().flatten().collect();
                    if is_reversed {
                        self.in_reverse(parts, steps, edits, &told);
                    } else {
                        let at = edits.first().map_or(of_sum, |edit| edit.at);
                        self.add_all(Kind::Replaced, cost::COMMON, edits, at, &told);
                    }
                }
            }
        }
        self.one_late(parts, steps);
    }

    /// What tiles give, added one tile later.
    fn one_late(&mut self, parts: &Parts, steps: [Name; 3]) {
        let Some(acc) = self.right.step(steps[2]) else { return };
        let Op::Parted(own) = &acc.op else { return };
        let with = |slip: PartSlip| Op::from(Parted { slip: Some(slip), ..own.clone() });
        let late = Edit::new(acc.name, Change::Replace(with(PartSlip::AddedLate)));
        let end = Change::Feed(0, with(PartSlip::LateToEnd), self.read(acc));
        let end = Edit::new(Name::HeadOutputs, end);
        for (slip, edits) in
            [(PartSlip::LateToEnd, vec![late.clone(), end]), (PartSlip::AddedLate, vec![late])]
        {
            let told = slip.told();
            self.add_all(Kind::Replaced, cost::COMMON, edits.clone(), steps[2], told);
            self.slipped_in_reverse(parts, steps, edits, slip);
        }
    }

    /// The same slip in a loop from the last tile to the first, if it goes by the order.
    pub(super) fn slipped_in_reverse(
        &mut self,
        parts: &Parts,
        steps: [Name; 3],
        edits: Edits,
        slip: PartSlip,
    ) {
        if IN_ORDER.contains(&slip) {
            self.in_reverse(parts, steps, edits, slip.told());
        }
    }

    /// These edits in a loop from the last tile to the first.
    fn in_reverse(&mut self, parts: &Parts, steps: [Name; 3], edits: Edits, told: &str) {
        let keys: Keys = parts.keys.iter().rev().cloned().collect();
        let mut all: Edits = edits.into_iter().map(|edit| in_parts(edit, &keys)).collect();
        let is_replaced = |at: Name| {
            all.iter().any(|edit| edit.at == at && matches!(edit.change, Change::Replace(_)))
        };
        let others = steps.into_iter().filter(|at| !is_replaced(*at));
        let others: Edits = others.filter_map(|at| self.with_keys(at, &keys)).collect();
        all.extend(others);
        let told = tr!("{told} (the loop goes from the last tile to the first)", told);
        self.add_all(Kind::Replaced, cost::COMMON, all, steps[1], told);
    }

    /// Position biases of which the start of a tile is added to the place of a query or a key once more, or is left out.
    pub(super) fn moved_bias(&mut self, (rows, size): (usize, usize)) {
        let Some(step) = self.right.step(Name::ScoresBiased) else { return };
        let Some(bias) = self.right.read_by(step).get(1).copied() else { return };
        let Some(of_distance) = ByDistance::of(&bias.value) else { return };
        let start = |at: usize, size: usize| signed(at / size.max(1) * size);
        for (times, told) in [
            ((0, 1), tr!("the start of a key's tile is added to its place twice")),
            ((1, 0), tr!("the start of a query's tile is added to its place twice")),
            ((-1, 0), tr!("the start of a query's tile is left out of its place: a local index")),
            (
                (-1, -1),
                tr!("the starts of the tiles of query and key are left out of their places"),
            ),
        ] {
            let further = |q: usize, k: usize| times.0 * start(q, rows) - times.1 * start(k, size);
            let Some(cells) = of_distance.further(further) else { continue };
            let change = Change::before(1, Slip::Counted(Block { cells, fill: 0.0 }));
            let told = tr!("the position bias goes by other places: {told}", told);
            self.add(Kind::Axes, cost::COMMON, Name::ScoresBiased, change, told);
        }
    }
}

/// The edit with these keys of its parts.
fn in_parts(mut edit: Edit, keys: &Keys) -> Edit {
    if let Change::Replace(Op::Parted(own)) | Change::Feed(_, Op::Parted(own), _) = &mut edit.change
        && let PartStage::Largest(parts) | PartStage::Sum(parts) | PartStage::Weighted(parts) =
            &mut own.stage
    {
        parts.keys.clone_from(keys);
    }
    edit
}

/// A position bias that goes by the distance of query and key alone: of each head its numbers, from that of the last key before
/// the first query on.
struct ByDistance {
    heads: Vec<Vec<f64>>,
    shape: Vec<usize>,
    queries: usize,
    keys: usize,
}

impl ByDistance {
    fn of(bias: &Tensor) -> Option<Self> {
        let &[.., queries, keys] = bias.dims() else { return None };
        let all = crate::cells::cells(bias).ok()?;
        let mut heads = Vec::new();
        for own in all.chunks((queries * keys).max(1)) {
            let mut numbers = vec![f64::NAN; queries + keys];
            for (at, value) in own.iter().enumerate() {
                let number = numbers.get_mut(at / keys + keys - 1 - at % keys)?;
                if number.is_nan() {
                    *number = *value;
                }
                // Neither NaN nor a mask is a distance's.
                let is_it = (*number - value).abs() <= EVEN * value.abs();
                if !is_it {
                    return None;
                }
            }
            numbers.truncate(queries + keys - 1);
            heads.push(numbers);
        }
        (queries + keys > 4).then(|| Self { heads, shape: bias.dims().to_vec(), queries, keys })
    }

    /// What is added to the bias where the distance of a query and a key is so much more than it should be. Beyond the longest
    /// distances it goes on as it does there.
    fn further(&self, by: impl Fn(usize, usize) -> i64) -> Option<Tensor> {
        let (queries, keys) = (self.queries, self.keys);
        let mut all = Vec::new();
        for numbers in &self.heads {
            let at = |place: i64| {
                let last = numbers.len() - 1;
                let near = place.clamp(0, signed(last));
                let near = whole(near as f64).unwrap_or_default().min(last);
                let beside = if near == 0 { 1 } else { near - 1 };
                let each =
                    if near == 0 || near == last { numbers[near] - numbers[beside] } else { 0.0 };
                numbers[near] + each * (place - signed(near)).abs() as f64
            };
            for (q, k) in (0..queries).flat_map(|q| (0..keys).map(move |k| (q, k))) {
                let own = signed(q + keys - 1 - k);
                all.push(at(own + by(q, k)) - at(own));
            }
        }
        if all.iter().all(|own| *own == 0.0) {
            return None;
        }
        Tensor::from_vec(all, self.shape.as_slice(), &Device::Cpu).ok()
    }
}
