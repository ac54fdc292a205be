//! Which words single settings can be, and the seed.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, de};

use program::Name;

choices! {
    /// A notebook's whole setting, under its name.
    Preset {
        /// Causal attention over four tokens, seed 42: the default.
        #[default]
        CausalWalkthrough = "causal-walkthrough",
        /// Unmasked attention with biases, from 3 to 4 features, seed 123.
        Simple = "simple",
        /// Padding under −∞ with one item wholly padded: NaN rows. The notebook sets no seed.
        FormalPadding = "formal-padding",
        /// Padding under −∞ with a visible key in every item. The notebook sets no seed.
        FormalPaddingWeights = "formal-padding-weights",
    }
}

choices! {
    /// The distribution that X is drawn from.
    Input {
        /// Standard normal, `torch.randn`.
        #[default]
        Randn = "randn",
        /// Uniform in [0, 1), `torch.rand`.
        Rand = "rand",
    }
}

choices! {
    /// Which inputs are drawn before the weights.
    DrawInputs {
        /// Those that are missing, as a script does that has its own X.
        #[default]
        Missing = "missing",
        /// All of them; what is given takes its place afterwards.
        All = "all",
    }
}

choices! {
    /// The processor whose numbers PyTorch draws: of 16 and more normal numbers, the last bits depend on it.
    TorchCpu {
        /// x86-64 with AVX2 or AVX-512.
        #[default]
        X86 = "x86",
        /// `AArch64`. The last bits are those of the C library that runs, as they are in PyTorch: glibc's on Linux.
        Arm = "arm",
    }
}

choices! {
    /// How the weights are initialised.
    Init {
        /// `nn.init.xavier_uniform_` over freshly constructed `nn.Linear` modules.
        #[default]
        XavierUniform = "xavier-uniform",
        /// `nn.Linear`'s own initialisation.
        Linear = "linear",
    }
}

choices! {
    /// The mask between positions.
    Mask {
        /// A query attends to its own and earlier positions.
        #[default]
        Causal = "causal",
        /// Every query attends to every key.
        None = "none",
        /// What the mask says that was recorded, and nothing beside it; every key where none was.
        Recorded = "recorded",
    }
}

choices! {
    /// Where the diagonal of the causal mask starts when queries and keys differ in number.
    CausalAlign {
        /// The first query sees the first key, as `scaled_dot_product_attention`'s `is_causal` has it.
        TopLeft = "top-left",
        /// The last query sees the last key, as it must where the first keys come from a cache.
        #[default]
        BottomRight = "bottom-right",
    }
}

choices! {
    /// What a run can do without that a model's config, or a file's, says.
    Feature {
        /// Rotary positions, and all that is said of them.
        #[default]
        Rope = "rope",
        /// The norm of queries and keys.
        QkNorm = "qk-norm",
        /// The window.
        Window = "window",
        /// The chunks.
        Chunk = "chunk",
        /// The soft cap.
        Softcap = "softcap",
        /// A scale other than 1/√`d_k`.
        Scale = "scale",
        /// Position biases.
        Alibi = "alibi",
        /// Learned biases of relative positions.
        RelativeBias = "relative-bias",
        /// The terms of content and relative position.
        Disentangled = "disentangled",
        /// The scores that are no key's.
        Sinks = "sinks",
        /// Latents.
        KvLoraRank = "kv-lora-rank",
        /// The norm of values.
        VNorm = "v-norm",
        /// The limit of queries, keys and values.
        ClipQkv = "clip-qkv",
        /// The factor of values.
        ValueScale = "value-scale",
        /// The factors of queries by their positions.
        QTemperature = "q-temperature",
        /// The norm before the output projection.
        ConcatNorm = "concat-norm",
        /// The gate before the output projection.
        Gate = "gate",
    }
}

