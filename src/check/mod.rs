//! Comparing traces: what differs, where it begins, by how much, and which mistake makes it.

mod blocked_scores;
pub mod catalogue;
#[allow(clippy::module_inception, reason = "the command of that name")]
mod check;
mod clues;
mod compare;
mod diagnose;
mod diff;
mod evidence;
mod explain;
mod finding;
mod fit;
mod fit_cells;
mod fit_frequencies;
mod fit_parts;
mod fit_positions;
mod fit_sums;
mod flash;
mod grammar;
mod hypothesis;
mod interpretation;
mod json;
mod level;
mod noise;
mod non_finite;
mod padding;
mod products;
mod recomputed;
mod replay;
mod report;
mod told_cells;
mod tolerance;
mod whole_runs;

pub use check::check;
pub use compare::Comparison;
pub use diff::{OneSided, diff};
pub use finding::{Clue, Diagnosis, Finding, Number, Pairs};
pub(crate) use flash::ALLOWED_FACTOR;
pub use flash::FlashError;
pub use json::reports_json;
pub(crate) use noise::ALLOWED;
pub use non_finite::{Cause, NonFinite, Place};
pub use padding::PaddedRows;
pub use report::{Report, Status, StepReport};
pub use tolerance::{PerStep, Tolerance, Tolerances};
