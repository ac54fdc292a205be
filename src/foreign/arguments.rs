//! What a file holds of a kernel's other arguments: its scale, its mask, its lengths.

use candle_core::{DType, Tensor};

use super::matched::Match;
use super::names::last_segment;
use crate::config::{Mask, Segments, Setting, Settings};
use crate::error::{Error, Result, quoted};
use crate::file::Record;

/// An argument that kernels take beside queries, keys and values.
struct Argument {
    /// The setting that says the same.
    key: &'static str,
    /// What kernels call it, in lower case.
    names: &'static [&'static str],
    /// Sets what the numbers say; nothing where they can say no such thing.
    set: fn(&mut Settings, &[f64]) -> Option<()>,
}

const ARGUMENTS: &[Argument] = &[
    Argument {
        key: "scale",
        names: &["scale", "softmax_scale", "sm_scale", "scaling"],
        set: |settings, numbers| Some(settings.scale = Some(single(numbers)?)),
    },
    Argument {
        key: "softcap",
        names: &["softcap", "logits_soft_cap"],
        // 0 is none.
        set: |settings, numbers| {
            Some(settings.softcap = Some(single(numbers)?).filter(|cap| *cap != 0.0))
        },
    },
    Argument {
        key: "mask",
        names: &["is_causal", "causal"],
        set: |settings, numbers| {
            let is_causal = single(numbers)? != 0.0;
            Some(settings.mask = Some(if is_causal { Mask::Causal } else { Mask::None }))
        },
    },
    Argument {
        key: "segments",
        names: &["cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q"],
        set: |settings, numbers| Some(settings.segments = Some(documents(numbers)?)),
    },
    Argument {
        key: "key_segments",
        names: &["cu_seqlens_k", "cu_seqlens_kv", "cu_seq_lens_k"],
        set: |settings, numbers| Some(settings.key_segments = Some(documents(numbers)?)),
    },
    Argument {
        key: "lengths",
        names: &["cache_seqlens", "seqlens_k", "seqused_k", "nonpad_kv_seqlen", "context_lens"],
        set: |settings, numbers| {
            let all = numbers.iter().map(|number| count(*number));
            Some(settings.lengths = Some(all.collect::<Option<_>>()?))
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
fn documents(ends: &[f64]) -> Option<Segments> {
    let ends: Vec<usize> = ends.iter().map(|end| count(*end)).collect::<Option<_>>()?;
    if ends.first() != Some(&0) || ends.len() < 2 {
        return None;
    }
    let lengths = ends.windows(2).map(|pair| pair[1].checked_sub(pair[0]));
    lengths.collect::<Option<Vec<_>>>().map(|lengths| Segments(vec![lengths]))
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
        if Setting::named(argument.key).is_some_and(|setting| setting.is_set(settings)) {
            continue;
        }
        let numbers = numbers(&entry.tensor)?;
        if (argument.set)(settings, &numbers).is_none() {
            let what = format!("holds {numbers:?}, which is no {}", argument.key);
            let fix = format!("leave it out of the file, and state {}", argument.key);
            return Err(Error::tensor(quoted(&entry.name), what, fix));
        }
        let numbers: Vec<String> = numbers.iter().map(ToString::to_string).collect();
        let how = format!("which is {}", numbers.join(", "));
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
