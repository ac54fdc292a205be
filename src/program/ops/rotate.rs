//! The rotation of pairs of features.

use candle_core::{DType, Tensor};
use candle_nn::rotary_emb::{rope, rope_i};

use super::pairing::Pairing;
use super::places::{Places, SectionOrder};
use super::turn::Turn;
use crate::axis::Axes;
use crate::op::at;
use crate::pattern::{self, Multiplier, Pattern, Place, Products, Read, When};
use crate::terms::{Term, Value, factor};
use crate::working::Turned;
use base::error::Result;

/// The pair i of every head's features is turned by position · `θ_i` ("`RoFormer`", Su et al., 2021, equation 34). Reads
/// heads (batch, head, token, `head_dim`) and θ (one per pair); features beyond the pairs stay.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotate {
    /// Which features are a pair.
    pub pairing: Pairing,
    /// The position of the first token; where positions are given, its place among them.
    pub first: usize,
    /// The positions of the tokens, where they are not one after the other.
    pub places: Option<Places>,
    /// What cosine and sine are multiplied by.
    pub factor: f64,
    /// Whether they are turned the other way, by minus the angle, as in nanochat.
    pub is_backwards: bool,
    /// Whether the last features of a head are turned, not the first, as in `DeepSeek`.
    pub is_at_end: bool,
}

impl Rotate {
    /// The same, with every part of it open to mistakes.
    #[must_use]
    pub fn turn(&self) -> Turn {
        Turn {
            partners: self.pairing,
            angles: self.pairing,
            first: vec![i64::try_from(self.first).unwrap_or(i64::MAX)],
            factor: self.factor,
            is_backwards: self.is_backwards,
            is_exchanged: false,
            step: 1.0,
            is_by_head: false,
            is_unsigned: false,
            is_at_end: self.is_at_end,
            is_in_place: false,
            rounded: None,
            places: Vec::new(),
            own: self.places.clone(),
        }
    }

    /// Rotations that take given positions for others.
    pub(super) fn other_places(&self, places: &Places) -> Vec<(Self, String)> {
        let of =
            |places: Option<Places>, told: &str| (Self { places, ..self.clone() }, told.to_owned());
        let mut all: Vec<_> =
            places.mistaken().into_iter().map(|(places, told)| of(places, told)).collect();
        if places.is_sectioned() {
            let names = ["time", "height", "width"];
            for (section, name) in names.into_iter().enumerate() {
                let told = tr!("every pair is turned by the position of {name}: no sections", name);
                all.push(of(Some(places.of_section(section)), &told));
            }
            let order = match places.order {
                SectionOrder::Chunked => SectionOrder::Interleaved,
                SectionOrder::Interleaved => SectionOrder::Chunked,
            };
            let told =
                tr!("the sections are {order}, not {order_2}", order, order_2 = places.order);
            all.push(of(Some(Places { order, ..places.clone() }), &told));
            let mut rows = places.rows.to_vec();
            rows.swap(1, 2);
            let exchanged = Places { rows: rows.into(), ..places.clone() };
            all.push(of(Some(exchanged), tr!("height and width change places")));
        }
        all
    }

    /// The position by which a pair of a token's features is turned.
    fn position(&self, item: usize, token: usize, pair: usize) -> usize {
        let at = self.first + token;
        self.places.as_ref().map_or(at, |places| places.at(item, at, pair))
    }

