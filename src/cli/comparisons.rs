//! What do the commands do that compare files, from their flags to reports?

use std::path::{Path, PathBuf};

use base::error::{Error, Result, quoted_path, refuse};
use check::{self, OneSided, Report, Tolerances, reports_json};
use file::{recorded_in, split_path};
use serde_json::json;
use view::{Sides, Tables, by_layer_html, by_layer_page, checked_html, compared_html, report_page};

use super::args::{CheckArgs, DiffArgs, Format, ReportArgs, ToleranceArgs};
use super::commands::print_matches;
use super::meant::refuse_step;
use super::outcome::Outcome;
use super::outputs::open_page;
use super::progress::Progress;
use super::values::flag;
use super::written::{print_json, report};

/// What the sides of a checked file are called, and those of two compared ones.
fn of_checked() -> Sides<'static> {
    (tr!("recorded"), tr!("recomputed"))
}

fn of_compared() -> Sides<'static> {
    (tr!("left"), tr!("right"))
}

/// Recomputes recorded files. A file that cannot be checked is told, and the others are checked all the same.
pub fn check(args: &CheckArgs) -> Result<Outcome> {
    let flags = args.run.settings()?;
    let map = args.names.map();
    let tolerances = Tolerances {
        noise_counts: args.fail_on_noise,
        ignores_padding: args.ignore_padding,
        ignores_gradients: args.ignore_gradients,
        flash: args.flash_tolerance,
        ..args.tolerances.tolerances()
    };
    let (mut reports, mut paths, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut fail = |path: &Path, error: Error| {
        report(&error);
        refused.push(path.display().to_string());
    };
    for path in &args.paths {
        match recorded_at(path) {
            Ok(recorded) => paths.extend(recorded),
            Err(error) => fail(path, error),
        }
    }
    let page = open_page(args.output.as_ref(), &[&paths[..], &args.run.files()].concat())?;
    if page.is_some() && paths.len() > 1 {
        let what =
            tr!("-o writes a page about one file, but {paths} are checked", paths = paths.len());
        return refuse(what, "check only the file that the page is about");
    }
    let mut html = None;
    for path in &paths {
        let progress = Progress::of(tr!("checking {path}", path = quoted_path(path)));
        // A page shows the numbers of both sides.
        let checked = match page {
            Some(_) => check::checked(path, &flags, &map, &tolerances).and_then(|checked| {
                html = Some(checked_html(&checked, of_checked(), flag)?);
                Ok(checked.report)
            }),
            None => check::check(path, &flags, &map, &tolerances),
        };
        drop(progress);
        match checked {
            Ok(report) => {
                if args.run.is_verbose {
                    print_matches(&report.matches);
                }
                reports.push(report);
            }
            Err(error) => fail(path, error),
        }
    }
    if let Some((page, html)) = page.zip(html) {
        page.write_page(&html)?;
    }
    if !reports.is_empty() || refused.is_empty() {
        show_reports(&reports, &refused, of_checked(), (args.quiet, &args.report))?;
    }
    Ok(if refused.is_empty() { outcome(&reports) } else { Outcome::Failed })
}

/// The recorded files of a folder, or the one that is named.
fn recorded_at(path: &Path) -> Result<Vec<PathBuf>> {
    if path.is_dir() {
        return recorded_in(path);
    }
    refuse_step(path).map(|()| vec![path.to_owned()])
}

/// Compares two recorded files.
pub fn diff(args: &DiffArgs) -> Result<Outcome> {
    if args.by_layer {
        return by_layer(args);
    }
    let one_sided = if args.ignore_missing { OneSided::LeftOut } else { OneSided::Differ };
    let (map, tolerances) = (args.names.map(), args.tolerances.tolerances());
    let read = [&args.left, &args.right].map(|place| split_path(place).0);
    let page = open_page(args.output.as_ref(), &read)?;
    let report = match page {
        Some(page) => {
            let compared = check::compared(&args.left, &args.right, &map, &tolerances, one_sided)?;
            page.write_page(&compared_html(&compared, of_compared(), flag)?)?;
            compared.report
        }
        None => check::diff(&args.left, &args.right, &map, &tolerances, one_sided)?,
    };
    let reports = [report];
    show_reports(&reports, &[], of_compared(), (args.quiet, &args.report))?;
    Ok(outcome(&reports))
}

/// Compares two recordings of a whole model, part by part.
fn by_layer(args: &DiffArgs) -> Result<Outcome> {
    let page = open_page(args.output.as_ref(), &[args.left.clone(), args.right.clone()])?;
    let left = quoted_path(&args.left);
    let progress = Progress::of(tr!("comparing {left} part by part", left));
    let found =
        check::by_layer(&args.left, &args.right, args.unshard, &args.tolerances.tolerances());
    drop(progress);
    let found = found?;
    if let Some(page) = page {
        page.write_page(&by_layer_html(&found, of_checked(), flag))?;
    }
    let tables = if args.quiet { Tables::Hidden } else { Tables::Shown };
    match args.report.format {
        Format::Table => args.report.print(by_layer_page(&found, of_checked(), tables))?,
        Format::Json => print_json(&found.json())?,
    }
    Ok(if found.is_same() { Outcome::Same } else { Outcome::Different })
}

/// Shows reports; of the files that could not be read only their paths.
fn show_reports(
    reports: &[Report],
    refused: &[String],
    sides: Sides,
    (quiet, args): (bool, &ReportArgs),
) -> Result<()> {
    let tables = match reports {
        _ if quiet => Tables::Hidden,
        [_] => Tables::Shown,
        _ => Tables::OfDifferences,
    };
    match args.format {
        Format::Table => {
            let pages = reports.iter().flat_map(|report| report_page(report, sides, tables));
            args.print(pages.collect())
        }
        Format::Json => {
            let mut all = reports_json(reports);
            if !refused.is_empty() {
                all["refused"] = json!(refused);
            }
            print_json(&all)
        }
    }
}

fn outcome(reports: &[Report]) -> Outcome {
    if reports.iter().all(Report::is_same) { Outcome::Same } else { Outcome::Different }
}

impl ToleranceArgs {
    fn tolerances(&self) -> Tolerances {
        Tolerances {
            rtol: self.rtol.clone().unwrap_or_default(),
            atol: self.atol.clone().unwrap_or_default(),
            ..Tolerances::default()
        }
    }
}
