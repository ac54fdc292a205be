//! What is to be computed: settings as people give them, and the config they resolve to.

#[macro_use]
extern crate base;

pub mod check;
mod choice;
mod given;
mod latent;
mod parts;
mod positions;
mod preset;
mod queries;
mod rotary;
mod scores;
mod segments;
mod setting;
mod settings;
mod sizes;
mod text;
mod tokens;

pub use choice::{
    AttnMaskTrue, CausalAlign, DType, DrawInputs, End, Feature, Gate, Init, Input, Mask, NormOver,
    OtherNorm, Packing, QkNorm, QkvFormat, Seed, Start, TorchCpu,
};
pub use parts::{Draws, Files, Masks, Norm, Packed, RelativeBiases, Temperature};
pub use positions::Positions;
pub use preset::Preset;
pub use queries::Queries;
pub use rotary::Rotary;
pub use scores::Scores;
pub use segments::Segments;
pub use settings::{Setting, Settings};
pub use sizes::{Latent, Sizes};
pub use text::Place;
pub use tokens::{Labels, Tokens};

pub use program::{
    AlibiForm, EmptyRow, Fill, Pairing, QueryRows, RelativeBias, RopeScaling, SectionOrder, Shift,
};

use base::error::Result;
use program::{Name, Places};

/// The number of heads where nothing says it.
pub const DEFAULT_HEADS: usize = 2;

/// A run's whole setting, every value decided and checked.
///
/// Made from [`Settings`] by [`Config::resolve`]; as [`Settings`] again it is the `config` of a recorded trace.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a setting")]
pub struct Config {
    /// How long the axes are.
    pub sizes: Sizes,
    /// Where the run starts.
    pub start: Start,
    /// Where it ends.
    pub end: End,
    /// Whether the logarithms of the rows' sums of exponentials are computed too.
    pub lse: bool,
    /// Whether the mean of the weights over the heads is a step.
    pub mean_weights: bool,
    /// What is drawn, and how.
    pub draws: Draws,
    /// Whether the four projections have a bias.
    pub bias: bool,
    /// What the norms of latents add to the mean square.
    pub latent_eps: f64,
    /// The norm of every head's queries and keys.
    pub norm: Option<Norm>,
    /// What the norm of every head's values adds to the mean square, if there is one.
    pub v_norm_eps: Option<f64>,
    /// C, where queries, keys and values are clipped to numbers from −C to C.
    pub clip_qkv: Option<f64>,
    /// What the values are multiplied by.
    pub value_scale: Option<f64>,
    /// Factors of queries by positions.
    pub temperature: Option<Temperature>,
    /// What the norm of the heads side by side adds to the mean square, if there is one.
    pub concat_norm_eps: Option<f64>,
    /// Whether keys and values are those of an earlier layer.
    pub shares_kv: bool,
    /// Whether values are the projected keys.
    pub k_eq_v: bool,
    /// What a gate goes through that the heads side by side are multiplied by.
    pub gate: Option<Gate>,
    /// Rotary positions.
    pub rope: Option<Rotary>,
    /// The positions of the tokens, where they are stated.
    pub positions: Option<Positions>,
    /// What hides keys from queries.
    pub masks: Masks,
    /// Whether the heads' linear position biases are added to the scores ("Train Short, Test Long", Press et al., 2021).
    pub alibi: Option<AlibiForm>,
    /// The learned biases of relative positions that are added to the scores.
    pub relative: Option<RelativeBiases>,
    /// C, where the scores become C · tanh(scores / C).
    pub softcap: Option<f64>,
    /// What the dot products are multiplied by, in place of 1/√`d_k`.
    pub scale: Option<f64>,
    /// Whether every head has a learned score that stands beside those of the keys and is dropped after the softmax, as in
    /// gpt-oss.
    pub sinks: bool,
    /// What softmax makes of a row that is −∞ throughout.
    pub empty_rows: EmptyRow,
    /// The probability of dropping a weight, in [0, 1].
    pub dropout: f64,
    /// The type that everything is computed in.
    pub dtype: DType,
    /// The files that numbers come from.
    pub files: Files,
    /// The tokens' labels.
    pub tokens: Option<Tokens>,
    /// The labels of the second input's tokens.
    pub memory_tokens: Option<Tokens>,
    /// The settings that say all this.
    settings: Settings,
}

