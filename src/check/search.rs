//! Which mistakes explain the recorded steps that are wrong?
//!
//! Candidates are tried from cheap to dear, each in the smallest part of the run first: most fail there. What a candidate
//! gives must hold at every recorded step that it changes, the right ones too.

use std::collections::{BTreeSet, HashSet};
use std::iter;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::agreement::{Claim, is_nearer};
use super::candidate::{Candidate, cost};
use super::cells::{cells, gain, have_equal_sums, is_as_near};
use super::finding::Finding;
use super::scope::{Prediction, Scope};
use super::thresholds::{HARDLY_OFF, LEAST_CELLS, LEAST_TELLING, OF_SUMS, OF_SUMS_IN_16_BITS};
use super::tolerance::Tolerance;
use base::error::Result;
use program::{Change, Heads, Kind, Name, Op, Program, first_number};

/// Where all steps together have more numbers than this, a rare mistake that the smallest part does not show is not tried.
const LARGE: u128 = 1 << 23;

/// A candidate that explains wrong steps.
pub struct Explanation {
    pub candidate: Candidate,
    pub steps: Vec<Name>,
    /// How much nearer it comes to what was recorded, over all steps that it changes.
    gain: f64,
    /// Whether it is told beside one that costs less.
    is_rival: bool,
}

/// Where a candidate has to hold that some part of the run does not show, as it depends on the rest.
#[derive(Clone, Copy)]
enum Effort {
    /// It is tried in larger parts, and in the whole run.
    All,
    /// It is tried if a few rows show it.
    FewRows,
    /// It is tried if every part shows it.
    Parts,
}

/// The search.
pub struct Search<'s, 'a> {
    whole: &'s Scope<'a>,
    /// Parts of the run, the smallest first.
    parts: Vec<Scope<'a>>,
    /// The recorded steps that are wrong.
    wrong: Vec<Name>,
    /// Those whose numbers may be the right ones in other places.
    moved: Vec<Name>,
    /// Those that are off in finite numbers, or are NaN in some cells, by which alone a mistake without a name is known.
    telling: Vec<Name>,
    /// Those that are off in finite numbers.
    counted: Vec<Name>,
    /// Those of which nothing but NaN was recorded, which whatever becomes NaN agrees with.
    blank: Vec<Name>,
    explanations: Vec<Explanation>,
    is_large: bool,
    patience: Duration,
}

/// How long candidates would have taken that were not tried.
pub type Untried = Option<Duration>;

/// Pairs of mistakes, or how long they would have taken.
pub type Pairs = std::result::Result<Vec<[Candidate; 2]>, Duration>;

impl<'s, 'a> Search<'s, 'a> {
    /// The search for what explains these recorded steps of a run. No set of candidates is begun that would take longer than
    /// `patience`.
    pub fn new(whole: &'s Scope<'a>, wrong: &[Name], patience: Duration) -> Result<Self> {
        let (mut telling, mut counted) = (Vec::new(), Vec::new());
        let (mut blank, mut moved) = (Vec::new(), Vec::new());
        let in_16_bits = whole.agreement().half().is_some();
        let of_sums = if in_16_bits { OF_SUMS_IN_16_BITS } else { OF_SUMS };
        for step in wrong {
            let tells = tells(whole, *step)?;
            counted.extend(Some(*step).filter(|_| tells));
            if tells || is_nan_in_some(whole, *step)? {
                telling.push(*step);
            }
            if let Some(recorded) = whole.recorded(*step)
                && first_number(recorded, |value| !value.is_nan())?.is_none()
            {
                blank.push(*step);
            }
            if let Some((recorded, expected)) = whole.pair(*step)
                && have_equal_sums(recorded, expected, of_sums)?
            {
                moved.push(*step);
            }
        }
        let numbers: u128 = whole.trace().steps().iter().map(|step| step.axes.count()).sum();
        let parts = wrong.first().map_or_else(|| Ok(Vec::new()), |first| whole.parts(*first))?;
        let is_large = !parts.is_empty() && numbers > LARGE;
        let (wrong, explanations) = (wrong.to_vec(), Vec::new());
        Ok(Self {
            whole,
            parts,
            wrong,
            moved,
            telling,
            counted,
            blank,
            explanations,
            is_large,
            patience,
        })
    }

    /// Parts of the run, the smallest first.
    pub fn parts(&self) -> &[Scope<'a>] {
        &self.parts
    }

    /// The whole run.
    pub fn whole(&self) -> &'s Scope<'a> {
        self.whole
    }

