//! Which values of a run's setting belong together?

use super::choice::{AttnMaskTrue, Mask, QkNorm};
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
    /// A string of 0 and 1 a batch item; 1 lets every query attend to that key. No strings: no such mask.
    pub key_mask: Option<Vec<String>>,
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
