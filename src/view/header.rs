//! A run's setting in a few lines.

use serde_json::Value;

use base::error::quoted;
use base::lang;
use config::{
    AlibiForm, Config, End, Input, Mask, Place, Queries, Recurrence, Rotary, Setting, Settings,
    Start,
};
use program::{Lists, Places, Selection};

/// The sizes.
pub fn sizes_line(config: &Config) -> String {
    let c = &config.sizes;
    let mut sizes = vec![
        tr!("batch {batch}", batch = c.batch),
        tr!("sequence length {seq_len}", seq_len = c.seq_len),
    ];
    sizes.extend(c.queries.map(|rows| tr!("queries {rows}", rows = Queries::from(rows))));
    sizes.extend(c.is_cross.then(|| format!("{} {}", second(config), c.own_keys)));
    if c.past_len > 0 {
        sizes.push(tr!("cache {past_len}", past_len = c.past_len));
    }
    if config.start == Start::Inputs || config.end == End::Output {
        sizes.push(tr!("d_model {d_model}", d_model = c.d_model));
    }
    sizes.push(tr!("heads {heads}", heads = c.heads));
    if c.kv_heads < c.heads {
        sizes.push(tr!("kv_heads {kv_heads}", kv_heads = c.kv_heads));
    }
    sizes.extend(c.v_heads.map(|v_heads| format!("v_heads {v_heads}")));
    sizes.push(tr!("head_dim {head_dim}", head_dim = c.head_dim));
    if c.v_head_dim != c.head_dim {
        sizes.push(tr!("v_head_dim {v_head_dim}", v_head_dim = c.v_head_dim));
    }
    sizes.join(" · ")
}

/// What keys are that are not as many as the queries.
pub fn second(c: &Config) -> &'static str {
    if c.start == Start::Inputs { tr!("memory length") } else { tr!("keys") }
}

/// The mask, and whatever else makes the scores.
pub fn mask_line(c: &Config) -> String {
    let mut masks = Vec::new();
    if c.masks.between == Mask::Causal {
        let align = (c.sizes.seq_len != c.sizes.keys())
            .then(|| tr!(", aligned {align}", align = c.align()));
        let window = c.plain.window.map(|window| tr!(", window {window}", window));
        masks.push([tr!("causal").to_owned()].into_iter().chain(align).chain(window).collect());
    } else if let Some(window) = c.plain.window {
        masks.push(tr!("window {window} to both sides", window));
    }
    masks.extend(c.plain.chunk.map(|chunk| tr!("chunks of {chunk}", chunk)));
    if let Some(rows) = &c.masks.key_mask {
        masks.push(tr!("keys {rows}", rows = rows.join(",")));
    }
    if let Some(lengths) = &c.plain.lengths {
        let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        masks.push(tr!("lengths {lengths}", lengths = lengths.join(",")));
    }
    if let Some(packed) = &c.masks.segments {
        let of_keys = Some(&packed.keys).filter(|keys| **keys != packed.queries);
        let of_keys = of_keys.map_or_else(String::new, |keys| tr!(" (keys {keys})", keys));
        masks.push(tr!("documents {queries}{of_keys}", queries = packed.queries, of_keys));
    }
    masks.extend(c.plain.selected.as_ref().map(|own| match own {
        Selection::Tree(_) => tr!("a tree of tokens").to_owned(),
        Selection::Lists(Lists { tile: 1, block: 1, .. }) => tr!("chosen keys").to_owned(),
        Selection::Lists(Lists { block, .. }) => tr!("chosen blocks of {block} keys", block),
    }));
    masks.extend(c.plain.attn_mask.as_ref().map(|place| quoted(&place.0)));
    let biases =
        c.plain.attn_bias.as_ref().map(|place| tr!("biases {place}", place = quoted(&place.0)));
    if c.plain.recurrence.is_some() {
        return masks.into_iter().chain(told(c)).collect::<Vec<_>>().join(" · ");
    }
    let mask = if masks.is_empty() {
        tr!("no mask").to_owned()
    } else {
        tr!("mask {masks} · fill {fill}", masks = masks.join(tr!(" and ")), fill = c.masks.fill)
    };
    std::iter::once(mask).chain(biases).chain(told(c)).collect::<Vec<_>>().join(" · ")
}

