//! The names and layouts in which people's code keeps the weights of the four projections.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use super::latent;
use super::layer::{Layer, Names, Stored, Weights};
use base::error::{Error, Result, listed, quoted};
use base::lang;
use config::{End, Settings};
use file::{Bundle, Record};
use program::{Name, Projection};

/// The three input projections as Linear modules, one row for each way to name them; `.weight` and `.bias` follow.
const MODULES: &[[&str; 3]] = &[
    ["q_proj", "k_proj", "v_proj"],
    ["q_proj.linear", "k_proj.linear", "v_proj.linear"],
    ["query", "key", "value"],
    ["W_q", "W_k", "W_v"],
    ["Wq", "Wk", "Wv"],
    ["q", "k", "v"],
    ["w_q", "w_k", "w_v"],
    ["W_query", "W_key", "W_value"],
    ["wq", "wk", "wv"],
    ["q_lin", "k_lin", "v_lin"],
    ["q_linear", "k_linear", "v_linear"],
    ["linear_q", "linear_k", "linear_v"],
    ["to_q", "to_k", "to_v"],
    ["self.query", "self.key", "self.value"],
    ["self.query_proj", "self.key_proj", "self.value_proj"],
    ["attention.query", "attention.key", "attention.value"],
    ["linears.0", "linears.1", "linears.2"],
    // llama.cpp's.
    ["attn_q", "attn_k", "attn_v"],
];

/// What a module within attention gives, by its name: queries, keys or values before they are split into heads.
#[must_use]
pub fn projected(module: &str) -> Option<Name> {
    let at = MODULES.iter().find_map(|row| row.iter().position(|own| *own == module))?;
    [Name::Q, Name::K, Name::V].get(at).copied()
}

/// The three input projections packed into one matrix, queries first; but `query_key_value` head by head.
const PACKED: &[&str] = &[
    "c_attn",
    "qkv",
    "attention.qkv",
    "qkv_proj",
    "Wqkv",
    "in_proj",
    "to_qkv",
    "query_key_value",
    "attn_qkv",
];

/// The output projection.
const OUTPUTS: &[&str] = &[
    "o_proj",
    "o_proj.linear",
    "out_proj",
    "out",
    "W_o",
    "Wo",
    "w_o",
    "wo",
    "out_lin",
    "linear_out",
    "to_out.0",
    "to_out",
    "output.dense",
    "dense",
    "linears.3",
    "c_proj",
    "proj",
    "projection",
    "projection_layer",
    "o",
    "attn_output",
    // Keras'.
    "attention_output",
];

/// A way to keep the four projections of a layer.
struct Scheme {
    /// The input projections: one a projection, or one for all three.
    inputs: Vec<Names>,
    /// What the output projection may be called.
    outputs: Vec<Names>,
    /// How weights are stored.
    stored: Stored,
}

fn module(name: &&str) -> Names {
    (format!("{name}.weight"), format!("{name}.bias"))
}

fn raw((weight, bias): (&str, &str)) -> Names {
    (weight.to_owned(), bias.to_owned())
}

/// Every known way. Where two fit under one prefix, the first is taken.
fn schemes() -> Vec<Scheme> {
    let outputs: Vec<Names> = OUTPUTS.iter().map(module).collect();
    let scheme = |inputs| Scheme { inputs, outputs: outputs.clone(), stored: Stored::Rows };
    let name = |(weight, bias): Projection| raw((weight.as_str(), bias.as_str()));
    let [inputs @ .., output] = Name::PROJECTIONS;
    let ours = Scheme { outputs: vec![name(output)], ..scheme(inputs.map(name).into()) };
    // `TransformerLens` writes keys and values so that several queries share with an underscore.
    let hooked = [[("W_K", "b_K"), ("W_V", "b_V")], [("_W_K", "_b_K"), ("_W_V", "_b_V")]];
    let hooked = hooked.map(|[keys, values]| Scheme {
        inputs: [("W_Q", "b_Q"), keys, values].map(raw).into(),
        outputs: vec![raw(("W_O", "b_O"))],
        stored: Stored::Heads,
    });
    let three = MODULES.iter().map(|row| scheme(row.iter().map(module).collect()));
    let packed = PACKED.iter().map(|name| scheme(vec![module(name)]));
    let cross = scheme(vec![module(&"q_attn"), module(&"c_attn")]);
    let cross = Scheme { stored: Stored::Kernels, ..cross };
    let in_proj = scheme(vec![raw(("in_proj_weight", "in_proj_bias"))]);
    // With kdim, whose biases stay packed.
    let apart = ["q_proj_weight", "k_proj_weight", "v_proj_weight"];
    let apart = scheme(apart.map(|name| raw((name, tr!("no bias of its own")))).into());
    let latents = latent::ROWS.iter().flat_map(|row| {
        let names = |query: &&str| [*query, row.keys_and_values].iter().map(module).collect();
        let scheme = |query| Scheme { stored: Stored::Latent, ..scheme(names(query)) };
        row.queries.each_ref().map(scheme)
    });
    [ours, in_proj, apart, cross]
        .into_iter()
        .chain(three)
        .chain(packed)
        .chain(latents)
        .chain(hooked)
        .chain(KERNELS.iter().flat_map(kernels))
        .collect()
}

