//! Running a recorded run again with mistakes in it, whole or a part of it.

use std::collections::{HashMap, HashSet};

use candle_core::Tensor;

use super::blocked_scores::where_seen;
use super::compare::compare;
use super::fit::{gain, is_nearer};
use super::hypothesis::{Hypothesis, sites};
use super::noise::Noise;
use super::tolerance::Tolerance;
use base::error::{Error, Result};
use program::{Name, Op, Part, Program, QueryRows, Role, Step, Trace};

/// A recorded run, or a part of one, that is run again with mistakes in it.
pub struct Replay<'a> {
    trace: Trace,
    /// The computed values that were recorded.
    recorded: HashMap<Name, Tensor>,
    /// The steps that are wrong for a reason of their own: the others are to follow from what was recorded there.
    settled: &'a HashSet<Name>,
    noise: &'a Noise,
}

/// A mistake that can be made in a run, and the program with it.
pub struct Made<'h> {
    pub hypothesis: &'h Hypothesis,
    pub program: Program,
    /// The computed steps that it makes wrong by themselves, in order of execution.
    pub sites: Vec<Name>,
}

impl<'h> Made<'h> {
    /// A mistake in a run; nothing where it cannot be made or changes no step.
    pub fn of(hypothesis: &'h Hypothesis, right: &Trace) -> Option<Self> {
        let program = hypothesis.program(right)?;
        let sites = sites(right, &program);
        (!sites.is_empty()).then_some(Self { hypothesis, program, sites })
    }

    /// The first step that it makes wrong.
    pub fn first_site(&self) -> Name {
        self.sites.first().copied().unwrap_or(Name::Output)
    }
}

/// Which step of its name a step is: edits can put several in one's place.
type Place = (Name, usize);

/// A step of a run with mistakes.
struct Done {
    op: Op,
    read: Vec<Place>,
    value: Tensor,
}

/// A run with mistakes, as far as it agrees with what was recorded.
pub struct Outcome {
    done: HashMap<Place, Done>,
    /// The computed steps that disagree with what was recorded, in order. A run with mistakes ends at the first of them.
    disagrees: Vec<Name>,
}

impl Outcome {
    /// The value of a step.
    pub fn value(&self, name: Name) -> Option<&Tensor> {
        (0..).map_while(|at| self.done.get(&(name, at))).last().map(|done| &done.value)
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
        trace: &Trace,
        recorded: &HashMap<Name, Tensor>,
        settled: &'a HashSet<Name>,
        noise: &'a Noise,
    ) -> Self {
        let is_computed = |(name, _): &(&Name, &Tensor)| trace.computes(**name);
        let computed = recorded.iter().filter(is_computed);
        let recorded = computed.map(|(name, value)| (*name, value.clone())).collect();
        Self { trace: trace.clone(), recorded, settled, noise }
    }

    /// A part of the run, computed anew. But for mistakes that mix it with the rest it is to its own recorded numbers
    /// what the whole run is to all.
    ///
    /// # Errors
    /// If candle fails.
    pub fn narrowed(&self, part: Part) -> Result<Option<Self>> {
        let Some(trace) = narrowed_trace(&self.trace, part)? else { return Ok(None) };
        let recorded = narrowed_values(&self.trace, &self.recorded, part)?;
        Ok(Some(Self { trace, recorded, settled: self.settled, noise: self.noise }))
    }

    /// The run as it should be.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The run without a mistake but for what the settled steps have recorded, to its end.
    ///
    /// # Errors
    /// If candle fails.
    pub fn right(&self) -> Result<Outcome> {
        self.go(&self.trace.unrun(), None)
    }

    /// The run of `base` with one more mistake, first made at `site`, which the program has in it; nothing where it comes
    /// too late to change anything: what disagrees before it is made stays as it is.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with(&self, base: &Outcome, site: Name, program: &Program) -> Result<Option<Outcome>> {
        let at = |name: Name| self.trace.position(name);
        let is_too_late = base.disagrees.first().is_some_and(|disagrees| at(*disagrees) < at(site));
        if is_too_late || self.settled.contains(&site) {
            return Ok(None);
        }
        match self.go(program, Some(base)) {
            Ok(run) => Ok(Some(run)),
            // Code that fails is no mistake that is shipped.
            Err(Error::Compute(_) | Error::Tensor { .. }) => Ok(None),
            Err(error) => Err(error),
        }
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

