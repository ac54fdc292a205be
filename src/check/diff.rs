//! How do two files differ?

use std::collections::HashSet;
use std::path::Path;

use super::check::check;
use super::finding::Diagnosis;
use super::report::Report;
use super::step_report::{StepReport, mark_inherited};
use super::tolerance::Tolerances;
use base::error::{Error, Result, bytes};
use base::lang::Language;
use base::memory::short_of;
use config::{Labels, Settings};
use file::{Bundle, Entry, Info, Record, open_place, split_path};
use foreign::{AxisOrder, Match, NameMap, Unmatched, fitting, meanings};
use program::{Axes, Axis, Dim, Name};
use run::Sources;

/// What is done about the steps that one side alone has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OneSided {
    /// They are a difference.
    #[default]
    Differ,
    /// They are named, and left out.
    LeftOut,
}

/// Compares two recorded files step by step; nothing is recomputed. Steps are paired by name, which `map` may give
/// them, else by names that mean one step, in whatever order of axes where a file names its axes. Two files of one
/// tensor each are compared whatever their names, but for the names of two steps, if these were not asked for.
///
/// # Errors
/// If a file cannot be read, or they have no step in common.
pub fn diff(
    left: &Path,
    right: &Path,
    map: &NameMap,
    tolerances: &Tolerances,
    one_sided: OneSided,
) -> Result<Report> {
    let report = Pair::open(left, right, map)?.report(left, tolerances, one_sided, None)?;
    Ok(with_its_mistake(report, [left, right]))
}

/// The most numbers of a file that is recomputed to name the mistake in it.
const NAMED: usize = 1 << 20;

/// The report with the mistake of the side that has one by its own numbers, or with what it contradicts and the other
/// side does not: of small files that state their run.
fn with_its_mistake(report: Report, sides: [&Path; 2]) -> Report {
    if report.is_same() {
        return report;
    }
    let is_small = |path: &Path| {
        let Ok(files) = open_place(path) else { return false };
        let counts = files.infos().iter().map(|info| info.shape.iter().product::<usize>());
        files.config().is_some() && counts.sum::<usize>() <= NAMED
    };
    let checked = |path: &Path| {
        let (flags, map) = (Settings::default(), NameMap::default());
        is_small(path).then(|| check(path, &flags, &map, &Tolerances::default()).ok()).flatten()
    };
    let [left, right] = sides;
    for (path, beside) in [(left, right), (right, left)] {
        let Some(Report { diagnosis, mut contradictions, .. }) = checked(path) else { continue };
        let mistakes = diagnosis.map(|diagnosis| diagnosis.findings).unwrap_or_default();
        let findings: Vec<_> =
            mistakes.into_iter().filter(|mistake| !mistake.is_rounding()).collect();
        if !contradictions.is_empty() {
            let others = checked(beside).map(|other| other.contradictions).unwrap_or_default();
            contradictions.retain(|one| !others.contains(one));
        }
        if !findings.is_empty() || !contradictions.is_empty() {
            let diagnosis = Some(Diagnosis { findings, ..Diagnosis::default() });
            let diagnosed = Some(path.display().to_string());
            return Report { contradictions, diagnosis, diagnosed, ..report };
        }
    }
    report
}

/// Two compared files: what was found, and what they hold.
#[derive(Debug, Clone)]
pub struct Compared {
    /// What was found.
    pub report: Report,
    /// What the left file holds, under the names of the report.
    pub left: Record,
    /// What the right file holds.
    pub right: Record,
}

/// The same as [`diff`], with the numbers.
///
/// # Errors
/// As [`diff`].
pub fn compared(
    left: &Path,
    right: &Path,
    map: &NameMap,
    tolerances: &Tolerances,
    one_sided: OneSided,
) -> Result<Compared> {
    let pair = Pair::open(left, right, map)?;
    let record = |files: &Bundle| Record { config: files.config().cloned(), entries: Vec::new() };
    let (mut own, mut other) = (record(&pair.left), record(&pair.right));
    let mut keep = |left: Option<Entry>, right: Option<Entry>| {
        own.entries.extend(left);
        other.entries.extend(right);
    };
    let report = pair.report(left, tolerances, one_sided, Some(&mut keep))?;
    let report = with_its_mistake(report, [left, right]);
    Ok(Compared { report, left: own, right: other })
}

/// Takes what the sides hold of a step.
type Keep<'k> = &'k mut dyn FnMut(Option<Entry>, Option<Entry>);

/// Two files that are to be compared, opened, with names as they were mapped.
struct Pair {
    left: Bundle,
    right: Bundle,
    lines: Vec<Line>,
    matches: Vec<Match>,
}

/// A line of the report: the tensor on the left, that on the right, or both, by what is known of them and their places.
enum Line {
    Both(Known, Known),
    Left(Known),
    Right(Known),
}

/// A tensor that has not been read.
struct Known {
    at: usize,
    info: Info,
}

