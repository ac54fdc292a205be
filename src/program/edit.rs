//! Edits: the small changes of a program that mistakes in code amount to.

use std::collections::HashSet;

use super::axis::{Axes, Axis};
use super::graph::{Program, Step};
use super::name::Name;
use super::op::Op;
use super::ops::{Heads, Rearrange, Slip};
use super::role::Role;
use base::error::{Error, Result};

/// A change of one step of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct Edit {
    /// The step.
    pub at: Name,
    /// What is changed.
    pub change: Change,
}

/// What is changed of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Another operation on the same inputs.
    Replace(Op),
    /// The step is left out: what it reads first is handed on.
    Omit,
    /// Other inputs, for the same operation.
    Read(Vec<Name>),
    /// One more operation on the step's value, which reads these steps beside it.
    After(Op, Vec<Name>),
    /// One more operation on one of the inputs, counted from 0, which reads these steps beside it.
    Before(usize, Op, Vec<Name>),
    /// Another operation on other inputs.
    Become(Op, Vec<Name>),
    /// One of the inputs, counted from 0, is what an operation makes of these steps.
    Feed(usize, Op, Vec<Name>),
    /// The step comes before the one that it reads first, which then reads it.
    Exchange,
    /// The change is made at these places of an axis alone, which is counted from the first.
    Confined(Box<Change>, usize, Vec<usize>),
    /// Changes are made for the step and others alone.
    Apart(Apart),
}

/// Edits of what some steps read, made for these alone.
#[derive(Debug, Clone, PartialEq)]
pub struct Apart {
    /// The steps.
    pub by: Vec<Name>,
    /// The edits, which autograd does not follow.
    pub edits: Vec<Edit>,
    /// What stays as it is, whatever it reads.
    pub kept: Vec<Name>,
}

impl Change {
    /// One more operation on the step's value.
    pub fn after(op: impl Into<Op>) -> Self {
        Self::After(op.into(), Vec::new())
    }

    /// One more operation on one of the inputs, counted from 0.
    pub fn before(slot: usize, op: impl Into<Op>) -> Self {
        Self::Before(slot, op.into(), Vec::new())
    }

    /// The operation that it brings.
    pub fn op(&self) -> Option<&Op> {
        match self {
            Self::Replace(op)
            | Self::Become(op, _)
            | Self::After(op, _)
            | Self::Before(_, op, _)
            | Self::Feed(_, op, _) => Some(op),
            Self::Confined(change, ..) => change.op(),
            Self::Omit | Self::Read(_) | Self::Exchange | Self::Apart(_) => None,
        }
    }
}

impl Edit {
    /// An edit of a step.
    pub fn new(at: Name, change: Change) -> Self {
        Self { at, change }
    }
}

impl<V> Program<V> {
    /// The program with these changes, made one after the other, and without values.
    ///
    /// # Errors
    /// If a step is not there, reads one that comes later, or a computed one has other axes than before: such code would
    /// have failed.
    pub fn edited(&self, edits: &[Edit]) -> Result<Program> {
        let unchanged = self.unrun();
        if let [Edit { change: Change::Apart(apart), .. }] = edits {
            return unchanged.apart(apart);
        }
        let make = |program: Program, edits: &[&Edit]| {
            // Of the edits of one step each is made of what the one before left.
            let is_apart = |(at, edit): (usize, &&Edit)| {
                edit.change != Change::Exchange
                    && edits.iter().take(at).all(|other| other.at != edit.at)
            };
            if edits.iter().enumerate().all(is_apart) {
                return program.edited_once(edits);
            }
            edits.iter().try_fold(program, |program, edit| program.edited_once(&[*edit]))
        };
        let is_of_gradient =
            |edit: &&Edit| matches!(edit.at, Name::Gradient(_) | Name::Delta | Name::Within);
        let (backward, forward): (Vec<&Edit>, Vec<&Edit>) = edits.iter().partition(is_of_gradient);
        let first = self.steps().iter().position(|step| step.name.is_gradient());
        let Some(first) = first.filter(|_| !forward.is_empty()) else {
            return make(unchanged, &edits.iter().collect::<Vec<_>>());
        };
        // Autograd follows what the forward pass does, wrong as it is, as far as that is known here.
        let alone = make(unchanged.before(first), &forward)?;
        let derived = self.steps().get(first).and_then(|step| {
            let Name::Gradient(of) = step.name else { return None };
            let gradients = self.steps().iter().skip(first).filter_map(|step| match step.name {
                Name::Gradient(own) => Some(own.step()),
                _ => None,
            });
            let given =
                gradients.filter(|name| alone.step(*name).is_some_and(|own| own.op == Op::Given));
            alone.backward(of.step(), &given.collect::<Vec<_>>()).ok()
        });
        let edited = derived.map_or_else(|| make(unchanged, &forward), Ok)?;
        make(edited, &backward)
    }
}

