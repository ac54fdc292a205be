//! The mistakes that whole runs show, where the steps that were recorded are too few to show them singly.
//!
//! A run is repeated with every known mistake in it; where no single one gives what was recorded, with every pair of
//! them. All are tried on one item of the batch first, the one that is furthest off: a mistake that does not mix
//! items gives there what it gives in the whole run, and what does not fit there need not be run whole.

use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use super::catalogue::{self, catalogue};
use super::compare::compare;
use super::evidence::Evidence;
use super::finding::{Diagnosis, Finding, Pairs};
use super::hypothesis::Hypothesis;
use super::replay::{Outcome, Replay};
use super::tolerance::Tolerance;
use crate::error::Result;
use crate::program::Name;

/// How long pairs of mistakes may take, as estimated beforehand.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How many pairs are listed where more fit.
const LISTED: usize = 10;

/// What whole runs show.
pub struct WholeRuns<'a> {
    whole: Part<'a>,
}

impl<'a> WholeRuns<'a> {
    /// The run of the evidence, in which the steps of `settled` are wrong for a reason of their own.
    ///
    /// # Errors
    /// If candle fails.
    pub fn new(evidence: &'a Evidence, settled: &'a HashSet<Name>) -> Result<Self> {
        let Evidence { config, trace, recorded, noise, .. } = evidence;
        Ok(Self { whole: Part::new(Replay::new(config, trace, recorded, settled, noise))? })
    }

    /// The recorded steps that a run without a mistake does not give, but for those that are settled.
    pub fn unproven(&self) -> Vec<Name> {
        self.whole.replay.disagreeing(&self.whole.right).map(|(name, ..)| name).collect()
    }

