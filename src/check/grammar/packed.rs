//! Which keys of other sequences do queries see whose place in a packed row is taken for another, and where does a window end
//! that goes by it?

use super::Grammar;
use super::cells::Cells;
use super::sequences::Sequences;
use super::tiles::sizes;
use crate::candidate::cost;
use program::{Hides, Name, signed, spans};

/// The places of an item's query and key that a window goes by.
type Places<'a> = &'a dyn Fn(usize, usize, usize) -> Option<(i64, i64)>;

impl Grammar<'_> {
    /// Masks that take the places of tokens in a packed row for those of other sequences, or for those in their own.
    pub(super) fn packed(&self, own: &Cells, sequences: &Sequences) -> Vec<(Cells, String, u32)> {
        let mut all = Vec::new();
        if self.documents().is_none() {
            return all;
        }
        let causal = self.mask_by_position(Name::CausalMask);
        let is_plain = own.queries == own.keys && self.mask_by_position(Name::WindowMask).is_none();
        // The token before the first is of no sequence, or of the first.
        for is_cut in [true, false].into_iter().filter(|_| is_plain) {
            let before = |token: usize| token.checked_sub(1).or((!is_cut).then_some(0));
            let is_other = |b: usize, q: usize, k: usize| match (before(q), before(k)) {
                (Some(q), Some(k)) => {
                    sequences.numbers(b, q, k).is_none_or(|[query, key]| query != key)
                }
                (query, key) => query != key,
            };
            let is_late = |q: usize, k: usize| causal.is_some() && k > q;
            let told = tr!(
                "the first token of each sequence is taken for one of the sequence before: its number is looked up by a search from the left (searchsorted)"
            );
            let cells = own.of(|b, q, k| is_other(b, q, k) || is_late(q, k));
            all.push((cells, told.to_owned(), cost::PLAIN));
        }
        all.extend(self.stored_over(own));
        all.extend(self.packed_windows(own, sequences));
        all
    }

    /// Rows behind the last query of a sequence that its last tile stores over the first ones of the next.
    fn stored_over(&self, own: &Cells) -> Vec<(Cells, String, u32)> {
        let documents = self.documents().filter(|own| own.queries.len() == 1);
        let Some(lengths) =
            documents.and_then(|own| Some((own.queries.first()?, own.keys.first()?)))
        else {
            return Vec::new();
        };
        let (queries, keys) = (spans(lengths.0), spans(lengths.1));
        let of = |tile: usize| {
            let from = |q: usize| {
                let is_over = |(first, end): &(usize, usize)| {
                    (*end..first + (end - first).next_multiple_of(tile)).contains(&q)
                };
                keys.get(queries.iter().rposition(is_over)?).copied()
            };
            let from: Vec<_> = (0..own.queries).map(from).collect();
            let told = tr!(
                "the last tile of a sequence stores its rows behind the last query as well, over the first ones of the next (tiles of {tile} queries)",
                tile
            );
            let cells = own.of(|b, q, k| match from.get(q).copied().flatten() {
                Some((first, end)) => !(first..end).contains(&k),
                None => own.at(b, q, k),
            });
            (cells, told, cost::PLAIN)
        };
        sizes(own).into_iter().map(of).collect()
    }

    /// Windows that go by the places of tokens in the row.
    fn packed_windows(&self, own: &Cells, sequences: &Sequences) -> Vec<(Cells, String, u32)> {
        let Some(window) = self.mask_by_position(Name::WindowMask) else { return Vec::new() };
        let Hides::BeforeWindow(size) = window.hides else { return Vec::new() };
        let beside = self.hidden_beside(&[Name::WindowMask], own);
        let places: [(Places, &str); 3] = [
            (
                &|_, q, k| Some((signed(q), signed(k))),
                tr!(
                    "the window goes by the places of queries and keys in the packed row, not in their sequence"
                ),
            ),
            (
                &|b, q, k| Some((signed(q), sequences.pair(b, q, k)?.key)),
                tr!(
                    "the window goes by the place of queries in the packed row, and of keys in their sequence"
                ),
            ),
            (
                &|b, q, k| {
                    let pair = sequences.pair(b, q, k)?;
                    Some((pair.query + pair.keys - pair.queries, signed(k)))
                },
                tr!(
                    "the window goes by the place of queries in their sequence, and of keys in the packed row"
                ),
            ),
        ];
        let of = |(place, told): (Places, &str)| {
            let cells = own.of(|b, q, k| {
                place(b, q, k).is_none_or(|(query, key)| key + signed(size) <= query)
                    || beside.iter().any(|mask| mask.at(b, q, k))
            });
            (cells, told.to_owned(), cost::PLAIN)
        };
        places.into_iter().map(of).collect()
    }
}
