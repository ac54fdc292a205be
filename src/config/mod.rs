//! What is to be computed: settings as people give them, and the config they resolve to.

mod choice;
mod preset;
mod settings;

pub use choice::{AttnMaskTrue, DType, EmptyRows, Fill, Init, Input, Mask, Seed};
pub use preset::Preset;
pub use settings::Settings;

use crate::error::{Error, Result};

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
    /// Features of the query, key, value and output projections, `d_model`.
    pub d_model: usize,
    /// Attention heads, H. Divides `d_model`.
    pub heads: usize,
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
    /// The mask between positions.
    pub mask: Mask,
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
        if s.attn_mask.is_none() && s.attn_mask_true == Some(AttnMaskTrue::Block) {
            let what = "attn_mask_true is block, and there is no attn_mask";
            return Err(Error::config(what, "give attn_mask, or leave attn_mask_true out"));
        }
        if s.weights.is_none() && s.prefix.is_some() {
            let what = "prefix picks weights in a file, and weights names none";
            return Err(Error::config(what, "give weights, or leave prefix out"));
        }
        let config = Self {
            batch: s.batch.unwrap_or(1),
            seq_len: s.seq_len.unwrap_or(4),
            d_model,
            heads: s.heads.unwrap_or(2),
            seed: s.seed.unwrap_or_default(),
            d_in: s.d_in.unwrap_or(d_model),
            input: s.input.unwrap_or_default(),
            init: s.init.unwrap_or_default(),
            bias: s.bias.unwrap_or(false),
            mask: s.mask.unwrap_or_default(),
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
        };
        config.check()?;
        Ok(config)
    }

    /// What the dot products are multiplied by: 1/√`d_k`, unless something else is set.
    #[must_use]
    pub fn scale_factor(&self) -> f64 {
        self.scale.unwrap_or_else(|| 1.0 / root(self.head_dim()))
    }

    /// Features of a head, `d_k` = `d_model` / heads.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.d_model / self.heads
    }

    fn check(&self) -> Result<()> {
        let sizes = [
            ("batch", self.batch),
            ("seq_len", self.seq_len),
            ("d_model", self.d_model),
            ("heads", self.heads),
            ("d_in", self.d_in),
        ];
        if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
            return Err(Error::config(format!("{name} is 0"), format!("give {name} at least 1")));
        }
        if !self.d_model.is_multiple_of(self.heads) {
            return Err(Error::config(
                format!("heads {} does not divide d_model {}", self.heads, self.d_model),
                self.heads_that_would_do(),
            ));
        }
        if !(0.0..=1.0).contains(&self.dropout) {
            return Err(Error::config(
                format!("dropout {} is not a probability", self.dropout),
                "give a number from 0 to 1",
            ));
        }
        self.check_scores()?;
        self.check_fill()?;
        self.check_key_mask()?;
        self.check_lengths()
    }

    /// The nearest divisors, looked for so far as an answer comes at once.
    fn heads_that_would_do(&self) -> String {
        const FAR: usize = 100_000;
        let divides = |n: &usize| self.d_model.is_multiple_of(*n);
        let below = (1..=self.heads.min(self.d_model)).rev().take(FAR).find(divides).unwrap_or(1);
        let above = (self.heads..=self.d_model).take(FAR).find(divides);
        let nearest = match above {
            Some(above) if above != below => format!("{below} or {above}"),
            _ => below.to_string(),
        };
        format!("every head gets d_model / heads features: try heads {nearest}")
    }

    fn check_scores(&self) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::config(what, fix));
        match (self.window, self.mask, self.softcap, self.scale) {
            (Some(0), ..) => refuse("window 0 shows no key".to_owned(), "give window at least 1"),
            (Some(_), Mask::None, ..) => refuse(
                "window is of the last keys, and mask none shows the later ones too".to_owned(),
                "pass --mask causal, or leave window out",
            ),
            (_, _, Some(cap), _) if !(cap > 0.0 && cap.is_finite()) => {
                refuse(format!("softcap {cap} caps nothing"), "give a number above 0, such as 50")
            }
            (.., Some(scale)) if !scale.is_finite() => {
                refuse(format!("scale {scale} is not a number"), "give one, such as 0.125")
            }
            _ => Ok(()),
        }
    }

    fn check_fill(&self) -> Result<()> {
        let fill = self.mask_fill.0;
        #[allow(clippy::cast_possible_truncation, reason = "asks whether it fits")]
        let fits = self.dtype == DType::F64 || (fill as f32).is_finite();
        if fill == f64::NEG_INFINITY || (fill.is_finite() && fits) {
            return Ok(());
        }
        let what = format!("mask_fill {} is not a number in {}", self.mask_fill, self.dtype);
        Err(Error::config(what, "give -inf, or a number such as -1e9"))
    }

    fn check_key_mask(&self) -> Result<()> {
        let Some(rows) = &self.key_mask else { return Ok(()) };
        let fix = format!(
            "give each batch item ({} in all) a string of {} characters, 1 = attend and 0 = blocked",
            self.batch, self.seq_len
        );
        if rows.len() != self.batch {
            let what = format!("{} rows for a batch of {}", rows.len(), self.batch);
            return Err(Error::tensor("key_mask", what, fix));
        }
        for (item, row) in rows.iter().enumerate() {
            if let Some(other) = row.chars().find(|c| !matches!(c, '0' | '1')) {
                let what = format!("row {item} is \"{row}\", and '{other}' is neither 0 nor 1");
                return Err(Error::tensor("key_mask", what, fix));
            }
            if row.len() != self.seq_len {
                let what = format!(
                    "row {item} is \"{row}\", {} keys where seq_len is {}",
                    row.len(),
                    self.seq_len
                );
                return Err(Error::tensor("key_mask", what, fix));
            }
        }
        Ok(())
    }

    fn check_lengths(&self) -> Result<()> {
        let Some(lengths) = &self.lengths else { return Ok(()) };
        let fix = format!(
            "give each batch item ({} in all) a number from 0 to {}",
            self.batch, self.seq_len
        );
        if lengths.len() != self.batch {
            let what = format!("{} numbers for a batch of {}", lengths.len(), self.batch);
            return Err(Error::tensor("lengths", what, fix));
        }
        match lengths.iter().find(|length| **length > self.seq_len) {
            Some(length) => {
                let what = format!("{length} is longer than seq_len {}", self.seq_len);
                Err(Error::tensor("lengths", what, fix))
            }
            None => Ok(()),
        }
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
        assert_eq!((config.d_in, config.head_dim(), config.seed.0), (8, 4, 42));
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
             every head gets d_model / heads features: try heads 2 or 4"
        );
        assert!(refusal(&settings(9)).ends_with("try heads 8"));
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
