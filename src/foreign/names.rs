//! Which steps does people's code mean by a name?

use std::collections::HashMap;
use std::sync::LazyLock;

use base::error::quoted;
use file::{Entry, Record};
use program::{Name, Role};

/// What stands behind a name's last dot.
pub fn last_segment(name: &str) -> &str {
    // Two searches by bytes are faster than one by either.
    let dot = name.rfind('.').max(name.rfind('/'));
    dot.and_then(|dot| name.get(dot + 1..)).unwrap_or(name)
}

/// Whether what stands behind a name's last dot is one of these, in any case.
pub fn is_called(name: &str, known: &[&str]) -> bool {
    let last = last_segment(name);
    known.iter().any(|own| last.eq_ignore_ascii_case(own))
}

/// The steps that a tensor of that name may be, the likeliest first; none for a name that is not known. Only what
/// stands behind the last dot counts, and not its case.
pub fn meanings(name: &str) -> Vec<Name> {
    let last = last_segment(name);
    if !may_mean(last) {
        return Vec::new();
    }
    if let Some(step) = of_cache(name) {
        return vec![step];
    }
    let last = last.to_ascii_lowercase();
    if let Some(own) = gradient_of(&last) {
        return meanings(&own).into_iter().map(Name::gradient).collect();
    }
    CALLED.get(last.as_str()).cloned().unwrap_or_default()
}

/// Whether what stands behind a name's last dot can mean a step, by its length, its first and its last letter. Files may have
/// hundreds of thousands of names that mean none, and each is asked for again and again.
fn may_mean(last: &str) -> bool {
    /// The lengths of the names of such letters, one bit each.
    static LENGTHS: LazyLock<[u64; 1024]> = LazyLock::new(|| {
        let mut lengths = [0; 1024];
        for name in CALLED.keys() {
            if let Some([first, end]) = ends(name) {
                lengths[letters(first, end)] |= bit(name);
            }
        }
        lengths
    });
    fn bit(name: &str) -> u64 {
        1 << name.len().min(63)
    }
    // The five bits that are the same of large and small letters.
    fn letters(first: u8, end: u8) -> usize {
        usize::from(first & 31) << 5 | usize::from(end & 31)
    }
    fn ends(name: &str) -> Option<[u8; 2]> {
        let bytes = name.as_bytes();
        Some([*bytes.first()?, *bytes.last()?].map(|byte| byte.to_ascii_lowercase()))
    }
    let Some([first, end]) = ends(last) else { return false };
    // Gradients are told by what they are of, and caches by their modules.
    let is_gradient = matches!(first, b'd' | b'g') || matches!(end, b'd' | b't');
    let is_of_cache = first.is_ascii_digit() || matches!(first, b'+' | b'k' | b'v');
    is_gradient || is_of_cache || LENGTHS[letters(first, end)] & bit(last) != 0
}

/// The tensors of a record whose names are none that is known, as a list; the first of many.
pub fn unknown(record: &Record) -> String {
    const TOLD: usize = 6;
    let names = record.entries.iter().map(|entry| entry.name.as_str());
    let is_unknown = |name: &&str| Name::in_files(name).is_none() && meanings(name).is_empty();
    let mut names = names.filter(is_unknown);
    let told: Vec<String> = names.by_ref().take(TOLD).map(quoted).collect();
    let more = if names.next().is_some() { ", …" } else { "" };
    format!("{}{more}", told.join(", "))
}

/// The steps that each name may mean, the likeliest first.
static CALLED: LazyLock<HashMap<&'static str, Vec<Name>>> = LazyLock::new(|| {
    let mut all: HashMap<&str, Vec<(u8, Name)>> = HashMap::new();
    for step in Name::ALL {
        for called in step.row().called {
            for name in called.names {
                let steps = all.entry(name).or_default();
                if steps.iter().all(|(_, known)| known != step) {
                    steps.push((called.rank, *step));
                }
            }
        }
    }
    let sorted = |mut steps: Vec<(u8, Name)>| {
        steps.sort_unstable();
        steps.into_iter().map(|(_, step)| step).collect()
    };
    all.into_iter().map(|(name, steps)| (name, sorted(steps))).collect()
});

