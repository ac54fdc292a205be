//! What a file holds of a kernel's other arguments: its scale, its mask, its lengths.

use std::collections::HashSet;
use std::sync::LazyLock;

use super::evidence::Evidence;
use super::found_mask::MASKS;
use super::matched::Match;
use super::names::{is_called, last_segment};
use super::numbers::{listed, numbers, written};
use base::error::{Error, Result, quoted};
use config::{Mask, QkNorm, Setting, Settings};
use file::{Entry, Record};
use program::{Name, Pairing, whole};
use serde_json::Value;

/// What a file says of a setting by numbers of its own: an argument that kernels take beside queries, keys and values, or
/// a number of a layer.
struct Argument {
    /// The setting that says the same.
    key: &'static str,
    /// The first step that another value makes another.
    step: Name,
    /// What code calls it, in lower case.
    names: &'static [&'static str],
    /// What the numbers say, as the setting's text, empty for nothing; `None` where they can say no such thing.
    text: fn(&[f64]) -> Option<String>,
}

/// The arguments of kernels: what they say holds where nothing states it.
const ARGUMENTS: &[Argument] = &[
    Argument {
        key: "scale",
        step: Name::Scores,
        names: &["scale", "softmax_scale", "sm_scale", "scaling"],
        text: number,
    },
    Argument {
        key: "softcap",
        step: Name::ScoresCapped,
        names: &["softcap", "logits_soft_cap", "attn_logit_softcapping"],
        text: above_0,
    },
    Argument { key: "qk_norm_eps", step: Name::QNorm, names: &["qk_norm_eps"], text: number },
    Argument {
        key: "qk_norm",
        step: Name::QNorm,
        names: &["use_qk_l2norm_in_kernel", "use_qk_l2norm", "qk_l2norm", "use_l2norm", "l2norm"],
        text: |numbers| match single(numbers)? {
            0.0 => Some(String::new()),
            _ => Some(QkNorm::L2.to_string()),
        },
    },
    Argument {
        key: "mask",
        step: Name::MaskedScores,
        names: &["is_causal", "causal"],
        text: |numbers| match single(numbers)? {
            0.0 => Some(Mask::None.to_string()),
            _ => Some(Mask::Causal.to_string()),
        },
    },
    Argument {
        key: "segments",
        step: Name::MaskedScores,
        names: &["cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q"],
        text: documents,
    },
    Argument {
        key: "segments",
        step: Name::MaskedScores,
        names: &["qo_indptr"],
        text: several_documents,
    },
    Argument {
        key: "key_segments",
        step: Name::MaskedScores,
        names: &["cu_seqlens_k", "cu_seqlens_kv", "cu_seq_lens_k"],
        text: documents,
    },
    Argument {
        key: "key_segments",
        step: Name::MaskedScores,
        names: &["kv_indptr"],
        text: several_documents,
    },
    Argument {
        key: "lengths",
        step: Name::MaskedScores,
        names: LENGTHS,
        text: |numbers| {
            let all = numbers.iter().map(|number| whole(*number));
            Some(listed(&all.collect::<Option<Vec<_>>>()?))
        },
    },
];

/// What the lengths of items are called, or of what stands in a cache for them.
pub const LENGTHS: &[&str] = &[
    "cache_seqlens",
    "cache_lens",
    "seqlens_k",
    "seqused_k",
    "nonpad_kv_seqlen",
    "context_lens",
    "lengths",
    "seq_lens",
    "kv_lens",
    "kv_seqlens",
];

/// What is called how many keys of padding stand in a cache before those of each item.
pub const LEFT_PADDING: &[&str] = &["cache_leftpad", "leftpad_k"];

