//! Is what a kernel gave what it should be?

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

use super::answer::{Folder, Said, State};
use super::case::Case;
use base::error::{Result, quoted_path};
use check::{Finding, Report, Tolerances, check};
use config::{CausalAlign, EmptyRow, QkvFormat, Settings};
use file::{Entry, Output};
use foreign::NameMap;
use program::{Fill, Kind, Name};

use super::super::progress::Progress;

/// A case, and what became of it.
pub struct Judged<'a> {
    /// The case.
    pub case: &'a Case,
    /// How the kernel did.
    pub state: State,
    /// What was said of it where there were no numbers.
    pub said: String,
    /// What the check found in its numbers.
    pub report: Option<Report>,
}

impl Judged<'_> {
    /// Whether there is something wrong with it.
    pub fn is_wrong(&self) -> bool {
        !matches!(self.state, State::Same | State::Refused | State::Unchecked)
    }

    /// What explains its numbers, but for rounding.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        let diagnosis = self.report.iter().filter_map(|report| report.diagnosis.as_ref());
        let findings = diagnosis.flat_map(|diagnosis| &diagnosis.findings);
        findings.filter(|found| self.is_wrong() && !found.is_rounding())
    }

    /// In which precision its numbers were computed, where that is less than that of its inputs.
    pub fn precision(&self) -> Option<&str> {
        let diagnosis = self.report.as_ref()?.diagnosis.as_ref()?;
        let lower = diagnosis.findings.iter().find(|found| found.kind == Some(Kind::Precision))?;
        Some(&lower.summary)
    }

    /// The first step that is wrong.
    pub fn first(&self) -> Option<&str> {
        let first = self.report.as_ref()?.first_divergence()?;
        Some(&first.name)
    }
}

/// What nothing states and kernels do in one way or the other, both right: each is read off the first case that shows it.
struct Convention {
    shows: fn(&Case, &Settings) -> bool,
    is_stated: fn(&Settings) -> bool,
    ways: &'static [fn(&mut Settings)],
}

/// What is added to masked scores where rows without a key give all keys the same weight.
pub const FINITE: Fill = Fill(-1e9);

/// From here on no further case is checked where some are wrong already.
const PATIENCE: Duration = Duration::from_secs(20);

const CONVENTIONS: [Convention; 2] = [
    Convention {
        shows: |case, _| {
            let [.., queries, keys, _] = case.sizes();
            case.is_causal() && queries < keys
        },
        is_stated: |base| base.causal_align.is_some(),
        ways: &[
            |settled| settled.causal_align = Some(CausalAlign::BottomRight),
            |settled| settled.causal_align = Some(CausalAlign::TopLeft),
        ],
    },
    Convention {
        shows: Case::has_empty_rows,
        is_stated: |base| base.empty_rows.is_some() || base.mask_fill.is_some(),
        ways: &[
            |settled| settled.empty_rows = Some(EmptyRow::Zero),
            |settled| settled.empty_rows = Some(EmptyRow::Nan),
            // All keys are masked by the same finite number.
            |settled| settled.mask_fill = Some(FINITE),
        ],
    },
];

/// What the kernel made of all cases.
pub struct Sweep<'a> {
    /// The cases.
    pub judged: Vec<Judged<'a>>,
    /// What nothing stated, as the kernel has it.
    pub settled: Settings,
}

/// Judges what is in a folder. Files that differ stay in `keep`.
pub fn judge<'a>(
    cases: &'a [Case],
    base: &Settings,
    folder: &Folder,
    tolerances: &Tolerances,
    keep: Option<&Path>,
) -> Result<Sweep<'a>> {
    let format = base.qkv_format.unwrap_or_default();
    let judge = Judge { folder, format, tolerances };
    let mut settled = Settings {
        causal_align: base.causal_align,
        empty_rows: base.empty_rows,
        ..Settings::default()
    };
    for convention in CONVENTIONS.iter().filter(|one| !(one.is_stated)(base)) {
        judge.settle(convention, cases, &mut settled)?;
    }
    let _progress = Progress::of(tr!("checking {count} cases", count = cases.len()));
    let (start, some_wrong) = (Instant::now(), AtomicBool::new(false));
    // Shapes first: where time runs out, types are what is left.
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|at| cases.get(*at).map(|case| case.kind as u8));
    let one = |at: usize| {
        let Some(case) = cases.get(at) else { return Ok(None) };
        if some_wrong.load(Ordering::Relaxed) && start.elapsed() > PATIENCE {
            let said = String::new();
            return Ok(Some((at, Judged { case, state: State::Unchecked, said, report: None })));
        }
        let judged = judge.case(case, &settled, keep)?;
        some_wrong.fetch_or(judged.is_wrong(), Ordering::Relaxed);
        Ok(Some((at, judged)))
    };
    let judged = order.into_par_iter().with_max_len(1).map(one).collect::<Result<Vec<_>>>()?;
    let mut judged: Vec<(usize, Judged)> = judged.into_iter().flatten().collect();
    judged.sort_by_key(|(at, _)| *at);
    let judged = judged.into_iter().map(|(_, judged)| judged).collect();
    Ok(Sweep { judged, settled })
}

