//! Which scores is a run given, in place of what they are computed from?

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use base::error::shown;

/// Dot products of queries and keys: a row of them, rows (query, key), heads of those, or items of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "numbers in nested lists of the same lengths: [[112, 96], [1, 2]]")]
pub enum Scores {
    /// (key): one query.
    Row(Vec<f64>),
    /// (query, key).
    Rows(Vec<Vec<f64>>),
    /// (head, query, key).
    Heads(Vec<Vec<Vec<f64>>>),
    /// (batch, head, query, key).
    Items(Vec<Vec<Vec<Vec<f64>>>>),
}

impl Scores {
    /// The numbers, and their shape (batch, head, query, key).
    ///
    /// # Errors
    /// If there is none, or lists differ in length.
    pub fn numbers(&self) -> Result<(Vec<f64>, [usize; 4]), String> {
        let items = match self.clone() {
            Self::Row(row) => vec![vec![vec![row]]],
            Self::Rows(rows) => vec![vec![rows]],
            Self::Heads(heads) => vec![heads],
            Self::Items(items) => items,
        };
        let first = |of: &Vec<Vec<Vec<f64>>>| {
            of.first().map(|head| (head.len(), head.first().map(Vec::len)))
        };
        let heads = items.first().map_or(0, Vec::len);
        let (queries, keys) = items.first().and_then(first).unwrap_or_default();
        let shape = [items.len(), heads, queries, keys.unwrap_or_default()];
        let rows = || items.iter().flatten().flatten();
        let is_even = items.iter().all(|item| item.len() == shape[1])
            && items.iter().flatten().all(|head| head.len() == shape[2])
            && rows().all(|row| row.len() == shape[3]);
        if !is_even {
            return Err(tr!("the lists differ in length").to_owned());
        }
        if shape.contains(&0) {
            return Err(tr!("there is no number in it").to_owned());
        }
        Ok((rows().flatten().copied().collect(), shape))
    }
}

/// `112,96`, or nested lists as JSON.
impl FromStr for Scores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let scores = if text.trim_start().starts_with('[') {
            serde_json::from_str(text).map_err(|error| error.to_string())?
        } else {
            let number = |text: &str| {
                let text = text.trim();
                text.parse().map_err(|_| tr!("`{text}` is not a number", text = shown(text)))
            };
            Self::Row(text.split(',').map(number).collect::<Result<_, _>>()?)
        };
        scores.numbers()?;
        Ok(scores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_rows_or_nested_lists() {
        let shape = |text: &str| text.parse::<Scores>().and_then(|scores| Ok(scores.numbers()?.1));
        assert_eq!(shape("112, 96"), Ok([1, 1, 1, 2]));
        assert_eq!(shape("[[1,2,3],[4,5,6]]"), Ok([1, 1, 2, 3]));
        assert_eq!(shape("[[[[1,2,3]],[[4,5,6]]]]"), Ok([1, 2, 1, 3]));
        for text in ["", "1,a", "[[1,2],[3]]", "[]", "[[]]", "[1,[2]]", "[1"] {
            assert!(shape(text).is_err(), "{text}");
        }
    }
}
