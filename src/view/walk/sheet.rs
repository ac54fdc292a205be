//! The part of a tensor that fits a place on the screen, around one cell.

use std::collections::HashSet;
use std::ops::Range;

use candle_core::{DType, Tensor};
use ratatui::style::{Modifier, Style};

use crate::heat::Heat;
use crate::label::token;
use crate::number::brief;
use crate::trace::{is_true, sign, table_at};
use base::error::Result;
use config::Labels;
use program::{Axis, Step};

/// A number on the screen.
pub struct Shown {
    pub text: String,
    /// Whether the cursor stands on it.
    pub is_here: bool,
    /// Whether the explained number is made of it.
    pub is_lit: bool,
    /// Whether a mask blocks it.
    pub is_blocked: bool,
    /// How high it is, in thousandths, where that is asked for.
    pub heat: Option<u16>,
}

/// A table with labels, cut to what fits.
pub struct Sheet {
    pub columns: Vec<String>,
    pub rows: Vec<(String, Vec<Shown>)>,
    pub label_width: usize,
    pub cell_width: usize,
    /// The axis of its rows.
    pub down: &'static str,
    /// The axis of its columns, and which of them are shown, where not all are.
    pub across: String,
    /// How many rows are above and below those that are shown, if there are any.
    pub beyond: Option<String>,
    /// The lowest and the highest number, where cells show how high they are.
    pub scale: Option<(String, String)>,
}

/// What a sheet shows.
pub struct Source<'a> {
    pub step: &'a Step,
    pub values: &'a Tensor,
    pub labels: Option<&'a Labels>,
    /// The place on every axis that it is shown around.
    pub index: &'a [usize],
    /// 1 where a key is blocked.
    pub blocked: Option<&'a Tensor>,
    /// The cells of which the explained number is made, by all their axes.
    pub lit: HashSet<Vec<usize>>,
    /// Whether the cursor is here.
    pub has_cursor: bool,
    pub is_heat: bool,
    pub decimals: usize,
    /// How many columns are shown at most.
    pub most: usize,
}

/// Labels are cut to so many columns.
const LABEL: usize = 12;