choices! {
    /// How the heads' queries and keys are normalised.
    QkNorm {
        /// To a root mean square of 1, times one weight per feature ("Root Mean Square Layer Normalization", Zhang and
        /// Sennrich, 2019).
        #[default]
        Rms = "rms",
        /// The same times 1 + the weight, as in Gemma 3.
        RmsPlusOne = "rms-plus-one",
        /// The same without a weight, as in nanochat.
        RmsNoWeight = "rms-no-weight",
        /// To a mean of 0 and a variance of 1, times a weight, plus a bias ("Layer Normalization", Ba et al., 2016).
        Layer = "layer",
        /// The same without the bias, as in `StableLM`.
        LayerNoBias = "layer-no-bias",
        /// To a length of 1, as kernels of the delta rule do: x / √(sum(x²) + ε), without a weight.
        L2 = "l2",
    }
}

impl QkNorm {
    /// Whether the mean is subtracted first.
    pub fn is_centred(self) -> bool {
        matches!(self, Self::Layer | Self::LayerNoBias)
    }

    /// Whether there is a weight.
    pub fn has_weight(self) -> bool {
        !matches!(self, Self::RmsNoWeight | Self::L2)
    }

    /// What is added to the weight.
    pub fn offset(self) -> f64 {
        if self == Self::RmsPlusOne { 1.0 } else { 0.0 }
    }
}

choices! {
    /// What a run computes in place of softmax: keys and values are written into a state, from which queries read.
    Recurrence {
        /// The state decays, by a number for each token and head ("Gated Delta Networks", Yang et al., 2024).
        #[default]
        GatedDelta = "gated-delta",
        /// It does not ("Parallelizing Linear Transformers with the Delta Rule", Yang et al., 2024).
        Delta = "delta",
        /// Each key feature of it decays by itself ("Kimi Linear", 2025).
        Kda = "kda",
    }
}

choices! {
    /// How values, or the heads side by side, are normalised.
    OtherNorm {
        /// To a root mean square of 1.
        #[default]
        Rms = "rms",
    }
}

choices! {
    /// What the gate before the output projection goes through.
    Gate {
        /// 1 / (1 + exp(−gate)) ("Gated Attention for Large Language Models", Qiu et al., 2025).
        #[default]
        Sigmoid = "sigmoid",
        /// ln(1 + exp(gate)), as in Laguna.
        Softplus = "softplus",
    }
}

choices! {
    /// What one norm of queries and keys runs over.
    NormOver {
        /// The features of a head, with one weight for all heads.
        #[default]
        Head = "head",
        /// The features of a head, every head with a weight of its own, as in Cohere's Command R+.
        PerHead = "per-head",
        /// The features of all heads, as in `OLMo` 2.
        All = "all",
    }
}

choices! {
    /// A term of the scores that is of content and relative position ("`DeBERTa`", He et al., 2021, section 3.1).
    PositionTerm {
        /// Content to position: of every query, with the key of each relative position.
        #[default]
        C2p = "c2p",
        /// Position to content: of every key, with the query of each relative position.
        P2c = "p2c",
    }
}

choices! {
    /// What a true (or 1) in a boolean attention mask means.
    AttnMaskTrue {
        /// The query attends to the key, as in `scaled_dot_product_attention`.
        #[default]
        Attend = "attend",
        /// The query is kept from the key, as in `nn.MultiheadAttention`.
        Block = "block",
    }
}

choices! {
    /// How one matrix of weights holds queries, keys and values.
    Packing {
        /// All queries, all keys, all values.
        #[default]
        Blocks = "blocks",
        /// Of every key head its query heads, itself and its value head, as in GPT-NeoX.
        Heads = "heads",
        /// Four blocks of queries, values and keys, as in `CodeGen`.
        Codegen = "codegen",
    }
}

choices! {
    /// Where a run starts: what is given to it in place of being computed.
    Start {
        /// X and the weights of the projections.
        #[default]
        Inputs = "inputs",
        /// Queries, keys and values (batch, token, heads · `head_dim`), not yet split into heads.
        Projections = "projections",
        /// Queries, keys and values of every head (batch, head, token, `head_dim`), as `scaled_dot_product_attention` has
        /// them.
        Heads = "heads",
        /// Dot products of queries and keys (batch, head, query, key).
        Scores = "scores",
    }
}

