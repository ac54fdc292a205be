//! Products of matrices that gradients are made of, and no forward pass.

use candle_core::Tensor;

use super::matmul::{expand, expanded, product, turned_product};
use crate::axis::Axis::{Bucket, Key, Query};
use crate::axis::{Axes, Dim, sizes};
use crate::misread::{Misread, read};
use crate::part::QueryRows;
use crate::pattern::{Multiplier, Pattern, Place, Products, Read, When};
use base::error::Result;

/// Products in which d is the gradient of what was computed.
#[derive(Debug, Clone, PartialEq)]
pub enum Product {
    /// d · W: of the input of a projection. Reads d (batch, token, out) and W (out, in).
    Input {
        /// The rows that were projected, if not all were: the others have none.
        rows: Option<QueryRows>,
        /// The axes of the input.
        axes: Vec<Dim>,
    },
    /// dᵀ · x, added up over the tokens of all items: of the weight of a projection. Reads d (batch, token, out) and x
    /// (batch, token, in).
    Weight {
        /// The rows that were projected, if not all were.
        rows: Option<QueryRows>,
        /// The axes of the weight.
        axes: Vec<Dim>,
    },
    /// Aᵀ · B of every head: of the keys or values in a product. Reads A (batch, head, query, key) and B (batch, head, query,
    /// `head_dim`).
    Transposed,
    /// Aᵀ · B of every head, added up over the items: of the rows that the head has of a weight. Reads A (batch, head, query,
    /// `head_dim`), of which the first features count, and B (batch, head, query, latent).
    OfHeads {
        /// The axes of the weight (heads · features, latent).
        axes: Vec<Dim>,
    },
    /// Aᵀ · B of every head, added up over the items: of what is the same for every item in a product. Reads A (batch, head,
    /// token, bucket) and B (batch, head, token, `head_dim`).
    OfItems {
        /// The axes of what is the same (1, head, bucket, `head_dim`).
        axes: Vec<Dim>,
    },
    /// d · Wᵀ, head by head, and zeros behind: of the heads whose first features met a weight. Reads d (batch, head, query,
    /// latent) and W (heads · features, latent).
    Expand {
        /// The axes of the heads.
        axes: Vec<Dim>,
    },
}

