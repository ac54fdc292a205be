//! Comparing traces: what differs, where it begins, and by how much.

mod check;
mod compare;
mod diagnose;
mod diff;
mod evidence;
mod finding;
mod foreign;
mod meant;
pub mod mutation;
mod noise;
mod non_finite;
mod replay;
mod report;
mod tolerance;
mod whole_runs;

pub use check::check;
pub use compare::{Comparison, compare};
pub use diff::diff;
pub use finding::{Diagnosis, Finding, Pairs};
pub use noise::ALLOWED;
pub use non_finite::{Cause, NonFinite, Place};
pub use report::{Report, Status, StepReport};
pub use tolerance::{PerStep, Tolerance, Tolerances};
