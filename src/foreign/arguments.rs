//! What a file holds of a kernel's other arguments: its scale, its mask, its lengths.

use candle_core::{DType, Tensor};

use super::matched::Match;
use super::names::last_segment;
use crate::config::{Mask, Setting, Settings};
use crate::error::{Error, Result, quoted};
use crate::file::Record;

/// An argument that kernels take beside queries, keys and values.
struct Argument {
    /// The setting that says the same.
    key: &'static str,
    /// What kernels call it, in lower case.
    names: &'static [&'static str],
    /// What the numbers say, as the setting's text, empty for nothing; `None` where they can say no such thing.
    text: fn(&[f64]) -> Option<String>,
}

const ARGUMENTS: &[Argument] = &[
    Argument {
        key: "scale",
        names: &["scale", "softmax_scale", "sm_scale", "scaling"],
        text: |numbers| single(numbers).map(|scale| scale.to_string()),
    },
    Argument {
        key: "softcap",
        names: &["softcap", "logits_soft_cap"],
        // 0 is none.
        text: |numbers| match single(numbers)? {
            0.0 => Some(String::new()),
            cap => Some(cap.to_string()),
        },
    },
    Argument {
        key: "mask",
        names: &["is_causal", "causal"],
        text: |numbers| match single(numbers)? {
            0.0 => Some(Mask::None.to_string()),
            _ => Some(Mask::Causal.to_string()),
        },
    },
    Argument {
        key: "segments",
        names: &["cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q"],
        text: documents,
    },
    Argument {
        key: "key_segments",
        names: &["cu_seqlens_k", "cu_seqlens_kv", "cu_seq_lens_k"],
        text: documents,
    },
    Argument {
        key: "lengths",
        names: &["cache_seqlens", "seqlens_k", "seqused_k", "nonpad_kv_seqlen", "context_lens"],
        text: |numbers| {
            let all = numbers.iter().map(|number| count(*number));
            Some(listed(&all.collect::<Option<Vec<_>>>()?))
        },
    },
];

fn single(numbers: &[f64]) -> Option<f64> {
    <[f64; 1]>::try_from(numbers).ok().map(|[number]| number)
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
fn count(number: f64) -> Option<usize> {
    (number >= 0.0 && number.fract() == 0.0 && number < 9e15).then_some(number as usize)
}

/// The lengths of documents of which these are the starts, and the end of the last: 0, 3, 5, 9.
fn documents(ends: &[f64]) -> Option<String> {
    let ends: Vec<usize> = ends.iter().map(|end| count(*end)).collect::<Option<_>>()?;
    if ends.first() != Some(&0) || ends.len() < 2 {
        return None;
    }
    let lengths = ends.windows(2).map(|pair| pair[1].checked_sub(pair[0]));
    lengths.collect::<Option<Vec<_>>>().map(|lengths| listed(&lengths))
}

fn listed<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// Takes the arguments out of a file that the settings do not state, and sets them.
///
/// # Errors
/// If one holds what it cannot mean.
pub fn take_arguments(record: &mut Record, settings: &mut Settings) -> Result<Vec<Match>> {
    let mut matches = Vec::new();
    for argument in ARGUMENTS {
        let is_named =
            |name: &str| argument.names.contains(&last_segment(name).to_ascii_lowercase().as_str());
        let Some(at) = record.entries.iter().position(|entry| is_named(&entry.name)) else {
            continue;
        };
        let entry = record.entries.remove(at);
        let setting = Setting::named(argument.key);
        let Some(setting) = setting.filter(|setting| !setting.is_set(settings)) else { continue };
        let numbers = numbers(&entry.tensor)?;
        let wrong = || {
            let what = format!("holds {}, which is no {}", listed(&numbers), argument.key);
            let fix = format!("leave it out of the file, and state {}", argument.key);
            Error::tensor(quoted(&entry.name), what, fix)
        };
        let text = (argument.text)(&numbers).ok_or_else(wrong)?;
        if !text.is_empty() {
            setting.set(settings, &text).map_err(|_| wrong())?;
        }
        let how = format!("which is {}", listed(&numbers));
        matches.push(Match::as_it_is(argument.key, &entry.name).read(how));
    }
    // Without those of the queries they are those of both.
    if settings.segments.is_none() {
        settings.segments = settings.key_segments.take();
    }
    if settings.key_segments == settings.segments {
        settings.key_segments = None;
    }
    Ok(matches)
}

/// The mask that a file has as `scaled_dot_product_attention` takes it: true where a query attends, or floats to add.
pub fn take_mask(record: &mut Record) -> Option<(String, Tensor)> {
    let is_mask = |name: &str| last_segment(name).eq_ignore_ascii_case("attn_mask");
    let at = record.entries.iter().position(|entry| is_mask(&entry.name))?;
    let entry = record.entries.remove(at);
    Some((entry.name, entry.tensor))
}

fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
}
