//! The values that single settings take.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::bare_words::NEGATIVE_INFINITY;

macro_rules! choices {
    ($(#[$about:meta])* $name:ident { $($(#[$variant_about:meta])* $variant:ident = $text:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_about])* #[serde(rename = $text)] $variant),+ }

        impl $name {
            /// Every choice.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The name that flags and configs use.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(super) use choices;

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
    /// Which features of a head rotary positions turn together ("`RoFormer`", Su et al., 2021, section 3.4).
    Rope {
        /// i and i + r/2 of the r that are rotated, as in Llama and GPT-NeoX.
        #[default]
        Half = "half",
        /// 2i and 2i + 1, as in the paper and in GPT-J.
        Interleaved = "interleaved",
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
        /// The soft cap.
        Softcap = "softcap",
        /// A scale other than 1/√`d_k`.
        Scale = "scale",
        /// Position biases.
        Alibi = "alibi",
    }
}

choices! {
    /// How the heads' queries and keys are normalised.
    QkNorm {
        /// To a root mean square of 1, times a weight a feature ("Root Mean Square Layer Normalization", Zhang and
        /// Sennrich, 2019).
        #[default]
        Rms = "rms",
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
    /// What softmax makes of a row that is −∞ throughout.
    EmptyRows {
        /// NaN, as PyTorch's softmax.
        #[default]
        Nan = "nan",
        /// Zeros.
        Zero = "zero",
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
            Err(_) => Err(format!("seed {number} is outside −2^63 … 2^64 − 1")),
        }
    }
}

impl FromStr for Seed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.parse::<i128>().map_err(|_| format!("`{text}` is not a whole number"))?;
        Self::try_from(number)
    }
}

impl<'de> Deserialize<'de> for Seed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Seed;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
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

/// What a masked score becomes: a number or −∞.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fill(pub f64);

impl Default for Fill {
    fn default() -> Self {
        Self(-1e9)
    }
}

impl fmt::Display for Fill {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size.is_finite() && (size >= 1e5 || (size > 0.0 && size < 1e-4)) {
            write!(f, "{:e}", self.0)
        } else {
            write!(f, "{}", self.0)
        }
    }
}

impl FromStr for Fill {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim().parse::<f64>() {
            Ok(fill) if !fill.is_nan() => Ok(Self(fill)),
            _ => Err(format!("`{text}` is neither a number nor -inf")),
        }
    }
}

impl Serialize for Fill {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.collect_str(self)
        }
    }
}

impl<'de> Deserialize<'de> for Fill {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Fill;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or \"-inf\"")
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Fill, E> {
                Ok(Fill(value))
            }
            #[allow(clippy::cast_precision_loss, reason = "a fill is a floating-point number")]
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Fill, E> {
                Ok(Fill(value as f64))
            }
            #[allow(clippy::cast_precision_loss, reason = "a fill is a floating-point number")]
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Fill, E> {
                Ok(Fill(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Fill, E> {
                let word = if value == NEGATIVE_INFINITY { "-inf" } else { value };
                word.parse().map_err(E::custom)
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

    #[test]
    fn a_fill_reads_and_prints_shortly() {
        for (text, shown) in
            [("-1e9", "-1e9"), ("-inf", "-inf"), ("0", "0"), ("-10000", "-10000"), ("1e-9", "1e-9")]
        {
            assert_eq!(text.parse::<Fill>().expect("reads").to_string(), shown);
        }
        assert!("nan".parse::<Fill>().is_err());
        assert_eq!(serde_json::from_str::<Fill>("-5").ok(), Some(Fill(-5.0)));
    }
}