impl Pair {
    fn open(left: &Path, right: &Path, map: &NameMap) -> Result<Self> {
        let both_chosen = [left, right].into_iter().all(names_a_tensor);
        let spoken = Language::spoken();
        let open = |place| spoken.within(|| open_place(place));
        let (left, right) = rayon::join(|| open(left), || open(right));
        let (mut left, mut right) = (left?, right?);
        let matches = map.apply(&mut [left.names_mut(), right.names_mut()])?;
        let lines = pair_up(left.infos(), right.infos(), both_chosen);
        Ok(Self { left, right, lines, matches })
    }

    /// Compares step by step. No more than one step of each side is in memory, but for what `keep` takes.
    fn report(
        mut self,
        path: &Path,
        tolerances: &Tolerances,
        one_sided: OneSided,
        mut keep: Option<Keep>,
    ) -> Result<Report> {
        let (mut steps, mut unmatched) = (Vec::new(), Vec::new());
        let mut lone = |name: &str, side: &str| match one_sided {
            OneSided::Differ => Some(StepReport::missing(name)),
            OneSided::LeftOut => {
                let why = tr!("only in the {side} file", side);
                unmatched.push(Unmatched { tensor: name.to_owned(), why });
                None
            }
        };
        for line in std::mem::take(&mut self.lines) {
            let (left, right) = match line {
                Line::Both(own, other) => {
                    let (step, left, right) =
                        self.step(path, &own, &other, tolerances, keep.is_some())?;
                    steps.push(step);
                    (left, right)
                }
                Line::Left(own) => {
                    steps.extend(lone(&own.info.name, "left"));
                    (keep.is_some().then(|| self.left.entry(own.at)).transpose()?, None)
                }
                Line::Right(other) => {
                    steps.extend(lone(&other.info.name, "right"));
                    (None, keep.is_some().then(|| self.right.entry(other.at)).transpose()?)
                }
            };
            if let Some(keep) = &mut keep {
                keep(left, right);
            }
        }
        mark_inherited(&mut steps, Name::descendants, &[], &[]);
        let (labels, matches) = (self.labels()?, self.matches);
        Ok(Report { labels, matches, unmatched, ..Report::of(path, steps, tolerances)? })
    }

    /// A step that both sides have, and what they hold of it if that was read: numbers that stand in the files as they are to
    /// be compared are not read whole, unless they are kept.
    fn step(
        &mut self,
        path: &Path,
        own: &Known,
        other: &Known,
        tolerances: &Tolerances,
        is_kept: bool,
    ) -> Result<(StepReport, Option<Entry>, Option<Entry>)> {
        let (Known { at, info }, Known { at: partner, info: beside }) = (own, other);
        let name = &info.name;
        let axes = info.axes.as_ref().and_then(|axes| named_axes(axes, &info.shape));
        let taken = || Match::as_it_is(name, &beside.name);
        // Of the same axes there is one order.
        let is_plain = info.shape == beside.shape && info.axes == beside.axes && !is_kept;
        let in_files = self.left.in_file(*at).zip(self.right.in_file(*partner));
        if let Some((left, right)) = in_files.filter(|_| is_plain) {
            if *name != beside.name {
                self.matches.push(taken().read(tr!("the name beside it")));
            }
            let sides = [&left, &right];
            let step = StepReport::in_files(name, sides, &info.shape, axes.as_ref(), tolerances)?;
            return Ok((step, None, None));
        }
        let count = |info: &Info| info.shape.iter().product::<usize>();
        refuse_beyond_memory(path, count(info).max(count(beside)))?;
        let (left, right) = (&mut self.left, &mut self.right);
        let (left, right) = rayon::join(|| left.entry(*at), || right.entry(*partner));
        let (mut left, mut right) = (left?, right?);
        let order = in_one_order(&mut left, &mut right, orders(info, beside))?;
        if *name != beside.name || order.is_some() {
            self.matches.push(match order {
                Some(order) => taken().read(tr!("axes {order}", order)),
                None => taken().read(tr!("the name beside it")),
            });
        }
        right.name.clone_from(name);
        let axes = left.axes.as_ref().and_then(|axes| named_axes(axes, left.tensor.dims()));
        let step = StepReport::of(name, &left.tensor, &right.tensor, axes.as_ref(), tolerances)?;
        Ok((step, Some(left), Some(right)))
    }

    /// The labels of the left side's tokens, if it has any.
    fn labels(&mut self) -> Result<Option<Labels>> {
        let Some(settings) = self.left.config().cloned() else { return Ok(None) };
        if settings.tokens.is_none() && settings.memory_tokens.is_none() {
            return Ok(None);
        }
        let is_given = |info: &Info| Name::in_files(&info.name).is_some_and(Name::is_given);
        let places = self.left.infos().iter().enumerate().filter(|(_, info)| is_given(info));
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        let entries = places.into_iter().map(|at| self.left.entry(at)).collect::<Result<_>>()?;
        let record = Record { config: None, entries };
        let config = Sources::recorded(&record, settings.start.unwrap_or_default(), |_| true)
            .resolve(&settings);
        Ok(config.ok().and_then(|config| config.labels()))
    }
}

