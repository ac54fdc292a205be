//! Running a recorded run again with mistakes in it.

use std::collections::{HashMap, HashSet};

use candle_core::Tensor;

use super::catalogue::Situation;
use super::hypothesis::{Hypothesis, hypotheses};
use super::noise::Noise;
use crate::config::Config;
use crate::error::{Error, Result};
use crate::program::{Axes, Axis, Dim, Name, Op, Program, Role, Step, Trace};

/// A recorded run, or one item of its batch, that is run again with mistakes in it.
pub struct Replay<'a> {
    config: Config,
    trace: Trace,
    /// The computed values that were recorded.
    recorded: HashMap<Name, Tensor>,
    /// The steps that are wrong for a reason of their own: the others are to follow from what was recorded there.
    settled: &'a HashSet<Name>,
    noise: &'a Noise,
}

/// A run with mistakes, as far as it agrees with what was recorded.
pub struct Outcome {
    /// The values of the steps, several where edits put more than one in a step's place.
    values: HashMap<(Name, usize), Tensor>,
    /// The computed steps that disagree with what was recorded, in order. A run with mistakes ends at the first of them.
    disagrees: Vec<Name>,
}

impl Outcome {
    /// The value of a step.
    pub fn value(&self, name: Name) -> Option<&Tensor> {
        (0..).map_while(|at| self.values.get(&(name, at))).last()
    }

    /// Whether every step is as it was recorded.
    pub fn fits(&self) -> bool {
        self.disagrees.is_empty()
    }
}

/// Why a run with mistakes ends.
enum Stop {
    /// A step disagrees.
    Disagrees,
    /// It cannot go on.
    Fails(Error),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Fails(error)
    }
}

impl<'a> Replay<'a> {
    /// The whole run.
    pub fn new(
        config: &Config,
        trace: &Trace,
        recorded: &HashMap<Name, Tensor>,
        settled: &'a HashSet<Name>,
        noise: &'a Noise,
    ) -> Self {
        let is_computed = |(name, _): &(&Name, &Tensor)| name.role() == Role::Computed;
        let computed = recorded.iter().filter(is_computed);
        Self {
            config: config.clone(),
            trace: trace.clone(),
            recorded: computed.map(|(name, value)| (*name, value.clone())).collect(),
            settled,
            noise,
        }
    }

    /// One item of the batch, computed anew. But for mistakes that mix the items of a batch it is to its own
    /// recorded numbers what the whole run is to all.
    ///
    /// # Errors
    /// If candle fails.
    pub fn item(&self, item: usize) -> Result<Self> {
        let mut program = Program::default();
        for step in self.trace.steps() {
            if step.op == Op::Given {
                let value = of_item(step, &step.value, item)?;
                let sizes = step.axes.iter().zip(value.dims());
                let axes: Vec<Dim> = sizes.map(|((axis, _), size)| (axis, *size)).collect();
                program.given(step.name, Axes::new(axes));
            } else {
                let op = step.op.operation().of_item(item).unwrap_or_else(|| step.op.clone());
                program.then(step.name, op, &step.inputs)?;
            }
        }
        let mut positions = self.trace.steps().iter();
        let trace = program.run_with(|step, inputs| {
            let whole = positions.next();
            match whole.filter(|whole| whole.name.is_given()) {
                Some(whole) => of_item(whole, &whole.value, item),
                None => step.op.eval(inputs),
            }
        })?;
        let mut recorded = HashMap::new();
        for (name, found) in &self.recorded {
            if let Some(step) = self.trace.step(*name) {
                recorded.insert(*name, of_item(step, found, item)?);
            }
        }
        let mut config = self.config.clone();
        config.sizes.batch = 1;
        Ok(Self { config, trace, recorded, settled: self.settled, noise: self.noise })
    }

    /// The number of items in the batch.
    pub fn batch(&self) -> usize {
        self.config.sizes.batch
    }

    /// Where a step stands in the run.
    pub fn position(&self, name: Option<Name>) -> Option<usize> {
        self.trace.position(name?)
    }

    /// Every known mistake that can be made in this run, the simplest first.
    ///
    /// # Errors
    /// If candle fails.
    pub fn hypotheses(&self) -> Result<Vec<Hypothesis>> {
        hypotheses(&Situation { config: &self.config, right: &self.trace, recorded: None })
    }

    /// The run without a mistake but for what the settled steps have recorded, to its end.
    ///
    /// # Errors
    /// If candle fails.
    pub fn right(&self) -> Result<Outcome> {
        self.go(&self.trace.unrun(), None, &[])
    }

