//! Which documents is a row of tokens packed from?

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rows;
use program::spans;

/// The lengths of the documents that stand one behind the other in a row of tokens: once for all items of the batch, or of
/// each. `3,2,4`, or `3,2/4,1` by item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments(pub Vec<Vec<usize>>);

impl Segments {
    /// Where each document of each row starts and ends.
    pub fn rows(&self) -> Vec<Vec<(usize, usize)>> {
        self.0.iter().map(|lengths| spans(lengths)).collect()
    }

    /// The same of the one row that all items share, or the only one has.
    pub(super) fn spans(&self) -> Vec<(usize, usize)> {
        self.rows().into_iter().next().unwrap_or_default()
    }
}

impl fmt::Display for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&rows::told(&self.0))
    }
}

impl FromStr for Segments {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| {
            tr!(
                "`{part}` is not a number of tokens: write lengths as 3,2,4, or 3,2/4,1 per item",
                part
            )
        };
        rows::read(text, wrong).map(Self)
    }
}

/// The most chunks of so many tokens that an item has: each document has its own.
#[must_use]
pub fn chunks(segments: Option<&Segments>, tokens: usize, size: usize) -> usize {
    let of = |length: usize| length.div_ceil(size.max(1));
    let rows = segments.map(|own| own.0.as_slice()).unwrap_or_default();
    let of_row = |row: &Vec<usize>| match &row[..] {
        documents @ [_, _, ..] => documents.iter().copied().map(of).sum(),
        _ => of(tokens),
    };
    rows.iter().map(of_row).max().unwrap_or_else(|| of(tokens))
}

impl Serialize for Segments {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        rows::serialize(&self.0, serializer)
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "segments are a list of lengths, or a list of such lists, one a batch item"
)]
enum Rows {
    Same(Vec<usize>),
    PerItem(Vec<Vec<usize>>),
}

impl<'de> Deserialize<'de> for Segments {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Rows::deserialize(deserializer)? {
            Rows::Same(row) => vec![row],
            Rows::PerItem(rows) => rows,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_read_back() {
        for text in ["3,2,4", "3,2/4,1"] {
            let read: Segments = text.parse().expect("reads");
            assert_eq!(read.to_string(), text);
            let json = serde_json::to_string(&read).expect("writes");
            assert_eq!(serde_json::from_str::<Segments>(&json).expect("reads"), read);
        }
        assert!("3,x".parse::<Segments>().is_err());
    }
}
