//! A trace step by step, as the notebooks print it: title, formula, shape, and a table a batch item and head.

use std::io::{self, Write};

use candle_core::{DType, IndexOp, Tensor};

use super::View;
use super::grid::{Grid, Text};
use super::number::number;
use super::title::{is_parameter, title};
use crate::config::{Config, Mask, root};
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
    let page = Page { trace, config, view };
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
        writeln!(
            out,
            "  batch {} · sequence length {} · d_model {} · heads {} · head_dim {}",
            c.batch,
            c.seq_len,
            c.d_model,
            c.heads,
            c.head_dim()
        )?;
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
        let picked: Vec<Option<usize>> =
            axes.iter().map(|(axis, size)| self.picked(*axis).filter(|_| *size > 1)).collect();
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
                axes.iter().zip(&index).map(|(axis, at)| self.label(*axis, *at)).collect();
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
            _ => return Ok(Grid { columns: Vec::new(), rows: Vec::new() }),
        };
        let sums = step.name == "weights";
        let mut grid = Grid {
            columns: columns.1.indices.iter().map(|at| self.label(*columns.0, *at)).collect(),
            rows: Vec::new(),
        };
        if sums {
            grid.columns.push("sum".to_owned());
        }
        for row in &rows.indices {
            let label = match axes.as_slice() {
                [down, _] => self.label(*down, *row),
                _ => String::new(),
            };
            let cells = match row {
                Some(row) => {
                    self.row(step, at, *row, &values.i(*row)?, &columns.1.indices, sums)?
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
        sums: bool,
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

    fn picked(&self, axis: Axis) -> Option<usize> {
        match axis {
            Axis::Batch => self.view.batch_item,
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

    /// `query 2`; `…` in a gap; `every head` where a mask leaves the axis at 1 for all of them.
    fn label(&self, (axis, size): (Axis, usize), at: Option<usize>) -> String {
        let whole = match axis {
            Axis::Batch => self.config.batch,
            Axis::Head => self.config.heads,
            Axis::Query | Axis::Key => self.config.seq_len,
            Axis::Model | Axis::HeadDim | Axis::Input => size,
        };
        match at {
            None => "…".to_owned(),
            Some(_) if size == 1 && whole > 1 => format!("every {axis}"),
            Some(at) => format!("{axis} {at}"),
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

pub fn mask_line(c: &Config) -> String {
    let mut masks = Vec::new();
    if c.mask == Mask::Causal {
        masks.push(match c.window {
            Some(window) => format!("causal, window {window}"),
            None => "causal".to_owned(),
        });
    }
    if let Some(rows) = &c.key_mask {
        masks.push(format!("keys {}", rows.join(",")));
    }
    if let Some(lengths) = &c.lengths {
        let lengths: Vec<String> = lengths.iter().map(ToString::to_string).collect();
        masks.push(format!("lengths {}", lengths.join(",")));
    }
    masks.extend(c.attn_mask.clone());
    let mask = if masks.is_empty() {
        "no mask".to_owned()
    } else {
        format!("mask {} · fill {}", masks.join(" and "), c.mask_fill)
    };
    let alibi = c.alibi.then(|| "alibi".to_owned());
    let scale = c.scale.map(|scale| format!("scale {scale}"));
    let softcap = c.softcap.map(|cap| format!("softcap {cap}"));
    [Some(mask), alibi, scale, softcap].into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

fn numbers_line(c: &Config) -> String {
    let x = c.x.as_ref().map_or_else(|| format!("x {}", c.input), |path| format!("x from {path}"));
    let bias = if c.bias { "with bias" } else { "no bias" };
    let weights = c
        .weights
        .as_ref()
        .map_or_else(|| format!("weights {}", c.init), |path| format!("weights from {path}"));
    let dropout =
        if c.dropout > 0.0 { format!(" · dropout {}", c.dropout) } else { String::new() };
    format!("{x} · {weights}, {bias} · seed {}{dropout} · {}", c.seed.0, c.dtype)
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
