//! Reading how a checkpoint's config scales the frequencies of rotary positions.

use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

use super::ops::{Llama3, Longrope, Proportional, RopeScaling, Yarn};
use super::rope_keys::{ANYWHERE, EXAMPLE, KINDS, Keys, MAX, ORIGINAL_MAX, kinds};
use base::error::quoted;
use base::lang;

const ANY_FREQUENCIES: &str = "`rope_freqs=FILE` takes any frequencies, and `rope_attention_factor` the factor of cos and sin";

impl RopeScaling {
    fn of(keys: &Keys) -> Result<Self, String> {
        let kind = keys.kind()?;
        let Some((kind, takes)) = KINDS.into_iter().find(|(name, _)| *name == kind) else {
            return Err(tr!(
                "rope_type {kind} is none of {kinds}: {ANY_FREQUENCIES}",
                kind = quoted(kind),
                kinds = kinds(),
                ANY_FREQUENCIES = lang::text(ANY_FREQUENCIES)
            ));
        };
        let other =
            |key: &&String| !takes.contains(&key.as_str()) && !ANYWHERE.contains(&key.as_str());
        if let Some(key) = keys.0.keys().find(other) {
            let known = if takes.is_empty() { "none".to_owned() } else { lang::list(takes) };
            let key = quoted(key);
            return Err(tr!(
                "rope_type {kind} has no key {key}; its keys are {known}: leave {key} out, or if it changes the \
                 frequencies, {ANY_FREQUENCIES}",
                kind,
                key,
                known,
                ANY_FREQUENCIES = lang::text(ANY_FREQUENCIES)
            ));
        }
        Ok(match kind {
            "linear" => Self::Linear { factor: keys.required(kind, "factor")? },
            "dynamic" => Self::Dynamic {
                factor: keys.required(kind, "factor")?,
                max_position_embeddings: keys.positions(kind, MAX, ORIGINAL_MAX)?,
            },
            "llama3" => Self::Llama3(Llama3::of(kind, keys)?),
            "yarn" => Self::Yarn(Yarn::of(kind, keys)?),
            "longrope" => Self::Longrope(Longrope::of(kind, keys)?),
            "proportional" => Self::Proportional(Proportional::of(kind, keys)?),
            _ => Self::Default,
        })
    }
}

impl Llama3 {
    fn of(kind: &str, keys: &Keys) -> Result<Self, String> {
        let scaling = Self {
            factor: keys.required(kind, "factor")?,
            original_max_position_embeddings: keys.positions(kind, ORIGINAL_MAX, MAX)?,
            low_freq_factor: keys.required(kind, "low_freq_factor")?,
            high_freq_factor: keys.required(kind, "high_freq_factor")?,
        };
        let Self { low_freq_factor: low, high_freq_factor: high, .. } = scaling;
        if high > low {
            return Ok(scaling);
        }
        Err(tr!(
            "rope_type {kind}: high_freq_factor {high} is not above low_freq_factor {low}: give such as 4.0 and 1.0",
            kind,
            high,
            low
        ))
    }
}

impl Yarn {
    fn of(kind: &str, keys: &Keys) -> Result<Self, String> {
        let original_max_position_embeddings = keys.positions(kind, ORIGINAL_MAX, MAX)?;
        let factor = match (keys.positive(kind, "factor")?, keys.whole(kind, MAX)?) {
            (Some(factor), _) => factor,
            (None, Some(max)) => max as f64 / original_max_position_embeddings as f64,
            (None, None) => keys.required(kind, "factor")?,
        };
        let beta_fast = keys.positive(kind, "beta_fast")?.unwrap_or(32.0);
        let beta_slow = keys.positive(kind, "beta_slow")?.unwrap_or(1.0);
        if beta_fast < beta_slow {
            return Err(tr!(
                "rope_type {kind}: beta_fast {beta_fast} is below beta_slow {beta_slow}: give such as 32 and 1",
                kind,
                beta_fast,
                beta_slow
            ));
        }
        Ok(Self {
            factor,
            original_max_position_embeddings,
            beta_fast,
            beta_slow,
            attention_factor: keys.positive(kind, "attention_factor")?,
            mscale: keys.not_negative(kind, "mscale")?,
            mscale_all_dim: keys.not_negative(kind, "mscale_all_dim")?,
            truncate: keys.truncate(kind)?,
        })
    }
}

