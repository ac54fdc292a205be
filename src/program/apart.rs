//! What if some steps are computed from other numbers than the rest of the run? A backward pass that computes anew what
//! the forward pass had, or one of two kernels, does that.

use std::collections::HashMap;

use super::edit::{Apart, Edit};
use super::graph::{Program, Step};
use super::name::Name;
use super::op::Op;
use super::ops::{Heads, Masking, Slip, Weighting};
use base::error::{Error, Result};

impl Program {
    /// The program as kernels compute its backward pass: the weights are exp(s − lse), and what a mask blocks is 0 by that
    /// alone.
    ///
    /// # Errors
    /// If steps do not fit.
    pub fn by_lse(&self) -> Result<Self> {
        self.rebuilt(|kernel, step, inputs| {
            let lse = kernel.position(Name::Lse).filter(|_| step.name == Name::Lse);
            match (&step.op, lse, inputs) {
                (_, Some(lse), _) => Ok(lse),
                (Op::Weighting(Weighting::Softmax { .. }), _, [scores, ..])
                    if step.name == Name::Weights =>
                {
                    let lse = kernel.then(Name::Lse, Weighting::LogSumExp, inputs)?;
                    kernel.then(step.name, Slip::Anew { factor: 1.0 }, &[*scores, lse])
                }
                (Op::Masking(Masking::Fill { .. }), _, [read, _])
                    if step.name != Name::MaskedScores =>
                {
                    kernel.then(step.name, Heads::HandOn, &[*read])
                }
                _ => kernel.copied(step, inputs),
            }
        })
    }

    /// The program with these edits made for some steps alone.
    pub(super) fn apart(&self, apart: &Apart) -> Result<Self> {
        let right = self.by_lse()?;
        let made = |program: Self, edit: &Edit| program.edited_once(&[edit]);
        let other = apart.edits.iter().try_fold(right.clone(), made)?;
        // What stays needs a place among the steps that stay.
        let own = if self.position(Name::Lse).is_some() { self.clone() } else { self.with_lse()? };
        let twins = twins(&own, (&right, &other), &apart.kept);
        let mut joined = Joined::new(apart, own, other, twins);
        for at in 0..joined.own.steps().len() {
            let place = joined.place_of(at)?;
            joined.moved.push(place);
        }
        Ok(joined.program)
    }

    /// The program with the log-sum-exp of what softmax reads.
    fn with_lse(&self) -> Result<Self> {
        self.rebuilt(|with, step, inputs| {
            let is_softmax = matches!(step.op, Op::Weighting(Weighting::Softmax { .. }));
            if step.name == Name::Weights && is_softmax {
                with.then(Name::Lse, Weighting::LogSumExp, inputs)?;
            }
            with.copied(step, inputs)
        })
    }

    /// The program laid out anew, step by step: `place` adds a step, with the places of what it reads now, and returns its own.
    fn rebuilt(
        &self,
        mut place: impl FnMut(&mut Self, &Step<()>, &[usize]) -> Result<usize>,
    ) -> Result<Self> {
        let (mut made, mut moved): (Self, Vec<usize>) = Default::default();
        for step in self.steps() {
            let inputs: Vec<usize> =
                step.inputs.iter().filter_map(|at| moved.get(*at)).copied().collect();
            moved.push(place(&mut made, step, &inputs)?);
        }
        Ok(made)
    }

    /// Adds a step as it is in another program, and returns its place.
    fn copied(&mut self, step: &Step<()>, inputs: &[usize]) -> Result<usize> {
        match &step.op {
            Op::Given => Ok(self.given(step.name, step.axes.clone())),
            op => self.then(step.name, op.clone(), inputs),
        }
    }

    /// The place of a step by its name, and by how many of that name stand before it.
    fn nth(&self, name: Name, nth: usize) -> Option<usize> {
        let places = self.steps().iter().enumerate().filter(|(_, step)| step.name == name);
        places.map(|(at, _)| at).nth(nth)
    }
}

/// For every step of an edited program where the step stands that it is in the right one, if nothing that it follows from
/// was edited, or if it is kept.
fn twins(own: &Program, (right, other): (&Program, &Program), kept: &[Name]) -> Vec<Option<usize>> {
    let mut counts: HashMap<Name, usize> = HashMap::new();
    // Where it stands in the right program as kernels have it, and in its own.
    let mut twins: Vec<Option<(usize, usize)>> = Vec::with_capacity(other.steps().len());
    for step in other.steps() {
        let mut find = || {
            let count = counts.entry(step.name).or_default();
            *count += 1;
            right.nth(step.name, *count - 1).zip(own.nth(step.name, *count - 1))
        };
        let twin = if step.is_inserted { None } else { find() };
        let is_same = |(at, _): &(usize, usize)| {
            let read =
                step.inputs.iter().map(|at| twins.get(*at).copied().flatten().map(|(at, _)| at));
            let meant = right.steps().get(*at);
            meant.is_some_and(|meant| {
                meant.op == step.op && read.eq(meant.inputs.iter().copied().map(Some))
            })
        };
        twins.push(twin.filter(|twin| kept.contains(&step.name) || is_same(twin)));
    }
    twins.into_iter().map(|twin| twin.map(|(_, own)| own)).collect()
}

