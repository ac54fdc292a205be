//! What a comparison found, step by step.

use std::collections::HashSet;
use std::path::Path;

use candle_core::{DType, Tensor};

use super::compare::{Comparison, compare, compare_in_files};
use super::finding::Diagnosis;
use super::flash::FlashError;
use super::non_finite::NonFinite;
use super::other_settings::FitsKeys;
use super::padding::PaddedRows;
use super::tolerance::{Tolerance, Tolerances};
use base::error::{Error, Result};
use config::{Config, Labels};
use file::InFile;
use foreign::{Match, Unmatched};
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

/// The comparison of a file with its recomputed self, or with another file.
#[derive(Debug, Clone)]
pub struct Report {
    /// The file; of `diff`, the left one.
    pub path: String,
    /// The steps in order of execution.
    pub steps: Vec<StepReport>,
    /// What the tokens are called, where a config says it.
    pub labels: Option<Labels>,
    /// The setting that a foreign file was read under; `None` for a file that says its own.
    pub read_as: Option<Config>,
    /// What the mask is that such a file brings, where nothing else says which one was meant.
    pub mask_read: Option<String>,
    /// Whether a foreign file that differs would be the same without the causal mask, which nobody asked for.
    pub fits_unmasked: bool,
    /// Whether a foreign file that starts at queries, keys and values and differs would be the same under a causal mask,
    /// where nothing was said of masks.
    pub fits_causal: bool,
    /// Whether a foreign file is the same because X was read as items of one token each, which nothing but the order of axes
    /// says: as the tokens of one item it differs.
    pub fits_single_tokens: bool,
    /// The layer of the file of weights that gives the numbers of a foreign file, where the one that was meant does not.
    pub fits_layer: Option<String>,
    /// The setting of seen keys under which a foreign file that differs is as it should be, where its recorded weights leave
    /// some keys out.
    pub fits_keys: Option<FitsKeys>,
    /// How the errors of a file in 16 bits compare with PyTorch's, if that was asked for.
    pub flash: Option<Vec<FlashError>>,
    /// Which of the file's tensors was taken as which step, where that is not said by its name alone.
    pub matches: Vec<Match>,
    /// The rows of padded queries, where they were left out or are all that differs.
    pub padded_rows: Option<PaddedRows>,
    /// The tensors of a foreign file that are no step, and why.
    pub unmatched: Vec<Unmatched>,
    /// What gives these numbers; `None` where nothing was to be explained.
    pub diagnosis: Option<Diagnosis>,
    /// Where the recorded values first are NaN or infinite and should not be; `diff` does not look for it.
    pub non_finite: Option<NonFinite>,
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

impl Report {
    /// The report of the file at `path`, nothing explained.
    ///
    /// # Errors
    /// If there is no step to compare, or a tolerance is set for a step that is not there.
    pub(super) fn of(path: &Path, steps: Vec<StepReport>, tolerances: &Tolerances) -> Result<Self> {
        let known: HashSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        if let Some(name) = tolerances.steps().find(|name| !known.contains(name)) {
            let what = tr!("a tolerance is set for {name}, and no step is called that", name);
            return Err(Error::config(what, "use a name from the report"));
        }
        let report = Self {
            path: path.display().to_string(),
            steps,
            labels: None,
            diagnosis: None,
            non_finite: None,
            read_as: None,
            mask_read: None,
            fits_unmasked: false,
            fits_causal: false,
            fits_single_tokens: false,
            fits_layer: None,
            fits_keys: None,
            flash: None,
            matches: Vec::new(),
            padded_rows: None,
            unmatched: Vec::new(),
        };
        if report.compared() == 0 {
            let fix = tr!(
                "record at least one computed step under its name, such as output, or say with --map which \
                       tensor is which step"
            );
            return Err(Error::file(path, "there is no step to compare", fix));
        }
        Ok(report)
    }

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
