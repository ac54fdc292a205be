//! What is tried, and in which order, to explain the steps that are wrong?

use std::collections::HashSet;
use std::time::{Duration, Instant};

use super::apart::apart;
use super::candidate::{Candidate, cost};
use super::catalogue::{Situation, candidates, chunk_size, may_be_one_of_two, place_of};
use super::compare::compare;
use super::finding::{Diagnosis, Finding, Pairs};
use super::fit::{Fitter, Free};
use super::free;
use super::mistakes::Range;
use super::readoff;
use super::scope::Scope;
use super::search::Search;
use super::thresholds::LEAST_CELLS;
use super::tolerance::Tolerance;
use base::error::Result;
use program::{Axis, Change, EightBits, Kind, Name, Op, Scaling, Slip, Step, Trace};

/// How many pairs are listed where more fit.
const LISTED: usize = 10;

/// The explanation of wrong steps.
struct Explainer<'s, 'a> {
    situation: Situation<'a>,
    search: Search<'s, 'a>,
    /// The wrong steps of which all that they read was recorded.
    direct: HashSet<Name>,
    /// What was tried in another run of the same file, as it is told.
    tried: Option<&'a HashSet<String>>,
}

/// What explains the wrong steps of a run: candidates from the program and the catalogue, then such with a fitted number, such
/// in a part of a step alone, what the recorded cells show, and pairs of mistakes with a name. Of a file that was tried in
/// another run, those alone that this has and the other has not.
pub fn explain<'a>(
    situation: Situation<'a>,
    whole: &Scope<'a>,
    wrong: &[Name],
    patience: Duration,
    tried: Option<&'a HashSet<String>>,
) -> Result<Diagnosis> {
    let is_direct =
        |name: &Name| situation.right.step(*name).is_some_and(|step| whole.is_direct(step));
    let direct: HashSet<Name> = wrong.iter().copied().filter(is_direct).collect();
    // A step that is computed from what was recorded takes no time worth counting.
    let patience = if direct.len() == wrong.len() { Duration::MAX } else { patience };
    let search = Search::new(whole, wrong, patience)?;
    Explainer { situation, search, direct, tried }.explain()
}

impl Explainer<'_, '_> {
    fn explain(mut self) -> Result<Diagnosis> {
        let mut all = candidates(&self.situation)?;
        if let Some(tried) = self.tried {
            all.retain(|one| !tried.contains(&one.summary));
        }
        // What stands in a slot of the delta rule's chunks makes no NaN of numbers.
        if !self.search.counts() {
            all.retain(|one| chunk_size(&one.edits).is_none());
        }
        let likely = self.likely(&all);
        let (started, tried) = (Instant::now(), u32::try_from(likely.len().max(1)));
        let tells = self.search.tells();
        let untried = self.search.try_by_cost(likely)?;
        let each = started.elapsed() / tried.unwrap_or(u32::MAX);
        // Lengths and documents that scores or weights show are likelier than what is far-fetched.
        for step in self.search.open_beyond(cost::COMMON).into_iter().filter(|_| tells) {
            self.search.try_all(&readoff::of_rules(self.search.whole(), step)?)?;
        }
        // Of two types of fp8 one may stand for half of the other's numbers, as another scale does, and so may another norm.
        if tells && self.search.open().is_empty() {
            let readings = all.iter().filter(|one| is_other_reading(one) || is_other_norm(one));
            self.search.try_rivals(&readings.cloned().collect::<Vec<_>>())?;
        }
        // Rounding of 16 bits leaves room for more than one story: that of the ε, which norms share, is among them.
        if tells && self.search.whole().agreement().half().is_some() {
            let norms = free::of_norms(self.situation.right, &self.situation.config.sizes);
            self.search.try_rivals(&self.fitted(self.search.wrong(), &norms)?)?;
        }
        if untried.is_none() && self.search.counts() && self.tried.is_none() {
            self.apart(&all)?;
            self.fit()?;
            self.confine(&all)?;
            for step in self.search.open_beyond(cost::FITTED) {
                let sizes = &self.situation.config.sizes;
                self.search.try_all(&readoff::of_cells(self.search.whole(), step, sizes)?)?;
            }
            self.lower(all.iter().filter(|one| one.kind == Kind::Precision))?;
        }
        let (findings, unexplained) = (self.search.findings(), self.search.open());
        let left_out = !unexplained.is_empty() && self.search.is_large();
        let diagnosis = Diagnosis { findings, unexplained, left_out, ..Diagnosis::default() };
        let is_hidden = |name: &Name| !self.direct.contains(name);
        if self.search.may_be_pairs()? && diagnosis.unexplained.iter().any(is_hidden) {
            return Ok(self.with_pairs(diagnosis, all, untried, each));
        }
        Ok(diagnosis)
    }

