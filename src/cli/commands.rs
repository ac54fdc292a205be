//! What does each command do, from its flags to what it shows and writes?

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use ::run::Run;
use base::error::{Error, Message, Result, quoted, quoted_path, refuse, shown};
use base::lang;
use check::catalogue::find;
use check::{self, OneSided, Report, Tolerances, reports_json};
use config::Config;
use file::{Output, recorded_in, split_path, write_json};
use foreign::{Match, NameMap};
use program::{Program, Trace};
use serde_json::json;
use view::walk::{Route, walk};
use view::{
    Sides, Tables, View, bug_list, bug_page, by_layer_html, by_layer_page, checked_html,
    compared_html, explanation, explanation_json, model_list, report_page, shapes_json,
    shapes_page, step_json, step_page, tour_page, trace_page,
};

use super::args::{
    BugsArgs, CheckArgs, Color, DiffArgs, ExplainArgs, Format, NameArgs, ReportArgs, ShapesArgs,
    StepArgs, ToleranceArgs, TourArgs, ViewArgs,
};
use super::meant::{refuse_numbers, refuse_step};
use super::outcome::Outcome;
use super::outputs::{open, open_page, write};
use super::progress::Progress;
use super::run::RunArgs;
use super::values::{flag, typed};
use super::written::{print, print_json, print_plain, report, say, unwritten};

/// What the sides of a checked file are called, and those of two compared ones.
fn of_checked() -> Sides<'static> {
    (tr!("recorded"), tr!("recomputed"))
}

fn of_compared() -> Sides<'static> {
    (tr!("left"), tr!("right"))
}

/// Runs attention, writes its files, and shows its steps.
pub fn trace(args: &RunArgs, shown: &ViewArgs, output: &[PathBuf]) -> Result<Outcome> {
    let (run, files) = start(args)?;
    let view = shown.view().of(run.config(), run.program())?;
    let outputs = open(output, &files)?;

    // Where nothing is shown no value is kept.
    let outputs = match <[Output; 1]>::try_from(outputs) {
        Ok([output]) if shown.quiet && output.can_grow() => {
            run.write(output)?;
            return Ok(Outcome::Same);
        }
        Ok(output) => output.into(),
        Err(outputs) => outputs,
    };
    if outputs.is_empty() && shown.quiet {
        run.compute()?;
        return Ok(Outcome::Same);
    }
    let trace = run.trace()?;
    if !outputs.is_empty() {
        write(outputs, &trace, run.config(), &view)?;
    }
    if !shown.quiet {
        warn(&run, &trace)?;
        print(|out| show(&run, &trace, &view, shown, out))?;
    }
    Ok(Outcome::Same)
}

/// Says on stderr what is odd about a run.
fn warn(run: &Run, trace: &Trace) -> Result<()> {
    let mut warnings = Vec::new();
    let not_numbers = run.not_numbers()?;
    if !not_numbers.is_empty() {
        let names: Vec<&str> = not_numbers.iter().map(|name| name.as_str()).collect();
        warnings.push(tr!(
            "NaN in {names}, and so in everything that is computed from it",
            names = lang::list(&names)
        ));
    }
    if run.adds_ones()? {
        let ones = tr!(
            "the floats of --attn-mask are 0 and 1; as in PyTorch, floats are added to the scores, so they block nothing: to block keys, give booleans or whole numbers"
        );
        warnings.push(ones.to_owned());
    }
    for (name, label) in run.config().phrases() {
        let labels = label.split_whitespace().collect::<Vec<_>>().join(",");
        warnings.push(tr!(
            "{name}: {label} is one label; to make several, put commas between them: {labels}",
            name,
            label = quoted(label),
            labels = quoted(&labels)
        ));
    }
    let rows = run.config().masks.key_mask.as_deref().unwrap_or_default();
    if rows.len() > 1 && rows.iter().all(|row| row.len() == 1) {
        warnings.push(tr!(
            "key_mask {rows} is a mask of {items} items with one key each; of one item with {items} keys it is {row}",
            rows = rows.join(","),
            items = rows.len(),
            row = rows.concat()
        ));
    }
    let unread: Vec<&str> = run.unread().collect();
    if !unread.is_empty() {
        warnings.push(tr!(
            "the layer has parameters that this run does not use: {names}",
            names = quoted(&lang::list(&unread))
        ));
    }
    warnings.extend(trace.empty_rows()?.iter().map(ToString::to_string));
    for warning in warnings {
        say(&tr!("warning: {warning}", warning = shown(&Message::from(warning).spelled(flag))));
    }
    Ok(())
}

/// The run that flags describe, and the files that it reads. With -v, what was taken as what is said.
fn start(args: &RunArgs) -> Result<(Run, Vec<PathBuf>)> {
    let (run, files) = args.run()?;
    if args.is_verbose {
        print_matches(run.matches());
    }
    Ok((run, files))
}

/// Says on stderr which tensor of a file was taken as what, but for what reports say anyway.
fn print_matches(matches: &[Match]) {
    for matched in matches.iter().filter(|matched| !matched.chosen) {
        say(&shown(&matched.to_string()));
    }
}

fn show(
    run: &Run,
    trace: &Trace,
    view: &View,
    args: &ViewArgs,
    out: &mut dyn Write,
) -> io::Result<()> {
    match args.report.format {
        Format::Table => {
            let style = args.report.style();
            let mut blocks = trace_page(trace, run.config(), view);
            blocks.try_for_each(|block| style.block(&block.map_err(io::Error::other)?, out))
        }
        Format::Json => {
            let record = view.record(trace, run.config()).map_err(io::Error::other)?;
            write_json(&record, out)
        }
    }
}