impl Config {
    /// Decides every value: from the settings, then their preset, then the default preset.
    ///
    /// # Errors
    /// If a value is out of its range, or two contradict each other.
    pub fn resolve(settings: &Settings) -> Result<Self> {
        let mut s = settings.clone().over(settings.preset.unwrap_or_default().settings());
        s.measure();
        check::companions(&s)?;
        let sizes = Sizes::resolve(&s)?;
        let start = s.start.unwrap_or_default();
        // What is left open is as `scaled_dot_product_attention` has it.
        let is_core = start != Start::Inputs;
        let otherwise = if sizes.is_cross || is_core { Mask::None } else { Mask::Causal };
        let norm = s.qk_norm.map(|kind| Norm {
            kind,
            eps: s.qk_norm_eps.unwrap_or(if kind.is_centred() { 1e-5 } else { 1e-6 }),
            over: s.qk_norm_over.unwrap_or_default(),
            after_rope: s.qk_norm_after_rope.unwrap_or(false),
        });
        let temperature = s.q_temperature.map(|scale| Temperature {
            scale,
            floor: s.q_temperature_floor.unwrap_or(8192),
            offset: s.q_temperature_offset.unwrap_or(0),
        });
        let mut config = Self {
            draws: Draws::of(&s),
            start,
            end: s.end.unwrap_or(match start {
                Start::Inputs => End::Output,
                Start::Projections => End::Concat,
                Start::Heads => End::Heads,
                Start::Scores => End::Weights,
            }),
            lse: s.lse.unwrap_or(false),
            mean_weights: s.mean_weights.unwrap_or(false),
            bias: s.bias.unwrap_or(false),
            latent_eps: s.lora_norm_eps.unwrap_or(1e-6),
            norm,
            v_norm_eps: s.v_norm.map(|_| s.v_norm_eps.unwrap_or(1e-6)),
            clip_qkv: s.clip_qkv,
            value_scale: s.value_scale,
            temperature,
            concat_norm_eps: s.concat_norm.map(|_| s.concat_norm_eps.unwrap_or(1e-6)),
            shares_kv: s.shared_kv.is_some(),
            k_eq_v: s.k_eq_v.unwrap_or(false),
            gate: s.gate,
            rope: Rotary::resolve(&s, &sizes),
            positions: s.positions.clone(),
            masks: Masks {
                between: s.mask.unwrap_or(otherwise),
                causal_align: s.causal_align,
                window: s.window,
                chunk: s.chunk,
                key_mask: s.key_mask.clone().filter(|rows| !rows.is_empty()),
                lengths: s.lengths.clone(),
                segments: s.segments.clone().map(|queries| Packed {
                    keys: s.key_segments.clone().unwrap_or_else(|| queries.clone()),
                    queries,
                }),
                attn_mask_true: s.attn_mask.as_ref().map(|_| s.attn_mask_true.unwrap_or_default()),
                fill: s.mask_fill.unwrap_or(if is_core {
                    Fill(f64::NEG_INFINITY)
                } else {
                    Fill::default()
                }),
            },
            alibi: s.alibi.filter(|is| *is).map(|_| s.alibi_form.unwrap_or_default()),
            relative: s.relative_bias.map(|sort| RelativeBiases {
                sort,
                max_distance: s.relative_max_distance.unwrap_or(128),
            }),
            softcap: s.softcap,
            scale: s.scale,
            sinks: s.sinks.unwrap_or(false),
            empty_rows: s.empty_rows.unwrap_or(if is_core {
                EmptyRow::Zero
            } else {
                EmptyRow::Nan
            }),
            dropout: s.dropout.unwrap_or(0.0),
            dtype: s.dtype.unwrap_or_default(),
            files: Files {
                x: s.x.clone(),
                memory: s.memory.clone(),
                memory_v: s.memory_v.clone(),
                q: s.q.clone(),
                k: s.k.clone(),
                v: s.v.clone(),
                weights: s.weights.clone(),
                past: s.past.clone(),
                attn_mask: s.attn_mask.clone(),
                attn_bias: s.attn_bias.clone(),
            },
            tokens: s.tokens.clone(),
            memory_tokens: s.memory_tokens.clone(),
            sizes,
            settings: Settings::default(),
        };
        config.check()?;
        config.settings = config.stated(s);
        Ok(config)
    }

