//! Reports of `check` and `diff`, for people and for programs.

use std::io::{self, Write};

use candle_core::DType;
use comfy_table::{Cell, Table};
use serde_json::{Value, json};

use super::grid::{plain, right};
use super::number::{magnitude, pair, shortest};
use super::steps::mask_line;
use crate::config::Config;
use crate::source::Taken;
use crate::verdict::{Finding, Report, Status, StepReport};

/// What the two sides of a comparison are called.
pub type Sides<'a> = (&'a str, &'a str);

/// Writes a report: a line where all is the same, else a table of the steps and the verdict in a sentence.
///
/// # Errors
/// If the writer fails.
pub fn report_table(
    report: &Report,
    sides: Sides,
    all: bool,
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
        writeln!(out, "  {taken}")?;
    }
    for (name, why) in &report.left {
        writeln!(out, "  {name} was not checked: {why}")?;
    }
    if all || !report.is_same() {
        for line in table(report, sides, width.saturating_sub(1)).lines() {
            writeln!(out, " {}", line.trim_end())?;
        }
    }
    if let Some(first) = report.first_divergence() {
        writeln!(out, "{}", divergence(report, first, sides))?;
    }
    match report.diagnosis.as_deref() {
        None => {}
        Some([]) => writeln!(out, "no known mistake gives these numbers")?,
        Some(findings) => {
            for found in findings {
                let Finding { id, step, summary } = found;
                if found.is_rounding() {
                    writeln!(out, "{id}: {summary}")?;
                } else {
                    writeln!(out, "known mistake {id}, at {step}: {summary}")?;
                }
            }
        }
    }
    let missing: Vec<&str> = report.missing().map(|step| step.name.as_str()).collect();
    if !missing.is_empty() {
        writeln!(out, "on one side only: {}", missing.join(", "))?;
    }
    Ok(())
}

fn heads(config: &Config) -> String {
    match config.heads {
        1 => "1 head".to_owned(),
        heads => format!("{heads} heads"),
    }
}

fn table(report: &Report, sides: Sides, width: usize) -> Table {
    let worst = format!("worst cell: {}, {}", sides.0, sides.1);
    let header = ["step", "status", "max abs", "max rel", "mismatched", worst.as_str()];
    let rows = report.steps.iter().map(|step| {
        let mut row = vec![Cell::new(&step.name), Cell::new(step.status.name())];
        if let Some(found) = &step.comparison {
            row.push(right(magnitude(found.max_abs)));
            row.push(right(magnitude(found.max_rel)));
            row.push(right(format!("{} of {}", found.mismatched, found.count)));
            if found.max_abs != 0.0 {
                let (left, right) = pair(found);
                row.push(Cell::new(format!("{}: {left}, {right}", cell(step))));
            }
        } else if let Some((left, right)) = &step.shapes {
            row.extend(["", "", ""].map(Cell::new));
            row.push(Cell::new(format!("shapes {left:?}, {right:?}")));
        }
        row
    });
    plain(&header, rows.collect(), header.len() - 1, width)
}

/// The verdict in a sentence: where the sides first part, by how much, and what follows from it.
fn divergence(report: &Report, first: &StepReport, sides: Sides) -> String {
    let at = match (&first.comparison, &first.shapes) {
        (Some(found), _) => {
            let (left, right) = pair(found);
            format!(", worst at {}: {} {left}, {} {right}", cell(first), sides.0, sides.1)
        }
        (None, Some((left, right))) => {
            format!(", whose shapes differ: {} {left:?}, {} {right:?}", sides.0, sides.1)
        }
        (None, None) => String::new(),
    };
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
    format!("first divergence: {}{at}{others}{inherited}", first.name)
}

/// The worst cell by axis name, or by index where the axes are not known.
fn cell(step: &StepReport) -> String {
    let Some(found) = &step.comparison else { return String::new() };
    match &step.axes {
        Some(axes) => axes.cell(&found.worst),
        None => format!("{:?}", found.worst),
    }
}

/// The reports as one JSON object.
#[must_use]
pub fn report_json(reports: &[Report]) -> Value {
    let finding =
        |found: &Finding| json!({ "id": found.id, "step": found.step, "summary": found.summary });
    let file = |report: &Report| {
        json!({
            "path": report.path,
            "verdict": if report.is_same() { "same" } else { "differs" },
            "compared": report.compared(),
            "first_divergence": report.first_divergence().map(|step| &step.name),
            "diagnosis": report.diagnosis.iter().flatten().map(finding).collect::<Vec<_>>(),
            "taken": report.taken.iter().map(taken_json).collect::<Vec<_>>(),
            "not_checked": report.left.iter().map(left_json).collect::<Vec<_>>(),
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

/// A number, or the string that files have for a non-finite one.
fn lossless(value: f64, dtype: DType) -> Value {
    match value {
        f64::INFINITY => json!("Infinity"),
        f64::NEG_INFINITY => json!("-Infinity"),
        value if value.is_nan() => json!("NaN"),
        value => shortest(value, dtype).parse::<f64>().map_or(Value::Null, |value| json!(value)),
    }
}
