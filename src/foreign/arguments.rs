//! What a file holds of a kernel's other arguments: its scale, its mask, its lengths.

use candle_core::{DType, Tensor};

use super::matched::Match;
use super::names::{is_called, last_segment, meanings};
use base::error::{Error, Result, quoted};
use base::lang;
use config::{Mask, Setting, Settings};
use file::{Entry, Record};
use program::{Name, whole};

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
        key: "qk_norm_eps",
        names: &["qk_norm_eps"],
        text: |numbers| single(numbers).map(|eps| eps.to_string()),
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
            let all = numbers.iter().map(|number| whole(*number));
            Some(listed(&all.collect::<Option<Vec<_>>>()?))
        },
    },
];

/// What files say of a layer beside its tensors: read where it was stated, too.
const SAID: &[Argument] = &[
    Argument {
        key: "heads",
        names: &["num_heads", "n_heads", "num_attention_heads"],
        text: |numbers| Some(whole(single(numbers)?)?.to_string()),
    },
    Argument {
        key: "rope_base",
        names: &["rope_base", "rope_theta"],
        text: |numbers| single(numbers).map(|base| base.to_string()),
    },
    Argument {
        key: "rope_dims",
        names: &["rope_dims", "rotary_dim"],
        text: |numbers| Some(whole(single(numbers)?)?.to_string()),
    },
    Argument {
        key: "rope_attention_factor",
        names: &["rope_attention_factor"],
        text: |numbers| single(numbers).map(|factor| factor.to_string()),
    },
];

fn single(numbers: &[f64]) -> Option<f64> {
    <[f64; 1]>::try_from(numbers).ok().map(|[number]| number)
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
        let Some(at) = position(record, argument) else { continue };
        let entry = record.entries.remove(at);
        let setting = Setting::named(argument.key);
        let Some(setting) = setting.filter(|setting| !setting.is_set(settings)) else { continue };
        let numbers = written(&entry.tensor)?;
        let wrong = || {
            let what = tr!(
                "holds {numbers}, which is not valid as {key}",
                numbers = listed(&numbers),
                key = argument.key
            );
            let fix = tr!("leave it out of the file, and state {key}", key = argument.key);
            Error::tensor(quoted(&entry.name), what, fix)
        };
        let text = (argument.text)(&numbers).ok_or_else(wrong)?;
        if !text.is_empty() {
            setting.set(settings, &text).map_err(|_| wrong())?;
        }
        let how = tr!("which is {numbers}", numbers = listed(&numbers));
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

/// What a file says of a setting beside what is stated.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// The setting that says the same.
    pub key: &'static str,
    /// The tensor that says it.
    pub tensor: String,
    /// What it says, as the setting's text; empty for none.
    pub text: String,
    /// How far a number is off that was rounded to the tensor's type.
    pub precision: f64,
}

impl Evidence {
    /// What a tensor of a file says.
    pub fn of(key: &'static str, entry: &Entry, text: String) -> Self {
        let precision = match entry.tensor.dtype() {
            DType::F64 => 1e-9,
            DType::F16 => 1e-3,
            DType::BF16 => 1e-2,
            _ => 1e-6,
        };
        Self { key, tensor: entry.name.clone(), text, precision }
    }

    /// What the config of a file says otherwise than the flags, in words or single numbers.
    pub fn of_config(config: &Settings, flags: &Settings) -> Vec<Self> {
        let (own, stated) = (config.to_json(), flags.to_json());
        let unlike = |setting: &Setting| {
            let (own, stated) = (own.get(setting.key)?, stated.get(setting.key)?);
            let text = own.as_str().map(str::to_owned);
            let text = text.or_else(|| own.as_number().map(ToString::to_string))?;
            let tensor = tr!("the file's config").to_owned();
            (own != stated).then_some(Self { key: setting.key, tensor, text, precision: 0.0 })
        };
        Setting::ALL.iter().filter_map(unlike).collect()
    }

    /// What the shape of a tensor says of a size.
    pub fn of_size(key: &'static str, tensor: Name, size: usize) -> Self {
        Self { key, tensor: tensor.to_string(), text: size.to_string(), precision: 0.0 }
    }

    /// What the recorded heads say of their number.
    pub fn of_heads(heads: usize) -> Self {
        let tensor = tr!("the heads, scores or weights").to_owned();
        Self { key: "heads", tensor, text: heads.to_string(), precision: 0.0 }
    }

