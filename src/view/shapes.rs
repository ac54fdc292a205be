//! The shapes of a run: its flow, and a table of every tensor with its size and cost.

use serde_json::{Value, json};

use super::header::mask_line;
use super::label::{broadcast_to, shape};
use super::number::thousands;
use super::page::{Block, Table, Text};
use base::error::bytes;
use config::{Config, End, Settings, Start};
use program::{Axes, Axis, Name, Program, Role, Size, Step};
use run::Run;

/// A step with its costs.
struct Row<'a> {
    step: &'a Step<()>,
    reads: Vec<Name>,
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
        let is_weight = step.name.role() == Role::Parameter;
        Row {
            reads: read.iter().map(|read| read.name).collect(),
            step,
            formula: program.formula(step),
            symbols: symbols(config, step),
            parameters: if is_weight { step.axes.count() } else { 0 },
            flops: step.op.flops(&axes, &step.axes),
            bytes: step.bytes(config.dtype.into()),
        }
    };
    program.outer().map(row).collect()
}

/// The axes as letters: `(B, H, T, T)`; 1 where a mask leaves an axis to be the same for all.
fn symbols(config: &Config, step: &Step<()>) -> String {
    let sizes = step.name.row().sizes;
    // Masks have the last axes of the scores, and what decays alike for all features the first ones.
    let is_first = step.axes.iter().zip(sizes).all(|((axis, _), size)| axis == size.axis());
    let skipped = if is_first { 0 } else { sizes.len().saturating_sub(step.axes.rank()) };
    let own = sizes.iter().skip(skipped);
    let symbol = |(size, (_, length)): (&Size, (Axis, usize))| match config.sizes.of(*size) {
        whole if length == 1 && whole > 1 => "1",
        _ => config.sizes.symbol(*size),
    };
    format!("({})", own.zip(step.axes.iter()).map(symbol).collect::<Vec<_>>().join(", "))
}

fn sum(rows: &[Row], part: impl Fn(&Row) -> u128) -> u128 {
    rows.iter().fold(0, |sum, row| sum.saturating_add(part(row)))
}

/// The flow chart, the table of names, meanings and shapes, and the table of costs.
#[must_use]
pub fn shapes_page(run: &Run) -> Vec<Block> {
    let config = run.config();
    let program = run.program().as_told();
    let rows = rows(config, &program);
    let mut blocks = vec![Block::text(tr!("Shapes of multi-head attention"))];
    blocks.push(Block::Fact(sizes_line(config)));
    blocks.push(Block::Fact(mask_line(config)));
    blocks.extend(flow(&rows));
    blocks.extend([Block::Gap, Block::Table(meanings(&rows))]);
    let widened = rows.iter().filter(|row| broadcast_to(&program, row.step).is_some());
    blocks
        .extend(widened.map(|row| {
            Block::Prose(0, format!("{} {}", row.step.name, shape(&program, row.step)))
        }));
    blocks.extend([Block::Gap, Block::Table(costs(&rows))]);
    let total = bytes(sum(&rows, |row| row.bytes));
    let dtype = config.dtype;
    blocks.extend([
        Block::Gap,
        Block::Prose(0, tr!("All tensors together take {total} in {dtype}. A multiply-add counts 2 FLOPs, softmax 5 an element; moving and selecting numbers count none.", total, dtype)),
    ]);
    blocks
}

fn sizes_line(config: &Config) -> String {
    let c = &config.sizes;
    let mut sizes = vec![
        tr!("B = {batch} batch", batch = c.batch),
        tr!("T = {seq_len} sequence length", seq_len = c.seq_len),
    ];
    sizes.extend(c.queries.map(|rows| tr!("T_q = {count} queries", count = rows.count)));
    if c.past_len > 0 {
        sizes.push(tr!("P = {past_len} keys of the cache", past_len = c.past_len));
    }
    if c.keys() != c.seq_len || c.is_cross {
        sizes.push(tr!("S = {keys} keys", keys = c.keys()));
    }
    let is_projected = config.start == Start::Inputs;
    if is_projected || config.end == End::Output {
        sizes.push(format!("d_model = {}", c.d_model));
    }
    if is_projected && c.d_in != c.d_model {
        sizes.push(format!("d_in = {}", c.d_in));
    }
    if is_projected && c.is_cross && c.d_memory != c.d_in {
        sizes.push(format!("d_memory = {}", c.d_memory));
    }
    sizes.extend(c.d_memory_v.map(|width| format!("d_memory_v = {width}")));
    sizes.push(tr!("H = {heads} heads", heads = c.heads));
    if c.kv_heads < c.heads {
        sizes.push(tr!("H_kv = {kv_heads} key heads", kv_heads = c.kv_heads));
    }
    let is_split = c.query_width() == c.d_model && is_projected;
    sizes.push(format!("d_k = {}{}", if is_split { "d_model / H = " } else { "" }, c.head_dim));
    if c.v_head_dim != c.head_dim {
        sizes.push(format!("d_v = {}", c.v_head_dim));
    }
    if let Some(latent) = c.latent {
        sizes.extend(latent.queries.map(|rank| format!("d_cq = {rank}")));
        sizes.push(format!("d_c = {}", latent.keys));
        sizes.extend(Some(latent.shared).filter(|own| *own > 0).map(|own| format!("d_r = {own}")));
    }
    sizes.extend(c.rope_dims.map(|dims| tr!("r = {dims} features turned", dims)));
    sizes.join(" · ")
}