/// The settings that change what is computed.
fn told(c: &Config) -> Vec<String> {
    let stated = Settings::from(c).to_json();
    let text = |setting: &Setting| match (setting.key, stated.get(setting.key)?, &c.rope) {
        ("rope", _, Some(rope)) => Some(rope_text(rope, c)),
        ("alibi", _, _) => match c.plain.alibi_form {
            AlibiForm::Paper => Some("alibi".to_owned()),
            form => Some(tr!("alibi {form}", form)),
        },
        (key, Value::Bool(true), _) => Some(key.to_owned()),
        (key, Value::String(word), _) => Some(format!("{key} {word}")),
        (key, Value::Array(list), _) => {
            let word =
                |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let list: Vec<String> = list.iter().map(word).collect();
            Some(format!("{key} {}", list.join(",")))
        }
        (key, value, _) => Some(format!("{key} {}", value.as_f64()?)),
    };
    Setting::ALL.iter().filter(|setting| setting.is_told).filter_map(text).collect()
}

/// A base as people write it, unless that is very long.
fn base(base: f64) -> String {
    if (1e-3..1e12).contains(&base) { base.to_string() } else { format!("{base:e}") }
}

/// `rope half, base 500000, 4 of 6 features, from position 3`: only what is not as usual.
fn rope_text(rope: &Rotary, c: &Config) -> String {
    let mut parts = vec![tr!("rope {pairing}", pairing = rope.pairing)];
    match &rope.freqs {
        Some(path) => parts.push(tr!("frequencies from {path}", path = quoted(&path.0))),
        None => parts.push(tr!("base {base}", base = base(rope.base))),
    }
    parts.extend(rope.scaling.as_ref().map(|scaling| tr!("scaled {kind}", kind = scaling.kind())));
    if rope.dims < c.sizes.head_dim {
        parts.push(tr!(
            "{dims} of {head_dim} features",
            dims = rope.dims,
            head_dim = c.sizes.head_dim
        ));
    }
    parts.extend(rope.places.as_ref().map(Places::told));
    if rope.offset > 0 {
        parts.push(tr!("from position {offset}", offset = rope.offset));
    }
    parts.join(tr!(", "))
}

/// Where the numbers come from.
pub fn numbers_line(c: &Config) -> String {
    let from = |place: &Option<Place>, otherwise: &str| match place {
        Some(place) => tr!("from {place}", place = quoted(&place.0)),
        None => otherwise.to_owned(),
    };
    let inputs = [("x", &c.plain.x)];
    let qkv = [("q", &c.plain.q), ("k", &c.plain.k), ("v", &c.plain.v)];
    let inputs = match c.start {
        Start::Inputs => &inputs[..],
        Start::Projections | Start::Heads => &qkv[..],
        Start::Scores => &[],
    };
    let is_given = Settings::from(c).scores.is_some();
    let decays = c.plain.recurrence.is_some_and(|own| own != Recurrence::Delta);
    let mut of_tokens = Vec::new();
    if c.plain.recurrence.is_some() {
        of_tokens.extend(decays.then_some(("g", &c.plain.g)));
        of_tokens.push(("beta", &c.plain.beta));
    }
    let scores = if is_given { tr!("scores given") } else { tr!("scores randn") };
    let mut parts: Vec<String> = Vec::new();
    parts.extend((c.start == Start::Scores).then(|| scores.to_owned()));
    for alike in inputs.chunk_by(|(_, left), (_, right)| left == right) {
        let names: Vec<&str> = alike.iter().map(|(name, _)| *name).collect();
        let place = alike.first().and_then(|(_, place)| (*place).clone());
        parts.push(format!("{} {}", lang::list(&names), from(&place, c.plain.input.name())));
    }
    for (name, place) in of_tokens {
        parts.push(format!("{name} {}", from(place, Input::Rand.name())));
    }
    if c.start == Start::Inputs || c.end == End::Output {
        let weights = from(&c.plain.weights, c.plain.init.name());
        let bias = if c.plain.bias { tr!("with bias") } else { tr!("no bias") };
        parts.push(tr!("weights {weights}, {bias}", weights, bias));
    }
    if !is_given || c.plain.dropout > 0.0 {
        parts.push(tr!("seed {seed}", seed = c.plain.seed.0));
    }
    parts.extend(Some(c.plain.dropout).filter(|p| *p > 0.0).map(|p| tr!("dropout {p}", p)));
    parts.push(c.dtype.to_string());
    parts.join(" · ")
}
