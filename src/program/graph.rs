//! Programs and traces: a trace is a program that has been run.

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::axis::{Axes, Axis};
use super::name::Name;
use super::op::Op;
use super::ops::{PartStage, Parted, Parts};
use super::role::Role;
use base::error::{Error, Result};

/// Tensors by step: what a program is given from outside.
pub type Given = HashMap<Name, Tensor>;

/// One step: an operation, the earlier steps it reads, and (in a trace) its value.
#[derive(Debug, Clone)]
pub struct Step<V = Tensor> {
    /// The name. In an edited program several steps can have it, of which the last is the one that is meant.
    pub name: Name,
    /// The operation.
    pub op: Op,
    /// The positions of the steps that it reads, all before its own.
    pub inputs: Vec<usize>,
    /// The axes of its value.
    pub axes: Axes,
    /// Whether an edit put it in, beside the step of its name.
    pub is_inserted: bool,
    /// Its value; nothing in a program that has not been run.
    pub value: V,
}

impl<V> Step<V> {
    /// The same step with another value.
    pub(super) fn with<W>(&self, value: W) -> Step<W> {
        Step {
            name: self.name,
            op: self.op.clone(),
            inputs: self.inputs.clone(),
            axes: self.axes.clone(),
            is_inserted: self.is_inserted,
            value,
        }
    }

    /// Whether it has an axis for splits or tiles of the keys.
    pub fn is_of_parts(&self) -> bool {
        matches!(self.axes.iter().next(), Some((Axis::Split | Axis::Tile, _)))
    }

    /// Whether the run computes it from other steps: it is neither given, nor made of the settings.
    pub fn is_computed(&self) -> bool {
        self.name.role() == Role::Computed && self.op != Op::Given
    }

    /// Bytes of the step's value when it is computed in `dtype`; booleans take a byte each.
    pub fn bytes(&self, dtype: DType) -> u128 {
        let size = if self.name.row().is_boolean { 1 } else { dtype.size_in_bytes() };
        self.axes.count().saturating_mul(size as u128)
    }
}

/// Steps in order of execution.
#[derive(Debug, Clone)]
pub struct Program<V = ()> {
    steps: Vec<Step<V>>,
}

impl<V> Default for Program<V> {
    fn default() -> Self {
        Self { steps: Vec::new() }
    }
}

/// A program that has been run: every step with its value.
pub type Trace = Program<Tensor>;

impl<V> Program<V> {
    /// The steps in order of execution.
    pub fn steps(&self) -> &[Step<V>] {
        &self.steps
    }

    /// The steps that are shown and written: all but those that stand for a part of another.
    pub fn outer(&self) -> impl Iterator<Item = &Step<V>> {
        self.steps.iter().filter(|step| !step.name.row().is_inner)
    }

    /// The position of the step of that name.
    pub fn position(&self, name: Name) -> Option<usize> {
        self.steps.iter().rposition(|step| step.name == name)
    }

    /// The step of that name.
    pub fn step(&self, name: Name) -> Option<&Step<V>> {
        self.steps.iter().rev().find(|step| step.name == name)
    }

    /// The splits or tiles of the keys that attention goes through, if it does.
    pub fn parts(&self) -> Option<&Parts> {
        let mut largest = [Name::SplitMax, Name::TileMax].into_iter();
        match &largest.find_map(|name| self.step(name))?.op {
            Op::Parted(Parted { stage: PartStage::Largest(parts), .. }) => Some(parts),
            _ => None,
        }
    }

    /// The boolean mask that scores are masked by: with columns for keys that are added, where there are any.
    pub fn mask_of_scores(&self) -> Option<&Step<V>> {
        self.step(Name::MaskPadded).or_else(|| self.step(Name::Mask))
    }

    /// Whether the run computes the step of that name, from other steps.
    pub fn computes(&self, name: Name) -> bool {
        self.step(name).is_some_and(Step::is_computed)
    }

    /// The steps that `step` reads.
    pub fn read_by(&self, step: &Step<V>) -> Vec<&Step<V>> {
        step.inputs.iter().filter_map(|at| self.steps.get(*at)).collect()
    }

    /// Which steps the step at a position reads, directly or through others.
    pub fn ancestors(&self, at: usize) -> Vec<bool> {
        let mut reached = vec![false; self.steps.len()];
        let mut open = vec![at];
        while let Some(at) = open.pop() {
            for input in self.steps.get(at).into_iter().flat_map(|step| &step.inputs) {
                if let Some(reached) = reached.get_mut(*input)
                    && !std::mem::replace(reached, true)
                {
                    open.push(*input);
                }
            }
        }
        reached
    }

