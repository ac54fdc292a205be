//! The mistakes that whole runs show, where the steps that were recorded are too few to show them singly.
//!
//! A run is repeated with every known mistake in it; where no single one gives what was recorded, with every pair of
//! them. A pair is tried on one item of the batch first, the one that is furthest off: a mistake that does not mix
//! items gives there what it gives in the whole run, and what does not fit there need not be run whole.
//!
//! A mistake gives the value of a step, so that two mistakes at one step cannot be put together here.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::compare::compare;
use super::evidence::Evidence;
use super::finding::{Diagnosis, Finding, Pairs};
use super::mutation::{Mutation, catalogue};
use super::replay::{Outcome, Replay};
use super::tolerance::Tolerance;
use crate::error::Result;

/// How long pairs of mistakes may take, as estimated beforehand.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many pairs are listed where more fit.
const LISTED: usize = 10;

/// What a whole run shows.
pub struct WholeRuns<'a> {
    replay: Replay<'a>,
    right: Outcome,
}

impl<'a> WholeRuns<'a> {
    /// The run of the evidence, in which the steps of `settled` are wrong for a reason of their own.
    ///
    /// # Errors
    /// If candle fails.
    pub fn new(evidence: &'a Evidence, settled: &'a HashSet<String>) -> Result<Self> {
        let replay = Replay::new(evidence, settled);
        let right = replay.right()?;
        Ok(Self { replay, right })
    }

    /// The recorded steps that a run without a mistake does not give, but for those that are settled.
    pub fn unproven(&self) -> Vec<String> {
        let steps = self.replay.disagreeing(&self.right);
        steps.map(|(step, ..)| step.name.clone()).collect()
    }

    /// The mistakes that give every recorded step, singly or else in pairs. Pairs that would take longer than
    /// `patience` are not tried.
    ///
    /// # Errors
    /// If candle fails.
    pub fn explain(&self, patience: Duration) -> Result<Diagnosis> {
        let mut findings: Vec<Finding> = Vec::new();
        for mutation in catalogue() {
            let is_listed = findings.iter().any(|finding| finding.id == mutation.id);
            if !is_listed && !self.fitting(&self.right, mutation)?.is_empty() {
                findings.push(self.finding(mutation));
            }
        }
        if !findings.is_empty() {
            return Ok(Diagnosis { findings, ..Diagnosis::default() });
        }
        let started = Instant::now();
        let item = self.replay.item(self.worst_item()?)?;
        let estimate = self.estimate(started.elapsed());
        if estimate > patience {
            return Ok(Diagnosis { pairs: Pairs::TooLong(estimate), ..Diagnosis::default() });
        }
        let mut findings = self.pairs(&item)?;
        let unlisted = findings.len().saturating_sub(LISTED);
        findings.truncate(LISTED);
        Ok(Diagnosis { findings, pairs: Pairs::Tried { unlisted }, ..Diagnosis::default() })
    }

    /// The runs of `base` with one more mistake, in all its variants, that give every recorded step and that would
    /// not without it.
    fn fitting(&self, base: &Outcome, mutation: &'static Mutation) -> Result<Vec<Outcome>> {
        let mut fitting = Vec::new();
        for variant in self.replay.variants(base, mutation)?.into_iter().enumerate() {
            let run = self.replay.with(base, mutation, variant)?;
            if run.fits() && self.replay.is_apart(&run, base)? {
                fitting.push(run);
            }
        }
        Ok(fitting)
    }

    /// The pairs that give every recorded step, the simplest first.
    fn pairs(&self, item: &Replay) -> Result<Vec<Finding>> {
        let mut pairs = Vec::new();
        for (first, second) in self.candidates(item)? {
            let ids = [first.id, second.id];
            let is_listed = |pair: &[&Mutation; 2]| pair.iter().all(|one| ids.contains(&one.id));
            if !pairs.iter().any(is_listed) && self.fits(first, second)? {
                pairs.push([first, second]);
            }
        }
        let all = catalogue();
        let place = |mutation: &Mutation| all.iter().position(|other| other.id == mutation.id);
        pairs.sort_by_key(|[first, second]| {
            let (first, second) = (place(first), place(second));
            (first.min(second), first.max(second))
        });
        Ok(pairs.iter().map(|[first, second]| self.finding_of_pair(first, second)).collect())
    }

