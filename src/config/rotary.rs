//! Rotary positions, every value decided.

use super::check::refuse;
use super::{Pairing, Place, RopeScaling, Settings, Sizes};
use crate::error::{Result, quoted};

/// Rotary positions of the queries and keys ("`RoFormer`", Su et al., 2021): of every head's first r features, the pairs
/// are turned by position · frequency.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Rotary {
    /// Which features are a pair.
    pub pairing: Pairing,
    /// What the frequencies are powers of: pair i has base^(−2i / r).
    pub base: f64,
    /// The number of features that are turned, r.
    pub dims: usize,
    /// The position of the first token of X.
    pub offset: usize,
    /// How the frequencies are changed for sequences longer than those of the training.
    pub scaling: Option<RopeScaling>,
    /// The file that the frequencies come from instead.
    pub freqs: Option<Place>,
    /// What cosine and sine are multiplied by, beside frequencies from a file.
    pub attention_factor: Option<f64>,
    /// Whether they are turned the other way, by minus the angles, as in nanochat.
    pub backwards: bool,
}

impl Rotary {
    /// Those of the settings, if there are any.
    pub(super) fn resolve(s: &Settings, sizes: &Sizes) -> Option<Self> {
        Some(Self {
            pairing: s.rope?,
            base: s.rope_base.unwrap_or(10_000.0),
            dims: sizes.rope_dims?,
            offset: s.rope_offset.unwrap_or(sizes.past_len),
            scaling: s.rope_scaling.clone(),
            freqs: s.rope_freqs.clone(),
            attention_factor: s.rope_attention_factor,
            backwards: s.rope_backwards.unwrap_or(false),
        })
    }

    /// What cosine and sine are multiplied by.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let of_scaling = || self.scaling.as_ref().map(RopeScaling::attention_factor);
        self.attention_factor.or_else(of_scaling).unwrap_or(1.0)
    }

    pub(super) fn check(&self, head_dim: usize) -> Result<()> {
        let &Self { base, dims, offset, attention_factor, .. } = self;
        if let Some(path) = self.freqs.as_ref().filter(|_| dims == 0 || dims > head_dim) {
            let what = format!(
                "rope_freqs {} has {} frequencies for {head_dim} features",
                quoted(&path.0),
                dims / 2
            );
            return refuse(what, "give one for every pair that is turned, at most head_dim / 2");
        }
        if dims > head_dim {
            let what = format!("rope_dims {dims} is more than the {head_dim} features of a head");
            return refuse(what, "give at most head_dim");
        }
        if dims == 0 || dims % 2 == 1 {
            let what = format!("rotary positions turn pairs, and {dims} features are none");
            return refuse(what, "give an even rope_dims, at least 2");
        }
        if !(base > 0.0 && base.is_finite()) {
            return refuse(
                format!("rope_base {base} has no powers"),
                "give a number above 0, such as 10000",
            );
        }
        // f32, in which positions are multiplied, counts no further.
        if offset >= 1 << 24 {
            let what = format!("rope_offset {offset} is beyond what f32 counts");
            return refuse(what, "give a position below 2^24");
        }
        match attention_factor {
            Some(factor) if !factor.is_finite() => refuse(
                format!("rope_attention_factor {factor} is not a number"),
                "give one, such as 1",
            ),
            _ => Ok(()),
        }
    }
}