    /// States what was recorded in place of what was stated; whether that can be.
    pub fn apply(&self, settings: &mut Settings) -> bool {
        let others: &[&str] = match self.key {
            "positions" => &["rope_offset"],
            "lengths" => &["key_mask"],
            // The shapes say these then.
            "heads" => &["head_dim", "kv_heads"],
            _ => &[],
        };
        for key in others.iter().chain([&self.key]) {
            if let Some(setting) = Setting::named(key) {
                setting.clear(settings);
            }
        }
        let setting = Setting::named(self.key).filter(|_| !self.text.is_empty());
        setting.is_none_or(|setting| setting.set(settings, &self.text).is_ok())
    }
}

/// Takes those arguments out of a file whose settings are stated, as what it says beside them.
///
/// # Errors
/// If candle fails.
pub fn take_evidence(
    record: &mut Record,
    is_stated: impl Fn(&Setting) -> bool,
) -> Result<Vec<Evidence>> {
    let mut found = Vec::new();
    for argument in ARGUMENTS.iter().chain(SAID) {
        let is_named = Setting::named(argument.key).is_some_and(&is_stated);
        let Some(at) = position(record, argument).filter(|_| is_named) else { continue };
        let Some(entry) = record.entries.get(at) else { continue };
        let Some(text) = (argument.text)(&written(&entry.tensor)?) else { continue };
        found.push(Evidence::of(argument.key, entry, text));
        record.entries.remove(at);
    }
    Ok(found)
}

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
        && (["position_ids", "inv_freq"].contains(&&*last)
            || arguments.any(&is_it)
            || masks.any(is_it))
}

/// Where a file has an argument that has no name of a step.
fn position(record: &Record, argument: &Argument) -> Option<usize> {
    record.entries.iter().position(|entry| is_called(&entry.name, argument.names))
}

/// A mask that a file has under the name of an argument, as `attn_mask` takes it.
#[derive(Clone)]
pub struct FoundMask {
    /// Its name in the file.
    pub name: String,
    /// True where a query attends, or floats to add: broadcast to (batch, head, query, key).
    pub mask: Tensor,
    /// What its numbers mean.
    pub how: String,
}

