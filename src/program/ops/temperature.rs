//! Factors of queries that grow with their positions.

use candle_core::Tensor;

use super::places::Places;
use super::scaling::Scaling;
use crate::narrow::Part;
use crate::op::Misread;
use crate::slips::{Kind, Knob, Range, Sibling, whole};
use crate::terms::{Factor, factor};
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

    /// The factor of an item's row.
    #[allow(clippy::cast_precision_loss, reason = "positions are below 2^53")]
    fn of_row(&self, item: usize, row: usize) -> f64 {
        let quotient = self.position(item, row) as f64 / self.floor;
        let quotient = if self.is_floored { quotient.floor() } else { quotient };
        1.0 + self.scale * quotient.ln_1p()
    }

    pub(super) fn value(&self, x: &Tensor) -> Result<Tensor> {
        let rows = x.dims4()?.2;
        let items = self.places.as_ref().map_or(1, Places::items);
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

    pub(super) fn factor_at(&self, cell: &[usize]) -> Result<Factor> {
        let [item, _, row, _] = *cell else { return Err(Misread.into()) };
        let Self { scale, floor, .. } = self;
        let name = format!("1 + {scale} · ln(1 + ⌊{} / {floor}⌋)", self.position(item, row));
        Ok(factor(name, self.of_row(item, row)))
    }

    pub(super) fn narrowed(&self, part: Part) -> Self {
        match part {
            Part::Rows(rows) => Self { first: self.first + rows.first, ..self.clone() },
            Part::Item(item) => {
                let places = self.places.as_ref().map(|places| places.of_item(item));
                Self { places, ..self.clone() }
            }
            Part::Keys(_) | Part::Tokens { .. } => self.clone(),
        }
    }

    pub(super) fn knobs(&self) -> Vec<Knob> {
        let with = |other: Self| Some(Scaling::Temperature(other).into());
        let (of_scale, of_floor, of_first) = (self.clone(), self.clone(), self.clone());
        let mut knobs = vec![
            Knob {
                name: "q_temperature",
                value: self.scale,
                range: Range::Stated,
                common: vec![0.1, 1.0],
                with: Box::new(move |scale| with(Self { scale, ..of_scale.clone() })),
            },
            Knob {
                name: "q_temperature_floor",
                value: self.floor,
                range: Range::Stated,
                common: Vec::new(),
                with: Box::new(move |floor| {
                    let other = || Self { floor, ..of_floor.clone() };
                    (floor > 0.0).then(other).and_then(with)
                }),
            },
        ];
        // Given positions have no first.
        if self.places.is_none() {
            let own = self.first + self.offset;
            #[allow(clippy::cast_precision_loss, reason = "positions are below 2^53")]
            let first = own as f64;
            let last = i64::try_from(own).unwrap_or(i64::MAX).saturating_add(32);
            knobs.push(Knob {
                name: tr!("first position"),
                value: first,
                range: Range::Whole(0, last),
                common: vec![0.0, first + 1.0, first - 1.0],
                with: Box::new(move |first| {
                    with(Self { first: whole(first)?, offset: 0, ..of_first.clone() })
                }),
            });
        }
        knobs
    }

    pub(super) fn siblings(&self) -> Vec<Sibling> {
        let of = |other: Self, told: &str| {
            Sibling::new(Scaling::Temperature(other), Kind::Replaced, told)
        };
        let told = tr!("the quotient of position and q_temperature_floor is not rounded down");
        let mut all = vec![of(Self { is_floored: false, ..self.clone() }, told)];
        let mistaken = self.places.iter().flat_map(Places::mistaken);
        all.extend(mistaken.map(|(places, told)| of(Self { places, ..self.clone() }, told)));
        all
    }
}
