//! What was recorded, against what was stated, or against what its own file says of it.

use serde::Serialize;

use base::error::quoted;
use program::Name;

/// What was recorded, against what was stated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// The name of the mistake that is made, or [`Self::KIND`].
    pub id: &'static str,
    /// The first step that it makes another.
    pub step: Name,
    /// What was stated and what was recorded, in a sentence.
    pub summary: String,
    kind: &'static str,
    /// The setting that states it.
    #[serde(rename = "parameter")]
    pub setting: &'static str,
    /// What was stated.
    #[serde(rename = "meant")]
    pub stated: String,
    /// What was recorded.
    #[serde(rename = "found")]
    pub recorded: String,
}

impl Contradiction {
    /// The kind of such a finding, and its name where it has no other.
    pub const KIND: &str = "contradiction";

    /// One in these words.
    pub fn told(
        setting: &'static str,
        step: Name,
        [stated, recorded]: [String; 2],
        summary: String,
    ) -> Self {
        Self { id: Self::KIND, step, summary, kind: Self::KIND, setting, stated, recorded }
    }

    /// The same as the mistake of this name.
    #[must_use]
    pub fn named(self, id: &'static str) -> Self {
        Self { id, ..self }
    }

    /// What a tensor says of a setting.
    pub fn of(
        setting: &'static str,
        step: Name,
        [stated, recorded]: [String; 2],
        tensor: &str,
    ) -> Self {
        let summary = tr!(
            "{key} was stated as {stated}; recorded is {recorded}, in {tensor}",
            key = setting,
            stated,
            tensor = quoted(tensor),
            recorded
        );
        Self::told(setting, step, [stated, recorded], summary)
    }

    /// That a mask for each item is applied as one for each of another axis, of as many places.
    pub fn of_items(mask: &str, axis: &str) -> Self {
        let summary = tr!(
            "{mask} is one for each item, and it is applied as one for each {axis}, of which there are as many",
            mask = quoted(mask),
            axis
        );
        let both = [tr!("one for each item").to_owned(), tr!("one for each {axis}", axis)];
        Self::told("attn_mask", Name::MaskedScores, both, summary)
    }

    /// What a tensor says whose numbers are not those that were stated.
    pub fn of_numbers(setting: &'static str, step: Name, stated: String, tensor: &str) -> Self {
        let recorded = tr!("other numbers").to_owned();
        let tensor = quoted(tensor);
        let summary = tr!(
            "{setting} was stated as {stated}; {tensor} holds other numbers",
            setting,
            stated,
            tensor
        );
        Self::told(setting, step, [stated, recorded], summary)
    }
}
