//! How one number came about, as text.

use candle_core::DType;
use comfy_table::Cell as Column;
use serde_json::{Value, json};

use super::View;
use super::grid::{plain, right};
use super::label;
use super::number::{lossless, number, shortest};
use super::title::title;
use crate::config::Config;
use crate::error::Result;
use crate::trace::{Cell, Op, Term, Trace};

/// A sum of more terms than this is cut to its edges, unless all are asked for.
const MOST: usize = 20;

/// A cell's value, its step's formula, and the terms that add up to it.
///
/// # Errors
/// If the run has no such cell.
pub fn explanation(trace: &Trace, config: &Config, cell: &Cell, view: &View) -> Result<String> {
    let (step, value, terms) = trace.explain(cell)?;
    let place = label::cell(config.labels().as_ref(), &step.name, &step.axes, &cell.index);
    let (name, what) = (&step.name, title(&step.name));
    let value = shortest(value, step.value.dtype());
    let start = format!("{name} at {place} = {value}\n  {what}");
    if step.op == Op::Given {
        return Ok(format!("{start}, which is given\n"));
    }
    let formula = trace.formula(step);
    Ok(match terms.as_slice() {
        [only] => format!("{start}: {formula}\n  = {}\n", product(only, view.decimals)),
        terms => format!("{start}: {formula}\n{}", sum(terms, view)),
    })
}

/// `q[0,1,2] 1.500 · 1 / √4 0.500`
fn product(term: &Term, decimals: usize) -> String {
    let factors = term.0.iter().map(|f| format!("{} ({})", number(f.value, decimals), f.name));
    factors.collect::<Vec<_>>().join(" · ")
}

/// A table of the terms; of many, those at its edges, and what the others add up to.
fn sum(terms: &[Term], view: &View) -> String {
    let widest = terms.iter().map(|term| term.0.len()).max().unwrap_or(0);
    let row = |mut cells: Vec<Column>, value: f64| {
        cells.resize(2 * widest, Column::new(""));
        cells.push(right(number(value, view.decimals)));
        cells
    };
    let factors = |term: &Term| {
        let cells = term.0.iter().flat_map(|factor| {
            [Column::new(&factor.name), right(number(factor.value, view.decimals))]
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
        rows.push(row(vec![Column::new(format!("… {} more", gap.len()))], of(gap)));
    }
    rows.extend(end.iter().map(factors));
    rows.push(row(vec![Column::new("sum")], of(terms)));
    let mut header = ["factor", "value"].repeat(widest);
    header.push("product");
    let table = plain(&header, rows, 0, view.width);
    let lines: Vec<String> = table.lines().map(|line| format!(" {}", line.trim_end())).collect();
    lines.join("\n") + "\n"
}

/// The same as JSON, lossless.
///
/// # Errors
/// If the run has no such cell.
pub fn explanation_json(trace: &Trace, cell: &Cell) -> Result<Value> {
    let (step, value, terms) = trace.explain(cell)?;
    let exact = |value| lossless(value, DType::F64);
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
    }))
}
