//! What is the program of a part of a run?

use super::axis::{Axes, Axis, Dim};
use super::graph::{Program, Step};
use super::name::Name;
use super::op::Op;
use super::part::Part;

impl Part {
    /// The part of a step's value; nothing where it is all of it. Input tokens are all needed for any query.
    pub fn within<V>(self, step: &Step<V>) -> Option<usize> {
        // Of the states before chunks there are not as many as tokens.
        let is_whole = match self {
            Self::Rows(_) => step.name == Name::X,
            Self::First(_) => step.name == Name::ChunkStates,
            _ => false,
        };
        self.position(&step.axes).filter(|_| !is_whole)
    }
}

impl Program {
    /// The program of a part of the run. Nothing where that depends on the rest.
    pub fn narrowed(&self, part: Part) -> Option<Self> {
        let mut narrow = Self::default();
        for step in self.steps() {
            if step.op == Op::Given {
                let mut dims: Vec<Dim> = step.axes.iter().collect();
                if let Some((_, size)) = part.within(step).and_then(|at| dims.get_mut(at)) {
                    *size = part.places().1;
                }
                narrow.given(step.name, Axes::new(dims));
                continue;
            }
            // Where tokens see others, the first ones have keys of their own.
            let has = |own: Axis| step.axes.iter().any(|(axis, _)| axis == own);
            if matches!(part, Part::First(_)) && has(Axis::Query) && has(Axis::Key) {
                return None;
            }
            let inputs: Vec<&Axes> = step
                .inputs
                .iter()
                .filter_map(|at| narrow.steps().get(*at).map(|read| &read.axes))
                .collect();
            // Keys that a mask hides have no weight.
            let is_free = matches!(part, Part::Keys(_)) && step.name == Name::Weights;
            let own = || Some(step.op.clone()).filter(|_| is_free && !step.is_inserted);
            let op = step.op.narrowed(part, &inputs, &step.axes).or_else(own)?;
            narrow.then(step.name, op, &step.inputs).ok()?;
            if let Some(added) = narrow.last_mut() {
                added.is_inserted = step.is_inserted;
            }
        }
        Some(narrow)
    }
}
