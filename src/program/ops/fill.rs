//! What a masked score becomes.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

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
            _ => Err(tr!("`{text}` is neither a number nor -inf", text)),
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
                f.write_str(tr!("a number or \"-inf\""))
            }
            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Fill, E> {
                Ok(Fill(value))
            }
            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Fill, E> {
                Ok(Fill(value as f64))
            }
            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Fill, E> {
                Ok(Fill(value as f64))
            }
            fn visit_str<E: de::Error>(self, value: &str) -> Result<Fill, E> {
                value.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fill_reads_and_prints_shortly() {
        for (text, shown) in [
            ("-1e9", "-1e9"),
            ("-inf", "-inf"),
            ("0", "0"),
            ("-10000", "-10000"),
            ("-99999", "-99999"),
            ("-100000", "-1e5"),
            ("0.0001", "0.0001"),
            ("0.00009", "9e-5"),
            ("1e-9", "1e-9"),
        ] {
            assert_eq!(text.parse::<Fill>().expect("reads").to_string(), shown);
        }
        assert!("nan".parse::<Fill>().is_err());
        assert_eq!(serde_json::from_str::<Fill>("-5").ok(), Some(Fill(-5.0)));
    }
}
