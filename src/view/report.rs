//! Reports of `check` and `diff`, for people and for programs.

use std::io::{self, Write};

use candle_core::DType;
use comfy_table::{Cell, Table};
use serde_json::{Value, json};

use super::diagnosis::{diagnosis_lines, start_of_non_finite};
use super::grid::{plain, right};
use super::header::mask_line;
use super::label;
use super::number::{lossless, magnitude, pair};
use crate::config::{Config, Queries};
use crate::error::shown;
use crate::source::Taken;
use crate::verdict::{Diagnosis, Finding, NonFinite, Pairs, Place, Report, Status, StepReport};

/// What the two sides of a comparison are called.
pub type Sides<'a> = (&'a str, &'a str);

/// Whether a report shows the table of its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    /// It does.
    Shown,
    /// It does where something differs.
    OfDifferences,
    /// It does not.
    Hidden,
}

/// Writes a report: its verdict, the table of the steps, the verdict in a sentence, what gives these numbers, and the
/// cell where the sides first part.
///
/// # Errors
/// If the writer fails.
pub fn report_table(
    report: &Report,
    sides: Sides,
    tables: Tables,
    width: usize,
    out: &mut dyn Write,
) -> io::Result<()> {
    let compared = match report.compared() {
        1 => "1 step compared".to_owned(),
        compared => format!("{compared} steps compared"),
    };
    let verdict = if report.is_same() { "same" } else { "differs" };
    writeln!(out, "{}: {verdict}, {compared}", report.path)?;
    if let Some(config) = &report.read_as {
        writeln!(out, "  read as {} · {}", heads(config), mask_line(config))?;
    }
    for taken in report.taken.iter().filter(|taken| taken.chosen) {
        writeln!(out, "  {}", shown(&taken.to_string()))?;
    }
    for (name, why) in &report.left {
        writeln!(out, "  {} was not checked: {why}", shown(name))?;
    }
    if tables == Tables::Shown || (tables == Tables::OfDifferences && !report.is_same()) {
        for line in table(report, sides, width.saturating_sub(1)).lines() {
            writeln!(out, " {}", line.trim_end())?;
        }
    }
    let first = report.first_divergence();
    if let Some(first) = first {
        writeln!(out, "{}", divergence(report, first))?;
    }
    let missing: Vec<&str> = report.missing().map(|step| step.name.as_str()).collect();
    if !missing.is_empty() {
        writeln!(out, "on one side only: {}", shown(&missing.join(", ")))?;
        let mut hints: Vec<&str> = missing.iter().filter_map(|step| flag_of(step)).collect();
        hints.dedup();
        if report.read_as.is_some() && !hints.is_empty() {
            writeln!(out, "what makes such steps is said by flags: {}", hints.join(", "))?;
        }
    }
    if let Some(diagnosis) = &report.diagnosis {
        diagnosis_lines(diagnosis).iter().try_for_each(|line| writeln!(out, "{line}"))?;
    }
    if report.fits_unmasked {
        writeln!(
            out,
            "with --mask none it is the same: no mask was asked for, and causal is the default"
        )?;
    }
    if let Some(found) = &report.non_finite {
        writeln!(out, "{}", start_of_non_finite(found, report.labels.as_ref()))?;
    }
    if let Some(first) = first {
        writeln!(out, "{}", worst_cell(report, first, sides))?;
    }
    Ok(())
}

/// The flag without which a run does not have a step.
fn flag_of(step: &str) -> Option<&'static str> {
    Some(match step {
        "q_norm" | "k_norm" => "--qk-norm rms",
        "q_rot" | "k_rot" => "--rope half or interleaved",
        "k_cached" | "v_cached" => "--past FILE, or k_past and v_past in the file",
        "scores_capped" => "--softcap C",
        "scores_biased" => "--alibi or --attn-mask FILE",
        "masked_scores" => "--mask causal, --lengths or --attn-mask FILE",
        "weights_dropped" => "--dropout P",
        _ => return None,
    })
}

fn heads(c: &Config) -> String {
    let mut parts = vec![match c.heads {
        1 => "1 head".to_owned(),
        heads => format!("{heads} heads"),
    }];
    if c.kv_heads < c.heads {
        parts.push(format!("kv_heads {}", c.kv_heads));
    }
    parts.extend(c.kv_len.map(|length| format!("memory length {length}")));
    if c.past_len > 0 {
        parts.push(format!("cache {}", c.past_len));
    }
    parts.extend(c.queries.map(|rows| format!("queries {}", Queries::from(rows))));
    parts.join(" · ")
}

fn table(report: &Report, sides: Sides, width: usize) -> Table {
    let worst = format!("worst cell: {}, {}", sides.0, sides.1);
    let header = ["step", "status", "max abs", "max rel", "mismatched", worst.as_str()];
    let rows = report.steps.iter().map(|step| {
        let mut row = vec![Cell::new(shown(&step.name)), Cell::new(step.status.name())];
        if let Some(found) = &step.comparison {
            row.push(right(magnitude(found.max_abs)));
            row.push(right(magnitude(found.max_rel)));
            row.push(right(format!("{} of {}", found.mismatched, found.count)));
            if found.max_abs != 0.0 {
                let (left, right) = pair(found);
                row.push(Cell::new(format!("{}: {left}, {right}", cell(report, step))));
            }
        } else if let Some((left, right)) = &step.shapes {
            row.extend(["", "", ""].map(Cell::new));
            row.push(Cell::new(format!("shapes {left:?}, {right:?}")));
        }
        row
    });
    plain(&header, rows.collect(), header.len() - 1, width)
}