/// The ends of the names of weights and biases in Flax and Keras, in flattened trees and in TensorFlow's variables.
const KERNELS: &[[&str; 2]] =
    &[[".kernel", ".bias"], ["/kernel", "/bias"], ["/kernel:0", "/bias:0"]];

/// The schemes of modules with kernels, which are (in, out) or (in, heads, `head_dim`).
fn kernels([weight, bias]: &[&str; 2]) -> impl Iterator<Item = Scheme> {
    let of = move |name: &&str| (format!("{name}{weight}"), format!("{name}{bias}"));
    let outputs: Vec<Names> = OUTPUTS.iter().map(of).collect();
    MODULES.iter().map(move |row| Scheme {
        inputs: row.iter().map(of).collect(),
        outputs: outputs.clone(),
        stored: Stored::Kernels,
    })
}

/// What a layer may do without.
#[derive(Debug, Clone, Copy, Default)]
pub struct Without {
    /// The output projection, which may be missing beside three that are separate.
    pub output: bool,
    /// Of three separate projections of inputs the last so many: those of values, or of keys and values.
    pub inputs: usize,
}

impl Without {
    /// What runs of these settings do without.
    pub fn of(settings: &Settings, output: bool) -> Self {
        let inputs = match (settings.shared_kv.is_some(), settings.k_eq_v == Some(true)) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        };
        Self { output, inputs }
    }
}

/// The layers whose four projections are all among these names, by prefix, but for those that they do without.
fn layers(names: &[&str], without: Without) -> Vec<Layer> {
    let ends_before = without.output;
    let mut found: BTreeMap<String, Layer> = BTreeMap::new();
    let schemes = schemes();
    let names = &of_weights(names, &schemes);
    let known: HashSet<&str> = names.iter().copied().collect();
    // Without the output projection a module's name may be of its projections or of the layer.
    let mut taken: HashSet<String> = HashSet::new();
    let firsts = schemes.iter().filter_map(|scheme| scheme.inputs.first());
    let prefixes = Prefixes::of(names, firsts.map(|(weight, _)| weight.clone()));
    for Scheme { inputs, outputs, stored } in schemes {
        let Some((first, _)) = inputs.first() else { continue };
        for prefix in prefixes.before(first) {
            let has = |(weight, _): &&Names| known.contains(format!("{prefix}{weight}").as_str());
            let needed = if inputs.len() == 3 { 3 - without.inputs } else { inputs.len() };
            if found.contains_key(prefix) || !inputs.iter().take(needed).all(|names| has(&names)) {
                continue;
            }
            if ends_before && !taken.insert(format!("{prefix}{first}")) {
                continue;
            }
            let absent = outputs.first().filter(|_| ends_before && inputs.len() > 1);
            if let Some(output) = outputs.iter().find(has).or(absent).cloned() {
                let (inputs, prefix) = (inputs.clone(), prefix.to_owned());
                found.insert(prefix.clone(), Layer { prefix, inputs, output, stored });
            }
        }
    }
    found.into_values().collect()
}

/// The names that end as those of weights do, by their last two bytes: of hundreds of thousands the others are done with.
fn of_weights<'a>(names: &[&'a str], schemes: &[Scheme]) -> Vec<&'a str> {
    let end = |name: &str| name.as_bytes().last_chunk::<2>().map(|end| u16::from_le_bytes(*end));
    let mut ends = vec![false; 1 << 16];
    for (weight, _) in schemes.iter().flat_map(|scheme| scheme.inputs.iter().chain(&scheme.outputs))
    {
        if let Some(end) = end(weight).and_then(|end| ends.get_mut(usize::from(end))) {
            *end = true;
        }
    }
    let is_end = |name: &&&str| end(name).and_then(|end| ends.get(usize::from(end))) == Some(&true);
    names.iter().filter(is_end).copied().collect()
}

/// What stands before the names of weights in those of a file's tensors. Each name is looked through once, however many
/// weights there are.
struct Prefixes<'a>(HashMap<String, Vec<&'a str>>);

