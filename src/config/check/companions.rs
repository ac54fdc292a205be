//! What is refused of settings before they are resolved: what says more of another that is absent, or contradicts it.

use crate::choice::{AttnMaskTrue, Start};
use crate::settings::{Setting, Settings};
use base::error::{Result, quoted, refuse};

/// Refuses settings that say something of another one that is absent.
pub fn companions(s: &Settings) -> Result<()> {
    if s.attn_mask.is_none() && s.attn_mask_true == Some(AttnMaskTrue::Block) {
        let what = tr!("attn_mask_true is block, but there is no attn_mask");
        return refuse(what, "give attn_mask, or leave attn_mask_true out");
    }
    for setting in Setting::ALL.iter().filter(|setting| setting.is_set(s)) {
        // Those scale queries too.
        let is_used = setting.key == "positions" && s.q_temperature.is_some();
        if let Some(needed) = setting.of.filter(|_| !is_used)
            && Setting::named(needed).is_some_and(|needed| !needed.is_set(s))
        {
            let name = setting.key;
            let what = tr!("`{name}` needs `{needed}`, which is not set", name, needed);
            return refuse(what, tr!("give `{needed}`, or leave `{name}` out", needed, name));
        }
    }
    starts(s)?;
    if s.rope_scaling.is_some() && s.rope_freqs.is_some() {
        let what = tr!(
            "rope_scaling changes the frequencies, but rope_freqs already gives the final ones"
        );
        return refuse(what, "leave one of the two out");
    }
    if let Some(path) = &s.model_config {
        let what = tr!("model_config {path} has not been read", path = quoted(&path.0));
        return refuse(what, "complete the settings by it first");
    }
    Ok(())
}

/// What stands before given scores.
const BEFORE_SCORES: [&str; 8] = ["x", "memory", "memory_v", "q", "k", "v", "weights", "past"];

/// What a run that starts at its scores does not come to.
const BESIDE_SCORES: [&str; 13] = [
    "add_bias_kv",
    "add_zero_attn",
    "rope",
    "qk_norm",
    "v_norm",
    "clip_qkv",
    "value_scale",
    "q_temperature",
    "gate",
    "concat_norm",
    "kv_lora_rank",
    "lambda_init",
    "disentangled",
];

/// Refuses what a run that starts at what it is given does not come to.
fn starts(s: &Settings) -> Result<()> {
    let is_set = |key: &&str| Setting::named(key).is_some_and(|setting| setting.is_set(s));
    if s.q.is_some() {
        if let Some(missing) = ["k", "v"].iter().find(|key| !is_set(key)) {
            let what = tr!("q is given, but {missing} is not", missing);
            return refuse(what, tr!("give `{missing}=FILE` too", missing));
        }
        if let Some(other) = ["x", "memory", "memory_v"].iter().find(|key| is_set(key)) {
            let what = tr!(
                "{other} is given, but the run starts at the given q and does not use it",
                other
            );
            return refuse(what, tr!("leave out {other}, or q, k and v", other));
        }
        if s.start == Some(Start::Inputs) {
            return refuse("q is given, but start is inputs", "leave one of the two out");
        }
    }
    if s.scores.is_some() {
        if let Some(other) = BEFORE_SCORES.iter().find(|key| is_set(key)) {
            let what = tr!(
                "{other} is given, but the run starts at the given scores and does not use it",
                other
            );
            return refuse(what, tr!("leave out {other}, or scores", other));
        }
        if let Some(other) = BESIDE_SCORES.iter().find(|key| is_set(key)) {
            let what = tr!(
                "{other} changes queries, keys or values, but the run starts at the given scores",
                other
            );
            return refuse(what, tr!("leave out {other}, or scores", other));
        }
        if s.start.is_some_and(|start| start != Start::Scores) {
            return refuse(
                "scores are given, but start says that the run starts elsewhere",
                "leave out start",
            );
        }
    }
    Ok(())
}
