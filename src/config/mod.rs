//! What is to be computed: settings as people give them, and the config they resolve to.

mod check;
mod choice;
mod preset;
mod queries;
mod rope;
mod rope_keys;
mod rotary;
mod settings;
mod tokens;

pub use choice::{
    AttnMaskTrue, CausalAlign, DType, EmptyRows, Feature, Fill, Init, Input, Mask, QkNorm, Rope,
    Seed,
};
pub use preset::Preset;
pub use queries::{Queries, Rows};
pub use rope::{Llama3, RopeScaling, Yarn};
pub use rotary::Rotary;
pub use settings::Settings;
pub use tokens::{Labels, Tokens};

use crate::error::Result;

/// The number of heads where nothing says it.
pub(crate) const DEFAULT_HEADS: usize = 2;

/// √`d_k`, the divisor of the scores.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 features")]
pub fn root(head_dim: usize) -> f64 {
    (head_dim as f64).sqrt()
}

/// A run's whole setting, every value decided and checked.
///
/// Made from [`Settings`] by [`Config::resolve`]; as [`Settings`] again it is the `config` of a recorded trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Items in the batch, B.
    pub batch: usize,
    /// Tokens in a sequence, T.
    pub seq_len: usize,
    /// Features of the output projection, and of the others unless `head_dim` or `kv_heads` say otherwise, `d_model`.
    pub d_model: usize,
    /// Attention heads, H. Divides `d_model`, unless `head_dim` is set.
    pub heads: usize,
    /// Heads of the keys and values, `H_kv`, each shared by heads / `kv_heads` query heads.
    pub kv_heads: usize,
    /// Features of a head, `d_k`: `d_model` / heads, unless set.
    pub head_dim: usize,
    /// The seed of PyTorch's generator (`torch.manual_seed`).
    pub seed: Seed,
    /// Features of the input X.
    pub d_in: usize,
    /// The distribution that X is drawn from.
    pub input: Input,
    /// How the weights are initialised.
    pub init: Init,
    /// Whether the four projections have a bias.
    pub bias: bool,
    /// The norm of every head's queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// What the norm adds to the mean square.
    pub qk_norm_eps: f64,
    /// Rotary positions.
    pub rope: Option<Rotary>,
    /// The number of keys that a second input gives, S: then attention is cross attention.
    pub kv_len: Option<usize>,
    /// Features of the second input.
    pub d_memory: usize,
    /// The file that the second input comes from.
    pub memory: Option<String>,
    /// The file that a cache of keys and values comes from.
    pub past: Option<String>,
    /// The number of keys in the cache, which stand before the run's own.
    pub past_len: usize,
    /// The query rows that are computed; nothing where all are.
    pub queries: Option<Rows>,
    /// The mask between positions.
    pub mask: Mask,
    /// Where the causal mask's diagonal starts if queries and keys differ in number; where nothing is said,
    /// [`Config::align`] decides.
    pub causal_align: Option<CausalAlign>,
    /// A string of 0 and 1 a batch item; 1 lets every query attend to that key. No strings: no such mask.
    pub key_mask: Option<Vec<String>>,
    /// The number of valid keys of every batch item.
    pub lengths: Option<Vec<usize>>,
    /// The file that a mask over (batch, head, query, key) comes from.
    pub attn_mask: Option<String>,
    /// What a true (or 1) in `attn_mask` means.
    pub attn_mask_true: Option<AttnMaskTrue>,
    /// What a masked score becomes.
    pub mask_fill: Fill,
    /// How many keys a query sees under the causal mask, the last ones, itself included.
    pub window: Option<usize>,
    /// Whether the heads' linear position biases are added to the scores ("Train Short, Test Long", Press et al., 2021).
    pub alibi: bool,
    /// C, where the scores become C · tanh(scores / C).
    pub softcap: Option<f64>,
    /// What the dot products are multiplied by, in place of 1/√`d_k`.
    pub scale: Option<f64>,
    /// What softmax makes of a row that is −∞ throughout.
    pub empty_rows: EmptyRows,
    /// The probability of dropping a weight, in [0, 1].
    pub dropout: f64,
    /// The type that everything is computed in.
    pub dtype: DType,
    /// The file that X comes from.
    pub x: Option<String>,
    /// The file that the weights come from.
    pub weights: Option<String>,
    /// The prefix of the weights' names in their file.
    pub prefix: Option<String>,
    /// The tokens' labels.
    pub tokens: Option<Tokens>,
    /// The labels of the second input's tokens.
    pub memory_tokens: Option<Tokens>,
}

