//! How did one step come out of a comparison?

use std::collections::HashSet;

use candle_core::{DType, Tensor};

use super::compare::{Comparison, compare, compare_in_files};
use super::tolerance::{Tolerance, Tolerances};
use base::error::Result;
use file::InFile;
use program::{Axes, Name};

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

    /// The name in the language in force.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Same => tr!("same"),
            Self::Differs => tr!("differs"),
            Self::Inherited => tr!("inherited"),
            Self::Missing => tr!("missing"),
        }
    }
}

/// A step of a comparison.
#[derive(Debug, Clone)]
pub struct StepReport {
    /// The name that the files have for it.
    pub name: String,
    /// The step, if it is a known one.
    pub step: Option<Name>,
    /// How it came out.
    pub status: Status,
    /// Its axes, where they are known.
    pub axes: Option<Axes>,
    /// The numbers; `None` where one side is missing or the shapes differ.
    pub comparison: Option<Comparison>,
    /// The shapes, where they differ: of the left and of the right side.
    pub shapes: Option<(Vec<usize>, Vec<usize>)>,
}

impl StepReport {
    /// The comparison of a step's two values.
    ///
    /// # Errors
    /// If candle fails.
    pub(super) fn of(
        name: &str,
        left: &Tensor,
        right: &Tensor,
        axes: Option<&Axes>,
        tolerances: &Tolerances,
    ) -> Result<Self> {
        let mut report =
            Self { status: Status::Differs, axes: axes.cloned(), ..Self::missing(name) };
        if left.dims() != right.dims() {
            report.shapes = Some((left.dims().to_vec(), right.dims().to_vec()));
            return Ok(report);
        }
        let default = Tolerance::of(left.dtype()).looser(Tolerance::of(right.dtype()));
        let default = default.sized(report.step, right)?;
        Ok(report.with(compare(left, right, tolerances.of(name, default))?))
    }

    /// The same of two tensors of f32 that stand in files, of these lengths.
    ///
    /// # Errors
    /// If a file has become unreadable.
    pub(super) fn in_files(
        name: &str,
        [left, right]: [&InFile; 2],
        dims: &[usize],
        axes: Option<&Axes>,
        tolerances: &Tolerances,
    ) -> Result<Self> {
        let tolerance = tolerances.of(name, Tolerance::of(DType::F32));
        let report = Self { axes: axes.cloned(), ..Self::missing(name) };
        Ok(report.with(compare_in_files(left, right, dims, tolerance)?))
    }

    /// A step that both sides have, compared.
    pub(super) fn with(self, comparison: Comparison) -> Self {
        let status = if comparison.mismatched == 0 { Status::Same } else { Status::Differs };
        Self { status, comparison: Some(comparison), ..self }
    }

    /// A step that one side lacks.
    pub(super) fn missing(name: &str) -> Self {
        let (step, status) = (Name::in_files(name), Status::Missing);
        let name = name.to_owned();
        Self { name, step, status, axes: None, comparison: None, shapes: None }
    }
}

/// A step that differs downstream of one that differs has inherited it, unless it is wrong by itself.
pub fn mark_inherited(
    steps: &mut [StepReport],
    descendants: impl Fn(&[Name]) -> HashSet<Name>,
    wrong_by_itself: &[Name],
    right_by_itself: &[Name],
) {
    let differing = steps.iter().filter(|step| step.status == Status::Differs);
    let differing: Vec<Name> = differing.filter_map(|step| step.step).collect();
    let downstream = descendants(&differing);
    for report in steps.iter_mut().filter(|step| step.status == Status::Differs) {
        let Some(step) = report.step else { continue };
        let inherits = downstream.contains(&step) || right_by_itself.contains(&step);
        if inherits && !wrong_by_itself.contains(&step) {
            report.status = Status::Inherited;
        }
    }
}