    /// The run of `base` with one more mistake, which the program has in it; nothing where it comes too late to change
    /// anything: what disagrees before it is made stays as it is.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with(
        &self,
        base: &Outcome,
        made: &Hypothesis,
        program: &Program,
    ) -> Result<Option<Outcome>> {
        let Some(first) = made.first_site() else { return Ok(None) };
        let at = |name: Name| self.trace.position(name);
        let is_too_late =
            base.disagrees.first().is_some_and(|disagrees| at(*disagrees) < at(first));
        if is_too_late || self.settled.contains(&first) {
            return Ok(None);
        }
        let edited: Vec<Name> = made.edits.iter().map(|edit| edit.at).collect();
        self.go(program, Some(base), &edited).map(Some)
    }

    /// Whether a run that fits owes it to a mistake that `without` lacks: where that one disagrees with what was
    /// recorded, the two are apart.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_apart(&self, fitting: &Outcome, without: &Outcome) -> Result<bool> {
        let Some(name) = without.disagrees.first() else { return Ok(false) };
        match (fitting.value(*name), without.value(*name)) {
            (Some(left), Some(right)) => Ok(!self.noise.agree(*name, left, right)?),
            _ => Ok(false),
        }
    }

    /// The recorded steps that disagree with a run, in order of execution, beside their recorded values and the
    /// run's.
    pub fn disagreeing<'v>(
        &'v self,
        run: &'v Outcome,
    ) -> impl Iterator<Item = (Name, &'v Tensor, &'v Tensor)> {
        let found = |name: &Name| Some((*name, self.recorded.get(name)?, run.value(*name)?));
        run.disagrees.iter().filter_map(found)
    }

    /// Runs a program; what no edit reaches is as in `base`, if there is one.
    fn go(&self, program: &Program, base: Option<&Outcome>, edited: &[Name]) -> Result<Outcome> {
        let mut run = Outcome { values: HashMap::new(), disagrees: Vec::new() };
        let places = places(program);
        let mut at = 0;
        let went = program.run_with(|step, inputs: &[&(Tensor, bool)]| {
            let (place, is_last) = places[at];
            at += 1;
            let is_settled = is_last && self.settled.contains(&step.name);
            let settled = self.recorded.get(&step.name).filter(|_| is_settled);
            let is_reached =
                edited.contains(&step.name) || inputs.iter().any(|(_, is_changed)| *is_changed);
            let known = match base {
                Some(base) => base.values.get(&place),
                None => self.trace.step(step.name).map(|step| &step.value),
            };
            let (value, is_changed) = match (settled, known) {
                (Some(settled), _) => (settled.clone(), base.is_none()),
                (None, Some(known)) if !is_reached => (known.clone(), false),
                _ => (self.compute(step, inputs)?, true),
            };
            run.values.insert(place, value.clone());
            if is_last && !is_settled {
                self.compare(step.name, &value, is_changed, base, &mut run.disagrees)?;
            }
            if base.is_some() && !run.disagrees.is_empty() {
                return Err(Stop::Disagrees);
            }
            Ok((value, is_changed))
        });
        match went {
            Ok(_) | Err(Stop::Disagrees) => Ok(run),
            Err(Stop::Fails(error)) => Err(error),
        }
    }

    fn compute(&self, step: &Step<()>, inputs: &[&(Tensor, bool)]) -> Result<Tensor> {
        match self.trace.step(step.name) {
            Some(given) if step.op == Op::Given => Ok(given.value.clone()),
            Some(_) | None => {
                step.op.eval(&inputs.iter().map(|(value, _)| value).collect::<Vec<_>>())
            }
        }
    }

    /// Notes a computed step that is not as it was recorded.
    fn compare(
        &self,
        name: Name,
        value: &Tensor,
        is_changed: bool,
        base: Option<&Outcome>,
        disagrees: &mut Vec<Name>,
    ) -> Result<()> {
        let Some(found) = self.recorded.get(&name) else { return Ok(()) };
        let agrees = match base {
            Some(base) if !is_changed => !base.disagrees.contains(&name),
            _ => self.noise.agree(name, found, value)?,
        };
        if !agrees {
            disagrees.push(name);
        }
        Ok(())
    }
}

/// Of every step of a program, which one of its name it is, and whether it is the last, whose value is the name's.
fn places(program: &Program) -> Vec<((Name, usize), bool)> {
    let mut counts: HashMap<Name, usize> = HashMap::new();
    let mut place = |step: &Step<()>| {
        let count = counts.entry(step.name).or_default();
        *count += 1;
        (step.name, *count - 1)
    };
    let places: Vec<(Name, usize)> = program.steps().iter().map(&mut place).collect();
    let is_last = |(name, at): &(Name, usize)| counts.get(name) == Some(&(at + 1));
    places.into_iter().map(|place| (place, is_last(&place))).collect()
}

/// The part of a step's value that belongs to one item of the batch: all of it where the items share it.
fn of_item(step: &Step, value: &Tensor, item: usize) -> Result<Tensor> {
    Ok(match step.axes.iter().next() {
        Some((Axis::Batch, size)) if size > 1 => value.narrow(0, item, 1)?.contiguous()?,
        _ => value.clone(),
    })
}
