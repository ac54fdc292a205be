//! Documents that are packed into one row of tokens, as kernels for variable lengths have them.

use super::hidden::Mask;
use crate::axis::Axis::{Batch, Head, Key, Query};
use crate::axis::Dim;
use crate::part::{Part, QueryRows};
use crate::terms::Reason;

/// The documents of packed rows, by their lengths: a token sees none of another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Documents {
    /// Of every item, or once for all: how many queries each document has.
    pub queries: Vec<Vec<usize>>,
    /// How many keys each document has.
    pub keys: Vec<Vec<usize>>,
    /// The query rows that are computed.
    pub rows: QueryRows,
}

/// Where stretches of these lengths, one behind the other, start and end.
#[must_use]
pub fn spans(lengths: &[usize]) -> Vec<(usize, usize)> {
    let mut start = 0_usize;
    let span = |length: &usize| {
        let from = start;
        start = from.saturating_add(*length);
        (from, start)
    };
    lengths.iter().map(span).collect()
}

/// The document that a token stands in.
fn document(lengths: &[usize], at: usize) -> Option<usize> {
    let mut end = 0_usize;
    lengths.iter().position(|length| {
        end = end.saturating_add(*length);
        at < end
    })
}

impl Documents {
    fn of(all: &[Vec<usize>], item: usize) -> &[usize] {
        all.get(item).or_else(|| all.first()).map(Vec::as_slice).unwrap_or_default()
    }

    fn items(&self) -> usize {
        self.queries.len().max(self.keys.len())
    }

    fn key_count(&self) -> usize {
        self.keys.first().map_or(0, |lengths| lengths.iter().sum())
    }

    /// The same of a part of the run; nothing where it may need to see all keys.
    pub(super) fn narrowed(&self, part: Part) -> Option<Self> {
        let item = |all: &[Vec<usize>], item| vec![Self::of(all, item).to_vec()];
        Some(match part {
            Part::Keys(_) | Part::First(_) => return None,
            Part::Item(at) if self.items() > 1 => Self {
                queries: item(&self.queries, at),
                keys: item(&self.keys, at),
                rows: self.rows,
            },
            Part::Item(_) | Part::Tokens { .. } => self.clone(),
            Part::Rows(rows) => {
                let first = self.rows.first + rows.first;
                Self { rows: QueryRows { first, count: rows.count }, ..self.clone() }
            }
        })
    }

    /// `3,2,4`; of several items `3,2/4,1`.
    fn told(lengths: &[Vec<usize>]) -> String {
        let row =
            |row: &Vec<usize>| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        lengths.iter().map(row).collect::<Vec<_>>().join("/")
    }
}

impl Mask for Documents {
    fn axes(&self) -> Vec<Dim> {
        let (rows, keys) = (self.rows.count, self.key_count());
        vec![(Batch, self.items()), (Head, 1), (Query, rows), (Key, keys)]
    }

    fn cells(&self) -> Vec<u8> {
        let (items, rows, keys) = (self.items(), self.rows.count, self.key_count());
        let mut cells = Vec::with_capacity(items.saturating_mul(rows).saturating_mul(keys));
        for item in 0..items {
            let of_key = |key| document(Self::of(&self.keys, item), key);
            let keys: Vec<Option<usize>> = (0..keys).map(of_key).collect();
            for row in self.rows.first..self.rows.first + rows {
                let query = document(Self::of(&self.queries, item), row);
                cells.extend(keys.iter().map(|key| u8::from(*key != query)));
            }
        }
        cells
    }

    fn formula(&self) -> String {
        let Self { queries, keys, .. } = self;
        let told = Self::told(queries);
        let of_keys = if keys == queries {
            String::new()
        } else {
            tr!(" and {told} keys", told = Self::told(keys))
        };
        tr!("the key is of another document, of {told} tokens{of_keys}", told, of_keys)
    }

    fn reason(&self, [item, _, query, key]: [usize; 4]) -> Option<Reason> {
        let of_query = document(Self::of(&self.queries, item), self.rows.first + query);
        let is_other = of_query != document(Self::of(&self.keys, item), key);
        is_other.then_some(Reason::OtherDocument { query, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_sees_its_own_document() {
        let rows = QueryRows { first: 1, count: 2 };
        let documents = Documents { queries: vec![vec![2, 1]], keys: vec![vec![1, 3]], rows };
        assert_eq!(documents.axes(), [(Batch, 1), (Head, 1), (Query, 2), (Key, 4)]);
        assert_eq!(documents.cells(), [0, 1, 1, 1, 1, 0, 0, 0]);
        let second =
            documents.narrowed(Part::Rows(QueryRows { first: 1, count: 1 })).expect("rows");
        assert_eq!(second.cells(), [1, 0, 0, 0]);
    }
}
