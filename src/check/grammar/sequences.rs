//! What goes wrong where one row packs several sequences: where each begins, and which keys its queries see?

use std::collections::HashSet;

use super::Grammar;
use super::cells::Cells;
use super::tiles::sizes;
use crate::candidate::{Edits, cost};
use program::{
    Along, ByPosition, Change, Documents, Edit, Hides, Kind, Masking, Name, Op, Slip, signed, spans,
};

/// A query and a key of one sequence: their places in it, and how many of each it has.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub query: i64,
    pub key: i64,
    pub queries: i64,
    pub keys: i64,
}

/// Where tokens stand in the sequences that rows pack; a row that packs none is one.
pub(super) struct Sequences {
    queries: Vec<Vec<Token>>,
    keys: Vec<Vec<Token>>,
}

/// The sequence of a token, its place in it, and how many the sequence has.
#[derive(Clone, Copy)]
struct Token {
    sequence: usize,
    place: i64,
    count: i64,
}

/// Sequences of which no more than so many keys are seen, or all but the last.
fn ended_early(own: &Cells, sequences: &Sequences) -> Vec<(Cells, String, u32)> {
    const MOST: i64 = 64;
    const MOST_CELLS: usize = 1 << 18;
    let (_, longest) = sequences.longest();
    let step = longest.div_euclid(MOST) + 1;
    if own.blocked.len() > MOST_CELLS {
        return Vec::new();
    }
    let hides = |is_hidden: &dyn Fn(Pair) -> bool| {
        own.of(|b, q, k| own.at(b, q, k) || sequences.pair(b, q, k).is_some_and(is_hidden))
    };
    let mut all = Vec::new();
    for count in (1..longest).filter(|count| count % step == 0) {
        let told = tr!(
            "only the first {count} keys of a sequence are seen: the loop over them ends early, as in a graph that was captured for shorter ones",
            count
        );
        all.push((hides(&|pair| pair.key >= count), told, cost::RARE));
    }
    let told = tr!(
        "the lengths are one short, as before the newest key was added: every query sees one key less"
    );
    let late = |pair: Pair| pair.key + pair.queries + 1 > pair.query + pair.keys;
    all.push((hides(&late), told.to_owned(), cost::PLAIN));
    all
}

/// The tokens of sequences of these lengths.
fn tokens(lengths: &[usize]) -> Vec<Token> {
    let of = |(sequence, count): (usize, &usize)| {
        let count = signed(*count);
        (0..count).map(move |place| Token { sequence, place, count })
    };
    lengths.iter().enumerate().flat_map(of).collect()
}

impl Sequences {
    pub(super) fn new(own: Option<&Documents>, cells: &Cells) -> Self {
        let rows = |all: Option<&Vec<Vec<usize>>>, count: usize| match all {
            Some(all) => all.iter().map(|lengths| tokens(lengths)).collect(),
            None => vec![tokens(&[count])],
        };
        Self {
            queries: rows(own.map(|own| &own.queries), cells.queries),
            keys: rows(own.map(|own| &own.keys), cells.keys),
        }
    }

    /// The sequences of a query and of a key, whichever they are of.
    pub(super) fn numbers(&self, item: usize, query: usize, key: usize) -> Option<[usize; 2]> {
        let of =
            |all: &[Vec<Token>], at: usize| Some(all.get(item).or(all.first())?.get(at)?.sequence);
        Some([of(&self.queries, query)?, of(&self.keys, key)?])
    }

    /// A query and a key, if they are of one sequence.
    pub(super) fn pair(&self, item: usize, query: usize, key: usize) -> Option<Pair> {
        let token = |all: &[Vec<Token>], at: usize| all.get(item).or(all.first())?.get(at).copied();
        let (query, key) = (token(&self.queries, query)?, token(&self.keys, key)?);
        (query.sequence == key.sequence).then_some(Pair {
            query: query.place,
            key: key.place,
            queries: query.count,
            keys: key.count,
        })
    }

    /// The most queries, and the most keys, that a sequence has.
    fn longest(&self) -> (i64, i64) {
        let most = |all: &[Vec<Token>]| all.iter().flatten().map(|token| token.count).max();
        (most(&self.queries).unwrap_or_default(), most(&self.keys).unwrap_or_default())
    }
}

