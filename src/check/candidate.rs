//! What may be wrong? A program that is a small edit away from the right one, and what to say of it.

use super::finding::{Finding, Number};
use base::lang;
use program::{Axis, Change, Edit, Kind, Name, Op, Precision, Program, Role, Trace};

/// Edits that are made together.
pub type Edits = Vec<Edit>;

/// A mistake that may have been made.
#[derive(Debug, Clone)]
pub struct Candidate {
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

/// What a candidate costs: the likelier a mistake, the less.
pub mod cost {
    /// It has a name in the catalogue.
    pub const KNOWN: u32 = 0;
    /// Something is 0.
    pub const NOTHING: u32 = 1;
    pub const COMMON: u32 = 2;
    pub const PLAIN: u32 = 3;
    pub const RARE: u32 = 4;
    /// Read off the recorded values, and so likely to fit.
    pub const FITTED: u32 = 5;
    pub const ODD: u32 = 6;
    /// What it costs more to be made in a part of a step alone.
    pub const CONFINED: u32 = 4;
}

impl Candidate {
    /// A mistake without a name.
    pub fn new(kind: Kind, cost: u32, edits: Edits, summary: String) -> Self {
        let (id, number, part, instead) = (kind.name(), None, None, None);
        Self { id, kind, edits, summary, number, part, instead, cost }
    }

    /// A mistake of one edit: the name of the step and what is wrong there.
    pub fn at(at: Name, kind: Kind, cost: u32, change: Change, what: impl AsRef<str>) -> Self {
        let summary = format!("{at}: {}", what.as_ref());
        Self::new(kind, cost, vec![Edit::new(at, change)], summary)
    }

    /// The same, as another number than was meant.
    pub fn with_number(self, parameter: &'static str, meant: f64, found: f64) -> Self {
        Self { number: Some(Number { parameter, meant, found }), ..self }
    }

    /// The faulty program. Nothing where the edits do not fit: such code would have failed, and is no mistake that is
    /// shipped.
    pub fn program(&self, right: &Trace) -> Option<Program> {
        right.edited(&self.edits).ok()
    }

    /// The first computed step that it makes wrong by itself: one that does something else or reads something else than in
    /// the right program, or that reads such a setting.
    pub fn site(&self, right: &Trace) -> Option<Name> {
        let program = self.program(right)?;
        let mut is_other = Vec::new();
        for step in program.steps() {
            let expected = right.step(step.name).filter(|_| !step.is_inserted);
            let is_as_it_was = expected.is_some_and(|expected| {
                let read = program.read_by(step).into_iter().map(|read| read.name);
                let meant = right.read_by(expected).into_iter().map(|read| read.name);
                expected.op == step.op && read.eq(meant)
            });
            let reads_other = step.inputs.iter().any(|at| is_other.get(*at) == Some(&true));
            if (!is_as_it_was || reads_other)
                && !step.name.row().is_inner
                && right.computes(step.name)
            {
                return Some(step.name);
            }
            is_other.push(!is_as_it_was || reads_other);
        }
        None
    }

    /// What it says if it explains a step.
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
        self.cost == cost::KNOWN
    }

    /// The type that numbers are rounded to, if that is the mistake.
    pub fn precision(&self) -> Option<Precision> {
        self.edits.iter().find_map(|edit| match edit.change.op()? {
            Op::Slip(slip) => slip.precision(),
            _ => None,
        })
    }

    /// Whether another mistake has the same number at the same steps, but for what rounding leaves open: where its digits
    /// end, or in 16 bits a part of it.
    pub fn has_number_of(&self, other: &Self, is_in_16_bits: bool) -> bool {
        let within = if is_in_16_bits { 0.25 } else { 1e-3 };
        self.edits.iter().map(|edit| edit.at).eq(other.edits.iter().map(|edit| edit.at))
            && self.number.as_ref().zip(other.number.as_ref()).is_some_and(|(number, other)| {
                number.parameter == other.parameter
                    && (number.found - other.found).abs() <= within * other.found.abs()
            })
    }

    /// Whether a reader of a step reads another one, where that step is left out already.
    pub fn is_omission_of(&self, other: &Self, right: &Trace) -> bool {
        let ([own], [other]) = (self.edits.as_slice(), other.edits.as_slice()) else {
            return false;
        };
        let Change::Read(names) = &own.change else { return false };
        let reads = |name: Name| {
            let step = right.step(own.at);
            step.is_some_and(|step| right.read_by(step).iter().any(|read| read.name == name))
        };
        other.change == Change::Omit && reads(other.at) && !names.contains(&other.at)
    }

    /// Whether both say what a step does, so that one would undo the other.
    pub fn contradicts(&self, other: &Self) -> bool {
        let decides =
            |change: &Change| matches!(change, Change::Replace(_) | Change::Omit | Change::Read(_));
        self.edits.iter().filter(|edit| decides(&edit.change)).any(|edit| {
            other.edits.iter().any(|other| other.at == edit.at && decides(&other.change))
        })
    }

    /// The same mistake at these places of an axis alone, which every step that it edits has.
    pub fn confined(&self, axis: (usize, Axis), places: &[usize]) -> Option<Self> {
        let may_be_in_part = |edit: &Edit| {
            matches!(edit.at.role(), Role::Computed | Role::Setting)
                && edit.change != Change::Exchange
        };
        if !self.edits.iter().all(may_be_in_part) {
            return None;
        }
        let confined = |edit: &Edit| {
            let change = Change::Confined(Box::new(edit.change.clone()), axis.0, places.to_vec());
            Edit::new(edit.at, change)
        };
        let place = places_in_words(axis.1, places);
        // What a number may come from stands behind the place.
        let end = self.summary.find(['；', ';']).unwrap_or(self.summary.len());
        let (summary, note) = self.summary.split_at(end);
        Some(Self {
            edits: self.edits.iter().map(confined).collect(),
            summary: tr!("{summary}, {place}", summary, place) + note,
            part: Some((axis.1, places.to_vec())),
            cost: self.cost + cost::CONFINED,
            ..self.clone()
        })
    }
}

/// Where a mistake is made: "in head 2 alone".
pub fn places_in_words(axis: Axis, places: &[usize]) -> String {
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
        (Axis::Model | Axis::HeadDim | Axis::ValueDim | Axis::Input, false) => tr!("feature"),
        (Axis::Model | Axis::HeadDim | Axis::ValueDim | Axis::Input, true) => tr!("features"),
        (Axis::Bucket, false) => tr!("bucket"),
        (Axis::Slot, false) => tr!("slot"),
        (Axis::Slot, true) => tr!("slots"),
        (Axis::Bucket, true) => tr!("buckets"),
        (Axis::Split, false) => tr!("split"),
        (Axis::Split, true) => tr!("splits"),
        (Axis::Tile, false) => tr!("tile"),
        (Axis::Tile, true) => tr!("tiles"),
    };
    tr!("in {what} {places} alone", what, places = ranges(places))
}

/// Places in a few words: "0, 2 to 5".
pub fn ranges(places: &[usize]) -> String {
    let in_words = |run: &[usize]| match run {
        [first, _, .., last] if run.len() > 2 => vec![tr!("{first} to {last}", first, last)],
        few => few.iter().map(ToString::to_string).collect(),
    };
    let runs = places.chunk_by(|one, next| *next == one + 1);
    lang::list(&runs.flat_map(in_words).collect::<Vec<_>>())
}
