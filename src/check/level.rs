//! A recorded run and parts of it, on which most mistakes already fail.

use super::fit::distance;
use super::replay::{Made, Outcome, Replay, worst};
use crate::error::Result;
use crate::program::{Part, Program};

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
        self.parts.iter().try_fold(whole.clone(), |program, part| program.narrowed(*part))
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
