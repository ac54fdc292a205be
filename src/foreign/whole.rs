//! What does a recording of a whole model hold: which tensor is what which part of it gave?

use std::collections::HashMap;

use candle_core::DType;

use super::names::last_segment;
use file::{Bundle, Info};
use program::Name;

/// A part of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// Tokens or positions as vectors.
    Embedding,
    /// A norm.
    Norm,
    /// Attention.
    Attention,
    /// A feed-forward network.
    Mlp,
    /// A linear layer.
    Linear,
    /// What is handed from part to part: a residual stream, or whatever code does between modules.
    Between,
    /// A whole layer: the residual stream behind it.
    Layer,
    /// The logits.
    Logits,
    /// Something else.
    Other,
}

impl Part {
    /// What it is called, in the language in force.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Embedding => tr!("embedding"),
            Self::Norm => tr!("norm"),
            Self::Attention => tr!("attention"),
            Self::Mlp => tr!("MLP"),
            Self::Linear => tr!("linear layer"),
            Self::Between => tr!("step between modules"),
            Self::Layer => tr!("residual sum"),
            Self::Logits => tr!("logits layer"),
            Self::Other => tr!("another module"),
        }
    }

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norm => "norm",
            Self::Attention => "attention",
            Self::Mlp => "mlp",
            Self::Linear => "linear",
            Self::Between => "between",
            Self::Layer => "layer",
            Self::Logits => "logits",
            Self::Other => "other",
        }
    }
}

/// Parts by what stands in their names, the first that fits: the words, the part, its place in a layer, and whether it is what
/// goes into a part. Names are those of transformers, `TransformerLens`, llama.cpp, MLX, Flax and `MaxText`.
const WORDS: &[(&[&str], Part, u32)] = &[
    (&["resid_pre"], Part::Between, 0),
    (&["resid_mid", "ffn_inp"], Part::Between, 50),
    (&["resid_post", "l_out"], Part::Layer, 90),
    (&["lm_head", "logits", "unembed", "result_output", "embed_out"], Part::Logits, 95),
    (&["post_feedforward", "post_mlp", "post_ffw"], Part::Norm, 80),
    (&["post_attention", "post_self_attention"], Part::Norm, 60),
    (
        &[
            "input_layernorm",
            "ln_1",
            "ln1",
            "attn_norm",
            "attention_norm",
            "norm1",
            "pre_attention",
            "pre_self_attention",
        ],
        Part::Norm,
        10,
    ),
    (
        &["pre_feedforward", "pre_ffw", "ln_2", "ln2", "ffn_norm", "norm2", "pre_mlp"],
        Part::Norm,
        60,
    ),
    (&["norm", "ln_f", "ln_final"], Part::Norm, 85),
    (&["emb", "wte", "wpe"], Part::Embedding, 0),
    (&["attn", "attention", "kqv_out"], Part::Attention, 20),
    (&["mlp", "ffn", "feed_forward", "feedforward", "moe", "experts"], Part::Mlp, 70),
];

/// What the last module within attention is called.
const GIVES: &[&str] =
    &["wo", "w_o", "o_proj", "out_proj", "c_proj", "to_out", "dense", "proj", "o", "out"];

/// A tensor of a recording: what a part of the model gave, or what went into one.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its place in the file.
    pub at: usize,
    /// Its name there.
    pub name: String,
    /// The module.
    pub path: String,
    /// Whether it went into the module, and no part that was recorded gave it.
    pub is_input: bool,
    /// What the module is; what went into one lies between parts.
    pub part: Part,
    /// The place among the parts of its layer.
    pub rank: u32,
    /// The layer that it stands in.
    pub layer: Option<usize>,
    /// The nodes that the module read, where the file says it.
    pub reads: Vec<usize>,
    /// The ε of a norm, where the file says it.
    pub eps: Option<f64>,
    /// The lengths of its axes.
    pub shape: Vec<usize>,
    /// Its type.
    pub dtype: DType,
}

impl Node {
    /// How wide its rows are.
    #[must_use]
    pub fn width(&self) -> usize {
        self.shape.last().copied().unwrap_or(1)
    }

    /// How many rows it has.
    #[must_use]
    pub fn rows(&self) -> usize {
        let (_, outer) = self.shape.split_last().unwrap_or((&1, &[]));
        outer.iter().product()
    }
}

/// Whether a file records a single attention: it states its run, or has nothing but steps and weights.
#[must_use]
pub fn is_record(bundle: &Bundle) -> bool {
    let is_step = |info: &Info| {
        let is_alone = !info.name.contains(['.', '/', '-']) && layer_in(&info.name).is_none();
        Name::in_files(&info.name).is_some() || is_alone
    };
    let infos = || bundle.infos().iter();
    bundle.config().is_some()
        || infos().any(is_step) && infos().all(|info| is_step(info) || is_weight(&info.name))
}

