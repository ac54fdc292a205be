//! JSON text: where an error is, and Python's bare `NaN` and `Infinity`.

use std::borrow::Cow;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::error::{Error, Result, near_miss};

/// Strings that stand for Python's bare words once [`quote_bare_words`] has been over the text. Each is as long
/// as its word, so that lines and columns stay right, and holds a control character that no writer leaves bare.
pub const NAN: &str = "\u{7f}";
pub const INFINITY: &str = "\u{7f}+++++";
pub const NEGATIVE_INFINITY: &str = "\u{7f}------";

/// Turns the bare `NaN`, `Infinity` and `-Infinity` that Python writes into strings of the same length.
pub fn quote_bare_words(text: &str) -> Cow<'_, str> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let words = [("-Infinity", NEGATIVE_INFINITY), ("Infinity", INFINITY), ("NaN", NAN)];
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '-', 'I', 'N']) {
        let (before, from) = rest.split_at(at);
        quoted.push_str(before);
        let end = if from.starts_with('"') {
            quoted.push_str(&from[..string_end(from)]);
            string_end(from)
        } else if let Some((word, stand_in)) = words.iter().find(|(word, _)| from.starts_with(word))
        {
            quoted.extend(["\"", stand_in, "\""]);
            word.len()
        } else {
            quoted.push_str(&from[..1]);
            1
        };
        rest = &from[end..];
    }
    quoted.push_str(rest);
    Cow::Owned(quoted)
}

/// The length of the string literal that `text` begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Parses JSON, and explains what is wrong with it.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| explain(path, &error))
}

/// An error of `serde_json` in our words: what, at which line and column, and what to do.
pub fn explain(path: &Path, error: &serde_json::Error) -> Error {
    let place = format!("line {}, column {}", error.line(), error.column());
    let text = error.to_string();
    let text = [(NEGATIVE_INFINITY, "-Infinity"), (INFINITY, "Infinity"), (NAN, "NaN")]
        .into_iter()
        .fold(text, |text, (stand_in, word)| text.replace(stand_in, word));
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    match error.classify() {
        Category::Eof => {
            let what = format!("the file ends in the middle, at {place}");
            Error::file(path, what, "it is truncated: write or copy it again")
        }
        Category::Syntax | Category::Io if (error.line(), error.column()) <= (1, 1) => {
            let what = "is not JSON, though its name says so";
            Error::file(path, what, "check the file, or give it the extension of its format")
        }
        Category::Syntax | Category::Io => {
            let fix = "check the JSON there: a comma, a quote or a bracket may be missing";
            Error::file(path, format!("{reason} at {place}"), fix)
        }
        Category::Data => {
            match reason.strip_prefix("unknown ").and_then(|rest| rest.split_once(" `")) {
                Some(("field", rest)) => unknown(path, "key", rest, &place),
                Some(("variant", rest)) => unknown(path, "value", rest, &place),
                _ => {
                    let reason =
                        reason.replace("expected usize", "expected a whole number from 0 up");
                    Error::file(path, format!("{reason} at {place}"), "correct the value there")
                }
            }
        }
    }
}

/// `rest` is what serde says behind the first backtick: the name, then the known ones, each in backticks.
fn unknown(path: &Path, kind: &str, rest: &str, place: &str) -> Error {
    let mut quoted = rest.split('`');
    let name = quoted.next().unwrap_or_default();
    let known: Vec<&str> = quoted.skip(1).step_by(2).collect();
    let fix = match near_miss(name, &known) {
        Some(near) => format!("did you mean \"{near}\"?"),
        None => format!("the {kind}s are {}", known.join(", ")),
    };
    Error::file(path, format!("unknown {kind} \"{name}\" at {place}"), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_become_strings_of_the_same_length() {
        let text = r#"{"a NaN": [NaN, -Infinity, Infinity, -1.5], "b\"NaN": "Infinity"}"#;
        let quoted = quote_bare_words(text);
        assert_eq!(quoted.len(), text.len());
        assert_eq!(
            quoted,
            format!(
                r#"{{"a NaN": ["{NAN}", "{NEGATIVE_INFINITY}", "{INFINITY}", -1.5], "b\"NaN": "Infinity"}}"#
            )
        );
    }

    #[test]
    fn broken_text_keeps_its_length() {
        for text in ["NaN\"", "\"NaN", "Nan -Infinity\\", "é NaN ü\"", "\"\\"] {
            assert_eq!(quote_bare_words(text).len(), text.len());
        }
    }
}
