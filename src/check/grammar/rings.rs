//! Which keys do queries see in the caches, rings and orders of tokens of serving code?

use super::cells::Cells;
use super::kernels::BLOCKS;
use super::{Grammar, after};
use crate::candidate::cost;
use program::{Change, Edit, Kind, Name, Slip, Weigh, signed};

impl Grammar<'_> {
    /// Keys that are read too early, too late, or in the order of ranks.
    pub(super) fn rings(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        let first = signed(self.sizes.first_position());
        let distance = |query: usize, key: usize| signed(query) + first - signed(key);
        let (queries, keys) = (own.queries, own.keys);
        let mut all = self.compared_slots(own);
        let mut add = |cells: Cells, told: &str| all.push((cells, told.to_owned(), cost::RARE));
        let of = |is_blocked: &dyn Fn(usize, usize, usize) -> bool| own.of(is_blocked);
        // How many keys a query sees behind each.
        let behind = seen_behind(own);
        let behind = |b: usize, q: usize, k: usize| behind[(b * queries + q) * keys + k];
        for count in (2..=4).filter(|count| *count < keys) {
            let told = tr!(
                "each query ends {count} keys early: the last ones that it sees are not seen",
                count
            );
            add(of(&|b, q, k| own.at(b, q, k) || behind(b, q, k) < count), told.as_str());
        }
        add(
            of(&|b, q, k| own.at(b, q, k) || behind(b, q, k) == 1),
            tr!("the key before the newest one is not seen, as if it had been overwritten"),
        );
        add(
            of(&|b, q, k| {
                let is_next_seen = k + 1 < keys && !own.at(b, q, k + 1);
                // A query that sees none but the first key still sees that.
                let is_alone = behind(b, q, 0) == 0 && !own.at(b, q, k);
                !is_next_seen && !is_alone
            }),
            tr!(
                "each query sees the keys one before its own, as if a ring were read before the new key is written"
            ),
        );
        for chunk in BLOCKS.into_iter().filter(|chunk| queries == keys && keys > 2 * chunk) {
            if self.causal().is_some() && keys.is_multiple_of(2 * chunk) {
                let place = zigzag(keys, keys / (2 * chunk));
                let told = tr!(
                    "the causal mask goes by the places of tokens in the zigzag order of ranks (chunks of {chunk}), not by their positions",
                    chunk
                );
                add(of(&|_, q, k| place[k] > place[q]), told.as_str());
            }
        }
        for chunks in
            CHUNKS.into_iter().filter(|chunks| queries == keys && keys.is_multiple_of(*chunks))
        {
            let size = keys / chunks;
            for (rank, lost) in
                (0..chunks).flat_map(|rank| (0..chunks).map(move |lost| (rank, lost)))
            {
                let is_lost = |q: usize, k: usize| q / size == rank && k / size == lost;
                let is_seen = |(q, k): (usize, usize)| is_lost(q, k) && !own.at(0, q, k);
                let mut cells = (0..queries).flat_map(|q| (0..keys).map(move |k| (q, k)));
                if rank == lost || !cells.any(is_seen) {
                    continue;
                }
                let told = tr!(
                    "of {chunks} ranks with a chunk of tokens each, rank {rank} never sees the keys of rank {lost}",
                    chunks,
                    rank,
                    lost
                );
                add(of(&|b, q, k| own.at(b, q, k) || is_lost(q, k)), told.as_str());
            }
        }
        self.zigzag_ranks(own, &mut add);
        self.striped_ranks(own, &mut add);
        of_slots(own, self.right.parts().is_some(), &mut add);
        if let Some((_, Some(window))) = self.causal() {
            let is_filled = |q: usize, k: usize| {
                let length = signed(q) + first + 1;
                length < window || signed(k) % window < length % window
            };
            add(
                of(&|b, q, k| own.at(b, q, k) || !is_filled(q, k)),
                tr!(
                    "a ring that has wrapped is taken to have length % slots keys, not all: the slots behind these are not seen"
                ),
            );
            let kept = |q: usize, k: usize| signed(k) < window - 1 || distance(q, k) == 0;
            add(
                of(&|_, q, k| distance(q, k) < 0 || !kept(q, k)),
                tr!(
                    "when the ring is full each new key overwrites the last slot: later tokens see the first keys and themselves"
                ),
            );
        }
        all
    }
}

