//! What may be wrong: programs that are a small edit away from the right one.

use std::collections::HashMap;

use super::catalogue::{Edits, Situation, catalogue};
use super::finding::{Finding, Number};
use super::grammar::grammar;
use base::error::Result;
use base::lang;
use program::{Axis, Change, Kind, Name, Op, Precision, Program, Role, Step, Trace};

/// A mistake that may have been made: edits of the right program, and what to say of them.
#[derive(Debug, Clone)]
pub struct Hypothesis {
    /// The catalogue's name, or else that of the kind.
    pub id: &'static str,
    pub kind: Kind,
    pub edits: Edits,
    /// What the faulty code does.
    pub summary: String,
    pub number: Option<Number>,
    pub part: Option<(Axis, Vec<usize>)>,
    pub instead: Option<Name>,
    /// How far-fetched it is: of two that give the same numbers the cheaper is told first.
    pub cost: u32,
}

/// What a mistake with a name costs. Others cost more, so that the name is told.
pub const KNOWN: u32 = 0;

/// Every mistake that can be made in a run: those with a name first, then by cost.
///
/// # Errors
/// If candle fails.
pub fn hypotheses(situation: &Situation) -> Result<Vec<Hypothesis>> {
    let mut all = known(situation)?;
    let mut others = grammar(situation.right, &situation.config.sizes);
    // One that has a name is told by it.
    others.retain(|made| !all.iter().any(|known| known.edits == made.edits));
    all.extend(others);
    all.sort_by_key(|made| made.cost);
    Ok(all)
}

/// The mistakes with a name.
fn known(situation: &Situation) -> Result<Vec<Hypothesis>> {
    let mut all = Vec::new();
    for mistake in catalogue() {
        for way in mistake.ways {
            for edits in way.edits(situation)? {
                all.push(Hypothesis {
                    id: mistake.id,
                    kind: mistake.kind,
                    edits,
                    summary: lang::text(way.summary).to_owned(),
                    number: None,
                    part: None,
                    instead: None,
                    cost: KNOWN,
                });
            }
        }
    }
    Ok(all)
}

impl Hypothesis {
    /// A mistake without a name.
    pub fn of_kind(kind: Kind, cost: u32, edits: Edits, summary: String) -> Self {
        let (id, number, part, instead) = (kind.name(), None, None, None);
        Self { id, kind, edits, summary, number, part, instead, cost }
    }

    /// The faulty program. Nothing where the edits do not fit: such code would have failed, and is no mistake that is
    /// shipped.
    pub fn program(&self, right: &Trace) -> Option<Program> {
        right.edited(&self.edits).ok()
    }

    /// What it says if it fits.
    pub fn finding(&self, step: Name) -> Finding {
        Finding {
            kind: Some(self.kind),
            number: self.number.clone(),
            part: self.part.clone(),
            instead: self.instead,
            ..Finding::rounding(self.id, step, &self.summary)
        }
    }

    /// Whether it has a name.
    pub fn is_known(&self) -> bool {
        self.cost == KNOWN
    }

    /// The type that numbers are rounded to, if that is the mistake.
    pub fn precision(&self) -> Option<Precision> {
        self.edits.iter().find_map(|edit| match edit.change.op()? {
            Op::Slip(slip) => slip.precision(),
            _ => None,
        })
    }

    /// Whether another mistake has the same number at the same steps, but for what rounding leaves open: where its digits
    /// end, or in the `precision` of 16 bits a part of it.
    pub fn has_number_of(&self, other: &Self, precision: Option<Precision>) -> bool {
        let within = if precision.is_some() { 0.25 } else { 1e-3 };
        self.edits.iter().map(|edit| edit.at).eq(other.edits.iter().map(|edit| edit.at))
            && self.number.as_ref().zip(other.number.as_ref()).is_some_and(|(own, other)| {
                own.parameter == other.parameter
                    && (own.found - other.found).abs() <= within * other.found.abs()
            })
    }