/// The flow from X to the output: steps of one operation and shape that follow each other stand together.
fn flow(rows: &[Row]) -> Vec<Block> {
    let is_story =
        |row: &&Row| matches!(row.step.name.role(), Role::Computed | Role::Input | Role::Cache);
    let story: Vec<&Row> = rows.iter().filter(is_story).collect();
    let together = |left: &&Row, right: &&Row| {
        let family = |row: &Row| std::mem::discriminant(&row.step.op);
        let reads = right.reads.contains(&left.step.name);
        family(left) == family(right)
            && !reads
            && left.symbols == right.symbols
            && left.step.axes.shape() == right.step.axes.shape()
    };
    let mut blocks = Vec::new();
    for group in story.chunk_by(together) {
        let names: Vec<&str> = group.iter().map(|row| row.step.name.as_str()).collect();
        let Some(first) = group.first() else { continue };
        if first.step.is_computed() {
            let formulas: Vec<String> =
                group.iter().map(|row| format!("{} = {}", row.step.name, row.formula)).collect();
            blocks.push(Block::Text(1, format!("↓ {}", formulas.join(tr!(", ")))));
        } else {
            blocks.extend([Block::Gap, Block::Text(1, tr!("input").to_owned())]);
        }
        let shape = times(&first.step.axes);
        blocks.push(Block::Text(2, format!("{} ∈ {} = {shape}", names.join(", "), first.symbols)));
    }
    blocks
}

fn table(header: &[&str], rows: Vec<Vec<Text>>, wraps: usize) -> Table {
    let header = header.iter().map(ToString::to_string).collect();
    Table { header, rows, wraps, is_inner: false }
}

fn meanings(rows: &[Row]) -> Table {
    let cells = |row: &Row| {
        let name = row.step.name;
        let texts = [name.as_str(), &name.title(), &row.symbols, &times(&row.step.axes)];
        texts.map(Text::from).to_vec()
    };
    table(
        &[tr!("name"), tr!("meaning"), tr!("shape"), tr!("with numbers")],
        rows.iter().map(cells).collect(),
        1,
    )
}

fn costs(rows: &[Row]) -> Table {
    let cells = |name: &str, costs: [u128; 3]| {
        let count =
            |count: u128| Text::number(if count == 0 { String::new() } else { thousands(count) });
        std::iter::once(Text::from(name)).chain(costs.map(count)).collect()
    };
    let of_row = |row: &Row| cells(row.step.name.as_str(), [row.parameters, row.flops, row.bytes]);
    let mut all: Vec<Vec<Text>> = rows.iter().map(of_row).collect();
    let total =
        [sum(rows, |row| row.parameters), sum(rows, |row| row.flops), sum(rows, |row| row.bytes)];
    all.push(cells(tr!("total"), total));
    table(&[tr!("name"), tr!("parameters"), "FLOPs", tr!("bytes")], all, 0)
}

/// `32 × 20 × 512`
fn times(axes: &Axes) -> String {
    axes.shape().iter().map(ToString::to_string).collect::<Vec<_>>().join(" × ")
}

/// The same as JSON, with exact numbers (beyond 2⁶⁴, rounded ones).
#[must_use]
pub fn shapes_json(run: &Run) -> Value {
    let config = run.config();
    let program = run.program().as_told();
    let rows = rows(config, &program);
    let steps = rows.iter().map(|row| {
        json!({
            "name": row.step.name,
            "meaning": row.step.name.title(),
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

fn exact(count: u128) -> Value {
    u64::try_from(count).map_or_else(|_| json!(count as f64), |count| json!(count))
}
