//! Changes of JSON by its values.

use std::sync::LazyLock;

use mha_trace::config::Setting;
use mha_trace::foreign::{Known, known};
use serde_json::{Value, json};

use super::numbers::number;
use super::{Rng, any, fixture};

/// JSON with a few of its values changed.
pub fn json(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut value: Value = serde_json::from_slice(bytes).ok()?;
    for _ in 0..rng.usize(1..4) {
        change(&mut value, rng)?;
    }
    serde_json::to_vec(&value).ok()
}

/// The places of all values, as JSON pointers.
fn places(value: &Value, at: String, all: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, value)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            places(value, format!("{at}/{key}"), all);
        }),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| places(item, format!("{at}/{i}"), all));
        }
        _ => {}
    }
    all.push(at);
}

fn change(value: &mut Value, rng: &mut Rng) -> Option<()> {
    let mut all = Vec::new();
    places(value, String::new(), &mut all);
    let other = any(&all, rng).and_then(|at| value.pointer(at)).cloned()?;
    let one = value.pointer_mut(any(&all, rng)?)?;
    match (one, rng.u8(..5)) {
        (Value::Object(members), 0..3) => {
            let donor = any(&DONORS, rng).filter(|_| rng.bool());
            let (key, value) = match donor {
                Some(donor) => any(donor, rng).cloned()?,
                None => (any(Setting::ALL, rng)?.key.to_owned(), scalar(rng)),
            };
            members.insert(key, if rng.u8(..4) == 0 { other } else { value });
        }
        (Value::Object(members), _) => {
            let key = members.keys().nth(rng.usize(..members.len().max(1))).cloned();
            members.remove(&key?);
        }
        (Value::Array(items), 0..2) => items.insert(rng.usize(..=items.len()), scalar(rng)),
        (Value::Array(items), 2) => items.extend(items.clone()),
        (Value::Array(items), _) if !items.is_empty() => {
            drop(items.remove(rng.usize(..items.len())))
        }
        (Value::Number(old), 0..3) => *old = number(rng).into(),
        (one, 3) => *one = json!([one.take()]),
        (one, 4) => *one = other,
        (one, _) => *one = scalar(rng),
    }
    Some(())
}

/// A value of some kind: words that settings and models know, and numbers at the edge of what they can be.
fn scalar(rng: &mut Rng) -> Value {
    let text = |text: Option<&&'static str>| json!(text.copied().unwrap_or_default());
    match rng.u8(..10) {
        0 => any(&[json!(null), json!([]), json!({}), json!("")], rng).cloned().unwrap_or_default(),
        1 => json!(rng.bool()),
        2 => json!(number(rng)),
        3 => {
            any(&[1e308, -0.0, 0.5, 1e-320, -1.0], rng).map_or(Value::Null, |number| json!(number))
        }
        4 => {
            text(any(&["NaN", "Infinity", "F32", "I64", "BF16", "x", "weights", "é\u{202e}"], rng))
        }
        5 => text(any(Setting::ALL, rng).and_then(|setting| any(setting.choices, rng))),
        6 => text(any(&KNOWN, rng).and_then(|family| any(family.types, rng))),
        7 => json!([number(rng), number(rng)]),
        _ => json!(rng.u8(..9)),
    }
}

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(known);

/// What the configs of recorded models state: of each its keys and values.
static DONORS: LazyLock<Vec<Vec<(String, Value)>>> = LazyLock::new(|| {
    let folders = std::fs::read_dir(fixture("families")).expect("the fixtures are there");
    let configs = folders.filter_map(|folder| {
        let text = std::fs::read(folder.ok()?.path().join("config.json")).ok()?;
        let config: Value = serde_json::from_slice(&text).ok()?;
        Some(config.as_object()?.clone().into_iter().collect())
    });
    let mut configs: Vec<Vec<(String, Value)>> = configs.collect();
    configs.sort_by_key(|config| json!(config).to_string());
    configs
});
