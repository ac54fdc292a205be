//! What a file holds: tensors by name, and perhaps the config that they come from.

use std::fmt;
use std::path::Path;

use candle_core::{DType, Tensor};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use base::error::{Error, Result, quoted};
use config::Settings;

/// The name that files carry to say what they are.
pub const FORMAT: &str = "mha-trace";
/// The version of the format.
pub const VERSION: u64 = 1;

/// What a file says that it is.
#[derive(serde::Deserialize)]
#[serde(expecting = "an object")]
pub struct Head {
    pub format: Option<Said>,
    pub version: Option<Said>,
    /// Of a checkpoint in several files.
    pub weight_map: Option<Said>,
}

/// A value that may be anything, of which no more is kept than can be shown.
pub enum Said {
    /// A text, a number, a truth or nothing.
    Plain(Value),
    List,
    Object,
}

impl Said {
    pub fn is_object(&self) -> bool {
        matches!(self, Self::Object)
    }

    fn is(&self, expected: &Value) -> bool {
        matches!(self, Self::Plain(value) if value == expected)
    }
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(value) => f.write_str(&quoted(&value.to_string())),
            Self::List => f.write_str(tr!("a list")),
            Self::Object => f.write_str(tr!("an object")),
        }
    }
}

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Anything;
        impl<'de> Visitor<'de> for Anything {
            type Value = Said;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_unit<E>(self) -> Result<Said, E> {
                Ok(Said::Plain(Value::Null))
            }
            fn visit_bool<E>(self, value: bool) -> Result<Said, E> {
                Ok(Said::Plain(value.into()))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Said, E> {
                Ok(Said::Plain(value.into()))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Said, E> {
                Ok(Said::Plain(value.into()))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Said, E> {
                Ok(Said::Plain(value.into()))
            }
            fn visit_str<E>(self, text: &str) -> Result<Said, E> {
                Ok(Said::Plain(text.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Said, A::Error> {
                while items.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Said::List)
            }
            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Said, A::Error> {
                while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Said::Object)
            }
        }
        deserializer.deserialize_any(Anything)
    }
}

impl Head {
    /// Refuses another format, and a version that is not understood here.
    pub fn check(&self, path: &Path) -> Result<()> {
        match (&self.format, &self.version) {
            (Some(format), _) if !format.is(&FORMAT.into()) => {
                let what = tr!("its format is {format}, not \"{FORMAT}\"", format, FORMAT);
                Err(Error::file(path, what, "give a trace written with -o"))
            }
            (Some(_), Some(version)) if !version.is(&VERSION.into()) => {
                let what = tr!(
                    "its version is {version}, and only {VERSION} is understood",
                    version,
                    VERSION
                );
                Err(Error::file(path, what, "use a newer mha-trace"))
            }
            _ => Ok(()),
        }
    }
}

/// What a file holds: tensors by name, in order, and perhaps the config that they come from.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The setting of the run.
    pub config: Option<Settings>,
    /// The tensors in order of execution.
    pub entries: Vec<Entry>,
}

/// One tensor of a file. A `U8` tensor is a boolean one: 0 or 1.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The step's name.
    pub name: String,
    /// How it was computed, for readers.
    pub formula: Option<String>,
    /// The names of its axes, outermost first.
    pub axes: Option<Vec<String>>,
    /// Its value.
    pub tensor: Tensor,
    /// The name in its file, where that is another.
    pub called: Option<String>,
}

impl Entry {
    /// A tensor of which no more is said than its name.
    pub fn of(name: impl Into<String>, tensor: Tensor) -> Self {
        Self { name: name.into(), formula: None, axes: None, tensor, called: None }
    }

    /// The same under another name than its file has.
    #[must_use]
    pub fn renamed(self, name: impl Into<String>) -> Self {
        let called = self.called.unwrap_or(self.name);
        Self { name: name.into(), called: Some(called), ..self }
    }

    /// The name in its file.
    pub fn in_file(&self) -> &str {
        self.called.as_ref().unwrap_or(&self.name)
    }
}

impl Record {
    /// The tensor of that name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.entries.iter().find(|entry| entry.name == name).map(|entry| &entry.tensor)
    }

    /// The names of its tensors, to be others.
    pub fn names_mut(&mut self) -> Vec<&mut String> {
        self.entries.iter_mut().map(|entry| &mut entry.name).collect()
    }

    /// Puts another tensor in the place of one of that name.
    pub fn replace(&mut self, name: &str, tensor: Tensor) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.tensor = tensor;
        }
    }
}

/// The name of a tensor's type in files.
pub fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::U8 => "bool",
        other => other.as_str(),
    }
}

/// The type of that name in files.
pub fn dtype_named(name: &str) -> Option<DType> {
    let known = [DType::U8, DType::F32, DType::F64, DType::F16, DType::BF16, DType::I64];
    known.into_iter().find(|dtype| dtype_name(*dtype) == name)
}
