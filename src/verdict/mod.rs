//! Comparing traces: what differs, where it begins, and by how much.

mod check;
mod compare;
mod diagnose;
mod evidence;
mod finding;
pub mod mutation;
mod noise;
mod non_finite;
mod replay;
mod tolerance;
mod whole_runs;

pub use check::{check, diff};
pub use compare::{Comparison, compare};
pub use finding::{Diagnosis, Finding, Pairs};
pub use noise::ALLOWED;
pub use non_finite::{Cause, NonFinite, Place};
pub use tolerance::{PerStep, Tolerance, Tolerances};

use crate::trace::Axes;

/// How a step came out of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Every element agrees within the tolerance.
    Same,
    /// It differs, and nothing that it reads does.
    Differs,
    /// It differs, and so does a step that it reads, directly or through others.
    Inherited,
    /// One side does not have it.
    Missing,
}

impl Status {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::Inherited => "inherited",
            Self::Missing => "missing",
        }
    }
}

/// A step of a comparison.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// The step's name.
    pub name: String,
    /// How it came out.
    pub status: Status,
    /// Its axes, where they are known.
    pub axes: Option<Axes>,
    /// The numbers; `None` where one side is missing or the shapes differ.
    pub comparison: Option<Comparison>,
    /// The shapes, where they differ: of the left and of the right side.
    pub shapes: Option<(Vec<usize>, Vec<usize>)>,
}

/// The comparison of a file with its recomputed self, or with another file.
#[derive(Debug, Clone)]
pub struct Report {
    /// The file; of `diff`, the left one.
    pub path: String,
    /// The steps in order of execution.
    pub steps: Vec<StepReport>,
    /// What gives these numbers; `None` where nothing was to be explained.
    pub diagnosis: Option<Diagnosis>,
    /// Where the recorded values first are NaN or infinite and should not be; `diff` does not look for it.
    pub non_finite: Option<NonFinite>,
}

impl Report {
    /// Whether both sides have every step, and none differs.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.steps.iter().all(|step| step.status == Status::Same)
    }

    /// The steps that one side alone has.
    pub fn missing(&self) -> impl Iterator<Item = &StepReport> {
        self.steps.iter().filter(|step| step.status == Status::Missing)
    }

    /// The first step that differs by itself, in order of execution; where the tolerances hide it, the first that
    /// inherits the difference.
    #[must_use]
    pub fn first_divergence(&self) -> Option<&StepReport> {
        let first = |status| self.steps.iter().find(|step| step.status == status);
        first(Status::Differs).or_else(|| first(Status::Inherited))
    }

    /// The number of steps that both sides have.
    #[must_use]
    pub fn compared(&self) -> usize {
        self.steps.iter().filter(|step| step.status != Status::Missing).count()
    }
}