impl Start {
    /// The computed steps that are given: those of queries, keys and values, or the scores.
    pub fn given(self) -> &'static [Name] {
        match self {
            Self::Inputs => &[],
            Self::Projections => &[Name::Q, Name::K, Name::V],
            Self::Heads => &[Name::QHeads, Name::KHeads, Name::VHeads],
            Self::Scores => &[Name::ScoresRaw],
        }
    }
}

choices! {
    /// The last step of a run.
    End {
        /// The output projection.
        #[default]
        Output = "output",
        /// The heads side by side.
        Concat = "concat",
        /// The output of every head.
        Heads = "heads",
        /// The weights.
        Weights = "weights",
    }
}

impl End {
    /// Where runs end that start there, if nothing else is said.
    pub fn of(start: Start) -> Self {
        match start {
            Start::Inputs => Self::Output,
            Start::Projections => Self::Concat,
            Start::Heads => Self::Heads,
            Start::Scores => Self::Weights,
        }
    }

    /// The step.
    pub fn step(self) -> Name {
        match self {
            Self::Output => Name::Output,
            Self::Concat => Name::Concat,
            Self::Heads => Name::HeadOutputs,
            Self::Weights => Name::Weights,
        }
    }
}

choices! {
    /// The axes of queries, keys and values in files, by the letters that kernels use: b for batch items, s for tokens, h
    /// for heads, d for the features of a head.
    QkvFormat {
        /// (batch, head, token, feature), as `scaled_dot_product_attention` has them.
        #[default]
        Bhsd = "bhsd",
        /// (batch, token, head, feature), as `FlashAttention` has them.
        Bshd = "bshd",
        /// (token, batch, head, feature), as Megatron has them.
        Sbhd = "sbhd",
        /// (token, head, feature): the tokens of all documents in one row, as `flash_attn_varlen_func` has them.
        Thd = "thd",
    }
}

choices! {
    /// The type that everything is computed in.
    DType {
        /// 32-bit floating point.
        #[default]
        F32 = "f32",
        /// 64-bit floating point, from the same drawn 32-bit numbers.
        F64 = "f64",
    }
}

impl From<DType> for candle_core::DType {
    fn from(dtype: DType) -> Self {
        match dtype {
            DType::F32 => Self::F32,
            DType::F64 => Self::F64,
        }
    }
}

/// The seed of PyTorch's generator. −n, down to −2⁶³, means 2⁶⁴ − n, as `torch.manual_seed` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Seed(pub u64);

impl Default for Seed {
    fn default() -> Self {
        Self(42)
    }
}

impl TryFrom<i128> for Seed {
    type Error = String;

    fn try_from(number: i128) -> Result<Self, String> {
        if let Ok(seed) = u64::try_from(number) {
            return Ok(Self(seed));
        }
        match i64::try_from(number) {
            Ok(negative) => Ok(Self(negative.cast_unsigned())),
            Err(_) => Err(tr!("seed {number} is outside −2^63 … 2^64 − 1", number)),
        }
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number =
            text.parse::<i128>().map_err(|_| tr!("`{text}` is not a whole number", text))?;
        Self::try_from(number)
    }
}

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Seed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(tr!("a whole number"))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Seed, E> {
                Ok(Seed(value.cast_unsigned()))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Seed, E> {
                Ok(Seed(value))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_seeds_wrap_as_in_torch() {
        assert_eq!("-1".parse(), Ok(Seed(u64::MAX)));
        assert_eq!("-9223372036854775808".parse(), Ok(Seed(1 << 63)));
        assert!("-9223372036854775809".parse::<Seed>().is_err());
        assert_eq!(serde_json::from_str::<Seed>("-2").ok(), Some(Seed(u64::MAX - 1)));
        assert_eq!(serde_json::from_str::<Seed>("18446744073709551615").ok(), Some(Seed(u64::MAX)));
    }
}
