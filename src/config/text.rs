//! How is the value of a setting read from text, as flags give it?

use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::choice::{
    AttnMaskTrue, CausalAlign, DType, DrawInputs, End, Feature, Gate, Init, Input, Mask, NormOver,
    OtherNorm, Packing, PositionTerm, Preset, QkNorm, QkvFormat, Recurrence, Seed, Start, TorchCpu,
};
use super::positions::Positions;
use super::queries::Queries;
use super::scores::Scores;
use super::segments::Segments;
use super::tiles::Tiles;
use super::tokens::Tokens;
use base::error::shown;
use program::{
    AlibiForm, EmptyRow, Fill, Pairing, RelativeBias, RopeScaling, SectionOrder, Selection,
};

/// What a setting's value can be read from.
pub trait FromText: Sized {
    /// The words that it can be, if it is one of a few.
    const CHOICES: &'static [&'static str] = &[];
    /// Whether it is a list, with commas between.
    const IS_LIST: bool = false;
    /// Whether it can begin with a minus.
    const IS_SIGNED: bool = false;

    /// Reads it.
    fn from_text(text: &str) -> Result<Self, String>;

    /// What it is if it stands in a file of that folder: paths are relative to it.
    fn move_to(&mut self, _folder: &Path) {}
}

/// A place that tensors come from, `FILE` or `FILE:TENSOR`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Place(pub String);

impl From<&str> for Place {
    fn from(place: &str) -> Self {
        Self(place.to_owned())
    }
}

impl From<String> for Place {
    fn from(place: String) -> Self {
        Self(place)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromText for Place {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.into())
    }

    fn move_to(&mut self, folder: &Path) {
        self.0 = folder.join(&self.0).to_string_lossy().into_owned();
    }
}

impl FromText for String {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }
}

impl FromText for bool {
    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| tr!("`{text}` is neither true nor false", text = shown(text)))
    }
}

impl FromText for usize {
    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || tr!("`{text}` is not a whole number from 0 up", text = shown(text));
        text.trim().parse().map_err(|_| wrong())
    }
}

impl FromText for f64 {
    const IS_SIGNED: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        text.trim().parse().map_err(|_| tr!("`{text}` is not a number", text = shown(text)))
    }
}

/// `the,cat,sat`, or a JSON list of labels.
impl FromText for Tokens {
    fn from_text(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with('[') {
            let wrong = |_| tr!("`{text}` is not a list of labels", text = shown(text));
            // Python's quotes, where there are no others.
            let text = if text.contains('"') { text.into() } else { text.replace('\'', "\"") };
            return serde_json::from_str(&text).map_err(wrong);
        }
        // Full-width commas separate labels where there are no others; a token may be one.
        let is_apart = |by: char| text.split(by).all(|label| !label.trim().is_empty());
        let by = [',', '，', '、'].into_iter().find(|by| text.contains(*by));
        let by = by.filter(|by| *by == ',' || is_apart(*by)).unwrap_or(',');
        Ok(Self::Same(text.split(by).map(str::to_owned).collect()))
    }
}

/// Items with commas between.
impl<T: FromText> FromText for Vec<T> {
    const CHOICES: &'static [&'static str] = T::CHOICES;
    const IS_LIST: bool = true;

    fn from_text(text: &str) -> Result<Self, String> {
        text.split(',').map(T::from_text).collect()
    }
}

macro_rules! parsed {
    ($($of:ty = $signed:literal),+) => {$(
        impl FromText for $of {
            const IS_SIGNED: bool = $signed;
            fn from_text(text: &str) -> Result<Self, String> {
                Self::from_str(text)
            }
        }
    )+};
}
parsed! { Scores = true, Seed = true, Fill = true, Queries = false, RopeScaling = false, Segments = false, Positions = false, Selection = false, Tiles = false }

macro_rules! chosen {
    ($($of:ty),+) => {$(
        impl FromText for $of {
            const CHOICES: &'static [&'static str] = Self::NAMES;
            fn from_text(text: &str) -> Result<Self, String> {
                Self::from_str(text.trim())
            }
        }
    )+};
}
chosen! {
    Preset, Input, DrawInputs, TorchCpu, Init, Mask, CausalAlign, AttnMaskTrue, QkNorm, Feature, DType, EmptyRow, Pairing,
    Start, End, QkvFormat, Packing, NormOver, AlibiForm, RelativeBias, PositionTerm,
    SectionOrder, OtherNorm, Gate, Recurrence
}
