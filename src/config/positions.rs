//! At which positions do tokens stand, as settings state it?

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::rows;
use program::{Places, SectionOrder};

/// The positions of the tokens: once for all items of the batch (`0,1,2`), or of each (`0,1,2/0,0,1`); of time, height and
/// width three such (`0,1,2;0,0,1;0,1,1`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions(pub Arc<Vec<Vec<Vec<usize>>>>);

impl Positions {
    /// By section, by item, by token.
    pub fn new(rows: Vec<Vec<Vec<usize>>>) -> Self {
        Self(Arc::new(rows))
    }

    /// These, of which no pair turns by another than the first.
    pub(super) fn plain(&self) -> Places {
        self.places(Vec::new(), SectionOrder::default())
    }

    /// These, with the sections of pairs that several positions turn.
    pub(super) fn places(&self, sections: Vec<usize>, order: SectionOrder) -> Places {
        Places { rows: Arc::clone(&self.0), sections, order }
    }
}

impl fmt::Display for Positions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(|items| rows::told(items)).collect();
        f.write_str(&all.join(";"))
    }
}

impl FromStr for Positions {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| tr!("`{part}` is not a position", part);
        let all = text.split(';').map(|items| rows::read(items, wrong));
        all.collect::<Result<_, String>>().map(Self::new)
    }
}

impl Serialize for Positions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [items] => rows::serialize(items, serializer),
            sections => sections.serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "positions are a list of numbers, a list of such lists, one a batch item, or three of those"
)]
enum Rows {
    Same(Vec<usize>),
    PerItem(Vec<Vec<usize>>),
    Sections(Vec<Vec<Vec<usize>>>),
}

impl<'de> Deserialize<'de> for Positions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::new(match Rows::deserialize(deserializer)? {
            Rows::Same(row) => vec![vec![row]],
            Rows::PerItem(rows) => vec![rows],
            Rows::Sections(sections) => sections,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_read_back() {
        for text in ["0,1,2", "0,1,2/0,0,1", "0,1/2,3;0,0/1,1;0,1/0,1", "0,1;0,0;0,1"] {
            let read: Positions = text.parse().expect("reads");
            assert_eq!(read.to_string(), text);
            let json = serde_json::to_string(&read).expect("writes");
            assert_eq!(serde_json::from_str::<Positions>(&json).expect("reads"), read);
        }
        for text in ["", "1,x", "-1", "1.5"] {
            assert!(text.parse::<Positions>().is_err(), "{text}");
        }
    }
}
