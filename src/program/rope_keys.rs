//! The keys of an object that says how frequencies are scaled: each stated once, known, and a number that fits.

use std::fmt;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use base::error::quoted;

/// Every kind, and the keys that it takes.
pub const KINDS: [(&str, &[&str]); 7] = [
    ("default", &[]),
    ("linear", &["factor"]),
    ("dynamic", &["factor", MAX, ORIGINAL_MAX]),
    ("llama3", &["factor", ORIGINAL_MAX, "low_freq_factor", "high_freq_factor"]),
    (
        "yarn",
        &[
            "factor",
            ORIGINAL_MAX,
            "beta_fast",
            "beta_slow",
            "attention_factor",
            "mscale",
            "mscale_all_dim",
            "truncate",
        ],
    ),
    (
        "longrope",
        &[
            "factor",
            ORIGINAL_MAX,
            "short_factor",
            "long_factor",
            "attention_factor",
            "short_mscale",
            "long_mscale",
        ],
    ),
    ("proportional", &["factor"]),
];

/// Keys that may stand in any of them: the kind, and what is read elsewhere or stands in for a missing key.
pub const ANYWHERE: [&str; 5] = ["rope_type", "type", "rope_theta", "partial_rotary_factor", MAX];

pub const MAX: &str = "max_position_embeddings";
pub const ORIGINAL_MAX: &str = "original_max_position_embeddings";
pub const EXAMPLE: &str = r#"{"rope_type": "linear", "factor": 4.0}"#;
/// The keys of an object, each stated once.
pub struct Keys(pub Map<String, Value>);

impl Keys {
    /// The value of a key, if there is one that is not null.
    fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    /// What `rope_type` (or `type`) names. transformers 5 writes objects without one that hold a base only.
    pub fn kind(&self) -> Result<&str, String> {
        let give = || tr!("give one of {kinds}", kinds = kinds());
        let word = |key| match self.get(key) {
            None => Ok(None),
            Some(Value::String(kind)) => Ok(Some(kind.as_str())),
            Some(other) => Err(tr!(
                "{key} is {other}, not a word: {give}",
                key,
                other = told(other),
                give = give()
            )),
        };
        match (word("rope_type")?, word("type")?) {
            (Some(kind), Some(older)) if kind != older => {
                let (kind, older) = (quoted(kind), quoted(older));
                Err(tr!(
                    "rope_type is {kind} and type is {older}: give one of the two",
                    kind,
                    older
                ))
            }
            (Some(kind), _) | (None, Some(kind)) => Ok(kind),
            (None, None) => {
                if let Some((key, _)) = self.0.iter().find(|(_, value)| value.is_object()) {
                    let key = quoted(key);
                    return Err(tr!(
                        "{key} is an object: where each kind of layer has its own frequencies, give the object of the \
                         layer to be traced alone",
                        key
                    ));
                }
                match self.0.keys().find(|key| !ANYWHERE.contains(&key.as_str())) {
                    Some(_) => Err(tr!("there is no rope_type: {give}", give = give())),
                    None => Ok("default"),
                }
            }
        }
    }

