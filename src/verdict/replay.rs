//! Running a recorded run again with mistakes in it.

use std::collections::{HashMap, HashSet};

use candle_core::Tensor;

use super::evidence::Evidence;
use super::mutation::{Mutation, Site};
use super::noise::Noise;
use crate::config::Config;
use crate::error::Result;
use crate::trace::{Axes, Axis, Given, Op, Program, Step, Trace};

/// A recorded run, or one item of its batch, that is run again with mistakes in it.
pub struct Replay<'a> {
    config: Config,
    trace: Trace,
    /// The computed values that were recorded.
    recorded: HashMap<String, Tensor>,
    /// The steps that are wrong for a reason of their own: the others are to follow from what was recorded there.
    settled: &'a HashSet<String>,
    noise: &'a Noise,
}

/// A run with mistakes, as far as it agrees with what was recorded.
pub struct Outcome {
    values: HashMap<String, Tensor>,
    made: Vec<(&'static Mutation, usize)>,
    /// The positions of the recorded steps that disagree. A run with mistakes ends at the first of them.
    disagrees: Vec<usize>,
}

impl Outcome {
    /// Whether every step is as it was recorded.
    pub fn fits(&self) -> bool {
        self.disagrees.is_empty()
    }
}

impl<'a> Replay<'a> {
    /// The whole run of the evidence.
    pub fn new(evidence: &'a Evidence, settled: &'a HashSet<String>) -> Self {
        let computed = evidence.trace.steps().iter().filter(|step| step.op != Op::Given);
        let recorded = computed.filter_map(|step| {
            Some((step.name.clone(), evidence.recorded.get(&step.name)?.clone()))
        });
        Self {
            config: evidence.config.clone(),
            trace: evidence.trace.clone(),
            recorded: recorded.collect(),
            settled,
            noise: &evidence.noise,
        }
    }

    /// One item of the batch, computed anew. But for mistakes that mix the items of a batch it is to its own
    /// recorded numbers what the whole run is to all.
    ///
    /// # Errors
    /// If candle fails.
    pub fn item(&self, item: usize) -> Result<Self> {
        let mut program = Program::default();
        let (mut given, mut recorded) = (Given::new(), HashMap::new());
        for step in self.trace.steps() {
            if step.op == Op::Given {
                let value = of_item(step, &step.value, item)?;
                let sizes = step.axes.iter().zip(value.dims());
                let axes: Vec<(Axis, usize)> =
                    sizes.map(|((axis, _), size)| (axis, *size)).collect();
                program.given(&step.name, Axes::new(axes));
                given.insert(step.name.clone(), value);
            } else {
                program.then(&step.name, step.op, &step.inputs)?;
            }
            if let Some(found) = self.recorded.get(&step.name) {
                recorded.insert(step.name.clone(), of_item(step, found, item)?);
            }
        }
        let config = Config {
            batch: 1,
            key_mask: self.config.key_mask.as_deref().map(|rows| only(rows, item)),
            lengths: self.config.lengths.as_deref().map(|lengths| only(lengths, item)),
            ..self.config.clone()
        };
        let (settled, noise) = (self.settled, self.noise);
        Ok(Self { config, trace: program.run(&given)?, recorded, settled, noise })
    }

    /// The number of items in the batch.
    pub fn batch(&self) -> usize {
        self.config.batch
    }

    /// The run without a mistake but for what the settled steps have recorded, to its end.
    ///
    /// # Errors
    /// If candle fails.
    pub fn right(&self) -> Result<Outcome> {
        self.go(None, Vec::new(), 0, None)
    }

    /// The values that a mistake, made in `base` too, has at its first step: several where it has variants, none
    /// where it changes nothing in this run or cannot be made beside what is made in `base` already. Two mistakes
    /// are made in the order of their first steps, which differ, as do all others of their steps.
    ///
    /// # Errors
    /// If candle fails.
    pub fn variants(&self, base: &Outcome, mutation: &Mutation) -> Result<Vec<Tensor>> {
        let Some((first, step)) = self.first_step(mutation) else { return Ok(Vec::new()) };
        let made_later = base
            .made
            .iter()
            .any(|(made, _)| self.first_step(made).is_some_and(|(at, _)| at > first));
        let shares = base.made.iter().any(|(made, _)| made.shares_a_step(mutation));
        // What disagrees before the mistake is made stays as it is.
        let too_late = base.disagrees.first().is_some_and(|at| *at < first);
        if made_later || shares || too_late || self.settled.contains(&step.name) {
            return Ok(Vec::new());
        }
        let Some(inputs) = self.inputs(step, &base.values) else { return Ok(Vec::new()) };
        mutation.values(&self.site(step, inputs, &base.values))
    }

    /// The run of `base` with one more mistake, whose value at its first step is this variant.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with(
        &self,
        base: &Outcome,
        mutation: &'static Mutation,
        (variant, value): (usize, Tensor),
    ) -> Result<Outcome> {
        let made = base.made.iter().copied().chain([(mutation, variant)]).collect();
        let first = self.first_step(mutation).map_or(0, |(at, _)| at);
        self.go(Some(base), made, first, Some(value))
    }