    /// The parts and the whole, the smallest first.
    fn scopes(&self) -> impl Iterator<Item = &Scope<'a>> {
        self.parts.iter().chain([self.whole])
    }

    /// The recorded steps that are wrong.
    pub fn wrong(&self) -> &[Name] {
        &self.wrong
    }

    /// Whether the run is so large that rare mistakes which a few of its rows do not show are not tried.
    pub fn is_large(&self) -> bool {
        self.is_large
    }

    /// The wrong steps that nothing explains yet.
    pub fn open(&self) -> Vec<Name> {
        self.open_beyond(u32::MAX)
    }

    /// The wrong steps that nothing explains which costs so much or less.
    pub fn open_beyond(&self, cost: u32) -> Vec<Name> {
        let explains =
            |one: &Explanation, step: &Name| one.candidate.cost <= cost && one.steps.contains(step);
        let is_open = |step: &&Name| !self.explanations.iter().any(|one| explains(one, step));
        self.wrong.iter().filter(is_open).copied().collect()
    }

    /// Whether open steps are off in enough numbers to tell a mistake without a name.
    pub fn tells(&self) -> bool {
        self.open().iter().any(|step| self.telling.contains(step))
    }

    /// Whether they are off in enough finite numbers, beside which a number can be fitted, or a place be told.
    pub fn counts(&self) -> bool {
        self.open().iter().any(|step| self.counted.contains(step))
    }

    /// Whether the wrong steps say enough for two mistakes together: in many numbers, or in one that is far off.
    pub fn may_be_pairs(&self) -> Result<bool> {
        for step in &self.wrong {
            if self.counted.contains(step)
                || !excesses(self.whole, *step)?.into_iter().all(is_little)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tries candidates in order of cost, until one explains every wrong step.
    pub fn try_by_cost(&mut self, mut candidates: Vec<Candidate>) -> Result<Untried> {
        candidates.sort_by_key(|candidate| candidate.cost);
        let (started, mut tried) = (Instant::now(), 0_u32);
        for equal in candidates.chunk_by(|left, right| left.cost == right.cost) {
            let count = u32::try_from(equal.len()).unwrap_or(u32::MAX);
            let estimate = (started.elapsed() / tried.max(1)).saturating_mul(count);
            if tried > 0 && estimate > self.patience {
                return Ok(Some(estimate));
            }
            self.try_all(equal)?;
            // One that explains all is simpler than several.
            if self.explanations.iter().any(|one| one.steps.len() == self.wrong.len()) {
                break;
            }
            tried = tried.saturating_add(count);
        }
        Ok(None)
    }

    /// Tries candidates, whatever they cost, and keeps those that explain something and contradict nothing.
    pub fn try_all(&mut self, candidates: &[Candidate]) -> Result<bool> {
        let segment = self.whole().segment(&self.wrong);
        let reaching = candidates.par_iter().filter(|candidate| reaches(candidate, &segment));
        let explanations = reaching.map(|candidate| self.explanation(candidate));
        let explanations: Vec<Option<Explanation>> = explanations.collect::<Result<_>>()?;
        let before = self.explanations.len();
        self.explanations.extend(explanations.into_iter().flatten());
        Ok(self.explanations.len() > before)
    }

    /// Tries candidates that are as likely as what explains the same steps at less cost, and are told beside it.
    pub fn try_rivals(&mut self, candidates: &[Candidate]) -> Result<()> {
        let before = self.explanations.len();
        self.try_all(candidates)?;
        self.explanations[before..].iter_mut().for_each(|one| one.is_rival = true);
        Ok(())
    }

    /// What a candidate explains; nothing if it does not hold at all that it changes.
    fn explanation(&self, candidate: &Candidate) -> Result<Option<Explanation>> {
        let Some(program) = candidate.program(self.whole().trace()) else { return Ok(None) };
        let claim = candidate.precision().map_or(Claim::Mistake, Claim::Rounded);
        let effort = match candidate.cost > cost::COMMON {
            _ if !self.may_move(candidate) => Effort::Parts,
            true if self.is_large => Effort::FewRows,
            _ => Effort::All,
        };
        let Some((steps, prediction)) = self.sifted(&program, claim, effort) else {
            return Ok(None);
        };
        // NaN alone says nothing of other places: any that does not exist would give it.
        let telling = if candidate.kind == Kind::Axes { &self.counted } else { &self.telling };
        let is_told = candidate.is_known() || steps.iter().any(|step| telling.contains(step));
        if !is_told || !self.say_something(&steps) {
            return Ok(None);
        }
        let mut sum = 0.0;
        for name in &prediction.changed {
            let pair = self.whole().pair(*name);
            let Some(((recorded, expected), value)) = pair.zip(prediction.value(*name)) else {
                return Ok(None);
            };
            if steps.contains(name) && !is_nearer(recorded, value, expected)? {
                return Ok(None);
            }
            sum += gain(recorded, value, expected)?;
        }
        Ok(Some(Explanation { candidate: candidate.clone(), steps, gain: sum, is_rival: false }))
    }

    /// The wrong steps that a program gives as they were recorded, and all that it gives; nothing if it contradicts what was
    /// recorded anywhere, which the smallest part of the run shows first.
    fn sifted(
        &self,
        program: &Program,
        claim: Claim,
        effort: Effort,
    ) -> Option<(Vec<Name>, Prediction)> {
        let mut last = None;
        let few_rows = self.scopes().position(|scope| !scope.has_few_keys());
        for (at, scope) in self.scopes().enumerate() {
            let Some(program) = scope.part_of(program) else {
                match effort {
                    Effort::Parts => return None,
                    Effort::FewRows if few_rows == Some(at) => return None,
                    Effort::FewRows | Effort::All => continue,
                }
            };
            let prediction = scope.predict(&program, claim)?;
            let is_wrong = |name: &&Name| self.wrong.contains(name) && scope.wrong().contains(name);
            let steps: Vec<Name> = prediction.changed.iter().filter(is_wrong).copied().collect();
            if steps.is_empty() && self.wrong.iter().all(|name| scope.wrong().contains(name)) {
                return None;
            }
            last = Some((steps, prediction));
        }
        last
    }

    /// Whether a number was recorded of any of these steps.
    fn say_something(&self, steps: &[Name]) -> bool {
        steps.iter().any(|step| !self.blank.contains(step))
    }

    /// The pairs of named mistakes that explain every wrong step together, where none does alone: the simplest first. Nothing
    /// where that would take too long. Those of which the one rules out the other by what `may_meet` says are none.
    pub fn pairs(
        &self,
        named: &[Candidate],
        spent_each: Duration,
        may_meet: impl Fn(&Candidate, &Candidate) -> bool + Sync,
    ) -> Pairs {
        let count = u32::try_from(named.len() * named.len() / 2).unwrap_or(u32::MAX);
        let estimate = spent_each.saturating_mul(count);
        if estimate > self.patience {
            return Err(estimate);
        }
        let trace = self.whole().trace();
        let at = |candidate: &Candidate| trace.position(self.site(candidate));
        let placed: Vec<_> = named.iter().map(|candidate| (at(candidate), candidate)).collect();
        let fitting = placed.par_iter().map(|(at, first)| {
            let Some(program) = first.program(trace) else { return Vec::new() };
            let mut fitting = Vec::new();
            let can_follow = |(behind, second): &&(_, &Candidate)| {
                let is_new = first.id != second.id && at <= behind;
                is_new && !first.contradicts(second) && may_meet(first, second)
            };
            for (_, second) in placed.iter().filter(can_follow) {
                let Ok(both) = program.edited(&second.edits) else { continue };
                let both = self.sifted(&both, Claim::Mistake, Effort::All);
                if both.is_some_and(|(steps, _)| steps == self.wrong && self.say_something(&steps))
                {
                    fitting.push([(*first).clone(), (*second).clone()]);
                }
            }
            fitting
        });
        let fitting: Vec<Vec<[Candidate; 2]>> = fitting.collect();
        let mut pairs: Vec<[Candidate; 2]> = Vec::new();
        for pair in fitting.into_iter().flatten() {
            let ids = |[first, second]: &[Candidate; 2]| BTreeSet::from([first.id, second.id]);
            if !pairs.iter().any(|known| ids(known) == ids(&pair)) {
                pairs.push(pair);
            }
        }
        Ok(pairs)
    }

    /// Whether a candidate does more than to move the numbers of a recorded step, or these may have been moved.
    fn may_move(&self, candidate: &Candidate) -> bool {
        let [edit] = candidate.edits.as_slice() else { return true };
        let is_move = match &edit.change {
            Change::After(Op::Heads(Heads::Rearrange(moved)), others) => {
                others.is_empty() && moved.blocks.is_empty()
            }
            _ => false,
        };
        !is_move || !self.wrong.contains(&edit.at) || self.moved.contains(&edit.at)
    }

    /// The simplest mistakes that explain what can be explained. Others that explain the same at the same
    /// cost stand beside them.
    pub fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<Finding> = Vec::new();
        let mut open = self.wrong.clone();
        let in_16_bits = self.whole().agreement().half().is_some();
        while let Some(best) = self.simplest(&open) {
            // Where its first step is explained already, it is told of the next.
            let is_open = |step: &&Name| open.contains(step);
            let site = self.site(&best.candidate);
            let is_explained = self.wrong.contains(&site) && !open.contains(&site);
            let next = best.steps.iter().find(is_open).filter(|_| is_explained);
            let mut finding = best.candidate.finding(next.copied().unwrap_or(site));
            let mut told_already = vec![&best.candidate];
            for other in &self.explanations {
                let (candidate, best_candidate) = (&other.candidate, &best.candidate);
                let is_as_good = other.steps == best.steps
                    && (other.is_rival || candidate.cost == best_candidate.cost);
                let mut told = iter::once(&finding).chain(&finding.also);
                let is_new = told.all(|told| told.summary != candidate.summary)
                    && !candidate.has_number_of(best_candidate, in_16_bits);
                // Ways of one mistake are no alternatives.
                let is_named_already = candidate.is_known()
                    && (candidate.id == finding.id
                        || finding.also.iter().any(|also| also.id == candidate.id));
                let trace = self.whole().trace();
                let is_said = told_already.iter().any(|told| candidate.is_omission_of(told, trace));
                if is_as_good && is_new && !is_named_already && !is_said {
                    finding.also.push(candidate.finding(self.site(candidate)));
                    told_already.push(candidate);
                }
            }
            open.retain(|step| !best.steps.contains(step));
            findings.push(finding);
        }
        findings.sort_by_key(|finding| self.whole().trace().position(finding.step));
        findings
    }

    /// The first step that a candidate makes wrong by itself.
    pub fn site(&self, candidate: &Candidate) -> Name {
        candidate.site(self.whole().trace()).unwrap_or(Name::Output)
    }

    /// The simplest explanation of those that explain the most of some steps; of equal ones the one that comes nearest, or the
    /// first where that makes no difference.
    fn simplest(&self, open: &[Name]) -> Option<&Explanation> {
        let covered =
            |one: &Explanation| one.steps.iter().filter(|step| open.contains(step)).count();
        let key = |one: &Explanation| (std::cmp::Reverse(covered(one)), one.candidate.cost);
        let explaining = || self.explanations.iter().filter(|one| covered(one) > 0);
        let best = explaining().map(key).min()?;
        let equal = || explaining().filter(|one| key(one) == best);
        let most = equal().map(|one| one.gain).fold(f64::NEG_INFINITY, f64::max);
        equal().find(|one| is_as_near(one.gain, most))
    }
}

