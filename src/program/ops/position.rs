//! Which keys a query may not see by its position.

use crate::program::terms::Reason;

/// Which keys are hidden from a query at a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hides {
    /// Those after it.
    Future,
    /// Those before it: a causal mask the wrong way round.
    Past,
    /// Those before the last so many that it sees, itself included.
    BeforeWindow(usize),
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

impl ByPosition {
    /// The last key that a row sees.
    pub(super) fn position(&self, row: usize) -> i64 {
        let row = i64::try_from(row).unwrap_or(i64::MAX);
        let shift = self.shifts.iter().rev().find(|shift| shift.row <= row);
        row.saturating_add(self.first).saturating_add(shift.map_or(0, |shift| shift.by))
    }

    pub(super) fn hides(&self, position: i64, key: i64) -> bool {
        match self.hides {
            Hides::Future => key > position,
            Hides::Past => key < position,
            Hides::BeforeWindow(window) => {
                let distance = usize::try_from(position.saturating_sub(key));
                distance.is_ok_and(|distance| distance >= window)
            }
        }
    }

    pub(super) fn reason(&self, query: usize, key: usize) -> Option<Reason> {
        let reason = match self.hides {
            Hides::Future => Reason::LaterKey { query, key },
            Hides::Past => Reason::EarlierKey { query, key },
            Hides::BeforeWindow(window) => Reason::BeforeWindow { query, key, window },
        };
        let key = i64::try_from(key).unwrap_or(i64::MAX);
        self.hides(self.position(query), key).then_some(reason)
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
}
