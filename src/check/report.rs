//! What did a comparison find?

use std::collections::HashSet;
use std::path::Path;

use super::finding::{Contradiction, Diagnosis};
use super::flash::FlashError;
use super::non_finite::NonFinite;
use super::padding::PaddedRows;
use super::step_report::{Status, StepReport};
use super::tolerance::Tolerances;
use base::error::{Error, Result};
use config::{Config, Labels};
use foreign::{Match, Unmatched};

/// The comparison of a file with its recomputed self, or with another file.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is found by itself")]
pub struct Report {
    /// The file; of `diff`, the left one.
    pub path: String,
    /// The steps in order of execution.
    pub steps: Vec<StepReport>,
    /// What was recorded and contradicts what was stated, where the numbers follow what was recorded.
    pub contradictions: Vec<Contradiction>,
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
    /// says: as the tokens of one item it differs. Of one that differs, whether it would be the same as such items.
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
    /// Whether the file has gradients that were not checked, and nobody said that these do not matter.
    pub has_unchecked_gradients: bool,
    /// What gives these numbers; `None` where nothing was to be explained.
    pub diagnosis: Option<Diagnosis>,
    /// The file whose own numbers show that, of two that `diff` compares.
    pub diagnosed: Option<String>,
    /// Where the recorded values first are NaN or infinite and should not be; `diff` does not look for it.
    pub non_finite: Option<NonFinite>,
}

/// What a comparison comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every step is the same.
    Same,
    /// A step differs, or one side lacks it.
    Differs,
    /// Every step is the same, and there are gradients that were not compared.
    Unchecked,
}

impl Verdict {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Differs => "differs",
            Self::Unchecked => "unchecked",
        }
    }

    /// The name in the language in force.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Same => tr!("same"),
            Self::Differs => tr!("differs"),
            Self::Unchecked => tr!("unchecked"),
        }
    }
}

/// A setting of seen keys under which a file is as it should be.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct FitsKeys {
    /// The setting, as `key=value`.
    pub setting: String,
    /// Whether all is the same; otherwise all but the rows of padded queries.
    pub is_same: bool,
}

impl Report {
    /// The report of the file at `path`, nothing explained.
    ///
    /// # Errors
    /// If there is no step to compare, or a tolerance is set for a step that is not there.
    pub(super) fn of(path: &Path, steps: Vec<StepReport>, tolerances: &Tolerances) -> Result<Self> {
        let known: HashSet<&str> = steps.iter().map(|step| step.name.as_str()).collect();
        if let Some(name) = tolerances.steps().find(|name| !known.contains(name)) {
            let what = tr!("a tolerance is set for {name}, but no step has this name", name);
            return Err(Error::config(what, "use a name from the report"));
        }
        let report = Self {
            path: path.display().to_string(),
            steps,
            contradictions: Vec::new(),
            labels: None,
            diagnosis: None,
            diagnosed: None,
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
            has_unchecked_gradients: false,
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

    /// Whether both sides have every step, none differs, what was recorded is what was stated, and no gradient was left
    /// unchecked.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.verdict() == Verdict::Same
    }

    /// What the comparison comes to.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let is_same = self.steps.iter().all(|step| step.status == Status::Same);
        match is_same && self.contradictions.is_empty() {
            true if self.has_unchecked_gradients => Verdict::Unchecked,
            true => Verdict::Same,
            false => Verdict::Differs,
        }
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