impl Grammar<'_> {
    /// Masks whose edge does not follow from the sequence's own lengths, or from the query's own window.
    pub(super) fn by_sequence(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        let sequences = Sequences::new(self.documents(), own);
        let mut all = self.causal_edges(own, &sequences);
        all.extend(self.last_pages(own, &sequences));
        all.extend(self.window_starts(own, &sequences));
        all.extend(self.seen_in_next(own, &sequences));
        all.extend(self.packed(own, &sequences));
        if self.documents().is_some() {
            all.extend(ended_early(own, &sequences));
            let sequence = |rows: &[Vec<Token>], b: usize, at: usize| {
                rows.get(b).or(rows.first()).and_then(|row| row.get(at)).copied()
            };
            let late = |b: usize, q: usize, k: usize| {
                let query = sequence(&sequences.queries, b, q);
                match query.filter(|own| own.place == 0 && own.sequence > 0) {
                    Some(own) => sequence(&sequences.keys, b, k)
                        .is_none_or(|key| key.sequence + 1 != own.sequence),
                    None => own.at(b, q, k),
                }
            };
            let told = tr!(
                "the first query of each sequence is taken for one of the sequence before: cu_seqlens is off by one at its edges"
            );
            all.push((own.of(late), told.to_owned(), cost::PLAIN));
        }
        all
    }

    pub(super) fn mask_by_position(&self, name: Name) -> Option<&ByPosition> {
        match &self.right.step(name)?.op {
            Op::Masking(Masking::ByPosition(mask)) => Some(mask),
            _ => None,
        }
    }

    /// The causal edge of sequences as if they had as many tokens as the longest.
    fn causal_edges(&self, own: &Cells, sequences: &Sequences) -> Vec<(Cells, String, u32)> {
        let (most_queries, most_keys) = sequences.longest();
        let causal = self.mask_by_position(Name::CausalMask);
        if causal.is_none_or(|causal| causal.hides != Hides::Future) || self.documents().is_none() {
            return Vec::new();
        }
        let beside = self.hidden_beside(&[Name::CausalMask, Name::DocumentMask], own);
        let first_of = |all: &[Vec<Token>]| all.first()?.first().map(|own| own.count);
        let of_first = first_of(&sequences.keys).zip(first_of(&sequences.queries));
        let of_first = of_first.map_or(0, |(keys, queries)| keys - queries);
        let edges: [(&dyn Fn(Pair) -> i64, &str); 4] = [
            (
                &|_| of_first,
                tr!(
                    "the causal edge of each sequence is that of the first: its context length (keys − queries) is used for all"
                ),
            ),
            (
                &|own| own.keys - most_queries,
                tr!(
                    "the causal edge of each sequence is that of the longest queries (max_seqlen_q), not of its own"
                ),
            ),
            (
                &|own| most_keys - own.queries,
                tr!(
                    "the causal edge of each sequence is that of the longest keys (max_seqlen_k), not of its own"
                ),
            ),
            (
                &|_| most_keys - most_queries,
                tr!(
                    "the causal edge of each sequence is that of the longest queries and keys, not of its own"
                ),
            ),
        ];
        let edge = |(further, told): (&dyn Fn(Pair) -> i64, &str)| {
            let is_blocked = |b: usize, q: usize, k: usize| {
                let pair = sequences.pair(b, q, k);
                pair.is_none_or(|own| own.key > own.query + further(own))
                    || beside.iter().any(|mask| mask.at(b, q, k))
            };
            (own.of(is_blocked), told.to_owned(), cost::COMMON)
        };
        edges.into_iter().map(edge).collect()
    }

    /// Keys at the end of each sequence that are not seen: the last one, or those of its last page.
    fn last_pages(&self, own: &Cells, sequences: &Sequences) -> Vec<(Cells, String, u32)> {
        if self.documents().is_none() {
            return Vec::new();
        }
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        let mut add_of = |end: &dyn Fn(Pair) -> i64, told: String| {
            let is_blocked = |b: usize, q: usize, k: usize| {
                let pair = sequences.pair(b, q, k);
                own.at(b, q, k) || pair.is_none_or(|own| own.key >= end(own))
            };
            let cells = own.of(is_blocked);
            if known.insert(cells.blocked.clone()) {
                all.push((cells, told, cost::PLAIN));
            }
        };
        let (most, _) = sequences.longest();
        let told = tr!(
            "the loop over keys ends at the most queries that a sequence has (max_seqlen_q = {most}): keys of longer ones are not seen",
            most
        );
        add_of(&|_| most, told);
        let told = tr!(
            "the loop over keys ends at as many keys as the sequence has queries: the keys behind them are not seen"
        );
        add_of(&|own| own.queries, told.to_owned());
        let mut add = |end: &dyn Fn(i64) -> i64, told: String| add_of(&|own| end(own.keys), told);
        add(&|keys| keys - 1, tr!("the last key of each sequence is not seen").to_owned());
        for count in 2..=4 {
            add(
                &|keys| (keys - count).max(1),
                tr!(
                    "the last {count} keys of each sequence are not seen: its length is too short",
                    count
                ),
            );
        }
        for page in sizes(own) {
            let n = signed(page);
            add(
                &|keys| keys / n * n,
                tr!(
                    "the keys behind the last full page or tile of each sequence are not seen ({page} keys each)",
                    page
                ),
            );
            add(
                &|keys| (keys - 1) / n * n,
                tr!("the last page or tile of each sequence is left out ({page} keys each)", page),
            );
            add(
                &|keys| if keys % n == 0 { keys - n } else { keys },
                tr!(
                    "a last page that is full has length % page = 0 keys, and none of it is seen ({page} keys each)",
                    page
                ),
            );
        }
        all
    }

    /// Sequences whose last tile is not masked at their own end: the keys of the next one are seen up to the end of the tile.
    fn seen_in_next(&self, own: &Cells, sequences: &Sequences) -> Vec<(Cells, String, u32)> {
        if self.documents().is_none() {
            return Vec::new();
        }
        let token = |all: &[Vec<Token>], item: usize, at: usize| {
            all.get(item).or(all.first()).and_then(|row| row.get(at)).copied()
        };
        // The first key of each sequence, and how many it has.
        let bounds = |item: usize, sequence: usize| {
            let row = sequences.keys.get(item).or(sequences.keys.first())?;
            let start = row.iter().position(|own| own.sequence == sequence)?;
            Some((signed(start), row.get(start)?.count))
        };
        let of = |tile: usize| {
            let n = signed(tile);
            let is_behind = |b: usize, q: usize, k: usize| {
                let sequence = token(&sequences.queries, b, q).map(|own| own.sequence);
                let bounds = sequence.and_then(|own| bounds(b, own));
                bounds.is_some_and(|(start, count)| {
                    (start + count..start + (count + n - 1) / n * n).contains(&signed(k))
                })
            };
            let told = tr!(
                "the last tile of each sequence is not masked at its end, and the keys of the next one are seen in it ({tile} keys each)",
                tile
            );
            (own.of(|b, q, k| own.at(b, q, k) && !is_behind(b, q, k)), told, cost::PLAIN)
        };
        sizes(own).into_iter().map(of).collect()
    }

    /// A window that begins with a whole tile or page of the sequence.
    fn window_starts(&self, own: &Cells, sequences: &Sequences) -> Vec<(Cells, String, u32)> {
        let Some(window) = self.mask_by_position(Name::WindowMask) else { return Vec::new() };
        let Hides::BeforeWindow(size) = window.hides else { return Vec::new() };
        let beside = self.hidden_beside(&[Name::WindowMask], own);
        let sizes = sizes(own);
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        let rows = std::iter::once(1).chain(sizes.iter().copied());
        let tiles = rows.flat_map(|m| sizes.iter().map(move |n| (m, *n)));
        // Of many cells only those are looked at that kernels have there.
        let is_usual = |(m, n): &(usize, usize)| *m == 1 || m == n || sizes.contains(&2);
        for (m, n) in tiles.filter(is_usual) {
            for is_early in [true, false] {
                let is_blocked = |b: usize, q: usize, k: usize| {
                    let Some(pair) = sequences.pair(b, q, k) else { return true };
                    // The sequence's first key, and the first query of the tile.
                    let (start, back) = (signed(k) - pair.key, pair.query % signed(m));
                    let first = window.position(q) - back - signed(size) + 1 - start;
                    let n = signed(n);
                    let tile = if is_early { first.div_euclid(n) } else { -(-first).div_euclid(n) };
                    pair.key < tile * n || beside.iter().any(|mask| mask.at(b, q, k))
                };
                let cells = own.of(is_blocked);
                if !known.insert(cells.blocked.clone()) {
                    continue;
                }
                let told = if is_early {
                    tr!("the window begins with the whole tile or page that its first key is in")
                } else {
                    tr!(
                        "the window begins with the next whole tile or page: the rest of the one that its first key is in is skipped"
                    )
                };
                let told = if m == 1 {
                    tr!("{told} ({n} keys each)", told, n)
                } else {
                    tr!("{told} (tiles of {m} queries and {n} keys)", told, m, n)
                };
                all.push((cells, told, cost::PLAIN + u32::from(m > 1)));
            }
        }
        all
    }

    /// Queries, keys or values of each sequence that are read from another place of the row on.
    pub(super) fn sequence_starts(&mut self) {
        let Some(own) = self.documents() else { return };
        let ([queries], [keys]) = (&own.queries[..], &own.keys[..]) else { return };
        if keys.len() < 2 {
            return;
        }
        let streams = [(queries.clone(), keys.clone()), (keys.clone(), queries.clone())];
        let mut all: Vec<(String, Vec<(Name, Edit)>)> = Vec::new();
        for (at, (lengths, others)) in streams.into_iter().enumerate() {
            let other = if at == 0 { "cu_seqlens_k" } else { "cu_seqlens_q" };
            for (told, starts) in other_starts(&lengths, &others, other) {
                let places =
                    starts.iter().zip(&lengths).flat_map(|(start, length)| *start..start + length);
                let places: Vec<usize> = places.collect();
                let is_read = |(_, slot, _): &(Name, usize, Name)| (*slot == 0) == (at == 0);
                let edit = |(reader, slot, input): (Name, usize, Name)| {
                    let take = Slip::Along(2, Along::Take(places.clone()));
                    (input, Edit::new(reader, Change::before(slot, take)))
                };
                all.push((told, self.products().into_iter().filter(is_read).map(edit).collect()));
            }
        }
        for (told, edits) in all {
            for (input, edit) in &edits {
                let told = tr!("it reads {input} of each sequence {told}", input, told);
                self.add(Kind::Axes, cost::COMMON, edit.at, edit.change.clone(), told);
            }
            if let [(first, one), (second, _)] = &edits[..] {
                let told = tr!(
                    "{first} and {second} of each sequence are read {told}",
                    first,
                    second,
                    told
                );
                let at = one.at;
                let edits: Edits = edits.iter().map(|(_, edit)| edit.clone()).collect();
                self.add_all(Kind::Axes, cost::COMMON, edits, at, told);
            }
        }
    }
}

