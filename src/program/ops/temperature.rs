//! Factors of queries that grow with their positions.

use candle_core::Tensor;

use super::places::Places;
use crate::axis::Axes;
use crate::part::Part;
use crate::pattern::{Multiplier, Pattern, Products, Read, When};
use base::error::Result;

/// x · (1 + S · ln(1 + ⌊p / N⌋)) at position p, by which long contexts keep sharp weights ("Scalable-Softmax Is Superior
/// for Attention", Nakanishi, 2025; Llama 4's `attn_temperature_tuning`). Reads queries (batch, head, query, `head_dim`).
#[derive(Debug, Clone, PartialEq)]
pub struct Temperature {
    /// S.
    pub scale: f64,
    /// N.
    pub floor: f64,
    /// The position of the first row; where positions are given, its place among them.
    pub first: usize,
    /// The positions of the tokens, one each, where they are not one after the other.
    pub places: Option<Places>,
    /// What is added to positions.
    pub offset: usize,
    /// Whether the quotient is rounded down, as it should be.
    pub is_floored: bool,
}

impl Temperature {
    /// What is divided by the floor.
    fn position(&self, item: usize, row: usize) -> usize {
        let at = self.first + row;
        self.places.as_ref().map_or(at, |places| places.at(item, at, 0)) + self.offset
    }

    /// How many items have factors of their own; 1 where all have the same.
    fn items(&self) -> usize {
        self.places.as_ref().map_or(1, Places::items)
    }

    /// The factor of an item's row.
    fn of_row(&self, item: usize, row: usize) -> f64 {
        let quotient = self.position(item, row) as f64 / self.floor;
        let quotient = if self.is_floored { quotient.floor() } else { quotient };
        1.0 + self.scale * quotient.ln_1p()
    }

    pub(super) fn value(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.dims4()?.2;
        let items = self.items();
        let of_item = |item| (0..rows).map(move |row| self.of_row(item, row));
        let factors: Vec<f64> = (0..items).flat_map(of_item).collect();
        let factors = Tensor::from_vec(factors, (items, 1, rows, 1), x.device())?;
        let factors = factors.to_dtype(x.dtype())?;
        Ok(x.broadcast_mul(&factors)?)
    }

    pub(super) fn formula(&self, x: &str) -> String {
        let Self { scale, floor, first, offset, .. } = self;
        let from = match &self.places {
            Some(places) if *offset == 0 => places.told(),
            Some(places) => tr!("{told} and {offset} more", told = places.told(), offset),
            None => tr!("from position {offset}", offset = first + offset),
        };
        tr!("{x} · (1 + {scale} · ln(1 + ⌊position / {floor}⌋)), {from}", x, scale, floor, from)
    }

    pub(super) fn pattern(&self, x: &Axes) -> Pattern {
        let &[_, _, rows, _] = &*x.shape() else { return Pattern::ByCell };
        let Self { scale, floor, .. } = self;
        let items = self.items();
        let of_item = |item| {
            let factor = |row| {
                let at = self.position(item, row);
                (format!("1 + {scale} · ln(1 + ⌊{at} / {floor}⌋)"), self.of_row(item, row))
            };
            let factors = Multiplier::Listed(2, (0..rows).map(factor).collect());
            let product = Products::one([Read::same(0, x).into(), factors]);
            if items == 1 { product } else { product.when(When::Within(0, [item, item + 1])) }
        };
        Pattern::Sum((0..items).map(of_item).collect())
    }

    pub(super) fn narrowed(&self, part: Part) -> Self {
        match part {
            Part::Rows(rows) => Self { first: self.first + rows.first, ..self.clone() },
            Part::Item(item) => {
                let places = self.places.as_ref().map(|places| places.of_item(item));
                Self { places, ..self.clone() }
            }
            Part::Keys(_) | Part::First(_) | Part::Tokens { .. } => self.clone(),
        }
    }
}