    /// Tries mistakes for wrong gradients alone: for all of them, or for those that nothing explains.
    fn apart(&mut self, all: &[Candidate]) -> Result<()> {
        let wrong = self.search.wrong().to_vec();
        self.search.try_by_cost(apart(&self.situation, &wrong, all)?)?;
        let open = self.search.open();
        if !open.is_empty() && open != wrong {
            self.search.try_by_cost(apart(&self.situation, &open, all)?)?;
        }
        Ok(())
    }

    /// The candidates that are tried: all at steps of which all that they read was recorded. Where less was, rounding is not
    /// told from a mistake, and what is far-fetched is not looked for.
    fn likely(&self, all: &[Candidate]) -> Vec<Candidate> {
        let are_direct = self.search.open().iter().all(|name| self.direct.contains(name));
        let tells = self.search.tells();
        let is_likely = |candidate: &&Candidate| {
            let is_plain = candidate.kind != Kind::Precision && candidate.cost < cost::ODD;
            let is_at_direct = || candidate.edits.iter().all(|edit| self.direct.contains(&edit.at));
            candidate.is_known() || tells && (are_direct || is_plain || is_at_direct())
        };
        all.iter().filter(is_likely).cloned().collect()
    }

    /// Candidates with the numbers that come nearest to what was recorded.
    fn fitted(&self, wrong: &[Name], free: &[Free]) -> Result<Vec<Candidate>> {
        let (whole, parts) = (self.search.whole(), self.search.parts());
        let fitter = Fitter { whole, parts, is_large: self.search.is_large(), wrong };
        let mut all = Vec::new();
        for free in free {
            all.extend(fitter.fit(free)?.into_iter().flat_map(|number| free.candidates(number)));
        }
        Ok(all)
    }

    /// Tries numbers that are fitted, and places that are read off, at every open step and what leads to it: those that
    /// operations have before such as nothing in the program asks for.
    fn fit(&mut self) -> Result<()> {
        let (trace, sizes) = (self.situation.right, &self.situation.config.sizes);
        let norms = self.fitted(&self.search.open(), &free::of_norms(trace, sizes))?;
        self.search.try_all(&norms)?;
        for name in self.search.open() {
            let Some(step) = trace.step(name) else { continue };
            let candidates = self.fitted(&[name], &free::of_operations(trace, step, sizes))?;
            self.search.try_all(&candidates)?;
        }
        let open = self.search.open();
        let segment = self.search.whole().segment(&open);
        let hidden =
            |step: &&Step| segment.contains(&step.name) && !self.direct.contains(&step.name);
        for step in trace.steps().iter().filter(hidden) {
            let mut free = free::of_operations(trace, step, sizes);
            for free in free.iter_mut().filter(|free| free.range == Range::Cell) {
                free.range = Range::Score;
            }
            let is_smooth =
                |free: &Free| matches!(free.range, Range::Factor | Range::Positive | Range::Score);
            free.retain(is_smooth);
            self.search.try_all(&self.fitted(&open, &free)?)?;
        }
        for name in self.search.open() {
            let Some(step) = trace.step(name) else { continue };
            let mut candidates = self.fitted(&[name], &free::of_values(trace, step, sizes))?;
            candidates.extend(readoff::of_places(self.search.whole(), name, sizes)?);
            self.search.try_all(&candidates)?;
        }
        Ok(())
    }