/// Refuses so many elements that the machine cannot hold them on both sides once more, as numbers of eight bytes, and
/// their difference.
fn refuse_beyond_memory(path: &Path, count: usize) -> Result<()> {
    let needed = (count as u128).saturating_mul(3 * 8);
    let Some(left) = short_of(needed) else { return Ok(()) };
    let what = tr!("takes {needed} to compare, and {left}", needed = bytes(needed), left);
    Err(Error::file(
        path,
        what,
        "compare one tensor at a time, as FILE:TENSOR, or free some memory",
    ))
}

/// Puts the tensors on the right beside those on the left that they mean: by name, or where only one of that shape means the
/// same step.
fn pair_up(left: &[Info], right: &[Info], both_chosen: bool) -> Vec<Line> {
    let both_single = left.len() == 1 && right.len() == 1;
    let names: HashSet<&str> = left.iter().map(|info| info.name.as_str()).collect();
    let mut taken = HashSet::new();
    let known = |at: usize, info: &Info| Known { at, info: info.clone() };
    let mut lines = Vec::new();
    for (at, info) in left.iter().enumerate() {
        let exact = right.iter().position(|other| other.name == info.name);
        let found = exact.or_else(|| {
            let fits = |other: &Info| other.shape == info.shape || !orders(info, other).is_empty();
            let may_be = |other: &Info| {
                let is_meant = mean_one_step(&other.name, &info.name) && fits(other)
                    || both_single && (both_chosen || !mean_two_steps(&other.name, &info.name));
                !names.contains(other.name.as_str()) && is_meant
            };
            let all = right.iter().enumerate();
            let mut all = all.filter(|(at, other)| !taken.contains(at) && may_be(other));
            all.next().filter(|_| all.next().is_none()).map(|(at, _)| at)
        });
        lines.push(match found.and_then(|at| Some((at, right.get(at)?))) {
            Some((partner, other)) => {
                taken.insert(partner);
                Line::Both(known(at, info), known(partner, other))
            }
            None => Line::Left(known(at, info)),
        });
    }
    let lone = right.iter().enumerate().filter(|(at, _)| !taken.contains(at));
    lines.extend(lone.map(|(at, info)| Line::Right(known(at, info))));
    lines
}

/// The orders that the axes of one of two tensors can have where the other's are named: of the right one, or of the left one
/// where that has no names.
fn orders(left: &Info, right: &Info) -> Vec<AxisOrder> {
    let (named, open) = if left.axes.is_some() { (left, right) } else { (right, left) };
    let axes = named.axes.as_ref().and_then(|axes| named_axes(axes, &named.shape));
    let orders = axes.map(|axes| AxisOrder::all(&axes, &open.shape)).unwrap_or_default();
    let stated = |order: &AxisOrder| open.axes.as_ref().is_none_or(|axes| order.names() == *axes);
    orders.into_iter().filter(stated).collect()
}

/// Brings one of two tensors into the order of axes that the other's file names, of those that it can have, and tells which
/// it had.
fn in_one_order(
    left: &mut Entry,
    right: &mut Entry,
    orders: Vec<AxisOrder>,
) -> Result<Option<AxisOrder>> {
    let (named, open) = if left.axes.is_some() { (left, right) } else { (right, left) };
    let read = orders.iter().map(|order| (order, &named.tensor));
    let nearest = fitting(&open.tensor, read)?.unwrap_or(0);
    let Some(order) = orders.into_iter().nth(nearest).filter(|order| !order.is_plain()) else {
        return Ok(None);
    };
    open.tensor = order.apply(&open.tensor)?;
    open.axes.clone_from(&named.axes);
    Ok(Some(order))
}

/// Whether two names can mean one step.
fn mean_one_step(left: &str, right: &str) -> bool {
    let right = meanings(right);
    meanings(left).iter().any(|step| right.contains(step))
}

/// Whether a place is one tensor of a file, or a file that can hold one alone.
fn names_a_tensor(place: &Path) -> bool {
    let (path, asked) = split_path(place);
    asked.is_some() || path.extension().is_some_and(|extension| extension == "npy")
}

/// Whether two names mean steps, and no step is among those of both.
fn mean_two_steps(left: &str, right: &str) -> bool {
    !meanings(left).is_empty() && !meanings(right).is_empty() && !mean_one_step(left, right)
}

/// The axes that a file names, where they are known and as many as the tensor has.
fn named_axes(names: &[String], dims: &[usize]) -> Option<Axes> {
    let axes: Option<Vec<Dim>> =
        names.iter().zip(dims).map(|(name, size)| Some((Axis::named(name)?, *size))).collect();
    axes.filter(|axes| axes.len() == dims.len()).map(Axes::new)
}