    /// The angles (item, token, pair), or of all items alike (token, pair).
    fn angles(&self, tokens: usize, freqs: &Tensor) -> candle_core::Result<Tensor> {
        let Some(places) = &self.places else {
            let end = u32::try_from(self.first + tokens).map_err(candle_core::Error::wrap)?;
            let start = u32::try_from(self.first).map_err(candle_core::Error::wrap)?;
            let positions = Tensor::arange(start, end, freqs.device())?.to_dtype(freqs.dtype())?;
            return positions.unsqueeze(1)?.broadcast_mul(freqs);
        };
        let (items, pairs) = (places.items(), freqs.dim(0)?);
        let mut positions = Vec::with_capacity(items * tokens * pairs);
        for item in 0..items {
            for token in 0..tokens {
                let of = |pair| u32::try_from(self.position(item, token, pair)).unwrap_or(u32::MAX);
                positions.extend((0..pairs).map(of));
            }
        }
        let shape = [items, tokens, pairs];
        let shape = if items == 1 { &shape[1..] } else { &shape[..] };
        let positions = Tensor::from_vec(positions, shape, freqs.device())?;
        positions.to_dtype(freqs.dtype())?.broadcast_mul(freqs)
    }

    /// What cosine and sine are multiplied by, if not by 1.
    #[allow(clippy::float_cmp, reason = "1 exactly")]
    pub(super) fn own_factor(&self) -> Option<f64> {
        Some(self.factor).filter(|factor| *factor != 1.0)
    }

    pub(super) fn value(&self, heads: &Tensor, freqs: &Tensor) -> candle_core::Result<Tensor> {
        let (tokens, head_dim) = (heads.dim(2)?, heads.dim(3)?);
        let turned = 2 * freqs.dim(0)?;
        let angles = self.angles(tokens, freqs)?;
        let cos = angles.cos()?.affine(self.factor, 0.0)?;
        let by = if self.is_backwards { -self.factor } else { self.factor };
        let sin = angles.sin()?.affine(by, 0.0)?;
        let rest = head_dim - turned;
        let (start, of_rest) = if self.is_at_end { (rest, 0) } else { (0, turned) };
        let part = heads.narrow(3, start, turned)?.contiguous()?;
        let part = match self.pairing {
            Pairing::Half => rope(&part, &cos, &sin)?,
            Pairing::Interleaved => rope_i(&part, &cos, &sin)?,
        };
        if turned == head_dim {
            return Ok(part);
        }
        let rest = heads.narrow(3, of_rest, rest)?.contiguous()?;
        if self.is_at_end { Tensor::cat(&[rest, part], 3) } else { Tensor::cat(&[part, rest], 3) }
    }

    /// The rotation of the pair that a feature belongs to; nothing for one that stays.
    pub(super) fn turned(
        &self,
        heads: &Value,
        freqs: &Value,
        cell: &[usize],
    ) -> Result<Option<Turned>> {
        let ([b, _, t, d], pairs) = (at(cell)?, freqs.tensor.dim(0)?);
        let rest = heads.tensor.dim(3)? - 2 * pairs;
        let start = if self.is_at_end { rest } else { 0 };
        let Some(d) = d.checked_sub(start).filter(|d| *d < 2 * pairs) else { return Ok(None) };
        let (pair, first, second) = match self.pairing {
            Pairing::Half => (d % pairs, d % pairs, d % pairs + pairs),
            Pairing::Interleaved => (d / 2, d - d % 2, d - d % 2 + 1),
        };
        let features = [start + first, start + second];
        let frequency = freqs.at(&[pair])?;
        let position = self.position(b, t, pair);
        #[allow(clippy::cast_precision_loss, reason = "positions are below 2^24")]
        let angle = position as f64 * frequency.value;
        // As it is multiplied: in the type of the run.
        let is_narrow = freqs.tensor.dtype() == DType::F32;
        #[allow(clippy::cast_possible_truncation, reason = "the product is rounded so")]
        let angle = if is_narrow { f64::from(angle as f32) } else { angle };
        Ok(Some(Turned { pair, features, position, frequency, angle, factor: self.own_factor() }))
    }