    /// Tries fewer bits in steps that were not recorded: numbers that are off by the rounding of one step, cell by cell, are off
    /// by nothing else. In runs of 16 bits every step rounds.
    fn lower<'c>(&mut self, narrow: impl Iterator<Item = &'c Candidate>) -> Result<()> {
        // At steps of which all that they read was recorded, they were tried before.
        if self.search.open().iter().all(|name| self.direct.contains(name)) {
            return Ok(());
        }
        // In a run of 16 bits the numbers of all steps are rounded, and the angles of a rotation are none.
        let is_half = self.search.whole().agreement().half().is_some();
        let turns = |one: &Candidate| {
            one.edits.iter().all(|edit| matches!(edit.at, Name::QRot | Name::KRot))
        };
        let candidates: Vec<Candidate> =
            narrow.filter(|one| !is_half || turns(one)).cloned().collect();
        self.search.try_all(&candidates)?;
        Ok(())
    }

    /// Tries mistakes at the items, rows or heads alone at which a step is wrong, if it is right elsewhere.
    fn confine(&mut self, all: &[Candidate]) -> Result<()> {
        // No head has chunks of its own.
        let all = all.iter().filter(|one| chunk_size(&one.edits).is_none()).cloned();
        let all = &all.collect::<Vec<_>>()[..];
        for name in self.search.open() {
            let Some(step) = self.situation.right.step(name) else { continue };
            let off = self.search.whole().places_off(name)?;
            let axes: Vec<(Axis, usize)> = step.axes.iter().collect();
            let at_places = self.at_places(step, &off, all)?;
            if !self.direct.contains(&name) {
                let off =
                    off.into_iter().filter_map(|(at, places)| Some((axes.get(at)?.0, places)));
                let off: Vec<_> = off.collect();
                self.search.try_by_cost(confined_before(self.situation.right, &off, all))?;
            }
            self.search.try_by_cost(at_places)?;
        }
        Ok(())
    }

    /// The mistakes of a step at the places of an axis where it is off.
    fn at_places(
        &self,
        step: &Step,
        off: &[(usize, Vec<usize>)],
        all: &[Candidate],
    ) -> Result<Vec<Candidate>> {
        let mut confined = Vec::new();
        // So few cells fit many a mistake.
        let Some((recorded, expected)) = self.search.whole().pair(step.name) else {
            return Ok(confined);
        };
        let loss = self.search.whole().agreement().loss();
        let tolerance = Tolerance::of(recorded.dtype()).at_loss(Some(step.name), loss);
        if compare(recorded, expected, tolerance)?.mismatched < LEAST_CELLS {
            return Ok(confined);
        }
        for (at, places) in off {
            let Some((axis, _)) = step.axes.iter().nth(*at) else { continue };
            let ready =
                all.iter().filter(|made| made.edits.iter().all(|edit| edit.at == step.name));
            confined.extend(ready.filter_map(|made| made.confined((*at, axis), places)));
            let mut free =
                free::of_operations(self.situation.right, step, &self.situation.config.sizes);
            free.extend(free::of_values(self.situation.right, step, &self.situation.config.sizes));
            let free = free.into_iter().map(|free| {
                let (with, places) = (free.with, places.clone());
                let with = move |number| with(number)?.confined((*at, axis), &places);
                Free { with: Box::new(with), ..free }
            });
            confined.extend(self.fitted(&[step.name], &free.collect::<Vec<_>>())?);
        }
        Ok(confined)
    }

    /// The pairs of named mistakes that explain what no single one does.
    fn with_pairs(
        &self,
        diagnosis: Diagnosis,
        all: Vec<Candidate>,
        untried: Option<Duration>,
        each: Duration,
    ) -> Diagnosis {
        let named = all.into_iter().filter(|one| one.is_known() && may_be_one_of_two(&one.edits));
        let named: Vec<Candidate> = named.collect();
        let pairs = match untried {
            Some(time) => Err(time),
            // A kernel has chunks of one size.
            None => self.search.pairs(&named, each, |first, second| {
                let sizes = [first, second].map(|one| chunk_size(&one.edits));
                !matches!(sizes, [Some(first), Some(second)] if first != second)
            }),
        };
        let mut pairs = match pairs {
            Err(time) => return Diagnosis { pairs: Pairs::TooLong(time), ..diagnosis },
            Ok(pairs) => pairs,
        };
        pairs.sort_by_key(|[first, second]| {
            let (first, second) = (place_of(first.id), place_of(second.id));
            (first.min(second), first.max(second))
        });
        let unlisted = pairs.len().saturating_sub(LISTED);
        let tried = Pairs::Tried { unlisted };
        let findings: Vec<Finding> =
            pairs.iter().take(LISTED).map(|pair| self.pair(pair)).collect();
        if findings.is_empty() {
            return Diagnosis { pairs: tried, ..diagnosis };
        }
        Diagnosis { findings, unexplained: Vec::new(), pairs: tried, ..diagnosis }
    }

    fn pair(&self, [first, second]: &[Candidate; 2]) -> Finding {
        let finding = |candidate: &Candidate| candidate.finding(self.search.site(candidate));
        Finding { with: Some(Box::new(finding(second))), ..finding(first) }
    }
}