impl Grammar<'_> {
    /// Token t on rank t modulo the ranks: a block of a later rank is masked one token more than that of an earlier one.
    fn striped_ranks(&self, own: &Cells, add: &mut dyn FnMut(Cells, &str)) {
        let (queries, keys) = (own.queries, own.keys);
        let is_causal = matches!(self.causal(), Some((0, None))) && queries == keys;
        for ranks in (2..=MOST_RANKS).filter(|ranks| is_causal && keys % ranks == 0) {
            let told = |what: &str| {
                tr!("of {ranks} ranks that have every {ranks}th token each, {what}", ranks, what)
            };
            add(
                own.of(|_, q, k| k / ranks > q / ranks),
                &told(tr!(
                    "blocks of later ranks are masked with ≤ where < is meant: a query sees the keys of its stripe that are behind it"
                )),
            );
            add(
                own.of(|_, q, k| k / ranks > q / ranks || k / ranks == q / ranks && k != q),
                &told(tr!(
                    "blocks of earlier ranks are masked with < where ≤ is meant: a query does not see the keys of its stripe that are before it"
                )),
            );
        }
    }

    /// A ring of more slots than the window has, whose mask compares slots with slots and not positions.
    fn compared_slots(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        let mut all: Vec<(Cells, String, u32)> = Vec::new();
        let Some((first, Some(window))) = self.causal() else { return all };
        let slots = usize::try_from(window).unwrap_or(usize::MAX)..own.keys;
        if self.documents().is_some() || own.keys > MOST_KEYS {
            return all;
        }
        for slots in slots.take(MOST_RINGS) {
            let slot = |place: i64| place.rem_euclid(signed(slots));
            let is_behind = |q: usize, k: usize| slot(signed(k)) > slot(signed(q) + first);
            let cells = own.of(|b, q, k| own.at(b, q, k) || is_behind(q, k));
            if all.iter().any(|(known, ..)| known.blocked == cells.blocked) {
                continue;
            }
            let told = tr!(
                "the causal mask compares slots of a ring of {slots}, not positions: keys in slots behind the query's are not seen",
                slots
            );
            all.push((cells, told, cost::PLAIN));
        }
        all
    }

    /// Two chunks of tokens for each rank, one from the start and one from the end.
    fn zigzag_ranks(&self, own: &Cells, add: &mut dyn FnMut(Cells, &str)) {
        let (queries, keys) = (own.queries, own.keys);
        let of = |is_blocked: &dyn Fn(usize, usize, usize) -> bool| own.of(is_blocked);
        // Chunks of one token are of no ring that is run.
        let is_even =
            |ranks: &usize| queries == keys && keys.is_multiple_of(2 * ranks) && keys > 2 * ranks;
        for ranks in CHUNKS.into_iter().filter(is_even).filter(|_| keys <= MOST_KEYS) {
            let size = keys / (2 * ranks);
            let place = zigzag(keys, ranks);
            let told = tr!(
                "keys and values stay in the zigzag order of {ranks} ranks, and the causal mask takes them as in the order of their positions",
                ranks
            );
            if self.causal().is_some() {
                add(of(&|_, q, k| place[k] > q), told.as_str());
            }
            for (told, is_seen) in
                steps_of_zigzag(ranks).into_iter().filter(|_| self.causal().is_some())
            {
                let other = of(&|b, q, k| {
                    let chunks = (q / size, k / size);
                    is_seen(chunks).map_or_else(|| own.at(b, q, k), |is_seen| !is_seen)
                });
                add(other, told.as_str());
            }
            let of_rank =
                |chunk: usize, rank: usize| chunk == rank || chunk == 2 * ranks - 1 - rank;
            for (rank, lost) in
                (0..ranks).flat_map(|rank| (0..2 * ranks).map(move |lost| (rank, lost)))
            {
                let is_lost = |q: usize, k: usize| of_rank(q / size, rank) && k / size == lost;
                let is_seen = |(q, k): (usize, usize)| is_lost(q, k) && !own.at(0, q, k);
                let mut cells = (0..queries).flat_map(|q| (0..keys).map(move |k| (q, k)));
                if of_rank(lost, rank) || !cells.any(is_seen) {
                    continue;
                }
                let told = tr!(
                    "of {ranks} ranks with two chunks of tokens each, in zigzag order, rank {rank} never sees the keys of chunk {lost}",
                    ranks,
                    rank,
                    lost
                );
                add(of(&|b, q, k| own.at(b, q, k) || is_lost(q, k)), told.as_str());
            }
        }
    }

    /// Chunks of tokens that are written to a ring as long as the window before their first queries have read it.
    pub(super) fn overwritten(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        let Some((first, Some(window))) = self.causal() else { return Vec::new() };
        if self.documents().is_some() {
            return Vec::new();
        }
        let of = |chunk: usize| {
            let last = |q: usize| signed((q / chunk * chunk + chunk).min(own.queries)) - 1 + first;
            let is_lost = |q: usize, k: usize| signed(k) <= last(q) - window;
            let told = tr!(
                "a chunk of {chunk} tokens is written to the ring before its first queries have read: their oldest keys are overwritten",
                chunk
            );
            (own.of(|b, q, k| own.at(b, q, k) || is_lost(q, k)), told, cost::RARE)
        };
        let chunks = BLOCKS.into_iter().filter(|chunk| (2..own.queries).contains(chunk));
        chunks.map(of).collect()
    }

    /// A ring as long as the window, of which the slots that are empty as yet, zeros, are attended like the others.
    pub(super) fn empty_slots(&mut self) {
        let Some((first, Some(window))) = self.causal() else { return };
        let scores = self.right.step(Name::MaskedScores).map(|step| step.name);
        let weights = self.right.step(Name::Weights).map(|step| self.read(step));
        let (Some(scores), Some([own])) = (scores, weights.as_deref()) else { return };
        if *own != scores || self.documents().is_some() {
            return;
        }
        let queries = self.sizes.query_count();
        let empty = |q: usize| (window - 1 - first - signed(q)).max(0) as f64;
        let counts: Vec<f64> = (0..queries).map(empty).collect();
        if counts.iter().all(|count| *count == 0.0) {
            return;
        }
        let zeros = || Slip::Weigh(Weigh::Zeros(counts.clone()));
        let weights = Change::Become(zeros().into(), vec![scores]);
        let weights = Edit::new(Name::Weights, weights);
        let lse = self.right.step(Name::Lse).map(|lse| Edit::new(lse.name, after(zeros(), &[])));
        let both = lse.map(|lse| vec![weights.clone(), lse]);
        let told = tr!(
            "before the ring of {window} slots is full, its empty slots, zeros, are attended with a score of 0",
            window
        );
        for edits in both.into_iter().chain([vec![weights]]) {
            self.add_all(Kind::Mask, cost::PLAIN, edits, Name::Weights, &told);
        }
    }
}

