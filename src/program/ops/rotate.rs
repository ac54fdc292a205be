//! The rotation of pairs of features.

use candle_core::Tensor;
use candle_nn::rotary_emb::{rope, rope_i};

use super::pairing::Pairing;
use super::places::Places;
use crate::axis::Axes;
use crate::part::Part;
use crate::pattern::{self, Multiplier, Pattern, Place, Products, Read, When};

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
    /// The same of a part of the run.
    pub(super) fn narrowed(&self, part: Part) -> Self {
        let mut own = self.clone();
        match part {
            Part::Rows(rows) => own.first += rows.first,
            Part::Item(item) => own.places = own.places.map(|places| places.of_item(item)),
            Part::Keys(_) | Part::First(_) | Part::Tokens { .. } => {}
        }
        own
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
        let angles = self.angles(heads.dim(2)?, freqs)?;
        let cos = angles.cos()?.affine(self.factor, 0.0)?;
        let by = if self.is_backwards { -self.factor } else { self.factor };
        let sin = angles.sin()?.affine(by, 0.0)?;
        self.beside_rest(heads, 2 * freqs.dim(0)?, |part| match self.pairing {
            Pairing::Half => rope(part, &cos, &sin),
            Pairing::Interleaved => rope_i(part, &cos, &sin),
        })
    }

    /// What becomes of the features that are turned, so many of every head, beside those that stay.
    pub(super) fn beside_rest(
        &self,
        heads: &Tensor,
        turned: usize,
        turn: impl FnOnce(&Tensor) -> candle_core::Result<Tensor>,
    ) -> candle_core::Result<Tensor> {
        let rest = heads.dim(3)? - turned;
        let (start, of_rest) = if self.is_at_end { (rest, 0) } else { (0, turned) };
        let part = turn(&heads.narrow(3, start, turned)?.contiguous()?)?;
        if rest == 0 {
            return Ok(part);
        }
        let rest = heads.narrow(3, of_rest, rest)?.contiguous()?;
        if self.is_at_end { Tensor::cat(&[rest, part], 3) } else { Tensor::cat(&[part, rest], 3) }
    }

    /// A turned feature: itself times the cosine, and its partner times the sine, of the pair's angle.
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
        let is_first = |d: usize| self.pairing.pair(d, pairs).1;
        let partner = |d: usize| start + self.pairing.partner(d, pairs);
        let pair = |d: usize| self.pairing.pair(d, pairs).0;
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
