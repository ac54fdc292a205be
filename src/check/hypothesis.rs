//! Known mistakes as programs: what the run would be with one of them in it.

use super::catalogue::{Edits, Mistake, Situation, Way, catalogue};
use super::finding::Finding;
use crate::error::Result;
use crate::program::{Change, Name, Program, Role, Trace};

/// A mistake in one of its ways, and the program that it makes of a run's.
#[derive(Debug, Clone)]
pub struct Hypothesis {
    pub mistake: &'static Mistake,
    pub way: &'static Way,
    pub edits: Edits,
    pub program: Program,
    /// The computed steps that it makes wrong by themselves, in order of execution.
    pub sites: Vec<Name>,
}

/// Every known mistake that can be made in a run, the simplest first.
///
/// # Errors
/// If candle fails.
pub fn hypotheses(situation: &Situation) -> Result<Vec<Hypothesis>> {
    let mut all = Vec::new();
    for mistake in catalogue() {
        for way in mistake.ways {
            for edits in way.edits(situation)? {
                // What does not fit would have failed, and is no mistake that is shipped.
                let Ok(program) = situation.right.edited(&edits) else { continue };
                let sites = sites(situation.right, &edits);
                all.push(Hypothesis { mistake, way, edits, program, sites });
            }
        }
    }
    Ok(all)
}

impl Hypothesis {
    /// What it says if it fits.
    pub fn finding(&self, step: Name) -> Finding {
        Finding::mistake(self.mistake.id, step, self.way.summary)
    }

    /// The first step that it makes wrong.
    pub fn first_site(&self) -> Option<Name> {
        self.sites.first().copied()
    }

    /// Whether what it gives for one item of the batch depends on the others.
    pub fn mixes_items(&self) -> bool {
        self.program.steps().iter().any(|step| step.op.operation().mixes_items())
    }

    /// Whether both say what a step does, so that one would undo the other.
    pub fn contradicts(&self, other: &Self) -> bool {
        let decides =
            |change: &Change| matches!(change, Change::Replace(_) | Change::Omit | Change::Read(_));
        self.edits.iter().filter(|edit| decides(&edit.change)).any(|edit| {
            other.edits.iter().any(|other| other.at == edit.at && decides(&other.change))
        })
    }

    /// The same mistake, and another beside it.
    pub fn and(&self, other: &Self) -> Option<Program> {
        self.program.edited(&other.edits).ok()
    }
}

/// The computed steps of a run that edits make wrong by themselves: those that are edited, and those that read an edited
/// setting.
fn sites(right: &Trace, edits: &Edits) -> Vec<Name> {
    let is_edited = |name: Name| edits.iter().any(|edit| edit.at == name);
    let mut changed = vec![false; right.steps().len()];
    let mut sites = Vec::new();
    for (at, step) in right.steps().iter().enumerate() {
        let reads_changed = step.inputs.iter().any(|read| changed[*read]);
        if !is_edited(step.name) && !reads_changed {
            continue;
        }
        if step.name.role() == Role::Computed {
            sites.push(step.name);
        } else {
            changed[at] = true;
        }
    }
    sites
}