/// What files say beside that: it holds where something else was stated, or the numbers fit nothing that was.
const SAID: &[Argument] = &[
    Argument {
        key: "heads",
        step: Name::QHeads,
        names: &["num_heads", "n_heads", "num_attention_heads"],
        text: count,
    },
    Argument {
        key: "kv_heads",
        step: Name::KHeads,
        names: &["num_key_value_heads", "num_kv_heads", "n_kv_heads", "num_heads_k"],
        text: count,
    },
    Argument { key: "head_dim", step: Name::QHeads, names: &["head_dim"], text: count },
    Argument {
        key: "rope",
        step: Name::QRot,
        names: &["interleaved", "rope_interleaved", "rotary_interleaved", "rope_interleave"],
        text: |numbers| Some(pairing(single(numbers)? != 0.0)),
    },
    Argument {
        key: "rope",
        step: Name::QRot,
        names: &["is_neox", "is_neox_style", "rope_is_neox_style"],
        text: |numbers| Some(pairing(single(numbers)? == 0.0)),
    },
    Argument {
        key: "rope_base",
        step: Name::RopeFreqs,
        names: &["rope_base", "rope_theta", "rotary_emb_base", "rotary_base", "rope_freq_base"],
        text: number,
    },
    Argument {
        key: "rope_dims",
        step: Name::RopeFreqs,
        names: &["rope_dims", "rotary_dim", "rotary_dims", "rope_dim", "rotary_ndims"],
        text: count,
    },
    Argument {
        key: "rope_offset",
        step: Name::QRot,
        names: &["rope_offset", "start_pos", "position_offset", "offset"],
        text: count,
    },
    Argument {
        key: "rope_attention_factor",
        step: Name::QRot,
        names: &["rope_attention_factor", "attention_factor", "attention_scaling"],
        text: number,
    },
    Argument {
        key: "qk_norm_eps",
        step: Name::QNorm,
        names: &["rms_norm_eps", "norm_eps", "layer_norm_eps", "layernorm_eps", "variance_epsilon"],
        text: number,
    },
    Argument { key: "v_norm_eps", step: Name::VNorm, names: &["v_norm_eps"], text: number },
    Argument {
        key: "concat_norm_eps",
        step: Name::ConcatNorm,
        names: &["concat_norm_eps"],
        text: number,
    },
    Argument {
        key: "head_norm_eps",
        step: Name::HeadNorm,
        names: &["head_norm_eps"],
        text: number,
    },
    Argument { key: "lora_norm_eps", step: Name::CKvNorm, names: &["lora_norm_eps"], text: number },
    Argument { key: "lambda_init", step: Name::Lambda, names: &["lambda_init"], text: number },
    Argument {
        key: "clip_qkv",
        step: Name::QClipped,
        names: &["clip_qkv", "qkv_clip"],
        text: above_0,
    },
    Argument { key: "value_scale", step: Name::VScaled, names: &["value_scale"], text: number },
    Argument {
        key: "q_temperature",
        step: Name::QScaled,
        names: &["q_temperature"],
        text: above_0,
    },
    Argument {
        key: "q_temperature_floor",
        step: Name::QScaled,
        names: &["q_temperature_floor", "floor_scale"],
        text: count,
    },
    Argument { key: "window", step: Name::MaskedScores, names: WINDOW, text: window },
    // FlashAttention's sees so many keys on each side.
    Argument {
        key: "mask",
        step: Name::MaskedScores,
        names: &["window_size"],
        text: |sides| {
            matches!(sides, [left, 0.0] if *left >= -1.0).then(|| Mask::Causal.to_string())
        },
    },
    Argument {
        key: "chunk",
        step: Name::MaskedScores,
        names: &["attention_chunk_size", "chunk_size", "chunk"],
        text: above_0,
    },
    Argument {
        key: "mask_fill",
        step: Name::MaskedScores,
        names: &["mask_fill", "mask_value", "fill_value"],
        text: number,
    },
    Argument {
        key: "dropout",
        step: Name::WeightsDropped,
        names: &["dropout_p", "dropout", "attention_dropout", "attn_dropout", "attn_pdrop"],
        text: number,
    },
];

/// What a window is called.
const WINDOW: &[&str] =
    &["window", "sliding_window", "window_size", "attention_window", "local_window_size"];

/// The share of weights that a file says to be dropped.
///
/// # Errors
/// If candle fails.
pub fn dropout_of(record: &Record) -> Result<Option<f64>> {
    let own = SAID.iter().find(|argument| argument.key == "dropout");
    let is_it = |entry: &&Entry| own.is_some_and(|own| is_called(&entry.name, own.names));
    let entry = record.entries.iter().find(is_it);
    Ok(entry.map(|entry| numbers(&entry.tensor)).transpose()?.and_then(|own| single(&own)))
}

fn single(numbers: &[f64]) -> Option<f64> {
    <[f64; 1]>::try_from(numbers).ok().map(|[number]| number).filter(|number| !number.is_nan())
}

