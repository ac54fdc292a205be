//! Comparing traces: what differs, where it begins, by how much, and which mistake makes it.

#[macro_use]
extern crate base;

mod agreement;
mod best_reading;
mod candidate;
pub mod catalogue;
mod cells;
#[allow(clippy::module_inception, reason = "the command of that name")]
mod check;
mod clues;
mod compare;
mod contradiction;
mod cores;
mod diagnose;
mod diff;
mod endings;
mod explain;
mod finding;
mod fit;
mod flash;
mod found_masks;
mod free;
mod gradients;
mod grammar;
mod half;
mod json;
mod lacking;
mod mask_claim;
mod mask_pair;
mod mistakes;
mod module;
mod non_finite;
mod other_settings;
mod padding;
mod products;
mod reading;
mod readings;
mod readoff;
mod recomputed;
mod recorded;
mod report;
mod rerun;
mod rounding;
mod scope;
mod search;
mod step_report;
mod streamed;
mod thresholds;
mod tolerance;
mod trend;
mod written;

pub use check::{Checked, check, checked};
pub use compare::Comparison;
pub use diff::{Compared, OneSided, compared, diff};
pub use finding::{Clue, Contradiction, Diagnosis, Finding, Number, Pairs};
pub use flash::ALLOWED_FACTOR;
pub use flash::FlashError;
pub use json::reports_json;
pub use non_finite::{Cause, NonFinite, Place};
pub use padding::PaddedRows;
pub use recorded::{Recorded, recorded};
pub use report::{FitsKeys, Report, Verdict};
pub use step_report::{Status, StepReport};
pub use thresholds::ALLOWED;
pub use tolerance::{PerStep, Tolerance, Tolerances};
