//! Changes of what people type: settings, a line each, and names of cells.

use mha_trace::config::Setting;
use mha_trace::program::Name;

use super::numbers::number;
use super::{Rng, any};

/// Lines of `key=value` with one added, taken away or changed.
pub fn settings_text(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let setting = any(Setting::ALL, rng)?;
    let line = format!("{}={}", setting.key, value(setting, rng)?);
    let at = rng.usize(..=lines.len());
    match (rng.u8(..4), lines.get_mut(at)) {
        (0, Some(_)) => drop(lines.remove(at)),
        (1, Some(old)) => *old = line,
        _ => lines.insert(at, line),
    }
    Some(lines.join("\n").into_bytes())
}

/// A value that the setting may have.
fn value(setting: &Setting, rng: &mut Rng) -> Option<String> {
    if let Some(word) = any(setting.choices, rng) {
        return Some((*word).to_owned());
    }
    let small = rng.u8(..7);
    Some(match rng.u8(..8) {
        0 => number(rng).to_string(),
        1 => (*any(&["true", "false", "NaN", "-inf", "1e-300", "0.5", "-3"], rng)?).to_owned(),
        2 => format!("{small},{}", rng.u8(..7)),
        3 => format!("{small}..T-{}", rng.u8(..3)),
        4 => format!("{small:04b}"),
        5 => format!("[[{small},{}]]", number(rng)),
        6 => (*any(
            &[
                r#"{"rope_type":"yarn","factor":4,"original_max_position_embeddings":8}"#,
                r#"{"rope_type":"dynamic","factor":2,"original_max_position_embeddings":3}"#,
                r#"{"rope_type":"linear","factor":0}"#,
            ],
            rng,
        )?)
        .to_owned(),
        _ => small.to_string(),
    })
}

/// A text that names a step, a cell, rows, or names of tensors beside steps.
pub fn asked(_: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let step = any(Name::ALL, rng)?;
    let axes = ["batch", "head", "query", "key", "feature", "x", ""];
    let places = (0..rng.usize(..6)).map(|_| match rng.u8(..5) {
        0 => number(rng).to_string(),
        1 => format!("{}={}", any(&axes, rng).unwrap_or(&""), rng.u8(..5)),
        2 => format!("{}=cat", any(&axes, rng).unwrap_or(&"")),
        _ => rng.u8(..4).to_string(),
    });
    let places: Vec<String> = places.collect();
    Some(
        match rng.u8(..5) {
            0 => format!("{}..T-{}", number(rng), number(rng)),
            1 => format!("{step}={step},{step}={}", number(rng)),
            _ => format!("{step}[{}]", places.join(",")),
        }
        .into_bytes(),
    )
}
