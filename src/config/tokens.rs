//! What the tokens of a sequence are called, as settings state it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use base::error::{Error, Result, quoted};

/// What the tokens of a sequence are called: one list for all items of the batch, or one an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "labels are a list of strings, or a list of such lists, one a batch item"
)]
pub enum Tokens {
    /// Of every item.
    Same(Vec<String>),
    /// Of each item.
    PerItem(Vec<Vec<String>>),
}

impl Tokens {
    pub(super) fn of(&self, item: usize) -> &[String] {
        match self {
            Self::Same(tokens) => tokens,
            Self::PerItem(items) => items.get(item).map(Vec::as_slice).unwrap_or_default(),
        }
    }

    /// Refuses another number of labels than one of `sizes`.
    pub(super) fn check(&self, name: &str, batch: usize, sizes: [usize; 2]) -> Result<()> {
        let [size, with_cache] = sizes;
        if let Self::PerItem(items) = self
            && items.len() != batch
        {
            let what = tr!(
                "the number of lists is {items}, but batch is {batch}",
                items = items.len(),
                batch
            );
            return Err(Error::tensor(
                name,
                what,
                "give one list for all items, or one list per item",
            ));
        }
        for item in 0..batch {
            let count = self.of(item).len();
            if !sizes.contains(&count) {
                if let Some(label) = file_among(self.of(item)) {
                    let what = tr!(
                        "{label} was read as one label, for {size} tokens",
                        label = quoted(label),
                        size
                    );
                    let fix = tr!("give the labels themselves, A,B,…, or a .json file of them");
                    return Err(Error::tensor(name, what, fix));
                }
                let labels = if count == 1 { "label" } else { "labels" };
                let what = tr!("{count} {labels} for {size} tokens", count, labels, size);
                let fix = if size == with_cache {
                    tr!("give {size}, with commas between them", size)
                } else {
                    tr!("give {size}, or {with_cache} with those of the cache", size, with_cache)
                };
                return Err(Error::tensor(name, what, fix));
            }
            if matches!(self, Self::Same(_)) {
                break;
            }
        }
        Ok(())
    }
}

/// The only label, if it is a file's name.
pub(super) fn file_among(labels: &[String]) -> Option<&String> {
    match labels {
        [label] if Path::new(label).extension().is_some() => Some(label),
        _ => None,
    }
}
