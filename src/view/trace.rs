//! A trace step by step, as the notebooks print it: title, formula, shape, and one table per batch item and head.

use std::rc::Rc;

use candle_core::{DType, IndexOp, Tensor};

use super::View;
use super::cut::{Shown, product, shown};
use super::header::{mask_line, numbers_line, sizes_line};
use super::heat::Heat;
use super::label::{axis_name, beside, constant, fill, is_every, moves, shape, shows_blocked};
use super::number::number;
use super::page::{Block, Grid, Head, Text, Tone};
use base::error::Result;
use base::lang;
use config::{Config, Labels};
use program::{Dim, Op, Role, Step, Trace, broadcast};

/// The signs of booleans, which mean the same in every table.
pub const BLOCKED: &str = "■";
pub const VISIBLE: &str = "·";
pub const KEPT: &str = "✓";
pub const DROPPED: &str = "✗";

/// The trace's header and every step that the view shows.
///
/// An error among them is candle's, which cannot read a value.
pub fn trace_page<'a>(
    trace: &'a Trace,
    config: &'a Config,
    view: &'a View,
) -> impl Iterator<Item = Result<Block>> + 'a {
    let trace = trace.as_told();
    let page = Rc::new(Page { trace, config, view, labels: config.labels() });
    let shown = (0..page.trace.steps().len()).filter(|at| view.shows(page.trace.steps()[*at].name));
    let steps = {
        let (page, shown) = (Rc::clone(&page), shown.collect::<Vec<_>>());
        shown.into_iter().flat_map(move |at| page.step(&page.trace.steps()[at]))
    };
    let (header, left_out) = (page.header(), page.left_out());
    header.into_iter().map(Ok).chain(steps).chain(left_out.into_iter().map(Ok))
}

struct Page<'a> {
    trace: Trace,
    config: &'a Config,
    view: &'a View,
    labels: Option<Labels>,
}

/// What a step's tables are made of.
struct Tables<'a> {
    step: &'a Step,
    /// 1 where the masks before the step block a key.
    blocked: Option<Tensor>,
    /// What blocked cells hold, and the mask that says which.
    fill: Option<(String, &'a Tensor)>,
}

