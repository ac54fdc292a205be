//! What can code get wrong within one operation: its numbers, and what people write in its place?

mod added;
mod bias;
mod gradients;
mod lists;
mod mask;
mod norm;
mod positions;
mod rotary;
mod scaling;
mod selected;
mod trees;
mod weights;

pub use rotary::{ROPE_BASE, rotation_factor};

use base::lang;
use program::{Axes, Change, Kind, Linear, Map, Op, Parted, Slip};

/// The numbers of an operation that code can have wrong.
pub fn knobs(op: &Op) -> Vec<Knob> {
    match op {
        Op::Scaling(own) => scaling::knobs(own),
        Op::Rotary(own) => rotary::knobs(own),
        Op::Masking(own) => mask::knobs(own),
        Op::Biasing(own) => bias::knobs(own),
        Op::Weighting(own) => weights::knobs(own),
        Op::Given
        | Op::Linear(_)
        | Op::Heads(_)
        | Op::Added(_)
        | Op::Parted(_)
        | Op::Delta(_)
        | Op::Gradient(_)
        | Op::Total(_)
        | Op::Slip(_) => Vec::new(),
    }
}

/// What people write in the place of an operation, for inputs of these axes.
pub fn siblings(op: &Op, inputs: &[&Axes]) -> Vec<Sibling> {
    match op {
        Op::Linear(own) => of_linear(own),
        Op::Heads(own) => added::of_heads(own, inputs),
        Op::Added(own) => added::siblings(own, inputs),
        Op::Scaling(own) => scaling::siblings(own, inputs),
        Op::Rotary(own) => rotary::siblings(own, inputs),
        Op::Masking(own) => mask::siblings(own),
        Op::Biasing(own) => bias::siblings(own),
        Op::Weighting(own) => weights::siblings(own, inputs),
        Op::Parted(own) => of_parts(own),
        Op::Delta(own) => {
            let all = own.mistaken().into_iter();
            all.map(|(slip, other)| Sibling::new(other, Kind::Replaced, slip.told())).collect()
        }
        Op::Slip(Slip::Anew { .. }) => weights::anew(),
        Op::Slip(Slip::Map(map)) => of_activation(*map),
        Op::Gradient(own) => gradients::siblings(own),
        Op::Given | Op::Total(_) | Op::Slip(_) => Vec::new(),
    }
}

/// What an MLP's features go through in the place of an activation.
fn of_activation(own: Map) -> Vec<Sibling> {
    let value = own.name();
    let other = |map: Map| {
        let told =
            tr!("the features go through {other}, not through {value}", other = map.name(), value);
        Sibling::new(Slip::Map(map), Kind::Replaced, told)
    };
    Map::ALL.into_iter().filter(|map| *map != own).map(other).collect()
}

fn of_linear(own: &Linear) -> Vec<Sibling> {
    match own {
        Linear::DotProduct => {
            let told = tr!("the negative squared distance in place of the dot product");
            vec![Sibling::new(Slip::SquaredDistance, Kind::Replaced, told)]
        }
        Linear::Project { .. } | Linear::WeightedSum | Linear::Absorb | Linear::Expand => {
            Vec::new()
        }
    }
}

fn of_parts(own: &Parted) -> Vec<Sibling> {
    let slips = own.stage.slips().iter().map(|slip| {
        let other = Parted { slip: Some(*slip), ..own.clone() };
        Sibling::new(other, Kind::Replaced, slip.told())
    });
    slips.collect()
}

/// A number of an operation that code can have wrong.
pub struct Knob {
    /// What it is called.
    pub name: &'static str,
    /// The number as it is meant.
    pub value: f64,
    /// Which numbers it can be.
    pub range: Range,
    /// Numbers that people write there.
    pub common: Vec<f64>,
    /// The operation with another number; nothing where that makes no sense.
    pub with: Box<dyn Fn(f64) -> Option<Op>>,
}

/// Which numbers an operation's number can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Range {
    /// Any; the value grows in proportion to it.
    Factor,
    /// Any; it stands in cells of the value as it is.
    Cell,
    /// Any that is about as large as scores are: what stands in cells that were not recorded.
    Score,
    /// Above 0.
    Positive,
    /// Above 0, and one that configs state: whole, or of few digits.
    Stated,
    /// Whole numbers within these bounds.
    Whole(i64, i64),
}

impl Knob {
    /// A number of an operation, which `set` changes, and says whether the operation makes sense then.
    fn new<T: Clone + Into<Op> + 'static>(
        own: &T,
        (name, value): (&'static str, f64),
        range: Range,
        common: &[f64],
        set: impl Fn(&mut T, f64) -> bool + 'static,
    ) -> Self {
        let own = own.clone();
        let with = move |value| {
            let mut other = own.clone();
            set(&mut other, value).then(|| other.into())
        };
        Self { name, value, range, common: common.to_vec(), with: Box::new(with) }
    }
}

/// What people write in the place of an operation.
pub struct Sibling {
    /// The change of the step.
    pub change: Change,
    /// What kind of mistake it is.
    pub kind: Kind,
    /// What the code does then: a clause that goes on behind the step's name and a colon.
    pub told: String,
}

impl Sibling {
    /// Another operation.
    fn new(op: impl Into<Op>, kind: Kind, told: impl Into<String>) -> Self {
        Self { change: Change::Replace(op.into()), kind, told: told.into() }
    }

    /// One more operation, on its value.
    fn after(op: impl Into<Op>, kind: Kind, told: impl Into<String>) -> Self {
        Self { change: Change::after(op), kind, told: told.into() }
    }
}

/// What changes one thing in an operation, with the clause that tells it.
type Other<'a, T> = (&'a str, fn(&mut T));

/// Operations of which each differs in one thing.
fn others<T: Clone + Into<Op>>(own: &T, kind: Kind, rows: &[Other<T>]) -> Vec<Sibling> {
    let other = |(told, change): &Other<T>| {
        let mut other = own.clone();
        change(&mut other);
        Sibling::new(other, kind, lang::text(told))
    };
    rows.iter().map(other).collect()
}