/// Where else the sequences of a row may be taken to begin, and that in words.
fn other_starts(lengths: &[usize], others: &[usize], other: &str) -> Vec<(String, Vec<usize>)> {
    let starts = |lengths: &[usize]| -> Vec<usize> {
        spans(lengths).into_iter().map(|(start, _)| start).collect()
    };
    let (own, count) = (starts(lengths), lengths.len());
    let tokens: usize = lengths.iter().sum();
    let longest = lengths.iter().max().copied().unwrap_or_default();
    let moved = |from: &dyn Fn(usize) -> usize| (0..count).map(|at| own[from(at)]).collect();
    let all: [(String, Vec<usize>); 5] = [
        (tr!("from its start in {other} on", other), starts(others)),
        (tr!("from the first token of the row on").to_owned(), vec![0; count]),
        (
            tr!("from a multiple of the longest sequence ({longest}) on", longest),
            (0..count).map(|at| at * longest).collect(),
        ),
        (
            tr!("from the start of the sequence before on").to_owned(),
            moved(&|at| at.saturating_sub(1)),
        ),
        (
            tr!("from the start of the next sequence on").to_owned(),
            moved(&|at| (at + 1).min(count - 1)),
        ),
    ];
    let is_within = |(_, starts): &(String, Vec<usize>)| {
        *starts != own
            && starts.len() == count
            && starts.iter().zip(lengths).all(|(start, length)| start + length <= tokens)
    };
    all.into_iter().filter(is_within).collect()
}
