//! The mistakes that single steps show: each faulty step on its own recorded inputs.

use candle_core::Tensor;
use rayon::prelude::*;

use super::blocked_scores::where_seen;
use super::catalogue::{Edits, Situation};
use super::clues::parts;
use super::compare::compare;
use super::evidence::Evidence;
use super::finding::Finding;
use super::fit::is_as_near;
use super::hypothesis::{Hypothesis, hypotheses, sites};
use super::sieve::{FITTED_IN_PART, Sieve};
use super::tolerance::Tolerance;
use super::{fit, fit_cells, fit_norms};
use base::error::Result;
use program::{Axis, Kind, Name};

/// The faulty steps that a mistake explains.
struct Explanation {
    made: Hypothesis,
    steps: Vec<Name>,
    /// How much nearer it comes to what was recorded, over all steps that it reaches.
    gain: f64,
}

/// What a mistake explains that contradicts the record.
const NOTHING: (Vec<Name>, f64) = (Vec::new(), 0.0);

/// The search for what explains steps that are wrong though what they read is right.
struct Search<'e, 'a> {
    evidence: &'e Evidence<'a>,
    faulty: &'e [Name],
    /// Those that are off in finite numbers, by which alone a mistake without a name is known.
    telling: Vec<Name>,
    sieve: &'e Sieve<'e, 'a>,
    found: Vec<Explanation>,
}

/// What explains faulty steps.
pub struct Explained {
    pub findings: Vec<Finding>,
    /// The mistakes of the findings, all in one run.
    pub edits: Edits,
    /// The steps that nothing explains.
    pub unexplained: Vec<Name>,
}

/// The mistakes that explain faulty steps. What a mistake predicts must hold at every recorded step, the right ones too.
///
/// # Errors
/// If candle fails.
pub fn explain(evidence: &Evidence, faulty: &[Name]) -> Result<Explained> {
    let situation = Situation {
        config: evidence.config,
        right: evidence.trace,
        recorded: Some(evidence.recorded),
    };
    let all = if faulty.is_empty() { Vec::new() } else { hypotheses(&situation)? };
    let mut telling = Vec::new();
    for step in faulty {
        if evidence.tells(*step)? {
            telling.push(*step);
        }
    }
    let sieve = Sieve::of(evidence, faulty)?;
    let mut search = Search { evidence, faulty, telling, sieve: &sieve, found: Vec::new() };
    let reaching = all.iter().filter(|made| made.may_reach(evidence.trace, faulty));
    search.try_all(&reaching.collect::<Vec<_>>())?;
    // Rounding of 16 bits leaves room for more than one story: that of the ε, which norms share, is among them.
    let norms = if evidence.precision().is_some() { faulty.to_vec() } else { search.open() };
    for made in fit_norms::recorded(evidence, &sieve.part(), &norms)? {
        search.try_one(&made)?;
    }
    for step in search.open() {
        let numbers = fit::numbers(evidence, &sieve, step)?;
        search.try_all(&numbers.iter().collect::<Vec<_>>())?;
    }
    for step in search.open() {
        search.confined(step, &all)?;
    }
    for step in search.open() {
        for made in fit_cells::cells_of(evidence, step)? {
            search.try_one(&made)?;
        }
    }
    let Explained { mut findings, edits, unexplained: open } = search.findings();
    let mut unexplained = Vec::new();
    for step in open {
        match fit::precision(evidence, step)? {
            // Its numbers are those of that type: it was computed in it, or from here on.
            Some((precision, true)) => {
                let name = precision.name();
                let told = tr!(
                    "{step}: it is computed in {name}: its numbers are of that type, and off by its rounding alone",
                    step,
                    name
                );
                findings.push(Finding {
                    kind: Some(Kind::Precision),
                    ..Finding::rounding(Kind::Precision.name(), step, &told)
                });
            }
            Some((_, false)) | None => unexplained.push(step),
        }
    }
    Ok(Explained { findings, edits, unexplained })
}

