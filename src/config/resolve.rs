//! From settings to a config, and back to the settings of a record.

use super::check::{check, companions};
use super::choice::{End, Mask, Start};
use super::config::Config;
use super::parts::{Masks, Norm, Packed};
use super::rotary::Rotary;
use super::settings::{Plain, Settings};
use super::sizes::Sizes;
use base::error::Result;
use program::{EmptyRow, Fill, RelativeBias};

impl Config {
    /// Decides every value: from the settings, then their preset, then the default preset.
    ///
    /// # Errors
    /// If a value is out of its range, or two contradict each other.
    pub fn resolve(settings: &Settings) -> Result<Self> {
        let mut s = settings.clone().over(settings.preset.unwrap_or_default().settings());
        s.measure();
        if s.recurrence.is_some() {
            s.start.get_or_insert(Start::Heads);
        }
        companions(&s)?;
        let sizes = Sizes::resolve(&s)?;
        let start = s.start.unwrap_or_default();
        // What is left open is as `scaled_dot_product_attention` has it.
        let is_core = start != Start::Inputs;
        let empty_rows = if is_core { EmptyRow::Zero } else { EmptyRow::Nan };
        let mut config = Self {
            plain: Plain::of(&s)?,
            start,
            end: s.end.unwrap_or(End::of(start)),
            norm: s.qk_norm.map(|kind| Norm {
                kind,
                eps: s.qk_norm_eps.unwrap_or(if kind.is_centred() { 1e-5 } else { 1e-6 }),
            }),
            rope: Rotary::resolve(&s, &sizes),
            masks: masks(&s, &sizes, is_core),
            empty_rows: s.empty_rows.unwrap_or(empty_rows),
            dtype: s.dtype.unwrap_or_default(),
            sizes,
            settings: Settings::default(),
        };
        check(&config)?;
        config.settings = config.stated(s)?;
        Ok(config)
    }

    /// The settings with every default in its place, which resolve to this config.
    fn stated(&self, s: Settings) -> Result<Settings> {
        let s = self.sizes.stated(s);
        let s = self.rope.iter().fold(s, |s, rope| rope.stated(s));
        let mut stated = Settings {
            start: Some(self.start).filter(|start| *start != Start::Inputs),
            // Without a start, runs end at the output.
            end: Some(self.end).filter(|end| *end != End::Output || self.start != Start::Inputs),
            qk_norm_eps: self.norm.map(|norm| norm.eps),
            mask: Some(self.masks.between),
            key_mask: self.masks.key_mask.clone(),
            attn_mask_true: self.masks.attn_mask_true,
            mask_fill: Some(self.masks.fill),
            empty_rows: Some(self.empty_rows),
            dtype: Some(self.dtype),
            ..s
        };
        self.plain.record(&mut stated)?;
        if stated.relative_bias == Some(RelativeBias::Grid) {
            stated.relative_max_distance = None;
        }
        stated.drop_unrecorded();
        Ok(stated)
    }
}

/// What hides keys from queries; a run that starts behind the projections hides none unless it is asked to.
fn masks(s: &Settings, sizes: &Sizes, is_core: bool) -> Masks {
    let between = if sizes.is_cross || is_core { Mask::None } else { Mask::Causal };
    let fill = if is_core { Fill(f64::NEG_INFINITY) } else { Fill::default() };
    let packed = s.segments.clone().map(|queries| Packed {
        keys: s.key_segments.clone().unwrap_or_else(|| queries.clone()),
        queries,
    });
    Masks {
        between: s.mask.unwrap_or(between),
        key_mask: s.key_mask.clone().filter(|rows| !rows.is_empty()),
        segments: packed,
        attn_mask_true: s.attn_mask.as_ref().map(|_| s.attn_mask_true.unwrap_or_default()),
        fill: s.mask_fill.unwrap_or(fill),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Seed, Tokens};

    fn refusal(settings: &Settings) -> String {
        let error = Config::resolve(settings).expect_err("must be refused");
        format!("{error}\n{}", error.fix())
    }

    #[test]
    fn the_default_is_the_causal_walkthrough() {
        let config = Config::resolve(&Settings::default()).expect("default");
        let Sizes { batch, seq_len, d_model, heads, d_in, head_dim, .. } = config.sizes;
        assert_eq!((batch, seq_len, d_model, heads), (1, 4, 8, 2));
        assert_eq!((d_in, head_dim, config.plain.seed.0), (8, 4, 42));
        assert_eq!((config.masks.between, config.plain.bias), (Mask::Causal, false));
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
            "d_model 8 is not divisible by heads 3\n\
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
        assert!(
            refusal(&settings(&["1111", "1111"]))
                .starts_with("key_mask: the number of rows is 2, but batch is 1")
        );
        assert!(refusal(&settings(&["1121"])).contains("'2' is neither 0 nor 1"));
        assert!(refusal(&settings(&["111"])).contains("has 3 keys, but seq_len is 4"));
    }

    #[test]
    fn lengths_fit_batch_and_keys() {
        let stated = Settings { batch: Some(1), seq_len: Some(4), ..Settings::default() };
        let settings = |lengths| Settings { lengths: Some(lengths), ..stated.clone() };
        assert!(refusal(&settings(vec![5])).starts_with("lengths: 5 is longer than seq_len 4"));
        assert!(
            refusal(&settings(vec![1, 2]))
                .starts_with("lengths: the number of lengths is 2, but batch is 1")
        );
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
