//! Which other cells may be blocked, and in which other ways?

use candle_core::{Device, Tensor};

use super::cells::Cells;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{Block, Change, Edit, Kind, Masking, Name, Op, Slip, Step, signed};

impl<'r> Grammar<'r> {
    pub(super) fn masks(&mut self) {
        if let Some(step) = self.right.step(Name::MaskedScores) {
            let fill = step.op.operation().facts().fill.unwrap_or(f64::NEG_INFINITY);
            if let Some(scores) = self.right.read_by(step).first() {
                self.applied(step, scores.name, fill);
            }
            self.parts();
        }
        self.packed_rows();
        self.empty_slots();
        self.wrapped();
        self.mask_with(|grammar, own| {
            grammar.padded_rows(own);
            let mut all = grammar.others(own);
            all.extend(grammar.window_of_last(own));
            all.extend(grammar.rings(own));
            all.extend(grammar.in_other_bits(own));
            all.extend(grammar.by_sequence(own));
            all.extend(grammar.causal_instead(own));
            grammar.unstated_tiles(own, &mut all);
            all.extend(grammar.overwritten(own));
            all
        });
    }

    /// Masks in the place of the run's own, or where it has none.
    pub(super) fn mask_with(
        &mut self,
        others: impl FnOnce(&mut Self, &Cells) -> Vec<(Cells, String, u32)>,
    ) {
        let Some(own) = self.own_mask() else { return };
        for (cells, told, cost) in others(self, &own) {
            if cells.blocked == own.blocked {
                continue;
            }
            let Ok(cells) = cells.tensor() else { return };
            self.masked_as(cells, told, cost);
        }
    }

    /// The cells that the run's mask blocks, if all heads share it; none where it has no mask.
    pub(super) fn own_mask(&self) -> Option<Cells> {
        let at = *self.blocked_at().first()?;
        let shape = self.right.read_by(at).first()?.axes.shape();
        let none = Tensor::zeros((1, 1, 1, 1), candle_core::DType::U8, &Device::Cpu);
        let mask = self.right.mask_of_scores().map_or(none, |mask| Ok(mask.value.clone()));
        Cells::read(&mask.ok()?, &shape).ok()?
    }

    /// Notes that these cells are blocked, true = blocked, and no others.
    pub(super) fn masked_as(&mut self, cells: Tensor, told: impl AsRef<str>, cost: u32) {
        let steps = self.blocked_at();
        let Some(at) = steps.first().copied() else { return };
        let Some(scores) = self.read(at).first().copied() else { return };
        let fill = at.op.operation().facts().fill.unwrap_or(f64::NEG_INFINITY);
        let block = Slip::Block(Block { cells, fill });
        let edit = |step: &&Step| {
            let block = block.clone().into();
            let change = if step.name == Name::MaskedScores {
                Change::Become(block, vec![scores])
            } else {
                Change::Before(0, block, Vec::new())
            };
            Edit::new(step.name, change)
        };
        let edits = steps.iter().map(edit).collect();
        self.add_all(Kind::Mask, cost, edits, at.name, told);
    }

