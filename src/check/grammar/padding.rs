//! What becomes of padding: which keys of it are seen, and which of its rows are 0?

use candle_core::{Device, Tensor};

use super::cells::Cells;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{Block, Change, Kind, Name, QueryRows, Slip, signed};

impl Grammar<'_> {
    /// Padded tokens that become 0.
    pub(super) fn padded_rows(&mut self, own: &Cells) {
        let Some(padding) = self.padding(own) else { return };
        let first = self.sizes.first_position();
        let rows = |count: usize, first: usize| {
            let cells = (0..own.items)
                .flat_map(|item| (0..count).map(move |row| (item, row)))
                .map(|(item, row)| u8::from(padding.at(item, 0, first + row)));
            Tensor::from_vec(cells.collect::<Vec<_>>(), (own.items, count, 1), &Device::Cpu)
        };
        let (Ok(queries), Ok(keys)) = (rows(own.queries, first), rows(own.keys, 0)) else { return };
        for name in [
            Name::Q,
            Name::K,
            Name::V,
            Name::QHeads,
            Name::KHeads,
            Name::VHeads,
            Name::HeadOutputs,
            Name::Concat,
            Name::Output,
        ] {
            let Some(step) = self.right.step(name) else { continue };
            let tokens = if step.axes.rank() == 4 { 2 } else { 1 };
            let count = step.axes.iter().nth(tokens).map(|(_, count)| count);
            let cells = [&queries, &keys].into_iter().find(|cells| cells.dim(1).ok() == count);
            let Some(cells) = cells else { continue };
            let cells = if tokens == 2 { cells.unsqueeze(1) } else { Ok(cells.clone()) };
            let Ok(cells) = cells else { continue };
            let zero = Slip::Block(Block { cells, fill: 0.0 });
            self.add(
                Kind::Inserted,
                cost::PLAIN,
                name,
                after(zero.clone(), &[]),
                tr!("padded tokens are set to 0"),
            );
            if matches!(name, Name::Q | Name::K | Name::V | Name::Output) {
                let change = Change::before(0, zero);
                let told = tr!("padded tokens are set to 0 in what it reads");
                self.add(Kind::Inserted, cost::PLAIN, name, change, told);
            }
        }
    }

    /// Padding that is taken to stand elsewhere, or is left out on one side.
    pub(super) fn other_padding(&self, own: &Cells, add: &mut dyn FnMut(Cells, String, u32)) {
        let Some(padding) = self.padding(own) else { return };
        let rows = QueryRows { first: self.sizes.first_position(), count: own.queries };
        // Padding on the left moves the tokens of an item, and not the slots that its keys stand in.
        let left = |b: usize| (0..own.keys).take_while(|k| padding.at(b, 0, *k)).count();
        let lefts: Vec<usize> = (0..own.items).map(left).collect();
        if let Some((first, _)) = self.causal() {
            let edge = |b: usize, q: usize| first + signed(q) - signed(lefts[b]);
            let early = own.of(|b, q, k| own.at(b, q, k) || signed(k) > edge(b, q));
            let told = tr!(
                "the causal edge of each item is counted from its first token, and keys from the first slot: it ends early by its padding"
            );
            add(early, told.to_owned(), cost::PLAIN);
        }
        let beside = self.hidden_beside(&[Name::KeyMask, Name::LengthMask, Name::FileMask], own);
        let turned = own.of(|b, q, k| {
            padding.at(b, q, own.keys - 1 - k) || beside.iter().any(|mask| mask.at(b, q, k))
        });
        let told = tr!("padding is taken to stand on the other side of the keys");
        add(turned, told.to_owned(), cost::COMMON);
        let on_rows = own.of(|b, q, k| own.at(b, q, k) || padding.at(b, 0, rows.first + q));
        add(on_rows, tr!("the rows of padded queries are blocked as well").to_owned(), cost::PLAIN);
        let is_padding =
            |b: usize, k: usize, in_front: bool| padding.at(b, 0, k) && (k < lefts[b]) == in_front;
        let has =
            |in_front| (0..own.items).any(|b| (0..own.keys).any(|k| is_padding(b, k, in_front)));
        if !(has(true) && has(false)) {
            return;
        }
        for (in_front, told) in [
            (true, tr!("the padding in front of the items' keys is attended to")),
            (false, tr!("the padding behind the items' keys is attended to")),
        ] {
            let opened = own.of(|b, q, k| {
                is_padding(b, k, !in_front) || beside.iter().any(|mask| mask.at(b, q, k))
            });
            add(opened, told.to_owned(), cost::COMMON);
        }
    }

    /// What padding blocks.
    pub(super) fn padding(&self, own: &Cells) -> Option<Cells> {
        let shape = [own.items, 1, own.queries, own.keys];
        // A mask of a file may be one of keys alone.
        let is_of_keys =
            |value: &&Tensor| value.rank() == 4 && value.dim(2).is_ok_and(|rows| rows == 1);
        let given = self.value(Name::FileMask).filter(is_of_keys);
        let parts = [Name::KeyMask, Name::LengthMask].into_iter();
        let parts = parts.filter_map(|part| self.value(part)).chain(given);
        let parts: Vec<Cells> =
            parts.filter_map(|part| Cells::read(part, &shape).ok().flatten()).collect();
        let any = |b, q, k| parts.iter().any(|part: &Cells| part.at(b, q, k));
        (!parts.is_empty()).then(|| own.of(any))
    }
}
