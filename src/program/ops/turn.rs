//! Rotations that go wrong.

use candle_core::{DType, Tensor};

use super::along::taken;
use super::pairing::Pairing;
use super::places::Places;
use super::precision::Precision;
use super::rotate::Rotate;
use crate::part::{Part, of_item};
use base::error::Result;

/// A rotation, every part of which can be wrong by itself.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each can be wrong by itself")]
pub struct Turn {
    /// The rotation otherwise. Its pairing says which features belong together.
    pub right: Rotate,
    /// Which features have which frequency.
    pub angles: Pairing,
    /// The position of the first token: of all items, or of each.
    pub first: Vec<i64>,
    /// Whether sine and cosine change places.
    pub is_exchanged: bool,
    /// Positions grow by this from token to token.
    pub step: f64,
    /// Whether the positions count the heads, not the tokens.
    pub is_by_head: bool,
    /// Whether neither partner has a minus sign.
    pub is_unsigned: bool,
    /// Whether it is made in place: the second partner is turned by the first one as that has become.
    pub is_in_place: bool,
    /// What is computed in fewer bits.
    pub rounded: Option<(Stage, Precision)>,
    /// The positions of the tokens, where they do not grow one by one: of all items, or of each.
    pub places: Vec<Vec<i64>>,
}

/// A stage of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The positions.
    Positions,
    /// Positions times frequencies.
    Angles,
    /// Positions, frequencies, and their products.
    Whole,
    /// Cosines and sines.
    Tables,
}

impl Turn {
    /// A rotation as it is.
    #[must_use]
    pub fn of(right: Rotate) -> Self {
        Self {
            angles: right.pairing,
            first: vec![i64::try_from(right.first).unwrap_or(i64::MAX)],
            right,
            is_exchanged: false,
            step: 1.0,
            is_by_head: false,
            is_unsigned: false,
            is_in_place: false,
            rounded: None,
            places: Vec::new(),
        }
    }

    /// One whose positions count up from these first ones, of all items or of each, whatever the run is given.
    #[must_use]
    pub fn counted(right: &Rotate, first: Vec<i64>) -> Self {
        Self { first, ..Self::of(Rotate { places: None, ..right.clone() }) }
    }

    /// The same of a part of the run.
    pub(super) fn narrowed(&self, part: Part) -> Self {
        let mut turn = Self { right: self.right.narrowed(part), ..self.clone() };
        match part {
            Part::Item(item) => {
                turn.first = of_item(&turn.first, item);
                turn.places = of_item(&turn.places, item);
            }
            Part::Rows(rows) if !turn.is_by_head => {
                #[allow(clippy::cast_possible_truncation, reason = "a step of −1, 0 or 1")]
                let by = turn.step as i64 * i64::try_from(rows.first).unwrap_or_default();
                turn.first.iter_mut().for_each(|first| *first += by);
            }
            Part::Rows(_) | Part::Keys(_) | Part::Tokens { .. } => {}
        }
        if let Part::Rows(_) | Part::Keys(_) = part {
            let (first, count) = part.places();
            for places in &mut turn.places {
                *places = places.iter().copied().skip(first).take(count).collect();
            }
        }
        turn
    }

