//! Settings in JSON text: which key holds what it cannot.

use std::path::Path;

use serde_json::{Map, Value};

use super::bare_words::{INFINITY, NAN, NEGATIVE_INFINITY};
use super::text::{Object, explain, parse};
use base::error::{Error, Result, quoted};
use base::lang;
use config::{Setting, Settings};

/// Parses an object of settings; a value that its key cannot have is told by both.
pub fn parse_settings(path: &Path, text: &str) -> Result<Settings> {
    let read: serde_json::Result<Object<Settings>> = serde_json::from_str(text);
    let error = match read {
        Ok(Object(settings)) => return Ok(settings),
        Err(error) => error,
    };
    // What is this large holds something else than settings.
    if text.len() > MAX_SETTINGS {
        return Err(explain(path, &error));
    }
    let keys: Map<String, Value> = parse(path, text)?;
    let place = match error.line() {
        0 => String::new(),
        line => tr!(" at line {line}, column {column}", line, column = error.column()),
    };
    let wrong = keys.into_iter().find_map(|(key, value)| wrong_value(&key, &value));
    Err(match wrong {
        Some((what, needed)) => Error::file(path, format!("{what}{place}"), needed),
        // One that stands where it says otherwise: a key twice, or one that is not known.
        None => explain(path, &error),
    })
}

/// Settings are a few hundred characters, tokens' labels the most of them.
const MAX_SETTINGS: usize = 1 << 20;

/// What a key holds, and what it needs, if that is another kind of value.
fn wrong_value(key: &str, value: &Value) -> Option<(String, String)> {
    let setting = Setting::named(key)?;
    let found = kind(value);
    let alone = Value::Object(Map::from_iter([(key.to_owned(), value.clone())]));
    let read: serde_json::Result<Object<Settings>> = serde_json::from_str(&alone.to_string());
    let reason = read.err()?.to_string();
    let reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
    // A word that is not known, and what is wrong within a list or an object, is told by itself.
    let is_within = match (setting.choices, setting.is_list) {
        (_, true) => value.is_array(),
        ([], false) => {
            let is_nested = setting.value.contains('…') || setting.value.contains("JSON");
            is_nested && (value.is_array() || value.is_object())
        }
        ([_, ..], false) => value.is_string(),
    };
    if is_within {
        return None;
    }
    let needed = match (setting.choices, reason.rsplit_once(", expected ")) {
        ([_, ..], _) if setting.is_list => {
            tr!("a list of any of {choices}", choices = lang::list(setting.choices))
        }
        ([_, ..], _) => tr!("one of {choices}, in quotes", choices = lang::list(setting.choices)),
        ([], Some((_, expected))) => match expected {
            "usize" | "u64" => tr!("a whole number from 0 up").to_owned(),
            "f64" => tr!("a number").to_owned(),
            "a boolean" => tr!("true or false").to_owned(),
            "a string" => tr!("a text in quotes").to_owned(),
            "a sequence" => tr!("a list").to_owned(),
            "a map" => tr!("an object").to_owned(),
            other => quoted(other),
        },
        ([], None) => return None,
    };
    Some((tr!("{key} is {found}", key, found), tr!("give {needed}", needed)))
}

/// A value and its kind, in a few words.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => tr!("{value}, a boolean,", value),
        Value::Number(number) => tr!("the number {number}", number),
        Value::String(text) if text == NAN => tr!("NaN, which is not a number,").to_owned(),
        Value::String(text) if text == INFINITY => "Infinity".to_owned(),
        Value::String(text) if text == NEGATIVE_INFINITY => "-Infinity".to_owned(),
        Value::String(text) => tr!("the text \"{text}\"", text = quoted(text)),
        Value::Array(_) => tr!("a list").to_owned(),
        Value::Object(_) => tr!("an object").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bare_words::quote_bare_words;

    fn told(text: &str) -> String {
        let error = parse_settings(Path::new("c.json"), &quote_bare_words(text));
        let error = error.expect_err("must be refused");
        format!("{error}; {}", error.fix())
    }

    #[test]
    fn a_wrong_value_is_told_by_key_and_kind() {
        assert_eq!(
            told(r#"{"mask": true}"#),
            "c.json: mask is true, a boolean, at line 1, column 10; give one of causal, none, recorded, in quotes"
        );
        assert_eq!(
            told(r#"{"heads": 2, "dropout": NaN}"#),
            "c.json: dropout is NaN, which is not a number, at line 1, column 27; give a number"
        );
        assert!(told(r#"{"heads": 2.5}"#).ends_with("give a whole number from 0 up"));
        assert!(told(r#"{"lengths": [3, NaN]}"#).contains("invalid type: NaN, expected"));
        assert!(told(r#"{"without": ["ropes"]}"#).contains("unknown value \"ropes\""));
        assert!(told(r#"{"heads": [2]}"#).contains("heads is a list"));
        assert!(told(r#"{"mask": {}}"#).contains("mask is an object"));
        assert!(told(r#"{"bias": "yes"}"#).contains("bias is the text \"yes\""));
    }

    #[test]
    fn text_that_is_broken_is_told_as_such() {
        assert!(told(r#"{"mask": true"#).contains("the file ends in the middle"));
        assert!(told(r#"{"mask" true}"#).contains("a comma, a quote or a bracket may be missing"));
        assert!(told(r#"{"hedas": 2}"#).contains("unknown key"));
    }
}
