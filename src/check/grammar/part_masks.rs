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
        if let Some((last, Some(window))) = self.causal() {
            let is_out = |q: usize, k: usize| signed(k - starts[k]) + window <= signed(q) + last;
            let outside = |b: usize, q: usize, k: usize| own.at(b, q, k) || is_out(q, k);
            let told = tr!(
                "the window counts keys from the start of the {name}: a local index, not a global one",
                name
            );
            all.push((own.of(outside), told, cost::COMMON));
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