impl<'a> Prefixes<'a> {
    fn of(names: &[&'a str], weights: impl Iterator<Item = String>) -> Self {
        let mut found: HashMap<String, Vec<&str>> = weights.map(|own| (own, Vec::new())).collect();
        let longest = found.keys().map(String::len).max().unwrap_or_default();
        for name in names {
            let ends = name.rmatch_indices(['.', '/', '_', ':']).map(|(at, _)| at + 1);
            let behind = ends.chain([0]).filter_map(|at| name.get(at..));
            for last in behind.take_while(|last| last.len() <= longest) {
                let Some(prefixes) = found.get_mut(last) else { continue };
                prefixes.extend(prefix_of(name, last));
            }
        }
        Self(found)
    }

    /// What stands before a weight, in the order of the names.
    fn before(&self, weight: &str) -> impl Iterator<Item = &'a str> {
        self.0.get(weight).into_iter().flatten().copied()
    }
}

/// What stands before `last` in `name`, if that is a whole segment or nothing.
fn prefix_of<'a>(name: &'a str, last: &str) -> Option<&'a str> {
    let before = name.strip_suffix(last)?;
    // A letter alone is a whole segment only behind what modules are separated by: `W_q` is no `q`.
    let is_letter = last.find('.') == Some(1);
    let is_whole = match before.chars().next_back() {
        None | Some('.' | '/') => true,
        Some('_' | ':') => !is_letter,
        Some(_) => false,
    };
    is_whole.then_some(before)
}

/// The layer that `--prefix` picks among a file's names; without one, the only one there is. `without` says what may
/// be missing.
///
/// # Errors
/// If no layer is under the prefix, or several are: the prefixes that would do are listed.
pub fn pick(names: &[&str], prefix: Option<&str>, without: Without) -> Result<Option<Layer>> {
    let mut all = layers(names, Without { output: false, ..without });
    if all.is_empty() && without.output {
        all = layers(names, without);
    }
    let known: Vec<String> = all.iter().map(|layer| layer.shown_prefix().to_owned()).collect();
    let asked = prefix.unwrap_or_default().trim_end_matches(['.', '/']);
    let (mut under, mut others): (Vec<Layer>, Vec<Layer>) =
        all.into_iter().partition(|layer| layer.is_under(asked));
    if under.is_empty() {
        under = others.extract_if(.., |layer| layer.has_within(asked)).collect();
    }
    // llama.cpp numbers its layers, whatever the model calls them.
    let number = asked.rsplit(['.', '/']).find(|word| word.parse::<usize>().is_ok());
    if let (true, Some(number)) = (under.is_empty(), number) {
        let own = format!("blk.{number}");
        let is_own = |layer: &Layer| layer.shown_prefix() == own;
        under = others.extract_if(.., |layer| is_own(layer)).collect();
    }
    if let Some(at) = under.iter().position(|layer| layer.shown_prefix() == asked) {
        return Ok(Some(under.swap_remove(at)));
    }
    let told = |prefixes: Vec<&str>| match prefixes.as_slice() {
        [shown @ .., _] if prefixes.len() > SHOWN => {
            let shown = shown.get(..SHOWN).unwrap_or(shown);
            tr!(
                "{shown} and {prefixes} more",
                shown = quoted(&lang::list(shown)),
                prefixes = prefixes.len() - SHOWN
            )
        }
        all => quoted(&lang::list(all)),
    };
    if under.len() > 1 {
        let what =
            tr!("{under} layers have them, and no prefix says which one", under = under.len());
        let prefixes = under.iter().map(Layer::shown_prefix).collect();
        let fix = tr!("choose one with `prefix`: {prefixes}", prefixes = told(prefixes));
        return Err(Error::tensor("weights", what, fix));
    }
    if under.is_empty() && !asked.is_empty() {
        let what = tr!("none under the prefix {asked}", asked = quoted(asked));
        let fix = if known.is_empty() {
            missing(names)
        } else if known.iter().all(String::is_empty) {
            tr!("the only layer has no prefix: leave it out").to_owned()
        } else {
            tr!("there are {known}", known = told(known.iter().map(String::as_str).collect()))
        };
        return Err(Error::tensor("weights", what, fix));
    }
    Ok(under.pop())
}

/// Whether a file holds the weights of one layer, or of one that the prefix picks.
pub fn has_layer(record: &Record, settings: &Settings) -> bool {
    let names: Vec<&str> = record.entries.iter().map(|entry| entry.name.as_str()).collect();
    pick(&names, settings.prefix.as_deref(), Without::of(settings, true))
        .is_ok_and(|layer| layer.is_some())
}

