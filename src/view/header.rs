//! A run's setting in a few lines.

use serde_json::Value;

use crate::config::{Config, Mask, Place, Queries, Rotary, Setting, Settings};
use crate::error::quoted;

/// The sizes.
pub fn sizes_line(c: &Config) -> String {
    let c = &c.sizes;
    let mut sizes = vec![format!("batch {}", c.batch), format!("sequence length {}", c.seq_len)];
    sizes.extend(c.queries.map(|rows| format!("queries {}", Queries::from(rows))));
    sizes.extend(c.is_cross.then(|| format!("memory length {}", c.own_keys)));
    if c.past_len > 0 {
        sizes.push(format!("cache {}", c.past_len));
    }
    sizes.push(format!("d_model {} · heads {}", c.d_model, c.heads));
    if c.kv_heads < c.heads {
        sizes.push(format!("kv_heads {}", c.kv_heads));
    }
    sizes.push(format!("head_dim {}", c.head_dim));
    sizes.join(" · ")
}

/// The mask, and whatever else makes the scores.
pub fn mask_line(c: &Config) -> String {
    let mut masks = Vec::new();
    if c.masks.between == Mask::Causal {
        let align = (c.sizes.seq_len != c.sizes.keys()).then(|| format!(", aligned {}", c.align()));
        let window = c.masks.window.map(|window| format!(", window {window}"));
        masks.push(["causal".to_owned()].into_iter().chain(align).chain(window).collect());
    }
    if let Some(rows) = &c.masks.key_mask {
        masks.push(format!("keys {}", rows.join(",")));
    }
    if let Some(lengths) = &c.masks.lengths {
        let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        masks.push(format!("lengths {}", lengths.join(",")));
    }
    masks.extend(c.files.attn_mask.as_ref().map(|place| quoted(&place.0)));
    let mask = if masks.is_empty() {
        "no mask".to_owned()
    } else {
        format!("mask {} · fill {}", masks.join(" and "), c.masks.fill)
    };
    std::iter::once(mask).chain(told(c)).collect::<Vec<_>>().join(" · ")
}

/// The settings that change what is computed.
fn told(c: &Config) -> Vec<String> {
    let stated = Settings::from(c).to_json();
    let text = |setting: &Setting| match (setting.key, stated.get(setting.key)?, &c.rope) {
        ("rope", _, Some(rope)) => Some(rope_text(rope, c)),
        (key, Value::Bool(true), _) => Some(key.to_owned()),
        (key, Value::String(word), _) => Some(format!("{key} {word}")),
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
    let mut parts = vec![format!("rope {}", rope.pairing)];
    match &rope.freqs {
        Some(path) => parts.push(format!("frequencies from {}", quoted(&path.0))),
        None => parts.push(format!("base {}", base(rope.base))),
    }
    parts.extend(rope.scaling.as_ref().map(|scaling| format!("scaled {}", scaling.kind())));
    if rope.dims < c.sizes.head_dim {
        parts.push(format!("{} of {} features", rope.dims, c.sizes.head_dim));
    }
    if rope.offset > 0 {
        parts.push(format!("from position {}", rope.offset));
    }
    parts.join(", ")
}

/// Where the numbers come from.
pub fn numbers_line(c: &Config) -> String {
    let from = |place: &Option<Place>, otherwise: &str| match place {
        Some(place) => format!("from {}", quoted(&place.0)),
        None => otherwise.to_owned(),
    };
    let x = from(&c.files.x, c.draws.input.name());
    let weights = from(&c.files.weights, c.draws.init.name());
    let bias = if c.bias { "with bias" } else { "no bias" };
    let dropout =
        if c.dropout > 0.0 { format!(" · dropout {}", c.dropout) } else { String::new() };
    let seed = c.draws.seed.0;
    format!("x {x} · weights {weights}, {bias} · seed {seed}{dropout} · {}", c.dtype)
}
