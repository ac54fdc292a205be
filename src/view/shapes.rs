//! The shapes of a run: its flow, and a table of every tensor with its size and cost.

use std::io::{self, Write};

use comfy_table::{Cell, Table};
use serde_json::{Value, json};

use super::grid::{plain, right};
use super::header::mask_line;
use super::number::thousands;
use super::steps::is_of_key_heads;
use super::title::title;
use crate::config::{Config, Settings};
use crate::error::bytes;
use crate::source::Role;
use crate::trace::{Axes, Axis, Op, Program, Run, Step};

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
        let weight = step.op == Op::Given && Role::of(&step.name) == Some(Role::Parameter);
        Row {
            step,
            formula: step.op.formula(&names),
            symbols: symbols(config, step),
            parameters: if weight { step.axes.count() } else { 0 },
            flops: step.op.flops(&axes, &step.axes),
            bytes: step.bytes(config.dtype),
        }
    };
    program.steps().iter().map(row).collect()
}

/// The axes as letters: `(B, H, T, T)`; `d_model` for `d_in` where the two are one, and 1 where a mask leaves an
/// axis to be the same for all.
fn symbols(config: &Config, step: &Step<()>) -> String {
    let c = config;
    let is_of_memory = c.kv_len.is_some() && matches!(step.name.as_str(), "memory" | "w_k" | "w_v");
    let symbol = |(axis, size): (Axis, usize)| match axis {
        Axis::Batch if size == 1 && c.batch > 1 => "1",
        Axis::Head if is_of_key_heads(&step.name) && c.kv_heads < c.heads => "H_kv",
        Axis::Head if size == 1 && c.heads > 1 => "1",
        Axis::Query if size == 1 && c.query_count() > 1 => "1",
        Axis::Query if size != c.seq_len => "T_q",
        Axis::Key if size == 1 && c.key_count() > 1 => "1",
        Axis::Key if c.kv_len.is_some() => "S",
        Axis::Key if size == c.key_count() && size != c.seq_len => "S",
        Axis::Key if size == c.past_len && size != c.seq_len => "P",
        Axis::Model => model_symbol(c, &step.name, size),
        Axis::HeadDim if step.name == "rope_freqs" => "r/2",
        Axis::Input if is_of_memory && c.d_memory != c.d_in => "d_memory",
        Axis::Input if c.d_in == c.d_model => Axis::Model.symbol(),
        other => other.symbol(),
    };
    format!("({})", step.axes.iter().map(symbol).collect::<Vec<_>>().join(", "))
}

/// What the features of a step are: those of the model, or of all heads.
fn model_symbol(c: &Config, step: &str, size: usize) -> &'static str {
    let of_heads = match step {
        "k" | "v" | "w_k" | "w_v" | "b_k" | "b_v" if c.kv_heads < c.heads => return "H_kv·d_k",
        "output" | "b_o" => false,
        // Its rows are of the model, its columns of the heads.
        "w_o" => size != c.d_model,
        _ => true,
    };
    if of_heads && c.query_width() != c.d_model { "H·d_k" } else { Axis::Model.symbol() }
}

fn sum(rows: &[Row], part: impl Fn(&Row) -> u128) -> u128 {
    rows.iter().fold(0, |sum, row| sum.saturating_add(part(row)))
}

/// Writes the flow chart, the table of names, meanings and shapes, and the table of costs.
///
/// # Errors
/// If the writer fails.
pub fn shapes_table(run: &Run, width: usize, out: &mut dyn Write) -> io::Result<()> {
    let config = run.config();
    let rows = rows(config, run.program());
    header(config, out)?;
    flow(&rows, out)?;
    for table in [meanings(&rows, width), costs(&rows, width)] {
        writeln!(out)?;
        for line in table.lines() {
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    let total = bytes(sum(&rows, |row| row.bytes));
    writeln!(
        out,
        "\nAll tensors together take {total} in {}. A multiply-add counts 2 FLOPs, softmax 5 an",
        config.dtype
    )?;
    writeln!(out, "element; moving and selecting numbers count none.")
}

fn header(c: &Config, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Shapes of multi-head attention")?;
    let mut sizes =
        vec![format!("B = {} batch", c.batch), format!("T = {} sequence length", c.seq_len)];
    sizes.extend(c.queries.map(|rows| format!("T_q = {} queries", rows.count)));
    if c.past_len > 0 {
        sizes.push(format!("P = {} keys of the cache", c.past_len));
    }
    if c.key_count() != c.seq_len || c.kv_len.is_some() {
        sizes.push(format!("S = {} keys", c.key_count()));
    }
    sizes.push(format!("d_model = {}", c.d_model));
    if c.d_in != c.d_model {
        sizes.push(format!("d_in = {}", c.d_in));
    }
    if c.kv_len.is_some() && c.d_memory != c.d_in {
        sizes.push(format!("d_memory = {}", c.d_memory));
    }
    sizes.push(format!("H = {} heads", c.heads));
    if c.kv_heads < c.heads {
        sizes.push(format!("H_kv = {} key heads", c.kv_heads));
    }
    let is_split = c.query_width() == c.d_model;
    sizes.push(format!("d_k = {}{}", if is_split { "d_model / H = " } else { "" }, c.head_dim));
    sizes.extend(c.rope.as_ref().map(|rope| format!("r = {} features turned", rope.dims)));
    writeln!(out, "  {}", sizes.join(" · "))?;
    writeln!(out, "  {}", mask_line(c))
}

/// The flow from X to the output: steps of one operation and shape that follow each other stand together.
fn flow(rows: &[Row], out: &mut dyn Write) -> io::Result<()> {
    let story: Vec<&Row> = rows
        .iter()
        .filter(|row| {
            row.step.op != Op::Given
                || matches!(row.step.name.as_str(), "x" | "memory" | "k_past" | "v_past")
        })
        .collect();
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
        writeln!(
            out,
            "    {} ∈ {} = {}",
            names.join(", "),
            first.symbols,
            times(&first.step.axes)
        )?;
    }
    Ok(())
}

fn meanings(rows: &[Row], width: usize) -> Table {
    let cells = |row: &Row| {
        let texts = [&row.step.name, title(&row.step.name), &row.symbols, &times(&row.step.axes)];
        texts.map(Cell::new).to_vec()
    };
    let header = ["name", "meaning", "shape", "with numbers"];
    plain(&header, rows.iter().map(cells).collect(), 1, width)
}

fn costs(rows: &[Row], width: usize) -> Table {
    let cells = |name: &str, costs: [u128; 3]| {
        let count = |count: u128| right(if count == 0 { String::new() } else { thousands(count) });
        std::iter::once(Cell::new(name)).chain(costs.map(count)).collect()
    };
    let mut all: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| cells(&row.step.name, [row.parameters, row.flops, row.bytes]))
        .collect();
    let total =
        [sum(rows, |row| row.parameters), sum(rows, |row| row.flops), sum(rows, |row| row.bytes)];
    all.push(cells("in all", total));
    plain(&["name", "parameters", "FLOPs", "bytes"], all, 0, width)
}

/// `32 × 20 × 512`
fn times(axes: &Axes) -> String {
    axes.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ")
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
