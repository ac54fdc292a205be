//! A trace step by step, as the notebooks print it: title, formula, shape, and a table a batch item and head.

use std::io::{self, Write};

use candle_core::{DType, IndexOp, Tensor};

use super::View;
use super::grid::{Grid, Text};
use super::header::{mask_line, numbers_line, sizes_line};
use super::heat::Heat;
use super::label::token;
use super::number::number;
use super::title::{is_parameter, title};
use crate::config::{Config, Labels, root};
use crate::source::unravel;
use crate::trace::{Axis, Op, Step, Trace};

/// A tensor with more elements than this is cut to its edges, as torch's printing does.
const THRESHOLD: usize = 1000;

/// Writes the trace's header and every step that the view shows.
///
/// # Errors
/// If the writer fails, or candle cannot read a value.
pub fn trace_tables(
    trace: &Trace,
    config: &Config,
    view: &View,
    out: &mut dyn Write,
) -> io::Result<()> {
    let page = Page { trace, config, view, labels: config.labels() };
    page.header(out)?;
    for step in trace.steps().iter().filter(|step| view.shows(&step.name)) {
        page.step(step, out)?;
    }
    page.left_out(out)
}

/// The length of the rule above a step, where the line has room for it.
const RULE: usize = 80;

struct Page<'a> {
    trace: &'a Trace,
    config: &'a Config,
    view: &'a View,
    labels: Option<Labels>,
}

/// One axis of a table: the indices that are shown, with a gap where some are left out.
struct Shown {
    indices: Vec<Option<usize>>,
    cut: bool,
}

