//! What do splits and tiles of the keys see in place of what a mask lets them see?

use candle_core::DType;

use super::Grammar;
use super::cells::Cells;
use crate::candidate::cost;
use program::{Block, Change, Edit, Kind, Name, Parts, Slip, signed};

impl Grammar<'_> {
    /// Tiles that the mask blocks a part of count twice, as where the loop over whole tiles does not end before them.
    pub(super) fn edge_twice(&mut self, steps: [Name; 2], size: (usize, usize)) {
        let Some(own) = self.own_mask() else { return };
        let counts = own.in_tiles(size);
        let edge = own.of(|b, q, k| counts(b, q, k).iter().all(|count| *count > 0));
        let Ok(cells) = edge
            .tensor()
            .and_then(|cells| Ok((cells.to_dtype(DType::F32)? * std::f64::consts::LN_2)?))
        else {
            return;
        };
        let twice = |at: Name| {
            let counted = Slip::Counted(Block { cells: cells.clone(), fill: 0.0 });
            Edit::new(at, Change::before(0, counted))
        };
        let told = tr!(
            "tiles that the mask blocks a part of are done twice: in the loop over whole tiles, and in that over masked ones"
        );
        let edits = steps.map(twice).to_vec();
        self.add_all(Kind::Replaced, cost::COMMON, edits, steps[0], told);
    }

    /// The exponentials are added up before the mask hides any of their keys, of tiles that it does not hide whole, or of all.
    pub(super) fn sum_before_mask(&mut self, of_sum: Name, (rows, keys): (usize, usize)) {
        let Some(own) = self.own_mask().filter(|own| own.blocked.contains(&true)) else { return };
        let scores = self.right.step(Name::MaskedScores).and_then(|step| {
            let scores = self.read(step).first().copied()?;
            let read = self.right.step(of_sum).map(|step| self.read(step))?;
            (read.first() == Some(&Name::MaskedScores)).then_some(scores)
        });
        let Some(scores) = scores else { return };
        let counts = own.in_tiles((rows.min(own.queries), keys));
        let skipped = own.of(|b, q, k| counts(b, q, k)[0] == 0);
        let is_all_reached = !skipped.blocked.contains(&true);
        for (cells, told) in [
            (
                Some(skipped).filter(|_| !is_all_reached),
                tr!("of tiles that it does not hide whole"),
            ),
            (Some(own.of(|_, _, _| false)), tr!("of all tiles")),
        ] {
            let Some(Ok(cells)) = cells.map(|cells| cells.tensor()) else { continue };
            let block = Slip::Block(Block { cells, fill: f64::NEG_INFINITY });
            let change = Change::Feed(0, block.into(), vec![scores]);
            let told = tr!(
                "the sum adds up exponentials before the mask hides keys ({told}); what is added up of the values is masked",
                told
            );
            self.add(Kind::Mask, cost::COMMON, of_sum, change, told);
        }
    }

    /// Masks by parts of so many queries and keys.
    pub(super) fn masked_by_part(
        &self,
        own: &Cells,
        parts: &Parts,
        size: (usize, usize),
    ) -> Vec<(Cells, String, u32)> {
        let mut all = Vec::new();
        self.tile(own, size, &mut |is_blocked, told| {
            let (m, n) = size;
            let told = tr!("{told} (tiles of {m} queries and {n} keys)", told, m, n);
            all.push((own.of(is_blocked), told, cost::COMMON));
        });
        let name = parts.axis.told();
        let starts = Self::starts(parts, own.keys);
        let local = |b: usize, q: usize, k: usize| own.at(b, q, k - starts[k]);
        let told = tr!(
            "the mask counts keys from the start of the {name}: a local index, not a global one",
            name
        );
        all.push((own.of(local), told, cost::COMMON));
        for (at, spans) in parts.keys.iter().enumerate() {
            let Some((first, end)) = spans.first().copied() else { continue };
            let open = |b: usize, q: usize, k: usize| own.at(b, q, k) && !(first..end).contains(&k);
            let told = tr!("the mask is not applied in {name} {at}", name, at);
            all.push((own.of(open), told, cost::COMMON));
            let is_later =
                |q: usize, k: usize| (first..end).contains(&k) && q + end < k + own.queries;
            let causal = |b: usize, q: usize, k: usize| own.at(b, q, k) || is_later(q, k);
            let told = tr!(
                "{name} {at} has a causal mask of its own: its last key is that of the last query",
                name,
                at
            );
            all.push((own.of(causal), told, cost::COMMON));
            let is_later = |q: usize, k: usize| (first..end).contains(&k) && q + first < k;
            let top_left = |b: usize, q: usize, k: usize| own.at(b, q, k) || is_later(q, k);
            let told = tr!(
                "{name} {at} has a causal mask of its own: its first key is that of the first query",
                name,
                at
            );
            all.push((own.of(top_left), told, cost::COMMON));
        }
        let mut last_of = vec![own.keys; own.keys];
        for (first, end) in parts.keys.iter().flatten() {
            last_of.iter_mut().take(*end).skip(*first).for_each(|own| *own = *end);
        }
        let is_later = |q: usize, k: usize| q + last_of[k] < k + own.queries;
        let by_ends = |b: usize, q: usize, k: usize| own.at(b, q, k) || is_later(q, k);
        let told = tr!(
            "every {name} has a causal mask of its own: its last key is that of the last query",
            name
        );
        all.push((own.of(by_ends), told, cost::COMMON));
        if let Some((last, Some(window))) = self.causal() {
            let is_out = |q: usize, k: usize| signed(k - starts[k]) + window <= signed(q) + last;
            let outside = |b: usize, q: usize, k: usize| own.at(b, q, k) || is_out(q, k);
            let told = tr!(
                "the window counts keys from the start of the {name}: a local index, not a global one",
                name
            );
            all.push((own.of(outside), told, cost::COMMON));
            let beside = self.hidden_beside(&[Name::WindowMask], own);
            let early = |b: usize, q: usize, k: usize| {
                signed(k) < signed(last_of[k]) - window
                    || beside.iter().any(|mask| mask.at(b, q, k))
            };
            let told = tr!(
                "the window is counted from the end of each {name}, not from the query: its last keys are seen",
                name
            );
            all.push((own.of(early), told, cost::COMMON));
        }
        let count = parts.keys.len();
        let at = |k: usize| {
            let has =
                |spans: &Vec<(usize, usize)>| spans.iter().any(|own| (own.0..own.1).contains(&k));
            parts.keys.iter().position(has)
        };
        let at: Vec<_> = (0..own.keys).map(at).collect();
        if own.queries >= count && own.queries.is_multiple_of(count) {
            for ahead in 1..count {
                let rank = |q: usize| (q / (own.queries / count) + ahead) % count;
                let unseen =
                    |b: usize, q: usize, k: usize| own.at(b, q, k) || at[k] == Some(rank(q));
                let told = tr!(
                    "the queries of rank r of {count} never see {name} (r + {ahead}) mod {count}: a step of the ring is left out",
                    name,
                    ahead,
                    count
                );
                all.push((own.of(unseen), told, cost::COMMON));
            }
        }
        if own.queries == own.keys && own.keys.is_multiple_of(count) && count > 1 {
            let size = own.keys / count;
            let turned =
                |q: usize, k: usize| (2 * (q / size) + count - k / size) % count * size + k % size;
            let told = tr!(
                "the masks of the ring's steps turn the other way than the keys: a block is masked as that of rank r + step, and is that of rank r − step"
            );
            let other = |b: usize, q: usize, k: usize| own.at(b, q, turned(q, k));
            all.push((own.of(other), told.to_owned(), cost::COMMON));
        }
        all
    }
}
