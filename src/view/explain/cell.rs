//! How one number came about, in words and as JSON.

use serde_json::{Value, json};

use super::reason::words;
use super::terms::{MOST, exact, is_apart, product};
use super::tree::{tree, tree_json};
use super::working::{nan_source, working};
use crate::View;
use crate::label;
use crate::number::{brief, whole};
use crate::page::{Block, Table, Text};
use base::error::{Result, quoted};
use config::Config;
use program::{Cell, Explanation, Op, Term, Trace, Working};

/// A cell's value, its step's formula, and the terms that add up to it.
///
/// # Errors
/// If the run has no such cell.
pub fn explanation(trace: &Trace, config: &Config, cell: &Cell, view: &View) -> Result<Vec<Block>> {
    let explanation = trace.explain(cell)?;
    let Explanation { step, value, terms, reasons, .. } = &explanation;
    let labels = config.labels();
    let place = label::cell_of(config, labels.as_ref(), step, &cell.index);
    let place = quoted(&place);
    let (name, what) = (step.name, step.name.title());
    let value = if step.name.row().is_boolean {
        (*value != 0.0).to_string()
    } else {
        whole(*value, step.value.dtype())
    };
    let mut blocks = vec![Block::Prose(0, tr!("{name} at {place} = {value}", name, place, value))];
    let given = step.op == Op::Given;
    let made = if given {
        tr!(", which is given").to_owned()
    } else {
        tr!(": {formula}", formula = trace.formula(step))
    };
    blocks.push(Block::Prose(1, format!("{what}{made}")));
    blocks.extend(view.why.then(|| Block::Prose(1, tr!("why: {why}", why = name.why()))));
    blocks.extend(working(&explanation, labels.as_ref(), &cell.index, view));
    match terms.as_slice() {
        [] => {}
        _ if view.depth > 1 => blocks.extend(tree(trace, cell, view.depth, view)?),
        [only] => blocks.push(Block::Prose(1, format!("= {}", product(only, view.decimals)))),
        // Products of many factors are wider than a line.
        terms if terms.iter().any(|term| term.0.len() > 2) && terms.len() <= MOST => {
            let of = |value| brief(value, view.decimals);
            blocks.extend(terms.iter().map(|term| {
                let value = of(term.value());
                Block::Prose(1, format!("+ {} = {value}", product(term, view.decimals)))
            }));
            let sum = terms.iter().map(Term::value).sum();
            blocks.push(Block::Prose(1, format!("= {}", of(sum))));
        }
        terms => blocks.push(Block::Table(sum(terms, view))),
    }
    // The row of a softmax has told why.
    if !matches!(explanation.working, Working::Softmax(_)) {
        blocks.extend(reasons.iter().map(|reason| {
            let words = words(reason);
            Block::Prose(1, tr!("blocked by the {mask}: {why}", mask = words.mask, why = words.why))
        }));
    }
    blocks.extend(unlike(&explanation, view.decimals).map(|text| Block::Prose(1, text)));
    blocks.extend(
        explanation
            .nan
            .as_ref()
            .map(|source| Block::Prose(1, nan_source(source, source.cell == *cell))),
    );
    Ok(blocks)
}

/// What there is to say where the terms give another number than the cell holds: what is recorded can be wrong.
fn unlike(explanation: &Explanation, decimals: usize) -> Option<String> {
    let Explanation { value, terms, .. } = explanation;
    let sum: f64 = terms.iter().map(Term::value).sum();
    let size = terms.iter().map(|term| term.value().abs()).fold(0.0, f64::max);
    let n = |value| brief(value, decimals);
    (!terms.is_empty() && is_apart(*value, sum, size)).then(|| {
        tr!(
            "the recorded number, {value}, does not follow from the numbers that it is computed from: they give {sum}",
            value = n(*value),
            sum = n(sum)
        )
    })
}

/// A table of the terms; of many, those at its edges, and what the others add up to.
fn sum(terms: &[Term], view: &View) -> Table {
    let widest = terms.iter().map(|term| term.0.len()).max().unwrap_or(0);
    let row = |mut cells: Vec<Text>, value: f64| {
        cells.resize(2 * widest, Text::default());
        cells.push(Text::number(brief(value, view.decimals)));
        cells
    };
    let factors = |term: &Term| {
        let cells = term.0.iter().flat_map(|factor| {
            let value = brief(factor.value, view.decimals);
            [Text::from(factor.name.clone()), Text::number(value)]
        });
        row(cells.collect(), term.value())
    };
    let of = |terms: &[Term]| terms.iter().map(Term::value).sum();
    let is_whole = view.full || terms.len() <= MOST;
    let edge = if is_whole { terms.len() } else { View::EDGE.min(terms.len()) };
    let (start, rest) = terms.split_at(edge);
    let (gap, end) = rest.split_at(rest.len().saturating_sub(edge));
    let mut rows: Vec<_> = start.iter().map(factors).collect();
    if !gap.is_empty() {
        rows.push(row(vec![Text::from(tr!("… {gap} more", gap = gap.len()))], of(gap)));
    }
    rows.extend(end.iter().map(factors));
    rows.push(row(vec![Text::from(tr!("sum"))], of(terms)));
    let mut header: Vec<String> =
        [tr!("factor"), tr!("value")].repeat(widest).into_iter().map(str::to_owned).collect();
    header.push(tr!("product").to_owned());
    Table { header, rows, wraps: 0, is_inner: true }
}

/// The same as JSON, lossless.
///
/// # Errors
/// If the run has no such cell.
pub fn explanation_json(trace: &Trace, cell: &Cell, view: &View) -> Result<Value> {
    let explanation = trace.explain(cell)?;
    let Explanation { step, value, terms, reasons, .. } = &explanation;
    let dtype = step.value.dtype();
    let exact = |value| exact(value, dtype);
    let term = |term: &Term| {
        let factors = term.0.iter().map(|f| json!({ "name": f.name, "value": exact(f.value) }));
        json!({ "factors": factors.collect::<Vec<_>>(), "product": exact(term.value()) })
    };
    let mut told = json!({
        "format": "mha-trace-explanation",
        "version": 1,
        "step": step.name,
        "axes": step.axes.names(),
        "index": cell.index,
        "formula": trace.formula(step),
        "why": step.name.why(),
        "value": exact(*value),
        "terms": terms.iter().map(term).collect::<Vec<_>>(),
        "reasons": reasons.iter().map(|reason| words(reason).why).collect::<Vec<_>>(),
    });
    if let Working::Softmax(row) = &explanation.working {
        let keys = row.keys.iter().zip(&explanation.row).map(|(key, own)| {
            let blocked: Vec<_> = own.reasons.iter().map(|reason| words(reason).mask).collect();
            let weight = own.value.map(exact);
            json!({ "score": exact(key.score.value), "exp": exact(key.exp), "weight": weight, "blocked_by": blocked })
        });
        told["row"] = keys.collect();
    }
    if let Some(source) = &explanation.nan {
        told["nan_from"] = json!(source.cell.to_string());
    }
    if view.depth > 1 {
        told["tree"] = tree_json(trace, cell, view.depth, view.full, dtype)?;
    }
    Ok(told)
}