/// Slots of a ring that are overwritten though they are to be kept, or not seen as they stand behind its write head.
fn of_slots(own: &Cells, is_in_parts: bool, add: &mut dyn FnMut(Cells, &str)) {
    let (queries, keys) = (own.queries, own.keys);
    // How many keys each query sees, and the last of them.
    let of_row = |b: usize, q: usize| {
        let seen: Vec<usize> = (0..keys).filter(|key| !own.at(b, q, *key)).collect();
        Some((*seen.last()?, seen.len()))
    };
    let rows = (0..own.items).flat_map(|b| (0..queries).map(move |q| (b, q)));
    let rows: Vec<_> = rows.map(|(b, q)| of_row(b, q)).collect();
    add(
        own.of(|b, q, k| {
            let row = rows.get(b * queries + q).copied().flatten();
            row.is_none_or(|(last, count)| k > last || k + count <= last)
        }),
        tr!(
            "each query sees the last of the keys that it should see, as many as it should: the first ones, kept for good, are overwritten in a ring"
        ),
    );
    for count in (1..keys).filter(|_| queries == 1 && keys <= MOST_KEYS) {
        let told = if is_in_parts {
            tr!(
                "only the first {count} of {keys} keys are seen: the loop over them ends early",
                count,
                keys
            )
        } else {
            tr!(
                "only the first {count} of {keys} slots are seen, as where a ring that has wrapped is masked at its write head",
                count,
                keys
            )
        };
        add(own.of(|b, q, k| own.at(b, q, k) || k >= count), told.as_str());
    }
}

