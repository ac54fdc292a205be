//! Products of queries or keys with embeddings of relative positions: of all positions, that of each key's distance.

use candle_core::{DType, Tensor};

use crate::axis::Axis::{Bucket, Head, Key, Query};
use crate::axis::Dim;
use crate::misread::{Misread, at, read};
use crate::part::Part;
use crate::terms::{Term, Value};
use base::error::Result;

/// (batch, head, query, key): of the products of every query with all relative positions, or of every key, the one of the
/// distance query − key ("`DeBERTa`", He et al., 2021, equations 3 and 4; the arithmetic is that of
/// `DisentangledSelfAttention` in transformers). Reads the products (batch, head, query or key, bucket).
///
/// The row is distance + span, from 0 to 2 span − 1. Logarithmic ones have, of span = n buckets and e = ⌊n/2⌋, for a distance d
/// beyond e in its place ±(e + ⌈ln(|d| / e) / ln((`max_distance` − 1) / e) · (e − 1)⌉), as from version 2 on.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each can be wrong by itself")]
pub struct Picked {
    /// Positions to either side.
    pub span: usize,
    /// The distance that the last bucket is of, where they are logarithmic.
    pub max_distance: usize,
    /// Whether distances share buckets by their logarithm.
    pub is_logarithmic: bool,
    /// Whether the products are of keys: position to content.
    pub is_of_keys: bool,
    /// The position of the first query row.
    pub first: usize,
    /// Query rows.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// The row of distance 0, which should be the span.
    pub zero: usize,
    /// Whether query and key change places in the distance, as they should not.
    pub is_backwards: bool,
    /// Whether the distance has no sign, as it should have.
    pub is_absolute: bool,
    /// Whether the cells of query and key change places, as they should not: products of keys that are not transposed, or
    /// those of queries that are.
    pub is_turned: bool,
}

impl Picked {
    /// The row of the embeddings for a query and a key, counted from 0.
    pub(super) fn row(&self, query: usize, key: usize) -> usize {
        let (from, to) = (self.first + query, key);
        let (from, to) = if self.is_backwards { (to, from) } else { (from, to) };
        let apart = if self.is_logarithmic {
            self.of_distance(from.abs_diff(to))
        } else {
            from.abs_diff(to)
        };
        let row = if from < to && !self.is_absolute {
            self.zero.saturating_sub(apart)
        } else {
            self.zero.saturating_add(apart)
        };
        row.min(self.last())
    }

    /// How many rows the embeddings have.
    fn rows(&self) -> usize {
        self.span.saturating_mul(2)
    }

    /// The last of them.
    fn last(&self) -> usize {
        self.rows().saturating_sub(1)
    }

