//! The shapes of a run: its flow, and a table of every tensor with its size and cost.

use std::io::{self, Write};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};
use serde_json::{Value, json};

use super::number::{scaled, thousands};
use super::title::{is_parameter, title};
use crate::config::{Config, Settings};
use crate::error::bytes;
use crate::trace::{Axes, Op, Program, Run, Step};

/// A step with its costs.
struct Row<'a> {
    step: &'a Step<()>,
    formula: String,
    symbols: String,
    parameters: u128,
    flops: u128,
    bytes: u128,
}

fn rows<'a>(config: &Config, program: &'a Program) -> Vec<Row<'a>> {
    let row = |step: &'a Step<()>| {
        let read = program.read_by(step);
        let axes: Vec<&Axes> = read.iter().map(|step| &step.axes).collect();
        let names: Vec<&str> = read.iter().map(|step| step.name.as_str()).collect();
        let weight = step.op == Op::Given && step.name != "dropout_keep" && is_parameter(&step.name);
        Row {
            step,
            formula: step.op.formula(&names),
            symbols: symbols(config, &step.axes),
            parameters: if weight { step.axes.count() } else { 0 },
            flops: step.op.flops(&axes, &step.axes),
            bytes: step.bytes(config.dtype),
        }
    };
    program.steps().iter().map(row).collect()
}

/// The axes as letters, with `d_model` for `d_in` where the two are one.
fn symbols(config: &Config, axes: &Axes) -> String {
    let symbols = axes.symbols();
    if config.d_in == config.d_model { symbols.replace("d_in", "d_model") } else { symbols }
}

fn sum(rows: &[Row], part: impl Fn(&Row) -> u128) -> u128 {
    rows.iter().fold(0, |sum, row| sum.saturating_add(part(row)))
}

/// Writes the flow chart and the table.
///
/// # Errors
/// If the writer fails.
pub fn shapes_table(run: &Run, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let config = run.config();
    let rows = rows(config, run.program());
    header(config, out)?;
    flow(&rows, out)?;
    writeln!(out, "\n{}", table(&rows, width))?;
    let (parameters, flops, total) =
        (sum(&rows, |row| row.parameters), sum(&rows, |row| row.flops), sum(&rows, |row| row.bytes));
    writeln!(out, "parameters  {}", thousands(parameters))?;
    writeln!(out, "FLOPs       {}", thousands(flops))?;
    writeln!(out, "bytes       {} ({}), every tensor kept, in {}", thousands(total), bytes(total), config.dtype)?;
    writeln!(out, "\nA multiply-add counts 2 FLOPs, softmax 5 an element; moving and selecting count none.")
}

fn header(c: &Config, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Shapes of multi-head attention")?;
    write!(out, "  B = {} batch · T = {} sequence length · d_model = {}", c.batch, c.seq_len, c.d_model)?;
    if c.d_in != c.d_model {
        write!(out, " · d_in = {}", c.d_in)?;
    }
    writeln!(out, " · H = {} heads · d_k = d_model / H = {}", c.heads, c.head_dim())
}

/// The flow from X to the output: steps of one operation and shape that follow each other stand together.
fn flow(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let story: Vec<&Row> =
        rows.iter().filter(|row| row.step.op != Op::Given || row.step.name == "x").collect();
    let together = |left: &&Row, right: &&Row| {
        std::mem::discriminant(&left.step.op) == std::mem::discriminant(&right.step.op)
            && left.symbols == right.symbols
            && left.step.axes.shape() == right.step.axes.shape()
    };
    for group in story.chunk_by(together) {
        let names: Vec<&str> = group.iter().map(|row| row.step.name.as_str()).collect();
        let Some(first) = group.first() else { continue };
        if first.step.op == Op::Given {
            writeln!(out, "\n  input")?;
        } else {
            let formulas: Vec<String> =
                group.iter().map(|row| format!("{} = {}", row.step.name, row.formula)).collect();
            writeln!(out, "  ↓ {}", formulas.join(", "))?;
        }
        writeln!(out, "  {} ∈ {} = {:?}", names.join(", "), first.symbols, first.step.axes.shape())?;
    }
    Ok(())
}

fn table(rows: &[Row], width: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::UTF8_FULL_CONDENSED)
        .force_no_tty()
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width).unwrap_or(u16::MAX))
        .set_header(["name", "meaning", "shape", "with numbers", "parameters", "FLOPs", "bytes"]);
    let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let count = |count: u128, text: String| right(if count == 0 { String::new() } else { text });
    for row in rows {
        table.add_row([
            Cell::new(&row.step.name),
            Cell::new(title(&row.step.name)),
            Cell::new(&row.symbols),
            Cell::new(format!("{:?}", row.step.axes.shape())),
            count(row.parameters, thousands(row.parameters)),
            count(row.flops, scaled(row.flops)),
            right(bytes(row.bytes)),
        ]);
    }
    table.add_row([
        Cell::new("in all"),
        Cell::new(""),
        Cell::new(""),
        Cell::new(""),
        right(thousands(sum(rows, |row| row.parameters))),
        right(scaled(sum(rows, |row| row.flops))),
        right(bytes(sum(rows, |row| row.bytes))),
    ]);
    table
}

/// The same as JSON, with exact numbers (beyond 2⁶⁴, rounded ones).
#[must_use]
pub fn shapes_json(run: &Run) -> Value {
    let config = run.config();
    let rows = rows(config, run.program());
    let steps = rows.iter().map(|row| {
        json!({
            "name": row.step.name,
            "meaning": title(&row.step.name),
            "formula": row.formula,
            "axes": row.step.axes.names(),
            "symbols": row.symbols,
            "shape": row.step.axes.shape(),
            "parameters": exact(row.parameters),
            "flops": exact(row.flops),
            "bytes": exact(row.bytes),
        })
    });
    json!({
        "format": "mha-trace-shapes",
        "version": 1,
        "config": Settings::from(config).to_json(),
        "steps": steps.collect::<Vec<_>>(),
        "total": {
            "parameters": exact(sum(&rows, |row| row.parameters)),
            "flops": exact(sum(&rows, |row| row.flops)),
            "bytes": exact(sum(&rows, |row| row.bytes)),
        },
    })
}

#[allow(clippy::cast_precision_loss, reason = "documented at shapes_json")]
fn exact(count: u128) -> Value {
    u64::try_from(count).map_or_else(|_| json!(count as f64), |count| json!(count))
}