/// What people call masks, in lower case, whose keys they are of where there is a memory too, and what 1 means in those
/// that hold no floats to add. `attn_mask` is that of
/// `scaled_dot_product_attention`; in `nn.MultiheadAttention`, which takes X, true is the other way round.
const MASKS: &[(&str, Keys, Meaning)] = &[
    ("attn_mask", Keys::Either, Meaning::AttendIfCore),
    ("custom_mask", Keys::Either, Meaning::Attend),
    ("packed_custom_mask", Keys::Either, Meaning::Attend),
    ("attention_mask", Keys::Own, Meaning::Attend),
    ("encoder_attention_mask", Keys::Memory, Meaning::Attend),
    ("key_padding_mask", Keys::Either, Meaning::Ignore),
    ("src_key_padding_mask", Keys::Own, Meaning::Ignore),
    ("memory_key_padding_mask", Keys::Memory, Meaning::Ignore),
    // Of 0 and 1 they are the step of that name.
    ("mask", Keys::Either, Meaning::Added),
    ("extended_attention_mask", Keys::Own, Meaning::Added),
    ("causal_mask", Keys::Own, Meaning::Added),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Keys {
    Own,
    Memory,
    Either,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Meaning {
    Attend,
    AttendIfCore,
    Ignore,
    Added,
}

/// What people call biases that are added to scores, in lower case.
const BIASES: &[&str] = &[
    "bias",
    "attn_bias",
    "attention_bias",
    "score_bias",
    "pair_bias",
    "position_bias",
    "pos_bias",
    "rel_pos_bias",
    "relative_position_bias",
    "rpb",
];

/// Takes the biases of scores out of a file of queries, keys and values: floats of queries and keys.
pub fn take_bias(record: &mut Record) -> Option<Entry> {
    let is_it = |entry: &Entry| {
        is_called(&entry.name, BIASES)
            && entry.tensor.dtype().is_float()
            && matches!(entry.tensor.rank(), 2..=4)
    };
    record.entries.iter().position(is_it).map(|at| record.entries.remove(at))
}

/// What is called with a mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A function of queries, keys and values.
    Core,
    /// A layer of some model.
    Layer,
    /// `nn.MultiheadAttention`.
    Module,
}

/// Takes the mask out of a file that its name tells the meaning of; one of keys alone is (batch, key).
///
/// # Errors
/// If candle fails.
pub fn take_mask(record: &mut Record, caller: Caller) -> Result<Vec<FoundMask>> {
    let is_core = caller == Caller::Core;
    let other =
        if record.tensor(Name::Memory.as_str()).is_some() { Keys::Own } else { Keys::Memory };
    for (name, _, meaning) in MASKS.iter().filter(|(_, keys, _)| *keys != other || is_core) {
        let is_it = |entry: &Entry| is_called(&entry.name, &[name]);
        let Some(at) = record.entries.iter().position(is_it) else { continue };
        let tensor = &record.entries[at].tensor;
        // Zeros that are added block nothing; read the other way, they would block all.
        let is_added = tensor.dtype().is_float() && holds_no_ones(tensor)?;
        // True may mean either.
        let may_mean_both = match meaning {
            Meaning::AttendIfCore => caller == Caller::Layer,
            Meaning::Added => *name == Name::Mask.as_str(),
            Meaning::Attend | Meaning::Ignore => false,
        };
        if may_mean_both && !is_added {
            continue;
        }
        let of_keys = match *tensor.dims() {
            [batch, keys] => Some(tensor.reshape((batch, 1, 1, keys))?),
            _ => None,
        };
        // One of 0 and 1 for models is of the keys of items, unless there are not so many, or it fits no such run.
        let is_of_items = items(record).is_none_or(|all| tensor.dims().first() == Some(&all));
        let readings = match (meaning, of_keys) {
            (Meaning::Ignore, Some(of_keys)) => vec![(of_keys, "")],
            (Meaning::Attend, Some(of_keys)) => {
                let (of_keys, of_pairs) = ((of_keys, ""), (tensor.clone(), OF_PAIRS));
                if is_of_items { vec![of_keys, of_pairs] } else { vec![of_pairs, of_keys] }
            }
            _ => vec![(tensor.clone(), "")],
        };
        let read = |(mask, axes): (Tensor, &str)| -> Result<(Tensor, String)> {
            let (mask, how) = read_mask(mask, *meaning, is_added, caller)?;
            Ok((mask, format!("{}{how}", lang::text(axes))))
        };
        let readings: Vec<(Tensor, String)> =
            readings.into_iter().map(read).collect::<Result<_>>()?;
        let name = record.entries.remove(at).name;
        let found = |(mask, how)| FoundMask { name: name.clone(), mask, how };
        return Ok(readings.into_iter().map(found).collect());
    }
    Ok(Vec::new())
}

/// How a mask of 0 and 1 for models is read that is not of the keys of items.
const OF_PAIRS: &str = "of queries and keys, ";

/// A mask as `attn_mask` takes it, and what its numbers mean.
fn read_mask(
    mask: Tensor,
    meaning: Meaning,
    is_added: bool,
    caller: Caller,
) -> Result<(Tensor, &'static str)> {
    Ok(match meaning {
        _ if is_added => (mask, tr!("added to the scores")),
        Meaning::Ignore => (mask.eq(0.0)?, tr!("true means ignored")),
        Meaning::AttendIfCore if caller == Caller::Module && !mask.dtype().is_float() => {
            (mask.eq(0.0)?, tr!("true means blocked, as in nn.MultiheadAttention"))
        }
        // Floats that are 0 and 1 would be added too.
        Meaning::AttendIfCore if mask.dtype().is_float() => (mask, tr!("added to the scores")),
        Meaning::AttendIfCore => (mask, tr!("true means attend")),
        Meaning::Added => (mask.eq(0.0)?, tr!("true means blocked")),
        Meaning::Attend => (mask.ne(0.0)?, tr!("1 means attend")),
    })
}

/// How many batch items a file has, by its X or its queries.
fn items(record: &Record) -> Option<usize> {
    let is_of_tokens = |entry: &&Entry| {
        let is_known = |name: &Name| matches!(name, Name::X | Name::Q | Name::QHeads);
        entry.tensor.rank() > 2 && meanings(&entry.name).iter().any(is_known)
    };
    record.entries.iter().find(is_of_tokens)?.tensor.dims().first().copied()
}

/// Whether a tensor holds no 1, or anything but 0 and 1.
fn holds_no_ones(tensor: &Tensor) -> Result<bool> {
    let numbers = numbers(tensor)?;
    Ok(!numbers.contains(&1.0) || !are_booleans(&numbers))
}

/// Whether numbers are 0 and 1 alone.
pub fn are_booleans(numbers: &[f64]) -> bool {
    numbers.iter().all(|number| [0.0, 1.0].contains(number))
}

/// A tensor's numbers as they were written: of f32 0.3, and not 0.30000001192092896.
fn written(tensor: &Tensor) -> Result<Vec<f64>> {
    let all = numbers(tensor)?;
    if tensor.dtype() != DType::F32 {
        return Ok(all);
    }
    #[allow(clippy::cast_possible_truncation, reason = "they were of that type")]
    let shortest = |number: f64| (number as f32).to_string().parse().unwrap_or(number);
    Ok(all.into_iter().map(shortest).collect())
}

/// A tensor's numbers.
///
/// # Errors
/// If candle fails.
pub fn numbers(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
}
