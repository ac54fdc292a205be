//! A recorded run and parts of it, on which most mistakes already fail.

use candle_core::DType;

use super::clues::parts;
use super::fit::distance;
use super::noise::Noise;
use super::replay::{Made, Outcome, ROWS, Replay, worst};
use base::error::Result;
use program::{Axis, Name, Op, Part, Program, QueryRows, Role, Step};

/// A run or a part of it.
pub struct Level<'a> {
    /// How it is cut out of the whole run.
    pub parts: Vec<Part>,
    pub replay: Replay<'a>,
    pub right: Outcome,
}

impl<'a> Level<'a> {
    /// A run, or a part of it that these cut out.
    ///
    /// # Errors
    /// If candle fails.
    pub fn new(parts: Vec<Part>, replay: Replay<'a>) -> Result<Self> {
        let right = replay.right()?;
        Ok(Self { parts, replay, right })
    }

    /// The program of this part; nothing where that depends on the rest.
    pub fn program(&self, whole: &Program) -> Option<Program> {
        let part = self.parts.iter().try_fold(whole.clone(), |part, own| part.narrowed(*own))?;
        let hides_as_much = || what_hides(part.steps()) == what_hides(self.replay.trace().steps());
        (!self.has_few_keys() || hides_as_much()).then_some(part)
    }

    /// Whether its query rows see few keys, and it has no others.
    pub fn has_few_keys(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Keys(_)))
    }

    /// The run with a mistake; nothing where it cannot be made here, or comes too late.
    ///
    /// # Errors
    /// If candle fails.
    pub fn run(&self, made: &Made) -> Result<Option<Outcome>> {
        match self.program(&made.program) {
            Some(program) => self.replay.with(&self.right, made.first_site(), &program),
            None => Ok(None),
        }
    }

    /// The part that is furthest off at the first step that disagrees: one item of several, or a few rows of many.
    ///
    /// # Errors
    /// If candle fails.
    pub fn worst(&self) -> Result<Vec<Part>> {
        let Some((name, found, value)) = self.replay.disagreeing(&self.right).next() else {
            return Ok(Vec::new());
        };
        match self.replay.trace().step(name) {
            Some(step) => worst(step, found, value),
            None => Ok(Vec::new()),
        }
    }

    /// The first query rows that are off, with the keys alone that they see, where a mask hides most of the others from
    /// them. What a mistake makes of the hidden keys and values need not be computed there.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of_few_keys(&self, noise: &Noise) -> Result<Option<Self>> {
        let trace = self.replay.trace();
        let disagreeing = self.replay.disagreeing(&self.right).next();
        let Some((name, found, value)) = disagreeing else { return Ok(None) };
        let (Some(step), Some(weights)) = (trace.step(name), self.right.value(Name::Weights))
        else {
            return Ok(None);
        };
        let at = step.axes.iter().position(|(axis, size)| axis == Axis::Query && size >= 2 * ROWS);
        let (Some(at), [_, _, queries, keys]) = (at, weights.dims()) else { return Ok(None) };
        let of_axis = |(axis, _): &(usize, Vec<usize>)| *axis == at;
        let off = parts(noise, step, found, value)?.into_iter().find(of_axis);
        let first = off.and_then(|(_, rows)| rows.first().copied()).unwrap_or(0);
        let rows = QueryRows { first: first.min(queries - ROWS), count: ROWS };
        let seen = weights.narrow(2, rows.first, rows.count)?.to_dtype(DType::F64)?;
        let seen = seen.flatten(0, 2)?.abs()?.max(0)?.to_vec1::<f64>()?;
        let count = seen.iter().rposition(|most| *most != 0.0).map_or(*keys, |last| last + 1);
        let are_own = trace.steps().iter().all(|step| {
            let mut axes = step.axes.iter();
            axes.all(|(axis, size)| axis != Axis::Key || (size == *keys && step.op != Op::Given))
        });
        if !are_own || 2 * count > *keys {
            return Ok(None);
        }
        let tokens = Part::Tokens { count: count.max(rows.first + ROWS), all: *queries };
        let own = [Part::Rows(rows), Part::Keys(count), tokens];
        let mut part: Option<Replay<'a>> = None;
        for cut in own {
            part = match part.as_ref().unwrap_or(&self.replay).narrowed(cut)? {
                Some(part) => Some(part),
                None => return Ok(None),
            };
        }
        let parts = [self.parts.as_slice(), &own].concat();
        part.map(|part| Self::new(parts, part)).transpose()
    }
}

/// How far a run with a mistake is from the first recorded step that the right run does not give, in the first of some
/// levels that shows it.
///
/// # Errors
/// If candle fails.
pub fn distance_in(levels: &[Level], made: &Made) -> Result<f64> {
    for level in levels {
        let Some(run) = level.run(made)? else { continue };
        let Some((name, found, _)) = level.replay.disagreeing(&level.right).next() else {
            continue;
        };
        let Some(value) = run.value(name) else { continue };
        return distance(found, value, None);
    }
    Ok(f64::INFINITY)
}

/// The steps that tell which keys have no weight, and what they read: masks, and from the masked scores on all that have an
/// axis for keys or read one.
fn what_hides<V>(steps: &[Step<V>]) -> Vec<(&Op, Vec<Name>)> {
    let has_keys = |step: &Step<V>| step.axes.iter().any(|(axis, _)| axis == Axis::Key);
    let masked = steps.iter().position(|step| step.name == Name::MaskedScores);
    let mut hiding = Vec::new();
    for (at, step) in steps.iter().enumerate() {
        let read: Vec<&Step<V>> = step.inputs.iter().filter_map(|at| steps.get(*at)).collect();
        let is_behind = masked.is_some_and(|masked| at >= masked);
        let is_mask = step.name.role() == Role::Setting && step.op != Op::Given;
        if is_mask || is_behind && (has_keys(step) || read.iter().any(|read| has_keys(read))) {
            hiding.push((&step.op, read.iter().map(|read| read.name).collect()));
        }
    }
    hiding
}
