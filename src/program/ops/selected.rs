//! Keys that were not chosen for a query.

use super::hidden::Mask;
use crate::axis::Axis::{Batch, Head, Key, Query};
use crate::axis::Dim;
use crate::part::{Part, QueryRows, of_item};
use crate::selection::{Lists, Selection, comes_from};
use crate::terms::Reason;

/// A mask that hides the keys which were not chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Which are.
    pub by: Selection,
    /// The query rows that are computed.
    pub rows: QueryRows,
    /// Keys.
    pub keys: usize,
    /// Query heads.
    pub heads: usize,
}

impl Selected {
    /// Heads that have a mask of their own, or 1 for all.
    pub fn own_heads(&self) -> usize {
        match &self.by {
            Selection::Lists(lists) if lists.heads() > 1 => self.heads,
            Selection::Lists(_) | Selection::Tree(_) => 1,
        }
    }

    /// Which keys a query of a head sees.
    pub fn sees(&self, item: usize, head: usize, row: usize) -> Vec<bool> {
        let mut seen = vec![false; self.keys];
        let row = self.rows.first + row;
        match &self.by {
            Selection::Lists(lists) => {
                let head = head * lists.heads() / self.own_heads().max(1);
                for number in lists.of(item, head, row) {
                    let keys = lists.keys(*number);
                    let keys = keys.start.min(self.keys)..keys.end.min(self.keys);
                    seen[keys].fill(true);
                }
            }
            Selection::Tree(rows) => {
                let own = rows.get(item).or_else(|| rows.first());
                let parents = own.map(Vec::as_slice).unwrap_or_default();
                let before = self.keys.saturating_sub(parents.len());
                for (key, seen) in seen.iter_mut().enumerate() {
                    *seen = key.checked_sub(before).is_none_or(|at| comes_from(parents, row, at));
                }
            }
        }
        seen
    }

    /// The same of a part of the run; nothing where it may need to see all keys.
    pub(super) fn narrowed(&self, part: Part) -> Option<Self> {
        let mut own = self.clone();
        match part {
            Part::Keys(_) | Part::First(_) => return None,
            Part::Item(item) => match &mut own.by {
                Selection::Lists(lists) => lists.chosen = of_item(&lists.chosen, item),
                Selection::Tree(rows) => *rows = of_item(rows, item),
            },
            Part::Rows(rows) => {
                own.rows = QueryRows { first: own.rows.first + rows.first, count: rows.count };
            }
            Part::Tokens { .. } => {}
        }
        Some(own)
    }
}

impl Mask for Selected {
    fn axes(&self) -> Vec<Dim> {
        let own = [self.by.items(), self.own_heads(), self.rows.count, self.keys];
        [Batch, Head, Query, Key].into_iter().zip(own).collect()
    }

    fn cells(&self) -> Vec<u8> {
        let mut cells = Vec::new();
        for item in 0..self.by.items() {
            for head in 0..self.own_heads() {
                for row in 0..self.rows.count {
                    cells
                        .extend(self.sees(item, head, row).into_iter().map(|seen| u8::from(!seen)));
                }
            }
        }
        cells
    }

    fn formula(&self) -> String {
        match &self.by {
            Selection::Lists(Lists { tile: 1, block: 1, .. }) => {
                tr!("the key is not in the list of its query").to_owned()
            }
            Selection::Lists(Lists { tile, block, .. }) => {
                tr!(
                    "the key's block of {block} is not in the list of its query's tile of {tile}",
                    block,
                    tile
                )
            }
            Selection::Tree(_) => {
                tr!("the key is a token of the tree that the query does not come from").to_owned()
            }
        }
    }

    fn reason(&self, [item, head, query, key]: [usize; 4]) -> Option<Reason> {
        let head = if self.own_heads() > 1 { head } else { 0 };
        let is_seen = self.sees(item, head, query).get(key).copied()?;
        (!is_seen).then_some(match &self.by {
            Selection::Lists(_) => Reason::NotChosen { query, key },
            Selection::Tree(_) => Reason::OtherBranch { query, key },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(text: &str, rows: usize, keys: usize) -> Selected {
        let rows = QueryRows { first: 0, count: rows };
        Selected { by: text.parse().expect("a selection"), rows, keys, heads: 2 }
    }

    #[test]
    fn a_query_sees_what_was_chosen_for_it() {
        assert_eq!(mask("keys=0;0,-1;2,9", 3, 3).cells(), [0, 1, 1, 0, 1, 1, 1, 1, 0]);
        assert_eq!(mask("blocks=2x2:1", 2, 4).cells(), [1, 1, 0, 0, 1, 1, 0, 0]);
        let of_heads = mask("keys=0|1", 1, 2);
        assert_eq!(of_heads.axes(), [(Batch, 1), (Head, 2), (Query, 1), (Key, 2)]);
        assert_eq!(of_heads.cells(), [0, 1, 1, 0]);
    }

    #[test]
    fn a_branch_of_a_tree_sees_no_other() {
        let tree = mask("parents=-1,0,0", 3, 4);
        assert_eq!(tree.cells(), [0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0]);
        let last = tree.narrowed(Part::Rows(QueryRows { first: 2, count: 1 })).expect("rows");
        assert_eq!(last.cells(), [0, 0, 1, 0]);
    }
}
