//! Which gradient of the output a backward pass starts from.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::text::{FromText, Place};

/// The gradient of the loss with respect to the output.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum OutputGradient {
    /// Ones, that of `output.sum()`.
    #[default]
    Ones,
    /// Drawn behind everything else, as `torch.randn_like(output)`.
    Randn,
    /// From a file.
    File(Place),
}

impl From<String> for OutputGradient {
    fn from(text: String) -> Self {
        match text.as_str() {
            "ones" => Self::Ones,
            "randn" => Self::Randn,
            _ => Self::File(text.into()),
        }
    }
}

impl From<OutputGradient> for String {
    fn from(own: OutputGradient) -> Self {
        own.to_string()
    }
}

impl fmt::Display for OutputGradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ones => f.write_str("ones"),
            Self::Randn => f.write_str("randn"),
            Self::File(place) => place.fmt(f),
        }
    }
}

impl FromText for OutputGradient {
    fn from_text(text: &str) -> Result<Self, String> {
        Ok(text.to_owned().into())
    }

    fn move_to(&mut self, folder: &Path) {
        if let Self::File(place) = self {
            place.move_to(folder);
        }
    }
}