    /// The step at which a mistake is made first.
    pub fn first_step(&self, mutation: &Mutation) -> Option<(usize, &Step)> {
        let mut steps = self.trace.steps().iter().enumerate();
        steps.find(|(_, step)| mutation.is_at(step))
    }

    /// Whether a run that fits owes it to a mistake that `without` lacks: where that one disagrees with what was
    /// recorded, the two are apart.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_apart(&self, fitting: &Outcome, without: &Outcome) -> Result<bool> {
        let at = without.disagrees.first().and_then(|at| self.trace.steps().get(*at));
        let Some(step) = at else { return Ok(false) };
        match (fitting.values.get(&step.name), without.values.get(&step.name)) {
            (Some(left), Some(right)) => Ok(!self.noise.agree(&step.name, left, right)?),
            _ => Ok(false),
        }
    }

    /// The recorded steps that disagree with a run, in order of execution, beside their recorded values and the
    /// run's.
    pub fn disagreeing<'v>(
        &'v self,
        run: &'v Outcome,
    ) -> impl Iterator<Item = (&'v Step, &'v Tensor, &'v Tensor)> {
        let steps = run.disagrees.iter().filter_map(|at| self.trace.steps().get(*at));
        steps.filter_map(|step| {
            Some((step, self.recorded.get(&step.name)?, run.values.get(&step.name)?))
        })
    }

    /// Runs from step `first` on, whose value is `value`; what no mistake reaches is as in `base`.
    fn go(
        &self,
        base: Option<&Outcome>,
        made: Vec<(&'static Mutation, usize)>,
        first: usize,
        mut value: Option<Tensor>,
    ) -> Result<Outcome> {
        let mut run = Outcome { values: HashMap::new(), made, disagrees: Vec::new() };
        let mut changed: Vec<bool> = Vec::with_capacity(self.trace.steps().len());
        for (at, step) in self.trace.steps().iter().enumerate() {
            let known = match base {
                Some(base) if step.op != Op::Given => base.values.get(&step.name),
                _ => Some(&step.value),
            };
            let settled =
                self.recorded.get(&step.name).filter(|_| self.settled.contains(&step.name));
            let reads_changed =
                step.inputs.iter().any(|read| changed.get(*read).copied().unwrap_or(false));
            let is_site = run.made.last().is_some_and(|(made, _)| made.is_at(step));
            let (now, is_new) = match (settled, known, value.take_if(|_| at == first)) {
                (Some(settled), ..) => (settled.clone(), base.is_none()),
                (None, _, Some(value)) => (value, true),
                (None, Some(known), None) if !reads_changed && !is_site => (known.clone(), false),
                _ => (self.compute(step, &run)?, true),
            };
            if settled.is_none()
                && let Some(found) = self.recorded.get(&step.name)
            {
                let agrees = match base {
                    Some(base) if !is_new => !base.disagrees.contains(&at),
                    _ => self.noise.agree(&step.name, found, &now)?,
                };
                if !agrees {
                    run.disagrees.push(at);
                }
            }
            changed.push(is_new);
            run.values.insert(step.name.clone(), now);
            if base.is_some() && !run.fits() {
                break;
            }
        }
        Ok(run)
    }

    /// The step's value from those of the run, with the mistakes that are made at it.
    fn compute(&self, step: &Step, run: &Outcome) -> Result<Tensor> {
        let Some(inputs) = self.inputs(step, &run.values) else { return Ok(step.value.clone()) };
        let site = self.site(step, inputs, &run.values);
        for (mutation, variant) in &run.made {
            if mutation.is_at(step)
                && let Some(value) = mutation.values(&site)?.into_iter().nth(*variant)
            {
                return Ok(value);
            }
        }
        site.correct()
    }

    fn site<'s>(
        &'s self,
        step: &'s Step,
        inputs: Vec<&'s Tensor>,
        values: &'s HashMap<String, Tensor>,
    ) -> Site<'s> {
        Site { config: &self.config, step, inputs, found: None, values }
    }

    fn inputs<'v>(
        &self,
        step: &Step,
        values: &'v HashMap<String, Tensor>,
    ) -> Option<Vec<&'v Tensor>> {
        self.trace.read_by(step).iter().map(|read| values.get(&read.name)).collect()
    }
}

/// The part of a step's value that belongs to one item of the batch: all of it where the items share it.
fn of_item(step: &Step, value: &Tensor, item: usize) -> Result<Tensor> {
    Ok(match step.axes.iter().next() {
        Some((Axis::Batch, size)) if size > 1 => value.narrow(0, item, 1)?.contiguous()?,
        _ => value.clone(),
    })
}

fn only<T: Clone>(items: &[T], item: usize) -> Vec<T> {
    items.get(item).cloned().into_iter().collect()
}