    /// The settings with every default in its place, which resolve to this config.
    fn stated(&self, s: Settings) -> Settings {
        let rope = self.rope.as_ref();
        let masks = &self.masks;
        Settings {
            preset: None,
            start: Some(self.start).filter(|start| *start != Start::Inputs),
            // Without a start, runs end at the output.
            end: Some(self.end).filter(|end| *end != End::Output || self.start != Start::Inputs),
            lse: self.lse.then_some(true),
            mean_weights: self.mean_weights.then_some(true),
            seed: Some(self.draws.seed),
            input: Some(self.draws.input),
            draw_inputs: Some(self.draws.inputs).filter(|inputs| *inputs != DrawInputs::default()),
            init: Some(self.draws.init),
            torch_cpu: Some(self.draws.torch_cpu).filter(|cpu| *cpu != TorchCpu::default()),
            bias: Some(self.bias),
            lora_norm_eps: self.sizes.latent.map(|_| self.latent_eps),
            qk_norm_eps: self.norm.map(|norm| norm.eps),
            qk_norm_over: self.norm.map(|norm| norm.over).filter(|over| *over != NormOver::Head),
            qk_norm_after_rope: self.norm.map(|norm| norm.after_rope).filter(|after| *after),
            v_norm_eps: self.v_norm_eps,
            concat_norm_eps: self.concat_norm_eps,
            q_temperature_floor: self.temperature.map(|own| own.floor),
            q_temperature_offset: self.temperature.map(|own| own.offset).filter(|by| *by > 0),
            rope_base: rope.filter(|rope| rope.freqs.is_none()).map(|rope| rope.base),
            rope_dims: rope.map(|rope| rope.dims),
            rope_at_end: rope.map(|rope| rope.at_end).filter(|at_end| *at_end),
            rope_value: rope.map(|rope| rope.turns_values).filter(|turns| *turns),
            k_eq_v: self.k_eq_v.then_some(true),
            rope_offset: rope.filter(|rope| rope.places.is_none()).map(|rope| rope.offset),
            mask: Some(masks.between),
            key_mask: masks.key_mask.clone(),
            attn_mask_true: masks.attn_mask_true,
            mask_fill: Some(masks.fill),
            alibi: self.alibi.map(|_| true),
            alibi_form: self.alibi.filter(|form| *form != AlibiForm::default()),
            relative_buckets: self.sizes.buckets,
            relative_max_distance: self
                .relative
                .filter(|relative| relative.sort != RelativeBias::Grid)
                .map(|relative| relative.max_distance),
            sinks: self.sinks.then_some(true),
            empty_rows: Some(self.empty_rows),
            dropout: Some(self.dropout),
            dtype: Some(self.dtype),
            model_config: None,
            model_family: None,
            layer: None,
            packing: None,
            without: None,
            ..self.sizes.stated(s)
        }
    }

    /// The positions of the tokens, where they are stated.
    pub fn places(&self) -> Option<Places> {
        match &self.rope {
            Some(rope) => rope.places.clone(),
            None => self.positions.as_ref().map(Positions::plain),
        }
    }

