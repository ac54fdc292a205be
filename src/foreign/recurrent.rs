//! Files of attention that has no softmax: its keys and values are written into a state, which queries read. Which kind is it?

use super::names::{is_called, meanings};
use base::error::{Error, Result, quoted};
use base::lang;
use file::{Entry, Record};
use program::Name;

/// A kind of it: what it is called, what its kernels take, by one name of each group, and which of these is told.
struct Recurrence {
    what: &'static str,
    needs: &'static [&'static [&'static str]],
    /// Whether it is the delta rule, which is computed here.
    is_delta: bool,
}

const Q: &[&str] = &["q", "query", "queries", "query_states", "q_heads"];
const K: &[&str] = &["k", "key", "keys", "key_states", "k_heads"];
const V: &[&str] = &["v", "value", "values", "value_states", "v_heads"];
const BETA: &[&str] = &["beta", "betas", "b_t", "write_strength"];
const G: &[&str] = &[
    "g",
    "log_decay",
    "decay_log",
    "log_g",
    "gate_log",
    "g_log",
    "decay",
    "exp_g",
    "g_exp",
    "alpha",
];
const STATES: &[&str] = &[
    "final_state",
    "last_recurrent_state",
    "recurrent_state",
    "initial_state",
    "ssm_state",
    "wkv_state",
];

/// The kinds, those that take more before those that take less of the same.
const RECURRENCES: &[Recurrence] = &[
    Recurrence {
        what: "the generalised delta rule of RWKV-7",
        needs: &[&["r"], K, V, &["w"], &["a", "kk"], &["b"]],
        is_delta: false,
    },
    Recurrence { what: "the recurrence of RWKV", needs: &[&["r"], K, V, &["w"]], is_delta: false },
    Recurrence {
        what: "the gated delta rule (gated DeltaNet, or KDA where every feature decays by itself)",
        needs: &[Q, K, V, BETA, G],
        is_delta: true,
    },
    Recurrence { what: "the delta rule (DeltaNet)", needs: &[Q, K, V, BETA], is_delta: true },
    Recurrence {
        what: "gated linear attention (GLA)",
        needs: &[Q, K, V, &["gk", "gv"]],
        is_delta: false,
    },
    Recurrence {
        what: "linear attention with a decay of each head (RetNet, Lightning, Mamba-2)",
        needs: &[Q, K, V, STATES],
        is_delta: false,
    },
    Recurrence {
        what: "a selective state space model (Mamba)",
        needs: &[&["dt", "delta", "delta_t"], &["a", "a_log"], &["b"], &["c"]],
        is_delta: false,
    },
];

/// Whether a file holds what kernels of the delta rule take. What others take is refused, as what it is.
///
/// # Errors
/// If it holds that.
pub fn has_delta_rule(record: &Record) -> Result<bool> {
    let called = |names: &[&str]| {
        let mut entries = record.entries.iter();
        entries.find(|entry| is_called(&entry.name, names)).map(|entry| entry.name.as_str())
    };
    // A layer that is given X may have tensors of any name; one that has a softmax keeps its sums, or its weights. What is
    // called s is a state as often as scores.
    let has = |name: Name| {
        let is_it = |entry: &Entry| meanings(&entry.name).first() == Some(&name);
        record.entries.iter().any(|entry| is_it(entry) && !is_called(&entry.name, &["s", "alpha"]))
    };
    let has_x = has(Name::X);
    if [Name::Lse, Name::Weights, Name::MaskedScores].into_iter().any(has) {
        return Ok(false);
    }
    let kinds = RECURRENCES.iter().filter(|own| !(has_x && own.needs.contains(&Q)));
    let found = kinds.into_iter().find_map(|own| {
        let names: Option<Vec<&str>> = own.needs.iter().map(|names| called(names)).collect();
        names.map(|names| (own, names))
    });
    let Some((own, names)) = found else { return Ok(false) };
    if own.is_delta {
        return Ok(true);
    }
    let telling = names.last().copied().unwrap_or_default();
    let what = tr!(
        "{telling} beside {names} says that this is {what}: keys and values are written into a state that queries read, and there is no softmax",
        telling = quoted(telling),
        names = lang::list(&names[..names.len().saturating_sub(1)]),
        what = lang::text(own.what)
    );
    let fix = tr!(
        "attention by softmax and the delta rule are checked; leave {telling} out if this is one",
        telling = quoted(telling)
    );
    Err(Error::config(what, fix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device, Tensor};

    fn refusal(names: &[&str]) -> Option<String> {
        let one = Tensor::zeros(1, DType::F32, &Device::Cpu).expect("zeros");
        let entries = names.iter().map(|name| Entry::of(*name, one.clone())).collect();
        let record = Record { config: None, entries };
        match has_delta_rule(&record) {
            Ok(true) => Some("the delta rule".to_owned()),
            Ok(false) => None,
            Err(error) => Some(error.to_string()),
        }
    }

    #[test]
    fn attention_without_a_softmax_is_called_what_it_is() {
        for (names, what) in [
            (&["q", "k", "v", "g", "beta", "o", "final_state"][..], "the delta rule"),
            (&["query", "key", "value", "g", "beta"], "the delta rule"),
            (&["q", "k", "v", "beta", "o"], "the delta rule"),
            (&["q", "k", "v", "gk", "o"], "GLA"),
            (&["q", "k", "v", "s", "o", "final_state"], "RetNet"),
            (&["r", "w", "k", "v", "a", "b", "o"], "RWKV-7"),
            (&["r", "w", "k", "v", "u"], "recurrence of RWKV"),
            (&["x", "dt", "A", "B", "C"], "Mamba"),
        ] {
            let told = refusal(names).unwrap_or_default();
            assert!(told.contains(what), "{names:?}: {told}");
        }
    }

    #[test]
    fn attention_with_a_softmax_is_not_refused() {
        for names in [
            &["q", "k", "v", "out", "lse"][..],
            &["q", "k", "v", "o", "do", "dq", "dk", "dv", "delta"],
            &["query", "key", "value", "g", "out"],
            &["q", "k", "v", "s", "p", "o"],
            &["x", "q", "k", "v", "beta", "output"],
            &["q", "k", "v", "g", "beta", "attn_weights"],
        ] {
            assert_eq!(refusal(names), None, "{names:?}");
        }
    }
}