impl Search<'_, '_> {
    /// The faulty steps that nothing explains yet.
    fn open(&self) -> Vec<Name> {
        let is_open = |name: &&Name| !self.found.iter().any(|found| found.steps.contains(name));
        self.faulty.iter().filter(is_open).copied().collect()
    }

    /// Keeps those mistakes that explain something, and contradict nothing.
    fn try_all(&mut self, all: &[&Hypothesis]) -> Result<()> {
        let tried = all.par_iter().map(|made| Ok((*made, self.explained(made)?)));
        for (made, explained) in tried.collect::<Result<Vec<_>>>()? {
            self.keep(made, explained);
        }
        Ok(())
    }

    /// Keeps a mistake that explains something, and contradicts nothing.
    fn try_one(&mut self, made: &Hypothesis) -> Result<bool> {
        let explained = self.explained(made)?;
        Ok(self.keep(made, explained))
    }

    fn keep(&mut self, made: &Hypothesis, (steps, gain): (Vec<Name>, f64)) -> bool {
        let is_told = made.is_known() || steps.iter().any(|step| self.telling.contains(step));
        let explains = !steps.is_empty() && is_told;
        if explains {
            self.found.push(Explanation { made: made.clone(), steps, gain });
        }
        explains
    }

    /// The faulty steps that a mistake explains: none if it does not hold at all that it reaches. And how much nearer
    /// it comes to what was recorded than what is right.
    fn explained(&self, made: &Hypothesis) -> Result<(Vec<Name>, f64)> {
        let Some(program) = made.program(self.evidence.trace) else { return Ok(NOTHING) };
        let sites = sites(self.evidence.trace, &program);
        let (mut steps, mut gain) = (Vec::new(), 0.0);
        let (wrong, right): (Vec<Name>, Vec<Name>) =
            sites.iter().partition(|site| self.faulty.contains(site));
        if wrong.is_empty() {
            return Ok(NOTHING);
        }
        // Most mistakes explain nothing, which a step that is wrong shows first.
        for site in wrong.into_iter().chain(right) {
            let Some(found) = self.evidence.recorded.get(&site) else { continue };
            if !self.sieve.lets_through(made, &program, site)? {
                return Ok(NOTHING);
            }
            let Some(value) = self.evidence.of(&program, site)? else { continue };
            if !agrees(self.evidence, made, site, found, &value)? {
                return Ok(NOTHING);
            }
            if let Some(step) = self.evidence.trace.step(site) {
                let right = self.evidence.expected(step)?;
                gain += fit::gain(found, &value, &right)?;
            }
            if self.faulty.contains(&site) {
                if !self.is_nearer(site, found, &value)? {
                    return Ok(NOTHING);
                }
                steps.push(site);
            }
        }
        Ok((steps, gain))
    }

    /// Whether a mistake's value of a faulty step comes much nearer than the right one. In 16 bits one that differs little
    /// from it agrees too.
    fn is_nearer(&self, site: Name, found: &Tensor, value: &Tensor) -> Result<bool> {
        let step = self.evidence.trace.step(site).filter(|_| self.evidence.precision().is_some());
        match step.map(|step| self.evidence.expected(step)).transpose()? {
            Some(right) if right.dims() == value.dims() => {
                // Cells that nothing reads say nothing of either.
                let seen = where_seen(self.evidence.trace, site, value, &right)?;
                fit::is_nearer(found, seen.as_ref().unwrap_or(value), &right)
            }
            Some(_) | None => Ok(true),
        }
    }

