//! Parts of a record on which most mistakes already fail, so that few are run whole.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use candle_core::Tensor;

use super::blocked_scores::where_seen;
use super::evidence::Evidence;
use super::explain::agrees;
use super::fit::distance;
use super::hypothesis::Hypothesis;
use super::replay::{narrowed_trace, narrowed_values, worst};
use base::error::Result;
use program::{Axis, Change, Edit, Heads, Name, Op, Part, Program, Trace, of_pairs};

/// A step with so many numbers is fitted in a part of it: the hundred fits that are tried would each take as long as a run.
pub const FITTED_IN_PART: usize = 1 << 20;

/// What the sum of the same numbers, each rounded, may be off by at most, as a part of the sum of their sizes. Rounding of
/// f32 has a millionth of a number and its largest excuse is 16 times that; that of 16 bits a hundredth.
const OF_SUMS: f64 = 1e-3;
const OF_16_BITS: f64 = 0.1;

/// What was recorded, and the parts of it that are furthest off.
pub struct Sieve<'e, 'a> {
    evidence: &'e Evidence<'a>,
    /// The smallest first.
    narrow: Vec<Narrow>,
    /// Whether steps hold the numbers that they should, if perhaps in other places.
    have_same_numbers: Mutex<HashMap<Name, bool>>,
}

/// A part of the record.
struct Narrow {
    parts: Vec<Part>,
    trace: Trace,
    recorded: HashMap<Name, Tensor>,
}

/// What was recorded for a step, and what a mistake gives for it.
pub struct Given {
    pub found: Tensor,
    pub value: Tensor,
    /// The part of the run that they are of; all of it where there is none.
    of: Vec<Part>,
}

impl Given {
    /// Where places of an axis of the whole step are in this part.
    pub fn places(&self, axis: Axis, places: &[usize]) -> Vec<usize> {
        let Some(part) = self.of.iter().find(|part| part.axis() == axis) else {
            return places.to_vec();
        };
        let (first, count) = part.places();
        let here = places.iter().filter_map(|place| place.checked_sub(first));
        here.filter(|place| *place < count).collect()
    }
}

impl Narrow {
    /// The same part of a program; nothing if that depends on the rest.
    fn of(&self, program: &Program) -> Option<Program> {
        let mut parts = self.parts.iter();
        parts.try_fold(program.clone(), |program, part| program.narrowed(*part))
    }

    /// This part of the evidence.
    fn evidence<'n>(&'n self, whole: &'n Evidence) -> Evidence<'n> {
        whole.part(&self.trace, &self.recorded)
    }
}

