//! Reports of `check` and `diff` as pages: the same steps with two sides, and what was found.

use std::collections::HashSet;

use candle_core::Tensor;

use super::layout::{Found, Mistake, Sheet};
use super::sheet::{StepSheet, sheets};
use super::{spelled, texts};
use crate::header::{mask_line, sizes_line};
use crate::page::{Block, Spell, verdict};
use crate::report::{Sides, Tables, report_page};
use base::error::{Result, quoted};
use base::lang;
use check::catalogue::find;
use check::{Checked, Compared, Finding, Report, Status, StepReport};
use config::Settings;
use file::{Entry, Record};
use program::{Name, Step};
use run::{Run, Sources};

/// The page of a checked file: what was recorded beside what was recomputed from it.
///
/// # Errors
/// If candle fails.
pub fn checked_html(checked: &Checked, sides: Sides, spell: Spell) -> Result<String> {
    let Checked { report, config, .. } = checked;
    let trace = &checked.trace.as_told();
    let recorded = checked.recorded()?;
    let value = |step: &Step| match recorded.get(&step.name) {
        // What is given is the same on both sides.
        _ if !step.is_computed() => vec![Some(step.value.clone())],
        recorded => vec![recorded.cloned(), Some(step.value.clone())],
    };
    let steps = sheets(trace, config, Some(trace), value)?;
    let facts = spelled([sizes_line(config), mask_line(config)], spell);
    page(report, sides, spell, facts, steps)
}

/// The page of two files beside each other, nothing recomputed.
///
/// # Errors
/// If candle fails.
pub fn compared_html(compared: &Compared, sides: Sides, spell: Spell) -> Result<String> {
    let Compared { report, left, right } = compared;
    // The program says of the steps how they are computed, where a file says which program it is.
    let run =
        [left, right].into_iter().filter(|record| record.config.is_some()).find_map(|record| {
            let (settings, sources) = Sources::again(record, &Settings::default()).ok()?;
            Run::new(&settings, sources).ok()
        });
    let both = |name: &str| [left.tensor(name), right.tensor(name)];
    let fits = |step: &Step<()>| {
        both(step.name.as_str()).iter().flatten().any(|tensor| tensor.dims() == step.axes.shape())
    };
    let mut steps = match &run {
        Some(run) => sheets(&run.program().as_told(), run.config(), None, |step| {
            match both(step.name.as_str()) {
                sides if fits(step) => sides.map(Option::<&Tensor>::cloned).to_vec(),
                _ => vec![None],
            }
        })?,
        None => Vec::new(),
    };
    let known: HashSet<String> = steps.iter().map(|step| step.name.clone()).collect();
    let others = of_either(left, right).into_iter().filter(|entry| !known.contains(&entry.name));
    steps.extend(others.map(|entry| {
        let named = report.steps.iter().find(|step| step.name == entry.name);
        let axes = named.and_then(|step| step.axes.as_ref());
        StepSheet::of_file(&entry.name, axes, entry.formula.as_deref(), both(&entry.name))
    }));
    page(report, sides, spell, Vec::new(), steps)
}

/// The tensors of both files, each once.
fn of_either<'a>(left: &'a Record, right: &'a Record) -> Vec<&'a Entry> {
    let lone = right.entries.iter().filter(|entry| left.tensor(&entry.name).is_none());
    left.entries.iter().chain(lone).collect()
}

fn page(
    report: &Report,
    sides: Sides,
    spell: Spell,
    facts: Vec<String>,
    mut steps: Vec<StepSheet>,
) -> Result<String> {
    for found in &report.steps {
        let Some(step) = steps.iter_mut().find(|step| step.name == found.name) else { continue };
        let name = badge(found);
        let cause = unrecorded(report, found);
        let told = cause.map_or_else(
            || texts::badge(name).to_owned(),
            |step| texts::badge_because(step.as_str()),
        );
        step.badge = Some((name, told));
        step.worst = found.comparison.as_ref().map(|comparison| comparison.worst.clone());
    }
    let told = told(report_page(report, sides, Tables::Hidden));
    let mut lines = spelled(told, spell);
    let title =
        if lines.is_empty() { lang::text(texts::TITLE).to_owned() } else { lines.remove(0) };
    let first =
        report.first_divergence().filter(|step| steps.iter().any(|own| own.name == step.name));
    let first = first.map(|step| {
        let worst = step.comparison.as_ref().map(|comparison| comparison.worst.clone());
        (step.name.clone(), worst.unwrap_or_default())
    });
    let findings = report.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    let mistakes = findings.flat_map(|finding| {
        [Some(finding), finding.with.as_deref()].into_iter().flatten().filter_map(mistake)
    });
    let mistakes: Vec<Mistake> = mistakes.collect();
    // What the mistakes say already.
    lines.retain(|line| !mistakes.iter().any(|mistake| line.ends_with(&mistake.summary)));
    let found = Found { lines, mistakes, first };
    let sides = vec![sides.0.to_owned(), sides.1.to_owned()];
    Sheet { title, facts, found: Some(found), sides, steps, tour: Vec::new() }.html(spell)
}

/// What blocks say in sentences.
pub fn told(blocks: Vec<Block>) -> impl Iterator<Item = String> {
    blocks.into_iter().filter_map(|block| match block {
        Block::Verdict(file, word, rest) => Some(verdict(&quoted(&file), &word.text, &rest)),
        Block::Text(_, text) | Block::Fact(text) => Some(text),
        _ => None,
    })
}

/// A step's badge: what differs within what rounding explains is noise.
fn badge(step: &StepReport) -> &'static str {
    let is_off = step.comparison.as_ref().is_some_and(|comparison| comparison.mismatched > 0);
    match step.status {
        Status::Same if is_off => "noise",
        Status::Same => "same",
        Status::Differs => "own",
        Status::Inherited => "inherited",
        Status::Missing => "missing",
    }
}

/// The step that a wrong one is wrong because of, where that was not recorded.
fn unrecorded(report: &Report, found: &StepReport) -> Option<Name> {
    let is_first = report.first_divergence().is_some_and(|first| first.name == found.name);
    let finding = report.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings).next()?;
    let is_recorded = report.steps.iter().any(|step| step.step == Some(finding.step));
    (found.status == Status::Differs && is_first && !is_recorded && !finding.is_rounding())
        .then_some(finding.step)
}

/// The code of a mistake that has a name: of its ways the one that was found.
fn mistake(finding: &Finding) -> Option<Mistake> {
    let known = finding.is_known().then(|| find(finding.id).ok()).flatten()?;
    let is_it = |way: &&check::catalogue::Way| finding.summary.starts_with(lang::text(way.summary));
    let way = known.ways.iter().find(is_it).or(known.ways.first())?;
    Some(Mistake {
        id: known.id,
        step: finding.step.to_string(),
        summary: finding.summary.clone(),
        silent: lang::text(known.silent),
        wrong: lang::text(way.wrong),
        right: lang::text(way.right),
    })
}
