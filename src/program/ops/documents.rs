//! Documents that are packed into one row of tokens, as kernels for variable lengths have them.

use crate::narrow::Part;
use crate::terms::Reason;

use super::linear::QueryRows;

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

/// The document that a token stands in.
fn document(lengths: &[usize], at: usize) -> Option<usize> {
    let mut end = 0_usize;
    lengths.iter().position(|length| {
        end = end.saturating_add(*length);
        at < end
    })
}

impl Documents {
    /// The lengths of the axes.
    pub(super) fn shape(&self) -> (usize, usize, usize, usize) {
        let keys = self.keys.first().map_or(0, |lengths| lengths.iter().sum());
        (self.queries.len().max(self.keys.len()), 1, self.rows.count, keys)
    }

    fn of(all: &[Vec<usize>], item: usize) -> &[usize] {
        all.get(item).or_else(|| all.first()).map(Vec::as_slice).unwrap_or_default()
    }

    fn hides(&self, item: usize, row: usize, key: usize) -> bool {
        let query = document(Self::of(&self.queries, item), self.rows.first + row);
        query != document(Self::of(&self.keys, item), key)
    }

    /// 1 where a key is of another document, row by row.
    pub(super) fn cells(&self) -> Vec<u8> {
        let (items, _, rows, keys) = self.shape();
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

    pub(super) fn reason(&self, item: usize, query: usize, key: usize) -> Option<Reason> {
        self.hides(item, query, key).then_some(Reason::OtherDocument { query, key })
    }

    /// The same of a part of the run.
    pub(super) fn narrowed(&self, part: Part) -> Self {
        let item = |all: &[Vec<usize>], item| vec![Self::of(all, item).to_vec()];
        match part {
            Part::Item(at) if self.shape().0 > 1 => Self {
                queries: item(&self.queries, at),
                keys: item(&self.keys, at),
                rows: self.rows,
            },
            Part::Item(_) | Part::Keys(_) | Part::Tokens { .. } => self.clone(),
            Part::Rows(rows) => {
                let first = self.rows.first + rows.first;
                Self { rows: QueryRows { first, count: rows.count }, ..self.clone() }
            }
        }
    }

    /// `3,2,4`; of several items `3,2/4,1`.
    pub(super) fn told(lengths: &[Vec<usize>]) -> String {
        let row =
            |row: &Vec<usize>| row.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        lengths.iter().map(row).collect::<Vec<_>>().join("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_sees_its_own_document() {
        let rows = QueryRows { first: 1, count: 2 };
        let documents = Documents { queries: vec![vec![2, 1]], keys: vec![vec![1, 3]], rows };
        assert_eq!(documents.shape(), (1, 1, 2, 4));
        assert_eq!(documents.cells(), [0, 1, 1, 1, 1, 0, 0, 0]);
        let second = documents.narrowed(Part::Rows(QueryRows { first: 1, count: 1 }));
        assert_eq!(second.cells(), [1, 0, 0, 0]);
    }
}
