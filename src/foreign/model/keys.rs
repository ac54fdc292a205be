//! What does a key of a model's config hold, and is it what it should be?

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::family::{Keys, When};
use base::error::{Error, Result};

/// The keys of a config, or of an object in it.
pub struct Config {
    pub path: PathBuf,
    pub keys: Map<String, Value>,
}

impl Config {
    pub fn new(path: &Path, keys: Map<String, Value>) -> Self {
        Self { path: path.to_owned(), keys }
    }

    /// What stands in the config's object of that name; the config itself where it has none.
    pub fn within(&self, object: &str) -> Result<Self> {
        let keys = self.object(object)?.unwrap_or(&self.keys).clone();
        Ok(Self { path: self.path.clone(), keys })
    }

    /// The value of a key, if it is there and not null; `object.key` is a key of an object in it.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.stated(name).filter(|value| !value.is_null())
    }

    /// The value of a key, if it is there.
    fn stated(&self, name: &str) -> Option<&Value> {
        match name.split_once('.') {
            Some((object, key)) => self.keys.get(object)?.get(key),
            None => self.keys.get(name),
        }
    }

    /// An object in it.
    pub fn object(&self, name: &str) -> Result<Option<&Map<String, Value>>> {
        let object = |value: &'_ Value| value.is_object();
        match self.get(name) {
            Some(value) if !object(value) => Err(self.wrong(name, tr!("an object"))),
            found => Ok(found.and_then(Value::as_object)),
        }
    }

    /// A list of words in it.
    pub fn words(&self, name: &str) -> Result<Option<Vec<&str>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let words = value.as_array().map(|all| all.iter().map(Value::as_str).collect());
        words.flatten().map(Some).ok_or_else(|| self.wrong(name, tr!("a list of words")))
    }

    /// A list of numbers in it, some of which may be null; an empty one is none.
    pub fn numbers(&self, name: &str) -> Result<Option<Vec<Option<f64>>>> {
        let Some(value) = self.get(name) else { return Ok(None) };
        let wrong = || self.wrong(name, tr!("a list of numbers"));
        let number = |value: &Value| match value {
            Value::Null => Ok(None),
            value => value.as_f64().map(Some).ok_or_else(wrong),
        };
        let numbers = value.as_array().ok_or_else(wrong)?.iter().map(number);
        let numbers: Vec<Option<f64>> = numbers.collect::<Result<_>>()?;
        Ok(Some(numbers).filter(|numbers| !numbers.is_empty()))
    }

    /// Whether something holds.
    pub fn holds(&self, when: When) -> Result<bool> {
        let is = |name: &str, otherwise| match self.get(name) {
            None => Ok(otherwise),
            Some(Value::Number(number)) => Ok(number.as_f64() != Some(0.0)),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(name, tr!("true or false"))),
        };
        match when {
            When::Always => Ok(true),
            When::Never => Ok(false),
            When::If(name, otherwise) => is(name, otherwise),
            When::IfNot(name, otherwise) => is(name, otherwise).map(|is| !is),
            When::Either(one, other) => Ok(is(one, false)? || is(other, false)?),
            When::Is(name, word) => Ok(self.get(name).and_then(Value::as_str) == Some(word)),
        }
    }

    /// The first of these keys that is there and not null, as a size.
    pub fn first(&self, names: Keys) -> Result<Option<usize>> {
        let name = names.iter().find(|name| self.get(name).is_some());
        name.map_or(Ok(None), |name| self.size(name))
    }

    /// A size, if the key is there and not null.
    pub fn size(&self, name: &str) -> Result<Option<usize>> {
        self.as_size(name, self.get(name))
    }

    /// The value of a key as a size.
    pub fn as_size(&self, name: &str, value: Option<&Value>) -> Result<Option<usize>> {
        let wrong = || self.wrong(name, tr!("a whole number from 0 up"));
        value.map(|value| as_size(value).ok_or_else(wrong)).transpose()
    }

    /// A size that has a default where the key is absent or null.
    pub fn sized(&self, (name, otherwise): (&str, usize)) -> Result<usize> {
        Ok(self.size(name)?.unwrap_or(otherwise))
    }

    /// A size that has a default where the key is absent, and none where it is null.
    pub fn size_or(&self, name: &str, otherwise: Option<usize>) -> Result<Option<usize>> {
        if self.stated(name).is_some() { self.size(name) } else { Ok(otherwise) }
    }

    pub fn number(&self, name: &str) -> Result<Option<f64>> {
        self.as_number(name, self.get(name))
    }

    /// A number that has a default where the key is absent, and none where it is null.
    pub fn number_or(&self, (name, otherwise): (&str, f64)) -> Result<Option<f64>> {
        if self.stated(name).is_some() { self.number(name) } else { Ok(Some(otherwise)) }
    }

    /// The number of the first of these keys that is there and not null.
    pub fn first_number(&self, names: Keys) -> Result<Option<f64>> {
        let name = names.iter().find(|name| self.get(name).is_some());
        name.map_or(Ok(None), |name| self.number(name))
    }

    pub fn number_in(&self, keys: &Map<String, Value>, name: &str) -> Result<Option<f64>> {
        self.as_number(name, keys.get(name).filter(|value| !value.is_null()))
    }

    fn as_number(&self, name: &str, value: Option<&Value>) -> Result<Option<f64>> {
        let number =
            value.map(|value| value.as_f64().ok_or_else(|| self.wrong(name, tr!("a number"))));
        number.transpose()
    }

    /// A number of a key that must be above 0.
    pub fn above_0(&self, name: &str, number: f64) -> Result<f64> {
        let is_above = number > 0.0 && number.is_finite();
        if is_above { Ok(number) } else { Err(self.wrong(name, tr!("a number above 0"))) }
    }

    pub fn wrong(&self, name: &str, wanted: &str) -> Error {
        let what = tr!("{name} is not {wanted}", name, wanted);
        Error::file(&self.path, what, "give the model's own config.json")
    }

    pub fn lacks(&self, name: &str) -> Error {
        let fix = tr!("give the model's own config.json, whole");
        Error::file(&self.path, tr!("has no {name}", name), fix)
    }

    pub fn refused(&self, what: impl Into<String>, fix: &str) -> Error {
        Error::file(&self.path, what.into(), fix)
    }
}

/// A number of a config as a size, if it is one.
pub fn as_size(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|size| usize::try_from(size).ok())
}
