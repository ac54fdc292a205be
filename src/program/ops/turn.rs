//! Rotations that go wrong.

use candle_core::{DType, Tensor};

use super::along::taken;
use super::pairing::Pairing;
use super::places::Places;
use super::precision::Precision;
use super::rotate::Rotate;
use crate::axis::signed;
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
    /// Positions times frequencies, and the cosines and sines of these.
    AnglesAndTables,
    /// Positions, frequencies, their products, and the cosines and sines of these.
    WholeAndTables,
}

impl Turn {
    /// A rotation as it is.
    pub fn of(right: Rotate) -> Self {
        Self {
            angles: right.pairing,
            first: vec![signed(right.first)],
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
            Part::Rows(_) | Part::Keys(_) | Part::First(_) | Part::Tokens { .. } => {}
        }
        if let Part::Rows(_) | Part::Keys(_) | Part::First(_) = part {
            let (first, count) = part.places();
            for places in &mut turn.places {
                *places = places.iter().copied().skip(first).take(count).collect();
            }
        }
        turn
    }

    pub(super) fn value(&self, heads: &Tensor, freqs: &Tensor) -> Result<Tensor> {
        let pairs = freqs.dim(0)?;
        let is_first = |feature: usize| self.right.pairing.pair(feature, pairs).1;
        let partner = |feature: usize| self.right.pairing.partner(feature, pairs);
        let [cos, sin] = self.tables(heads, freqs)?;
        let value = self.right.beside_rest(heads, 2 * pairs, |part| {
            let all: Vec<usize> = (0..2 * pairs).collect();
            let partners: Vec<usize> = all.iter().map(|feature| partner(*feature)).collect();
            let own = part.broadcast_mul(&cos)?;
            let turned = own.add(&taken(part, 3, &partners)?.broadcast_mul(&sin)?)?;
            if !self.is_in_place {
                return Ok(turned);
            }
            let again = own.add(&taken(&turned, 3, &partners)?.broadcast_mul(&sin)?)?;
            let from = |at: &usize| if is_first(*at) { *at } else { 2 * pairs + at };
            let from: Vec<usize> = all.iter().map(from).collect();
            taken(&Tensor::cat(&[turned, again], 3)?, 3, &from)
        });
        Ok(value?)
    }

    /// What every feature is multiplied by, and its partner.
    fn tables(&self, heads: &Tensor, freqs: &Tensor) -> Result<[Tensor; 2]> {
        let (_, head_count, tokens, _) = heads.dims4()?;
        let freqs = freqs.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let (pairs, is_narrow) = (freqs.len(), heads.dtype() == DType::F32);
        let (mut own, mut other) = (Vec::new(), Vec::new());
        let (rows, columns) = if self.is_by_head { (head_count, 1) } else { (1, tokens) };
        let of_run = self.right.places.as_ref().map_or(1, Places::items);
        let items = self.first.len().max(self.places.len()).max(of_run);
        for item in 0..items {
            for at in 0..rows * columns {
                for feature in 0..2 * pairs {
                    let pair = self.angles.pair(feature, pairs).0;
                    let frequency = freqs.get(pair).copied().unwrap_or_default();
                    let position = self.position(item, at, pair);
                    let (cos, sin) = self.cos_sin(position, frequency, is_narrow);
                    let is_first = self.right.pairing.pair(feature, pairs).1;
                    let is_minus = !self.is_unsigned && is_first != self.right.is_backwards;
                    own.push(cos * self.right.factor);
                    other.push(if is_minus { -sin } else { sin } * self.right.factor);
                }
            }
        }
        let shape = (items, rows, columns, 2 * pairs);
        let table = |numbers: Vec<f64>| {
            Tensor::from_vec(numbers, shape, heads.device())?.to_dtype(heads.dtype())
        };
        Ok([table(own)?, table(other)?])
    }

    /// The position by which a pair of a token's features is turned.
    fn position(&self, item: usize, at: usize, pair: usize) -> f64 {
        let first = self.first.get(item).or(self.first.first()).copied().unwrap_or_default();
        let places = self.places.get(item).or(self.places.first());
        match (places, &self.right.places) {
            (None, Some(own)) => {
                own.at(item, usize::try_from(first).unwrap_or_default() + at, pair) as f64
            }
            (places, _) => {
                let stated = places.and_then(|places| places.get(at));
                stated.map_or(first as f64 + at as f64 * self.step, |at| *at as f64)
            }
        }
    }

    /// The cosine and the sine of an angle, in the bits that each stage is computed in.
    fn cos_sin(&self, position: f64, frequency: f64, is_narrow: bool) -> (f64, f64) {
        let whole = |number| self.round(Stage::Whole, number);
        let position = self.round(Stage::Positions, position);
        let angle = whole(whole(position) * whole(frequency));
        #[allow(clippy::cast_possible_truncation, reason = "as it is multiplied")]
        let angle = if is_narrow { f64::from(angle as f32) } else { angle };
        let (sin, cos) = self.round(Stage::Angles, angle).sin_cos();
        let (sin, cos) = if self.is_exchanged { (cos, sin) } else { (sin, cos) };
        (self.round(Stage::Tables, cos), self.round(Stage::Tables, sin))
    }

    /// A number of a stage in the bits that it is computed in.
    fn round(&self, stage: Stage, value: f64) -> f64 {
        let is_in = |own| {
            own == stage
                || own == Stage::AnglesAndTables && matches!(stage, Stage::Angles | Stage::Tables)
                || own == Stage::WholeAndTables && matches!(stage, Stage::Whole | Stage::Tables)
        };
        match self.rounded {
            Some((own, precision)) if is_in(own) => precision.of(value),
            Some(_) | None => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `torch.tensor(301).bfloat16() * torch.tensor(0.1).bfloat16()`, and its cosine and sine.
    #[test]
    fn all_of_a_rotation_in_bf16_is_pytorchs() {
        let right = Rotate {
            pairing: crate::ops::Pairing::Half,
            first: 0,
            places: None,
            factor: 1.0,
            is_backwards: false,
            is_at_end: false,
        };
        let rounded = Some((Stage::WholeAndTables, Precision::Bf16));
        let turn = Turn { rounded, ..Turn::of(right) };
        let (cos, sin) = turn.cos_sin(301.0, 0.1, true);
        assert_eq!(
            (cos.to_bits(), sin.to_bits()),
            (0.154_296_875_f64.to_bits(), (-0.988_281_25_f64).to_bits())
        );
    }
}
