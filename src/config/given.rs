//! What is refused beside queries, keys and values, or scores, that a run is given to start at.

use super::check::refuse;
use super::{Setting, Settings, Start};
use base::error::Result;

/// What stands before given scores.
const BEFORE_SCORES: [&str; 8] = ["x", "memory", "memory_v", "q", "k", "v", "weights", "past"];

/// What a run that starts at its scores does not come to.
const BESIDE_SCORES: [&str; 11] = [
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
];

/// Refuses what a run that starts at what it is given does not come to.
pub(super) fn check(s: &Settings) -> Result<()> {
    let is_set = |key: &&str| Setting::named(key).is_some_and(|setting| setting.is_set(s));
    if s.q.is_some() {
        if let Some(missing) = ["k", "v"].iter().find(|key| !is_set(key)) {
            let what = tr!("q is given, and {missing} is not", missing);
            return refuse(what, tr!("give `{missing}=FILE` too", missing));
        }
        if let Some(other) = ["x", "memory", "memory_v"].iter().find(|key| is_set(key)) {
            let what = tr!("{other} is given, and so is q, at which the run starts", other);
            return refuse(what, tr!("leave out {other}, or q, k and v", other));
        }
        if s.start == Some(Start::Inputs) {
            return refuse("q is given, and start is inputs", "leave one of the two out");
        }
    }
    if s.scores.is_some() {
        if let Some(other) = BEFORE_SCORES.iter().find(|key| is_set(key)) {
            let what = tr!("{other} is given, and so are scores, at which the run starts", other);
            return refuse(what, tr!("leave out {other}, or scores", other));
        }
        if let Some(other) = BESIDE_SCORES.iter().find(|key| is_set(key)) {
            let what =
                tr!("{other} is of queries, keys or values, and the scores are given", other);
            return refuse(what, tr!("leave out {other}, or scores", other));
        }
        if s.start.is_some_and(|start| start != Start::Scores) {
            return refuse("scores are given, and the run starts elsewhere", "leave out start");
        }
    }
    Ok(())
}
