//! What does `check` say of a record that is put together, and which of several is right?

use std::path::{Path, PathBuf};

use super::super::best_reading::fits;
use super::super::check::{check, checked_whole};
use super::super::report::Report;
use super::super::step_report::Status;
use super::super::tolerance::Tolerances;
use super::entries::with_cast_frequencies;
use base::error::Result;
use config::Settings;
use file::Record;
use foreign::NameMap;
use program::Name;

/// What is said of the first of these records in which nothing is wrong.
pub fn that_fits(
    others: Vec<(Record, String)>,
    path: &Path,
    tolerances: &Tolerances,
) -> Option<String> {
    let is_it = |(other, _): &(Record, String)| {
        fits(other, &Settings::default(), tolerances).is_ok_and(|fits| fits)
            && verdict(path, other, tolerances).is_ok_and(|report| report.is_same())
    };
    others.into_iter().find(is_it).map(|(_, told)| told)
}

/// The verdict on a record that states its run. A model that is cast to 16 bits as a whole has its frequencies in these, too:
/// what is right by such is right, and what is wrong beside is told by it.
pub fn verdict(path: &Path, record: &Record, tolerances: &Tolerances) -> Result<Report> {
    let (flags, map) = (Settings::default(), NameMap::default());
    let of = |record: Record| {
        checked_whole(path, record, &flags, &map, tolerances).map(|checked| checked.report)
    };
    let report = of(record.clone())?;
    if report.is_same() {
        return Ok(report);
    }
    let cast = with_cast_frequencies(record)?;
    let Some(mut cast) = cast.and_then(|cast| of(cast).ok()) else { return Ok(report) };
    // Other frequencies than were stated are just what was tried.
    cast.contradictions.retain(|own| own.step != Name::RopeFreqs);
    let wrong =
        |report: &Report| report.steps.iter().filter(|step| step.status == Status::Differs).count();
    Ok(if wrong(&cast) < wrong(&report) { cast } else { report })
}

/// The first step of a cache whose own record shows a mistake.
pub fn of_a_step(records: &[&PathBuf], tolerances: &Tolerances) -> Option<Report> {
    let (flags, map) = (Settings::default(), NameMap::default());
    let steps = records.iter().map(|path| check(path, &flags, &map, tolerances));
    steps.flatten().find(explains)
}

/// Whether a check names a mistake.
pub fn explains(report: &Report) -> bool {
    let diagnosis = report.diagnosis.as_ref().filter(|_| !report.is_same());
    diagnosis.is_some_and(|found| !found.findings.is_empty())
}