/// The steps that are meant by a name that a person types, the likeliest first: a step's own in any case, or what code
/// calls it. Code that masks scores calls those so that it has before; in a file the name may stand for any of them.
pub fn asked(name: &str) -> Vec<Name> {
    let lower = name.to_ascii_lowercase();
    let called = meanings(name);
    let is_of_any_stage = [Name::ScoresRaw, Name::Scores, Name::MaskedScores];
    let is_of_any_stage = is_of_any_stage.iter().all(|stage| called.contains(stage));
    let own = Name::named(name).or_else(|| Name::named(&lower));
    let mask = MASKS.contains(&lower.as_str()).then_some(Name::Mask);
    let first = own.or(mask).or(is_of_any_stage.then_some(Name::Scores));
    first.into_iter().chain(called).collect()
}

/// What code calls a mask. That of a file can be one to attend, or floats.
const MASKS: [&str; 4] = ["causal_mask", "attention_mask", "attn_mask", "padding_mask"];

/// A tensor of a cache by the module that it stands in, as `past_key_values.0.key` and `cache.layers.0.values` of
/// transformers, or by a list of layers: `key_cache.0`.
fn of_cache(name: &str) -> Option<Name> {
    let last = last_segment(name);
    let is_of_layer = last.parse::<usize>().is_ok();
    let both = [(Name::KPast, ["key", "keys", "k"]), (Name::VPast, ["value", "values", "v"])];
    let mut names = both.iter().flat_map(|(_, names)| names);
    if !is_of_layer && names.all(|own| !own.eq_ignore_ascii_case(last)) {
        return None;
    }
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(['.', '/']).collect();
    let (last, modules) = words.split_last()?;
    let is_cache = modules.iter().any(|module| CACHES.contains(module));
    both.into_iter().find_map(|(step, names)| {
        let is_listed = is_of_layer
            && modules.last().is_some_and(|module| {
                step.row().called.iter().any(|called| called.names.contains(module))
            });
        (is_listed || (is_cache && names.contains(last))).then_some(step)
    })
}

/// The modules that caches stand in.
const CACHES: [&str; 4] = ["past_key_values", "past_key_value", "cache", "kv_cache"];

/// What tensors are called that hold queries, keys and values together, and which of these they hold.
pub const TOGETHER: [(&[&str], &[&str]); 2] = [
    (&["qkv", "qkv_packed", "packed_qkv", "mixed_qkv"], &["q", "k", "v"]),
    (&["kv", "kv_packed", "packed_kv"], &["k", "v"]),
];

/// What stands before the name of a tensor in that of its gradient, and what behind it.
const BEFORE: [&str; 4] = ["gradient_", "grad_", "d_", "d"];
const BEHIND: [&str; 4] = [".gradient", ".grad", "_gradient", "_grad"];

/// The tensor of which a name says that it is the gradient: `q` of `dq`, `d_q`, `grad_q` and `q.grad`. What begins with d
/// alone is one only where the rest is called as a step is.
pub fn gradient_of(name: &str) -> Option<String> {
    if let Some(own) = BEHIND.iter().find_map(|mark| name.strip_suffix(mark)) {
        return Some(own.to_owned());
    }
    let last = last_segment(name);
    // What all of the marks begin with: most names are done with here.
    if !last.starts_with(['d', 'D', 'g', 'G']) {
        return None;
    }
    let path = name.strip_suffix(last).unwrap_or_default();
    let lower = last.to_ascii_lowercase();
    // Kernels call that of the scores' biases so.
    if lower == "dbias" {
        return Some(format!("{path}{}", Name::AttnBias));
    }
    let mark = BEFORE.iter().find(|mark| {
        let Some(own) = lower.strip_prefix(**mark) else { return false };
        (mark.len() > 2 && !own.is_empty())
            || !asked(own).is_empty()
            || own == "o"
            || TOGETHER.iter().any(|(names, _)| names.contains(&own))
    })?;
    Some(format!("{path}{}", last.get(mark.len()..)?))
}

