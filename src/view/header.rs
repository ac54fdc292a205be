//! A run's setting in a few lines.

use crate::config::{Config, Mask, Queries, Rotary};

/// The sizes.
pub fn sizes_line(c: &Config) -> String {
    let mut sizes = vec![format!("batch {}", c.batch), format!("sequence length {}", c.seq_len)];
    sizes.extend(c.queries.map(|rows| format!("queries {}", Queries::from(rows))));
    sizes.extend(c.kv_len.map(|length| format!("memory length {length}")));
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
    if c.mask == Mask::Causal {
        let align = (c.seq_len != c.key_count()).then(|| format!(", aligned {}", c.align()));
        let window = c.window.map(|window| format!(", window {window}"));
        masks.push(["causal".to_owned()].into_iter().chain(align).chain(window).collect());
    }
    if let Some(rows) = &c.key_mask {
        masks.push(format!("keys {}", rows.join(",")));
    }
    if let Some(lengths) = &c.lengths {
        let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        masks.push(format!("lengths {}", lengths.join(",")));
    }
    masks.extend(c.attn_mask.clone());
    let mask = if masks.is_empty() {
        "no mask".to_owned()
    } else {
        format!("mask {} · fill {}", masks.join(" and "), c.mask_fill)
    };
    let norm = c.qk_norm.map(|norm| format!("qk_norm {norm}"));
    let rope = c.rope.as_ref().map(|rope| rope_text(rope, c));
    let alibi = c.alibi.then(|| "alibi".to_owned());
    let scale = c.scale.map(|scale| format!("scale {scale}"));
    let softcap = c.softcap.map(|cap| format!("softcap {cap}"));
    let parts = [Some(mask), norm, rope, alibi, scale, softcap];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// A base as people write it, unless that is very long.
fn base(base: f64) -> String {
    if (1e-3..1e12).contains(&base) { base.to_string() } else { format!("{base:e}") }
}

/// `rope half, base 500000, 4 of 6 features, from position 3`: only what is not as usual.
fn rope_text(rope: &Rotary, c: &Config) -> String {
    let mut parts = vec![format!("rope {}", rope.pairing)];
    match &rope.freqs {
        Some(path) => parts.push(format!("frequencies from {path}")),
        None => parts.push(format!("base {}", base(rope.base))),
    }
    parts.extend(rope.scaling.as_ref().map(|scaling| format!("scaled {}", scaling.kind())));
    if rope.dims < c.head_dim {
        parts.push(format!("{} of {} features", rope.dims, c.head_dim));
    }
    if rope.offset > 0 {
        parts.push(format!("from position {}", rope.offset));
    }
    parts.join(", ")
}

/// Where the numbers come from.
pub fn numbers_line(c: &Config) -> String {
    let x = c.x.as_ref().map_or_else(|| format!("x {}", c.input), |path| format!("x from {path}"));
    let bias = if c.bias { "with bias" } else { "no bias" };
    let weights = c
        .weights
        .as_ref()
        .map_or_else(|| format!("weights {}", c.init), |path| format!("weights from {path}"));
    let dropout =
        if c.dropout > 0.0 { format!(" · dropout {}", c.dropout) } else { String::new() };
    format!("{x} · {weights}, {bias} · seed {}{dropout} · {}", c.seed.0, c.dtype)
}
