//! JSON text: what is wrong with it, and where.

use std::path::Path;

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use super::bare_words::{INFINITY, NAN, NEGATIVE_INFINITY};
use crate::error::{Error, Result, near_miss};

/// Parses JSON, and explains what is wrong with it.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| explain(path, &error))
}

/// An error of `serde_json` in our words: what, at which line and column, and what to do.
pub fn explain(path: &Path, error: &serde_json::Error) -> Error {
    // Some errors come without their place.
    let place = match error.line() {
        0 => "a place in it".to_owned(),
        line => format!("line {line}, column {}", error.column()),
    };
    let text = error.to_string();
    let text = [(NEGATIVE_INFINITY, "-Infinity"), (INFINITY, "Infinity"), (NAN, "NaN")]
        .into_iter()
        .fold(text, |text, (stand_in, word)| text.replace(stand_in, word));
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    match error.classify() {
        Category::Eof if (error.line(), error.column()) <= (1, 0) => {
            Error::file(path, "is empty", "write or copy it again")
        }
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