/// Whether a name is that of a gradient, or of what kernels keep for gradients.
pub fn is_gradient(name: &str) -> bool {
    gradient_of(name).is_some() || meanings(name).contains(&Name::Delta)
}

/// Takes the gradients out of a file that other code wrote. A single number is none, but for that of a parameter: `d_k` is a
/// size, and `requires_grad` a flag. Those say nothing of the numbers, and are left out.
pub fn take_gradients(record: &mut Record) -> Vec<Entry> {
    let is_gradient = |entry: &mut Entry| is_gradient(&entry.name);
    let is_parameter = |entry: &Entry| {
        let own = gradient_of(&entry.name).unwrap_or_default();
        let marked = entry.name.to_ascii_lowercase().contains("grad");
        marked && asked(last_segment(&own)).iter().any(|name| name.role() == Role::Parameter)
    };
    let mut all: Vec<Entry> = record.entries.extract_if(.., is_gradient).collect();
    all.retain(|entry| entry.tensor.elem_count() > 1 || is_parameter(entry));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_told_by_where_their_tensors_stand() {
        assert_eq!(meanings("past_key_values.0.key"), [Name::KPast]);
        assert_eq!(meanings("cache.layers.3.values"), [Name::VPast]);
        assert_eq!(meanings("key_cache.1"), [Name::KPast]);
        assert_ne!(meanings("attention.key"), [Name::KPast]);
        assert!(meanings("layers.0").is_empty());
    }

    /// Notebooks call scaled scores so before they mask them.
    #[test]
    fn what_is_asked_for_is_what_notebooks_call_so() {
        let all = [
            ("attn_scores", Name::Scores),
            ("attention_score", Name::Scores),
            ("hook_attn_scores", Name::MaskedScores),
            ("masked_scores", Name::MaskedScores),
            ("causal_mask", Name::Mask),
            ("attention_mask", Name::Mask),
            ("attn_output_per_head", Name::HeadOutputs),
            ("output_per_head", Name::HeadOutputs),
            ("output_mid", Name::HeadOutputs),
            ("attn_output_concat", Name::Concat),
            ("attention_weight", Name::Weights),
            ("q_state", Name::QHeads),
            ("k_state", Name::KHeads),
            ("W_q", Name::WQ),
        ];
        for (name, step) in all {
            assert_eq!(asked(name).first(), Some(&step), "{name}");
        }
        // In a file it may be any of them, and a masked one first.
        assert_eq!(meanings("attn_scores").first(), Some(&Name::MaskedScores));
    }

    #[test]
    fn the_last_segment_tells_in_any_case() {
        let weights = [Name::Weights, Name::WeightsDropped, Name::WeightsMean, Name::WeightsDiff];
        assert_eq!(meanings("blocks.0.attn.hook_pattern"), weights);
        let all = [Name::Q, Name::QHeads, Name::QNorm, Name::QRot, Name::QClipped, Name::QRotNorm];
        assert_eq!(meanings("Query"), [&all[..], &[Name::QScaled, Name::QJoined]].concat());
        assert!(meanings("q_proj.weight").is_empty());
    }

    /// What known code calls the steps, by the library or book that does.
    #[test]
    fn names_of_known_code_are_known() {
        let all: &[(&str, &[(&str, Name)])] = &[
            (
                "transformers",
                &[
                    ("hidden_states", Name::X),
                    ("encoder_hidden_states", Name::Memory),
                    ("key_value_states", Name::Memory),
                    ("query_states", Name::Q),
                    ("key_states", Name::K),
                    ("value_states", Name::V),
                    ("query_layer", Name::Q),
                    ("key_layer", Name::K),
                    ("value_layer", Name::V),
                    ("q_embed", Name::QRot),
                    ("k_embed", Name::KRot),
                    ("past_key", Name::KPast),
                    ("past_value", Name::VPast),
                    ("attention_scores", Name::Scores),
                    ("attention_probs", Name::Weights),
                    ("attn_weights", Name::Weights),
                    ("attn_output_weights", Name::Weights),
                    ("attentions", Name::Weights),
                    ("context_layer", Name::Concat),
                    ("attn_output", Name::Output),
                ],
            ),
            (
                "TransformerLens",
                &[
                    ("hook_q", Name::Q),
                    ("hook_k", Name::K),
                    ("hook_v", Name::V),
                    ("hook_rot_q", Name::QRot),
                    ("hook_rot_k", Name::KRot),
                    ("hook_attn_scores", Name::MaskedScores),
                    ("hook_pattern", Name::Weights),
                    ("hook_z", Name::HeadOutputs),
                    ("hook_attn_out", Name::Output),
                ],
            ),
            (
                "notebooks and ports",
                &[
                    ("inputs", Name::X),
                    ("queries", Name::Q),
                    ("keys", Name::K),
                    ("values", Name::V),
                    ("k_cache", Name::KPast),
                    ("v_cache", Name::VPast),
                    ("q_rotary", Name::QRot),
                    ("rotated_k", Name::KRot),
                    ("qkt", Name::ScoresRaw),
                    ("raw_scores", Name::ScoresRaw),
                    ("energy", Name::Scores),
                    ("dots", Name::Scores),
                    ("sim", Name::Scores),
                    ("logits", Name::Scores),
                    ("scaled_scores", Name::Scores),
                    ("masked_attn_scores", Name::MaskedScores),
                    ("p_attn", Name::Weights),
                    ("alpha", Name::Weights),
                    ("heads_out", Name::HeadOutputs),
                    ("context_vec", Name::Concat),
                    ("ctx", Name::Concat),
                    ("merged", Name::Concat),
                    ("out_proj", Name::Output),
                    ("y", Name::Output),
                ],
            ),
        ];
        for (code, names) in all {
            for (name, step) in *names {
                assert!(meanings(name).contains(step), "{name} of {code}: {:?}", meanings(name));
            }
        }
    }

    /// The quick look at a name passes over none that means a step.
    #[test]
    fn every_name_that_is_known_is_looked_up() {
        for (name, steps) in CALLED.iter() {
            for spelled in [(*name).to_owned(), format!("a.1/b.{}", name.to_ascii_uppercase())] {
                let is_cache = of_cache(&spelled).is_some();
                assert!(
                    is_cache || gradient_of(name).is_some() || meanings(&spelled) == *steps,
                    "{name}"
                );
                assert!(!meanings(&format!("d_{spelled}")).is_empty(), "{name}");
                assert!(!meanings(&format!("{spelled}_GRAD")).is_empty(), "{name}");
            }
        }
        assert_eq!(meanings("past_key_values.0.KEY"), [Name::KPast]);
    }

    #[test]
    fn gradients_are_known_by_their_names() {
        let gradients = [
            ("dq", "q"),
            ("dQ", "Q"),
            ("d_q", "q"),
            ("grad_query", "query"),
            ("q.grad", "q"),
            ("layers.0.q_proj.weight.grad", "layers.0.q_proj.weight"),
            ("attn.dO", "attn.O"),
            ("dout", "out"),
            ("d_scores", "scores"),
            ("grad_anything", "anything"),
            ("w_q_grad", "w_q"),
        ];
        for (name, own) in gradients {
            assert_eq!(gradient_of(name).as_deref(), Some(own), "{name}");
        }
        let others = ["d_model", "dots", "dropout_keep", "dim", "decay", "d", "grad_", "delta"];
        for name in others {
            assert_eq!(gradient_of(name), None, "{name}");
        }
    }
}