/// The verdict in a sentence: where the sides first part, and what follows from it.
fn divergence(report: &Report, first: &StepReport) -> String {
    let with = |status: Status| report.steps.iter().filter(move |step| step.status == status);
    let others: Vec<&str> = with(Status::Differs).skip(1).map(|step| step.name.as_str()).collect();
    let others = match others.as_slice() {
        [] => String::new(),
        names => format!("; on their own too: {}", names.join(", ")),
    };
    let inherited = match with(Status::Inherited).count() {
        0 => String::new(),
        1 => "; 1 later step inherits it".to_owned(),
        more => format!("; {more} later steps inherit it"),
    };
    format!("first divergence: {}{others}{inherited}", first.name)
}

/// The worst cell of the step where the sides first part, with both values.
fn worst_cell(report: &Report, first: &StepReport, sides: Sides) -> String {
    let name = &first.name;
    match (&first.comparison, &first.shapes) {
        (Some(found), _) => {
            let (left, right) = pair(found);
            format!("{name} at {}: {} {left}, {} {right}", cell(report, first), sides.0, sides.1)
        }
        (None, Some((left, right))) => {
            format!("{name} has two shapes: {} {left:?}, {} {right:?}", sides.0, sides.1)
        }
        (None, None) => format!("{name} is on one side only"),
    }
}

/// The worst cell by axis name, or by index where the axes are not known.
fn cell(report: &Report, step: &StepReport) -> String {
    let Some(found) = &step.comparison else { return String::new() };
    match &step.axes {
        Some(axes) => label::cell(report.labels.as_ref(), &step.name, axes, &found.worst),
        None => format!("{:?}", found.worst),
    }
}

/// The reports as one JSON object.
#[must_use]
pub fn report_json(reports: &[Report]) -> Value {
    let nothing = Diagnosis::default();
    let file = |report: &Report| {
        let diagnosis = report.diagnosis.as_ref().unwrap_or(&nothing);
        json!({
            "path": report.path,
            "verdict": if report.is_same() { "same" } else { "differs" },
            "compared": report.compared(),
            "first_divergence": report.first_divergence().map(|step| &step.name),
            "fits_unmasked": report.fits_unmasked,
            "taken": report.taken.iter().map(taken_json).collect::<Vec<_>>(),
            "not_checked": report.left.iter().map(left_json).collect::<Vec<_>>(),
            "diagnosis": diagnosis.findings.iter().flat_map(finding_json).collect::<Vec<_>>(),
            "unexplained": diagnosis.unexplained,
            "pairs": pairs_json(diagnosis.pairs),
            "non_finite": report.non_finite.as_ref().map(non_finite_json),
            "steps": report.steps.iter().map(step_json).collect::<Vec<_>>(),
        })
    };
    json!({
        "format": "mha-trace-report",
        "version": 1,
        "files": reports.iter().map(file).collect::<Vec<_>>(),
    })
}

fn taken_json(taken: &Taken) -> Value {
    json!({ "step": taken.step, "tensor": taken.tensor, "how": taken.how })
}

fn left_json((tensor, why): &(String, String)) -> Value {
    json!({ "tensor": tensor, "why": why })
}

/// A finding; of a pair each mistake, with the other's name.
fn finding_json(found: &Finding) -> Vec<Value> {
    let one = |found: &Finding, with: Option<&str>| {
        let mut value = json!({ "id": found.id, "step": found.step, "summary": found.summary });
        if let Some(with) = with {
            value["with"] = json!(with);
        }
        if found.is_rounding() {
            value["factor"] = json!(found.factor);
        }
        value
    };
    match &found.with {
        Some(other) => vec![one(found, Some(other.id)), one(other, Some(found.id))],
        None => vec![one(found, None)],
    }
}

/// What became of pairs; null where there was no need of them.
fn pairs_json(pairs: Pairs) -> Value {
    match pairs {
        Pairs::Unneeded => Value::Null,
        Pairs::Tried { unlisted } => json!({ "tried": true, "unlisted": unlisted }),
        Pairs::TooLong(estimate) => json!({
            "tried": false,
            "why": "too long",
            "estimated_seconds": estimate.as_secs(),
        }),
    }
}

fn non_finite_json(found: &NonFinite) -> Value {
    let place = |place: &Place| json!({ "step": place.step, "index": place.index });
    let mut value = place(&found.place);
    value["value"] = lossless(found.value, DType::F64);
    value["cause"] = json!(found.cause.name());
    if let Some(origin) = &found.origin {
        value["origin"] = place(origin);
    }
    value
}

fn step_json(step: &StepReport) -> Value {
    let mut value = json!({ "name": step.name, "status": step.status.name() });
    let Value::Object(keys) = &mut value else { return value };
    if let Some(axes) = &step.axes {
        keys.insert("axes".to_owned(), json!(axes.names()));
    }
    if let Some(found) = &step.comparison {
        keys.insert("max_abs".to_owned(), lossless(found.max_abs, DType::F64));
        keys.insert("max_rel".to_owned(), lossless(found.max_rel, DType::F64));
        keys.insert("mismatched".to_owned(), json!(found.mismatched));
        keys.insert("count".to_owned(), json!(found.count));
        keys.insert("worst".to_owned(), json!(found.worst));
        keys.insert("left".to_owned(), lossless(found.left, found.dtypes.0));
        keys.insert("right".to_owned(), lossless(found.right, found.dtypes.1));
    }
    if let Some((left, right)) = &step.shapes {
        keys.insert("shapes".to_owned(), json!([left, right]));
    }
    value
}
