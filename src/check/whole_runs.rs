//! The mistakes that whole runs show, where the steps that were recorded are too few to show them singly.
//!
//! A run is repeated with every mistake in it; where no single one gives what was recorded, with every pair of those
//! that have a name. All are tried on a few query rows of one item of the batch first, those that are furthest off: rows
//! and items do not depend on each other, and what does not fit there need not be run whole.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::catalogue::{Situation, catalogue};
use super::clues::parts;
use super::evidence::Evidence;
use super::finding::{Diagnosis, Finding, Pairs, add};
use super::fit::{is_as_near, refined};
use super::fit_norms;
use super::grammar::cost::{COMMON, ODD};
use super::grammar::numbers::{plain, with_number};
use super::hypothesis::{Hypothesis, hypotheses};
use super::level::{Level, distance_in};
use super::mistakes::{Range, knobs};
use super::replay::{Made, Outcome, Replay};
use base::error::Result;
use program::{Axis, Kind, Name, Part};

/// How long pairs of mistakes may take, as estimated beforehand.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Where all steps together have more numbers than this, a rare mistake that the smallest part does not show is not tried.
const RARE_UNTRIED: u128 = 1 << 23;

/// How many pairs are listed where more fit.
const LISTED: usize = 10;

/// A run with one mistake of two, made where it is first needed; nothing where it cannot be made.
type Base = OnceCell<Option<Outcome>>;

/// What whole runs show.
pub struct WholeRuns<'a> {
    evidence: &'a Evidence<'a>,
    /// The run, and parts of it, the smallest first and the whole last.
    levels: Vec<Level<'a>>,
    /// A part that is smaller yet, where query rows see few keys. Not every mistake can be made there.
    of_few_keys: Option<Level<'a>>,
}

impl<'a> WholeRuns<'a> {
    /// The run of the evidence, in which the steps of `settled` are wrong for a reason of their own.
    ///
    /// # Errors
    /// If candle fails.
    pub fn new(evidence: &'a Evidence<'a>, settled: &'a HashSet<Name>) -> Result<Self> {
        let Evidence { trace, recorded, noise, .. } = evidence;
        let whole = Level::new(Vec::new(), Replay::new(trace, recorded, settled, noise))?;
        let mut levels = vec![whole];
        let parts = match levels.first() {
            Some(whole) => whole.worst()?,
            None => Vec::new(),
        };
        let mut of_few_keys = None;
        for part in parts {
            let Some(last) = levels.last() else { break };
            if matches!(part, Part::Rows(_)) {
                of_few_keys = last.of_few_keys(noise)?;
            }
            if let Some(replay) = last.replay.narrowed(part)? {
                let parts = last.parts.iter().copied().chain([part]).collect();
                levels.push(Level::new(parts, replay)?);
            }
        }
        levels.reverse();
        Ok(Self { evidence, levels, of_few_keys })
    }

