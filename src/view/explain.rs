//! How one number came about, as text.

use std::io::{self, Write};

use comfy_table::Cell as Column;
use serde_json::{Value, json};

use super::View;
use super::grid::{plain, right};
use super::label;
use super::number::{number, shortest};
use super::title::title;
use crate::config::Config;
use crate::error::Result;
use crate::trace::{Cell, Op, Term, Trace};

/// A sum of more terms than this is cut to its edges, unless all are asked for.
const MOST: usize = 20;

/// Writes a cell's value, its step's formula, and the terms that add up to it.
///
/// # Errors
/// If the run has no such cell, or the writer fails.
pub fn explanation(
    trace: &Trace,
    config: &Config,
    cell: &Cell,
    view: &View,
    out: &mut dyn Write,
) -> Result<io::Result<()>> {
    let (step, value, terms) = trace.explain(cell)?;
    let place = label::cell(config.labels().as_ref(), &step.name, &step.axes, &cell.index);
    let value = shortest(value, step.value.dtype());
    let mut write = || {
        writeln!(out, "{} at {place} = {value}", step.name)?;
        if step.op == Op::Given {
            return writeln!(out, "  {}, which is given", title(&step.name));
        }
        writeln!(out, "  {}: {}", title(&step.name), trace.formula(step))?;
        match terms.as_slice() {
            [only] => writeln!(out, "  = {}", product(only, view.decimals)),
            terms => sum(terms, view, out),
        }
    };
    Ok(write())
}

/// `q[0,1,2] 1.500 · 1 / √4 0.500`
fn product(term: &Term, decimals: usize) -> String {
    let factors = term.0.iter().map(|f| format!("{} ({})", number(f.value, decimals), f.name));
    factors.collect::<Vec<_>>().join(" · ")
}

fn sum(terms: &[Term], view: &View, out: &mut dyn Write) -> io::Result<()> {
    let widest = terms.iter().map(|term| term.0.len()).max().unwrap_or(0);
    let gap = (!view.full && terms.len() > MOST)
        .then(|| view.edge..terms.len() - view.edge.min(terms.len()));
    let mut rows = Vec::new();
    for (at, term) in terms.iter().enumerate() {
        if let Some(gap) = gap.as_ref().filter(|gap| gap.contains(&at)) {
            if at == gap.start {
                let rest: f64 =
                    terms.get(gap.clone()).unwrap_or_default().iter().map(Term::value).sum();
                let mut row = vec![Column::new(format!("… {} more", gap.len()))];
                row.resize(2 * widest, Column::new(""));
                row.push(right(number(rest, view.decimals)));
                rows.push(row);
            }
            continue;
        }
        let mut row = Vec::new();
        for factor in &term.0 {
            row.extend([Column::new(&factor.name), right(number(factor.value, view.decimals))]);
        }
        row.resize(2 * widest, Column::new(""));
        row.push(right(number(term.value(), view.decimals)));
        rows.push(row);
    }
    let total: f64 = terms.iter().map(Term::value).sum();
    let mut row = vec![Column::new("sum")];
    row.resize(2 * widest, Column::new(""));
    row.push(right(number(total, view.decimals)));
    rows.push(row);
    let mut header = ["factor", "value"].repeat(widest);
    header.push("product");
    for line in plain(&header, rows, 0, view.width).lines() {
        writeln!(out, " {}", line.trim_end())?;
    }
    Ok(())
}

/// The same as JSON, lossless.
///
/// # Errors
/// If the run has no such cell.
pub fn explanation_json(trace: &Trace, cell: &Cell) -> Result<Value> {
    let (step, value, terms) = trace.explain(cell)?;
    let exact = |value: f64| {
        if value.is_finite() {
            json!(value)
        } else {
            json!(shortest(value, candle_core::DType::F64))
        }
    };
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