    /// A number that fits, if stated.
    fn number(
        &self,
        kind: &str,
        key: &str,
        range: &str,
        fits: impl Fn(f64) -> bool,
    ) -> Result<Option<f64>, String> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if fits(number) => Ok(Some(number)),
            _ => Err(tr!(
                "rope_type {kind}: {key} is {value}: give {range}",
                kind,
                key,
                value = told(value),
                range
            )),
        }
    }

    /// A number above 0 in 32 bits, which the frequencies are computed in, if stated.
    pub fn positive(&self, kind: &str, key: &str) -> Result<Option<f64>, String> {
        self.number(kind, key, tr!("a number above 0 that fits in 32 bits"), |number| {
            number > 0.0 && is_normal(number)
        })
    }

    /// 0 or a number above it, if stated.
    pub fn not_negative(&self, kind: &str, key: &str) -> Result<Option<f64>, String> {
        let fits = |number: f64| number == 0.0 || (number > 0.0 && is_normal(number));
        self.number(kind, key, tr!("a number from 0 on that fits in 32 bits"), fits)
    }

    /// A number above 0 that has no default.
    pub fn required(&self, kind: &str, key: &str) -> Result<f64, String> {
        self.positive(kind, key)?.ok_or_else(|| {
            tr!("rope_type {kind}: {key} is missing: give it, as a number above 0", kind, key)
        })
    }

    /// A number of positions, if stated.
    pub fn whole(&self, kind: &str, key: &str) -> Result<Option<usize>, String> {
        const MOST: f64 = 9_007_199_254_740_992.0; // 2^53: farther than any float counts without gaps.
        let fits = |number: f64| number.fract() == 0.0 && (1.0..=MOST).contains(&number);
        let number =
            self.number(kind, key, tr!("a whole number of positions, such as 8192"), fits)?;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole and in range"
        )]
        Ok(number.map(|number| number as usize))
    }

    /// A number of positions, for which another key stands in.
    pub fn positions(&self, kind: &str, key: &str, stand_in: &str) -> Result<usize, String> {
        match self.whole(kind, key)? {
            Some(positions) => Ok(positions),
            None => self.whole(kind, stand_in)?.ok_or_else(|| {
                tr!("rope_type {kind}: {key} is missing: give it, the number of positions that the model was trained \
                     with; a checkpoint that leaves it out here has max_position_embeddings in its config.json", kind, key)
            }),
        }
    }

    /// Numbers above 0 in 32 bits, one for every pair of features.
    pub fn factors(&self, kind: &str, key: &str) -> Result<Vec<f64>, String> {
        let Some(value) = self.get(key) else {
            return Err(tr!(
                "rope_type {kind}: {key} is missing: give a number for every pair",
                kind,
                key
            ));
        };
        let number =
            |value: &Value| value.as_f64().filter(|number| *number > 0.0 && is_normal(*number));
        let numbers = value.as_array().and_then(|all| all.iter().map(number).collect());
        numbers.ok_or_else(|| {
            tr!(
                "rope_type {kind}: {key} is {value}: give a list of numbers above 0",
                kind,
                key,
                value = told(value)
            )
        })
    }

    /// Whether the ramp's ends are whole. A null is no word for either: transformers takes it for false.
    pub fn truncate(&self, kind: &str) -> Result<bool, String> {
        match self.0.get("truncate") {
            None => Ok(true),
            Some(Value::Bool(truncate)) => Ok(*truncate),
            Some(other) => {
                let is = told(other);
                Err(tr!("rope_type {kind}: truncate is {is}: give true or false", kind, is))
            }
        }
    }
}

/// Whether a number is one in 32 bits too, neither 0 nor infinite there.
fn is_normal(number: f64) -> bool {
    #[allow(clippy::cast_possible_truncation, reason = "asks whether it fits")]
    let single = number as f32;
    single.is_normal()
}

/// The names of the kinds.
pub fn kinds() -> String {
    KINDS.map(|(name, _)| name).join(", ")
}

/// A value as a message tells it.
fn told(value: &Value) -> String {
    match value {
        Value::Array(_) => tr!("a list").to_owned(),
        Value::Object(_) => tr!("an object").to_owned(),
        short => quoted(&short.to_string()),
    }
}

impl<'de> Deserialize<'de> for Keys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Keys;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&tr!("an object such as {example}", example = EXAMPLE))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Keys, A::Error> {
                let mut keys = Map::new();
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    if keys.contains_key(&key) {
                        let key = quoted(&key);
                        return Err(de::Error::custom(tr!("{key} is stated twice", key)));
                    }
                    keys.insert(key, value);
                }
                Ok(Keys(keys))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}
