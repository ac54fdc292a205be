//! Rotary positions, every value decided.

use super::check::refuse;
use super::{Pairing, Place, Positions, RopeScaling, Settings, Sizes, positions};
use base::error::{Result, quoted};
use program::{Places, Rotate};

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
    #[must_use]
    pub fn factor(&self) -> f64 {
        let positions = self.positions;
        let of_scaling =
            || self.scaling.as_ref().map(|scaling| scaling.attention_factor(positions));
        self.attention_factor.or_else(of_scaling).unwrap_or(1.0)
    }

    /// The rotation of tokens of X, of which the first is that one.
    #[must_use]
    pub fn rotate(&self, token: usize) -> Rotate {
        let (pairing, factor) = (self.pairing, self.factor());
        let first = self.offset.saturating_add(token);
        let (places, is_backwards) = (self.places.clone(), self.backwards);
        Rotate { pairing, first, places, factor, is_backwards, is_at_end: self.at_end }
    }

    pub(super) fn check(&self, sizes: &Sizes) -> Result<()> {
        let head_dim = sizes.head_dim;
        if let Some(places) = &self.places {
            if self.offset > 0 {
                let what = tr!("rope_offset is the first position, and positions are all of them");
                return refuse(what, "leave one of the two out");
            }
            positions::check(places, sizes, self.dims / 2)?;
        }
        let &Self { base, dims, offset, attention_factor, .. } = self;
        if let Some(path) = self.freqs.as_ref().filter(|_| dims == 0 || dims > head_dim) {
            let what = tr!(
                "rope_freqs {path} has {dims} frequencies for {head_dim} features",
                path = quoted(&path.0),
                dims = dims / 2,
                head_dim
            );
            return refuse(what, "give one for every pair that is turned, at most head_dim / 2");
        }
        if dims > head_dim {
            let what = tr!(
                "rope_dims {dims} is more than the {head_dim} features of a head",
                dims,
                head_dim
            );
            return refuse(what, "give at most head_dim");
        }
        if self.turns_values && sizes.v_head_dim < dims {
            let values = sizes.v_head_dim;
            let what =
                tr!("rope_value turns {dims} features, and values have {values}", dims, values);
            return refuse(what, "give rope_dims of at most v_head_dim, or leave rope_value out");
        }
        let shared = sizes.shared_dim();
        if shared > 0 && (dims != shared || !self.at_end) {
            let what = tr!("rotary positions turn the {shared} features of the shared key", shared);
            return refuse(what, "leave rope_dims and rope_at_end out, or qk_rope_head_dim");
        }
        if dims == 0 || dims % 2 == 1 {
            let what = tr!("rotary positions turn pairs, and {dims} features are none", dims);
            return refuse(what, "give an even rope_dims, at least 2");
        }
        if !(base > 0.0 && base.is_finite()) {
            return refuse(
                tr!("rope_base {base} has no powers", base),
                "give a number above 0, such as 10000",
            );
        }
        // f32, in which positions are multiplied, counts no further.
        if offset >= 1 << 24 {
            let what = tr!("rope_offset {offset} is beyond what f32 counts", offset);
            return refuse(what, "give a position below 2^24");
        }
        match attention_factor {
            Some(factor) if !factor.is_finite() => refuse(
                tr!("rope_attention_factor {factor} is not a number", factor),
                "give one, such as 1",
            ),
            _ => Ok(()),
        }
    }
}