    /// Which steps read one of which this is true, directly or through others.
    pub fn descendants(&self, mut of: impl FnMut(&Step<V>) -> bool) -> Vec<bool> {
        let is_start: Vec<bool> = self.steps.iter().map(&mut of).collect();
        let mut reached: Vec<bool> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let is_changed = |at: &usize| {
                let is = |list: &[bool]| list.get(*at).copied().unwrap_or(false);
                is(&reached) || is(&is_start)
            };
            reached.push(step.inputs.iter().any(is_changed));
        }
        reached
    }

    /// The step at a position and all that it reads, as a program of their own.
    pub fn part(&self, at: usize) -> Program {
        let mut needed = self.ancestors(at);
        needed.get_mut(at).into_iter().for_each(|end| *end = true);
        self.only(&needed)
    }

    /// The steps of these names and all that they read, as a program of their own, to which the steps of `starts` are
    /// given: what these read is needed for the others alone.
    pub fn between(&self, starts: &[Name], ends: &[Name]) -> Program {
        let mut started = self.unrun();
        for start in started.steps.iter_mut().filter(|step| starts.contains(&step.name)) {
            (start.op, start.inputs) = (Op::Given, Vec::new());
        }
        let mut needed = vec![false; self.steps.len()];
        for at in ends.iter().filter_map(|end| started.position(*end)) {
            let read = started.ancestors(at);
            for (place, needed) in needed.iter_mut().enumerate() {
                *needed |= place == at || read.get(place) == Some(&true);
            }
        }
        started.only(&needed)
    }

    /// The steps for which this is true, and all that they read.
    fn only(&self, needed: &[bool]) -> Program {
        let places = (0..self.steps.len()).filter(|at| needed.get(*at) == Some(&true));
        self.unrun().in_order(&places.collect::<Vec<_>>())
    }

    /// Gives every step a value, in order of execution: `value` gets the step and the values of what it reads. This is
    /// how programs are run, replayed and run with changes.
    ///
    /// # Errors
    /// The first that `value` gives.
    pub fn run_with<W, E>(
        &self,
        mut value: impl FnMut(&Step<V>, &[&W]) -> std::result::Result<W, E>,
    ) -> std::result::Result<Program<W>, E> {
        let mut steps: Vec<Step<W>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let read = step.inputs.iter().filter_map(|at| steps.get(*at));
            let value = value(step, &read.map(|read| &read.value).collect::<Vec<_>>())?;
            steps.push(step.with(value));
        }
        Ok(Program { steps })
    }

    /// Steps in another order, given by their positions, in which every step still stands behind what it reads.
    pub(super) fn in_order(&self, order: &[usize]) -> Self
    where
        V: Clone,
    {
        let mut moved = vec![0; self.steps.len()];
        for (to, from) in order.iter().enumerate() {
            if let Some(moved) = moved.get_mut(*from) {
                *moved = to;
            }
        }
        let moved_to = |at: &usize| moved.get(*at).copied().unwrap_or_default();
        let steps = order.iter().filter_map(|at| self.steps.get(*at)).map(|step| Step {
            inputs: step.inputs.iter().map(moved_to).collect(),
            ..step.clone()
        });
        Self { steps: steps.collect() }
    }

    /// The same program without values.
    pub fn unrun(&self) -> Program {
        Program { steps: self.steps.iter().map(|step| step.with(())).collect() }
    }
}

impl Program {
    /// Adds a tensor that comes from outside, and returns its position.
    pub fn given(&mut self, name: Name, axes: Axes) -> usize {
        self.push(name, Op::Given, Vec::new(), axes)
    }

    /// Adds an operation on earlier steps, and returns its position.
    ///
    /// # Errors
    /// If the axes of the inputs do not fit the operation.
    pub fn then(&mut self, name: Name, op: impl Into<Op>, inputs: &[usize]) -> Result<usize> {
        let op = op.into();
        let read = inputs.iter().map(|at| self.steps.get(*at).map(|step| &step.axes));
        let unknown =
            || Error::tensor(name, "reads a step that is not there", "add that step first");
        let read: Vec<&Axes> = read.collect::<Option<_>>().ok_or_else(unknown)?;
        let axes = op.axes(&read)?;
        Ok(self.push(name, op, inputs.to_vec(), axes))
    }

    pub(super) fn push(&mut self, name: Name, op: Op, inputs: Vec<usize>, axes: Axes) -> usize {
        self.steps.push(Step { name, op, inputs, axes, is_inserted: false, value: () });
        self.steps.len() - 1
    }

    /// The steps before a place.
    pub(super) fn before(&self, place: usize) -> Self {
        Self { steps: self.steps.iter().take(place).cloned().collect() }
    }

    pub(super) fn last_mut(&mut self) -> Option<&mut Step<()>> {
        self.steps.last_mut()
    }

    /// Bytes that all values take together.
    pub fn bytes(&self, dtype: DType) -> u128 {
        self.steps.iter().fold(0, |sum, step| sum.saturating_add(step.bytes(dtype)))
    }
}
