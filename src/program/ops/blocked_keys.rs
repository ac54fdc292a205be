//! Keys of an item that are blocked for all its queries, as padding is.

use super::hidden::Mask;
use crate::axis::Axis::{Batch, Head, Key, Query};
use crate::axis::{Axes, Dim};
use crate::part::{Part, QueryRows, of_item};
use crate::terms::Reason;

/// What says which keys of an item are blocked for all its queries.
#[derive(Debug, Clone, PartialEq)]
pub enum Blocked {
    /// A string of 0 and 1 an item; 0 is blocked.
    Rows(Vec<String>),
    /// The number of valid keys of every item, the first ones.
    Lengths(Vec<usize>),
}

/// A mask of keys.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockedKeys {
    /// What says which.
    pub by: Blocked,
    /// Keys.
    pub keys: usize,
    /// Where the rows of these queries are blocked in place of the columns of the keys: (batch, 1, query, 1).
    pub as_queries: Option<QueryRows>,
}

impl BlockedKeys {
    fn items(&self) -> usize {
        match &self.by {
            Blocked::Rows(rows) => rows.len(),
            Blocked::Lengths(lengths) => lengths.len(),
        }
    }

    fn hides(&self, item: usize, key: usize) -> bool {
        match &self.by {
            Blocked::Rows(rows) => {
                rows.get(item).is_some_and(|row| row.as_bytes().get(key) == Some(&b'0'))
            }
            Blocked::Lengths(lengths) => lengths.get(item).is_some_and(|length| key >= *length),
        }
    }

    /// The same of a part of the run; nothing where it may need to see all keys.
    pub(super) fn narrowed(&self, part: Part, whole: &Axes) -> Option<Self> {
        let mut own = self.clone();
        match (part, &mut own.as_queries) {
            (Part::Keys(_) | Part::First(_), _) => return None,
            (Part::Item(item), _) => match &mut own.by {
                Blocked::Rows(all) => *all = of_item(all, item),
                Blocked::Lengths(all) => *all = of_item(all, item),
            },
            (Part::Rows(rows), Some(all)) if part.position(whole).is_some() => {
                *all = QueryRows { first: all.first + rows.first, count: rows.count };
            }
            (Part::Rows(_) | Part::Tokens { .. }, _) => {}
        }
        Some(own)
    }
}

impl Mask for BlockedKeys {
    fn axes(&self) -> Vec<Dim> {
        let (queries, keys) = self.as_queries.map_or((1, self.keys), |rows| (rows.count, 1));
        vec![(Batch, self.items()), (Head, 1), (Query, queries), (Key, keys)]
    }

    fn cells(&self) -> Vec<u8> {
        let (first, count) =
            self.as_queries.map_or((0, self.keys), |rows| (rows.first, rows.count));
        let of = |item| (first..first + count).map(move |key| u8::from(self.hides(item, key)));
        (0..self.items()).flat_map(of).collect()
    }

    fn formula(&self) -> String {
        match &self.by {
            Blocked::Rows(rows) => tr!("where {rows} has a 0", rows = rows.join(",")),
            Blocked::Lengths(lengths) => {
                let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
                tr!("key ≥ length, of {lengths}", lengths = lengths.join(","))
            }
        }
    }

    fn reason(&self, [item, _, query, key]: [usize; 4]) -> Option<Reason> {
        let key = self.as_queries.map_or(key, |rows| rows.first + query);
        let reason = match &self.by {
            Blocked::Rows(_) => Reason::BlockedKey { item, key },
            Blocked::Lengths(lengths) => {
                Reason::BeyondLength { item, key, length: *lengths.get(item)? }
            }
        };
        self.hides(item, key).then_some(reason)
    }
}