impl Product {
    pub(super) fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        Ok(match self {
            Self::Input { rows, axes } => {
                let [d, weight] = read(inputs)?;
                let (batch, tokens, out) = d.dims3()?;
                let made = product(&d.reshape((batch * tokens, out))?, weight, false)?;
                let made = made.reshape((batch, tokens, weight.dim(1)?))?;
                let all = axes.get(1).map_or(tokens, |(_, all)| *all);
                match rows {
                    Some(rows) => made.pad_with_zeros(1, rows.first, all - rows.first - tokens)?,
                    None => made,
                }
            }
            Self::Weight { rows, .. } => {
                let [d, x] = read(inputs)?;
                let [d, x] = [d.clone(), rows_of(x, *rows)?];
                turned_product(&d.flatten(0, 1)?, &x.flatten(0, 1)?)?
            }
            Self::Transposed => {
                let [left, right] = read(inputs)?;
                turned_product(left, right)?
            }
            Self::OfItems { .. } => {
                let [left, right] = read(inputs)?;
                turned_product(left, right)?.sum_keepdim(0)?
            }
            Self::OfHeads { axes } => {
                let [left, right] = read(inputs)?;
                let own = axes.first().map_or(0, |(_, rows)| *rows) / left.dim(1)?.max(1);
                turned_product(&left.narrow(3, 0, own)?, right)?.sum(0)?.reshape(sizes(axes))?
            }
            Self::Expand { axes } => {
                let [d, weight] = read(inputs)?;
                let made = expand(d, weight)?;
                let all = axes.last().map_or(0, |(_, all)| *all);
                made.pad_with_zeros(3, 0, all.saturating_sub(made.dim(3)?))?
            }
        })
    }

    pub(super) fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        match (self, inputs) {
            (Self::Input { axes, .. }, [[b, _, o], [w_o, w_i]])
                if o.1 == w_o.1 && axes.len() == 3 && axes[0] == *b && axes[2].1 == w_i.1 =>
            {
                Ok(axes.clone())
            }
            (Self::Weight { rows, axes }, [[b, t, o], [x_b, x_t, i]])
                if b == x_b && are_rows(*rows, t.1, x_t.1) && sizes(axes) == [o.1, i.1] =>
            {
                Ok(axes.clone())
            }
            (Self::Transposed, [[b, h, (Query, q), s @ (Key, _)], [o_b, o_h, (Query, o_q), d]])
                if (b, h, q) == (o_b, o_h, o_q) =>
            {
                Ok(vec![*b, *h, *s, *d])
            }
            (Self::OfHeads { axes }, [[b, (_, heads), q, d], [o_b, (_, others), o_q, latent]])
                if (b, heads, q) == (o_b, others, o_q)
                    && axes.len() == 2
                    && axes[1].1 == latent.1
                    && axes[0].1.is_multiple_of(*heads)
                    && axes[0].1 / heads <= d.1 =>
            {
                Ok(axes.clone())
            }
            (Self::OfItems { axes }, [[b, h, t, p @ (Bucket, _)], [o_b, o_h, o_t, d]])
                if (b, h, t) == (o_b, o_h, o_t)
                    && matches!(axes.as_slice(), [(_, 1), rest @ ..] if rest == [*h, *p, *d]) =>
            {
                Ok(axes.clone())
            }
            (Self::Expand { axes }, _) => {
                let made = expanded(inputs)?;
                let fits = |((own, size), (other, all)): (&Dim, &Dim)| own == other && size <= all;
                let is_same = axes.len() == 4 && made[..3] == axes[..3];
                let fits = is_same && made.last().zip(axes.last()).is_some_and(fits);
                fits.then(|| axes.clone()).ok_or(Misread)
            }
            _ => Err(Misread),
        }
    }

    pub(super) fn formula(&self, first: &str, second: &str) -> String {
        match self {
            Self::Weight { rows: None, .. } | Self::Transposed => format!("{first}ᵀ · {second}"),
            Self::Weight { rows: Some(QueryRows { first: from, count }), .. } => {
                format!("{first}ᵀ · {second}[{from}..{}]", from + count)
            }
            Self::Input { rows: None, .. } => format!("{first} · {second}"),
            Self::Input { rows: Some(QueryRows { first: from, count }), .. } => {
                let end = from + count;
                tr!("{first} · {second} in rows {from} to {end}, else 0", first, second, from, end)
            }
            Self::OfItems { .. } => tr!("{first}ᵀ · {second}, added up over items", first, second),
            Self::OfHeads { .. } => tr!("{first}ᵀ · {second}, head by head", first, second),
            Self::Expand { .. } => tr!("{first} · {second}ᵀ, head by head", first, second),
        }
    }

    pub(super) fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let size = |input: usize, axis: usize| {
            inputs.get(input).and_then(|axes| axes.shape().get(axis).copied()).unwrap_or(0)
        };
        let on = |axes: &[usize]| axes.iter().copied().map(Place::on).collect::<Vec<_>>();
        let sum = |products: Products| Pattern::Sum(vec![products]);
        match self {
            Self::Input { rows, axes } => {
                let (count, all) = (size(0, 1), axes.get(1).map_or(0, |(_, all)| *all));
                let first = rows.map_or(0, |rows| rows.first);
                let d = Read::of(0, [Place::on(0), Place::on(1).back(first), Place::on(3)]);
                let made = Products::many(size(0, 2), d, Read::of(1, on(&[3, 2])));
                match rows {
                    None => sum(made),
                    Some(_) => beside_zeros(made, (1, first, count, all)),
                }
            }
            Self::OfHeads { axes } => {
                let (items, heads, tokens) = (size(0, 0), size(0, 1).max(1), size(0, 2));
                let rows = axes.first().map_or(0, |(_, rows)| *rows);
                let own = (rows / heads).max(1);
                let of = |part: &dyn Fn(usize) -> usize| Place::listed(0, (0..rows).map(part));
                let of_pair =
                    |part: &dyn Fn(usize) -> usize| Place::listed(2, (0..items * tokens).map(part));
                let (item, token) = (|| of_pair(&|at| at / tokens), || of_pair(&|at| at % tokens));
                let head = || of(&|row| row / own);
                let left = Read::of(0, [item(), head(), token(), of(&|row| row % own)]);
                let right = Read::of(1, [item(), head(), token(), Place::on(1)]);
                sum(Products::many(items * tokens, left, right))
            }
            Self::Expand { axes } => {
                let (heads, rows) = (size(0, 1).max(1), size(1, 0));
                let (own, all) = (rows / heads, axes.last().map_or(0, |(_, all)| *all));
                let head = Place::listed(1, (0..heads).map(|head| head * own));
                let weight = Read::of(1, [head.and(Place::on(3)), Place::on(4)]);
                let made = Products::many(size(0, 3), Read::of(0, on(&[0, 1, 2, 4])), weight);
                beside_zeros(made, (3, 0, own, all))
            }
            Self::OfItems { .. } => {
                let (items, tokens) = (size(0, 0), size(0, 2).max(1));
                let part = |of: fn(usize, usize) -> usize| {
                    Place::listed(4, (0..items * tokens).map(|at| of(at, tokens)))
                };
                let (item, token) = (|| part(|at, of| at / of), || part(|at, of| at % of));
                let left = Read::of(0, [item(), Place::on(1), token(), Place::on(2)]);
                let right = Read::of(1, [item(), Place::on(1), token(), Place::on(3)]);
                sum(Products::many(items * tokens, left, right))
            }
            Self::Weight { rows, .. } => {
                let (items, tokens) = (size(0, 0), size(0, 1));
                let part = |of: fn(usize, usize) -> usize| {
                    Place::listed(2, (0..items * tokens).map(|at| of(at, tokens)))
                };
                let (item, token) = (|| part(|at, of| at / of), part(|at, of| at % of));
                let x_token = token.clone().moved(rows.map_or(0, |rows| rows.first));
                let d = Read::of(0, [item(), token, Place::on(0)]);
                let x = Read::of(1, [item(), x_token, Place::on(1)]);
                sum(Products::many(items * tokens, d, x))
            }
            Self::Transposed => {
                let (left, right) =
                    (Read::of(0, on(&[0, 1, 4, 2])), Read::of(1, on(&[0, 1, 4, 3])));
                sum(Products::many(size(0, 2), left, right))
            }
        }
    }

    pub(super) fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        match self {
            Self::Expand { .. } => {
                let inner = inputs.first().map_or(0, |heads| heads.last_size());
                output.count().saturating_mul(2 * inner)
            }
            Self::Input { .. }
            | Self::Weight { .. }
            | Self::Transposed
            | Self::OfItems { .. }
            | Self::OfHeads { .. } => {
                let [d, other] = inputs else { return 0 };
                d.count().saturating_mul(2 * other.last_size())
            }
        }
    }
}

/// Some rows of the second axis, or all.
fn rows_of(x: &Tensor, rows: Option<QueryRows>) -> candle_core::Result<Tensor> {
    rows.map_or_else(|| Ok(x.clone()), |rows| x.narrow(1, rows.first, rows.count)?.contiguous())
}

/// Whether so many rows are those that were taken of all.
fn are_rows(rows: Option<QueryRows>, count: usize, all: usize) -> bool {
    rows.map_or(count == all, |rows| rows.count == count && rows.first + count <= all)
}

/// Products at so many places of an axis from the first of these on, of all, and zeros elsewhere.
pub(super) fn beside_zeros(
    made: Products,
    (axis, first, count, all): (usize, usize, usize, usize),
) -> Pattern {
    let within = |from, to| When::Within(axis, [from, to]);
    let zero = || Products::one([Multiplier::Number("0".to_owned(), 0.0, None)]);
    let end = first + count;
    let zeros = [zero().when(within(0, first)), zero().when(within(end, all))];
    Pattern::Sum([made.when(within(first, end))].into_iter().chain(zeros).collect())
}
