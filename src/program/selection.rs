//! Which keys are chosen for each query, as settings state it: by lists of them, or by a tree of tokens.

use std::fmt::{self, Write};
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use base::error::shown;

/// Which keys are chosen for queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selection {
    /// Lists of keys, or of blocks of keys.
    Lists(Lists),
    /// A tree of the queries' own tokens, the last keys, once for all items or of each: a token sees itself, those that it
    /// comes from, and every key before the tree.
    Tree(Vec<Vec<i64>>),
}

/// Lists of keys, or of blocks of them, for single queries or for tiles of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lists {
    /// By item (or once for all), by head (or once for all), by tile: what is chosen. A number that stands for no key, as −1
    /// does, chooses none.
    pub chosen: Vec<Vec<Vec<Vec<i64>>>>,
    /// How many queries share a list.
    pub tile: usize,
    /// How many keys a number stands for.
    pub block: usize,
}

impl Lists {
    /// The list of a query row.
    pub fn of(&self, item: usize, head: usize, row: usize) -> &[i64] {
        let heads = self.chosen.get(item).or_else(|| self.chosen.first());
        let tiles = heads.and_then(|heads| heads.get(head).or_else(|| heads.first()));
        let list = tiles.and_then(|tiles| tiles.get(row / self.tile.max(1)));
        list.map(Vec::as_slice).unwrap_or_default()
    }

    /// How many heads have lists of their own.
    pub fn heads(&self) -> usize {
        self.chosen.first().map_or(1, Vec::len)
    }

    /// The keys of a block.
    pub fn keys(&self, number: i64) -> std::ops::Range<usize> {
        let first = usize::try_from(number).ok().and_then(|at| at.checked_mul(self.block));
        first.map_or(0..0, |first| first..first.saturating_add(self.block))
    }
}

impl Selection {
    /// How many items have a selection of their own.
    pub fn items(&self) -> usize {
        match self {
            Self::Lists(lists) => lists.chosen.len(),
            Self::Tree(rows) => rows.len(),
        }
    }
}

/// The place of a token's parent; nothing for a root, whose parent is none of the tree's tokens, or itself.
pub fn parent(parents: &[i64], at: usize) -> Option<usize> {
    let parent = usize::try_from(*parents.get(at)?).ok()?;
    (parent < parents.len() && parent != at).then_some(parent)
}

/// Whether a token of a tree is another, or comes from it.
pub fn comes_from(parents: &[i64], token: usize, other: usize) -> bool {
    let mut at = Some(token);
    // A ring of parents ends, too.
    for _ in 0..parents.len() {
        match at {
            Some(own) if own == other => return true,
            Some(own) => at = parent(parents, own),
            None => return false,
        }
    }
    false
}

/// Numbers with commas between.
fn joined(numbers: &[i64]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// `parents=-1,0,0`; `keys=0;0,1`; `blocks=1x4:0;0,1`, for tiles of 1 query and blocks of 4 keys. A semicolon stands between
/// tiles, | between heads, / between items.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Lists { chosen, tile, block } = match self {
            Self::Tree(rows) => {
                let rows: Vec<String> = rows.iter().map(|row| joined(row)).collect();
                return write!(f, "parents={}", rows.join("/"));
            }
            Self::Lists(lists) => lists,
        };
        match (tile, block) {
            (1, 1) => f.write_str("keys=")?,
            (tile, block) => write!(f, "blocks={tile}x{block}:")?,
        }
        for (item, heads) in chosen.iter().enumerate() {
            for (head, tiles) in heads.iter().enumerate() {
                match (item, head) {
                    (0, 0) => {}
                    (_, 0) => f.write_char('/')?,
                    _ => f.write_char('|')?,
                }
                let tiles: Vec<String> = tiles.iter().map(|tile| joined(tile)).collect();
                f.write_str(&tiles.join(";"))?;
            }
        }
        Ok(())
    }
}

impl FromStr for Selection {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |part: &str| {
            tr!(
                "`{part}` is no selection of keys: write parents=-1,0,0 for a tree, keys=0;0,1;1,2 for a list of keys for each query, or blocks=1x4:0;0,1 for one of blocks of 4 keys",
                part = shown(part)
            )
        };
        let list = |text: &str| -> Result<Vec<i64>, String> {
            let text = text.trim();
            let parts = text.split(',').filter(|_| !text.is_empty());
            parts.map(|part| part.trim().parse().map_err(|_| wrong(part))).collect()
        };
        let (kind, rest) = text.split_once('=').ok_or_else(|| wrong(text))?;
        let (tile, block, lists) = match kind.trim() {
            "parents" => {
                return rest.split('/').map(list).collect::<Result<_, _>>().map(Self::Tree);
            }
            "keys" => (1, 1, rest),
            "blocks" => {
                let (sizes, lists) = rest.split_once(':').ok_or_else(|| wrong(text))?;
                let (tile, block) = sizes.split_once('x').ok_or_else(|| wrong(sizes))?;
                let size = |part: &str| {
                    let size = part.trim().parse().ok().filter(|size| *size > 0);
                    size.ok_or_else(|| wrong(sizes))
                };
                (size(tile)?, size(block)?, lists)
            }
            other => return Err(wrong(other)),
        };
        let tiles = |text: &str| text.split(';').map(list).collect::<Result<Vec<_>, String>>();
        let heads = |text: &str| text.split('|').map(tiles).collect::<Result<Vec<_>, String>>();
        let chosen = lists.split('/').map(heads).collect::<Result<_, String>>()?;
        Ok(Self::Lists(Lists { chosen, tile, block }))
    }
}

impl Serialize for Selection {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Selection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selections_read_back() {
        for text in [
            "parents=-1,0,0,2",
            "parents=-1,0/-1,-1",
            "keys=0;0,1;-1,2",
            "keys=0;0|1;;/0;1|0;1",
            "blocks=2x4:0;0,1",
        ] {
            let read: Selection = text.parse().expect("reads");
            assert_eq!(read.to_string(), text);
            let json = serde_json::to_string(&read).expect("writes");
            assert_eq!(serde_json::from_str::<Selection>(&json).expect("reads"), read);
        }
        for text in ["", "0,1", "keys=a", "blocks=0,1", "blocks=0x4:0", "tree=0"] {
            assert!(text.parse::<Selection>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_token_comes_from_its_ancestors_alone() {
        let parents = [-1, 0, 0, 1];
        let of = |token| (0..4).filter(move |other| comes_from(&parents, token, *other));
        assert_eq!(of(3).collect::<Vec<_>>(), [0, 1, 3]);
        assert_eq!(of(2).collect::<Vec<_>>(), [0, 2]);
        assert!(!comes_from(&[1, 0], 0, 5));
    }
}
