//! What belongs together in a run's setting: a norm, the masks.

use super::choice::{AttnMaskTrue, CausalAlign, Mask, QkNorm};
use super::segments::Segments;
use program::Fill;

/// The norm of every head's queries and keys.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// Its kind.
    pub kind: QkNorm,
    /// What it adds to the mean square.
    pub eps: f64,
}

/// What hides keys from queries.
#[derive(Debug, Clone, PartialEq)]
pub struct Masks {
    /// The mask between positions.
    pub between: Mask,
    /// Where the causal mask's diagonal starts if queries and keys differ in number; where nothing is said,
    /// [`crate::Config::align`] decides.
    pub causal_align: Option<CausalAlign>,
    /// How many keys a query sees: the last ones, itself included; without a causal mask one less on the other side too.
    pub window: Option<usize>,
    /// How many keys the chunks have of which a query sees its own alone, as in Llama 4.
    pub chunk: Option<usize>,
    /// A string of 0 and 1 a batch item; 1 lets every query attend to that key. No strings: no such mask.
    pub key_mask: Option<Vec<String>>,
    /// The number of valid keys of every batch item.
    pub lengths: Option<Vec<usize>>,
    /// The documents that the queries' and the keys' rows are packed from.
    pub segments: Option<Packed>,
    /// What a true (or 1) in the mask of a file means.
    pub attn_mask_true: Option<AttnMaskTrue>,
    /// What a masked score becomes.
    pub fill: Fill,
}

/// The documents that rows are packed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// How many queries each has.
    pub queries: Segments,
    /// How many keys each has.
    pub keys: Segments,
}