impl Config {
    /// Decides every value: from the settings, then their preset, then the default preset.
    ///
    /// # Errors
    /// If a value is out of its range, or two contradict each other.
    pub fn resolve(settings: &Settings) -> Result<Self> {
        let preset = settings.preset.unwrap_or_default();
        let s = settings.clone().over(preset.settings());
        let d_model = s.d_model.unwrap_or(8);
        check::companions(&s)?;
        let heads = s.heads.unwrap_or(DEFAULT_HEADS);
        let d_in = s.d_in.unwrap_or(d_model);
        let head_dim = match s.head_dim {
            Some(head_dim) => head_dim,
            None => check::split(d_model, heads)?,
        };
        let is_cross = s.kv_len.is_some();
        let otherwise = if is_cross { Mask::None } else { Mask::Causal };
        let past_len = s.past_len.unwrap_or(0);
        let seq_len = s.seq_len.unwrap_or(4);
        let config = Self {
            batch: s.batch.unwrap_or(1),
            seq_len,
            d_model,
            heads,
            kv_heads: s.kv_heads.unwrap_or(heads),
            head_dim,
            seed: s.seed.unwrap_or_default(),
            d_in,
            input: s.input.unwrap_or_default(),
            init: s.init.unwrap_or_default(),
            bias: s.bias.unwrap_or(false),
            qk_norm: s.qk_norm,
            qk_norm_eps: s.qk_norm_eps.unwrap_or(1e-6),
            rope: Rotary::resolve(&s, head_dim, past_len),
            kv_len: s.kv_len,
            d_memory: s.d_memory.unwrap_or(d_in),
            memory: s.memory,
            past: s.past,
            past_len,
            queries: s.queries.map(|queries| queries.of(seq_len)).transpose()?,
            mask: s.mask.unwrap_or(otherwise),
            causal_align: s.causal_align,
            key_mask: s.key_mask.filter(|rows| !rows.is_empty()),
            lengths: s.lengths,
            attn_mask_true: s.attn_mask.as_ref().map(|_| s.attn_mask_true.unwrap_or_default()),
            attn_mask: s.attn_mask,
            mask_fill: s.mask_fill.unwrap_or_default(),
            window: s.window,
            alibi: s.alibi.unwrap_or(false),
            softcap: s.softcap,
            scale: s.scale,
            empty_rows: s.empty_rows.unwrap_or_default(),
            dropout: s.dropout.unwrap_or(0.0),
            dtype: s.dtype.unwrap_or_default(),
            x: s.x,
            weights: s.weights,
            prefix: s.prefix,
            tokens: s.tokens,
            memory_tokens: s.memory_tokens,
        };
        config.check()?;
        Ok(config)
    }

    /// What the dot products are multiplied by: 1/√`d_k`, unless something else is set.
    #[must_use]
    pub fn scale_factor(&self) -> f64 {
        self.scale.unwrap_or_else(|| 1.0 / root(self.head_dim))
    }

    /// The number of query rows that are computed.
    #[must_use]
    pub fn query_count(&self) -> usize {
        self.queries.map_or(self.seq_len, |rows| rows.count)
    }

    /// The first query row that is computed.
    #[must_use]
    pub fn first_query(&self) -> usize {
        self.queries.map_or(0, |rows| rows.first)
    }

    /// The number of keys that this run projects itself.
    #[must_use]
    pub fn own_keys(&self) -> usize {
        self.kv_len.unwrap_or(self.seq_len)
    }

    /// The number of keys, S: those of the cache, and the run's own.
    #[must_use]
    pub fn key_count(&self) -> usize {
        self.past_len.saturating_add(self.own_keys())
    }

    /// The position of the first computed query among the keys of its sequence.
    #[must_use]
    pub fn first_position(&self) -> usize {
        self.past_len + self.first_query()
    }