    /// Whether it edits one of these steps, or what is given and they may read.
    pub fn may_reach(&self, right: &Trace, steps: &[Name]) -> bool {
        self.edits.iter().any(|edit| {
            !right.computes(edit.at) || edit.change == Change::Exchange || steps.contains(&edit.at)
        })
    }

    /// Whether both say what a step does, so that one would undo the other.
    pub fn contradicts(&self, other: &Self) -> bool {
        let decides =
            |change: &Change| matches!(change, Change::Replace(_) | Change::Omit | Change::Read(_));
        self.edits.iter().filter(|edit| decides(&edit.change)).any(|edit| {
            other.edits.iter().any(|other| other.at == edit.at && decides(&other.change))
        })
    }

    /// The same mistake at these places of an axis alone.
    pub fn confined(&self, axis: (usize, Axis), places: &[usize]) -> Option<Self> {
        let [edit] = self.edits.as_slice() else { return None };
        if edit.at.role() != Role::Computed || edit.change == Change::Exchange {
            return None;
        }
        let mut made = self.clone();
        let own = made.edits.first_mut()?;
        own.change = Change::Confined(Box::new(edit.change.clone()), axis.0, places.to_vec());
        made.summary =
            tr!("{summary}, {place}", summary = self.summary, place = told(axis.1, places));
        made.part = Some((axis.1, places.to_vec()));
        made.cost += 4;
        Some(made)
    }
}

/// Where a mistake is made: "in head 2 alone".
pub fn told(axis: Axis, places: &[usize]) -> String {
    let numbers: Vec<String> = places.iter().map(ToString::to_string).collect();
    let several = places.len() > 1;
    let what = match (axis, several) {
        (Axis::Batch, false) => tr!("item"),
        (Axis::Batch, true) => tr!("items"),
        (Axis::Head, false) => tr!("head"),
        (Axis::Head, true) => tr!("heads"),
        (Axis::Query, false) => tr!("query row"),
        (Axis::Query, true) => tr!("query rows"),
        (Axis::Key, false) => tr!("key"),
        (Axis::Key, true) => tr!("keys"),
        (Axis::Model | Axis::HeadDim | Axis::Input, false) => tr!("feature"),
        (Axis::Model | Axis::HeadDim | Axis::Input, true) => tr!("features"),
        (Axis::Bucket, false) => tr!("bucket"),
        (Axis::Bucket, true) => tr!("buckets"),
    };
    tr!("in {what} {places} alone", what, places = ranges(&numbers, places))
}

/// Places in a few words: "0, 2 to 5".
fn ranges(numbers: &[String], places: &[usize]) -> String {
    let is_run = places.windows(2).all(|pair| pair[1] == pair[0] + 1);
    match numbers {
        [first, .., last] if is_run && numbers.len() > 2 => tr!("{first} to {last}", first, last),
        _ => lang::list(numbers),
    }
}

/// The computed steps that a faulty program makes wrong by themselves: those that do something else or read something
/// else than in the right one, and those that read such a setting.
pub fn sites(right: &Trace, program: &Program) -> Vec<Name> {
    let mut counts: HashMap<Name, usize> = HashMap::new();
    for step in program.steps() {
        *counts.entry(step.name).or_default() += 1;
    }
    let mut is_changed = Vec::new();
    let mut sites = Vec::new();
    for step in program.steps() {
        let reads_changed = step.inputs.iter().any(|at| {
            let is_setting = !right.computes(program.steps()[*at].name);
            is_setting && is_changed.get(*at) == Some(&true)
        });
        let own = right.step(step.name);
        let is_as_it_was =
            own.is_some_and(|own| own.op == step.op && reads(right, own) == reads(program, step));
        let is_other = reads_changed || !is_as_it_was || counts.get(&step.name) != Some(&1);
        is_changed.push(is_other);
        if is_other && right.computes(step.name) && !sites.contains(&step.name) {
            sites.push(step.name);
        }
    }
    sites
}

fn reads<V>(program: &Program<V>, step: &Step<V>) -> Vec<Name> {
    program.read_by(step).iter().map(|read| read.name).collect()
}
