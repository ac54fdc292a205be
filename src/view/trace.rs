//! A trace step by step, as the notebooks print it: title, formula, shape, and one table per batch item and head.

use std::rc::Rc;

use candle_core::{DType, IndexOp, Tensor};

use super::View;
use super::header::{mask_line, numbers_line, sizes_line};
use super::heat::Heat;
use super::label::{moves, token};
use super::number::number;
use super::page::{Block, Grid, Head, Text};
use crate::config::{Config, Labels};
use crate::error::Result;
use crate::program::{Axis, BlockedCells, Dim, Fill, Op, Role, Step, Trace, broadcast, unravel};

/// A tensor with more elements than this is cut to its edges, as torch's printing does.
const THRESHOLD: usize = 1000;

/// The trace's header and every step that the view shows.
///
/// An error among them is candle's, which cannot read a value.
pub fn trace_page<'a>(
    trace: &'a Trace,
    config: &'a Config,
    view: &'a View,
) -> impl Iterator<Item = Result<Block>> + 'a {
    let page = Rc::new(Page { trace, config, view, labels: config.labels() });
    let shown = trace.steps().iter().filter(|step| view.shows(step.name));
    let steps = {
        let page = Rc::clone(&page);
        shown.flat_map(move |step| page.step(step))
    };
    let (header, left_out) = (page.header(), page.left_out());
    header.into_iter().map(Ok).chain(steps).chain(left_out.into_iter().map(Ok))
}

struct Page<'a> {
    trace: &'a Trace,
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

/// One axis of a table: the indices that are shown, with a gap where some are left out.
struct Shown {
    indices: Vec<Option<usize>>,
    is_cut: bool,
}

