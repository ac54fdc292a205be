//! How a checkpoint's config changes the frequencies of rotary positions.

use serde::{Deserialize, Serialize};

/// What a checkpoint's config states as `rope_scaling` (transformers 4) or `rope_parameters` (transformers 5): how the
/// frequencies of the rotary position embedding are changed, so that a model sees farther than it was trained to.
///
/// Read from an object that names its kind as `rope_type` (or `type`, as older configs do). The kinds and their keys:
///
/// | kind | keys |
/// |---|---|
/// | `default` | |
/// | `linear` | `factor` |
/// | `dynamic` | `factor`, `max_position_embeddings` |
/// | `llama3` | `factor`, `original_max_position_embeddings`, `low_freq_factor`, `high_freq_factor` |
/// | `longrope` | `short_factor`, `long_factor`, `original_max_position_embeddings`, `factor`, `attention_factor` |
/// | `proportional` | `partial_rotary_factor`, `factor` |
/// | `yarn` | `factor`, `original_max_position_embeddings`, `beta_fast`, `beta_slow`, `attention_factor`, `mscale`, `mscale_all_dim`, `truncate` |
///
/// A missing key that has no default, an unknown one and one that is stated twice are refused. A key that is null
/// counts as missing. `rope_theta` and `partial_rotary_factor` are settings of their own, and skipped here.
/// `original_max_position_embeddings` and `max_position_embeddings` stand in for each other, as a checkpoint states
/// the latter outside this object.
///
/// ```
/// use mha_trace_program::RopeScaling;
///
/// let scaling: RopeScaling = r#"{"type": "linear", "factor": 4}"#.parse()?;
/// assert_eq!(scaling, RopeScaling::Linear { factor: 4.0 });
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "rope_type", rename_all = "lowercase")]
pub enum RopeScaling {
    /// The frequencies as they are.
    Default,
    /// All frequencies are divided by one number.
    Linear {
        /// What they are divided by.
        factor: f64,
    },
    /// The base grows with the number of positions, once they are more than the model was trained with.
    Dynamic {
        /// How fast the base grows.
        factor: f64,
        /// The number of positions from which on it grows.
        max_position_embeddings: usize,
    },
    /// Low frequencies are divided, high ones stay as they are, and those between are interpolated, as in Llama 3.1.
    Llama3(Llama3),
    /// Low frequencies are divided, high ones stay as they are, with a ramp between, and cos and sin are multiplied.
    Yarn(Yarn),
    /// Every frequency is divided by a number of its own, of one list or another by the length, and cos and sin are
    /// multiplied.
    Longrope(Longrope),
    /// The pairs beyond a part of the head do not turn; all features are paired, and the frequencies are those of the head.
    Proportional(Proportional),
}

/// The keys of [`RopeScaling::Proportional`], as Gemma 4 has it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proportional {
    /// The part of the pairs that turn.
    pub partial_rotary_factor: f64,
    /// What their frequencies are divided by: 1 unless stated.
    pub factor: f64,
}

/// The keys of [`RopeScaling::Longrope`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Longrope {
    /// What each frequency is divided by in runs of up to L positions.
    pub short_factor: Vec<f64>,
    /// What each frequency is divided by in longer runs.
    pub long_factor: Vec<f64>,
    /// The number of positions that the model was trained with first: L.
    pub original_max_position_embeddings: usize,
    /// How many times longer sequences are than L, s: by what cos and sin are multiplied unless that is stated.
    pub factor: f64,
    /// What cos and sin are multiplied by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_factor: Option<f64>,
    /// The same in runs of up to L positions, as `PhiMoE` has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_mscale: Option<f64>,
    /// The same in longer runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long_mscale: Option<f64>,
}

impl Longrope {
    /// Whether a run of so many positions is long.
    pub fn is_long(&self, positions: usize) -> bool {
        positions > self.original_max_position_embeddings
    }

    fn attention_factor(&self, positions: usize) -> f64 {
        let own = if self.is_long(positions) { self.long_mscale } else { self.short_mscale };
        let trained = self.original_max_position_embeddings as f64;
        own.or(self.attention_factor).unwrap_or_else(|| {
            let by = || (1.0 + self.factor.ln() / trained.ln()).sqrt();
            if self.factor > 1.0 { by() } else { 1.0 }
        })
    }
}

/// The keys of [`RopeScaling::Llama3`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Llama3 {
    /// What low frequencies are divided by.
    pub factor: f64,
    /// The number of positions that the model was trained with first, L.
    pub original_max_position_embeddings: usize,
    /// A frequency is low if its wave length is more than L / `low_freq_factor`.
    pub low_freq_factor: f64,
    /// A frequency is high if its wave length is less than L / `high_freq_factor`.
    pub high_freq_factor: f64,
}

/// The keys of [`RopeScaling::Yarn`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Yarn {
    /// What low frequencies are divided by: s, in the paper.
    pub factor: f64,
    /// The number of positions that the model was trained with first: L.
    pub original_max_position_embeddings: usize,
    /// A frequency is high if it makes more turns than this in L positions: β, 32 unless stated.
    pub beta_fast: f64,
    /// A frequency is low if it makes fewer turns than this in L positions: α, 1 unless stated.
    pub beta_slow: f64,
    /// What cos and sin are multiplied by; follows from `factor` unless stated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attention_factor: Option<f64>,
    /// Multiplies the logarithm in the numerator of the attention factor, beside `mscale_all_dim`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale: Option<f64>,
    /// Multiplies the logarithm in the denominator of the attention factor, beside `mscale`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mscale_all_dim: Option<f64>,
    /// Whether the ramp begins and ends at whole features: true unless stated.
    pub truncate: bool,
}

impl RopeScaling {
    /// The name of the kind.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Linear { .. } => "linear",
            Self::Dynamic { .. } => "dynamic",
            Self::Llama3(_) => "llama3",
            Self::Yarn(_) => "yarn",
            Self::Longrope(_) => "longrope",
            Self::Proportional(_) => "proportional",
        }
    }

    /// What cos and sin are multiplied by in a run of so many positions: 1, but for `yarn` and `longrope`.
    ///
    /// Of `longrope` it is what is stated, or √(1 + ln s / ln L) where s is more than 1 ("`LongRoPE`", Ding et al., 2024,
    /// as Phi-3's code has it). Of `yarn` it is what is stated, or 0.1 · ln(factor) + 1 ("`YaRN`", Peng et al., 2023, section 3.4). With `mscale` and
    /// `mscale_all_dim` it is (0.1 · mscale · ln(factor) + 1) / (0.1 · `mscale_all_dim` · ln(factor) + 1), as in
    /// `DeepSeek`-V2's code. As in `transformers`, one of the two without the other, or beside a 0, does nothing.
    pub fn attention_factor(&self, positions: usize) -> f64 {
        let yarn = match self {
            Self::Yarn(yarn) => yarn,
            Self::Longrope(own) => return own.attention_factor(positions),
            _ => return 1.0,
        };
        let of = |mscale: f64| {
            if yarn.factor <= 1.0 { 1.0 } else { 0.1 * mscale * yarn.factor.ln() + 1.0 }
        };
        match (yarn.attention_factor, yarn.mscale, yarn.mscale_all_dim) {
            (Some(stated), ..) => stated,
            (None, Some(mscale), Some(all)) if mscale != 0.0 && all != 0.0 => of(mscale) / of(all),
            _ => of(1.0),
        }
    }
}
