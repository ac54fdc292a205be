//! Which query rows are computed, as people write it?

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use base::error::{Result, refuse};
use program::QueryRows;

/// Rows of the queries, `A..B`: A is the first, B the one behind the last. Either end may be counted from the number of
/// tokens, as in `T-1..T`, and may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queries {
    from: End,
    to: End,
}

/// An end of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// So many tokens after the first.
    Counted(usize),
    /// So many tokens before the end.
    BeforeEnd(usize),
}

impl From<QueryRows> for Queries {
    fn from(rows: QueryRows) -> Self {
        Self { from: End::Counted(rows.first), to: End::Counted(rows.first + rows.count) }
    }
}

impl Queries {
    /// The rows of a sequence of so many tokens.
    ///
    /// # Errors
    /// If they are not among its tokens, or none.
    pub fn of(self, tokens: usize) -> Result<QueryRows> {
        let position = |end| match end {
            End::Counted(at) => Some(at),
            End::BeforeEnd(count) => tokens.checked_sub(count),
        };
        match (position(self.from), position(self.to)) {
            (Some(first), Some(end)) if first < end && end <= tokens => {
                Ok(QueryRows { first, count: end - first })
            }
            _ => {
                let what =
                    tr!("queries {rows} are not rows of {tokens} tokens", rows = self, tokens);
                let fix = tr!(
                    "give A..B with A below B, and B at most {tokens}; T-1..T is the last row",
                    tokens
                );
                refuse(what, fix)
            }
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Counted(at) => write!(f, "{at}"),
            Self::BeforeEnd(0) => f.write_str("T"),
            Self::BeforeEnd(count) => write!(f, "T-{count}"),
        }
    }
}

impl fmt::Display for Queries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from, self.to)
    }
}

impl FromStr for Queries {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = |part: &str, absent: End| match part.trim() {
            "" => Some(absent),
            "T" | "t" => Some(End::BeforeEnd(0)),
            part => match part.strip_prefix(['T', 't']) {
                Some(rest) => {
                    rest.trim().strip_prefix('-')?.trim().parse().ok().map(End::BeforeEnd)
                }
                None => part.parse().ok().map(End::Counted),
            },
        };
        let (from, to) = text.split_once("..").unwrap_or((text, "?"));
        match (end(from, End::Counted(0)), end(to, End::BeforeEnd(0))) {
            (Some(from), Some(to)) => Ok(Self { from, to }),
            _ => Err(tr!("`{text}` is not a range of rows", text)),
        }
    }
}

impl Serialize for Queries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Queries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_counted_from_either_end() {
        let rows = |text: &str| text.parse::<Queries>().expect("reads").of(5).ok();
        let some = |first, count| Some(QueryRows { first, count });
        assert_eq!(rows("2..4"), some(2, 2));
        assert_eq!(rows("T-1..T"), some(4, 1));
        assert_eq!(rows("3.."), some(3, 2));
        assert_eq!(rows("..T-2"), some(0, 3));
        assert_eq!([rows("4..4"), rows("3..6"), rows("T-6..T")], [None; 3]);
    }

    #[test]
    fn a_range_reads_back() {
        for text in ["2..4", "T-1..T", "0..T-2"] {
            assert_eq!(text.parse::<Queries>().expect("reads").to_string(), text);
        }
        for text in ["4", "a..b", "1...2", "T+1..T", "-1..2"] {
            assert!(text.parse::<Queries>().is_err(), "{text}");
        }
    }
}
