//! The commands.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use mha_trace::error::shown;
use mha_trace::file::{Output, arrays_in, is_recorded, write_json};
use mha_trace::source::{NameMap, Taken};
use mha_trace::verdict::mutation::find;
use mha_trace::verdict::{self, Report, Tolerances};
use mha_trace::view::{
    self, Tables, View, bug_list, bug_page, explanation, explanation_json, report_json,
    report_table, shapes_json, shapes_table, trace_tables,
};
use mha_trace::{Error, Run, Trace};

use super::args::{
    BugsArgs, CheckArgs, Color, DiffArgs, ExplainArgs, Format, NameArgs, ReportArgs, ShapesArgs,
    ToleranceArgs, ViewArgs,
};
use super::run::RunArgs;
use super::{Outcome, print};

/// Runs attention, writes its files, and shows its steps.
pub fn trace(args: &RunArgs, shown: &ViewArgs, output: &[PathBuf]) -> anyhow::Result<Outcome> {
    let run = args.run()?;
    let view = shown.view()?;
    let names: Vec<&str> = run.program().steps().iter().map(|step| step.name.as_str()).collect();
    view.check(run.config(), &names)?;
    let outputs = open(output)?;
    if args.verbose {
        print_taken(run.taken());
    }

    let trace = run.trace()?;
    if !outputs.is_empty() {
        let record = trace.to_record(run.config());
        outputs.into_iter().try_for_each(|output| output.write(&record))?;
    }
    if !shown.quiet {
        for rows in trace.empty_rows()? {
            // A warning that cannot be written keeps nothing from its place.
            let _ = writeln!(io::stderr(), "warning: {rows}");
        }
        print(|out| show(&run, &trace, &view, shown.report.format, out))?;
    }
    Ok(Outcome::Same)
}

/// Says on stderr which tensor of a file was taken as what, but for what reports say anyway.
fn print_taken(taken: &[Taken]) {
    for taken in taken.iter().filter(|taken| !taken.chosen) {
        // What cannot be written keeps nothing from its place.
        let _ = writeln!(io::stderr(), "{}", shown(&taken.to_string()));
    }
}

fn open(paths: &[PathBuf]) -> Result<Vec<Output>, Error> {
    let mut outputs: Vec<Output> = Vec::new();
    for path in paths {
        let output = Output::create(path)?;
        if outputs.iter().any(|other| other.path() == output.path()) {
            let what = format!("-o {} is given twice", path.display());
            return Err(Error::Config { what, fix: "name every file once".to_owned() });
        }
        outputs.push(output);
    }
    Ok(outputs)
}

fn show(
    run: &Run,
    trace: &Trace,
    view: &View,
    format: Format,
    out: &mut dyn Write,
) -> io::Result<()> {
    match format {
        Format::Table => trace_tables(trace, run.config(), view, out),
        Format::Json => {
            let mut record = trace.to_record(run.config());
            if let Some(steps) = &view.steps {
                record.entries.retain(|entry| steps.contains(&entry.name));
            }
            write_json(&record, out)
        }
    }
}

impl ViewArgs {
    fn view(&self) -> Result<View, Error> {
        if self.report.format == Format::Json && (self.batch_item.is_some() || self.head.is_some())
        {
            return Err(Error::Config {
                what: "--batch-item and --head pick tables, and --format json writes whole tensors"
                    .to_owned(),
                fix: "leave them out, or pick steps with --steps".to_owned(),
            });
        }
        Ok(View {
            steps: self.steps.clone(),
            batch_item: self.batch_item,
            head: self.head,
            decimals: self.decimals.into(),
            edge: usize::try_from(self.edge).unwrap_or(usize::MAX / 4),
            full: self.full,
            heatmap: self.heatmap,
            width: self.report.width(),
            color: self.color.wanted(),
        })
    }
}

impl ReportArgs {
    /// Columns of text a line: as asked for, or the terminal's.
    fn width(&self) -> usize {
        let terminal = || terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        self.width.map(usize::from).or_else(terminal).unwrap_or(View::default().width)
    }
}

impl Color {
    fn wanted(self) -> bool {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                io::stdout().is_terminal()
                    && set("NO_COLOR").is_none()
                    && set("TERM").is_none_or(|terminal| terminal != "dumb")
            }
        }
    }
}

/// Shows how one number came about.
pub fn explain(args: &ExplainArgs) -> anyhow::Result<Outcome> {
    let run = args.run.run()?;
    let trace = run.trace()?;
    if args.report.format == Format::Json {
        let value = explanation_json(&trace, &args.cell)?;
        print(|out| writeln!(out, "{value:#}"))?;
        return Ok(Outcome::Same);
    }
    let view = View {
        decimals: args.decimals.into(),
        full: args.full,
        width: args.report.width(),
        ..View::default()
    };
    let text = explanation(&trace, run.config(), &args.cell, &view)?;
    print(|out| out.write_all(text.as_bytes()))?;
    Ok(Outcome::Same)
}