impl Longrope {
    fn of(kind: &str, keys: &Keys) -> Result<Self, String> {
        let original_max_position_embeddings = keys.positions(kind, ORIGINAL_MAX, MAX)?;
        let times = |max: usize| max as f64 / original_max_position_embeddings as f64;
        let factor = keys.positive(kind, "factor")?.or(keys.whole(kind, MAX)?.map(times));
        let (short_factor, long_factor) =
            (keys.factors(kind, "short_factor")?, keys.factors(kind, "long_factor")?);
        if short_factor.len() != long_factor.len() {
            let (short, long) = (short_factor.len(), long_factor.len());
            return Err(tr!(
                "rope_type {kind}: long_factor has {long} numbers and short_factor has {short}: give one a pair in both",
                kind,
                long,
                short
            ));
        }
        Ok(Self {
            short_factor,
            long_factor,
            original_max_position_embeddings,
            factor: factor.unwrap_or(1.0),
            attention_factor: keys.positive(kind, "attention_factor")?,
            short_mscale: keys.positive(kind, "short_mscale")?,
            long_mscale: keys.positive(kind, "long_mscale")?,
        })
    }
}

impl Proportional {
    fn of(kind: &str, keys: &Keys) -> Result<Self, String> {
        let partial_rotary_factor = keys.positive(kind, "partial_rotary_factor")?.unwrap_or(1.0);
        if partial_rotary_factor > 1.0 {
            return Err(tr!(
                "rope_type {kind}: partial_rotary_factor is {partial_rotary_factor}: give a part, at most 1",
                kind,
                partial_rotary_factor
            ));
        }
        let factor = keys.positive(kind, "factor")?.unwrap_or(1.0);
        Ok(Self { partial_rotary_factor, factor })
    }
}

impl FromStr for RopeScaling {
    type Err = String;

    /// Reads JSON text.
    fn from_str(text: &str) -> Result<Self, String> {
        let keys: Keys = serde_json::from_str(text).map_err(|error| {
            let what = if error.is_data() { tr!("no such object") } else { tr!("not JSON") };
            tr!(
                "{what} ({error}): give an object, such as {EXAMPLE}",
                what,
                error = quoted(&error.to_string()),
                EXAMPLE
            )
        })?;
        Self::of(&keys)
    }
}

