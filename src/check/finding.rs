//! What does a diagnosis say? Mistakes, rounding, and what can be said where nothing explains the numbers.

use std::time::Duration;

pub use foreign::Contradiction;
use program::{Axis, Kind, Name};
use serde_json::Value;

/// A mistake that gives the numbers found, or the rounding that does.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The mistake's name in the catalogue, or else its kind; `noise` or `half-precision` for rounding.
    pub id: &'static str,
    /// The kind of edit that the mistake is; nothing for rounding.
    pub kind: Option<Kind>,
    /// The first step that it explains; of rounding, the one that it takes furthest.
    pub step: Name,
    /// What the faulty code does.
    pub summary: String,
    /// The number that is wrong.
    pub number: Option<Number>,
    /// Where the mistake is made, if not everywhere: places of an axis.
    pub part: Option<(Axis, Vec<usize>)>,
    /// The step that is read in place of the right one.
    pub instead: Option<Name>,
    /// Other mistakes that give the same numbers here.
    pub also: Vec<Finding>,
    /// The second mistake, where only the two together give the numbers.
    pub with: Option<Box<Finding>>,
    /// Of rounding: the largest difference at a recorded step, in multiples of what rounding alone made of that step
    /// in this run. At most 16, but for what the tolerances allow by themselves.
    pub factor: Option<f64>,
}

/// A number that is not what was meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Number {
    /// What it is called.
    pub parameter: &'static str,
    /// What was meant.
    pub meant: f64,
    /// What gives the recorded values.
    pub found: f64,
}

impl Finding {
    /// Whether it is told as a mistake of this step.
    pub(super) fn is_told_at(&self, step: Name) -> bool {
        self.summary.strip_prefix(step.as_str()).is_some_and(|rest| rest.starts_with(':'))
    }

    /// Rounding, at the step that it takes furthest.
    pub(super) fn rounding(id: &'static str, step: Name, summary: &str) -> Self {
        Self {
            id,
            kind: None,
            step,
            summary: summary.to_owned(),
            number: None,
            part: None,
            instead: None,
            also: Vec::new(),
            with: None,
            factor: None,
        }
    }

    /// Whether the mistake has a name in the catalogue.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.kind.is_some_and(|kind| kind.name() != self.id)
    }

    /// Whether this is no mistake but the rounding of f32 or of a type with fewer bits.
    #[must_use]
    pub fn is_rounding(&self) -> bool {
        matches!(self.kind, None | Some(Kind::Precision))
    }
}

/// What can be said of a step that nothing explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clue {
    /// The step.
    pub step: Name,
    /// One true sentence about how it differs.
    pub summary: String,
}

/// What is known of the differences of a recorded run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnosis {
    /// What gives these numbers, the simplest first; alternatives where several do.
    pub findings: Vec<Finding>,
    /// The steps that are wrong and that no finding explains, in order of execution.
    pub unexplained: Vec<Name>,
    /// What can be said of those.
    pub clues: Vec<Clue>,
    /// What became of pairs of mistakes.
    pub pairs: Pairs,
    /// Whether the run is so large that rare mistakes which a few of its rows do not show were not tried.
    pub left_out: bool,
}

/// Whether pairs of known mistakes were tried, as they are where whole runs tell and no single mistake fits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pairs {
    /// There was no need.
    #[default]
    Unneeded,
    /// They were; so many fit beyond those that the findings list.
    Tried {
        /// The number of pairs that fit and are not listed.
        unlisted: usize,
    },
    /// They, or mistakes without a name, would have taken about so long, which is too long.
    TooLong(Duration),
}

/// A value as flags have it; of a long one the beginning.
pub fn told(value: Option<&Value>) -> String {
    const TOLD: usize = 40;
    fn whole(value: &Value) -> String {
        match value {
            Value::Null => "none".to_owned(),
            Value::String(text) => text.clone(),
            Value::Array(all) => {
                let by = if all.iter().any(Value::is_array) { "/" } else { "," };
                all.iter().map(whole).collect::<Vec<_>>().join(by)
            }
            Value::Number(number) => {
                let exact = number.as_f64().filter(|_| number.is_f64());
                exact.map_or_else(|| number.to_string(), |number| number.to_string())
            }
            other => other.to_string(),
        }
    }
    let text = whole(value.unwrap_or(&Value::Null));
    match text.char_indices().nth(TOLD) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
