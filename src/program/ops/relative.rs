//! Learned biases of relative positions: which row of a table a query and a key read.

use candle_core::{DType, Tensor};

use crate::misread::Misread;
use base::error::Result;

choices! {
    /// What the rows of a table of relative position biases are of.
    RelativeBias {
        /// Buckets of the distances to both sides, half of them for later keys, as in T5's encoder.
        #[default]
        Bidirectional = "bidirectional",
        /// Buckets of the distances to earlier keys; later ones count as 0 away, as in T5's decoder.
        OneSided = "one-sided",
        /// Places of a square grid, by rows and columns between them, as in Swin; where the table has three rows more, the
        /// first token is none of the grid, as in `BEiT`.
        Grid = "grid",
    }
}

/// (head, query, key): the bias of every query and key, from a table (bucket, head).
///
/// Of n buckets for r = |key − query| ("Exploring the Limits of Transfer Learning with a Unified Text-to-Text
/// Transformer", Raffel et al., 2020, section 2.1; the arithmetic is that of `T5Attention` in transformers), the first
/// e = n/2 are of one distance each, and of the others
/// e + ⌊ln(r / e) / ln(`max_distance` / e) · (n − e)⌋, at most n − 1. Bidirectional ones have n/2 buckets for either side,
/// those of later keys behind the others; one-sided ones have r = max(query − key, 0).
#[derive(Debug, Clone, PartialEq)]
pub struct Relative {
    /// What the rows of the table are of.
    pub sort: RelativeBias,
    /// Buckets: rows of the table that are used.
    pub buckets: usize,
    /// The distance from which on all are in the last bucket.
    pub max_distance: usize,
    /// The position of the first query row.
    pub first: usize,
    /// Query rows.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// Whether query and key change places.
    pub is_backwards: bool,
    /// Whether every distance has a bucket, as far as there are buckets.
    pub is_linear: bool,
}

impl Relative {
    /// The row of the table for a query and a key, counted from 0.
    pub(super) fn row(&self, query: usize, key: usize) -> usize {
        let (from, to) = (self.first + query, key);
        let (from, to) = if self.is_backwards { (to, from) } else { (from, to) };
        match self.sort {
            RelativeBias::Bidirectional => {
                let half = self.buckets / 2;
                let later = if to > from { half } else { 0 };
                later + self.of_distance(to.abs_diff(from), half)
            }
            RelativeBias::OneSided => self.of_distance(from.saturating_sub(to), self.buckets),
            RelativeBias::Grid => self.of_grid(from, to),
        }
    }