/// The weights of the layer that `--prefix` picks in a file; no other tensor of it is read.
///
/// # Errors
/// If the file cannot be read, or holds no whole layer, or several.
pub fn read_weights(path: &Path, settings: &Settings) -> Result<Weights> {
    let bundle = Bundle::open(path)?;
    let names: Vec<&str> = bundle.infos().iter().map(|info| info.name.as_str()).collect();
    let ends_before = settings.end.is_some_and(|end| end != End::Output);
    let read = || {
        let layer = pick(&names, settings.prefix.as_deref(), Without::of(settings, ends_before))?;
        let layer = layer.ok_or_else(|| none_found(&names))?;
        let weights = layer.weights(settings.into(), |name| bundle.tensor(name))?;
        Ok(Weights { files: bundle.files(), unread: layer.unread(&names, &weights), ..weights })
    };
    read().map_err(|error: Error| error.in_file(path))
}

/// The prefixes of the layers that a file of weights has.
///
/// # Errors
/// If the file cannot be read.
pub fn layers_of(path: &Path) -> Result<Vec<String>> {
    let bundle = Bundle::open(path)?;
    let names: Vec<&str> = bundle.infos().iter().map(|info| info.name.as_str()).collect();
    let layers = layers(&names, Without::default());
    Ok(layers.iter().map(|layer| layer.shown_prefix().to_owned()).collect())
}

/// How many names a message lists.
const SHOWN: usize = 12;

/// The error for a file that holds no whole layer that is known by its names: what lacks, if a layer is nearly there.
fn none_found(names: &[&str]) -> Error {
    let what = match nearly(names) {
        Some((there, missing)) => quoted(&tr!(
            "found {there}, but no {missing}",
            missing = missing.join(", no "),
            there = lang::list(&there)
        )),
        None => tr!("the file's tensors contain no four projections").to_owned(),
    };
    Error::tensor("weights", what, missing(names))
}

/// The names that are there and those that are missing of the layer that is the most complete.
fn nearly(names: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
    let mut best: Option<(Vec<String>, Vec<String>)> = None;
    let schemes = schemes();
    let names = &of_weights(names, &schemes);
    let known: HashSet<&str> = names.iter().copied().collect();
    let weights =
        schemes.iter().flat_map(|scheme| &scheme.inputs).map(|(weight, _)| weight.clone());
    let all = Prefixes::of(names, weights);
    for Scheme { inputs, outputs, .. } in schemes {
        // The output projection's names are too common to tell a layer.
        let prefixes = inputs.iter().flat_map(|(weight, _)| all.before(weight));
        for prefix in prefixes.collect::<BTreeSet<_>>() {
            let has = |weight: &str| known.contains(format!("{prefix}{weight}").as_str());
            let output = outputs.iter().find(|(weight, _)| has(weight)).or(outputs.first());
            let wanted = inputs.iter().chain(output).map(|(weight, _)| weight);
            let (there, missing): (Vec<&String>, _) = wanted.partition(|weight| has(weight));
            if best.as_ref().is_none_or(|(most, _)| there.len() > most.len()) {
                let full = |weight: &String| format!("{prefix}{weight}");
                best = Some((
                    there.into_iter().map(full).collect(),
                    missing.into_iter().map(full).collect(),
                ));
            }
        }
    }
    best
}

fn missing(names: &[&str]) -> String {
    let shown = listed(names.get(..SHOWN).unwrap_or(names));
    let more = if names.len() > SHOWN { ", …" } else { "" };
    tr!(
        "name them w_q, w_k, w_v, w_o or q_proj.weight …; the file holds {shown}{more}",
        shown,
        more
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wrong with a file of these names, and how long it takes to say it.
    #[test]
    fn many_names_are_refused_at_once() {
        let names: Vec<String> = (0..20_000)
            .map(|at| {
                format!("layers.{at}.{}", ["q_proj.weight", "query.weight", "out.weight"][at % 3])
            })
            .collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let start = std::time::Instant::now();
        assert!(pick(&names, None, Without::default()).is_ok_and(|layer| layer.is_none()));
        let what = none_found(&names).to_string();
        assert!(
            what.starts_with(
                "weights: found layers.0.q_proj.weight, but no layers.0.k_proj.weight, no"
            ),
            "{what}"
        );
        // A third of a second on a quiet machine; a busy one may give it a tenth of its time.
        let taken = start.elapsed();
        assert!(taken.as_secs() < 4, "{taken:?}");
    }

    #[test]
    fn no_name_is_listed_as_none() {
        assert!(missing(&[]).ends_with("the file holds nothing"));
        assert!(missing(&[""]).ends_with("the file holds a tensor without a name"));
    }
}