    #[allow(clippy::cast_precision_loss, reason = "positions are below 2^24")]
    pub(super) fn value(&self, heads: &Tensor, freqs: &Tensor) -> Result<Tensor> {
        let (_, head_count, tokens, head_dim) = heads.dims4()?;
        let pairs = freqs.dim(0)?;
        let freqs = freqs.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let place = |pairing: Pairing, feature: usize| match pairing {
            Pairing::Half => (feature % pairs, feature < pairs),
            Pairing::Interleaved => (feature / 2, feature.is_multiple_of(2)),
        };
        let partner = |feature: usize| match self.right.pairing {
            Pairing::Half => (feature + pairs) % (2 * pairs),
            Pairing::Interleaved => feature ^ 1,
        };
        let is_narrow = heads.dtype() == DType::F32;
        let (mut own, mut other) = (Vec::new(), Vec::new());
        let (rows, columns) = if self.is_by_head { (head_count, 1) } else { (1, tokens) };
        let given = self.right.places.as_ref().filter(|_| self.places.is_empty());
        let items = self.first.len().max(self.places.len()).max(given.map_or(1, Places::items));
        for item in 0..items {
            let first = self.first.get(item).or(self.first.first()).copied().unwrap_or_default();
            let places = self.places.get(item).or(self.places.first());
            for at in 0..rows * columns {
                let stated = places.and_then(|places| places.get(at));
                let stated = stated.map_or(first as f64 + at as f64 * self.step, |at| *at as f64);
                for feature in 0..2 * pairs {
                    let pair = place(self.angles, feature).0;
                    let of_run = given.map(|own| {
                        let token = usize::try_from(first).unwrap_or_default() + at;
                        own.at(item, token, pair) as f64
                    });
                    let position = self.round(Stage::Positions, of_run.unwrap_or(stated));
                    let frequency = freqs.get(pair).copied();
                    let frequency = self.round(Stage::Whole, frequency.unwrap_or_default());
                    let angle = self.round(Stage::Whole, position) * frequency;
                    let angle = self.round(Stage::Whole, angle);
                    #[allow(clippy::cast_possible_truncation, reason = "as it is multiplied")]
                    let angle = if is_narrow { f64::from(angle as f32) } else { angle };
                    let (sin, cos) = self.round(Stage::Angles, angle).sin_cos();
                    let (sin, cos) = if self.is_exchanged { (cos, sin) } else { (sin, cos) };
                    let is_minus = !self.is_unsigned
                        && place(self.right.pairing, feature).1 != self.right.is_backwards;
                    let (sin, cos) =
                        (self.round(Stage::Tables, sin), self.round(Stage::Tables, cos));
                    own.push(cos * self.right.factor);
                    other.push(if is_minus { -sin } else { sin } * self.right.factor);
                }
            }
        }
        let shape = (items, rows, columns, 2 * pairs);
        let table = |numbers: Vec<f64>| {
            Tensor::from_vec(numbers, shape, heads.device())?.to_dtype(heads.dtype())
        };
        let rest = head_dim - 2 * pairs;
        let start = if self.right.is_at_end { rest } else { 0 };
        let part = heads.narrow(3, start, 2 * pairs)?.contiguous()?;
        let partners = taken(&part, 3, &(0..2 * pairs).map(partner).collect::<Vec<_>>())?;
        let (own, other) = (part.broadcast_mul(&table(own)?)?, table(other)?);
        let mut turned = own.add(&partners.broadcast_mul(&other)?)?;
        if self.is_in_place {
            let all: Vec<usize> = (0..2 * pairs).collect();
            let becomes: Vec<usize> = all.iter().map(|feature| partner(*feature)).collect();
            let again = own.add(&taken(&turned, 3, &becomes)?.broadcast_mul(&other)?)?;
            let from =
                |at: &usize| if place(self.right.pairing, *at).1 { *at } else { 2 * pairs + at };
            let from: Vec<usize> = all.iter().map(from).collect();
            turned = taken(&Tensor::cat(&[turned, again], 3)?, 3, &from)?;
        }
        if self.right.is_at_end {
            return Ok(Tensor::cat(&[heads.narrow(3, 0, rest)?.contiguous()?, turned], 3)?);
        }
        Ok(Tensor::cat(&[turned, heads.narrow(3, 2 * pairs, rest)?.contiguous()?], 3)?)
    }

    /// A number of a stage in the bits that it is computed in.
    fn round(&self, stage: Stage, value: f64) -> f64 {
        match self.rounded {
            Some((own, precision)) if own == stage => precision.of(value),
            Some(_) | None => value,
        }
    }
}
