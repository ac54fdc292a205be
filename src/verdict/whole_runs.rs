//! The mistakes that whole runs show, where the steps that were recorded are too few to show them singly.
//!
//! A run is repeated with every known mistake in it; where no single one gives what was recorded, with every pair of
//! them. All are tried on one item of the batch first, the one that is furthest off: a mistake that does not mix
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

/// Two mistakes in the order in which they are made.
type Pair = [&'static Mutation; 2];

/// What whole runs show.
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
        let item = Item::new(self.replay.item(self.worst_item()?)?)?;
        let mut findings: Vec<Finding> = Vec::new();
        let mut spent = Duration::ZERO;
        for mutation in catalogue() {
            let started = Instant::now();
            let fits_item = item.fits(&item.right, mutation)?;
            spent += started.elapsed();
            if !findings.iter().any(|finding| finding.id == mutation.id)
                && (mutation.mixes_items() || fits_item)
                && !self.fitting(&self.right, mutation)?.is_empty()
            {
                findings.push(self.finding(mutation));
            }
        }
        if !findings.is_empty() {
            return Ok(Diagnosis { findings, ..Diagnosis::default() });
        }
        let estimate = self.estimate(spent);
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
    fn pairs(&self, item: &Item) -> Result<Vec<Finding>> {
        let mut pairs: Vec<Pair> = Vec::new();
        let mut tried: Vec<Pair> = Vec::new();
        for pair in self.candidates(item)? {
            let is_listed = pairs.iter().any(|other| ids(other) == ids(&pair));
            let is_tried = tried.iter().any(|[first, second]| {
                std::ptr::eq(*first, pair[0]) && std::ptr::eq(*second, pair[1])
            });
            if !is_listed && !is_tried && self.fits(pair)? {
                pairs.push(pair);
            }
            tried.push(pair);
        }
        let all = catalogue();
        let place = |mutation: &Mutation| all.iter().position(|other| other.id == mutation.id);
        pairs.sort_by_key(|[first, second]| {
            let (first, second) = (place(first), place(second));
            (first.min(second), first.max(second))
        });
        let finding = |[first, second]: &Pair| {
            let with = Some(Box::new(self.finding(second)));
            Finding { with, ..self.finding(first) }
        };
        Ok(pairs.iter().map(finding).collect())
    }

    /// Whether two mistakes together give every recorded step, and neither may be left out.
    fn fits(&self, [first, second]: Pair) -> Result<bool> {
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

    /// The pairs that can give the whole run, as they give one item of it.
    fn candidates(&self, item: &Item) -> Result<Vec<Pair>> {
        let (mixing, apart): (Vec<_>, Vec<_>) =
            catalogue().into_iter().partition(|mutation| mutation.mixes_items());
        let with_any = |replay, one| apart.iter().filter_map(move |other| pair(replay, one, other));
        let mut candidates = Vec::new();
        for first in &apart {
            for variant in item.replay.variants(&item.right, first)?.into_iter().enumerate() {
                let base = item.replay.with(&item.right, first, variant)?;
                if base.fits() {
                    // The other mistake shows in other items alone.
                    candidates.extend(with_any(&item.replay, first));
                    continue;
                }
                for second in apart.iter().filter(|second| second.id != first.id) {
                    if item.fits(&base, second)? {
                        candidates.push([*first, *second]);
                    }
                }
            }
        }
        for mixed in mixing {
            candidates.extend(with_any(&self.replay, mixed));
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

    /// How long the pairs take where all mistakes singly take `singly` on one item.
    fn estimate(&self, singly: Duration) -> Duration {
        let all = catalogue();
        let batch = self.replay.batch();
        let mut runs = 0;
        for (at, first) in all.iter().enumerate() {
            for second in all.iter().skip(at + 1) {
                let mixes = first.mixes_items() || second.mixes_items();
                let possible = pair(&self.replay, first, second).is_some();
                runs += usize::from(possible) * if mixes { batch } else { 1 };
            }
        }
        let count = u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
        singly.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX)) / count
    }

    fn finding(&self, mutation: &Mutation) -> Finding {
        let step = self.replay.first_step(mutation).map(|(_, step)| step.name.clone());
        Finding::mistake(mutation.id, step.unwrap_or_default(), mutation.summary)
    }
}

/// One item of the batch, and its run without a mistake.
struct Item<'a> {
    replay: Replay<'a>,
    right: Outcome,
}