    /// The steps where scores are blocked: those that mask them, or else all that read them where nothing is masked.
    pub(super) fn blocked_at(&self) -> Vec<&'r Step> {
        let masked = self.right.step(Name::MaskedScores);
        masked.map_or_else(|| self.readers_of_scores(), |masked| vec![masked])
    }

    /// The steps that read the scores that are to be weighed.
    pub(super) fn readers_of_scores(&self) -> Vec<&'r Step> {
        let readers = [
            Name::Weights,
            Name::SplitMax,
            Name::SplitSum,
            Name::SplitAcc,
            Name::TileMax,
            Name::TileSum,
            Name::TileAcc,
            Name::Lse,
        ];
        let readers = readers.iter().filter_map(|name| self.right.step(*name));
        // Splits and tiles have a log-sum-exp of their own, which is merged.
        let weights = self.right.step(Name::Weights).map(|step| self.read(step));
        let is_of_scores = |step: &&Step| {
            step.name != Name::Lse || weights.as_ref().is_some_and(|own| *own == self.read(step))
        };
        readers.filter(is_of_scores).collect()
    }

    /// One part of a mask of several, or all but one.
    fn parts(&mut self) {
        let Some(mask) = self.right.step(Name::Mask) else { return };
        let parts = self.read(mask);
        if parts.len() < 2 {
            return;
        }
        for part in &parts {
            let others: Vec<Name> = parts.iter().copied().filter(|other| other != part).collect();
            let told = tr!("{part} is left out of it", part);
            self.add(Kind::Mask, cost::COMMON, Name::Mask, Change::Read(others), told);
            let told = tr!("it is {part} alone", part);
            self.add(Kind::Mask, cost::COMMON, Name::Mask, Change::Read(vec![*part]), told);
        }
    }

    /// Another way to apply the right mask.
    fn applied(&mut self, step: &Step, scores: Name, fill: f64) {
        let whole = self.right.mask_of_scores().map_or(Name::Mask, |mask| mask.name);
        for mask in [whole, Name::KeyMask, Name::LengthMask, Name::FileMask, Name::CausalMask] {
            if self.right.step(mask).is_none() {
                continue;
            }
            for (factor, addend, told) in [
                (1.0, 0.0, tr!("{mask} is added to the scores as 0 and 1", mask)),
                (-1.0, 0.0, tr!("{mask} is subtracted from the scores as 0 and 1", mask)),
                (-1.0, 1.0, tr!("{mask} of visible keys is added to the scores as 0 and 1", mask)),
            ] {
                let add = Slip::Add { factor, addend };
                let change = Change::Become(add.into(), vec![scores, mask]);
                self.add(Kind::Mask, cost::COMMON, step.name, change, told);
            }
            let zero = Masking::Fill { fill: program::Fill(0.0) };
            let told = tr!(
                "what {mask} blocks becomes 0 after softmax, and the rest is not made up to 1",
                mask
            );
            self.add(Kind::Mask, cost::PLAIN, Name::Weights, after(zero, &[mask]), told);
        }
        let zero = Masking::Fill { fill: program::Fill(0.0) };
        let edits = vec![
            Edit::new(step.name, Change::Replace(zero.clone().into())),
            Edit::new(whole, after(Masking::Not, &[])),
        ];
        let told =
            tr!("the scores are multiplied by the mask: what it blocks stays, the rest is 0");
        self.add_all(Kind::Mask, cost::PLAIN, edits, step.name, told);
        let told = tr!("the mask is applied to the weights, after softmax, with its fill");
        let late = Op::from(Masking::Fill { fill: program::Fill(fill) });
        let edits = vec![
            Edit::new(step.name, Change::Omit),
            Edit::new(Name::Weights, after(late, &[whole])),
        ];
        self.add_all(Kind::Mask, cost::PLAIN, edits, step.name, told);
        let sign = Masking::Fill { fill: program::Fill(-fill) };
        let told = tr!(
            "blocked scores become {fill_2} in place of {fill}",
            fill_2 = -fill,
            fill = format!("{fill:e}")
        );
        self.add(Kind::Mask, cost::COMMON, step.name, Change::Replace(sign.into()), told);
    }

    /// The causal mask, aligned to the first or the last query and key, in the place of one that is given.
    fn causal_instead(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        if !own.blocked.contains(&true) || self.causal().is_some() {
            return Vec::new();
        }
        let told = tr!("it is the causal mask, whatever mask is given");
        let causal = |last: usize| own.of(|_, query, key| key + own.queries > query + last);
        let all = [own.queries, own.keys].into_iter();
        all.map(|last| (causal(last), told.to_owned(), cost::PLAIN)).collect()
    }

    /// Masks that people make in the place of one.
    fn others(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        let first = i64::try_from(self.sizes.first_position()).unwrap_or_default();
        let distance = |query: usize, key: usize| signed(query) + first - signed(key);
        let (queries, keys) = (own.queries, own.keys);
        let mut all: Vec<(Cells, String, u32)> = Vec::new();
        let mut add =
            |cells: Cells, told: &str, cost: u32| all.push((cells, told.to_owned(), cost));
        let of = |is_blocked: &dyn Fn(usize, usize, usize) -> bool| own.of(is_blocked);
        if queries == keys {
            add(of(&|b, q, k| own.at(b, k, q)), tr!("the mask is transposed"), cost::COMMON);
        }
        add(of(&|b, q, k| !own.at(b, q, k)), tr!("the mask is inverted"), cost::COMMON);
        add(of(&|_, _, _| true), tr!("every key is blocked"), cost::COMMON);
        add(
            of(&|b, q, k| own.at(b, q, keys - 1 - k)),
            tr!("the mask is reversed along the keys"),
            cost::PLAIN,
        );
        add(
            of(&|b, q, k| own.at(b, queries - 1 - q, k)),
            tr!("the mask is reversed along the queries"),
            cost::PLAIN,
        );
        add(
            of(&|b, _, k| own.at(b, 0, k)),
            tr!("every query has the mask of the first"),
            cost::PLAIN,
        );
        add(
            of(&|b, _, k| own.at(b, queries - 1, k)),
            tr!("every query has the mask of the last"),
            cost::PLAIN,
        );
        for by in [1, keys - 1] {
            let told = if by == 1 {
                tr!("the mask is one key too far right")
            } else {
                tr!("the mask is one key too far left")
            };
            add(of(&|b, q, k| own.at(b, q, (k + keys - by) % keys)), told, cost::PLAIN);
        }
        add(
            of(&|b, q, k| own.at(b, q, k) && distance(q, k) != 0),
            tr!("no token is kept from itself"),
            cost::RARE,
        );
        add(
            of(&|b, q, k| own.at(b, q, k) || distance(q, k) == 0),
            tr!("the diagonal is blocked as well"),
            cost::COMMON,
        );
        add(
            of(&|b, q, k| own.at(b, q, k) || k == 0),
            tr!("the first key is blocked as well"),
            cost::RARE,
        );
        add(
            of(&|b, q, k| own.at(b, q, k) || k + 1 == keys),
            tr!("the last key is blocked as well"),
            cost::RARE,
        );
        add(
            of(&|b, q, k| own.at(b, q, k) && q > 0),
            tr!("the first query is not masked"),
            cost::RARE,
        );
        add(
            of(&|b, q, k| own.at(b, q, k) && q + 1 < queries),
            tr!("the last query is not masked"),
            cost::RARE,
        );
        for prefix in 1..keys.min(9) {
            let told = tr!("the first {prefix} keys are visible to every query", prefix);
            add(of(&|b, q, k| own.at(b, q, k) && k >= prefix), &told, cost::RARE);
        }
        for by in [-3, -2, -1, 0, 1, 2, 3] {
            let told = match by {
                0 => tr!("keys after the query are blocked as well").to_owned(),
                by => tr!(
                    "keys after the query's position {by} are blocked as well",
                    by = format!("{by:+}")
                ),
            };
            add(
                of(&|b, q, k| own.at(b, q, k) || distance(q, k) + by < 0),
                &told,
                cost::PLAIN + u32::from(by != 0),
            );
        }
        add(
            of(&|b, q, k| own.at(b, q, k) || distance(q, k) > 0),
            tr!("keys before the query are blocked as well"),
            cost::PLAIN,
        );
        of_items(own, &mut add);
        self.windows(own, &mut |cells, told, cost| all.push((cells, told, cost)));
        self.unions(own, &mut |cells, told, cost| all.push((cells, told, cost)));
        self.other_padding(own, &mut |cells, told, cost| all.push((cells, told, cost)));
        all
    }

    /// What a mask of several parts blocks where all of them do.
    fn unions(&self, own: &Cells, add: &mut dyn FnMut(Cells, String, u32)) {
        let Some(mask) = self.right.step(Name::Mask) else { return };
        let shape = [own.items, 1, own.queries, own.keys];
        let parts: Vec<Cells> = self
            .read(mask)
            .into_iter()
            .filter_map(|part| Cells::read(self.value(part)?, &shape).ok().flatten())
            .collect();
        if parts.len() > 1 {
            let all = own.of(|b, q, k| parts.iter().all(|part| part.at(b, q, k)));
            add(
                all,
                tr!("only cells that every part of the mask blocks are blocked").to_owned(),
                cost::COMMON,
            );
        }
    }

    pub(super) fn value(&self, name: Name) -> Option<&Tensor> {
        self.right.step(name).map(|step| &step.value)
    }
}

