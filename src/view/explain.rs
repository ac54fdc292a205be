//! How one number came about, as text.

use candle_core::DType;
use serde_json::{Value, json};

use super::View;
use super::label;
use super::number::number;
use super::page::{Block, Table, Text};
use crate::config::Config;
use crate::error::{Result, quoted};
use crate::file::{json_number, shortest};
use crate::program::{Cell, Explanation, Op, Reason, Term, Trace};

/// A sum of more terms than this is cut to its edges, unless all are asked for.
const MOST: usize = 20;

/// A cell's value, its step's formula, and the terms that add up to it.
///
/// # Errors
/// If the run has no such cell.
pub fn explanation(trace: &Trace, config: &Config, cell: &Cell, view: &View) -> Result<Vec<Block>> {
    let Explanation { step, value, terms, reasons } = trace.explain(cell)?;
    let place = label::cell(config.labels().as_ref(), Some(step.name), &step.axes, &cell.index);
    let place = quoted(&place);
    let (name, what) = (step.name, step.name.title());
    let value = if step.name.row().is_boolean {
        (value != 0.0).to_string()
    } else {
        shortest(value, step.value.dtype())
    };
    let mut blocks = vec![Block::text(format!("{name} at {place} = {value}"))];
    if step.op == Op::Given {
        blocks.push(Block::Text(1, format!("{what}, which is given")));
    } else {
        blocks.push(Block::Text(1, format!("{what}: {}", trace.formula(step))));
    }
    match terms.as_slice() {
        [] => {}
        [only] => blocks.push(Block::Text(1, format!("= {}", product(only, view.decimals)))),
        terms => blocks.push(Block::Table(sum(terms, view))),
    }
    if !reasons.is_empty() {
        let reasons: Vec<String> = reasons.iter().map(told).collect();
        blocks.push(Block::Text(1, format!("blocked: {}", reasons.join("; "))));
    }
    Ok(blocks)
}

/// Why a key is blocked.
fn told(reason: &Reason) -> String {
    let tokens = |count: &usize| match count {
        1 => "1 token".to_owned(),
        count => format!("{count} tokens"),
    };
    match reason {
        Reason::LaterKey { query, key } => format!("key {key} lies after query {query}"),
        Reason::EarlierKey { query, key } => format!("key {key} lies before query {query}"),
        Reason::BeforeWindow { query, key, window } => {
            format!("key {key} lies before the last {window} that query {query} sees")
        }
        Reason::OutsideWindow { query, key, window } => {
            format!("key {key} is {window} positions or more away from query {query}")
        }
        Reason::OtherChunk { query, key, chunk } => {
            format!("key {key} is of another chunk of {chunk} than query {query}")
        }
        Reason::BeyondLength { item, length, .. } => format!("item {item} has {}", tokens(length)),
        Reason::BlockedKey { item, key } => {
            format!("the key mask of item {item} has a 0 for key {key}")
        }
        Reason::OtherDocument { query, key } => {
            format!("key {key} is of another document than query {query}")
        }
        Reason::Given(step) => format!("{step} says so, which is given"),
    }
}

/// `q[0,1,2] 1.500 · 1 / √4 0.500`
fn product(term: &Term, decimals: usize) -> String {
    let factors = term.0.iter().map(|f| format!("{} ({})", number(f.value, decimals), f.name));
    factors.collect::<Vec<_>>().join(" · ")
}

/// A table of the terms; of many, those at its edges, and what the others add up to.
fn sum(terms: &[Term], view: &View) -> Table {
    let widest = terms.iter().map(|term| term.0.len()).max().unwrap_or(0);
    let row = |mut cells: Vec<Text>, value: f64| {
        cells.resize(2 * widest, Text::default());
        cells.push(Text::number(number(value, view.decimals)));
        cells
    };
    let factors = |term: &Term| {
        let cells = term.0.iter().flat_map(|factor| {
            let value = number(factor.value, view.decimals);
            [Text::from(factor.name.clone()), Text::number(value)]
        });
        row(cells.collect(), term.value())
    };
    let of = |terms: &[Term]| terms.iter().map(Term::value).sum();
    let is_whole = view.full || terms.len() <= MOST;
    let edge = if is_whole { terms.len() } else { view.edge.min(terms.len()) };
    let (start, rest) = terms.split_at(edge);
    let (gap, end) = rest.split_at(rest.len().saturating_sub(edge));
    let mut rows: Vec<_> = start.iter().map(factors).collect();
    if !gap.is_empty() {
        rows.push(row(vec![Text::from(format!("… {} more", gap.len()))], of(gap)));
    }
    rows.extend(end.iter().map(factors));
    rows.push(row(vec![Text::from("sum")], of(terms)));
    let mut header: Vec<String> =
        ["factor", "value"].repeat(widest).into_iter().map(str::to_owned).collect();
    header.push("product".to_owned());
    Table { header, rows, wraps: 0, is_inner: true }
}

/// The same as JSON, lossless.
///
/// # Errors
/// If the run has no such cell.
pub fn explanation_json(trace: &Trace, cell: &Cell) -> Result<Value> {
    let Explanation { step, value, terms, reasons } = trace.explain(cell)?;
    let exact = |value| json_number(value, DType::F64);
    let term = |term: &Term| {
        let factors = term.0.iter().map(|f| json!({ "name": f.name, "value": exact(f.value) }));
        json!({ "factors": factors.collect::<Vec<_>>(), "product": exact(term.value()) })
    };
    Ok(json!({
        "format": "mha-trace-explanation",
        "version": 1,
        "step": step.name,
        "axes": step.axes.names(),
        "index": cell.index,
        "formula": trace.formula(step),
        "value": exact(value),
        "terms": terms.iter().map(term).collect::<Vec<_>>(),
        "reasons": reasons.iter().map(told).collect::<Vec<_>>(),
    }))
}