/// The nodes of a recording in order of execution. Files of [`mha_trace.record`] say it; of others names tell.
///
/// [`mha_trace.record`]: https://docs.rs/mha-trace
#[must_use]
pub fn nodes(bundle: &Bundle) -> Vec<Node> {
    let infos = bundle.infos();
    let is_said = infos.iter().any(|info| info.formula.as_deref().is_some_and(is_call));
    let is_node = |info: &Info| {
        let is_number = info.dtype.is_float() && info.shape.len() > 1;
        is_number && if is_said { info.formula.is_some() } else { !is_weight(&info.name) }
    };
    let found = infos.iter().enumerate().filter(|(_, info)| is_node(info));
    let mut all: Vec<Node> = found.map(|(at, info)| node(at, info)).collect();
    if !is_said {
        let is_first = |node: &Node| node.layer.is_none() && node.part == Part::Embedding;
        let stage =
            |node: &Node| if is_first(node) { 0 } else { 1 + u8::from(node.layer.is_none()) };
        all.sort_by_key(|node| (stage(node), node.layer, node.rank, !node.is_input));
        return all;
    }
    let places: HashMap<String, usize> =
        all.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
    for node in &mut all {
        let call = infos.get(node.at).and_then(|info| info.formula.as_deref()).and_then(call);
        let (_, arguments) = call.unwrap_or(("", ""));
        for argument in arguments.split(", ") {
            match argument.split_once('=') {
                Some(("eps", eps)) => node.eps = eps.parse().ok(),
                _ => node.reads.extend(places.get(argument)),
            }
        }
    }
    all
}

/// What a formula of a call says: the class, and the arguments.
fn call(formula: &str) -> Option<(&str, &str)> {
    formula.strip_suffix(')')?.split_once('(')
}

fn is_call(formula: &str) -> bool {
    call(formula).is_some_and(|(class, _)| class.chars().all(|c| c.is_alphanumeric() || c == '_'))
}

/// Whether a tensor of that name is a parameter.
#[must_use]
pub fn is_weight(name: &str) -> bool {
    ["weight", "bias", "kernel", "scale", "embedding"].iter().any(|end| {
        name.strip_suffix(end).is_some_and(|path| path.is_empty() || path.ends_with(['.', '/']))
    })
}

fn node(at: usize, info: &Info) -> Node {
    let name = &info.name;
    let end = |end: &str| name.strip_suffix(end).filter(|path| !path.is_empty());
    let input = [".in", ".input", "/in"].iter().find_map(|mark| end(mark));
    let output = [".out", ".output", "/out"].iter().find_map(|mark| end(mark));
    let path = input.or(output).unwrap_or(name);
    let class = info.formula.as_deref().and_then(call).map_or("", |(class, _)| class);
    let (layer, inner) = layer_of(path);
    let (part, rank) = part_of(inner, class, layer);
    let is_input = input.is_some();
    let part = if is_input { Part::Between } else { part };
    let (shape, dtype) = (info.shape.clone(), info.dtype);
    let (name, path) = (name.clone(), path.to_owned());
    Node { at, name, path, is_input, part, rank, layer, reads: Vec::new(), eps: None, shape, dtype }
}

/// A name with its layer's number so many higher: that of a pipeline stage, which counts its own layers.
#[must_use]
pub fn shifted(name: &str, by: usize) -> String {
    let Some(place) = layer_in(name) else { return name.to_owned() };
    let layer = name.get(place.clone()).and_then(|number| number.parse().ok()).unwrap_or(0);
    let mut shifted = name.to_owned();
    shifted.replace_range(place, &usize::saturating_add(layer, by).to_string());
    shifted
}

/// The layer in a path, and what stands behind it, or before it where nothing does: `model.layers.3.mlp`, `l_out-3`.
pub(super) fn layer_of(path: &str) -> (Option<usize>, &str) {
    let Some(place) = layer_in(path) else { return (None, path) };
    let layer = path.get(place.clone()).and_then(|number| number.parse().ok());
    let before = path.get(..place.start).unwrap_or_default();
    let inner = path.get(place.end..).unwrap_or_default().trim_start_matches(['.', '/', '-', '_']);
    // Behind a dash the number is that of what stands before it.
    let is_dashed = before.ends_with('-');
    (layer, if is_dashed && inner.is_empty() { before } else { inner })
}

/// What stands before the number of a layer in a path: the stack of layers that it is of.
pub(super) fn stack_of(path: &str) -> &str {
    layer_in(path).and_then(|place| path.get(..place.start)).unwrap_or_default()
}

/// What stands before the number of a layer, with no sign between the two or a bare underscore: `layer0.attn`, `layer_0_attn`;
/// and so does `h` alone.
const LAYERS: &[&str] = &["layer", "layers", "block", "blocks", "blk"];