impl Source<'_> {
    /// The sheet that fits so many columns and rows of text, with its header.
    ///
    /// # Errors
    /// If candle fails.
    pub fn sheet(&self, width: usize, height: usize) -> Result<Sheet> {
        let rank = self.index.len();
        let outer = &self.index[..rank.saturating_sub(2)];
        let dims: Vec<(Axis, usize)> = self.step.axes.iter().collect();
        let table = table_at(self.values, outer)?;
        let (row, column) = match self.index {
            [.., row, column] => (*row, *column),
            [column] => (0, *column),
            [] => (0, 0),
        };
        let (row_count, columns) = table.dims2()?;
        let down = rank.checked_sub(2).and_then(|at| dims.get(at));
        // A line says what is beyond the rows, where there is more.
        let room = height.saturating_sub(1);
        let many = if row_count > room { room.saturating_sub(1).max(1) } else { room };
        let rows = window(row_count, row, many);
        let beyond = down.and_then(|(axis, _)| beyond(*axis, &rows, row_count, width));
        let row_label = |at: usize| match down {
            Some(dim) => self.label(*dim, at),
            None => String::new(),
        };
        let labels: Vec<String> = rows.clone().map(row_label).collect();
        let of_rows = down.map_or("", |dim| dim.0.told());
        let label_width =
            labels.iter().map(|label| wide(label)).max().unwrap_or(0).max(wide(of_rows));
        let heat = if self.is_heat { Heat::of(self.step, &table)? } else { None };
        let room = width.saturating_sub(label_width + 1);
        let (shown, texts, cell_width) = self.fitted(&table, &rows, (column, room))?;
        let cell = |at_row: usize, at: usize, value: f64| {
            let mut place = outer.to_vec();
            place.extend([at_row, at].into_iter().skip(2usize.saturating_sub(rank)));
            Ok(Shown {
                text: self.text(value),
                is_here: self.has_cursor && (at_row, at) == (row, column),
                is_lit: self.lit.contains(&place),
                is_blocked: self.is_blocked(&place)?,
                heat: heat.as_ref().and_then(|heat| heat.thousandths(value)),
            })
        };
        let rows = rows.zip(labels).zip(texts).map(|((at_row, label), values)| {
            let cells = shown.clone().zip(values).map(|(at, value)| cell(at_row, at, value));
            Ok((label, cells.collect::<Result<Vec<_>>>()?))
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let across = match dims.last() {
            Some((axis, _)) if shown.len() < columns => tr!(
                "{axis} {start}–{end} of {all} →",
                axis = axis.many(),
                start = shown.start,
                end = shown.end.saturating_sub(1),
                all = columns
            ),
            Some((axis, _)) => format!("{} →", axis.told()),
            None => "→".to_owned(),
        };
        let columns = shown.map(|at| self.column(&dims, at)).collect();
        let scale = heat.map(|heat| heat.scale(self.decimals));
        Ok(Sheet { columns, rows, label_width, cell_width, down: of_rows, across, beyond, scale })
    }

    /// The columns around one of which so much room has place for, their numbers, and how wide a cell is.
    fn fitted(
        &self,
        table: &Tensor,
        rows: &Range<usize>,
        (around, room): (usize, usize),
    ) -> Result<(Range<usize>, Vec<Vec<f64>>, usize)> {
        let (columns, dims) = (table.dim(1)?, self.step.axes.iter().collect::<Vec<_>>());
        let (mut fit, mut tries) = (columns.min(self.most), 0);
        // The wider the numbers, the fewer fit: what is measured is what is shown.
        loop {
            let shown = window(columns, around, fit.max(1));
            let texts = numbers(table, rows, &shown)?;
            let of_numbers = texts.iter().flatten().map(|value| wide(&self.text(*value))).max();
            let of_labels = shown.clone().map(|at| wide(&self.column(&dims, at))).max();
            let cell_width = of_numbers.max(of_labels).unwrap_or(1) + 1;
            (fit, tries) = ((room / cell_width).min(self.most), tries + 1);
            if fit >= shown.len() || tries == 3 {
                return Ok((shown, texts, cell_width));
            }
        }
    }

    fn text(&self, value: f64) -> String {
        if self.step.name.row().is_boolean {
            return sign(self.step, value != 0.0).to_owned();
        }
        brief(value, self.decimals)
    }

    fn column(&self, dims: &[(Axis, usize)], at: usize) -> String {
        dims.last().map_or_else(String::new, |dim| self.label(*dim, at))
    }

    /// A place's token, or its number.
    fn label(&self, dim: (Axis, usize), at: usize) -> String {
        let item = self.step.axes.item(self.index);
        let token = token(self.labels, Some(self.step.name), dim, item, at);
        let text = token.map_or_else(|| at.to_string(), |token| format!("{at} {token}"));
        let mut width = 0;
        let fits = |letter: &char| {
            width += wide(letter.encode_utf8(&mut [0; 4]));
            width <= LABEL
        };
        text.chars().take_while(fits).collect()
    }

    fn is_blocked(&self, place: &[usize]) -> Result<bool> {
        let is_scores = self.step.name.row().is_of_scores();
        let Some(blocked) = self.blocked.filter(|_| is_scores) else { return Ok(false) };
        is_true(blocked, place)
    }
}

/// How many rows there are above and below those that are shown.
fn beyond(axis: Axis, shown: &Range<usize>, all: usize, room: usize) -> Option<String> {
    let (above, below, many) = (shown.start, all - shown.end, axis.many());
    match (above, below) {
        (0, 0) => None,
        (0, _) => Some(tr!("{below} more {many} ↓", below, many)),
        (_, 0) => Some(tr!("↑ {above} more {many}", above, many)),
        _ => {
            let told = tr!("↑ {above} and {below} more {many} ↓", above, below, many);
            Some(told).filter(|told| wide(told) < room).or(Some(format!("↑ {above} · {below} ↓")))
        }
    }
}

/// So many of all places, around one.
fn window(all: usize, around: usize, many: usize) -> Range<usize> {
    let many = many.min(all);
    let start = around.saturating_sub(many / 2).min(all - many);
    start..start + many
}

fn numbers(table: &Tensor, rows: &Range<usize>, columns: &Range<usize>) -> Result<Vec<Vec<f64>>> {
    let part = table.narrow(0, rows.start, rows.len())?.narrow(1, columns.start, columns.len())?;
    Ok(part.to_dtype(DType::F64)?.to_vec2()?)
}

/// How headings and what is looked at stand out.
pub fn bold() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

/// How many columns of a terminal a text takes.
pub fn wide(text: &str) -> usize {
    unicode_width::UnicodeWidthStr::width(text)
}
