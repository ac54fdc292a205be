//! The names that people's code gives to the weights of the four projections.

use std::collections::HashMap;

use candle_core::Tensor;

use crate::error::{Error, Result};
use crate::file::Record;

/// Names of the Linear modules, a row a projection; `nn.Linear` adds `.weight` and `.bias`.
const MODULES: [(&str, &[&str]); 4] = [
    ("q", &["q_proj", "query", "W_q", "w_q"]),
    ("k", &["k_proj", "key", "W_k", "w_k"]),
    ("v", &["v_proj", "value", "W_v", "w_v"]),
    ("o", &["o_proj", "out_proj", "out", "W_o", "w_o"]),
];

/// The weights and biases of a file under our names: `w_q`, `b_q`, … as they are, or Linear modules.
///
/// # Errors
/// If a weight is missing, or only some projections have a bias.
pub fn weights(record: &Record, prefix: &str) -> Result<HashMap<String, Tensor>> {
    let mut found = HashMap::new();
    for (projection, modules) in MODULES {
        let weight = [format!("w_{projection}")];
        let bias = [format!("b_{projection}")];
        let weights =
            weight.into_iter().chain(modules.iter().map(|module| format!("{module}.weight")));
        let biases = bias.into_iter().chain(modules.iter().map(|module| format!("{module}.bias")));
        let Some(tensor) = first(record, prefix, weights) else {
            return Err(missing(record, prefix, projection));
        };
        found.insert(format!("w_{projection}"), tensor);
        if let Some(tensor) = first(record, prefix, biases) {
            found.insert(format!("b_{projection}"), tensor);
        }
    }
    let biases: Vec<&str> =
        ["b_q", "b_k", "b_v", "b_o"].into_iter().filter(|name| found.contains_key(*name)).collect();
    if !matches!(biases.len(), 0 | 4) {
        let what = format!("have biases {} only", biases.join(", "));
        return Err(Error::tensor(
            "weights",
            what,
            "give all four biases or none; a missing one may be zeros",
        ));
    }
    Ok(found)
}

fn first(record: &Record, prefix: &str, mut names: impl Iterator<Item = String>) -> Option<Tensor> {
    let under = |name: &str| {
        let dotted = record.tensor(&format!("{prefix}.{name}")).filter(|_| !prefix.is_empty());
        dotted.or_else(|| record.tensor(&format!("{prefix}{name}")))
    };
    names.find_map(|name| under(&name).cloned())
}

fn missing(record: &Record, prefix: &str, projection: &str) -> Error {
    let what = if prefix.is_empty() {
        format!("no w_{projection} among them")
    } else {
        format!("no w_{projection} under the prefix {prefix}")
    };
    let names: Vec<&str> = record.entries.iter().map(|entry| entry.name.as_str()).collect();
    let listed = match names.as_slice() {
        [some @ .., _] if names.len() > 12 => format!("{}, …", some[..11].join(", ")),
        all => all.join(", "),
    };
    let fix = format!(
        "name them w_{projection} or {}.weight, or pass --prefix; the file holds {listed}",
        MODULES.iter().find(|(name, _)| *name == projection).map_or("", |(_, modules)| modules[0])
    );
    Error::tensor("weights", what, fix)
}