impl<'a> Item<'a> {
    fn new(replay: Replay<'a>) -> Result<Self> {
        let right = replay.right()?;
        Ok(Self { replay, right })
    }

    /// Whether a run of `base` with one more mistake, in one of its variants, gives every recorded step.
    fn fits(&self, base: &Outcome, mutation: &'static Mutation) -> Result<bool> {
        for variant in self.replay.variants(base, mutation)?.into_iter().enumerate() {
            if self.replay.with(base, mutation, variant)?.fits() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Two mistakes in the order of their first steps; nothing where they cannot both be made.
fn pair(replay: &Replay, left: &'static Mutation, right: &'static Mutation) -> Option<Pair> {
    if left.id == right.id || left.shares_a_step(right) {
        return None;
    }
    let at = |mutation| replay.first_step(mutation).map(|(at, _)| at);
    let (left_at, right_at) = (at(left)?, at(right)?);
    Some(if left_at < right_at { [left, right] } else { [right, left] })
}

/// The names of two mistakes, by which a pair is listed once.
fn ids([first, second]: &Pair) -> [&'static str; 2] {
    [first.id.min(second.id), first.id.max(second.id)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use candle_core::Tensor;

    use super::*;
    use crate::config::Settings;
    use crate::source::Sources;
    use crate::trace::{Op, Run, Trace};

    fn run() -> Run {
        let settings = Settings {
            batch: Some(2),
            seq_len: Some(5),
            d_model: Some(12),
            heads: Some(3),
            bias: Some(true),
            lengths: Some(vec![5, 0]),
            ..Settings::default()
        };
        Run::new(&settings, Sources::default()).expect("valid")
    }

    /// What is given, and an output that no known mistake makes.
    fn recorded(trace: &Trace) -> HashMap<String, Tensor> {
        let steps = trace.steps().iter().filter(|step| step.op == Op::Given);
        let mut recorded: HashMap<_, _> =
            steps.map(|step| (step.name.clone(), step.value.clone())).collect();
        let output = &trace.step("output").expect("there").value;
        recorded.insert("output".to_owned(), (output + 0.3).expect("adds"));
        recorded
    }

    /// The whole runs of that run, of which the output alone was recorded.
    fn with_runs(test: impl Fn(&WholeRuns, &Evidence)) {
        let run = run();
        let trace = run.trace().expect("runs");
        let recorded = recorded(&trace);
        let record = trace.to_record(run.config());
        let evidence = Evidence::new(run.config(), &trace, &recorded, &record).expect("measures");
        let settled = HashSet::new();
        test(&WholeRuns::new(&evidence, &settled).expect("runs"), &evidence);
    }

    #[test]
    fn pairs_that_would_take_too_long_are_not_tried() {
        with_runs(|runs, _| {
            let hasty = runs.explain(Duration::ZERO).expect("explains");
            assert!(matches!(hasty.pairs, Pairs::TooLong(time) if time > Duration::ZERO));
            let patient = runs.explain(PATIENCE).expect("explains");
            assert_eq!(patient.pairs, Pairs::Tried { unlisted: 0 });
            assert!(hasty.findings.is_empty() && patient.findings.is_empty());
        });
    }

    /// Else a mistake would be given up for what it does to one item.
    #[test]
    fn a_mistake_gives_an_item_what_it_gives_it_in_the_batch() {
        with_runs(|runs, evidence| {
            let mut tried = 0;
            for item in 0..2 {
                let alone = Item::new(runs.replay.item(item).expect("narrows")).expect("runs");
                for mutation in catalogue().into_iter().filter(|mutation| !mutation.mixes_items()) {
                    let whole = runs.replay.variants(&runs.right, mutation).expect("computes");
                    let part = alone.replay.variants(&alone.right, mutation).expect("computes");
                    let step = runs.replay.first_step(mutation).map(|(_, step)| step.name.clone());
                    // A mistake may show in the other item alone, and a variant too.
                    if whole.len() != part.len() {
                        continue;
                    }
                    for (whole, part) in whole.iter().zip(&part) {
                        let whole = whole.narrow(0, item, 1).expect("a batch");
                        let step = step.as_deref().unwrap_or_default();
                        let agree = evidence.noise.agree(step, &whole, part).expect("compares");
                        assert!(agree, "{} on item {item}", mutation.id);
                        tried += 1;
                    }
                }
            }
            assert!(tried >= 50, "only {tried}");
        });
    }
}
