//! Settings as flags and config files give them: each may be absent.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    AttnMaskTrue, CausalAlign, Config, DType, EmptyRows, Feature, Fill, Init, Input, Mask, Preset,
    QkNorm, Queries, Rope, RopeScaling, Seed, Tokens,
};

macro_rules! settings {
    ($($(#[$attribute:meta])* $name:ident: $of:ty,)+) => {
        /// The settings of a run, as a config file states them; what is absent has its default.
        ///
        /// The fields mean what those of [`Config`](super::Config) mean.
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, expecting = "an object of settings")]
        #[allow(missing_docs, reason = "each is documented at Config")]
        pub struct Settings {
            $($(#[$attribute])* pub $name: Option<$of>,)+
        }

        impl Settings {
            /// These settings, and `base` wherever they are silent.
            ///
            /// `key_mask` and `lengths` state one thing in two ways: either replaces both of `base`'s. `without` takes
            /// away what `base` says of a feature.
            #[must_use]
            pub fn over(self, mut base: Self) -> Self {
                if self.key_mask.is_some() || self.lengths.is_some() {
                    (base.key_mask, base.lengths) = (None, None);
                }
                for feature in self.without.iter().flatten() {
                    base.drop_feature(*feature);
                }
                Self { $($name: self.$name.or(base.$name),)+ }
            }
        }
    };
}

settings! {
    preset: Preset,
    batch: usize,
    seq_len: usize,
    d_model: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    seed: Seed,
    d_in: usize,
    input: Input,
    init: Init,
    bias: bool,
    qk_norm: QkNorm,
    qk_norm_eps: f64,
    rope: Rope,
    rope_base: f64,
    rope_dims: usize,
    rope_offset: usize,
    rope_scaling: RopeScaling,
    rope_freqs: String,
    rope_attention_factor: f64,
    kv_len: usize,
    d_memory: usize,
    memory: String,
    past: String,
    // Told by the tensors of the cache alone.
    #[serde(skip)]
    past_len: usize,
    queries: Queries,
    mask: Mask,
    causal_align: CausalAlign,
    key_mask: Vec<String>,
    lengths: Vec<usize>,
    attn_mask: String,
    attn_mask_true: AttnMaskTrue,
    mask_fill: Fill,
    window: usize,
    alibi: bool,
    softcap: f64,
    scale: f64,
    empty_rows: EmptyRows,
    dropout: f64,
    dtype: DType,
    x: String,
    weights: String,
    prefix: String,
    tokens: Tokens,
    memory_tokens: Tokens,
    model_config: String,
    layer: usize,
    without: Vec<Feature>,
}

impl Settings {
    fn drop_feature(&mut self, feature: Feature) {
        match feature {
            Feature::Rope => {
                self.rope = None;
                (self.rope_base, self.rope_dims, self.rope_offset) = (None, None, None);
                (self.rope_scaling, self.rope_freqs) = (None, None);
                self.rope_attention_factor = None;
            }
            Feature::QkNorm => (self.qk_norm, self.qk_norm_eps) = (None, None),
            Feature::Window => self.window = None,
            Feature::Softcap => self.softcap = None,
            Feature::Scale => self.scale = None,
            Feature::Alibi => self.alibi = None,
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
        let paths = [
            &mut self.x,
            &mut self.weights,
            &mut self.attn_mask,
            &mut self.memory,
            &mut self.past,
            &mut self.rope_freqs,
            &mut self.model_config,
        ];
        for path in paths.into_iter().flatten() {
            *path = folder.join(&*path).to_string_lossy().into_owned();
        }
        self
    }
}

impl From<&Config> for Settings {
    /// The settings that resolve to this config.
    fn from(config: &Config) -> Self {
        let c = config.clone();
        let rope = c.rope.as_ref();
        Self {
            preset: None,
            batch: Some(c.batch),
            seq_len: Some(c.seq_len),
            d_model: Some(c.d_model),
            heads: Some(c.heads),
            kv_heads: Some(c.kv_heads).filter(|kv_heads| *kv_heads != c.heads),
            head_dim: Some(c.head_dim).filter(|head_dim| head_dim * c.heads != c.d_model),
            seed: Some(c.seed),
            d_in: Some(c.d_in),
            input: Some(c.input),
            init: Some(c.init),
            bias: Some(c.bias),
            qk_norm: c.qk_norm,
            qk_norm_eps: c.qk_norm.map(|_| c.qk_norm_eps),
            rope: rope.map(|rope| rope.pairing),
            rope_base: rope.filter(|rope| rope.freqs.is_none()).map(|rope| rope.base),
            rope_dims: rope.map(|rope| rope.dims),
            rope_offset: rope.map(|rope| rope.offset),
            rope_scaling: rope.and_then(|rope| rope.scaling.clone()),
            rope_freqs: rope.and_then(|rope| rope.freqs.clone()),
            rope_attention_factor: rope.and_then(|rope| rope.attention_factor),
            kv_len: c.kv_len,
            d_memory: c.kv_len.map(|_| c.d_memory),
            memory: c.memory,
            past: c.past,
            past_len: Some(c.past_len).filter(|length| *length > 0),
            queries: c.queries.map(Queries::from),
            mask: Some(c.mask),
            causal_align: c.causal_align,
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
            tokens: c.tokens,
            memory_tokens: c.memory_tokens,
            model_config: None,
            layer: None,
            without: None,
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