/// One number, as it is.
fn number(numbers: &[f64]) -> Option<String> {
    single(numbers).map(|number| number.to_string())
}

/// One number, of which 0 is none.
fn above_0(numbers: &[f64]) -> Option<String> {
    match single(numbers)? {
        0.0 => Some(String::new()),
        number => Some(number.to_string()),
    }
}

/// One whole number.
fn count(numbers: &[f64]) -> Option<String> {
    Some(whole(single(numbers)?)?.to_string())
}

/// Whether pairs are of neighbours.
fn pairing(is_interleaved: bool) -> String {
    let pairing = if is_interleaved { Pairing::Interleaved } else { Pairing::Half };
    pairing.to_string()
}

/// The keys of a window: as many as one number says, or those of the left side and the token itself; below 0 all.
fn window(numbers: &[f64]) -> Option<String> {
    let keys = match numbers {
        _ if two_sides(numbers).is_some() => return None,
        [keys] => *keys,
        [left, _] if *left >= 0.0 => left + 1.0,
        [left, _] => *left,
        _ => return None,
    };
    if keys <= 0.0 { Some(String::new()) } else { whole(keys).map(|keys| keys.to_string()) }
}

/// How many keys a window has before and behind each query, where it has some on both sides and not as many: no setting says so.
fn two_sides(numbers: &[f64]) -> Option<[usize; 2]> {
    let [left, right] = *numbers else { return None };
    let sides = [whole(left)?, whole(right)?];
    (sides[1] > 0 && sides[0] != sides[1]).then_some(sides)
}

/// Takes a window of unequal sides out of a file: its tensor, and how many keys it has before and behind each query.
///
/// # Errors
/// If candle fails.
pub fn take_sides(record: &mut Record) -> Result<Option<(String, [usize; 2])>> {
    for at in places(record) {
        let Some(entry) = record.entries.get(at).filter(|own| is_called(&own.name, WINDOW)) else {
            continue;
        };
        if let Some(sides) = two_sides(&written(&entry.tensor)?) {
            return Ok(Some((record.entries.remove(at).name, sides)));
        }
    }
    Ok(None)
}

/// The lengths of documents of which these are the starts, and the end of the last: 0, 3, 5, 9.
fn documents(ends: &[f64]) -> Option<String> {
    let ends: Vec<usize> = ends.iter().map(|end| whole(*end)).collect::<Option<_>>()?;
    if ends.first() != Some(&0) || ends.len() < 2 {
        return None;
    }
    let lengths = ends.windows(2).map(|pair| pair[1].checked_sub(pair[0]));
    lengths.collect::<Option<Vec<_>>>().map(|lengths| listed(&lengths))
}

/// Where each document begins; nothing is said where there is one alone.
fn several_documents(ends: &[f64]) -> Option<String> {
    if ends.len() == 2 { Some(String::new()) } else { documents(ends) }
}

/// Takes the arguments out of a file that the settings do not state, and sets them.
///
/// # Errors
/// If one holds what it cannot mean.
pub fn take_arguments(record: &mut Record, settings: &mut Settings) -> Result<Vec<Match>> {
    let mut matches = Vec::new();
    let (mut places, mut taken) = (places(record), HashSet::new());
    for argument in ARGUMENTS {
        let Some((at, entry)) = called(record, &places, argument) else { continue };
        let numbers = written(&entry.tensor)?;
        if argument.key == "window" && two_sides(&numbers).is_some() {
            continue;
        }
        places.retain(|own| *own != at);
        taken.insert(entry.name.clone());
        let setting = Setting::named(argument.key);
        let Some(setting) = setting.filter(|setting| !setting.is_set(settings)) else { continue };
        let wrong = || {
            let what = tr!(
                "holds {numbers}, which is not valid as {key}",
                numbers = quoted(&listed(&numbers)),
                key = argument.key
            );
            let fix = tr!("leave it out of the file, and state {key}", key = argument.key);
            Error::tensor(quoted(&entry.name), what, fix)
        };
        let text = (argument.text)(&numbers).ok_or_else(wrong)?;
        if !text.is_empty() {
            setting.set(settings, &text).map_err(|_| wrong())?;
        }
        let how = tr!("which is {numbers}", numbers = quoted(&listed(&numbers)));
        matches.push(Match::as_it_is(argument.key, &entry.name).read(how));
    }
    record.entries.retain(|entry| !taken.contains(&entry.name));
    // Without those of the queries they are those of both.
    if settings.segments.is_none() {
        settings.segments = settings.key_segments.take();
    }
    if settings.key_segments == settings.segments {
        settings.key_segments = None;
    }
    Ok(matches)
}

