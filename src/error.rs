//! What can go wrong, and what to do about it.

use std::path::{Path, PathBuf};

/// The result of everything here that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a trace could not be set up, computed, read or written.
///
/// `Display` says what is wrong; [`Error::fix`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting that makes no sense, alone or beside another.
    #[error("{what}")]
    Config {
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
    /// A tensor whose shape or content does not fit.
    #[error("{tensor}: {what}")]
    Tensor {
        /// The tensor's name.
        tensor: String,
        /// What is wrong, with both shapes where there are two.
        what: String,
        /// What to do.
        fix: String,
    },
    /// A file that cannot be read or written.
    #[error("{}: {what}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do.
        fix: String,
    },
    /// A run that needs more memory than the machine has free.
    #[error(
        "this run needs {}, and this machine has {} free",
        bytes(*needed),
        bytes(u128::from(*available))
    )]
    TooLarge {
        /// Bytes that the run needs.
        needed: u128,
        /// Bytes that the machine can give.
        available: u64,
    },
    /// A computation that candle refused.
    #[error("the computation failed: {0}")]
    Compute(String),
}

impl Error {
    /// What to do about it, as one line.
    #[must_use]
    pub fn fix(&self) -> &str {
        match self {
            Self::Config { fix, .. } | Self::Tensor { fix, .. } | Self::File { fix, .. } => fix,
            Self::TooLarge { .. } => {
                "make batch, seq_len, d_model, heads, head_dim or kv_len smaller"
            }
            Self::Compute(_) => {
                "please report this: the sizes were checked and it should not happen"
            }
        }
    }

    /// The error, with the file that it comes from.
    pub(crate) fn in_file(self, path: &Path) -> Self {
        match self {
            Self::Config { .. } | Self::Tensor { .. } | Self::Compute(_) => {
                Self::file(path, self.to_string(), self.fix())
            }
            known => known,
        }
    }

    pub(crate) fn config(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Config { what: what.into(), fix: fix.into() }
    }

    pub(crate) fn tensor(
        tensor: impl Into<String>,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self::Tensor { tensor: tensor.into(), what: what.into(), fix: fix.into() }
    }

    pub(crate) fn file(path: &Path, what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::File { path: path.to_owned(), what: what.into(), fix: fix.into() }
    }
}

impl From<candle_core::Error> for Error {
    /// Keeps candle's message and drops the backtrace it appends to it.
    fn from(error: candle_core::Error) -> Self {
        Self::Compute(error.to_string().lines().next().unwrap_or_default().to_owned())
    }
}

/// A number of bytes as people read it, in binary units: `1.5 GiB`.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "shown with one decimal")]
pub fn bytes(count: u128) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut units = UNITS.iter();
    let mut unit = units.next();
    while value >= 1024.0
        && let Some(next) = units.next()
    {
        value /= 1024.0;
        unit = Some(next);
    }
    let unit = unit.unwrap_or(&"EiB");
    if value < 1024.0 {
        format!("{value:.1} {unit}")
    } else {
        format!("{value:.0e} {unit} or more")
    }
}

/// A text of a file, such as a tensor's name, as it can be shown: control characters are escaped, and those that turn
/// the direction of what follows.
#[must_use]
pub fn shown(text: &str) -> std::borrow::Cow<'_, str> {
    let acts = |c: char| {
        let turns = '\u{202a}'..='\u{202e}';
        let isolates = '\u{2066}'..='\u{2069}';
        c.is_control()
            || turns.contains(&c)
            || isolates.contains(&c)
            || "\u{200e}\u{200f}".contains(c)
    };
    if text.chars().any(acts) {
        let escape = |c: char| if acts(c) { c.escape_default().collect() } else { c.to_string() };
        return text.chars().map(escape).collect::<String>().into();
    }
    text.into()
}

/// The candidate that `name` begins, or is close enough to for a slip of the keyboard.
pub(crate) fn near_miss<'a>(name: &str, candidates: &[&'a str]) -> Option<&'a str> {
    let name = &name.to_lowercase();
    if name.is_empty() {
        return None;
    }
    let begins = |candidate: &&&str| name.len() > 2 && candidate.starts_with(name);
    candidates.iter().find(begins).copied().or_else(|| {
        candidates
            .iter()
            .map(|candidate| (strsim::damerau_levenshtein(name, candidate), *candidate))
            .min()
            .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3))
            .map(|(_, candidate)| candidate)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_choose_their_unit() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(3 << 40), "3.0 TiB");
        assert_eq!(bytes(u128::MAX), "3e20 EiB or more");
    }

    #[test]
    fn a_near_miss_is_near() {
        assert_eq!(near_miss("casual", &["simple", "causal"]), Some("causal"));
        assert_eq!(near_miss("formal", &["simple", "formal-padding"]), Some("formal-padding"));
        assert_eq!(near_miss("Q", &["k", "q"]), Some("q"));
        assert_eq!(near_miss("", &["k", "q"]), None);
        assert_eq!(near_miss("zebra", &["simple", "causal"]), None);
    }
}
