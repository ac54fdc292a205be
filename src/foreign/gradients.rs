//! The names that people's code gives to gradients.

use super::names::{asked, last_segment};
use file::{Entry, Record};
use program::Name;

/// What stands before the name of a tensor in that of its gradient, and what behind it.
const BEFORE: [&str; 4] = ["gradient_", "grad_", "d_", "d"];
const BEHIND: [&str; 4] = [".gradient", ".grad", "_gradient", "_grad"];

/// The tensor of which a name says that it is the gradient: `q` of `dq`, `d_q`, `grad_q` and `q.grad`. What begins with d
/// alone is one only where the rest is called as a step is.
#[must_use]
pub fn gradient_of(name: &str) -> Option<String> {
    if let Some(own) = BEHIND.iter().find_map(|mark| name.strip_suffix(mark)) {
        return Some(own.to_owned());
    }
    let last = last_segment(name);
    let path = name.strip_suffix(last).unwrap_or_default();
    let lower = last.to_ascii_lowercase();
    let mark = BEFORE.iter().find(|mark| {
        let Some(own) = lower.strip_prefix(**mark) else { return false };
        let is_known = (mark.len() > 2 && !own.is_empty()) || !asked(own).is_empty() || own == "o";
        is_known && Name::in_files(&lower).is_none()
    })?;
    Some(format!("{path}{}", last.get(mark.len()..)?))
}

/// Takes the gradients out of a file that other code wrote: what is one number is none.
pub fn take_gradients(record: &mut Record) -> Vec<Entry> {
    let is_gradient = |entry: &mut Entry| {
        let is_step = Name::in_files(&entry.name).is_some();
        !is_step && entry.tensor.elem_count() > 1 && gradient_of(&entry.name).is_some()
    };
    record.entries.extract_if(.., is_gradient).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
