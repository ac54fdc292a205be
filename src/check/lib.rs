//! Comparing traces: what differs, where it begins, by how much, and which mistake makes it.

#[macro_use]
extern crate base;

mod blocked_scores;
mod brought;
pub mod catalogue;
#[allow(clippy::module_inception, reason = "the command of that name")]
mod check;
mod clues;
mod compare;
mod cores;
mod diagnose;
mod diff;
mod evidence;
mod explain;
mod finding;
mod fit;
mod fit_cells;
mod fit_frequencies;
mod fit_knobs;
mod fit_norms;
mod fit_parts;
mod fit_positions;
mod fit_sums;
mod flash;
mod grammar;
mod hypothesis;
mod interpretation;
mod json;
mod level;
mod mistakes;
mod module;
mod noise;
mod non_finite;
mod other_settings;
mod padding;
mod products;
mod recomputed;
mod recorded;
mod replay;
mod report;
mod rerun;
mod sieve;
mod streamed;
mod told_cells;
mod tolerance;
mod trend;
mod ways;
mod whole_runs;

pub use check::{Checked, check, checked};
pub use compare::Comparison;
pub use diff::{Compared, OneSided, compared, diff};
pub use finding::{Clue, Diagnosis, Finding, Number, Pairs};
pub use flash::ALLOWED_FACTOR;
pub use flash::FlashError;
pub use json::reports_json;
pub use noise::ALLOWED;
pub use non_finite::{Cause, NonFinite, Place};
pub use other_settings::FitsKeys;
pub use padding::PaddedRows;
pub use recorded::{Recorded, recorded};
pub use report::{Report, Status, StepReport};
pub use tolerance::{PerStep, Tolerance, Tolerances};
