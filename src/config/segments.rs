//! Documents that are packed into one row of tokens.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Config, Mask, Packed, Sizes};
use base::error::{Error, Result, shown};

/// The lengths of the documents that stand one behind the other in a row of tokens: once for all items of the batch, or of
/// each. `3,2,4`, or `3,2/4,1` by item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segments(pub Vec<Vec<usize>>);

impl Segments {
    /// Refuses lengths that are not those of so many tokens.
    pub(super) fn check(&self, name: &str, sizes: &Sizes, tokens: usize) -> Result<()> {
        let Self(rows) = self;
        if rows.len() != 1 && rows.len() != sizes.batch {
            let what =
                tr!("{rows} rows for a batch of {batch}", rows = rows.len(), batch = sizes.batch);
            return Err(Error::tensor(
                name,
                what,
                "give one for all items, or one an item: 3,2/4,1",
            ));
        }
        for row in rows {
            let sum = row.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length));
            if sum != Some(tokens) {
                let all = sum.map_or("more".to_owned(), |sum| sum.to_string());
                let lengths: Vec<String> = row.iter().map(ToString::to_string).collect();
                let what = tr!(
                    "documents of {lengths} tokens have {all} together, in a row of {tokens}",
                    lengths = lengths.join(","),
                    all,
                    tokens
                );
                return Err(Error::tensor(
                    name,
                    what,
                    tr!("give lengths that make {tokens}", tokens),
                ));
            }
        }
        Ok(())
    }

    /// Of the one row that all items share, or the only one has, where each document starts and ends.
    pub(super) fn spans(&self) -> Vec<(i64, i64)> {
        let mut start = 0_i64;
        let row = self.0.first().map(Vec::as_slice).unwrap_or_default();
        let span = |length: &usize| {
            let from = start;
            start = from.saturating_add(i64::try_from(*length).unwrap_or(i64::MAX));
            (from, start)
        };
        row.iter().map(span).collect()
    }
}

impl Config {
    /// Refuses documents that do not fit the run.
    pub(super) fn check_segments(&self) -> Result<()> {
        let Some(Packed { queries, keys }) = &self.masks.segments else { return Ok(()) };
        queries.check("segments", &self.sizes, self.sizes.seq_len)?;
        let name = if queries == keys { "segments" } else { "key_segments" };
        keys.check(name, &self.sizes, self.sizes.keys())?;
        let count = |rows: &[Vec<usize>]| rows.iter().map(Vec::len).max();
        if count(&queries.0) != count(&keys.0) {
            let what = tr!(
                "documents of {keys} keys are not as many as those of {queries}",
                keys,
                queries
            );
            return Err(Error::tensor(
                name,
                what,
                "give every document a number of keys; 0 will do",
            ));
        }
        if self.masks.between == Mask::Causal && queries != keys && queries.0.len() > 1 {
            let what =
                tr!("queries and keys of documents differ in number, by item, under a causal mask");
            return Err(Error::tensor(name, what, "give the mask by `attn_mask=FILE`"));
        }
        Ok(())
    }
}

impl fmt::Display for Segments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, row) in self.0.iter().enumerate() {
            let lengths: Vec<String> = row.iter().map(ToString::to_string).collect();
            write!(f, "{}{}", if at == 0 { "" } else { "/" }, lengths.join(","))?;
        }
        Ok(())
    }
}

impl FromStr for Segments {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let length = |part: &str| {
            let wrong = || {
                tr!(
                    "`{part}` is no number of tokens: lengths are 3,2,4, or 3,2/4,1",
                    part = shown(part)
                )
            };
            part.trim().parse().map_err(|_| wrong())
        };
        let row = |row: &str| row.split(',').map(length).collect();
        text.split('/').map(row).collect::<std::result::Result<_, _>>().map(Self)
    }
}

impl Serialize for Segments {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [row] => row.serialize(serializer),
            rows => rows.serialize(serializer),
        }
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
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
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