/// Whether fp8 is read as another type of fp8 throughout.
fn is_other_reading(candidate: &Candidate) -> bool {
    let is_fp8 = |own: &EightBits| own.name().starts_with("fp8");
    candidate.edits.iter().all(|edit| match &edit.change {
        Change::Before(_, Op::Slip(Slip::ReadAs(own, other)), _) => is_fp8(own) && is_fp8(other),
        _ => false,
    })
}

/// Whether queries or keys have another norm, whose numbers are those of the right one times a factor.
fn is_other_norm(candidate: &Candidate) -> bool {
    candidate.edits.iter().all(|edit| {
        matches!(edit.at, Name::QNorm | Name::KNorm)
            && matches!(edit.change, Change::Replace(Op::Scaling(Scaling::Norm(_))))
    })
}

/// The mistakes of steps that were not recorded, at the items, rows or features at which a step is off, and at some heads or
/// splits.
fn confined_before(trace: &Trace, off: &[(Axis, Vec<usize>)], all: &[Candidate]) -> Vec<Candidate> {
    let mut confined = Vec::new();
    // No part of a step has a type of its own.
    let is_likely = |candidate: &&Candidate| {
        candidate.cost <= cost::COMMON && candidate.kind != Kind::Precision
            || candidate.kind == Kind::Parameter && candidate.cost <= cost::PLAIN
    };
    for candidate in all.iter().filter(is_likely) {
        let edited = candidate.edits.iter().map(|edit| trace.step(edit.at));
        let Some(edited) = edited.collect::<Option<Vec<_>>>() else { continue };
        let [first, others @ ..] = edited.as_slice() else { continue };
        let have_all = |at: usize, axis: Axis, size: usize| {
            others.iter().all(|step| step.axes.iter().nth(at) == Some((axis, size)))
        };
        for (at, (axis, size)) in first.axes.iter().enumerate() {
            if size < 2 || !have_all(at, axis, size) {
                continue;
            }
            let is_told =
                matches!(axis, Axis::Batch | Axis::Query | Axis::HeadDim | Axis::ValueDim);
            let here = off.iter().filter(|(other, _)| is_told && *other == axis);
            let mut choices: Vec<Vec<usize>> = here.map(|(_, places)| places.clone()).collect();
            if matches!(axis, Axis::Head | Axis::Split) {
                choices.extend(some_of(size));
            }
            confined
                .extend(choices.iter().filter_map(|places| candidate.confined((at, axis), places)));
        }
    }
    confined
}

/// The heads or splits that people leave out or treat alone: each one, all but one at an end, the halves.
fn some_of(count: usize) -> Vec<Vec<usize>> {
    let mut all: Vec<Vec<usize>> = (0..count).map(|head| vec![head]).collect();
    let ranges = [1..count, 0..count - 1, 0..count / 2, count / 2..count];
    all.extend(ranges.map(Iterator::collect));
    all.retain(|places: &Vec<usize>| !places.is_empty());
    all.dedup();
    all
}