impl Program {
    /// The program with these changes of different steps, which are made at once.
    pub(super) fn edited_once(&self, edits: &[&Edit]) -> Result<Self> {
        if let [Edit { at, change: Change::Exchange }] = edits {
            return self.exchanged(*at);
        }
        let mut edited = Edited { program: Self::default(), moved: Vec::new() };
        let mut made = HashSet::new();
        for step in self.steps() {
            match edits.iter().find(|edit| edit.at == step.name && !step.is_inserted) {
                Some(edit) => {
                    edited.change(step, &edit.change)?;
                    made.insert(edit.at);
                }
                None => edited.keep(step)?,
            }
        }
        match edits.iter().find(|edit| !made.contains(&edit.at)) {
            Some(edit) => Err(absent(edit.at)),
            None => Ok(edited.program),
        }
    }

    /// The program with a step before the one that it reads first.
    fn exchanged(&self, name: Name) -> Result<Self> {
        let at = self.position(name).ok_or_else(|| absent(name))?;
        let mut edited = Edited { program: Self::default(), moved: Vec::new() };
        let Some(later) = self.steps().get(at) else { return Err(absent(name)) };
        let first = later.inputs.first().copied().ok_or_else(|| absent(name))?;
        for (place, step) in self.steps().iter().enumerate() {
            if place != first && place != at {
                edited.keep(step)?;
                continue;
            }
            // Each reads what the other read first, and has its own inputs beside it.
            let (own, read) = if place == first { (later, step) } else { (self.at(first)?, later) };
            let main = read.inputs.first().and_then(|from| edited.moved.get(*from)).copied();
            let beside = own.inputs.iter().skip(1).map(|from| edited.moved.get(*from).copied());
            let inputs: Option<Vec<usize>> = std::iter::once(main).chain(beside).collect();
            let inputs = inputs.ok_or_else(|| misfit(own, tr!("cannot come so early")))?;
            let new = edited.add(own, own.op.clone(), &inputs, false)?;
            edited.moved_to(new, own)?;
        }
        Ok(edited.program)
    }

    fn at(&self, place: usize) -> Result<&Step<()>> {
        self.steps().get(place).ok_or_else(|| absent(Name::X))
    }
}

fn absent(name: Name) -> Error {
    Error::tensor(name.as_str(), "is not there to be edited", "edit a step that there is")
}

/// A program that is being edited.
struct Edited {
    program: Program,
    /// Where the steps of the program before stand now.
    moved: Vec<usize>,
}

impl Edited {
    fn keep(&mut self, step: &Step<()>) -> Result<()> {
        let inputs = self.moved_inputs(step);
        let at = self.add(step, step.op.clone(), &inputs, step.is_inserted)?;
        self.moved_to(at, step)
    }

    /// The step stands there now; if it is computed, with the axes that it had. Of keys there may be more or fewer, as kernels
    /// take their number from elsewhere.
    fn moved_to(&mut self, at: usize, step: &Step<()>) -> Result<()> {
        let without_keys = |axes: &Axes| {
            let dims =
                axes.iter().map(|(axis, size)| (axis, if axis == Axis::Key { 0 } else { size }));
            dims.collect::<Vec<_>>()
        };
        let new = self.program.steps().get(at);
        let has_other_axes =
            new.is_none_or(|new| without_keys(&new.axes) != without_keys(&step.axes));
        if has_other_axes && step.name.role() == Role::Computed {
            return Err(misfit(step, tr!("would have other axes")));
        }
        self.moved.push(at);
        Ok(())
    }

    fn moved_inputs(&self, step: &Step<()>) -> Vec<usize> {
        step.inputs.iter().filter_map(|at| self.moved.get(*at).copied()).collect()
    }

    fn change(&mut self, step: &Step<()>, change: &Change) -> Result<()> {
        let at = self.changed(step, change, false)?;
        self.moved_to(at, step)
    }

    /// Adds what the change makes of a step.
    fn changed(&mut self, step: &Step<()>, change: &Change, is_inserted: bool) -> Result<usize> {
        let mut inputs = self.moved_inputs(step);
        let op = step.op.clone();
        let (op, inputs) = match change {
            Change::Replace(op) => (op.clone(), inputs),
            Change::Omit => {
                inputs.truncate(1);
                (Heads::HandOn.into(), inputs)
            }
            Change::Read(names) => (op, self.relabelled(step, names)?),
            Change::Become(op, names) => self.became(step, op, names)?,
            Change::Before(slot, made, names) | Change::Feed(slot, made, names) => {
                let misread = || misfit(step, tr!("reads no such step"));
                let input = inputs.get_mut(*slot).ok_or_else(misread)?;
                let own = matches!(change, Change::Before(..)).then_some(*input);
                let read: Vec<usize> = own.into_iter().chain(self.positions(names)?).collect();
                *input = self.add(step, made.clone(), &read, true)?;
                (op, inputs)
            }
            Change::After(after, beside) => {
                let own = self.add(step, op, &inputs, false)?;
                (after.clone(), [vec![own], self.positions(beside)?].concat())
            }
            Change::Confined(change, axis, places) => {
                let right = self.add(step, op, &inputs, true)?;
                let wrong = self.changed(step, change, true)?;
                (Slip::Only { axis: *axis, places: places.clone() }.into(), vec![right, wrong])
            }
            Change::Exchange | Change::Apart(_) => {
                return Err(misfit(step, tr!("is not exchanged so")));
            }
        };
        self.add(step, op, &inputs, is_inserted || matches!(change, Change::After(..)))
    }