impl Page<'_> {
    fn header(&self) -> Vec<Block> {
        let c = self.config;
        let facts = [sizes_line(c), mask_line(c), numbers_line(c)].map(Block::Fact);
        let title = match c.plain.recurrence {
            Some(_) => tr!("The delta rule, step by step"),
            None => tr!("Multi-head attention, step by step"),
        };
        let title = Block::Title(title.to_owned());
        std::iter::once(title).chain(facts).collect()
    }

    fn step(&self, step: &Step) -> Vec<Result<Block>> {
        let row = step.name.row();
        let formula = Some(self.trace.formula(step)).filter(|formula| {
            // What only hands on another step needs no formula.
            let is_handed_on = step.inputs.len() == 1
                && self.trace.read_by(step).iter().all(|read| read.name.as_str() == formula);
            step.op != Op::Given && !is_handed_on
        });
        let head = Head {
            name: step.name.to_string(),
            title: step.name.title().into_owned(),
            formula: formula.map(|formula| (formula, constant(step, self.view.decimals))),
            moves: moves(&self.trace, step),
            shape: shape(&self.trace, step),
            why: self.view.why.then(|| tr!("why: {why}", why = step.name.why())),
            legend: (row.is_boolean && row.is_of_scores()).then(|| boolean_legend(step).to_owned()),
        };
        let mut blocks = vec![Ok(Block::Step(head))];
        match self.tables(step) {
            Ok(tables) => blocks.extend(self.values(&tables)),
            Err(error) => blocks.push(Err(error)),
        }
        blocks
    }

    fn tables<'s>(&'s self, step: &'s Step) -> Result<Tables<'s>> {
        let blocked = if shows_blocked(step) { self.trace.blocked_before(step)? } else { None };
        let mask = self.trace.read_by(step).into_iter().find(|read| read.name.row().is_boolean);
        let fill = fill(step).zip(mask.map(|mask| &mask.value));
        Ok(Tables { step, blocked, fill })
    }

    fn values(&self, tables: &Tables) -> Vec<Result<Block>> {
        let step = tables.step;
        let axes: Vec<Dim> = step.axes.iter().collect();
        let shown = self.shown(step);
        let (outer, table) = shown.split_at(axes.len().saturating_sub(2));
        let mut blocks = Vec::new();
        for index in product(outer) {
            let caption =
                axes.iter().zip(&index).map(|(axis, at)| self.label(step, *axis, 0, *at)).collect();
            blocks.push(Ok(Block::Caption(caption)));
            let whole: Option<Vec<usize>> = index.iter().copied().collect();
            if let Some(at) = whole {
                blocks.push(self.grid(tables, &at, table).map(Block::Grid));
            }
        }
        let cut_axes = axes.iter().zip(&shown).filter(|(_, shown)| shown.left_out > 0);
        let left_out: Vec<String> = cut_axes
            .map(|((axis, size), shown)| {
                tr!(
                    "{left_out} of {size} on the {axis} axis",
                    left_out = shown.left_out,
                    size,
                    axis = axis.told()
                )
            })
            .collect();
        if !left_out.is_empty() {
            let note =
                tr!("… left out: {left_out}; --full shows all", left_out = lang::list(&left_out));
            blocks.extend([Ok(Block::Gap), Ok(Block::Text(1, note))]);
        }
        blocks
    }

    /// The table at a leading index.
    fn grid(&self, tables: &Tables, at: &[usize], table: &[Shown]) -> Result<Grid> {
        let step = tables.step;
        let axes: Vec<Dim> = step.axes.iter().skip(at.len()).collect();
        let values = table_at(&step.value, at)?;
        let one = Shown { indices: vec![Some(0)], left_out: 0 };
        let (rows, column, columns) = match (axes.as_slice(), table) {
            ([_, column], [rows, columns]) => (rows, Some(*column), columns),
            ([column], [columns]) => (&one, Some(*column), columns),
            _ => (&one, None, &one),
        };
        let item = step.axes.item(at);
        let heat = self.view.heatmap.then(|| Heat::of(step, &values)).transpose()?.flatten();
        let sums = step.op.operation().facts().is_share;
        let label = |at: &Option<usize>| match column {
            Some(column) => self.place(step, column, item, *at),
            None => step.name.to_string(),
        };
        let down = axes.first().filter(|_| axes.len() == 2);
        let mut grid = Grid {
            scale: heat.as_ref().map(|heat| heat.scale(self.view.decimals)),
            legend: Vec::new(),
            down: down.map_or_else(String::new, |axis| self.axis_name(step, *axis).to_owned()),
            across: column.map_or_else(String::new, |axis| self.axis_name(step, axis).to_owned()),
            columns: columns.indices.iter().map(label).collect(),
            rows: Vec::new(),
        };
        if sums {
            grid.columns.push(tr!("sum").to_owned());
        }
        for row in &rows.indices {
            let label = down.map_or_else(String::new, |down| self.place(step, *down, item, *row));
            let cells = match row {
                Some(row) => {
                    let values = values.i(*row)?;
                    self.row(
                        tables,
                        &[at, &[*row]].concat(),
                        &values,
                        &columns.indices,
                        (sums, heat.as_ref()),
                    )?
                }
                None => vec![Text::number("…"); grid.columns.len()],
            };
            grid.rows.push((label, cells));
        }
        let has = |sign: &str| {
            grid.rows.iter().flat_map(|(_, cells)| cells).any(|cell| cell.text == sign)
        };
        if self.is_heated(step) {
            let signs = [(BLOCKED, tr!("■ blocked")), ("nan", tr!("nan: not a number"))];
            let signs = signs.into_iter().filter(|(sign, _)| has(sign));
            grid.legend = signs.map(|(_, means)| means.to_owned()).collect();
        }
        Ok(grid)
    }

    /// Whether a step's tables show how high its numbers are, where they have any that can be seen.
    fn is_heated(&self, step: &Step) -> bool {
        self.view.heatmap && Heat::is_of(step)
    }

    fn row(
        &self,
        tables: &Tables,
        at: &[usize],
        values: &Tensor,
        columns: &[Option<usize>],
        (sums, heat): (bool, Option<&Heat>),
    ) -> Result<Vec<Text>> {
        let is_boolean = values.dtype() == DType::U8;
        let values = values.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let mut cells = Vec::with_capacity(columns.len() + 1);
        for column in columns {
            let value = column.and_then(|column| values.get(column));
            let (Some(column), Some(value)) = (column, value) else {
                cells.push(Text::number("…"));
                continue;
            };
            let index = [at, &[*column]].concat();
            let is_true = |mask: &Tensor| is_true(mask, &index);
            // NaN is not what a mask gives, even where it comes of one.
            let is_blocked = tables.blocked.as_ref().map_or(Ok(false), is_true)? && !value.is_nan();
            let fill = tables.fill.as_ref();
            let is_filled = is_blocked && fill.map_or(Ok(false), |(_, mask)| is_true(mask))?;
            let text = match fill {
                _ if is_boolean => sign(tables.step, *value != 0.0).to_owned(),
                _ if is_blocked && self.is_heated(tables.step) => BLOCKED.to_owned(),
                Some((fill, _)) if is_filled => fill.clone(),
                _ => number(*value, self.view.decimals),
            };
            let tone = if is_blocked { Tone::Faint } else { Tone::Plain };
            let heat = heat.filter(|_| !is_blocked).and_then(|heat| heat.thousandths(*value));
            cells.push(Text { tone, heat, ..Text::number(text) });
        }
        if sums {
            let sum = values.iter().sum::<f64>();
            cells.push(Text::number(number(sum, self.view.decimals)));
        }
        Ok(cells)
    }

    /// The part of a step that is shown.
    fn shown(&self, step: &Step) -> Vec<Shown> {
        let picked =
            |axis, size: usize| self.view.place(self.config, step.name, axis).filter(|_| size > 1);
        let axes = step.axes.iter().map(|(axis, size)| (size, picked(axis, size)));
        shown(&axes.collect::<Vec<_>>(), self.view)
    }

    fn axis_name(&self, step: &Step, (axis, _): Dim) -> &'static str {
        axis_name(self.config, step.name, axis)
    }

    /// `2`, with its position where queries are picked, and its token's label if it has one; `…` in a gap; `every` where a
    /// mask leaves the axis at 1 for all places.
    fn place(&self, step: &Step, axis: Dim, item: usize, at: Option<usize>) -> String {
        let Some(at) = at else { return "…".to_owned() };
        if is_every(self.config, step.name, axis) {
            return tr!("every").to_owned();
        }
        let beside = beside(self.config, self.labels.as_ref(), step.name, axis, item, at);
        std::iter::once(at.to_string()).chain(beside).collect::<Vec<_>>().join(" ")
    }

    /// `batch 0`, `kv head 0`, `every head`.
    fn label(&self, step: &Step, axis: Dim, item: usize, at: Option<usize>) -> String {
        let (name, place) = (self.axis_name(step, axis), self.place(step, axis, item, at));
        match at {
            None => place,
            Some(_) if is_every(self.config, step.name, axis) => {
                tr!("{place} {axis}", place, axis = axis.0.told())
            }
            Some(_) => format!("{name} {place}"),
        }
    }

    /// What the page does not show, if it is one of all steps.
    fn left_out(&self) -> Vec<Block> {
        if self.view.steps.is_some() {
            return Vec::new();
        }
        let names = |wanted: &dyn Fn(&Step) -> bool| {
            let steps = self.trace.steps().iter().filter(|step| wanted(step));
            steps.map(|step| step.name.as_str()).collect::<Vec<_>>()
        };
        let hidden = names(&|step| step.name.row().is_detail);
        let cut = names(&|step| {
            self.view.shows(step.name) && self.shown(step).iter().any(|axis| axis.left_out > 0)
        });
        let mut notes = Vec::new();
        if let Some(first) = hidden.first() {
            let all = lang::list(&hidden);
            notes.push(tr!(
                "Not shown: {all}. To see a step, name it: --steps {first},output",
                all,
                first
            ));
        }
        if !cut.is_empty() {
            let all = lang::list(&cut);
            notes.push(tr!(
                "Cut: {all}. --edge N shows N items at each end of every axis, --full shows all",
                all
            ));
        }
        let gap = (!notes.is_empty()).then_some(Block::Gap);
        gap.into_iter().chain(notes.into_iter().map(Block::text)).collect()
    }
}