    /// The parts of the run and the whole, the smallest first.
    fn all(&self) -> impl Iterator<Item = &Level<'a>> {
        self.of_few_keys.iter().chain(&self.levels)
    }

    /// The whole run.
    fn whole(&self) -> Option<&Level<'a>> {
        self.levels.last()
    }

    /// The recorded steps that a run without a mistake does not give, but for those that are settled.
    pub fn unproven(&self) -> Vec<Name> {
        let disagreeing = self.whole().map(|whole| whole.replay.disagreeing(&whole.right));
        disagreeing.into_iter().flatten().map(|(name, ..)| name).collect()
    }

    /// The mistakes that give every recorded step: single ones, then such with a fitted number, then pairs of those
    /// with a name. Pairs that would take longer than `patience` are not tried.
    ///
    /// # Errors
    /// If candle fails.
    pub fn explain(&self, patience: Duration) -> Result<Diagnosis> {
        let Evidence { config, trace, .. } = self.evidence;
        let all = hypotheses(&Situation { config, right: trace, recorded: None })?;
        let started = Instant::now();
        // Rounding shows at single steps; what is far-fetched there is not looked for where less was recorded.
        let mut tells = false;
        for step in self.unproven() {
            tells = tells || self.evidence.tells(step)?;
        }
        let is_likely = |made: &&Hypothesis| {
            made.kind != Kind::Precision && made.cost < ODD && (tells || made.is_known())
        };
        let norms = if tells { self.norms()? } else { Vec::new() };
        let mut likely: Vec<&Hypothesis> =
            norms.iter().chain(all.iter().filter(is_likely)).collect();
        likely.sort_by_key(|made| made.cost);
        let (mut fitting, untried) = self.cheapest(&likely, patience)?;
        // Rounding of 16 bits leaves room for a mistake with a name where norms have another ε.
        if fitting.iter().any(Finding::is_known) {
            for finding in self.fitting(&norms.iter().collect::<Vec<_>>())? {
                add(&mut fitting, finding);
            }
        }
        let spent = started.elapsed();
        let tried = u32::try_from(likely.len().max(1)).unwrap_or(u32::MAX);
        if fitting.is_empty() && untried.is_none() && tells {
            fitting = self.fitted()?;
        }
        if fitting.is_empty() && untried.is_none() && tells {
            fitting = self.confined(&all)?;
        }
        if !fitting.is_empty() {
            return Ok(Diagnosis { findings: fitting, ..Diagnosis::default() });
        }
        let left_out = self.is_large();
        let too_long = |estimate: Duration| {
            let pairs = Pairs::TooLong(estimate);
            Ok(Diagnosis { pairs, left_out, ..Diagnosis::default() })
        };
        if let Some(estimate) = untried {
            return too_long(estimate);
        }
        let named = all.iter().filter(|made| made.is_known());
        let named: Vec<Made> = named.filter_map(|made| Made::of(made, trace)).collect();
        let pairs = u32::try_from(named.len() * named.len() / 2).unwrap_or(u32::MAX);
        let estimate = (spent / tried).saturating_mul(pairs);
        if estimate > patience {
            return too_long(estimate);
        }
        let mut findings = self.pairs(&named)?;
        let unlisted = findings.len().saturating_sub(LISTED);
        findings.truncate(LISTED);
        let pairs = Pairs::Tried { unlisted };
        Ok(Diagnosis { findings, pairs, left_out, ..Diagnosis::default() })
    }

    /// The findings of those mistakes that fit: those with a name in their order, and of the others the one that comes
    /// nearest to what was recorded first.
    fn fitting(&self, all: &[&Hypothesis]) -> Result<Vec<Finding>> {
        let tried = all.par_iter().map(|hypothesis| {
            let Some(made) = Made::of(hypothesis, self.evidence.trace) else { return Ok(None) };
            let finding = || hypothesis.finding(made.first_site());
            Ok(self.gain(&made)?.map(|gain| (gain, *hypothesis, finding())))
        });
        let tried = tried.collect::<Result<Vec<_>>>()?;
        let mut fitting: Vec<(f64, &Hypothesis, Finding)> = tried.into_iter().flatten().collect();
        let gains = fitting.iter().filter(|(_, made, _)| !made.is_known()).map(|(gain, ..)| *gain);
        let most = gains.fold(f64::NEG_INFINITY, f64::max);
        fitting.sort_by_key(|(gain, made, _)| !made.is_known() && !is_as_near(*gain, most));
        let (mut told, mut findings): (Vec<&Hypothesis>, Vec<Finding>) = (Vec::new(), Vec::new());
        let precision = self.evidence.precision();
        for (_, made, finding) in fitting {
            if made.is_known() || !told.iter().any(|other| made.has_number_of(other, precision)) {
                told.push(made);
                findings.push(finding);
            }
        }
        Ok(findings)
    }

    /// The mistakes that norms have another ε, fitted on the smallest part and then on the whole.
    fn norms(&self) -> Result<Vec<Hypothesis>> {
        let trace = self.evidence.trace;
        let by = |levels| {
            move |hypothesis: &Hypothesis| match Made::of(hypothesis, trace) {
                Some(made) => distance_in(levels, &made),
                None => Ok(f64::INFINITY),
            }
        };
        let fitted = fit_norms::norms(trace).into_par_iter().map(|norms| {
            let sizes = &self.evidence.config.sizes;
            let whole = self.levels.len().saturating_sub(1);
            fit_norms::fitted(trace, &norms, sizes, by(&self.levels), by(&self.levels[whole..]))
        });
        Ok(fitted.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
    }

    /// The cheapest mistakes that fit, of some that are in order of cost; or else, where those left would take longer than
    /// `patience`, how long. Those of the first cost are tried however long it takes.
    fn cheapest(
        &self,
        all: &[&Hypothesis],
        patience: Duration,
    ) -> Result<(Vec<Finding>, Option<Duration>)> {
        let (started, mut tried) = (Instant::now(), 0_u32);
        let mut fitting = Vec::new();
        for equal in all.chunk_by(|left, right| left.cost == right.cost) {
            let count = u32::try_from(equal.len()).unwrap_or(u32::MAX);
            if tried > 0 {
                let estimate = (started.elapsed() / tried).saturating_mul(count);
                if estimate > patience {
                    return Ok((fitting, Some(estimate)));
                }
            }
            for finding in self.fitting(equal)? {
                add(&mut fitting, finding);
            }
            // What is further off than one that fits need not be tried.
            if !fitting.is_empty() {
                break;
            }
            tried = tried.saturating_add(count);
        }
        Ok((fitting, None))
    }

    /// Whether rare mistakes that the smallest part does not show are not tried.
    fn is_large(&self) -> bool {
        let numbers = self.evidence.trace.steps().iter().map(|step| step.axes.count());
        self.levels.len() > 1 && numbers.sum::<u128>() > RARE_UNTRIED
    }

    /// How much nearer to what was recorded a run with one mistake comes, if it gives every recorded step, and would not
    /// without it.
    fn gain(&self, made: &Made) -> Result<Option<f64>> {
        let Some((whole, parts)) = self.levels.split_last() else { return Ok(None) };
        for part in self.of_few_keys.iter().chain(parts) {
            let Some(program) = part.program(&made.program) else {
                let is_smallest = parts.first().is_some_and(|first| std::ptr::eq(first, part));
                if is_smallest && made.hypothesis.cost > COMMON && self.is_large() {
                    return Ok(None);
                }
                continue;
            };
            match part.replay.with(&part.right, made.first_site(), &program)? {
                Some(run) if run.fits() => {}
                Some(_) | None => return Ok(None),
            }
        }
        let Some(run) = whole.run(made)? else { return Ok(None) };
        let right = &whole.right;
        let fits = run.fits()
            && whole.replay.is_apart(&run, right)?
            && whole.replay.is_nearer(&run, right)?;
        fits.then(|| whole.replay.gain(&run, right)).transpose()
    }

    /// The mistakes that give every recorded step with a number that is fitted on the smallest part.
    fn fitted(&self) -> Result<Vec<Finding>> {
        let mut found = Vec::new();
        let trace = self.evidence.trace;
        let sizes = &self.evidence.config.sizes;
        for step in trace.steps() {
            for knob in knobs(&step.op) {
                if !matches!(knob.range, Range::Factor | Range::Positive) {
                    continue;
                }
                let error = |value: f64| {
                    let hypothesis = with_number(step.name, &knob, value, sizes);
                    let made = hypothesis.as_ref().and_then(|made| Made::of(made, trace));
                    made.map_or(Ok(f64::INFINITY), |made| distance_in(&self.levels, &made))
                };
                let Some(best) = refined(knob.value.abs(), &error)? else { continue };
                for value in [plain(best, &knob, sizes), best] {
                    let Some(hypothesis) = with_number(step.name, &knob, value, sizes) else {
                        continue;
                    };
                    let Some(made) = Made::of(&hypothesis, trace) else { continue };
                    if self.gain(&made)?.is_some() {
                        add(&mut found, hypothesis.finding(made.first_site()));
                        break;
                    }
                }
            }
        }
        Ok(found)
    }

    /// The mistakes that give every recorded step if they are made at some items, rows or heads alone. Items and rows are
    /// those that are off; heads are tried.
    fn confined(&self, all: &[Hypothesis]) -> Result<Vec<Finding>> {
        let Some(whole) = self.whole() else { return Ok(Vec::new()) };
        let Some((name, recorded, value)) = whole.replay.disagreeing(&whole.right).next() else {
            return Ok(Vec::new());
        };
        let trace = self.evidence.trace;
        let Some(step) = trace.step(name) else { return Ok(Vec::new()) };
        let off = parts(&self.evidence.noise, step, recorded, value)?;
        let off: Vec<(Axis, Vec<usize>)> = off
            .into_iter()
            .filter_map(|(at, places)| Some((step.axes.iter().nth(at)?.0, places)))
            .filter(|(axis, _)| matches!(axis, Axis::Batch | Axis::Query))
            .collect();
        let mut confined = Vec::new();
        for hypothesis in all.iter().filter(|made| made.cost <= COMMON) {
            let Some(edited) = hypothesis.edits.first().and_then(|edit| trace.step(edit.at)) else {
                continue;
            };
            for (at, (axis, size)) in
                edited.axes.iter().enumerate().filter(|(_, (_, size))| *size > 1)
            {
                let of_axis = off.iter().filter(|(own, _)| *own == axis);
                let mut choices: Vec<Vec<usize>> =
                    of_axis.map(|(_, places)| places.clone()).collect();
                if axis == Axis::Head {
                    choices.extend(some_of(size));
                }
                let of = |places: Vec<usize>| hypothesis.confined((at, axis), &places);
                confined.extend(choices.into_iter().filter_map(of));
            }
        }
        confined.sort_by_key(|made| made.cost);
        let confined: Vec<&Hypothesis> = confined.iter().collect();
        Ok(self.cheapest(&confined, Duration::MAX)?.0)
    }

    /// The pairs of named mistakes that give every recorded step, the simplest first.
    fn pairs(&self, named: &[Made]) -> Result<Vec<Finding>> {
        let mut pairs: Vec<[&Made; 2]> = Vec::new();
        let ids =
            |[one, other]: &[&Made; 2]| BTreeSet::from([one.hypothesis.id, other.hypothesis.id]);
        let fitting = named.par_iter().map(|first| {
            let bases: Vec<Base> = self.all().map(|_| OnceCell::new()).collect();
            let mut fitting = Vec::new();
            for second in named.iter().filter(|second| self.can_follow(first, second)) {
                if self.fits_both(&bases, first, second)? {
                    fitting.push([first, second]);
                }
            }
            Ok(fitting)
        });
        for pair in fitting.collect::<Result<Vec<_>>>()?.into_iter().flatten() {
            if !pairs.iter().any(|known| ids(known) == ids(&pair)) {
                pairs.push(pair);
            }
        }
        let all = catalogue();
        let place = |made: &Made| all.iter().position(|one| one.id == made.hypothesis.id);
        pairs.sort_by_key(|[first, second]| {
            let (first, second) = (place(first), place(second));
            (first.min(second), first.max(second))
        });
        let finding = |made: &Made| made.hypothesis.finding(made.first_site());
        let pair = |[first, second]: [&Made; 2]| {
            let with = Some(Box::new(finding(second)));
            Finding { with, ..finding(first) }
        };
        Ok(pairs.into_iter().map(pair).collect())
    }

    /// Whether two can be made together, the second at no earlier step than the first.
    fn can_follow(&self, first: &Made, second: &Made) -> bool {
        let at = |made: &Made| self.evidence.trace.position(made.first_site());
        first.hypothesis.id != second.hypothesis.id
            && !first.hypothesis.contradicts(second.hypothesis)
            && at(first) <= at(second)
    }

    /// Whether two mistakes together give every recorded step, and neither may be left out. `bases` are the runs with
    /// the first alone, of every level that was looked at.
    fn fits_both(&self, bases: &[Base], first: &Made, second: &Made) -> Result<bool> {
        let Some(both) = first.program.edited(&second.hypothesis.edits).ok() else {
            return Ok(false);
        };
        let Some(whole) = self.whole() else { return Ok(false) };
        let mut last = None;
        for (level, base) in self.all().zip(bases) {
            let is_whole = level.parts.is_empty();
            let base = if let Some(base) = base.get() {
                base
            } else {
                let run = level.run(first)?;
                base.get_or_init(|| run)
            };
            let (Some(program), Some(base)) = (level.program(&both), base) else {
                if is_whole {
                    return Ok(false);
                }
                continue;
            };
            // The other may show in the rest of the run alone.
            if !is_whole && base.fits() {
                continue;
            }
            match level.replay.with(base, second.first_site(), &program)? {
                Some(run) if run.fits() => last = Some((run, base)),
                Some(_) | None => return Ok(false),
            }
        }
        let Some((run, base)) = last else { return Ok(false) };
        if !whole.replay.is_apart(&run, base)? {
            return Ok(false);
        }
        // Apart from every run with the second alone.
        match whole.run(second)? {
            Some(alone) => whole.replay.is_apart(&run, &alone),
            None => Ok(true),
        }
    }
}

