//! What did the comparison of two recordings of a whole model find?

use super::super::report::{Report, Verdict};
use super::left_over::LeftOver;
use foreign::ModelPart;

/// How it is known what a part adds to the error by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Its inputs agree, so that all of it is its own: measured.
    EqualInputs,
    /// It was computed again from the port's own inputs, on some rows: measured.
    Recomputed,
    /// Its inputs differ already; its error is compared with how much parts of its kind make of that: inferred.
    Inferred,
}

impl How {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::EqualInputs => "equal-inputs",
            Self::Recomputed => "recomputed",
            Self::Inferred => "inferred",
        }
    }

    /// The name in the language in force.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::EqualInputs => tr!("measured: its inputs agree"),
            Self::Recomputed => tr!("measured: recomputed from the port's inputs"),
            Self::Inferred => tr!("inferred from how errors grow"),
        }
    }
}

/// Why it is open whether a part that is off is wrong by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// It chooses experts, and rounding of what it reads may have changed the choice in some rows.
    Experts,
    /// It could not be computed again from the port's own inputs, which differ, and nothing says how errors grow in it.
    Unknown,
}

/// A part of the model, compared. Errors are relative to the size of a row, in the worst row.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// The tensor in the reference.
    pub name: String,
    /// The module.
    pub path: String,
    /// What it is.
    pub part: ModelPart,
    /// Its layer.
    pub layer: Option<usize>,
    /// The error of what it gives; nothing where the port does not have it.
    pub error: Option<f64>,
    /// The error of what it reads.
    pub inherited: Option<f64>,
    /// What it adds by itself.
    pub own: Option<f64>,
    /// How that is known.
    pub how: How,
    /// What its types may be off by.
    pub tolerance: f64,
    /// Whether it is wrong by itself.
    pub is_wrong: bool,
    /// Why that is open, where it is.
    pub open: Option<Open>,
}

/// What is said of the first wrong part: by `check` of an attention, or of a part that is a plain one.
#[derive(Debug, Clone)]
pub struct Named {
    /// What was recomputed, for readers.
    pub what: String,
    /// Facts: parameters that differ.
    pub facts: Vec<String>,
    /// The verdict.
    pub report: Option<Report>,
}

impl Named {
    /// Whether that says what is wrong, and not only that something is.
    #[must_use]
    pub fn names_a_mistake(&self) -> bool {
        let report = self.report.as_ref().filter(|report| !report.is_same());
        let diagnosis = report.and_then(|report| report.diagnosis.as_ref());
        !self.facts.is_empty() || diagnosis.is_some_and(|found| !found.findings.is_empty())
    }
}

/// The comparison of two recordings of a whole model.
#[derive(Debug, Clone)]
pub struct ByLayer {
    /// The reference.
    pub left: String,
    /// The port.
    pub right: String,
    /// The parts in order of execution.
    pub lines: Vec<Line>,
    /// The first wrong part.
    pub first: Option<usize>,
    /// What is wrong with it.
    pub named: Option<Named>,
    /// Which tensors of other names were taken as which: of the reference, and of the port.
    pub matches: Vec<(String, String)>,
    /// Which tensors were compared with none.
    pub left_over: LeftOver,
    /// How ranks were joined.
    pub ranks: Vec<String>,
    /// The first tensor that differs from the reference's without any effect on what is behind it.
    pub undone: Option<String>,
    /// What was aligned.
    pub aligned: Option<String>,
    /// That the two did not get the same tokens.
    pub warning: Option<String>,
}

impl ByLayer {
    /// Whether parts were compared, none is wrong by itself or left open, and the tokens are the same.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.verdict() == Verdict::Same
    }

    /// What the comparison comes to.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        if self.first.is_some() || self.warning.is_some() {
            return Verdict::Differs;
        }
        let lacks_end = !self.reaches_the_end() || self.left_over.end.is_some();
        let is_open = lacks_end || self.lines.iter().any(|line| line.open.is_some());
        if is_open { Verdict::Unchecked } else { Verdict::Same }
    }

    /// Whether something was compared of the last layer, or of what is behind it.
    #[must_use]
    pub fn reaches_the_end(&self) -> bool {
        let last = self.lines.iter().filter_map(|line| line.layer).next_back();
        let from = self.lines.iter().position(|line| line.layer == last).unwrap_or(0);
        self.lines.iter().skip(from).any(|line| line.error.is_some())
    }

    /// How many parts both sides have.
    #[must_use]
    pub fn compared(&self) -> usize {
        self.lines.iter().filter(|line| line.error.is_some()).count()
    }
}