/// Lists the known mistakes, or explains one.
pub fn bugs(args: &BugsArgs) -> anyhow::Result<Outcome> {
    match &args.id {
        None => print(bug_list)?,
        Some(id) => {
            let ways = find(id)?;
            print(|out| bug_page(&ways, out))?;
        }
    }
    Ok(Outcome::Same)
}

/// Shows the shapes of a run.
pub fn shapes(args: &ShapesArgs) -> anyhow::Result<Outcome> {
    let run = args.run.run()?;
    print(|out| match args.report.format {
        Format::Table => shapes_table(&run, args.report.width(), out),
        Format::Json => writeln!(out, "{:#}", shapes_json(&run)),
    })?;
    Ok(Outcome::Same)
}

/// Recomputes recorded files. A file that cannot be checked is told, and the others are checked all the same.
pub fn check(args: &CheckArgs) -> anyhow::Result<Outcome> {
    if let Some(config) = &args.run.config {
        let what =
            format!("--config {} beside a recorded file, which has its own", config.display());
        let fix = "give single flags to override the file's config".to_owned();
        return Err(Error::Config { what, fix }.into());
    }
    let flags = args.run.settings()?;
    let map = args.names.map();
    let tolerances =
        Tolerances { noise_counts: args.fail_on_noise, ..args.tolerances.tolerances() };
    let mut paths = Vec::new();
    for path in &args.paths {
        if path.is_dir() { paths.extend(recorded_in(path)?) } else { paths.push(path.clone()) }
    }
    let (mut reports, mut failed) = (Vec::new(), false);
    for path in &paths {
        match verdict::check(path, &flags, &map, &tolerances) {
            Ok(report) => {
                if args.run.verbose {
                    print_taken(&report.taken);
                }
                reports.push(report);
            }
            Err(error) => {
                super::report(&error.into());
                failed = true;
            }
        }
    }
    if !reports.is_empty() || !failed {
        show_reports(&reports, ("recorded", "recomputed"), args.quiet, &args.report)?;
    }
    Ok(if failed { Outcome::Failed } else { outcome(&reports) })
}

/// The recorded files in a folder, by name; `.npy` files in it are together one, the folder itself.
fn recorded_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let refuse = |what: String, fix: &str| {
        Err(Error::File { path: folder.to_owned(), what, fix: fix.to_owned() })
    };
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return refuse(format!("cannot be listed: {error}"), "make it readable"),
    };
    let mut paths: Vec<PathBuf> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| is_recorded(path))
        .collect();
    paths.sort();
    if arrays_in(folder).is_ok() {
        paths.push(folder.to_owned());
    }
    if paths.is_empty() {
        return refuse(
            "holds no .json, .safetensors, .npz or .npy file".to_owned(),
            "name a folder of recorded traces",
        );
    }
    Ok(paths)
}

/// Compares two recorded files.
pub fn diff(args: &DiffArgs) -> anyhow::Result<Outcome> {
    let report =
        verdict::diff(&args.left, &args.right, &args.names.map(), &args.tolerances.tolerances())?;
    let reports = [report];
    show_reports(&reports, ("left", "right"), args.quiet, &args.report)?;
    Ok(outcome(&reports))
}

fn show_reports(
    reports: &[Report],
    sides: view::Sides,
    quiet: bool,
    args: &ReportArgs,
) -> io::Result<()> {
    let tables = match reports {
        _ if quiet => Tables::Hidden,
        [_] => Tables::Shown,
        _ => Tables::OfDifferences,
    };
    print(|out| match args.format {
        Format::Table => reports
            .iter()
            .try_for_each(|report| report_table(report, sides, tables, args.width(), out)),
        Format::Json => writeln!(out, "{:#}", report_json(reports)),
    })
}

fn outcome(reports: &[Report]) -> Outcome {
    if reports.iter().all(Report::is_same) { Outcome::Same } else { Outcome::Different }
}

impl NameArgs {
    fn map(&self) -> NameMap {
        self.map.iter().fold(NameMap::default(), NameMap::and)
    }
}

impl ToleranceArgs {
    fn tolerances(&self) -> Tolerances {
        Tolerances {
            rtol: self.rtol.clone().unwrap_or_default(),
            atol: self.atol.clone().unwrap_or_default(),
            noise_counts: false,
        }
    }
}