/// Whether a candidate edits what leads to wrong steps, or what may.
fn reaches(candidate: &Candidate, segment: &HashSet<Name>) -> bool {
    candidate.edits.iter().any(|edit| segment.contains(&edit.at) || edit.change == Change::Exchange)
}

/// Whether a step is off in enough numbers to tell why: NaN agrees with whatever becomes NaN.
fn tells(scope: &Scope, name: Name) -> Result<bool> {
    let excesses = excesses(scope, name)?;
    let off = excesses.iter().filter(|excess| **excess > 1.0).count();
    Ok(!excesses.is_empty() && off >= LEAST_TELLING.min(excesses.len()))
}

/// Whether a step is NaN in many cells, and in as many others not: which these are tells what becomes NaN.
fn is_nan_in_some(scope: &Scope, name: Name) -> Result<bool> {
    let Some((recorded, _)) = scope.pair(name) else { return Ok(false) };
    let recorded = cells(recorded)?;
    let blank = recorded.iter().filter(|number| number.is_nan()).count();
    Ok(blank.min(recorded.len() - blank) >= LEAST_CELLS)
}

/// How many tolerances each number of a recorded step is off by; 0 where either is NaN.
fn excesses(scope: &Scope, name: Name) -> Result<Vec<f64>> {
    let Some((recorded, expected)) = scope.pair(name) else { return Ok(Vec::new()) };
    let tolerance = Tolerance::of(recorded.dtype()).at_loss(Some(name), scope.agreement().loss());
    let pairs = cells(recorded)?.into_iter().zip(cells(expected)?);
    let excess = |(recorded, expected): (f64, f64)| {
        let are_numbers = !recorded.is_nan() && !expected.is_nan();
        if are_numbers { tolerance.excess(recorded, expected) } else { 0.0 }
    };
    Ok(pairs.map(excess).collect())
}

/// Whether a number is off by so little that others are near it as well.
fn is_little(excess: f64) -> bool {
    excess < HARDLY_OFF
}