/// A program in which some steps come from another one.
struct Joined<'a> {
    apart: &'a Apart,
    own: Program,
    other: Program,
    twins: Vec<Option<usize>>,
    program: Program,
    /// Where the program's own steps stand now.
    moved: Vec<usize>,
    /// Which of them come from the other one, or follow from such.
    changed: Vec<bool>,
    /// Where those stand as they were before, as far as something needs them.
    originals: HashMap<usize, usize>,
    /// Where those of the other one stand.
    made: HashMap<usize, usize>,
}

impl<'a> Joined<'a> {
    fn new(apart: &'a Apart, own: Program, other: Program, twins: Vec<Option<usize>>) -> Self {
        let (program, moved, changed) = (Program::default(), Vec::new(), Vec::new());
        let (originals, made) = (HashMap::new(), HashMap::new());
        Self { apart, own, other, twins, program, moved, changed, originals, made }
    }

    /// Adds a step of the program, as it is or as the other one has it, and returns its place.
    fn place_of(&mut self, at: usize) -> Result<usize> {
        let Some(step) = self.own.steps().get(at).cloned() else { return Ok(at) };
        let is_kept = self.apart.kept.contains(&step.name);
        let follows = step.inputs.iter().any(|at| self.changed.get(*at) == Some(&true));
        let is_other =
            self.apart.by.contains(&step.name) && self.own.position(step.name) == Some(at);
        self.changed.push(is_other || follows && !is_kept);
        if is_other {
            return self.other(&step);
        }
        let inputs: Vec<usize> = if is_kept {
            step.inputs.iter().map(|at| self.original(*at)).collect::<Result<_>>()?
        } else {
            step.inputs.iter().filter_map(|at| self.moved.get(*at)).copied().collect()
        };
        self.program.copied(&step, &inputs)
    }

    /// Where a step stands that follows from nothing of the other program.
    fn original(&mut self, at: usize) -> Result<usize> {
        let is_changed = self.changed.get(at) == Some(&true);
        let known = if is_changed { self.originals.get(&at) } else { self.moved.get(at) };
        if let Some(place) = known {
            return Ok(*place);
        }
        let Some(step) = self.own.steps().get(at).cloned() else { return Ok(at) };
        let inputs = step.inputs.iter().map(|at| self.original(*at)).collect::<Result<Vec<_>>>()?;
        let place = self.program.then(Name::Within, step.op, &inputs)?;
        self.program.last_mut().into_iter().for_each(|added| added.is_inserted = true);
        self.originals.insert(at, place);
        Ok(place)
    }

    /// The step of that name as the other program has it.
    fn other(&mut self, step: &Step<()>) -> Result<usize> {
        let at = self.other.position(step.name).ok_or_else(|| misfit(step))?;
        let place = self.bring(at)?;
        let has_axes = self.program.steps().get(place).is_some_and(|made| made.axes == step.axes);
        if has_axes { Ok(place) } else { Err(misfit(step)) }
    }

    /// Brings a step of the other program, and what it reads, unless that is in the program.
    fn bring(&mut self, at: usize) -> Result<usize> {
        let twin = self.twins.get(at).copied().flatten().and_then(|own| self.moved.get(own));
        if let Some(place) = twin.or_else(|| self.made.get(&at)) {
            return Ok(*place);
        }
        let Some(step) = self.other.steps().get(at).cloned() else { return Ok(at) };
        let inputs = step.inputs.iter().map(|at| self.bring(*at)).collect::<Result<Vec<_>>>()?;
        let is_own = self.apart.by.contains(&step.name);
        let name = if is_own { step.name } else { Name::Within };
        let place = self.program.then(name, step.op.clone(), &inputs)?;
        let is_inserted = !is_own || step.is_inserted;
        self.program.last_mut().into_iter().for_each(|added| added.is_inserted = is_inserted);
        self.made.insert(at, place);
        Ok(place)
    }
}

fn misfit(step: &Step<()>) -> Error {
    Error::tensor(step.name, tr!("would have other axes"), "make an edit that keeps every shape")
}
