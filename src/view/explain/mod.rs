//! How one number came about, as text.

mod asked;
mod reason;
mod step;
mod tree;
mod working;

pub use asked::Asked;
pub use step::{step_json, step_page};
pub(super) use working::{dropped, masked, moved};

use candle_core::DType;
use serde_json::{Value, json};

use self::reason::words;
use self::working::{nan_source, working};
use super::View;
use super::label;
use super::number::{brief, whole};
use super::page::{Block, Table, Text};
use base::error::{Result, quoted};
use config::Config;
use file::json_number;
use program::{Cell, Explanation, Op, Term, Trace, Working};

/// A sum of more terms than this is cut to its edges, unless all are asked for.
const MOST: usize = 20;

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
        _ if view.depth > 1 => blocks.extend(tree::tree(trace, cell, view.depth, view)?),
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
            "the recorded number, {value}, does not follow: those that it is made of give {sum}",
            value = n(*value),
            sum = n(sum)
        )
    })
}

/// The least positive number of f16: what is recorded in it can be off by as much.
const LEAST: f64 = 6e-8;

/// Whether a recorded number is another one than what it is made of gives, which is a sum of numbers of that size.
fn is_apart(value: f64, worked: f64, size: f64) -> bool {
    if !(value.is_finite() && worked.is_finite()) {
        return value.to_bits() != worked.to_bits() && !(value.is_nan() && worked.is_nan());
    }
    let size = size.max(value.abs()).max(worked.abs());
    // Numbers of 16 bits have three digits, and are no further off than these.
    (worked - value).abs() > LEAST.max(0.01 * size)
}

/// `q[0,1,2] 1.500 · 1 / √4 0.500`
fn product(term: &Term, decimals: usize) -> String {
    let factors = term.0.iter().map(|f| format!("{} ({})", brief(f.value, decimals), f.name));
    factors.collect::<Vec<_>>().join(" · ")
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

/// A number of a run in that type, or what is computed from such in f64: the shortest that reads back in its own.
fn exact(value: f64, dtype: DType) -> Value {
    #[allow(clippy::cast_possible_truncation, reason = "asks whether it was widened")]
    let is_narrow = dtype != DType::F64 && f64::from(value as f32).to_bits() == value.to_bits();
    json_number(value, if is_narrow { DType::F32 } else { DType::F64 })
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
        told["tree"] = tree::tree_json(trace, cell, view.depth, view.full, dtype)?;
    }
    Ok(told)
}