/// The heads that people leave out or treat alone: each one, all but one at an end, the halves.
fn some_of(count: usize) -> Vec<Vec<usize>> {
    let each = (0..count).map(|head| vec![head]);
    let mut all: Vec<Vec<usize>> = each.collect();
    all.push((1..count).collect());
    all.push((0..count - 1).collect());
    all.push((0..count / 2).collect());
    all.push((count / 2..count).collect());
    all.retain(|places| !places.is_empty());
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::slice;

    use candle_core::Tensor;

    use super::*;
    use crate::replay::Replay;
    use config::{Mask, Pairing, QkNorm, Settings};
    use program::{Part, QueryRows, Trace};
    use run::{Run, Sources, to_record};

    fn run(settings: &Settings) -> Run {
        Run::new(settings, Sources::default()).expect("valid")
    }

    fn small() -> Settings {
        Settings {
            batch: Some(2),
            seq_len: Some(5),
            d_model: Some(12),
            heads: Some(3),
            bias: Some(true),
            lengths: Some(vec![5, 0]),
            ..Settings::default()
        }
    }

    /// What is given, and an output that no known mistake makes.
    fn recorded(trace: &Trace) -> HashMap<Name, Tensor> {
        let steps = trace.steps().iter().filter(|step| !step.is_computed());
        let mut recorded: HashMap<_, _> =
            steps.map(|step| (step.name, step.value.clone())).collect();
        let output = &trace.step(Name::Output).expect("there").value;
        let count = f64::from(u32::try_from(output.elem_count()).expect("few"));
        let waves = Tensor::arange(0.0, count, output.device()).expect("counts");
        let waves = waves.sin().and_then(|waves| waves.reshape(output.shape())).expect("fits");
        let waves = waves.to_dtype(output.dtype()).expect("converts");
        recorded.insert(Name::Output, (output + waves).expect("adds"));
        recorded
    }

    /// Sums are added up in another order, some mistakes divide by next to nothing, and some add up fills of 1e9, of which
    /// the rounding of f32 is left where they cancel.
    fn is_near(left: &Tensor, right: &Tensor) -> bool {
        let values = |tensor: &Tensor| {
            let flat = tensor.flatten_all().and_then(|flat| flat.to_dtype(candle_core::DType::F64));
            flat.and_then(|flat| flat.to_vec1::<f64>()).expect("numbers")
        };
        let (left, right) = (values(left), values(right));
        let most = right
            .iter()
            .filter(|value| value.is_finite())
            .fold(0.0, |most, value| value.abs().max(most));
        let near = |(left, right): (&f64, &f64)| {
            let is_number = left.is_finite() && right.is_finite();
            let room = 1e-3 * (1.0 + left.abs().max(right.abs())) + 1e-6 * most;
            !is_number || (left - right).abs() <= room
        };
        left.len() == right.len() && left.iter().zip(&right).all(near)
    }

    #[test]
    fn pairs_that_would_take_too_long_are_not_tried() {
        let run = run(&small());
        let trace = run.trace().expect("runs");
        let recorded = recorded(&trace);
        let record = to_record(&trace, run.config());
        let evidence = Evidence::new(run.config(), &trace, &recorded, &record).expect("measures");
        let settled = HashSet::new();
        let runs = WholeRuns::new(&evidence, &settled).expect("runs");
        let hasty = runs.explain(Duration::ZERO).expect("explains");
        assert!(matches!(hasty.pairs, Pairs::TooLong(time) if time > Duration::ZERO));
        let patient = runs.explain(PATIENCE).expect("explains");
        assert_eq!(patient.pairs, Pairs::Tried { unlisted: 0 });
        assert!(hasty.findings.is_empty() && patient.findings.is_empty());
    }

    /// Else a mistake would be given up for what it does to a part of the run.
    #[test]
    fn a_mistake_gives_a_part_what_it_gives_it_in_the_whole() {
        let modern = Settings {
            seq_len: Some(7),
            heads: Some(4),
            d_model: Some(24),
            kv_heads: Some(2),
            rope: Some(Pairing::Half),
            qk_norm: Some(QkNorm::Rms),
            window: Some(3),
            softcap: Some(2.0),
            lengths: Some(vec![7, 4]),
            ..small()
        };
        let parts = [
            vec![Part::Item(0)],
            vec![Part::Item(1)],
            vec![Part::Rows(QueryRows { first: 2, count: 3 })],
            vec![Part::Item(1), Part::Rows(QueryRows { first: 1, count: 2 })],
        ];
        let causal = Settings {
            lengths: None,
            seq_len: Some(9),
            mask: Some(Mask::Causal),
            alibi: Some(true),
            ..small()
        };
        let rotated = Settings {
            alibi: None,
            rope: Some(Pairing::Half),
            d_model: Some(24),
            ..causal.clone()
        };
        let few_keys = vec![
            Part::Item(1),
            Part::Rows(QueryRows { first: 1, count: 2 }),
            Part::Keys(3),
            Part::Tokens { count: 3, all: 9 },
        ];
        let (mut tried, mut with_few_keys, settled) = (0, 0, HashSet::new());
        for settings in [small(), modern, causal, rotated] {
            let run = run(&settings);
            let trace = run.trace().expect("runs");
            let record = to_record(&trace, run.config());
            let evidence =
                Evidence::new(run.config(), &trace, &HashMap::new(), &record).map(|e| e.noise);
            let noise = evidence.expect("measures");
            let replay = || Replay::new(&trace, &HashMap::new(), &settled, &noise);
            let whole = Level::new(Vec::new(), replay()).expect("runs");
            let own = if settings.mask.is_some() { slice::from_ref(&few_keys) } else { &parts };
            let levels: Vec<Level> = own
                .iter()
                .map(|parts| {
                    let narrow = parts.iter().fold(replay(), |replay, part| {
                        replay.narrowed(*part).expect("narrows").expect("is a part")
                    });
                    Level::new(parts.clone(), narrow).expect("runs")
                })
                .collect();
            let situation = Situation { config: run.config(), right: &trace, recorded: None };
            for hypothesis in &hypotheses(&situation).expect("lists") {
                let Some(made) = Made::of(hypothesis, &trace) else { continue };
                let Some(all) = whole.run(&made).expect("runs") else { continue };
                for level in &levels {
                    let Some(part) = level.run(&made).expect("runs") else { continue };
                    for site in &made.sites {
                        let (Some(all), Some(own)) = (all.value(*site), part.value(*site)) else {
                            continue;
                        };
                        let step = trace.step(*site).expect("there");
                        let wanted = level.parts.iter().fold(all.clone(), |value, part| {
                            // What is cut already is not cut again.
                            let of = part.within(step).filter(|at| {
                                step.axes.iter().nth(*at).map(|(_, size)| size)
                                    == Some(value.dims()[*at])
                            });
                            of.map_or(value.clone(), |at| part.of(&value, at).expect("narrows"))
                        });
                        let (told, parts) = (&hypothesis.summary, &level.parts);
                        assert!(is_near(own, &wanted), "{told} at {site} on {parts:?}");
                        tried += 1;
                        with_few_keys += usize::from(level.has_few_keys());
                    }
                }
            }
        }
        assert!(tried >= 5000, "only {tried}");
        assert!(with_few_keys >= 1000, "only {with_few_keys} with few keys");
    }
}