    /// The mistakes that give every recorded step, singly or else in pairs. Pairs that would take longer than
    /// `patience` are not tried.
    ///
    /// # Errors
    /// If candle fails.
    pub fn explain(&self, patience: Duration) -> Result<Diagnosis> {
        let item = Part::new(self.whole.replay.item(self.worst_item()?)?)?;
        let mut findings: Vec<Finding> = Vec::new();
        let started = Instant::now();
        let mut in_item: Vec<Way> = Vec::new();
        for made in &item.hypotheses {
            if item.run(made)?.is_some_and(|run| run.fits()) {
                in_item.push(Way::of(made));
            }
        }
        let spent = started.elapsed();
        for made in &self.whole.hypotheses {
            let may_fit = made.mixes_items() || in_item.contains(&Way::of(made));
            let is_found = findings.iter().any(|finding| finding.id == made.mistake.id);
            if may_fit && !is_found && self.whole.fits(made)? {
                findings.push(finding(made));
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

    /// The pairs that give every recorded step, the simplest first.
    fn pairs(&self, item: &Part) -> Result<Vec<Finding>> {
        let mut pairs: Vec<[&Hypothesis; 2]> = Vec::new();
        for ways in self.candidates(item)? {
            for [first, second] in self.whole.pairs_of(ways) {
                let ids = BTreeSet::from([first.mistake.id, second.mistake.id]);
                let is_it = |[one, other]: &[&Hypothesis; 2]| {
                    BTreeSet::from([one.mistake.id, other.mistake.id]) == ids
                };
                if !pairs.iter().any(is_it) && self.whole.fits_both(first, second)? {
                    pairs.push([first, second]);
                }
            }
        }
        let all = catalogue();
        let place = |made: &Hypothesis| all.iter().position(|one| one.id == made.mistake.id);
        pairs.sort_by_key(|[first, second]| {
            let (first, second) = (place(first), place(second));
            (first.min(second), first.max(second))
        });
        let finding = |[first, second]: [&Hypothesis; 2]| {
            let with = Some(Box::new(finding(second)));
            Finding { with, ..finding(first) }
        };
        Ok(pairs.into_iter().map(finding).collect())
    }

    /// The pairs that can give the whole run, as they give one item of it.
    fn candidates(&self, item: &Part) -> Result<Vec<Ways>> {
        let mut candidates: Vec<Ways> = Vec::new();
        let mut add = |ways: Ways| {
            if !candidates.contains(&ways) {
                candidates.push(ways);
            }
        };
        let apart = || item.hypotheses.iter().filter(|made| !made.mixes_items());
        for first in apart() {
            let Some(base) = item.run(first)? else { continue };
            if base.fits() {
                // The other shows in other items alone, and may not even be possible in this one.
                let others = self.whole.hypotheses.iter().filter(|made| !made.mixes_items());
                others.for_each(|other| {
                    add([Way::of(first), Way::of(other)]);
                    add([Way::of(other), Way::of(first)]);
                });
                continue;
            }
            for second in apart().filter(|second| item.can_follow(first, second)) {
                if item.run_on(&base, first, second)?.is_some_and(|run| run.fits()) {
                    add([Way::of(first), Way::of(second)]);
                }
            }
        }
        for mixing in self.whole.hypotheses.iter().filter(|made| made.mixes_items()) {
            for other in apart() {
                add([Way::of(mixing), Way::of(other)]);
                add([Way::of(other), Way::of(mixing)]);
            }
        }
        Ok(candidates)
    }

    /// The item of the batch that is furthest off at the first step that disagrees.
    fn worst_item(&self) -> Result<usize> {
        let Some((_, found, value)) = self.whole.replay.disagreeing(&self.whole.right).next()
        else {
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
        let all = &self.whole.hypotheses;
        let mut runs = 0;
        for (at, first) in all.iter().enumerate() {
            for second in all.iter().skip(at + 1) {
                let mixes = first.mixes_items() || second.mixes_items();
                runs += if mixes { self.whole.replay.batch() } else { 1 };
            }
        }
        let count = u32::try_from(all.len().max(1)).unwrap_or(u32::MAX);
        singly.saturating_mul(u32::try_from(runs).unwrap_or(u32::MAX)) / count
    }
}

fn finding(made: &Hypothesis) -> Finding {
    made.finding(made.first_site().unwrap_or(Name::Output))
}

/// A way of a mistake, in whatever part of a run it is made.
#[derive(Clone, Copy)]
struct Way(&'static catalogue::Way);

type Ways = [Way; 2];

impl Way {
    fn of(made: &Hypothesis) -> Self {
        Self(made.way)
    }
}

impl PartialEq for Way {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

/// A run, whole or of one item of the batch, and the mistakes that can be made in it.
struct Part<'a> {
    replay: Replay<'a>,
    right: Outcome,
    hypotheses: Vec<Hypothesis>,
}

impl<'a> Part<'a> {
    fn new(replay: Replay<'a>) -> Result<Self> {
        let (right, hypotheses) = (replay.right()?, replay.hypotheses()?);
        Ok(Self { replay, right, hypotheses })
    }

    fn run(&self, made: &Hypothesis) -> Result<Option<Outcome>> {
        self.replay.with(&self.right, made, &made.program)
    }

    /// The run of a first mistake, with a second one beside it.
    fn run_on(
        &self,
        base: &Outcome,
        first: &Hypothesis,
        second: &Hypothesis,
    ) -> Result<Option<Outcome>> {
        match first.and(second) {
            Some(program) => self.replay.with(base, second, &program),
            None => Ok(None),
        }
    }

    /// Whether a run with one mistake gives every recorded step, and would not without it.
    fn fits(&self, made: &Hypothesis) -> Result<bool> {
        match self.run(made)? {
            Some(run) => Ok(run.fits() && self.replay.is_apart(&run, &self.right)?),
            None => Ok(false),
        }
    }

    /// Whether two can be made together, the second at no earlier step than the first.
    fn can_follow(&self, first: &Hypothesis, second: &Hypothesis) -> bool {
        let at = |made: &Hypothesis| self.replay.position(made.first_site());
        first.mistake.id != second.mistake.id
            && !first.contradicts(second)
            && at(first) <= at(second)
    }

    /// The mistakes made in these two ways, in this part of the run.
    fn pairs_of(&self, [first, second]: Ways) -> Vec<[&Hypothesis; 2]> {
        let made = |way: Way| self.hypotheses.iter().filter(move |made| Way::of(made) == way);
        let pairs = made(first).flat_map(|first| made(second).map(move |second| [first, second]));
        pairs.filter(|[first, second]| self.can_follow(first, second)).collect()
    }

    /// Whether two mistakes together give every recorded step, and neither may be left out.
    fn fits_both(&self, first: &Hypothesis, second: &Hypothesis) -> Result<bool> {
        let Some(base) = self.run(first)? else { return Ok(false) };
        let Some(both) = self.run_on(&base, first, second)? else { return Ok(false) };
        if !both.fits() || !self.replay.is_apart(&both, &base)? {
            return Ok(false);
        }
        // Apart from every run with the second alone.
        match self.run(second)? {
            Some(alone) => self.replay.is_apart(&both, &alone),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use candle_core::Tensor;

    use super::*;
    use crate::config::Settings;
    use crate::program::{Role, Trace};
    use crate::run::{Run, Sources, to_record};

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
    fn recorded(trace: &Trace) -> HashMap<Name, Tensor> {
        let steps = trace.steps().iter().filter(|step| step.name.role() != Role::Computed);
        let mut recorded: HashMap<_, _> =
            steps.map(|step| (step.name, step.value.clone())).collect();
        let output = &trace.step(Name::Output).expect("there").value;
        recorded.insert(Name::Output, (output + 0.3).expect("adds"));
        recorded
    }

    /// The whole runs of that run, of which the output alone was recorded.
    fn with_runs(test: impl Fn(&WholeRuns, &Evidence)) {
        let run = run();
        let trace = run.trace().expect("runs");
        let recorded = recorded(&trace);
        let record = to_record(&trace, run.config());
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
            let values = |part: &Part, made: &Hypothesis| {
                let run = part.run(made).expect("runs").expect("is made in time");
                run.value(made.first_site().expect("has one")).cloned()
            };
            let mut tried = 0;
            for item in 0..2 {
                let alone =
                    Part::new(runs.whole.replay.item(item).expect("narrows")).expect("runs");
                for made in runs.whole.hypotheses.iter().filter(|made| !made.mixes_items()) {
                    // A mistake may show in the other item alone, and a variant too.
                    let of_way = |part: &Part| {
                        part.hypotheses
                            .iter()
                            .filter(|other| Way::of(other) == Way::of(made))
                            .count()
                    };
                    if of_way(&runs.whole) != of_way(&alone) {
                        continue;
                    }
                    let same = |other: &&Hypothesis| Way::of(other) == Way::of(made);
                    let place = runs
                        .whole
                        .hypotheses
                        .iter()
                        .filter(same)
                        .position(|other| std::ptr::eq(other, made));
                    let part = alone
                        .hypotheses
                        .iter()
                        .filter(same)
                        .nth(place.expect("is there"))
                        .expect("as many");
                    let (whole, part) = (values(&runs.whole, made), values(&alone, part));
                    let (Some(whole), Some(part)) = (whole, part) else { continue };
                    let whole = whole.narrow(0, item, 1).expect("a batch");
                    let step = made.first_site().expect("has one");
                    let agree = evidence.noise.agree(step, &whole, &part).expect("compares");
                    assert!(agree, "{} on item {item}", made.mistake.id);
                    tried += 1;
                }
            }
            assert!(tried >= 50, "only {tried}");
        });
    }
}