    /// The steps that are called the output: of a run that starts at its heads, all that follow them.
    #[must_use]
    pub fn ends(&self) -> &'static [Name] {
        match self.start {
            Start::Inputs => &[Name::Output],
            Start::Projections | Start::Heads => &[Name::Output, Name::Concat, Name::HeadOutputs],
            Start::Scores => &[Name::WeightsDropped, Name::Weights],
        }
    }

    /// Whether a step comes before what the run is given, or behind its end.
    #[must_use]
    pub fn lies_outside(&self, step: Name) -> bool {
        let leads_to = Name::descendants(&[step]);
        Name::descendants(&[self.end.step()]).contains(&step)
            || self.start.given().iter().any(|given| leads_to.contains(given))
    }

    /// What the dot products are multiplied by: 1/√`d_k`, unless something else is set.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53 features")]
    pub fn scale_factor(&self) -> f64 {
        self.scale.unwrap_or_else(|| 1.0 / (self.sizes.head_dim as f64).sqrt())
    }

    /// How the causal mask is aligned: as was said; otherwise by positions, or top-left where queries and keys are of two
    /// sequences. In packed documents it is bottom-right, as in `flash_attn_varlen_func`.
    #[must_use]
    pub fn align(&self) -> CausalAlign {
        let is_apart = self.sizes.is_cross && self.masks.segments.is_none();
        let otherwise = if is_apart { CausalAlign::TopLeft } else { CausalAlign::BottomRight };
        self.masks.causal_align.unwrap_or(otherwise)
    }

    /// In packed rows whose documents have other numbers of keys than queries: from which computed row on the keys are how
    /// much further on, under a causal mask of that alignment.
    #[must_use]
    pub fn shifts(&self, align: CausalAlign) -> Vec<Shift> {
        let Some(Packed { queries, keys }) = &self.masks.segments else { return Vec::new() };
        let first = i64::try_from(self.sizes.first_query()).unwrap_or(i64::MAX);
        let shift = |((row, row_end), (key, key_end)): ((i64, i64), (i64, i64))| {
            let by = match align {
                CausalAlign::TopLeft => key - row,
                CausalAlign::BottomRight => key_end - row_end,
            };
            Shift { row: row.saturating_sub(first), by }
        };
        let all: Vec<Shift> = queries.spans().into_iter().zip(keys.spans()).map(shift).collect();
        if all.iter().all(|shift| shift.by == 0) { Vec::new() } else { all }
    }

    /// The last key that the first computed query sees under a causal mask of that alignment; below 0 where it sees none.
    #[must_use]
    pub fn first_seen(&self, align: CausalAlign) -> i64 {
        let signed = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let first = signed(self.sizes.first_query());
        match align {
            // Each document has a shift of its own.
            _ if self.masks.segments.is_some() => first,
            CausalAlign::TopLeft => first,
            CausalAlign::BottomRight => {
                first + signed(self.sizes.keys()) - signed(self.sizes.seq_len)
            }
        }
    }
}