    /// Whether two mistakes together give every recorded step, and neither may be left out.
    fn fits(&self, first: &'static Mutation, second: &'static Mutation) -> Result<bool> {
        for variant in self.replay.variants(&self.right, first)?.into_iter().enumerate() {
            let base = self.replay.with(&self.right, first, variant)?;
            for both in self.fitting(&base, second)? {
                if self.matters_before(&both, second)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Whether a pair's run is apart from every run with its second mistake alone.
    fn matters_before(&self, both: &Outcome, second: &'static Mutation) -> Result<bool> {
        for variant in self.replay.variants(&self.right, second)?.into_iter().enumerate() {
            let alone = self.replay.with(&self.right, second, variant)?;
            if !self.replay.is_apart(both, &alone)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The pairs, in the order in which they are made, that can give the whole run as they give one item of it.
    fn candidates(&self, item: &Replay) -> Result<Vec<(&'static Mutation, &'static Mutation)>> {
        let right = item.right()?;
        let (mixing, apart): (Vec<_>, Vec<_>) =
            catalogue().into_iter().partition(|mutation| mutation.mixes_items());
        let mut candidates = Vec::new();
        for first in &apart {
            for variant in item.variants(&right, first)?.into_iter().enumerate() {
                let base = item.with(&right, first, variant)?;
                if base.fits() {
                    // The other mistake shows in other items alone.
                    candidates.extend(apart.iter().flat_map(|other| in_order(item, first, other)));
                    continue;
                }
                for second in apart.iter().filter(|second| second.id != first.id) {
                    if fits_somehow(item, &base, second)? {
                        candidates.push((*first, *second));
                    }
                }
            }
        }
        for mixed in mixing {
            candidates.extend(apart.iter().flat_map(|other| in_order(&self.replay, mixed, other)));
        }
        Ok(candidates)
    }

    /// The item of the batch that is furthest off at the first step that disagrees.
    fn worst_item(&self) -> Result<usize> {
        let Some((_, found, value)) = self.replay.disagreeing(&self.right).next() else {
            return Ok(0);
        };
        if found.dims() != value.dims() {
            return Ok(0);
        }
        let comparison = compare(found, value, Tolerance::of(found.dtype()))?;
        Ok(comparison.worst.first().copied().unwrap_or(0))
    }

    /// How long the pairs take where one item takes `run`.
    fn estimate(&self, run: Duration) -> Duration {
        let all = catalogue();
        let batch = self.replay.batch();
        let mut runs = 0;
        for (at, first) in all.iter().enumerate() {
            for second in all.iter().skip(at + 1) {
                let mixes = first.mixes_items() || second.mixes_items();
                let possible = in_order(&self.replay, first, second).is_some();
                runs += usize::from(possible) * if mixes { batch } else { 1 };
            }
        }
        run.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX))
    }

    fn finding(&self, mutation: &Mutation) -> Finding {
        let step = self.replay.first_step(mutation).map(|(_, step)| step.name.clone());
        Finding::mistake(mutation.id, step.unwrap_or_default(), mutation.summary)
    }

    fn finding_of_pair(&self, first: &Mutation, second: &Mutation) -> Finding {
        Finding { with: Some(Box::new(self.finding(second))), ..self.finding(first) }
    }
}

/// Whether a run of `base` with one more mistake, in one of its variants, gives every recorded step.
fn fits_somehow(replay: &Replay, base: &Outcome, mutation: &'static Mutation) -> Result<bool> {
    for variant in replay.variants(base, mutation)?.into_iter().enumerate() {
        if replay.with(base, mutation, variant)?.fits() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Two mistakes in the order of their first steps; nothing where they cannot both be made.
fn in_order(
    replay: &Replay,
    left: &'static Mutation,
    right: &'static Mutation,
) -> Option<(&'static Mutation, &'static Mutation)> {
    if left.id == right.id || left.shares_a_step(right) {
        return None;
    }
    let at = |mutation| replay.first_step(mutation).map(|(at, _)| at);
    let (left_at, right_at) = (at(left)?, at(right)?);
    Some(if left_at < right_at { (left, right) } else { (right, left) })
}
