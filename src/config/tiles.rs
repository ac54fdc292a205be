//! Which keys does each split or tile of a run have, as settings state it?

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::config::Config;
use base::error::{Error, Result, refuse, shown};
use program::{Axis, Parts};

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

impl Config {
    /// The splits or tiles that attention goes through, if it does.
    pub fn parts(&self) -> Option<Parts> {
        let keys = self.sizes.all_keys();
        if let Some(tiles) = self.plain.tiles {
            let starts: Vec<usize> = (0..keys).step_by(tiles.keys).collect();
            let parts = Parts::starting(Axis::Tile, &starts, keys);
            return Some(Parts { queries: tiles.queries, ..parts });
        }
        Some(match self.plain.splits.as_deref()? {
            [count] => {
                let each = keys.div_ceil((*count).max(1));
                let starts: Vec<usize> = (0..*count).map(|at| at.saturating_mul(each)).collect();
                Parts::starting(Axis::Split, &starts, keys)
            }
            starts => Parts::starting(Axis::Split, starts, keys),
        })
    }
}

/// More splits than this are none that a kernel has.
const MOST: usize = 1024;

/// Refuses splits that are none, and what is not computed in parts.
pub(super) fn check(c: &Config) -> Result<()> {
    let (splits, tiles) = (&c.plain.splits, c.plain.tiles);
    if splits.is_none() && tiles.is_none() {
        return Ok(());
    }
    if splits.is_some() && tiles.is_some() {
        return refuse(tr!("both splits and tiles are set"), tr!("leave one of the two out"));
    }
    let name = if tiles.is_some() { "tiles" } else { "splits" };
    if c.end == super::choice::End::Weights {
        let what =
            tr!("{name} is set, but the run ends at the weights, of which kernels have none", name);
        return refuse(what, tr!("leave out {name}, or end at the heads' outputs", name));
    }
    let beside = [
        ("backward", c.plain.backward),
        ("dropout", c.plain.dropout > 0.0),
        ("lambda_init", c.plain.lambda_init.is_some()),
    ];
    if let Some((other, _)) = beside.into_iter().find(|(_, is_set)| *is_set) {
        let what = tr!("{name} and {other} are set, and are not computed together", name, other);
        return refuse(what, tr!("leave one of the two out"));
    }
    let keys = c.sizes.all_keys();
    match splits.as_deref() {
        None => Ok(()),
        Some([count]) if (1..=MOST).contains(count) => Ok(()),
        Some([0, rest @ ..]) if !rest.is_empty() && rest.len() < MOST && rest.is_sorted() => Ok(()),
        Some(splits) => {
            let what =
                tr!("{splits} are no splits of {keys} keys", splits = format!("{splits:?}"), keys);
            let fix = tr!("give how many there are, 4, or the first key of each from 0 on: 0,8,16");
            Err(Error::tensor("splits", what, fix))
        }
    }
}