    /// Whether a run comes much nearer to what was recorded than the one without its mistake. Where rounding is large, runs
    /// that differ from that one by less would fit as well.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_nearer(&self, run: &Outcome, without: &Outcome) -> Result<bool> {
        for (name, found, right) in self.disagreeing(without) {
            let Some(value) = run.value(name) else { continue };
            if !is_nearer(found, value, right)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// How much nearer a run comes to all that was recorded than the one without its mistake.
    ///
    /// # Errors
    /// If candle fails.
    pub fn gain(&self, run: &Outcome, without: &Outcome) -> Result<f64> {
        let mut sum = 0.0;
        for step in self.trace.steps() {
            let found = self.recorded.get(&step.name);
            let values = run.value(step.name).zip(without.value(step.name));
            if let (Some(found), Some((value, right))) = (found, values) {
                sum += gain(found, value, right)?;
            }
        }
        Ok(sum)
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

    /// Runs a program; what is as in `base`, if there is one, or else as it should be, is not computed again.
    fn go(&self, program: &Program, base: Option<&Outcome>) -> Result<Outcome> {
        let mut run = Outcome { done: HashMap::new(), disagrees: Vec::new() };
        let places = places(program);
        let mut at = 0;
        let went = program.run_with(|step, inputs: &[&(Tensor, bool)]| {
            let (place, is_last) = places[at];
            at += 1;
            let read: Vec<Place> = step.inputs.iter().map(|input| places[*input].0).collect();
            let is_settled = is_last && self.settled.contains(&step.name);
            let settled = self.recorded.get(&step.name).filter(|_| is_settled);
            let is_reached = inputs.iter().any(|(_, is_changed)| *is_changed);
            let known = match base {
                Some(base) => {
                    base.done.get(&place).filter(|done| done.op == step.op && done.read == read)
                }
                None => None,
            };
            let known = match base {
                Some(_) => known.map(|done| &done.value),
                None => self.trace.step(step.name).map(|step| &step.value),
            };
            let (value, is_changed) = match (settled, known) {
                (Some(settled), _) => (settled.clone(), base.is_none()),
                (None, Some(known)) if !is_reached => (known.clone(), false),
                (None, _) => (self.compute(step, inputs)?, true),
            };
            run.done.insert(place, Done { op: step.op.clone(), read, value: value.clone() });
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
            _ => {
                let seen = where_seen(&self.trace, name, found, value)?;
                let found = seen.as_ref().unwrap_or(found);
                match base {
                    Some(_) => self.noise.agree(name, found, value)?,
                    None => self.noise.is_right(name, found, value)?,
                }
            }
        };
        if !agrees {
            disagrees.push(name);
        }
        Ok(())
    }
}

/// Of every step of a program, which one of its name it is, and whether it is the last, whose value is the name's.
fn places(program: &Program) -> Vec<(Place, bool)> {
    let mut counts: HashMap<Name, usize> = HashMap::new();
    let mut place = |step: &Step<()>| {
        let count = counts.entry(step.name).or_default();
        *count += 1;
        (step.name, *count - 1)
    };
    let places: Vec<Place> = program.steps().iter().map(&mut place).collect();
    let is_last = |(name, at): &Place| counts.get(name) == Some(&(at + 1));
    places.into_iter().map(|place| (place, is_last(&place))).collect()
}

/// How many query rows are looked at first.
pub const ROWS: usize = 8;

/// The part of a run in which a step is furthest off: one item of several, or a few rows of many.
///
/// # Errors
/// If candle fails.
pub fn worst(step: &Step, found: &Tensor, value: &Tensor) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    if found.dims() != value.dims() {
        return Ok(parts);
    }
    let worst = compare(found, value, Tolerance::of(found.dtype()))?.worst;
    for part in [Part::Item(0), Part::Rows(QueryRows { first: 0, count: ROWS })] {
        let Some(at) = part.within(step) else { continue };
        let (Some(size), Some(place)) = (found.dims().get(at), worst.get(at)) else { continue };
        match part {
            Part::Item(_) => parts.push(Part::Item(*place)),
            Part::Rows(_) if *size >= 2 * ROWS => {
                let first = place.saturating_sub(ROWS / 2).min(size - ROWS);
                parts.push(Part::Rows(QueryRows { first, count: ROWS }));
            }
            Part::Rows(_) | Part::Keys(_) | Part::Tokens { .. } => {}
        }
    }
    Ok(parts)
}

/// A part of a run, computed anew from what is given; nothing if it depends on the rest.
///
/// # Errors
/// If candle fails.
pub fn narrowed_trace(trace: &Trace, part: Part) -> Result<Option<Trace>> {
    let Some(program) = trace.unrun().narrowed(part) else { return Ok(None) };
    let mut whole = trace.steps().iter();
    let run =
        program.run_with(|step, inputs| match whole.next().filter(|whole| !whole.is_computed()) {
            Some(whole) => by_columns(whole, &value_of(whole, &whole.value, part)?),
            None => step.op.eval(inputs),
        });
    run.map(Some)
}

/// A weight with its columns one behind the other, as products of a few rows with its transpose read it: gathered anew for
/// each of them, they take most of the time.
fn by_columns(step: &Step, value: &Tensor) -> Result<Tensor> {
    match value.rank() {
        2 if step.name.role() == Role::Parameter => Ok(value.t()?.contiguous()?.t()?),
        _ => Ok(value.clone()),
    }
}

/// The part of recorded values.
///
/// # Errors
/// If candle fails.
pub fn narrowed_values(
    trace: &Trace,
    recorded: &HashMap<Name, Tensor>,
    part: Part,
) -> Result<HashMap<Name, Tensor>> {
    let steps = recorded.iter().filter_map(|(name, value)| Some((trace.step(*name)?, value)));
    steps.map(|(step, value)| Ok((step.name, value_of(step, value, part)?))).collect()
}

fn value_of(step: &Step, value: &Tensor, part: Part) -> Result<Tensor> {
    match part.within(step) {
        Some(axis) => Ok(part.of(value, axis)?),
        None => Ok(value.clone()),
    }
}