    /// The bucket of a distance to either side.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "in the 32 bits that the library computes it in, and rounded up as it does"
    )]
    fn of_distance(&self, distance: usize) -> usize {
        let exact = self.span / 2;
        if distance <= exact {
            return distance;
        }
        let last = (self.max_distance.saturating_sub(1) as f64 / exact as f64) as f32;
        let far = (distance as f32 / exact as f32).ln() / last.ln();
        exact.saturating_add((far * exact.saturating_sub(1) as f32).ceil() as usize)
    }

    /// The cell of the products, as its row and its place in it, that a query and a key read.
    fn cell(&self, query: usize, key: usize) -> [usize; 2] {
        let (query, key) = if self.is_turned { (key, query) } else { (query, key) };
        [if self.is_of_keys { key } else { query }, self.row(query, key)]
    }

    pub(super) fn value(&self, products: &Tensor) -> Result<Tensor> {
        let (batch, heads, rows, buckets) = products.dims4()?;
        let pairs = (0..self.queries).flat_map(|query| (0..self.keys).map(move |key| (query, key)));
        let places = pairs.map(|(query, key)| {
            let [row, place] = self.cell(query, key);
            u32::try_from(row * buckets + place).unwrap_or(u32::MAX)
        });
        let places = Tensor::from_iter(places, products.device())?;
        let flat = products.contiguous()?.reshape((batch, heads, rows * buckets))?;
        Ok(flat.index_select(&places, 2)?.reshape((batch, heads, self.queries, self.keys))?)
    }

    pub(super) fn axes(&self, products: &[Dim]) -> Result<Vec<Dim>, Misread> {
        let [b, h @ (Head, _), (tokens, rows), (Bucket, buckets)] = products else {
            return Err(Misread);
        };
        let read = if self.is_of_keys { (Key, self.keys) } else { (Query, self.queries) };
        let is_square = !self.is_turned || self.queries == self.keys;
        if (*tokens, *rows) != read || *buckets != self.rows() || !is_square {
            return Err(Misread);
        }
        Ok(vec![*b, *h, (Query, self.queries), (Key, self.keys)])
    }

    pub(super) fn formula(&self, products: &str) -> String {
        let Self { zero, max_distance, first, .. } = self;
        let query = if *first == 0 { "query".to_owned() } else { format!("query + {first}") };
        let distance = format!("{query} − key");
        let row = if self.is_of_keys { "key" } else { "query" };
        if self.is_logarithmic {
            return tr!(
                "{products}[{row}, {zero} + bucket of {distance}], logarithmic up to {max_distance}",
                products,
                row,
                zero,
                distance,
                max_distance
            );
        }
        let last = self.last();
        tr!(
            "{products}[{row}, {zero} + {distance}], from 0 to {last}",
            products,
            row,
            zero,
            distance,
            last
        )
    }

    pub(super) fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let ([products], [item, head, query, key]) = (read(inputs)?, at(cell)?);
        let [row, place] = self.cell(query, key);
        Ok(vec![Term(vec![products.at(&[item, head, row, place])?])])
    }

    /// The gradient of products of this shape (batch, head, query or key, bucket) for that of what was picked.
    /// Of several pairs that picked one, the sum, or the last of them.
    pub(super) fn gradient(&self, d: &Tensor, shape: &[usize], is_last: bool) -> Result<Tensor> {
        let [_, _, rows, buckets] = *shape else { return Err(Misread.into()) };
        let numbers = d.to_dtype(DType::F64)?.flatten_all()?.to_vec1::<f64>()?;
        let mut sums = vec![0.0; shape.iter().product()];
        let matrices = numbers.chunks(self.queries * self.keys);
        for (numbers, sums) in matrices.zip(sums.chunks_mut(rows * buckets)) {
            for (at, number) in numbers.iter().enumerate() {
                let [row, place] = self.cell(at / self.keys, at % self.keys);
                if let Some(sum) = sums.get_mut(row * buckets + place) {
                    *sum = if is_last { *number } else { *sum + number };
                }
            }
        }
        Ok(Tensor::from_vec(sums, shape, d.device())?.to_dtype(d.dtype())?)
    }

    /// The terms of a cell of that gradient.
    pub(super) fn collected(&self, [d]: [Value; 1], cell: [usize; 4]) -> Result<Vec<Term>> {
        let [item, head, row, place] = cell;
        let pairs = (0..self.queries).flat_map(|query| (0..self.keys).map(move |key| (query, key)));
        let own = pairs.filter(|(query, key)| self.cell(*query, *key) == [row, place]);
        own.map(|(query, key)| Ok(Term(vec![d.at(&[item, head, query, key])?]))).collect()
    }

    /// The same for a part of the run.
    pub(super) fn narrowed(mut self, part: Part) -> Option<Self> {
        match part {
            Part::Item(_) => {}
            Part::Rows(_) | Part::Keys(_) if self.is_turned => return None,
            Part::Rows(rows) => {
                (self.first, self.queries) = (self.first + rows.first, rows.count);
            }
            Part::Keys(count) => self.keys = count,
            Part::First(count) => (self.queries, self.keys) = (count, count),
            Part::Tokens { .. } => return None,
        }
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(span: usize, max_distance: usize, is_logarithmic: bool, apart: &[i64]) -> Vec<i64> {
        let own = Picked {
            span,
            max_distance,
            is_logarithmic,
            is_of_keys: false,
            first: 0,
            queries: 601,
            keys: 601,
            zero: span,
            is_backwards: false,
            is_absolute: false,
            is_turned: false,
        };
        let row = |apart: &i64| {
            let at = usize::try_from(apart.abs()).expect("small");
            let row = if *apart < 0 { own.row(0, at) } else { own.row(at, 0) };
            i64::try_from(row).expect("small") - i64::try_from(span).expect("small")
        };
        apart.iter().map(row).collect()
    }
    /// What `make_log_bucket_position` of transformers 5.23 gives, clamped to the span, and what a plain distance is.
    #[test]
    fn rows_are_those_of_deberta() {
        let apart = [
            0, 1, 3, 5, -5, 7, 8, 9, -9, 12, 16, 20, 31, 64, 90, 127, 128, 129, 200, 256, 300, 512,
            -600,
        ];
        let logarithmic = [
            (
                256,
                512,
                [
                    0, 1, 3, 5, -5, 7, 8, 9, -9, 12, 16, 20, 31, 64, 90, 127, 128, 129, 169, 192,
                    207, 255, -256,
                ],
            ),
            (8, 16, [0, 1, 3, 5, -5, 6, 6, 6, -6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, -8]),
            (5, 11, [0, 1, 3, 3, -3, 3, 3, 3, -3, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, -5]),
            (
                32,
                128,
                [
                    0, 1, 3, 5, -5, 7, 8, 9, -9, 12, 16, 18, 21, 27, 29, 31, 31, 31, 31, 31, 31,
                    31, -32,
                ],
            ),
        ];
        for (span, max_distance, expected) in logarithmic {
            assert_eq!(rows(span, max_distance, true, &apart), expected, "{span}");
        }
        let plain = apart.map(|apart| apart.clamp(-16, 15));
        assert_eq!(rows(16, 0, false, &apart), plain);
    }
}
