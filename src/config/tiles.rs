//! How large are the tiles of a run, as settings state it?

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use base::error::shown;

/// The keys of a tile, `64`; or its queries and its keys, `128x64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Tiles {
    /// How many queries a tile has; nothing where it is not said.
    pub queries: Option<usize>,
    /// How many keys.
    pub keys: usize,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "tiles are a number of keys, or text such as 128x64")]
enum Written {
    Keys(usize),
    Text(String),
}

impl TryFrom<Written> for Tiles {
    type Error = String;

    fn try_from(written: Written) -> Result<Self, String> {
        match written {
            Written::Keys(keys) => keys.to_string().parse(),
            Written::Text(text) => text.parse(),
        }
    }
}

impl From<Tiles> for String {
    fn from(tiles: Tiles) -> Self {
        tiles.to_string()
    }
}

impl fmt::Display for Tiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.queries.map_or(Ok(()), |queries| write!(f, "{queries}x"))?;
        write!(f, "{}", self.keys)
    }
}

impl FromStr for Tiles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let size = |part: &str| part.trim().parse().ok().filter(|size| *size > 0);
        let read = match text.split_once(['x', 'X', '×']) {
            Some((queries, keys)) => size(queries).zip(size(keys)).map(|(q, keys)| (Some(q), keys)),
            None => size(text).map(|keys| (None, keys)),
        };
        let (queries, keys) = read.ok_or_else(|| {
            tr!(
                "`{text}` is no size of tiles: write their keys, 64, or queries and keys, 128x64",
                text = shown(text)
            )
        })?;
        Ok(Self { queries, keys })
    }
}