    /// The bucket of a distance, of so many.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in the 32 bits that the library computes it in, and rounded down as it does"
    )]
    fn of_distance(&self, distance: usize, buckets: usize) -> usize {
        let exact = buckets / 2;
        if distance < exact || self.is_linear {
            return distance.min(buckets.saturating_sub(1));
        }
        let far = (distance as f32 / exact as f32).ln()
            / (self.max_distance as f64 / exact as f64).ln() as f32
            * (buckets - exact) as f32;
        (exact + far as usize).min(buckets.saturating_sub(1))
    }

    /// The row of two places of a square grid: (rows between + side − 1) · (2 side − 1) + columns between + side − 1.
    fn of_grid(&self, query: usize, key: usize) -> usize {
        let (side, has_class) = grid(self.buckets).unwrap_or((1, false));
        let last = self.buckets.saturating_sub(1);
        let own = usize::from(has_class);
        match (has_class && query == 0, has_class && key == 0) {
            (true, true) => return last,
            (false, true) => return last.saturating_sub(1),
            (true, false) => return last.saturating_sub(2),
            (false, false) => {}
        }
        let place = |at: usize| ((at - own) / side, (at - own) % side);
        let ((row, column), (key_row, key_column)) = (place(query), place(key));
        let between = |one: usize, other: usize| (one + side).saturating_sub(other + 1);
        (between(row, key_row) * (2 * side - 1) + between(column, key_column)).min(last)
    }

    /// The gradient of a table of this shape (bucket, head) for that of the biases (head, query, key): the sum of all pairs of a
    /// bucket, or the last of them.
    pub(super) fn gradient(&self, d: &Tensor, shape: &[usize], is_last: bool) -> Result<Tensor> {
        let [buckets, heads] = *shape else { return Err(Misread.into()) };
        let numbers = d.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
        let mut table = vec![0.0; buckets * heads];
        let pairs = (0..heads).flat_map(|head| {
            let of_head = move |query| (0..self.keys).map(move |key| (head, query, key));
            (0..self.queries).flat_map(of_head)
        });
        for ((head, query, key), number) in pairs.zip(numbers) {
            if let Some(sum) = table.get_mut(self.row(query, key) * heads + head) {
                *sum = if is_last { number } else { *sum + number };
            }
        }
        Ok(Tensor::from_vec(table, shape, d.device())?.to_dtype(d.dtype())?)
    }

    pub(super) fn formula(&self, table: &str) -> String {
        let Self { buckets, max_distance, first, .. } = self;
        let query = if *first == 0 { "query".to_owned() } else { format!("query − {first}") };
        let (query, key) = if self.is_backwards { ("key", &*query) } else { (&*query, "key") };
        let between = match self.sort {
            RelativeBias::Bidirectional => tr!("bucket of {key} − {query}", key, query),
            RelativeBias::OneSided => tr!("bucket of max({query} − {key}, 0)", query, key),
            RelativeBias::Grid => {
                return tr!("{table}[places of {query} and {key} in the grid]", table, query, key);
            }
        };
        let told = if self.is_linear { tr!("one by one") } else { tr!("logarithmic") };
        tr!(
            "{table}[{between}], {buckets} buckets, {told} up to {max_distance}",
            table,
            between,
            buckets,
            told,
            max_distance
        )
    }

    /// How many distances have a bucket of their own.
    pub fn exact(&self) -> usize {
        match self.sort {
            RelativeBias::Bidirectional => self.buckets / 4,
            RelativeBias::OneSided | RelativeBias::Grid => self.buckets / 2,
        }
    }

    /// Whether the table has these rows, and there are as many tokens as the grid has.
    pub(super) fn fits(&self, rows: usize) -> Result<(), Misread> {
        let fits = match (self.sort, grid(self.buckets)) {
            (RelativeBias::Grid, None) => false,
            (RelativeBias::Grid, Some((side, has_class))) => {
                self.keys == side * side + usize::from(has_class)
            }
            (RelativeBias::Bidirectional | RelativeBias::OneSided, _) => true,
        };
        if fits && self.buckets <= rows && self.buckets > 0 { Ok(()) } else { Err(Misread) }
    }
}

/// The side of the square grid whose table has so many rows, (2 side − 1)², and whether it has three more.
pub fn grid(rows: usize) -> Option<(usize, bool)> {
    let side = |rows: usize| {
        let root = rows.isqrt();
        (root * root == rows && root % 2 == 1).then_some(root.div_ceil(2))
    };
    match (side(rows), rows.checked_sub(3).and_then(side)) {
        (Some(side), _) => Some((side, false)),
        (None, Some(side)) => Some((side, true)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `T5Attention._relative_position_bucket` of transformers 5.23 gives, of earlier and of later keys.
    #[test]
    fn buckets_are_those_of_t5() {
        let apart =
            [0, 7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 500];
        let both = [0, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15, 15, 15];
        let one_sided =
            [0, 7, 8, 11, 12, 15, 16, 18, 18, 21, 21, 23, 24, 26, 26, 29, 29, 31, 31, 31];
        let own = Relative {
            sort: RelativeBias::Bidirectional,
            buckets: 32,
            max_distance: 128,
            first: 0,
            queries: 501,
            keys: 501,
            is_backwards: false,
            is_linear: false,
        };
        let of_decoder = Relative { sort: RelativeBias::OneSided, ..own.clone() };
        for (at, apart) in apart.into_iter().enumerate() {
            assert_eq!(own.row(500, 500 - apart), both[at], "{apart}");
            assert_eq!(of_decoder.row(500, 500 - apart), one_sided[at], "{apart}");
            assert_eq!(of_decoder.row(0, apart), 0);
        }
        assert_eq!([1, 9, 40].map(|key| own.row(0, key)), [17, 24, 28]);
    }

    #[test]
    fn the_side_of_a_grid_follows_from_its_table() {
        assert_eq!(grid(25), Some((3, false)));
        assert_eq!(grid(28), Some((3, true)));
        assert_eq!(grid(1), Some((1, false)));
        assert_eq!((grid(32), grid(0), grid(16)), (None, None, None));
    }
}