/// Where the number of a layer stands in a path: the first number that is no part of a name.
fn layer_in(path: &str) -> Option<std::ops::Range<usize>> {
    let is_digit = |c: char| c.is_ascii_digit();
    let mut from = 0;
    while let Some(start) =
        path.get(from..).and_then(|rest| rest.find(is_digit)).map(|at| at + from)
    {
        let rest = path.get(start..).unwrap_or_default();
        let end = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
        let behind = rest.get(end..).unwrap_or_default();
        let before = path.get(..start).unwrap_or_default();
        let word = before.trim_end_matches('_').to_ascii_lowercase();
        let is_numbered =
            LAYERS.iter().any(|layers| word.ends_with(layers)) || last_segment(&word) == "h";
        let ends = behind.is_empty()
            || behind.starts_with(['.', '/', '-'])
            || is_numbered && behind.starts_with('_');
        let stands_alone = ends && (is_numbered || before.ends_with(['.', '/', '-', '_']));
        // `ln_1` is a name: a number behind a bare underscore counts only where a module of its own ends there.
        let is_name = before.ends_with('_')
            && !is_numbered
            && !before.contains("layer")
            && !before.contains("block");
        if stands_alone && !is_name {
            return Some(start..start + end);
        }
        from = start + end;
    }
    None
}

/// What a module is, by its name in its layer, or by its class.
fn part_of(inner: &str, class: &str, layer: Option<usize>) -> (Part, u32) {
    let lower = inner.to_ascii_lowercase();
    if layer.is_some() && lower.is_empty() {
        return (Part::Layer, 90);
    }
    let of = |text: &str| {
        let has =
            |(words, ..): &&(&[&str], Part, u32)| words.iter().any(|word| text.contains(word));
        WORDS.iter().find(has).map(|(_, part, rank)| (*part, *rank))
    };
    let kind = class.to_ascii_lowercase();
    let mut segments = lower.rsplit(['.', '/']);
    let last = segments.next().unwrap_or(&lower);
    let is_inner =
        segments.next().is_some_and(|outer| matches!(of(outer), Some((Part::Attention, _))));
    match of(last) {
        // Of the modules within attention the last one gives what it gives.
        _ if is_inner && GIVES.contains(&last) => (Part::Attention, 20),
        // BERT's module of attention holds the attention itself, and its projection.
        _ if is_inner && (last == "self" || kind.contains("attention")) => (Part::Attention, 18),
        Some((Part::Attention, _)) | None if is_inner => (Part::Linear, 15),
        // A class says more than a name that a norm shares with what it stands behind.
        Some((Part::Attention, rank)) if kind.contains("norm") => (Part::Norm, rank + 5),
        Some(found) => found,
        None if kind.contains("linear") || kind == "conv1d" => (Part::Linear, 75),
        None => of(&kind).or_else(|| of(&lower)).unwrap_or((Part::Other, 75)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_a_part_is() {
        let told = |path: &str, class: &str| {
            let (layer, inner) = layer_of(path);
            (layer, part_of(inner, class, layer).0)
        };
        for (path, class, layer, part) in [
            ("model.layers.3.mlp", "LlamaMLP", Some(3), Part::Mlp),
            ("model.layers.3.post_attention_layernorm", "LlamaRMSNorm", Some(3), Part::Norm),
            ("transformer.h.1.ln_1", "LayerNorm", Some(1), Part::Norm),
            ("transformer.ln_f", "LayerNorm", None, Part::Norm),
            ("transformer.wte", "Embedding", None, Part::Embedding),
            ("encoder.layer.0.attention.output.dense", "Linear", Some(0), Part::Linear),
            ("model.layers.11", "LlamaDecoderLayer", Some(11), Part::Layer),
            ("blocks.2.hook_resid_post", "", Some(2), Part::Layer),
            ("blocks.2.hook_attn_out", "", Some(2), Part::Attention),
            ("l_out-7", "", Some(7), Part::Layer),
            ("ffn_out-7", "", Some(7), Part::Mlp),
            ("layers_0/mlp", "", Some(0), Part::Mlp),
            ("layer0.attn", "", Some(0), Part::Attention),
            ("layer_12_mlp", "", Some(12), Part::Mlp),
            ("block3", "", Some(3), Part::Layer),
            ("h_1/attn", "", Some(1), Part::Attention),
            ("layers.2.ln_1", "", Some(2), Part::Norm),
            ("lm_head", "Linear", None, Part::Logits),
        ] {
            assert_eq!(told(path, class), (layer, part), "{path}");
        }
        // The four norms of a layer, in order.
        let names = ["pre_attention_norm", "post_attention_norm", "pre_ffw_norm", "post_ffw_norm"];
        let ranks = names.map(|name| part_of(name, "", Some(0)).1);
        assert_eq!(ranks, [10, 60, 60, 80]);
    }
}
