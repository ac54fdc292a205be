//! JSON text: what is wrong with it, and where.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::error::Category;

use super::bare_words::{INFINITY, NAN, NEGATIVE_INFINITY};
use super::element::DAMAGED;
use super::input::{NAMED_WRONGLY, extension};
use base::error::{Error, Result, near_miss, quoted};
use base::lang;

/// A struct that is an object in JSON. Without this, serde takes an array of its fields in order as well.
#[derive(Debug, Default)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Keys<T> {
            type Value = T;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(tr!("an object"))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_map(Keys(PhantomData)).map(Self)
    }
}

/// The members of an object as they stand in it, keys that are there twice included.
pub struct Members<T>(pub Vec<(String, T)>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Members<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Each<T> {
            type Value = Members<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(tr!("an object"))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members<T>, A::Error> {
                let members = std::iter::from_fn(|| members.next_entry().transpose());
                members.collect::<Result<_, _>>().map(Members)
            }
        }
        deserializer.deserialize_map(Each(PhantomData))
    }
}

/// Parses a JSON object, and explains what is wrong with it.
pub fn parse_object<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    parse(path, text).map(|Object(value)| value)
}

/// Parses the JSON object in which a file of another format says what it holds.
pub fn parse_metadata<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    if serde_json::from_str::<IgnoredAny>(text).is_err() {
        return Err(Error::file(path, "its metadata is not JSON", DAMAGED));
    }
    parse_object(path, text)
}

/// A file that is no JSON.
pub fn not_json(path: &Path) -> Error {
    if extension(path).as_deref() == Some("json") {
        return Error::file(path, "is not JSON, though its name says so", NAMED_WRONGLY);
    }
    Error::file(path, "is not JSON", "give a JSON file")
}

/// Parses JSON, and explains what is wrong with it.
pub fn parse<T: DeserializeOwned>(path: &Path, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        // What begins like JSON need not be any, where no name says that it is.
        let is_named = extension(path).as_deref() == Some("json");
        if is_named || serde_json::from_str::<IgnoredAny>(text).is_ok() {
            explain(path, &error)
        } else {
            not_json(path)
        }
    })
}

/// An error of `serde_json` in our words: what, at which line and column, and what to do.
pub fn explain(path: &Path, error: &serde_json::Error) -> Error {
    // Some errors come without their place.
    let place = match error.line() {
        0 => String::new(),
        line => tr!(" at line {line}, column {column}", line, column = error.column()),
    };
    let text = error.to_string();
    // serde shows strings as Rust writes them.
    let text = [(NEGATIVE_INFINITY, "-Infinity"), (INFINITY, "Infinity"), (NAN, "NaN")]
        .into_iter()
        .fold(text, |text, (stand_in, word)| {
            text.replace(&tr!("string {stand_in}", stand_in = format!("{stand_in:?}")), word)
                .replace(stand_in, word)
        });
    let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason);
    match error.classify() {
        Category::Eof if (error.line(), error.column()) <= (1, 0) => {
            Error::file(path, "is empty", "write or copy it again")
        }
        Category::Eof => {
            let what = tr!("the file ends in the middle,{place}", place);
            Error::file(path, what, "it is truncated: write or copy it again")
        }
        Category::Syntax | Category::Io if (error.line(), error.column()) <= (1, 1) => {
            not_json(path)
        }
        Category::Syntax | Category::Io => {
            let fix = tr!("check the JSON there: a comma, a quote or a bracket may be missing");
            Error::file(path, format!("{}{place}", quoted(reason)), fix)
        }
        Category::Data => {
            match reason.strip_prefix("unknown ").and_then(|rest| rest.split_once(" `")) {
                Some(("field", rest)) => unknown(path, "key", rest, &place),
                Some(("variant", rest)) => unknown(path, "value", rest, &place),
                _ => {
                    // These are made as messages.
                    let is_message = reason.starts_with("rope_scaling: ");
                    let reason = if is_message { reason.to_owned() } else { quoted(reason) };
                    let reason = [
                        ("expected usize", "expected a whole number from 0 up"),
                        ("expected a map", "expected an object"),
                    ]
                    .into_iter()
                    .fold(reason, |reason, (theirs, ours)| reason.replace(theirs, ours));
                    let fix = match place.as_str() {
                        "" => tr!("give a nested array of numbers"),
                        _ => tr!("correct the value there"),
                    };
                    Error::file(path, format!("{reason}{place}"), fix)
                }
            }
        }
    }
}

/// `rest` is what serde says behind the first backtick: the name, then the known ones, each in backticks.
fn unknown(path: &Path, kind: &str, rest: &str, place: &str) -> Error {
    let mut names = rest.split('`');
    let name = names.next().unwrap_or_default();
    let known: Vec<&str> = names.skip(1).step_by(2).collect();
    let fix = match near_miss(name, &known) {
        Some(near) => tr!("did you mean \"{near}\"?", near),
        None if kind == "key" => tr!("the keys are {known}", known = lang::list(&known)),
        None => tr!("the values are {values}", values = lang::list(&known)),
    };
    let name = quoted(name);
    let what = match kind {
        "key" => tr!("unknown key \"{name}\"{place}", name, place),
        _ => tr!("unknown value \"{name}\"{place}", name, place),
    };
    Error::file(path, what, fix)
}
