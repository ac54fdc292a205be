//! What a diagnosis says: known mistakes, rounding, and what nothing explains.

use std::time::Duration;

use crate::program::Name;

/// A known mistake that gives the numbers found, or the rounding that does.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Finding {
    /// The mistake's name; `noise` or `half-precision` for rounding.
    pub id: &'static str,
    /// The first step that it explains; of rounding, the one that it takes furthest.
    pub step: Name,
    /// What the faulty code does.
    pub summary: &'static str,
    /// The second mistake, where only the two together give the numbers.
    pub with: Option<Box<Finding>>,
    /// Of rounding: the largest difference at a recorded step, in multiples of what rounding alone made of that step
    /// in this run. At most 16, but for what the tolerances allow by themselves.
    pub factor: Option<f64>,
}

impl Finding {
    /// A mistake by itself.
    pub(super) fn mistake(id: &'static str, step: Name, summary: &'static str) -> Self {
        Self { id, step, summary, with: None, factor: None }
    }

    /// Whether this is no mistake but the rounding of f32 or of 16-bit arithmetic.
    #[must_use]
    pub fn is_rounding(&self) -> bool {
        matches!(self.id, "noise" | "half-precision")
    }
}

/// What is known of the differences of a recorded run.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Diagnosis {
    /// What gives these numbers, the simplest first; alternatives where several do.
    pub findings: Vec<Finding>,
    /// The steps that are wrong and that no finding explains, in order of execution.
    pub unexplained: Vec<Name>,
    /// What became of pairs of mistakes.
    pub pairs: Pairs,
}

/// Whether pairs of known mistakes were tried, as they are where whole runs tell and no single mistake fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Pairs {
    /// There was no need.
    #[default]
    Unneeded,
    /// They were; so many fit beyond those that the findings list.
    Tried {
        /// The number of pairs that fit and are not listed.
        unlisted: usize,
    },
    /// They would have taken about so long, which is too long.
    TooLong(Duration),
}