/// What positions are called.
pub const POSITIONS: &[&str] =
    &["position_ids", "positions", "pos_ids", "input_pos", "cache_position"];

/// What stands before the name of a parameter that a module lacks, though its config states it: such a tensor holds the
/// shape that was stated.
pub const LACKS: &str = "lacks.";

/// Whether a tensor of that name says a setting, or which keys are seen, and is no step.
pub fn says_a_setting(name: &str) -> bool {
    let last = last_segment(name).to_ascii_lowercase();
    let is_step = Name::in_files(name).is_some();
    let mut arguments = ARGUMENTS.iter().chain(SAID).flat_map(|argument| argument.names);
    let mut masks = MASKS.iter().map(|(name, ..)| name);
    let is_it = |known: &&str| *known == last;
    !is_step
        && (POSITIONS.contains(&&*last)
            || last == "inv_freq"
            || arguments.any(&is_it)
            || masks.any(is_it))
}

/// Takes out of a file what it says of settings that are stated, and what no run goes by of itself.
///
/// # Errors
/// If candle fails.
pub fn take_evidence(
    record: &mut Record,
    is_stated: impl Fn(&Setting) -> bool,
) -> Result<Vec<Evidence>> {
    let (mut found, mut taken) = (Vec::new(), HashSet::new());
    let places = places(record);
    let arguments = ARGUMENTS.iter().map(|argument| (argument, true));
    for (argument, is_argument) in arguments.chain(SAID.iter().map(|argument| (argument, false))) {
        let is_named = || Setting::named(argument.key).is_some_and(&is_stated);
        let entry = called(record, &places, argument);
        let Some((_, entry)) = entry.filter(|_| !is_argument || is_named()) else { continue };
        let Some(text) = (argument.text)(&written(&entry.tensor)?) else { continue };
        found.push(Evidence::of(argument.key, argument.step, entry, text));
        // One number may say two things.
        taken.insert(entry.name.clone());
    }
    record.entries.retain(|entry| !taken.contains(&entry.name));
    Ok(found)
}

/// What the config of a file says otherwise than the flags, in words or numbers.
pub fn said_by_config(config: &Settings, flags: &Settings) -> Vec<Evidence> {
    let (own, stated) = (config.to_json(), flags.to_json());
    let mut found: Vec<Evidence> = Vec::new();
    for Argument { key, step, .. } in ARGUMENTS.iter().chain(SAID) {
        let both = own.get(key).zip(stated.get(key)).filter(|(own, stated)| own != stated);
        let text = match both {
            Some((Value::String(text), _)) => text.clone(),
            Some((Value::Number(number), _)) => number.to_string(),
            Some((Value::Array(all), _)) if all.iter().all(Value::is_number) => listed(all),
            _ => continue,
        };
        if found.iter().all(|other| other.key != *key) {
            let tensor = tr!("the file's config").to_owned();
            found.push(Evidence { key, step: *step, tensor, text, or: None, precision: 0.0 });
        }
    }
    found
}

/// Where the tensors of a file stand that are called as an argument is.
fn places(record: &Record) -> Vec<usize> {
    static NAMES: LazyLock<HashSet<&str>> = LazyLock::new(|| {
        let all = ARGUMENTS.iter().chain(SAID);
        all.flat_map(|argument| argument.names).copied().collect()
    });
    let is_called = |name: &str| NAMES.contains(last_segment(name).to_ascii_lowercase().as_str());
    let entries = record.entries.iter().enumerate();
    entries.filter(|(_, entry)| is_called(&entry.name)).map(|(at, _)| at).collect()
}

/// The tensor of a file that an argument is, and where it stands.
fn called<'r>(
    record: &'r Record,
    places: &[usize],
    argument: &Argument,
) -> Option<(usize, &'r Entry)> {
    let mut entries = places.iter().filter_map(|at| Some((*at, record.entries.get(*at)?)));
    entries
        .find(|(_, entry)| is_called(&entry.name, argument.names) && entry.tensor.elem_count() > 0)
}