impl<'de> Deserialize<'de> for RopeScaling {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Keys::deserialize(deserializer)?;
        Self::of(&keys).map_err(|what| de::Error::custom(format!("rope_scaling: {what}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LLAMA_3_1: &str = r#"{"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3"}"#;

    fn read(text: &str) -> RopeScaling {
        text.parse().expect("reads")
    }

    fn refusal(text: &str) -> String {
        text.parse::<RopeScaling>().expect_err("must be refused")
    }

    #[test]
    fn checkpoints_configs_read() {
        let llama = Llama3 {
            factor: 8.0,
            original_max_position_embeddings: 8192,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
        };
        assert_eq!(read(LLAMA_3_1), RopeScaling::Llama3(llama));
        let yarn = Yarn {
            factor: 4.0,
            original_max_position_embeddings: 32768,
            beta_fast: 32.0,
            beta_slow: 1.0,
            attention_factor: None,
            mscale: None,
            mscale_all_dim: None,
            truncate: true,
        };
        let qwen = r#"{"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}"#;
        assert_eq!(read(qwen), RopeScaling::Yarn(yarn));
        let five = r#"{"rope_theta": 10000.0, "rope_type": "default"}"#;
        assert_eq!(read(five), RopeScaling::Default);
        assert_eq!(read(r#"{"rope_theta": 10000.0}"#), RopeScaling::Default);
        let both = r#"{"rope_type": "linear", "type": "linear", "factor": 2, "partial_rotary_factor": 0.5}"#;
        assert_eq!(read(both), RopeScaling::Linear { factor: 2.0 });
    }

    #[test]
    fn what_is_written_reads_as_the_same() {
        for text in [
            LLAMA_3_1,
            "{}",
            r#"{"type": "linear", "factor": 2.5}"#,
            r#"{"type": "dynamic", "factor": 2, "original_max_position_embeddings": 2048.0}"#,
            r#"{"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096, "mscale": 0.707,
                "mscale_all_dim": 0, "truncate": false, "attention_factor": null}"#,
            r#"{"type": "longrope", "short_factor": [1, 1.5], "long_factor": [2.5, 7], "max_position_embeddings": 64,
                "original_max_position_embeddings": 16}"#,
            r#"{"type": "longrope", "short_factor": [1], "long_factor": [7], "original_max_position_embeddings": 16,
                "short_mscale": 1.2, "long_mscale": 1.3}"#,
            r#"{"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0}"#,
        ] {
            let scaling = read(text);
            let written = serde_json::to_string(&scaling).expect("serialises");
            assert_eq!(read(&written), scaling);
            assert_eq!(serde_json::from_str::<RopeScaling>(&written).expect("reads"), scaling);
        }
        let linear = RopeScaling::Linear { factor: 4.0 };
        assert_eq!(
            serde_json::to_string(&linear).ok().as_deref(),
            Some(r#"{"rope_type":"linear","factor":4.0}"#)
        );
    }

    #[test]
    fn the_models_positions_stand_in_as_in_transformers() {
        let dynamic = RopeScaling::Dynamic { factor: 2.0, max_position_embeddings: 4096 };
        for keys in [
            r#""max_position_embeddings": 4096"#,
            r#""original_max_position_embeddings": 4096"#,
            r#""original_max_position_embeddings": 2048, "max_position_embeddings": 4096"#,
        ] {
            let text = format!(r#"{{"rope_type": "dynamic", "factor": 2, {keys}}}"#);
            assert_eq!(read(&text), dynamic);
        }
        let ratio = r#"{"rope_type": "yarn", "factor": null, "original_max_position_embeddings": 4096,
            "max_position_embeddings": 163840}"#;
        let RopeScaling::Yarn(yarn) = read(ratio) else { panic!("another kind") };
        assert_eq!((yarn.factor, yarn.original_max_position_embeddings), (40.0, 4096));
        assert_eq!(
            refusal(r#"{"rope_type": "dynamic", "factor": 2.0}"#),
            "rope_type dynamic: max_position_embeddings is missing: give it, the number of positions that the model \
             was trained with; a checkpoint that leaves it out here has max_position_embeddings in its config.json"
        );
    }

    #[test]
    fn other_kinds_are_pointed_to_the_frequencies_themselves() {
        assert_eq!(
            refusal(r#"{"type": "su", "short_factor": [1.0], "long_factor": [2.0]}"#),
            "rope_type su is none of default, linear, dynamic, llama3, yarn, longrope, proportional: \
             `rope_freqs=FILE` takes any frequencies, and `rope_attention_factor` the factor of cos and sin"
        );
    }

    #[test]
    fn keys_are_refused_by_name() {
        for (text, names) in [
            (r#"{"type": "linear"}"#, "rope_type linear: factor is missing"),
            (r#"{"type": "linear", "factor": null}"#, "factor is missing"),
            (r#"{"type": "linear", "factor": 0}"#, "factor is 0: give a number above 0"),
            (r#"{"type": "linear", "factor": 1e-60}"#, "factor is 1e-60: give a number above 0"),
            (
                r#"{"type": "linear", "factor": 1e60}"#,
                "factor is 1e+60: give a number above 0 that fits",
            ),
            (r#"{"type": "linear", "factor": "8"}"#, r#"factor is "8": give a number above 0"#),
            (r#"{"type": "linear", "factor": [8]}"#, "factor is a list"),
            (r#"{"type": "linear", "factor": 8, "factor": 8}"#, "factor is stated twice"),
            (
                r#"{"type": "linear", "factor": 8, "alpha": 1}"#,
                "linear has no key alpha; its keys are factor",
            ),
            (
                r#"{"type": "default", "mrope_section": [1]}"#,
                "default has no key mrope_section; its keys are none",
            ),
            (r#"{"type": "yarn", "factor": 8}"#, "original_max_position_embeddings is missing"),
            (r#"{"type": "yarn", "original_max_position_embeddings": 8}"#, "factor is missing"),
            (
                r#"{"type": "yarn", "factor": 8, "original_max_position_embeddings": 8.5}"#,
                "original_max_position_embeddings is 8.5: give a whole number of positions",
            ),
            (
                r#"{"type": "yarn", "factor": 8, "original_max_position_embeddings": 8, "beta_fast": 0.5}"#,
                "beta_fast 0.5 is below beta_slow 1",
            ),
            (
                r#"{"type": "yarn", "factor": 8, "original_max_position_embeddings": 8, "mscale": -1}"#,
                "mscale is -1: give a number from 0 on",
            ),
            (
                r#"{"type": "yarn", "factor": 8, "original_max_position_embeddings": 8, "truncate": null}"#,
                "truncate is null: give true or false",
            ),
            (
                r#"{"type": "llama3", "factor": 8, "original_max_position_embeddings": 8, "low_freq_factor": 4,
                    "high_freq_factor": 4}"#,
                "high_freq_factor 4 is not above low_freq_factor 4",
            ),
            (
                r#"{"type": "longrope", "factor": 8, "original_max_position_embeddings": 8, "short_factor": 1,
                    "long_factor": [1]}"#,
                "longrope: short_factor is 1: give a list of numbers above 0",
            ),
            (
                r#"{"type": "longrope", "factor": 8, "original_max_position_embeddings": 8, "short_factor": [1, 2],
                    "long_factor": [1]}"#,
                "longrope: long_factor has 1 numbers and short_factor has 2",
            ),
            (
                r#"{"type": "proportional", "partial_rotary_factor": 1.5}"#,
                "partial_rotary_factor is 1.5: give a part",
            ),
            (r#"{"type": "linear", "rope_type": "yarn"}"#, "rope_type is yarn and type is linear"),
            (r#"{"type": 3}"#, "type is 3, not a word: give one of default"),
            (r#"{"factor": 3}"#, "there is no rope_type: give one of default"),
            (r#"{"full_attention": {"rope_type": "default"}}"#, "full_attention is an object"),
        ] {
            let refusal = refusal(text);
            assert!(refusal.contains(names), "{text}: {refusal}");
        }
    }

    #[test]
    fn what_is_no_object_is_told_what_to_give() {
        assert_eq!(
            refusal("linear"),
            "not JSON (expected value at line 1 column 1): give an object, such as \
             {\"rope_type\": \"linear\", \"factor\": 4.0}"
        );
        assert!(refusal("").starts_with("not JSON (EOF"));
        for text in ["4.0", "\"linear\"", "[]", "null"] {
            assert!(
                refusal(text).starts_with("no such object (invalid type: "),
                "{}",
                refusal(text)
            );
        }
        let error = serde_json::from_str::<RopeScaling>(r#"{"type": "su"}"#).expect_err("refused");
        assert!(error.to_string().starts_with("rope_scaling: rope_type su is none of"));
    }
}