/// Whether the chunk of a query sees that of a key, where it is another than it should be.
type Seen = Box<dyn Fn((usize, usize)) -> Option<bool>>;

/// What steps of a zigzag ring of so many ranks see that take the wrong halves of queries or keys: of the chunks of a query
/// and of a key whether it is seen, where that is another than it should be.
fn steps_of_zigzag(ranks: usize) -> Vec<(String, Seen)> {
    let rank = move |chunk: usize| chunk.min(2 * ranks - 1 - chunk);
    let is_late = move |chunk: usize| chunk >= ranks;
    let told =
        |what: &str| tr!("zigzag order of {ranks} ranks with two chunks each: {what}", ranks, what);
    vec![
        (
            told(tr!(
                "where the keys are of a later rank, no query sees them, as in a ring of one chunk each"
            )),
            Box::new(move |(q, k)| (rank(k) > rank(q)).then_some(false)),
        ),
        (
            told(tr!(
                "where the keys are of a later rank, the second half of the queries sees the first half of these alone"
            )),
            Box::new(move |(q, k)| {
                (is_late(q) && is_late(k) && rank(k) > rank(q)).then_some(false)
            }),
        ),
        (
            told(tr!(
                "where the keys are of a later rank, all queries see them, not the second half alone"
            )),
            Box::new(move |(q, k)| (rank(k) > rank(q)).then_some(true)),
        ),
        (
            told(tr!(
                "where the keys are of an earlier rank, all queries see both halves of them, not the first alone"
            )),
            Box::new(move |(q, k)| (rank(k) < rank(q)).then_some(true)),
        ),
        (
            told(tr!("where the keys are of an earlier rank, no query sees them")),
            Box::new(move |(q, k)| (rank(k) < rank(q)).then_some(false)),
        ),
        (
            told(tr!(
                "where the keys are of an earlier rank, the second half of the queries alone sees them"
            )),
            Box::new(move |(q, k)| (!is_late(q) && rank(k) < rank(q)).then_some(false)),
        ),
    ]
}

/// Each chunk of keys that may be lost has a mask of its own: of more keys than this they take too long.
const MOST_KEYS: usize = 512;

/// Over more ranks no stripes are tried.
const MOST_RANKS: usize = 8;

/// Rings of so many lengths are tried, from that of the window on.
const MOST_RINGS: usize = 64;

/// Over so many ranks tokens are often split.
const CHUNKS: [usize; 3] = [2, 3, 4];

/// For every cell how many keys behind it its query sees.
fn seen_behind(own: &Cells) -> Vec<usize> {
    let mut counts = vec![0; own.blocked.len()];
    for row in (0..counts.len()).step_by(own.keys.max(1)) {
        for at in (row + 1..row + own.keys).rev() {
            counts[at - 1] = counts[at] + usize::from(!own.blocked[at]);
        }
    }
    counts
}

/// The place of each token in the order in which so many ranks have them, each a chunk from the start and one from the end.
fn zigzag(tokens: usize, ranks: usize) -> Vec<usize> {
    let size = tokens / (2 * ranks);
    let order = (0..ranks).flat_map(|rank| [rank, 2 * ranks - 1 - rank]);
    let mut places = vec![0; tokens];
    for (at, chunk) in order.enumerate() {
        for token in 0..size {
            places[chunk * size + token] = at * size + token;
        }
    }
    places
}