impl<'e, 'a> Sieve<'e, 'a> {
    /// The item that is furthest off at the first faulty step, and the rows of it; fewer where that is all there is.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(evidence: &'e Evidence<'a>, faulty: &[Name]) -> Result<Self> {
        let have_same_numbers = Mutex::default();
        let mut sieve = Self { evidence, narrow: Vec::new(), have_same_numbers };
        let step = faulty.first().and_then(|name| evidence.trace.step(*name));
        let Some(step) = step else { return Ok(sieve) };
        let (Some(value), Some(found)) = (evidence.right(step)?, evidence.recorded.get(&step.name))
        else {
            return Ok(sieve);
        };
        let parts = worst(step, found, &value)?;
        let (mut trace, mut recorded) = (evidence.trace.clone(), evidence.recorded.clone());
        for (at, part) in parts.iter().enumerate() {
            let Some(narrow) = narrowed_trace(&trace, *part)? else { break };
            recorded = narrowed_values(&trace, &recorded, *part)?;
            trace = narrow;
            let (parts, trace) = (parts[..=at].to_vec(), trace.clone());
            sieve.narrow.insert(0, Narrow { parts, trace, recorded: recorded.clone() });
        }
        Ok(sieve)
    }

    /// The smallest part of the record, or all of it.
    pub fn part(&self) -> Evidence<'_> {
        self.within(self.narrow.first())
    }

    /// The item that is furthest off, where a step is large; or all of the record.
    pub fn item(&self, at: Name) -> Evidence<'_> {
        let is_large = |found: &Tensor| found.elem_count() >= FITTED_IN_PART;
        let is_item = |narrow: &&Narrow| matches!(narrow.parts.as_slice(), [Part::Item(_)]);
        let narrow = self.narrow.iter().find(is_item);
        self.within(narrow.filter(|_| self.evidence.recorded.get(&at).is_some_and(is_large)))
    }

    fn within<'s>(&'s self, narrow: Option<&'s Narrow>) -> Evidence<'s> {
        match narrow {
            Some(narrow) => narrow.evidence(self.evidence),
            None => self.evidence.part(self.evidence.trace, self.evidence.recorded),
        }
    }

    /// Whether a mistake's program may give what was recorded for a step.
    ///
    /// # Errors
    /// If candle fails.
    pub fn lets_through(&self, made: &Hypothesis, program: &Program, site: Name) -> Result<bool> {
        for narrow in &self.narrow {
            let (Some(program), Some(found)) = (narrow.of(program), narrow.recorded.get(&site))
            else {
                continue;
            };
            let small = narrow.evidence(self.evidence);
            return match small.of(&program, site)? {
                Some(value) => agrees(&small, made, site, found, &value),
                None => Ok(true),
            };
        }
        match made.edits.as_slice() {
            [Edit { at, change: Change::After(Op::Heads(Heads::Rearrange(moved)), others) }]
                if *at == site && others.is_empty() && moved.blocks.is_empty() =>
            {
                self.has_same_numbers(site)
            }
            _ => Ok(true),
        }
    }

    /// Whether a step may hold the numbers that it should, in whatever places: then they have the same sums.
    fn has_same_numbers(&self, at: Name) -> Result<bool> {
        let known =
            self.have_same_numbers.lock().unwrap_or_else(PoisonError::into_inner).get(&at).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let evidence = self.evidence;
        let (step, found) = (evidence.trace.step(at), evidence.recorded.get(&at));
        let (Some(step), Some(found)) = (step, found) else { return Ok(true) };
        let right = evidence.expected(step)?;
        if found.dims() != right.dims() {
            return Ok(true);
        }
        let seen = where_seen(evidence.trace, at, found, &right)?;
        let sum = |numbers: &[f64]| numbers.iter().sum::<f64>();
        let size = |numbers: &[f64]| numbers.iter().map(|number| number.abs()).sum::<f64>();
        // Rows of weights all have the same sum.
        let squares = |numbers: &[f64]| numbers.iter().map(|number| number * number).sum::<f64>();
        let sums = |found: &[f64], right: &[f64]| {
            let apart = [sum(found) - sum(right), size(found) - size(right)];
            [apart, [size(right), 0.0], [squares(found) - squares(right), squares(right)]]
        };
        let parts = of_pairs(seen.as_ref().unwrap_or(found), &right, sums)?;
        let total = |of: usize, at: usize| parts.iter().map(|sums| sums[of][at]).sum::<f64>();
        let most = if evidence.precision().is_some() { OF_16_BITS } else { OF_SUMS };
        // Of NaN and infinities no sum says anything.
        let is_near = |apart: f64, size: f64| apart.abs() <= most * size || !apart.is_finite();
        let size = total(1, 0);
        let may_have = is_near(total(0, 0), size)
            && is_near(total(0, 1), size)
            && is_near(total(2, 0), total(2, 1));
        self.have_same_numbers.lock().unwrap_or_else(PoisonError::into_inner).insert(at, may_have);
        Ok(may_have)
    }

    /// Whether a part shows a mistake, or there are none: then it can be tried at little cost.
    pub fn shows(&self, made: &Hypothesis) -> bool {
        let program = made.program(self.evidence.trace);
        let is_shown =
            |program: &Program| self.narrow.iter().any(|part| part.of(program).is_some());
        self.narrow.is_empty() || program.as_ref().is_some_and(is_shown)
    }

    /// How far the value that a mistake gives for a step is from the recorded one, of a large step in the part that is
    /// furthest off; infinite where it gives none.
    ///
    /// # Errors
    /// If candle fails.
    pub fn apart(&self, made: &Hypothesis, at: Name) -> Result<f64> {
        match self.given(made, at)? {
            Some(given) => distance(&given.found, &given.value, None),
            None => Ok(f64::INFINITY),
        }
    }

    /// What was recorded for a step, and what a mistake gives for it; of a large step in the part that is furthest off.
    /// Nothing where either is missing.
    ///
    /// # Errors
    /// If candle fails.
    pub fn given(&self, made: &Hypothesis, at: Name) -> Result<Option<Given>> {
        let evidence = self.evidence;
        let (Some(program), Some(found)) =
            (made.program(evidence.trace), evidence.recorded.get(&at))
        else {
            return Ok(None);
        };
        let is_large = found.elem_count() >= FITTED_IN_PART;
        for narrow in self.narrow.iter().filter(|_| is_large) {
            if let (Some(program), Some(found)) = (narrow.of(&program), narrow.recorded.get(&at)) {
                let small = narrow.evidence(evidence);
                let value = small.of(&program, at)?;
                let of = narrow.parts.clone();
                return Ok(value.map(|value| Given { found: found.clone(), value, of }));
            }
        }
        let value = evidence.of(&program, at)?;
        Ok(value.map(|value| Given { found: found.clone(), value, of: Vec::new() }))
    }
}