impl ViewArgs {
    fn view(&self) -> View {
        View {
            steps: self.steps.clone(),
            batch_item: self.batch_item,
            head: self.head,
            decimals: self.decimals.into(),
            edge: self.edge.map(|edge| usize::try_from(edge).unwrap_or(usize::MAX)),
            full: self.full,
            heatmap: self.heatmap,
            why: self.why,
            depth: 1,
        }
    }
}

/// Explains a step, or how one number came about.
pub fn explain(args: &ExplainArgs) -> Result<Outcome> {
    let view = View {
        decimals: args.decimals.into(),
        full: args.full,
        why: args.why,
        depth: args.depth.0,
        ..View::default()
    };
    if let Some(file) = &args.file {
        if !file.exists() {
            refuse_numbers(args.asked.name(), file, start(&args.run)?.0.program())?;
        }
        let recorded = check::recorded(file, &args.run.settings()?, &args.names.map())?;
        explain_in(args, &recorded.trace, &recorded.config, &view, || Ok(recorded.trace.clone()))?;
        return Ok(Outcome::Same);
    }
    let (run, _) = start(&args.run)?;
    explain_in(args, run.program(), run.config(), &view, || run.trace())?;
    Ok(Outcome::Same)
}

/// Explains what is asked for in a program, which `trace` runs: a step alone needs no number of it.
fn explain_in<V>(
    args: &ExplainArgs,
    program: &Program<V>,
    config: &Config,
    view: &View,
    trace: impl FnOnce() -> Result<Trace>,
) -> Result<()> {
    let cell = args.asked.cell(program, config.labels().as_ref())?;
    match (cell, args.report.format) {
        (None, _) if args.depth.0 > 1 => {
            let fix = tr!("give an index for every axis: scores[0,1,2,3]");
            refuse("--depth follows one number, but a whole step is given", fix)
        }
        (None, Format::Table) => {
            let run = as_typed(&args.run, &args.names, args.file.as_deref());
            args.report.print(step_page(program, args.asked.step(program)?, view, run.as_deref()))
        }
        (None, Format::Json) => {
            let value = step_json(program, args.asked.step(program)?);
            print_json(&value)
        }
        (Some(cell), Format::Table) => {
            args.report.print(explanation(&trace()?, config, &cell, view)?)
        }
        (Some(cell), Format::Json) => {
            let value = explanation_json(&trace()?, &cell, view)?;
            print_json(&value)
        }
    }
}

/// Walks through a run, or a recorded file, in the terminal.
pub fn step(args: &StepArgs) -> Result<Outcome> {
    if let Some(file) = &args.file {
        refuse_step(file)?;
        if !split_path(file).0.exists() {
            check::recorded(file, &args.run.settings()?, &args.names.map())?;
        }
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let run = as_typed(&args.run, &args.names, args.file.as_deref()).unwrap_or_default();
        let program = if args.file.is_some() { "mha-trace check" } else { "mha-trace" };
        let fix = tr!("print the steps instead: {program}{run}", program, run);
        return refuse("step needs a terminal: it reads keys from it and draws on it", fix);
    }
    let color = Color::Auto.wanted().is_some();
    let decimals = args.decimals.into();
    let Some(file) = &args.file else {
        let (run, _) = start(&args.run)?;
        let (trace, config) = (&run.trace()?, run.config());
        walk(&Route { trace, config, check: None, decimals, color, spell: flag })
            .map_err(unwritten)?;
        return Ok(Outcome::Same);
    };
    let (flags, map) = (args.run.settings()?, args.names.map());
    let checked = check::checked(file, &flags, &map, &Tolerances::default())?;
    let (trace, config) = (&checked.own_trace()?, &checked.config);
    let check = Some((&checked.trace, &checked.report));
    walk(&Route { trace, config, check, decimals, color, spell: flag }).map_err(unwritten)?;
    Ok(Outcome::Same)
}

/// Tells the story of a run.
pub fn tour(args: &TourArgs) -> Result<Outcome> {
    let (run, _) = start(&args.run)?;
    let typed = args.run.typed().unwrap_or_default();
    print_plain(tour_page(&run.trace()?, run.config(), &typed)?)?;
    Ok(Outcome::Same)
}

/// What says which run is meant, as one would type it again, each word with a space before it; nothing where a path is
/// no text.
fn as_typed(run: &RunArgs, names: &NameArgs, file: Option<&Path>) -> Option<String> {
    let mut words = String::new();
    if let Some(file) = file {
        words = format!(" {}", typed(file.to_str()?));
    }
    words.extend(names.map.iter().map(|map| format!(" --map {}", typed(&map.to_string()))));
    Some(words + &run.typed()?)
}

/// Lists the known mistakes, or explains one.
pub fn bugs(args: &BugsArgs) -> Result<Outcome> {
    let blocks = match &args.id {
        None => bug_list(),
        Some(id) => bug_page(find(id)?),
    };
    print_plain(blocks)?;
    Ok(Outcome::Same)
}

/// Lists the known families of models.
pub fn models() -> Result<Outcome> {
    print_plain(model_list())?;
    Ok(Outcome::Same)
}

/// Shows the shapes of a run.
pub fn shapes(args: &ShapesArgs) -> Result<Outcome> {
    let (run, _) = start(&args.run)?;
    match args.report.format {
        Format::Table => args.report.print(shapes_page(&run))?,
        Format::Json => print_json(&shapes_json(&run))?,
    }
    Ok(Outcome::Same)
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
            ..Tolerances::default()
        }
    }
}