    /// A turned feature: itself times the cosine, and its partner times the sine, of the pair's angle.
    pub(super) fn terms(&self, heads: &Value, freqs: &Value, cell: &[usize]) -> Result<Vec<Term>> {
        let [b, h, t, d] = at(cell)?;
        let Some(turned) = self.turned(heads, freqs, cell)? else {
            return Ok(vec![Term(vec![heads.at(cell)?])]);
        };
        let Turned { features: [first, second], position, frequency, angle, factor: by, .. } =
            turned;
        let partner = if d == first { second } else { first };
        let name = format!("{position} · {}", frequency.name);
        let is_negative = (d == first) != self.is_backwards;
        let (sign, minus) = if is_negative { (-1.0, "−") } else { (1.0, "") };
        let of_own = factor(format!("cos({name})"), angle.cos()).made_of(&frequency);
        let of_other =
            factor(format!("{minus}sin({name})"), sign * angle.sin()).made_of(&frequency);
        let by = by.map(|by| factor(tr!("attention factor"), by));
        let terms = [[heads.at(cell)?, of_own], [heads.at(&[b, h, t, partner])?, of_other]];
        Ok(terms.map(|factors| Term(factors.into_iter().chain(by.clone()).collect())).into())
    }

    /// The rule of [`Rotate::terms`].
    pub(super) fn pattern(&self, heads: &Axes, freqs: &Axes) -> Pattern {
        let (&[_, _, tokens, head_dim], &[pairs]) = (&*heads.shape(), &*freqs.shape()) else {
            return Pattern::ByCell;
        };
        let Some(rest) = head_dim.checked_sub(2 * pairs) else { return Pattern::ByCell };
        let start = if self.is_at_end { rest } else { 0 };
        let turned = start..start + 2 * pairs;
        let of_features = |of: &dyn Fn(usize) -> usize| {
            let list: Vec<usize> = (0..head_dim)
                .map(|d| if turned.contains(&d) { of(d - start) } else { d })
                .collect();
            Place::listed(3, list)
        };
        let is_first = |d: usize| match self.pairing {
            Pairing::Half => d < pairs,
            Pairing::Interleaved => d.is_multiple_of(2),
        };
        let apart = if self.pairing == Pairing::Half { pairs } else { 1 };
        let partner = |d: usize| start + if is_first(d) { d + apart } else { d - apart };
        let pair = |d: usize| if self.pairing == Pairing::Half { d % pairs } else { d / 2 };
        let items = self.places.as_ref().map_or(1, Places::items);
        let is_sectioned = self.places.as_ref().is_some_and(Places::is_sectioned);
        let listed = if is_sectioned { pairs } else { 1 };
        let of_token =
            |item, token| (0..listed).map(|pair| self.position(item, token, pair)).collect();
        let of_item = |item| (0..tokens).map(|token| of_token(item, token)).collect();
        let positions: Vec<Vec<Vec<usize>>> = (0..items).map(of_item).collect();
        let is_negative =
            |d: usize| turned.contains(&d) && is_first(d - start) != self.is_backwards;
        let sign = |d: usize| if is_negative(d) { -1 } else { 1 };
        let turn = |sine: bool| {
            Multiplier::Turn(pattern::Turning {
                frequency: Read::of(1, [of_features(&pair)]),
                positions: positions.clone(),
                sine,
                signs: (0..head_dim).map(|d| if sine { sign(d) } else { 1 }).collect(),
            })
        };
        let read =
            |feature: Place| Read::of(0, [Place::on(0), Place::on(1), Place::on(2), feature]);
        let by = self
            .own_factor()
            .map(|by| Multiplier::Number(tr!("attention factor").to_owned(), by, None));
        let product = |feature: Place, sine: bool| {
            let factors = [read(feature).into(), turn(sine)].into_iter().chain(by.clone());
            let factors: Vec<Multiplier> = factors.collect();
            Products::one(factors).when(When::Within(3, [turned.start, turned.end]))
        };
        let stays = |range: [usize; 2]| {
            let own: Multiplier = read(Place::on(3)).into();
            Products::one([own]).when(When::Within(3, range))
        };
        Pattern::Sum(vec![
            product(Place::on(3), false),
            product(of_features(&partner), true),
            stays([0, turned.start]),
            stays([turned.end, head_dim]),
        ])
    }
}