impl Page<'_> {
    fn header(&self) -> Vec<Block> {
        let c = self.config;
        let facts = [sizes_line(c), mask_line(c), numbers_line(c)].map(Block::Fact);
        let title = Block::Title("Multi-head attention, step by step".to_owned());
        std::iter::once(title).chain(facts).collect()
    }

    fn step(&self, step: &Step) -> Vec<Result<Block>> {
        let row = step.name.row();
        let constant = step.op.operation().constant().map(|(name, of, value)| {
            format!("{name} = {of} = {}", number(value, self.view.decimals))
        });
        let formula = Some(self.trace.formula(step)).filter(|formula| {
            // What only hands on another step needs no formula.
            let is_handed_on = step.inputs.len() == 1
                && self.trace.read_by(step).iter().all(|read| read.name.as_str() == formula);
            step.op != Op::Given && !is_handed_on
        });
        let head = Head {
            name: step.name.to_string(),
            title: row.title.to_owned(),
            formula: formula.map(|formula| (formula, constant)),
            moves: moves(self.trace, step),
            shape: step.axes.to_string(),
            why: self.view.why.then(|| format!("why: {}", step.name.why())),
            legend: (row.is_boolean && row.is_of_scores())
                .then(|| Self::boolean_legend(step).to_owned()),
        };
        let mut blocks = vec![Ok(Block::Step(head))];
        match self.tables(step) {
            Ok(tables) => blocks.extend(self.values(&tables)),
            Err(error) => blocks.push(Err(error)),
        }
        blocks
    }

    fn tables<'s>(&'s self, step: &'s Step) -> Result<Tables<'s>> {
        let shows = step.name.row().blocked != BlockedCells::Unknown && step.is_computed();
        let blocked = if shows { self.trace.blocked_before(step)? } else { None };
        let mask = self.trace.read_by(step).into_iter().find(|read| read.name.row().is_boolean);
        let fill = step.op.operation().fill().map(|fill| Fill(fill).to_string());
        // One that is longer than numbers are is rounded as they are.
        let fill = fill.filter(|fill| fill.len() <= 8).zip(mask.map(|mask| &mask.value));
        Ok(Tables { step, blocked, fill })
    }

    fn values(&self, tables: &Tables) -> Vec<Result<Block>> {
        let step = tables.step;
        let axes: Vec<Dim> = step.axes.iter().collect();
        let leading = axes.len().saturating_sub(2);
        let picked: Vec<Option<usize>> = axes
            .iter()
            .map(|(axis, size)| {
                self.view.place(self.config, step.name, *axis).filter(|_| *size > 1)
            })
            .collect();
        let sizes = axes.iter().zip(&picked).map(|((_, size), picked)| picked.map_or(*size, |_| 1));
        let is_cut = !self.view.full && sizes.product::<usize>() > THRESHOLD;
        let shown: Vec<Shown> = axes
            .iter()
            .zip(&picked)
            .map(|((_, size), picked)| match picked {
                Some(at) => Shown { indices: vec![Some(*at)], is_cut: false },
                None => self.shown(*size, is_cut),
            })
            .collect();
        let (outer, table) = shown.split_at(leading);
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
        let cut_axes = axes.iter().zip(&shown).filter(|(_, shown)| shown.is_cut);
        let left_out: Vec<String> = cut_axes
            .map(|((axis, size), _)| {
                format!("{} of {size} on the {axis} axis", size - 2 * self.view.edge)
            })
            .collect();
        if !left_out.is_empty() {
            let note = format!("… left out: {}; --full shows all", left_out.join(", "));
            blocks.extend([Ok(Block::Gap), Ok(Block::Text(1, note))]);
        }
        blocks
    }

    /// The table at a leading index.
    fn grid(&self, tables: &Tables, at: &[usize], table: &[Shown]) -> Result<Grid> {
        let step = tables.step;
        let axes: Vec<Dim> = step.axes.iter().skip(at.len()).collect();
        let mut values = step.value.clone();
        for index in at {
            values = values.i(*index)?;
        }
        while values.rank() < 2 {
            values = values.unsqueeze(0)?;
        }
        let one = Shown { indices: vec![Some(0)], is_cut: false };
        let (rows, column, columns) = match (axes.as_slice(), table) {
            ([_, column], [rows, columns]) => (rows, Some(*column), columns),
            ([column], [columns]) => (&one, Some(*column), columns),
            _ => (&one, None, &one),
        };
        let item = step.axes.item(at);
        let heat = self.view.heatmap.then(|| Heat::of(step, &values)).transpose()?.flatten();
        let sums = step.op.operation().is_share() && heat.is_none();
        let label = |at: &Option<usize>| match column {
            Some(column) => self.label(step, column, item, *at),
            None => step.name.to_string(),
        };
        let mut grid = Grid {
            legend: heat.as_ref().map(|heat| heat.legend(self.view.decimals)),
            columns: columns.indices.iter().map(label).collect(),
            rows: Vec::new(),
        };
        if sums {
            grid.columns.push("sum".to_owned());
        }
        for row in &rows.indices {
            let label = match axes.as_slice() {
                [down, _] => self.label(step, *down, item, *row),
                _ => String::new(),
            };
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
        Ok(grid)
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
            let is_faint = tables.blocked.as_ref().map_or(Ok(false), is_true)?;
            let fill = tables.fill.as_ref();
            let is_filled = is_faint && fill.map_or(Ok(false), |(_, mask)| is_true(mask))?;
            let text = match (heat, fill) {
                (Some(heat), _) => heat.shade(*value, is_faint),
                _ if is_boolean => if *value == 0.0 { "·" } else { "■" }.to_owned(),
                (None, Some((fill, _))) if is_filled => fill.clone(),
                _ => number(*value, self.view.decimals),
            };
            cells.push(Text { is_faint, ..Text::number(text) });
        }
        if sums {
            let sum = values.iter().sum::<f64>();
            cells.push(Text::number(number(sum, self.view.decimals)));
        }
        Ok(cells)
    }

    /// What the signs of a boolean table mean.
    fn boolean_legend(step: &Step) -> &'static str {
        if step.name.role() == Role::Random {
            "■ kept, · dropped"
        } else {
            "■ blocked, · visible"
        }
    }

    fn shown(&self, size: usize, is_cut: bool) -> Shown {
        let edge = self.view.edge;
        if !is_cut || size <= 2 * edge {
            return Shown { indices: (0..size).map(Some).collect(), is_cut: false };
        }
        let ends = (0..edge).map(Some).chain([None]).chain((size - edge..size).map(Some));
        Shown { indices: ends.collect(), is_cut: true }
    }

    /// `query 2`, with the token's label if it has one; `…` in a gap; `every head` where a mask leaves the axis at 1 for
    /// all of them; `kv head 0` where heads are shared.
    fn label(&self, step: &Step, axis: Dim, item: usize, at: Option<usize>) -> String {
        let (name, size) = axis;
        let row = step.name.row();
        let sizes = &self.config.sizes;
        let length = row.sizes.iter().find(|length| length.axis() == name);
        let whole = length.map_or(size, |length| sizes.of(*length));
        let is_shared = name == Axis::Head && row.has_key_heads() && sizes.kv_heads < sizes.heads;
        let shared = if is_shared { "kv " } else { "" };
        match at {
            None => "…".to_owned(),
            Some(_) if size == 1 && whole > 1 => format!("every {name}"),
            Some(at) => match token(self.labels.as_ref(), Some(step.name), axis, item, at) {
                Some(token) => format!("{name} {at} {token}"),
                None => format!("{shared}{name} {at}"),
            },
        }
    }

    fn left_out(&self) -> Vec<Block> {
        let names: Vec<&str> = self
            .trace
            .steps()
            .iter()
            .filter(|step| step.name.row().is_detail)
            .map(|step| step.name.as_str())
            .collect();
        match names.first().filter(|_| self.view.steps.is_none()) {
            Some(first) => {
                let names = names.join(", ");
                let note =
                    format!("Not shown: {names}. Any step is shown by --steps {first},output");
                vec![Block::Gap, Block::text(note)]
            }
            None => Vec::new(),
        }
    }
}

/// Whether a mask, which is broadcast, is true at a cell.
fn is_true(mask: &Tensor, index: &[usize]) -> Result<bool> {
    let mut cell = mask.clone();
    for at in broadcast(index, mask.dims()) {
        cell = cell.i(at)?;
    }
    Ok(cell.to_scalar::<u8>()? == 1)
}

/// Every combination of the shown indices, the last running fastest; a gap stands once for all that it hides, and
/// ends its index.
fn product(axes: &[Shown]) -> Vec<Vec<Option<usize>>> {
    let sizes: Vec<usize> = axes.iter().map(|axis| axis.indices.len()).collect();
    let count = sizes.iter().product();
    let pick = |at: usize| -> Vec<Option<usize>> {
        let index = unravel(at, &sizes);
        let mut picked: Vec<Option<usize>> =
            axes.iter().zip(index).filter_map(|(axis, at)| axis.indices.get(at).copied()).collect();
        if let Some(gap) = picked.iter().position(Option::is_none) {
            picked.truncate(gap + 1);
        }
        picked
    };
    let mut all: Vec<_> = (0..count).map(pick).collect();
    all.dedup();
    all
}