    /// How the causal mask is aligned: as was said; otherwise by positions, or top-left where queries and keys are of two
    /// sequences.
    #[must_use]
    pub fn align(&self) -> CausalAlign {
        let otherwise =
            if self.kv_len.is_some() { CausalAlign::TopLeft } else { CausalAlign::BottomRight };
        self.causal_align.unwrap_or(otherwise)
    }

    /// The last key that the first computed query sees under the causal mask; below 0 where it sees none.
    #[must_use]
    pub fn causal_offset(&self) -> i64 {
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let first = signed(self.first_query());
        match self.align() {
            CausalAlign::TopLeft => first,
            CausalAlign::BottomRight => first + signed(self.key_count()) - signed(self.seq_len),
        }
    }

    /// The sizes (out, in) of the weight of a projection: `q`, `k`, `v` or `o`.
    #[must_use]
    pub fn projection(&self, name: &str) -> (usize, usize) {
        let from = if self.kv_len.is_some() { self.d_memory } else { self.d_in };
        match name {
            "q" => (self.query_width(), self.d_in),
            "o" => (self.d_model, self.query_width()),
            _ => (self.key_width(), from),
        }
    }

    /// Features of the queries, and of the heads side by side.
    #[must_use]
    pub fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Features of the keys and of the values.
    #[must_use]
    pub fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(settings: &Settings) -> String {
        let error = Config::resolve(settings).expect_err("must be refused");
        format!("{error}\n{}", error.fix())
    }

    #[test]
    fn the_default_is_the_causal_walkthrough() {
        let config = Config::resolve(&Settings::default()).expect("default");
        assert_eq!((config.batch, config.seq_len, config.d_model, config.heads), (1, 4, 8, 2));
        assert_eq!((config.d_in, config.head_dim, config.seed.0), (8, 4, 42));
        assert_eq!((config.mask, config.bias), (Mask::Causal, false));
    }

    #[test]
    fn a_config_reads_back_as_settings_that_resolve_to_it() {
        let settings = Settings {
            mask_fill: Some(Fill(f64::NEG_INFINITY)),
            seed: Some(Seed(u64::MAX)),
            key_mask: Some(vec!["0110".into()]),
            mask: Some(Mask::None),
            d_in: Some(7),
            ..Settings::default()
        };
        let config = Config::resolve(&settings).expect("valid");
        let text = serde_json::to_string(&Settings::from(&config)).expect("serialises");
        let again = Config::resolve(&serde_json::from_str(&text).expect("reads")).expect("valid");
        assert_eq!(config, again);
    }

    #[test]
    fn heads_must_divide_d_model() {
        let settings = |heads| Settings { heads: Some(heads), ..Settings::default() };
        assert_eq!(
            refusal(&settings(3)),
            "heads 3 does not divide d_model 8\n\
             every head gets d_model / heads features: try heads 2 or 4, or set head_dim"
        );
        assert!(refusal(&settings(9)).ends_with("try heads 8, or set head_dim"));
        assert_eq!(refusal(&settings(0)), "heads is 0\ngive heads at least 1");
    }

    #[test]
    fn a_key_mask_fits_batch_and_keys() {
        let settings = |rows: &[&str]| Settings {
            key_mask: Some(rows.iter().map(ToString::to_string).collect()),
            ..Settings::default()
        };
        assert!(refusal(&settings(&["1111", "1111"])).starts_with("key_mask: 2 rows for a batch"));
        assert!(refusal(&settings(&["1121"])).contains("'2' is neither 0 nor 1"));
        assert!(refusal(&settings(&["111"])).contains("3 keys where seq_len is 4"));
    }

    #[test]
    fn lengths_fit_batch_and_keys() {
        let settings = |lengths| Settings { lengths: Some(lengths), ..Settings::default() };
        assert!(refusal(&settings(vec![5])).starts_with("lengths: 5 is longer than seq_len 4"));
        assert!(refusal(&settings(vec![1, 2])).starts_with("lengths: 2 numbers for a batch of 1"));
    }

    #[test]
    fn dropout_is_a_probability() {
        for p in [-0.1, 1.5, f64::NAN] {
            let settings = Settings { dropout: Some(p), ..Settings::default() };
            assert!(refusal(&settings).contains("is not a probability"));
        }
    }
}