    /// The positions of steps that a step reads in place of its own; one of the same shape passes for the one it stands
    /// for, whatever its axes are called.
    fn relabelled(&mut self, step: &Step<()>, names: &[Name]) -> Result<Vec<usize>> {
        let own = self.moved_inputs(step);
        let mut inputs = self.positions(names)?;
        for (input, own) in inputs.iter_mut().zip(own) {
            let axes = |at: usize| self.program.steps().get(at).map(|step| step.axes.clone());
            let (Some(new), Some(right)) = (axes(*input), axes(own)) else { continue };
            if new != right && new.shape() == right.shape() {
                let relabelled = Heads::Rearrange(Rearrange::relabelled(&right));
                *input = self.add(step, relabelled.into(), &[*input], true)?;
            }
        }
        Ok(inputs)
    }

    /// Another operation on other inputs; what has the shape of the step passes for it, whatever its axes are called.
    fn became(&mut self, step: &Step<()>, op: &Op, names: &[Name]) -> Result<(Op, Vec<usize>)> {
        let inputs = self.positions(names)?;
        let read = inputs.iter().filter_map(|at| Some(&self.program.steps().get(*at)?.axes));
        let axes = op.axes(&read.collect::<Vec<_>>())?;
        if axes == step.axes || axes.shape() != step.axes.shape() {
            return Ok((op.clone(), inputs));
        }
        let made = self.add(step, op.clone(), &inputs, true)?;
        Ok((Heads::Rearrange(Rearrange::relabelled(&step.axes)).into(), vec![made]))
    }

    fn add(
        &mut self,
        step: &Step<()>,
        op: Op,
        inputs: &[usize],
        is_inserted: bool,
    ) -> Result<usize> {
        let at = if op == Op::Given {
            self.program.given(step.name, step.axes.clone())
        } else {
            self.program.then(step.name, op, inputs)?
        };
        if let Some(added) = self.program.last_mut() {
            added.is_inserted = is_inserted;
        }
        Ok(at)
    }

    fn positions(&self, names: &[Name]) -> Result<Vec<usize>> {
        let find = |name: &Name| {
            let missing = || Error::tensor(*name, "does not come before", "read an earlier step");
            self.program.position(*name).ok_or_else(missing)
        };
        names.iter().map(find).collect()
    }
}

fn misfit(step: &Step<()>, what: &str) -> Error {
    Error::tensor(step.name, what, "make an edit that keeps every shape")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Axes, Axis, EmptyRow, Scaling, Weighting};

    fn program() -> Program {
        let mut program = Program::default();
        let axes = [(Axis::Batch, 2), (Axis::Head, 3), (Axis::Query, 5), (Axis::Key, 5)];
        let raw = program.given(Name::ScoresRaw, Axes::new(axes));
        let scores = program
            .then(Name::Scores, Scaling::Root { head_dim: 4, terms: 1 }, &[raw])
            .expect("fits");
        program.then(Name::Weights, Weighting::softmax(EmptyRow::Nan), &[scores]).expect("fits");
        program
    }

    fn formulas(edits: &[Edit]) -> Vec<String> {
        let program = program().edited(edits).expect("fits");
        let told = |step: &Step<()>| format!("{} = {}", step.name, program.formula(step));
        program.steps().iter().map(told).collect()
    }

    #[test]
    fn two_edits_meet_at_one_step() {
        let twice =
            Edit::new(Name::Scores, Change::After(Scaling::By { factor: 0.5 }.into(), vec![]));
        let other = Edit::new(Name::Scores, Change::Replace(Scaling::By { factor: 3.0 }.into()));
        let wanted = [
            "scores_raw = given",
            "scores = scores_raw · 3",
            "scores = scores · 0.5",
            "weights = softmax(scores) over keys",
        ];
        assert_eq!(formulas(&[twice.clone(), other.clone()]), wanted);
        assert_eq!(formulas(&[other, twice]), wanted);
    }

    #[test]
    fn what_is_left_out_hands_on_what_it_reads() {
        let left_out = formulas(&[Edit::new(Name::Scores, Change::Omit)]);
        assert_eq!(left_out[1..], ["scores = scores_raw", "weights = softmax(scores) over keys"]);
    }

    #[test]
    fn an_edit_keeps_shapes_and_order() {
        let refused = |edit| program().edited(&[edit]).expect_err("must be refused").to_string();
        let later = Edit::new(Name::Scores, Change::Read(vec![Name::Weights]));
        assert_eq!(refused(later), "weights: does not come before");
        let absent = Edit::new(Name::Output, Change::Omit);
        assert_eq!(refused(absent), "output: is not there to be edited");
    }
}