impl Page<'_> {
    fn header(&self, out: &mut dyn Write) -> io::Result<()> {
        let c = self.config;
        let title = self.bold("Multi-head attention, step by step");
        writeln!(out, "{title}")?;
        writeln!(out, "  {}", sizes_line(c))?;
        writeln!(out, "  {}", mask_line(c))?;
        writeln!(out, "  {}", numbers_line(c))
    }

    fn step(&self, step: &Step, out: &mut dyn Write) -> io::Result<()> {
        let rule = format!("── {} · {} ", step.name, title(&step.name));
        let rest = self.view.width.min(RULE).saturating_sub(rule.chars().count());
        writeln!(out, "\n{}", self.bold(&format!("{rule}{}", "─".repeat(rest))))?;
        if step.op != Op::Given {
            write!(out, "  {} = {}", step.name, self.trace.formula(step))?;
            if let Op::Scale { head_dim } = step.op {
                write!(
                    out,
                    ",  √d_k = √{head_dim} = {}",
                    number(root(head_dim), self.view.decimals)
                )?;
            }
            writeln!(out)?;
        }
        writeln!(out, "  shape {}", step.axes)?;
        if step.name == "mask" {
            writeln!(out, "  ■ blocked, · visible")?;
        }
        self.values(step, out)
    }

    fn values(&self, step: &Step, out: &mut dyn Write) -> io::Result<()> {
        let axes: Vec<(Axis, usize)> = step.axes.iter().collect();
        let leading = axes.len().saturating_sub(2);
        let picked: Vec<Option<usize>> = axes
            .iter()
            .map(|(axis, size)| self.picked(step, *axis).filter(|_| *size > 1))
            .collect();
        let sizes = axes.iter().zip(&picked).map(|((_, size), picked)| picked.map_or(*size, |_| 1));
        let cut = !self.view.full && sizes.product::<usize>() > THRESHOLD;
        let shown: Vec<Shown> = axes
            .iter()
            .zip(&picked)
            .map(|((_, size), picked)| match picked {
                Some(at) => Shown { indices: vec![Some(*at)], cut: false },
                None => self.shown(*size, cut),
            })
            .collect();
        let (outer, table) = shown.split_at(leading);
        for index in product(outer) {
            let caption: Vec<String> =
                axes.iter().zip(&index).map(|(axis, at)| self.label(step, *axis, 0, *at)).collect();
            writeln!(out)?;
            if !caption.is_empty() {
                writeln!(out, "  {}", caption.join(" · "))?;
            }
            let whole: Option<Vec<usize>> = index.iter().copied().collect();
            if let Some(at) = whole {
                self.grid(step, &at, table).map_err(io::Error::other)?.write(
                    "  ",
                    self.view.width,
                    self.view.color,
                    out,
                )?;
            }
        }
        let cut_axes = axes.iter().zip(&shown).filter(|(_, shown)| shown.cut);
        let left_out: Vec<String> = cut_axes
            .map(|((axis, size), _)| {
                format!("{} of {size} on the {axis} axis", size - 2 * self.view.edge)
            })
            .collect();
        if !left_out.is_empty() {
            writeln!(out, "\n  … left out: {}; --full shows all", left_out.join(", "))?;
        }
        Ok(())
    }

    /// The table at a leading index.
    fn grid(&self, step: &Step, at: &[usize], table: &[Shown]) -> candle_core::Result<Grid> {
        let axes: Vec<(Axis, usize)> = step.axes.iter().skip(at.len()).collect();
        let mut values = step.value.clone();
        for index in at {
            values = values.i(*index)?;
        }
        if values.rank() == 1 {
            values = values.unsqueeze(0)?;
        }
        let (rows, columns) = match (axes.as_slice(), table) {
            ([_, column], [rows, columns]) => (rows, (column, columns)),
            ([column], [columns]) => {
                (&Shown { indices: vec![Some(0)], cut: false }, (column, columns))
            }
            _ => return Ok(Grid::default()),
        };
        let item = step.axes.item(at);
        let heat = self.view.heatmap.then(|| Heat::of(step, &values)).transpose()?.flatten();
        let sums = step.name == "weights" && heat.is_none();
        let mut grid = Grid {
            legend: heat.as_ref().map(|heat| heat.legend(self.view.decimals)),
            columns: columns
                .1
                .indices
                .iter()
                .map(|at| self.label(step, *columns.0, item, *at))
                .collect(),
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
                    self.row(step, at, *row, &values, &columns.1.indices, (sums, heat.as_ref()))?
                }
                None => vec![Text::from("…".to_owned()); grid.columns.len()],
            };
            grid.rows.push((label, cells));
        }
        Ok(grid)
    }

    fn row(
        &self,
        step: &Step,
        at: &[usize],
        row: usize,
        values: &Tensor,
        columns: &[Option<usize>],
        (sums, heat): (bool, Option<&Heat>),
    ) -> candle_core::Result<Vec<Text>> {
        let boolean = values.dtype() == DType::U8;
        let sum = if sums {
            Some(values.sum_all()?.to_dtype(DType::F64)?.to_scalar::<f64>()?)
        } else {
            None
        };
        let values = values.to_dtype(DType::F64)?.to_vec1::<f64>()?;
        let mut cells = Vec::with_capacity(columns.len() + 1);
        for column in columns {
            let value = column.and_then(|column| values.get(column));
            let (Some(column), Some(value)) = (column, value) else {
                cells.push(Text::from("…".to_owned()));
                continue;
            };
            let faint = self.blocks(step, at, row, *column)?;
            let text = match step.op {
                _ if let Some(heat) = heat => heat.shade(*value, faint),
                _ if boolean => if *value == 0.0 { "·" } else { "■" }.to_owned(),
                Op::MaskFill { fill } if faint && fill.to_string().len() <= 8 => fill.to_string(),
                _ => number(*value, self.view.decimals),
            };
            cells.push(Text { text, faint });
        }
        cells.extend(sum.map(|sum| Text::from(number(sum, self.view.decimals))));
        Ok(cells)
    }

    /// Whether the mask blocks this cell of a step behind it.
    fn blocks(
        &self,
        step: &Step,
        at: &[usize],
        row: usize,
        column: usize,
    ) -> candle_core::Result<bool> {
        if !matches!(step.name.as_str(), "masked_scores" | "weights" | "weights_dropped") {
            return Ok(false);
        }
        let Some(mask) = self.trace.step("mask") else { return Ok(false) };
        let index = [at, &[row, column]].concat();
        let skipped = index.len().saturating_sub(mask.axes.rank());
        let mut cell = mask.value.clone();
        for (at, size) in index.iter().skip(skipped).zip(mask.axes.shape()) {
            cell = cell.i(if size == 1 { 0 } else { *at })?;
        }
        Ok(cell.to_scalar::<u8>()? == 1)
    }

    /// The only place of an axis that is shown; of shared key heads, the one of the query head.
    fn picked(&self, step: &Step, axis: Axis) -> Option<usize> {
        match axis {
            Axis::Batch => self.view.batch_item,
            Axis::Head if is_of_key_heads(&step.name) => {
                self.view.head.map(|head| head / (self.config.heads / self.config.kv_heads))
            }
            Axis::Head => self.view.head,
            _ => None,
        }
    }

    fn shown(&self, size: usize, cut: bool) -> Shown {
        let edge = self.view.edge;
        if !cut || size <= 2 * edge {
            return Shown { indices: (0..size).map(Some).collect(), cut: false };
        }
        let ends = (0..edge).map(Some).chain([None]).chain((size - edge..size).map(Some));
        Shown { indices: ends.collect(), cut: true }
    }

    /// `query 2`, with the token's label if it has one; `…` in a gap; `every head` where a mask leaves the axis at 1 for
    /// all of them; `kv head 0` where heads are shared.
    fn label(&self, step: &Step, axis: (Axis, usize), item: usize, at: Option<usize>) -> String {
        let (name, size) = axis;
        let c = self.config;
        let whole = match name {
            Axis::Batch => c.batch,
            Axis::Head if is_of_key_heads(&step.name) => c.kv_heads,
            Axis::Head => c.heads,
            Axis::Query => c.query_count(),
            Axis::Key => c.key_count(),
            Axis::Model | Axis::HeadDim | Axis::Input => size,
        };
        let shared = if name == Axis::Head && whole < c.heads { "kv " } else { "" };
        match at {
            None => "…".to_owned(),
            Some(_) if size == 1 && whole > 1 => format!("every {name}"),
            Some(at) => match token(self.labels.as_ref(), &step.name, axis, item, at) {
                Some(token) => format!("{name} {at} {token}"),
                None => format!("{shared}{name} {at}"),
            },
        }
    }

    fn left_out(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.view.steps.is_some() {
            return Ok(());
        }
        let names: Vec<&str> = self
            .trace
            .steps()
            .iter()
            .map(|step| step.name.as_str())
            .filter(|name| is_parameter(name))
            .collect();
        writeln!(
            out,
            "\nNot shown: {}. Any step is shown by --steps {},output",
            names.join(", "),
            names[0]
        )
    }

    fn bold(&self, text: &str) -> String {
        if self.view.color { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// Whether a step's heads are those of the keys and values, which query heads may share.
pub fn is_of_key_heads(step: &str) -> bool {
    matches!(
        step,
        "k_heads" | "v_heads" | "k_norm" | "k_rot" | "k_past" | "v_past" | "k_cached" | "v_cached"
    )
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
