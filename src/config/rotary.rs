//! How do positions turn queries and keys, every value decided?

use super::positions::Positions;
use super::settings::Settings;
use super::sizes::Sizes;
use super::text::Place;
use program::{Pairing, Places, RopeScaling, Rotate};

/// Rotary positions of the queries and keys ("`RoFormer`", Su et al., 2021): of every head's first r features, the pairs
/// are turned by position · frequency.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// Which features are a pair.
    pub pairing: Pairing,
    /// What the frequencies are powers of: pair i has base^(−2i / r).
    pub base: f64,
    /// The number of features that are turned, r.
    pub dims: usize,
    /// Whether these are the last of a head, not the first.
    pub at_end: bool,
    /// The position of the first token of X.
    pub offset: usize,
    /// The positions of the tokens, where they are not one after the other.
    pub places: Option<Places>,
    /// One more than the largest position of the run, by which some scalings go.
    pub positions: usize,
    /// How the frequencies are changed for sequences longer than those of the training.
    pub scaling: Option<RopeScaling>,
    /// The file that the frequencies come from instead.
    pub freqs: Option<Place>,
    /// What cosine and sine are multiplied by, beside frequencies from a file.
    pub attention_factor: Option<f64>,
    /// Whether they are turned the other way, by minus the angles, as in nanochat.
    pub backwards: bool,
    /// Whether the values are turned too, as `RoFormer`'s can be.
    pub turns_values: bool,
}

impl Rotary {
    /// Those of the settings, if there are any.
    pub(super) fn resolve(s: &Settings, sizes: &Sizes) -> Option<Self> {
        let (sections, order) = (s.rope_sections.clone(), s.rope_section_order);
        let places = |positions: &Positions| {
            positions.places(sections.unwrap_or_default(), order.unwrap_or_default())
        };
        let places = s.positions.as_ref().map(places);
        let offset = s.rope_offset.unwrap_or(if places.is_some() { 0 } else { sizes.past_len });
        let positions = match &places {
            Some(places) => places.last().saturating_add(1),
            None => offset.saturating_add(sizes.seq_len),
        };
        Some(Self {
            pairing: s.rope?,
            base: s.rope_base.unwrap_or(10_000.0),
            dims: sizes.rope_dims?,
            at_end: s.rope_at_end.unwrap_or(sizes.shared_dim() > 0),
            offset,
            places,
            positions,
            scaling: s.rope_scaling.clone(),
            freqs: s.rope_freqs.clone(),
            attention_factor: s.rope_attention_factor,
            backwards: s.rope_backwards.unwrap_or(false),
            turns_values: s.rope_value.unwrap_or(false),
        })
    }

    /// What cosine and sine are multiplied by.
    pub fn factor(&self) -> f64 {
        let positions = self.positions;
        let of_scaling =
            || self.scaling.as_ref().map(|scaling| scaling.attention_factor(positions));
        self.attention_factor.or_else(of_scaling).unwrap_or(1.0)
    }

    /// The rotation of tokens of X, of which the first is that one.
    pub fn rotate(&self, token: usize) -> Rotate {
        let (pairing, factor) = (self.pairing, self.factor());
        let first = self.offset.saturating_add(token);
        let (places, is_backwards) = (self.places.clone(), self.backwards);
        Rotate { pairing, first, places, factor, is_backwards, is_at_end: self.at_end }
    }

    /// The settings with these positions in them, those that others make superfluous left out.
    pub(super) fn stated(&self, s: Settings) -> Settings {
        Settings {
            rope_base: Some(self.base).filter(|_| self.freqs.is_none()),
            rope_dims: Some(self.dims),
            rope_at_end: self.at_end.then_some(true),
            rope_value: self.turns_values.then_some(true),
            rope_offset: Some(self.offset).filter(|_| self.places.is_none()),
            ..s
        }
    }
}
