//! Which keys a query may not see by its position.

use super::hidden::Mask;
use crate::axis::Axis::{Key, Query};
use crate::axis::{Dim, signed};
use crate::part::Part;
use crate::terms::Reason;

/// Which keys are hidden from a query at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hides {
    /// Those after it.
    Future,
    /// Those before it: a causal mask the wrong way round.
    Past,
    /// Those before the last so many that it sees, itself included.
    BeforeWindow(usize),
    /// Those so many positions away from it or more, on either side.
    OutsideWindow(usize),
    /// Those of another chunk of so many keys than its own.
    OtherChunk(usize),
}

/// A mask by positions. Query row r is at position r + `first`.
#[derive(Debug, Clone, PartialEq)]
pub struct ByPosition {
    /// The position of the first row among the keys, which is the last key that it sees; below 0 where it sees none.
    pub first: i64,
    /// Query rows.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// Which keys are hidden.
    pub hides: Hides,
    /// In a packed row, whose documents may have more keys than queries: from which row on the keys are so much further on.
    pub shifts: Vec<Shift>,
}

/// How much further on the keys are for the rows from one on than for the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    /// The first of these rows.
    pub row: i64,
    /// How much further on.
    pub by: i64,
}

/// How much further on the keys of a row are.
pub(super) fn shift(shifts: &[Shift], row: i64) -> i64 {
    shifts.iter().rev().find(|shift| shift.row <= row).map_or(0, |shift| shift.by)
}

/// The same of the rows from one on.
pub(super) fn shift_rows(shifts: &mut [Shift], from: i64) {
    for shift in shifts {
        shift.row = shift.row.saturating_sub(from);
    }
}

impl ByPosition {
    /// The last key that a row sees.
    pub fn position(&self, row: usize) -> i64 {
        let row = signed(row);
        row.saturating_add(self.first).saturating_add(shift(&self.shifts, row))
    }

    fn hides(&self, position: i64, key: i64) -> bool {
        match self.hides {
            Hides::Future => key > position,
            Hides::Past => key < position,
            Hides::BeforeWindow(window) => {
                let distance = usize::try_from(position.saturating_sub(key));
                distance.is_ok_and(|distance| distance >= window)
            }
            Hides::OutsideWindow(window) => position.abs_diff(key) >= window as u64,
            Hides::OtherChunk(chunk) => {
                let chunk = signed(chunk.max(1));
                position.div_euclid(chunk) != key.div_euclid(chunk)
            }
        }
    }

    /// The same of a part of the run.
    pub(super) fn narrowed(&self, part: Part) -> Self {
        let mut own = self.clone();
        match part {
            Part::Rows(rows) => {
                let from = signed(rows.first);
                own.first = own.first.saturating_add(from);
                own.queries = rows.count;
                shift_rows(&mut own.shifts, from);
            }
            Part::Keys(keys) => own.keys = keys,
            Part::First(count) => (own.queries, own.keys) = (count, count),
            Part::Item(_) | Part::Tokens { .. } => {}
        }
        own
    }
}

impl Mask for ByPosition {
    fn axes(&self) -> Vec<Dim> {
        vec![(Query, self.queries), (Key, self.keys)]
    }

    fn cells(&self) -> Vec<u8> {
        let mut cells = Vec::with_capacity(self.queries.saturating_mul(self.keys));
        for position in (0..self.queries).map(|row| self.position(row)) {
            let hides = |key| u8::from(self.hides(position, key));
            cells.extend((0_i64..).take(self.keys).map(hides));
        }
        cells
    }

    fn formula(&self) -> String {
        let first = self.first;
        let position = match first {
            0 => "query".to_owned(),
            first if first < 0 => format!("query − {}", first.unsigned_abs()),
            first => format!("query + {first}"),
        };
        match self.hides {
            Hides::Future => format!("key > {position}"),
            Hides::Past => format!("key < {position}"),
            Hides::BeforeWindow(window) => format!("{position} − key ≥ {window}"),
            Hides::OutsideWindow(window) => format!("|{position} − key| ≥ {window}"),
            Hides::OtherChunk(chunk) => {
                let query = if first == 0 { position } else { format!("({position})") };
                format!("⌊key / {chunk}⌋ ≠ ⌊{query} / {chunk}⌋")
            }
        }
    }

    fn reason(&self, [_, _, query, key]: [usize; 4]) -> Option<Reason> {
        let reason = match self.hides {
            Hides::Future => Reason::LaterKey { query, key },
            Hides::Past => Reason::EarlierKey { query, key },
            Hides::BeforeWindow(window) => Reason::BeforeWindow { query, key, window },
            Hides::OutsideWindow(window) => Reason::OutsideWindow { query, key, window },
            Hides::OtherChunk(chunk) => Reason::OtherChunk { query, key, chunk },
        };
        let key = signed(key);
        self.hides(self.position(query), key).then_some(reason)
    }
}

impl Hides {
    /// What the number in it is called, the number, and the same with another one.
    #[allow(clippy::type_complexity, reason = "a name, a number and its setter")]
    pub fn number(self) -> Option<(&'static str, usize, fn(usize) -> Self)> {
        match self {
            Self::BeforeWindow(window) => Some(("window", window, Self::BeforeWindow)),
            Self::OutsideWindow(window) => Some(("window", window, Self::OutsideWindow)),
            Self::OtherChunk(chunk) => Some(("chunk", chunk, Self::OtherChunk)),
            Self::Future | Self::Past => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_the_query_itself() {
        let hides = |window, position, key| {
            let hides = Hides::BeforeWindow(window);
            ByPosition { first: 0, queries: 5, keys: 5, hides, shifts: vec![] }.hides(position, key)
        };
        assert!(!hides(1, 4, 4) && hides(1, 4, 3));
        assert!(!hides(3, 4, 2) && hides(3, 4, 1));
        assert!(!hides(400, 400, 1));
    }

    #[test]
    fn a_window_to_both_sides_and_a_chunk_hold_as_many() {
        let seen = |hides, position| {
            let mask = ByPosition { first: 0, queries: 9, keys: 9, hides, shifts: vec![] };
            (0..9).filter(|key| !mask.hides(position, *key)).collect::<Vec<i64>>()
        };
        assert_eq!(seen(Hides::OutsideWindow(3), 4), [2, 3, 4, 5, 6]);
        assert_eq!(seen(Hides::OtherChunk(4), 6), [4, 5, 6, 7]);
        assert_eq!(seen(Hides::OtherChunk(4), 8), [8]);
    }
}
