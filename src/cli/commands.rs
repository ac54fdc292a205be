//! What does each command do that compares no files, from its flags to what it shows and writes?

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use ::run::Run;
use base::error::{Message, Result, quoted, refuse, shown};
use base::lang;
use check::catalogue::find;
use check::{self, Tolerances};
use config::Config;
use file::{Output, split_path, write_json};
use foreign::{Match, NameMap};
use program::{Program, Trace};
use view::walk::{Route, walk};
use view::{
    View, bug_list, bug_page, explanation, explanation_json, model_list, shapes_json, shapes_page,
    step_json, step_page, tour_page, trace_page,
};

use super::args::{
    BugsArgs, Color, ExplainArgs, Format, NameArgs, ShapesArgs, StepArgs, TourArgs, ViewArgs,
};
use super::meant::{refuse_numbers, refuse_step};
use super::outcome::Outcome;
use super::outputs::{open, write};
use super::run::RunArgs;
use super::values::{flag, typed};
use super::written::{print, print_json, print_plain, say, unwritten};

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
pub fn print_matches(matches: &[Match]) {
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

impl NameArgs {
    pub fn map(&self) -> NameMap {
        self.map.iter().fold(NameMap::default(), NameMap::and)
    }
}
