//! What is said of the families that are known, and of a config that is of none of them.

use std::collections::HashSet;

use serde_json::Value;

use super::families::FAMILIES;
use super::family::{Family, Part, Sees, Sinks, When};
use super::keys::Config;
use super::{Model, part, refused};
use base::error::{Error, quoted};
use config::Settings;

/// A family of models that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its `model_type`s.
    pub types: &'static [&'static str],
    /// Where its layers stand in a checkpoint, with `{}` for the number of the layer.
    pub paths: Vec<&'static str>,
    /// What its layers have, in a few words.
    pub has: Vec<&'static str>,
}

/// Every family that is known.
pub fn known() -> Vec<Known> {
    FAMILIES.iter().map(Known::of).collect()
}

impl Known {
    fn of(family: &Family) -> Self {
        let is = |when: When| !matches!(when, When::Never);
        let sees = |wanted: fn(&Sees) -> bool| family.parts.iter().any(|part| wanted(&part.sees));
        let has = [
            (tr!("causal"), sees(|sees| matches!(sees, Sees::Past | Sees::PastUnlessMasked(_)))),
            (tr!("bidirectional"), sees(|sees| matches!(sees, Sees::All | Sees::PastIf(_)))),
            (tr!("cross attention"), sees(|sees| matches!(sees, Sees::Memory))),
            (tr!("grouped keys"), !matches!(family.kv_heads, super::KeyHeads::AsQueries)),
            (tr!("biases"), is(family.bias)),
            (tr!("QK norm"), family.norm.is_some()),
            (tr!("rotary"), family.rope.is_some()),
            ("ALiBi", is(family.alibi)),
            (tr!("relative biases"), family.relative.is_some()),
            (tr!("scale"), !matches!(family.scale, super::Scale::Root)),
            (tr!("soft cap"), family.softcap.is_some()),
            (tr!("window"), family.window.is_some()),
            (tr!("chunks"), family.chunk.is_some()),
            (tr!("sinks"), family.sinks != Sinks::None),
        ];
        Self {
            types: family.types,
            paths: family.parts.iter().map(|part| part.path).collect(),
            has: has.into_iter().filter_map(|(name, is)| is.then_some(name)).collect(),
        }
    }
}

/// Families whose build most others have. Where several are about as near, the first of these is meant.
const COMMON: [&str; 6] = ["llama", "mistral", "qwen2", "bert", "gpt2", "bart"];
/// The same, of what has no text.
const COMMON_WITHOUT_TEXT: [&str; 1] = ["vit"];

/// A key of the family that the config lacks has its default.
const LACKED: usize = 2;
/// A key that the family does not know may change what is computed.
const UNKNOWN: usize = 5;
/// A common family may lack two keys more than a rare one.
const RARE: usize = 2 * LACKED;

/// The family whose keys the config shares the most of: every key of any family that one of the two lacks counts against
/// it.
fn nearest(config: &Config) -> Option<&'static Family> {
    let vocabulary: HashSet<&str> = FAMILIES.iter().flat_map(Family::keys).collect();
    let stated: HashSet<&str> =
        vocabulary.into_iter().filter(|key| config.keys.contains_key(*key)).collect();
    let has = |names: &[&str]| names.iter().any(|name| stated.contains(name));
    let no_text = has_no_text(config);
    let common: &[&str] = if no_text { &COMMON_WITHOUT_TEXT } else { &COMMON };
    // Pictures and sounds have no order of reading, and tokens of several types are those of an encoder.
    let sees_all = no_text || config.keys.contains_key("type_vocab_size");
    let distance = |family: &&Family| {
        let own: HashSet<&str> = family.keys().into_iter().collect();
        let shared = own.intersection(&stated).count();
        let apart = LACKED * (own.len() - shared) + UNKNOWN * (stated.len() - shared);
        let rank = common.iter().position(|name| *name == family.name());
        let rarity = if rank.is_some() { 0 } else { RARE };
        (apart + rarity, rank.unwrap_or(common.len()))
    };
    let turns = has(&["rope_parameters", "rope_theta", "rope_scaling"]);
    let may_be = |family: &&Family| {
        has(family.width)
            && has(family.heads)
            && (family.rope.is_some() || !turns)
            && !(sees_all && matches!(family.parts, [Part { sees: Sees::Past, .. }, ..]))
    };
    FAMILIES.iter().filter(may_be).min_by_key(distance)
}

/// Whether it is of pictures or sounds alone.
fn has_no_text(config: &Config) -> bool {
    let has = |keys: &[&str]| keys.iter().any(|key| config.keys.contains_key(*key));
    has(&["image_size", "patch_size", "num_channels", "num_mel_bins"]) && !has(&["vocab_size"])
}

/// A family that is not known is not guessed at: what its config says to the family that it looks like is told as flags.
pub(super) fn error(config: &Config, text: &Config, kind: &str, layer: Option<usize>) -> Error {
    let of_text = text.get("model_type").and_then(Value::as_str).unwrap_or_default();
    for named in [kind, of_text] {
        if let Some((why, fix)) = refused::why(named) {
            let what = tr!(
                "has model_type {kind}: {why}, which is not supported",
                kind = quoted(named),
                why
            );
            return Error::file(&config.path, what, fix);
        }
    }
    let kind = if kind.is_empty() {
        tr!("has no model_type").to_owned()
    } else {
        tr!("has model_type {kind}, which is not known", kind = quoted(kind))
    };
    let settings = nearest(text).and_then(|family| {
        let part = part(text, family, layer, None).ok().or(family.parts.last().copied())?;
        let config = Config::new(&text.path, text.keys.clone());
        Some((
            family.name(),
            Model { config, family, part, layer, has_shared: false, has_bias: false }
                .settings()
                .ok()?,
        ))
    });
    let Some((name, settings)) = settings else {
        let fix = tr!(
            "describe the model by flags, such as `heads=N`, and choose the layer by `prefix`; `mha-trace models` lists the models that are known"
        );
        return Error::file(&config.path, kind, fix);
    };
    let settings = Settings { prefix: None, packing: None, ..settings }.to_json();
    let told = settings.as_object().into_iter().flatten().filter_map(|(key, value)| match value {
        Value::Bool(true) => Some(format!("`{key}`")),
        Value::Bool(false) | Value::Null => None,
        Value::String(word) => Some(format!("`{key}={}`", quoted(word))),
        other => Some(format!("`{key}={other}`")),
    });
    let told: Vec<String> = told.collect();
    let fix = tr!(
        "it looks like {name}: try `model_family={name}`, or describe the model by flags and choose the layer by `prefix`; read as {name}, its config says {told}",
        name,
        told = told.join(" ")
    );
    Error::file(&config.path, kind, fix)
}