struct Judge<'a> {
    folder: &'a Folder,
    format: QkvFormat,
    tolerances: &'a Tolerances,
}

impl Judge<'_> {
    /// Settles what is open as the first case that shows it has it: of the ways the one that leaves fewer cells wrong.
    fn settle(&self, open: &Convention, cases: &[Case], settled: &mut Settings) -> Result<()> {
        let shows = |case: &&Case| (open.shows)(case, settled);
        let mut found = cases
            .iter()
            .filter(shows)
            .filter_map(|case| self.folder.answer(case, self.format).ok().map(|made| (case, made)));
        let Some((case, made)) = found.next() else { return Ok(()) };
        let mut best: Option<(usize, Settings)> = None;
        for way in open.ways {
            let mut with = settled.clone();
            way(&mut with);
            let report = self.checked(case, &with, made.clone(), None)?;
            let wrong = if report.is_same() { 0 } else { 1 + mismatched(&report) };
            if best.as_ref().is_none_or(|(least, _)| wrong < *least) {
                best = Some((wrong, with));
            }
        }
        if let Some((_, with)) = best {
            *settled = with;
        }
        Ok(())
    }

    fn case<'c>(
        &self,
        case: &'c Case,
        settled: &Settings,
        keep: Option<&Path>,
    ) -> Result<Judged<'c>> {
        let made = match self.folder.answer(case, self.format) {
            Ok(made) => made,
            Err(Said { state, said }) => {
                return Ok(Judged { case, state, said, report: None });
            }
        };
        if let Some(input) = copied(case, &made)? {
            let (state, said) = (State::Aliases, tr!("its output is {input}", input));
            return Ok(Judged { case, state, said, report: None });
        }
        let report = self.checked(case, settled, made, keep)?;
        let state = if report.is_same() { State::Same } else { State::Differs };
        Ok(Judged { case, state, said: String::new(), report: Some(report) })
    }

    /// Checks what was made of a case, as its file is checked.
    fn checked(
        &self,
        case: &Case,
        settled: &Settings,
        made: Vec<Entry>,
        keep: Option<&Path>,
    ) -> Result<Report> {
        let name = format!("{}.safetensors", case.name());
        let path = self.folder.0.join("checked").join(&name);
        let record = case.record(settled, made);
        Output::create(&path)?.write(&record)?;
        let report = check(&path, &Settings::default(), &NameMap::default(), self.tolerances)?;
        if let Some(keep) = keep.filter(|_| !report.is_same()) {
            let kept = keep.join(&name);
            Output::create(&kept)?.write(&record)?;
            return Ok(Report { path: quoted_path(&kept), ..report });
        }
        Ok(report)
    }
}

/// The input that the output is a copy of. Of one key the output is its value.
fn copied(case: &Case, made: &[Entry]) -> Result<Option<&'static str>> {
    let named = |entries: &[Entry], step: Name| {
        entries.iter().find(|entry| entry.name == step.as_str()).map(|entry| entry.tensor.clone())
    };
    let Some(output) = named(made, Name::HeadOutputs) else { return Ok(None) };
    let [.., queries, keys, _] = case.sizes();
    for (step, name) in [(Name::QHeads, "q"), (Name::KHeads, "k"), (Name::VHeads, "v")] {
        let Some(input) = named(&case.given, step).filter(|_| queries > 1 && keys > 1) else {
            continue;
        };
        let is_alike = input.dims() == output.dims() && input.dtype() == output.dtype();
        if is_alike && input.ne(&output)?.flatten_all()?.max(0)?.to_scalar::<u8>()? == 0 {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// How many cells of a report are wrong.
fn mismatched(report: &Report) -> usize {
    let steps = report.steps.iter().filter_map(|step| step.comparison.as_ref());
    steps.map(|found| found.mismatched).sum()
}
