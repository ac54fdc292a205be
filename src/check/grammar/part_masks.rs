//! What do splits and tiles of the keys see in place of what a mask lets them see?

use candle_core::DType;

use super::Grammar;
use super::cells::Cells;
use crate::candidate::cost;
use program::{Axis, Block, Change, Edit, Kind, Name, Parts, Slip, signed};

/// Where a loop over tiles of so many keys that need no mask may end, and the one over the others begin: the number that is
/// added before rounding down to a tile, if there is rounding, and what that is called.
fn in_two_stages(size: i64) -> [([Option<i64>; 2], &'static str); 5] {
    let (down, up) = (Some(0), Some(size - 1));
    [
        (
            [up, up],
            tr!(
                "the loop without a mask takes the tile that the diagonal begins in as well, as the number of whole tiles is rounded up: that tile has no mask"
            ),
        ),
        (
            [up, None],
            tr!(
                "the loop without a mask goes on to the end of the tile that the diagonal begins in: its last keys count twice, or are seen too early"
            ),
        ),
        (
            [up, down],
            tr!(
                "the loop without a mask takes the tile that the diagonal begins in as well: it counts twice"
            ),
        ),
        (
            [down, None],
            tr!(
                "the loop without a mask ends before the tile that the diagonal begins in, and the one with a mask begins at the diagonal: keys between are never seen"
            ),
        ),
        (
            [down, up],
            tr!(
                "the loop without a mask ends before the tile that the diagonal begins in, and the one with a mask begins behind it: it is never seen"
            ),
        ),
    ]
}

/// The keys of each item that are in splits of its own length, of which the merge counts as many as the longest item's have.
fn uncounted(own: &Cells, parts: &Parts) -> Option<(Cells, String, u32)> {
    let count = parts.keys.len();
    let seen = own.seen_ends();
    let most = seen.iter().max()?.div_ceil(count).max(1);
    let kept = |b: usize| seen[b].div_ceil(most) * seen[b].div_ceil(count);
    let told = tr!(
        "each item's own keys are cut into {count} parts, which are counted by the length of the longest item's: the last ones of shorter items are not merged",
        count
    );
    let is_of_items = parts.axis == Axis::Split && own.items > 1;
    is_of_items.then(|| (own.of(|b, q, k| own.at(b, q, k) || k >= kept(b)), told, cost::COMMON))
}

/// The steps of a ring in which each rank of queries meets another part of the keys.
fn of_ranks(own: &Cells, parts: &Parts) -> Vec<(Cells, String, u32)> {
    let (count, name) = (parts.keys.len(), parts.axis.told());
    let mut all = Vec::new();
    let at = |k: usize| {
        let has = |spans: &Vec<(usize, usize)>| spans.iter().any(|own| (own.0..own.1).contains(&k));
        parts.keys.iter().position(has)
    };
    let at: Vec<_> = (0..own.keys).map(at).collect();
    if own.queries >= count && own.queries.is_multiple_of(count) {
        for ahead in 1..count {
            let rank = |q: usize| (q / (own.queries / count) + ahead) % count;
            let unseen = |b: usize, q: usize, k: usize| own.at(b, q, k) || at[k] == Some(rank(q));
            let told = tr!(
                "the queries of rank r of {count} never see {name} (r + {ahead}) mod {count}: a step of the ring is left out",
                name,
                ahead,
                count
            );
            all.push((own.of(unseen), told, cost::COMMON));
            let whole = |b: usize, q: usize, k: usize| own.at(b, q, k) && at[k] != Some(rank(q));
            let told = tr!(
                "the queries of rank r of {count} see all of {name} (r + {ahead}) mod {count}: a step of the ring is neither skipped nor masked",
                name,
                ahead,
                count
            );
            all.push((own.of(whole), told, cost::COMMON));
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

    /// A loop over tiles that need no mask, and one over those of the diagonal, which do not end and begin at the same key.
    pub(super) fn in_two_stages(
        &mut self,
        steps: [Name; 2],
        (rows, size): (usize, usize),
        cost: u32,
    ) {
        let (Some(own), Some((first, None))) = (self.own_mask(), self.causal()) else { return };
        let scores = self.right.step(Name::MaskedScores).map(|step| (step.name, self.read(step)));
        let Some((masked, scores)) = scores.filter(|_| self.documents().is_none()) else { return };
        let Some(scores) = scores.first().copied() else { return };
        let (m, n) = (signed(rows), signed(size));
        // The first key that needs a mask, for the first query of a tile.
        let edge = |q: usize| (signed(q) / m * m + first).max(0);
        for ([end, start], told) in in_two_stages(n) {
            let [end, start] =
                [end, start].map(|by| move |key: i64| by.map_or(key, |by| (key + by) / n * n));
            let count = |b: usize, q: usize, k: usize| {
                let (edge, key, last) = (edge(q), signed(k), signed(q) + first);
                if key <= last && own.at(b, q, k) {
                    return 0;
                }
                let stage = start(edge)..start(edge) + (m + n - 1) / n * n;
                u8::from(key < end(edge)) + u8::from(stage.contains(&key) && key <= last)
            };
            let seen = own.of(|b, q, k| count(b, q, k) == 0);
            let twice = own.of(|b, q, k| count(b, q, k) == 2);
            let (Ok(cells), Ok(counted)) = (seen.tensor(), twice.tensor()) else { return };
            if seen.blocked == own.blocked && !twice.blocked.contains(&true) {
                continue;
            }
            let fill = self.right.step(masked).and_then(|step| step.op.operation().facts().fill);
            let block = Slip::Block(Block { cells, fill: fill.unwrap_or(f64::NEG_INFINITY) });
            let mut edits = vec![Edit::new(masked, Change::Become(block.into(), vec![scores]))];
            if twice.blocked.contains(&true) {
                let Ok(cells) =
                    counted.to_dtype(DType::F32).and_then(|own| own * std::f64::consts::LN_2)
                else {
                    return;
                };
                let counted = Change::before(0, Slip::Counted(Block { cells, fill: 0.0 }));
                edits.extend(steps.map(|at| Edit::new(at, counted.clone())));
            }
            let told = tr!("{told} (tiles of {m} queries and {n} keys)", told, m = rows, n = size);
            self.add_all(Kind::Mask, cost, edits, masked, told);
        }
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
        all.extend(uncounted(own, parts));
        all.extend(of_ranks(own, parts));
        all
    }
}