impl From<&Config> for Settings {
    /// The settings that resolve to this config.
    fn from(config: &Config) -> Self {
        config.settings.clone()
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
        let Sizes { batch, seq_len, d_model, heads, d_in, head_dim, .. } = config.sizes;
        assert_eq!((batch, seq_len, d_model, heads), (1, 4, 8, 2));
        assert_eq!((d_in, head_dim, config.draws.seed.0), (8, 4, 42));
        assert_eq!((config.masks.between, config.bias), (Mask::Causal, false));
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
    fn what_is_recorded_is_what_was_set_and_no_more() {
        let latent = r#""kv_lora_rank": 3, "heads": 2"#;
        let cases = [
            (r#""kv_heads": 1"#.to_owned(), "kv_heads", true),
            (r#""kv_heads": 2"#.to_owned(), "kv_heads", false),
            (r#""head_dim": 4"#.to_owned(), "head_dim", false),
            (r#""head_dim": 6"#.to_owned(), "head_dim", true),
            (r#""v_head_dim": 4"#.to_owned(), "v_head_dim", false),
            (r#""v_head_dim": 6"#.to_owned(), "v_head_dim", true),
            (format!(r#"{latent}, "qk_rope_head_dim": 0"#), "qk_rope_head_dim", false),
            (format!(r#"{latent}, "qk_rope_head_dim": 2"#), "qk_rope_head_dim", true),
            (format!(r#"{latent}, "absorb": true"#), "absorb", true),
            (format!(r#"{latent}, "absorb": false"#), "absorb", false),
            (r#""add_bias_kv": false"#.to_owned(), "add_bias_kv", false),
            (r#""add_bias_kv": true"#.to_owned(), "add_bias_kv", true),
        ];
        for (text, key, is_stated) in cases {
            let settings = serde_json::from_str(&format!("{{{text}}}")).expect(&text);
            let config = Config::resolve(&settings).expect(&text);
            let recorded = Settings::from(&config).to_json();
            assert_eq!(recorded.get(key).is_some(), is_stated, "{text}: {recorded:?}");
            let again = serde_json::from_value(serde_json::json!(recorded)).expect(&text);
            assert_eq!(Config::resolve(&again).expect(&text), config, "{text}");
        }
    }

    #[test]
    fn nothing_stands_between_the_latent_and_what_absorbs_it() {
        let latent = r#""kv_lora_rank": 3, "heads": 2, "absorb": true"#;
        let read = |more: &str| {
            let text = format!("{{{latent}, {more}}}");
            serde_json::from_str::<Settings>(&text).expect(more)
        };
        for (more, name) in [
            (r#""clip_qkv": 1.0"#, "clip_qkv"),
            (r#""value_scale": 0.5"#, "value_scale"),
            (r#""v_norm": "rms""#, "v_norm"),
            (r#""rope": "half""#, "rope"),
            (r#""add_zero_attn": true"#, "add_zero_attn"),
        ] {
            let told = refusal(&read(more));
            assert!(told.starts_with(&format!("{name} is of the keys and values")), "{told}");
        }
        let turned = read(r#""qk_rope_head_dim": 2, "rope": "half""#);
        assert!(Config::resolve(&turned).is_ok(), "what is turned is beside the latent");
    }

    #[test]
    fn every_end_of_every_start_is_stated() {
        for start in [Start::Inputs, Start::Projections, Start::Heads, Start::Scores] {
            for end in [End::Weights, End::Heads, End::Concat, End::Output] {
                let settings =
                    Settings { start: Some(start), end: Some(end), ..Settings::default() };
                let Ok(config) = Config::resolve(&settings) else { continue };
                let again = Config::resolve(&Settings::from(&config)).expect("valid");
                assert_eq!((again.start, again.end), (start, end));
            }
        }
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
            batch: Some(1),
            seq_len: Some(4),
            ..Settings::default()
        };
        assert!(refusal(&settings(&["1111", "1111"])).starts_with("key_mask: 2 rows for a batch"));
        assert!(refusal(&settings(&["1121"])).contains("'2' is neither 0 nor 1"));
        assert!(refusal(&settings(&["111"])).contains("3 keys where seq_len is 4"));
    }

    #[test]
    fn lengths_fit_batch_and_keys() {
        let stated = Settings { batch: Some(1), seq_len: Some(4), ..Settings::default() };
        let settings = |lengths| Settings { lengths: Some(lengths), ..stated.clone() };
        assert!(refusal(&settings(vec![5])).starts_with("lengths: 5 is longer than seq_len 4"));
        assert!(refusal(&settings(vec![1, 2])).starts_with("lengths: 2 numbers for a batch of 1"));
    }

    #[test]
    fn lists_of_tokens_set_the_sizes_that_nobody_states() {
        let sizes = |settings: Settings| {
            let Sizes { batch, seq_len, .. } = Config::resolve(&settings).expect("valid").sizes;
            (batch, seq_len)
        };
        let labels = Tokens::Same(vec!["a".into(), "b".into()]);
        let silent = Settings::default;
        assert_eq!(sizes(Settings { tokens: Some(labels), ..silent() }), (1, 2));
        assert_eq!(sizes(Settings { lengths: Some(vec![3, 2]), ..silent() }), (2, 3));
        assert_eq!(sizes(Settings { lengths: Some(vec![6]), ..silent() }), (1, 6));
        assert_eq!(sizes(Settings { lengths: Some(vec![3]), ..silent() }), (1, 4));
        let rows = Some(vec!["110".into(), "100".into()]);
        assert_eq!(sizes(Settings { key_mask: rows.clone(), ..silent() }), (2, 3));
        let cross = Settings { key_mask: rows, kv_len: Some(3), ..silent() };
        assert_eq!(sizes(cross), (2, 4));
        let stated = Settings { lengths: Some(vec![3, 2]), seq_len: Some(5), ..silent() };
        assert_eq!(sizes(stated), (2, 5));
    }

    #[test]
    fn dropout_is_a_probability() {
        for p in [-0.1, 1.5, f64::NAN] {
            let settings = Settings { dropout: Some(p), ..Settings::default() };
            assert!(refusal(&settings).contains("is not a probability"));
        }
    }
}