    /// Tries mistakes at the places where a step is wrong, if it is right elsewhere.
    fn confined(&mut self, step: Name, all: &[Hypothesis]) -> Result<()> {
        let Some(own) = self.evidence.trace.step(step) else { return Ok(()) };
        let (Some(inputs), Some(found)) =
            (self.evidence.inputs(own), self.evidence.recorded.get(&step))
        else {
            return Ok(());
        };
        let right = own.op.eval(&inputs)?;
        // So few cells fit many a mistake.
        let differing = compare(found, &right, Tolerance::of(found.dtype()))?.mismatched;
        if found.dims() != right.dims() || differing < fit::LEAST_CELLS {
            return Ok(());
        }
        let axes: Vec<(Axis, usize)> = own.axes.iter().collect();
        for (at, places) in parts(&self.evidence.alone, own, found, &right)? {
            let of = (at, axes[at].0);
            let mut fitted = fit::numbers_at(self.evidence, self.sieve, step, Some((at, &places)))?;
            let ready = all.iter().filter(|made| made.edits.iter().all(|edit| edit.at == step));
            fitted.splice(..0, ready.cloned());
            let mut best: Option<u32> = None;
            for made in fitted {
                if best.is_some_and(|best| made.cost > best) {
                    continue;
                }
                let Some(confined) = made.confined(of, &places) else { continue };
                // There are hundreds of them, of which each would take as long as a run.
                if found.elem_count() >= FITTED_IN_PART && !self.sieve.shows(&confined) {
                    continue;
                }
                if self.try_one(&confined)? {
                    best = Some(made.cost);
                }
            }
            if best.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// The simplest mistake of those that explain the most of some steps; of equal ones the one that comes nearest, or the
    /// first where that makes no difference.
    fn simplest(&self, open: &[Name]) -> Option<&Explanation> {
        let covered =
            |found: &Explanation| found.steps.iter().filter(|step| open.contains(step)).count();
        let key = |found: &&Explanation| (std::cmp::Reverse(covered(found)), found.made.cost);
        let explaining = || self.found.iter().filter(|found| covered(found) > 0);
        let best = explaining().map(|found| key(&found)).min()?;
        let equal = || explaining().filter(|found| key(found) == best);
        let most = equal().map(|found| found.gain).fold(f64::NEG_INFINITY, f64::max);
        equal().find(|found| is_as_near(found.gain, most))
    }

    /// The simplest mistakes that explain what can be explained.
    fn findings(self) -> Explained {
        let mut findings: Vec<Finding> = Vec::new();
        let mut edits = Edits::new();
        let mut open: Vec<Name> = self.faulty.to_vec();
        while let Some(best) = self.simplest(&open) {
            let Some(step) = best.steps.iter().find(|step| open.contains(step)) else { break };
            let mut finding = best.made.finding(*step);
            for other in &self.found {
                let is_as_good = other.steps == best.steps && other.made.cost == best.made.cost;
                let told = (other.made.id, other.made.summary.clone());
                let is_new = other.made.summary != finding.summary
                    && !finding.also.contains(&told)
                    && !other.made.has_number_of(&best.made, self.evidence.precision());
                // Ways of one mistake are no alternatives.
                let is_other = !other.made.is_known() || other.made.id != finding.id;
                if is_as_good && is_new && is_other {
                    finding.also.push(told);
                }
            }
            open.retain(|step| !best.steps.contains(step));
            findings.push(finding);
            edits.extend(best.made.edits.iter().cloned());
        }
        findings.sort_by_key(|finding| self.faulty.iter().position(|step| *step == finding.step));
        Explained { findings, edits, unexplained: open }
    }
}

/// Whether what a mistake gives is what was recorded: but for rounding, or if the mistake is one of precision, but for
/// where the last bit of that type falls.
///
/// # Errors
/// If candle fails.
pub fn agrees(
    evidence: &Evidence,
    made: &Hypothesis,
    step: Name,
    found: &Tensor,
    value: &Tensor,
) -> Result<bool> {
    let seen = where_seen(evidence.trace, step, found, value)?;
    let found = seen.as_ref().unwrap_or(found);
    match made.precision() {
        Some(precision) => evidence.alone.agree_in(step, found, value, precision),
        None => evidence.alone.agree(step, found, value),
    }
}
