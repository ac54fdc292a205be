//! Settings as flags and config files give them: each may be absent.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{AttnMaskTrue, Config, DType, EmptyRows, Fill, Init, Input, Mask, Preset, Seed};

/// The settings of a run, as a config file states them; what is absent has its default.
///
/// The fields mean what those of [`Config`](super::Config) mean.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object of settings")]
#[allow(missing_docs, reason = "each is documented at Config")]
pub struct Settings {
    pub preset: Option<Preset>,
    pub batch: Option<usize>,
    pub seq_len: Option<usize>,
    pub d_model: Option<usize>,
    pub heads: Option<usize>,
    pub seed: Option<Seed>,
    pub d_in: Option<usize>,
    pub input: Option<Input>,
    pub init: Option<Init>,
    pub bias: Option<bool>,
    pub mask: Option<Mask>,
    pub key_mask: Option<Vec<String>>,
    pub lengths: Option<Vec<usize>>,
    pub attn_mask: Option<String>,
    pub attn_mask_true: Option<AttnMaskTrue>,
    pub mask_fill: Option<Fill>,
    pub window: Option<usize>,
    pub alibi: Option<bool>,
    pub softcap: Option<f64>,
    pub scale: Option<f64>,
    pub empty_rows: Option<EmptyRows>,
    pub dropout: Option<f64>,
    pub dtype: Option<DType>,
    pub x: Option<String>,
    pub weights: Option<String>,
    pub prefix: Option<String>,
}

impl Settings {
    /// These settings, and `base` wherever they are silent.
    ///
    /// `key_mask` and `lengths` state one thing in two ways: either replaces both of `base`'s.
    #[must_use]
    pub fn over(self, base: Self) -> Self {
        let keys_stated = self.key_mask.is_some() || self.lengths.is_some();
        Self {
            preset: self.preset.or(base.preset),
            batch: self.batch.or(base.batch),
            seq_len: self.seq_len.or(base.seq_len),
            d_model: self.d_model.or(base.d_model),
            heads: self.heads.or(base.heads),
            seed: self.seed.or(base.seed),
            d_in: self.d_in.or(base.d_in),
            input: self.input.or(base.input),
            init: self.init.or(base.init),
            bias: self.bias.or(base.bias),
            mask: self.mask.or(base.mask),
            key_mask: self.key_mask.or(base.key_mask.filter(|_| !keys_stated)),
            lengths: self.lengths.or(base.lengths.filter(|_| !keys_stated)),
            attn_mask: self.attn_mask.or(base.attn_mask),
            attn_mask_true: self.attn_mask_true.or(base.attn_mask_true),
            mask_fill: self.mask_fill.or(base.mask_fill),
            window: self.window.or(base.window),
            alibi: self.alibi.or(base.alibi),
            softcap: self.softcap.or(base.softcap),
            scale: self.scale.or(base.scale),
            empty_rows: self.empty_rows.or(base.empty_rows),
            dropout: self.dropout.or(base.dropout),
            dtype: self.dtype.or(base.dtype),
            x: self.x.or(base.x),
            weights: self.weights.or(base.weights),
            prefix: self.prefix.or(base.prefix),
        }
    }

    /// The settings as a config file states them, without those that are absent.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut value = json!(self);
        if let Value::Object(keys) = &mut value {
            keys.retain(|_, value| !value.is_null());
        }
        value
    }

    /// These settings as a config file in `folder` states them: its paths are relative to it.
    #[must_use]
    pub fn in_folder(mut self, folder: &Path) -> Self {
        for path in [&mut self.x, &mut self.weights, &mut self.attn_mask].into_iter().flatten() {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
        self
    }
}

impl From<&Config> for Settings {
    /// The settings that resolve to this config.
    fn from(config: &Config) -> Self {
        let c = config.clone();
        Self {
            preset: None,
            batch: Some(c.batch),
            seq_len: Some(c.seq_len),
            d_model: Some(c.d_model),
            heads: Some(c.heads),
            seed: Some(c.seed),
            d_in: Some(c.d_in),
            input: Some(c.input),
            init: Some(c.init),
            bias: Some(c.bias),
            mask: Some(c.mask),
            key_mask: c.key_mask,
            lengths: c.lengths,
            attn_mask: c.attn_mask,
            attn_mask_true: c.attn_mask_true,
            mask_fill: Some(c.mask_fill),
            window: c.window,
            alibi: c.alibi.then_some(true),
            softcap: c.softcap,
            scale: c.scale,
            empty_rows: Some(c.empty_rows),
            dropout: Some(c.dropout),
            dtype: Some(c.dtype),
            x: c.x,
            weights: c.weights,
            prefix: c.prefix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_replace_a_key_mask_below_them() {
        let base = Preset::FormalPadding.settings();
        let flags = Settings { lengths: Some(vec![1, 2, 2]), ..Settings::default() };
        let both = flags.over(base);
        assert_eq!((both.key_mask, both.lengths), (None, Some(vec![1, 2, 2])));
    }

    #[test]
    fn what_is_silent_has_the_base_value() {
        let both =
            Settings { heads: Some(4), ..Settings::default() }.over(Preset::Simple.settings());
        assert_eq!((both.heads, both.d_in, both.seed), (Some(4), Some(3), Some(Seed(123))));
    }
}