/// Masks of which items have each other's.
fn of_items(own: &Cells, add: &mut dyn FnMut(Cells, &str, u32)) {
    let items = own.items;
    let of = |is_blocked: &dyn Fn(usize, usize, usize) -> bool| own.of(is_blocked);
    for by in 1..items {
        let told = tr!("items have each other's mask, that of the item {by} further on", by);
        add(of(&|b, q, k| own.at((b + by) % items, q, k)), &told, cost::COMMON);
    }
    if items > 2 {
        let told = tr!("each item has the mask of the next one, and the last its own");
        add(of(&|b, q, k| own.at((b + 1).min(items - 1), q, k)), told, cost::COMMON);
        let told = tr!("each item has the mask of the one before, and the first its own");
        add(of(&|b, q, k| own.at(b.saturating_sub(1), q, k)), told, cost::COMMON);
        let told = tr!("items have each other's mask, the last that of the first");
        add(of(&|b, q, k| own.at(items - 1 - b, q, k)), told, cost::COMMON);
    }
    if items > 1 {
        add(
            of(&|_, q, k| own.at(0, q, k)),
            tr!("every item has the mask of the first"),
            cost::COMMON,
        );
        add(
            of(&|b, q, k| b == 0 && own.at(b, q, k)),
            tr!("only the first item is masked"),
            cost::PLAIN,
        );
        add(
            of(&|_, q, k| (0..items).any(|b| own.at(b, q, k))),
            tr!("what any item's mask blocks is blocked in all"),
            cost::PLAIN,
        );
        add(
            of(&|_, q, k| (0..items).all(|b| own.at(b, q, k))),
            tr!("only what every item's mask blocks is blocked"),
            cost::PLAIN,
        );
    }
}
