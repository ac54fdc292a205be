//! How do kernels count the keys that lists name, where they gather them one after the other?

use candle_core::{Device, Tensor};

use super::Grammar;
use super::cells::Cells;
use crate::candidate::cost;
use program::{Block, Change, Kind, Lists, Masking, Name, Op, Selected, Selection, Slip, Step};

/// Beyond so many cells keys are not counted.
const MOST_CELLS: usize = 1 << 22;

/// What a kernel makes of a number that stands for no key.
#[derive(Clone, Copy, PartialEq)]
enum Padding {
    Skipped,
    Last,
    First,
}

/// How a kernel counts keys.
#[derive(Clone, Copy)]
struct Count {
    padding: Padding,
    /// Whether a key counts as often as the list names it.
    is_repeated: bool,
    /// Whether no other mask hides what padding stands for.
    is_free: bool,
}

impl Grammar<'_> {
    pub(super) fn selected(&mut self, step: &Step) {
        let Op::Masking(Masking::Selected(own)) = &step.op else { return };
        let (Selection::Lists(lists), Some(at)) = (&own.by, self.right.step(Name::MaskedScores))
        else {
            return;
        };
        let Some(scores) = self.right.read_by(at).first().copied() else { return };
        let shape = scores.axes.shape();
        if shape.iter().product::<usize>() > MOST_CELLS {
            return;
        }
        let [items, _, queries, keys] = shape[..] else { return };
        let cells = Cells { blocked: Vec::new(), items, queries, keys };
        let hidden = self.hidden_beside(&[step.name], &cells);
        self.begun_elsewhere(own, lists, &hidden, &shape);
        for padding in [Padding::Skipped, Padding::Last, Padding::First] {
            for (is_repeated, is_free) in [(true, false), (true, true), (false, true)] {
                let count = Count { padding, is_repeated, is_free };
                if padding == Padding::Skipped && is_free {
                    continue;
                }
                let Some(cells) = count.logarithms(own, lists, &hidden, &shape) else { continue };
                let slip = Slip::Counted(Block { cells, fill: 0.0 });
                let change = Change::Become(slip.into(), vec![scores.name]);
                let told = count.told();
                let cost = cost::PLAIN + u32::from(is_free) + u32::from(is_repeated);
                self.add(Kind::Mask, cost, at.name, change, told);
            }
        }
    }

    /// Blocks of keys that begin at their number times the rows of a block.
    fn begun_elsewhere(
        &mut self,
        own: &Selected,
        lists: &Lists,
        hidden: &[Cells],
        shape: &[usize],
    ) {
        let &[items, heads, queries, keys] = shape else { return };
        if lists.tile == lists.block {
            return;
        }
        let own_heads = own.own_heads();
        let mut all = Vec::with_capacity(items * own_heads * queries * keys);
        for (item, head, row) in places([items, own_heads, queries]) {
            let of = if own_heads > 1 { head * lists.heads() / heads.max(1) } else { 0 };
            let mut seen = vec![false; keys];
            for number in lists.of(item, of, own.rows.first + row) {
                let first = usize::try_from(*number).ok().and_then(|at| at.checked_mul(lists.tile));
                let Some(first) = first else { continue };
                let last = first.saturating_add(lists.block).min(keys);
                seen.iter_mut().take(last).skip(first).for_each(|own| *own = true);
            }
            let is_hidden = |key: usize| hidden.iter().any(|mask| mask.at(item, row, key));
            let blocked = |(key, seen): (usize, &bool)| u8::from(!seen || is_hidden(key));
            all.extend(seen.iter().enumerate().map(blocked));
        }
        let told = tr!(
            "blocks of {block} keys begin at their number times the rows of a block, {tile}, not times {block}",
            block = lists.block,
            tile = lists.tile
        );
        let cells = Tensor::from_vec(all, (items, own_heads, queries, keys), &Device::Cpu);
        if let Ok(cells) = cells {
            self.masked_as(cells, told, cost::COMMON);
        }
    }

    /// What the other parts of the mask hide than these.
    pub(super) fn hidden_beside(&self, without: &[Name], cells: &Cells) -> Vec<Cells> {
        let shape = [cells.items, 1, cells.queries, cells.keys];
        let parts = self.right.step(Name::Mask).map(|mask| self.right.read_by(mask));
        let others = parts.into_iter().flatten().filter(|part| !without.contains(&part.name));
        others.filter_map(|part| Cells::read(&part.value, &shape).ok().flatten()).collect()
    }
}

impl Count {
    /// The key or block that a number is read as.
    fn read(self, number: i64, all: i64) -> Option<(i64, bool)> {
        match self.padding {
            _ if (0..all).contains(&number) => Some((number, false)),
            Padding::Skipped => None,
            Padding::Last => Some((all - 1, true)),
            Padding::First => Some((0, true)),
        }
    }

    /// The logarithms of how often each key counts, of every item, head and query.
    fn logarithms(
        self,
        own: &Selected,
        lists: &Lists,
        hidden: &[Cells],
        shape: &[usize],
    ) -> Option<Tensor> {
        let &[items, heads, rows, keys] = shape else { return None };
        let blocks = i64::try_from(keys.div_ceil(lists.block.max(1))).ok()?;
        let own_heads = own.own_heads();
        let mut all = Vec::with_capacity(items * own_heads * rows * keys);
        for (item, head, row) in places([items, own_heads, rows]) {
            let mut counts = vec![0.0_f32; keys];
            let of = if own_heads > 1 { head * lists.heads() / heads.max(1) } else { 0 };
            let mut put = |number: i64, is_padding: bool| {
                let among = lists.keys(number);
                let among = among.start.min(keys)..among.end.min(keys);
                for (key, count) in among.clone().zip(&mut counts[among]) {
                    let is_hidden = hidden.iter().any(|mask| mask.at(item, row, key));
                    if !is_hidden || (is_padding && self.is_free) {
                        *count += 1.0;
                    }
                }
            };
            for number in lists.of(item, of, own.rows.first + row) {
                if let Some((number, is_padding)) = self.read(*number, blocks) {
                    put(number, is_padding);
                }
            }
            let most = if self.is_repeated { f32::INFINITY } else { 1.0 };
            all.extend(counts.into_iter().map(|count| count.min(most).ln()));
        }
        Tensor::from_vec(all, (items, own_heads, rows, keys), &Device::Cpu).ok()
    }

    fn told(self) -> String {
        let padding = match self.padding {
            Padding::Skipped => {
                return tr!("an index that stands twice in a list is counted twice").to_owned();
            }
            Padding::Last => tr!("the padding of a list (−1) is read as the last key"),
            Padding::First => tr!("the padding of a list (−1) is read as the first key"),
        };
        match (self.is_repeated, self.is_free) {
            (true, false) => tr!("{padding}, each time that it stands there", padding),
            (false, _) => tr!("{padding}, though the mask hides it", padding),
            (true, true) => {
                tr!("{padding}, each time that it stands there, though the mask hides it", padding)
            }
        }
    }
}

/// Every item, head and row.
fn places([items, heads, rows]: [usize; 3]) -> impl Iterator<Item = (usize, usize, usize)> {
    (0..items).flat_map(move |item| {
        (0..heads).flat_map(move |head| (0..rows).map(move |row| (item, head, row)))
    })
}