/// The sign of a boolean.
pub fn sign(step: &Step, is_true: bool) -> &'static str {
    match (step.name.role() == Role::Random, is_true) {
        (true, true) => KEPT,
        (true, false) => DROPPED,
        (false, true) => BLOCKED,
        (false, false) => VISIBLE,
    }
}

/// What the signs of a boolean table mean.
pub fn boolean_legend(step: &Step) -> &'static str {
    if step.name.role() == Role::Random {
        tr!("✓ kept, ✗ dropped")
    } else {
        tr!("■ blocked, · visible")
    }
}

/// Whether a mask, which is broadcast, is true at a cell.
///
/// # Errors
/// If candle fails.
pub fn is_true(mask: &Tensor, index: &[usize]) -> Result<bool> {
    let mut cell = mask.clone();
    for at in broadcast(index, mask.dims()) {
        cell = cell.i(at)?;
    }
    Ok(cell.to_scalar::<u8>()? == 1)
}

/// The table at a leading index: a tensor of two axes.
pub fn table_at(values: &Tensor, at: &[usize]) -> Result<Tensor> {
    let mut table = values.clone();
    for index in at {
        table = table.i(*index)?;
    }
    while table.rank() < 2 {
        table = table.unsqueeze(0)?;
    }
    Ok(table)
}
