//! A walk on the screen: the step, its table, what the number under the cursor is made of, and how.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block as Border, Borders, Paragraph, Wrap};

use super::help::help;
use super::sheet::{Shown, bold, wide};
use super::state::{Beside, Walk};
use crate::explain::MARK;
use crate::label::{is_every, moves, shape};
use crate::text::{self, write_text};
use crate::tour::stops;
use crate::trace::boolean_legend;
use crate::{Block, Palette, Table, Text, explanation};
use base::error::Result;
use base::lang;
use check::Status;
use program::{Axis, Op, Step};

/// Lines of the explanation that are always there.
const EXPLAINED: u16 = 8;

/// What a key line has room for.
const HINT: &str =
    "? keys  q quit  Esc back  n/p step  ←↑→↓ number  h head  b item  Enter follow  w why";

/// The smallest window that a walk has room in, columns and lines.
const LEAST: (u16, u16) = (40, 12);

/// Fewer lines than this have no room for more than the formula above the table.
const TALL: u16 = 16;

/// The heat map's colours: the higher, the darker.
const HEAT: Palette = Palette { is_true: false, is_light: true };

/// A colour of the 256.
fn indexed(color: comfy_table::Color) -> Color {
    match color {
        comfy_table::Color::AnsiValue(index) => Color::Indexed(index),
        _ => Color::Reset,
    }
}

pub fn faint() -> Style {
    Style::default().add_modifier(Modifier::DIM)
}

/// As many of the hints as there is room for, none of them cut.
fn hints(all: &str, width: usize) -> &str {
    let ends = all.match_indices("  ").map(|(at, _)| at).chain([all.len()]);
    ends.map(|end| &all[..end]).take_while(|hints| wide(hints) <= width).last().unwrap_or_default()
}

impl Walk<'_> {
    /// Blocks as lines of text.
    fn written(&self, blocks: Vec<Block>, width: usize) -> Result<Vec<String>> {
        let style = text::Style { width, colors: None, spell: self.route.spell };
        let mut written = Vec::new();
        write_text(blocks, style, &mut written).map_err(candle_core::Error::from)?;
        Ok(String::from_utf8_lossy(&written).lines().map(str::to_owned).collect())
    }

    /// A step's name, and which of its tables is shown.
    pub(super) fn title(&self, step: &Step, index: &[usize]) -> String {
        let places = step.axes.iter().zip(index).take(index.len().saturating_sub(2));
        // A batch of one item has no other.
        let is_told = |dim| dim != (Axis::Batch, 1) || is_every(self.route.config, step.name, dim);
        let places = places.filter(|(dim, _)| is_told(*dim));
        let places = places.map(|(dim, at)| {
            if is_every(self.route.config, step.name, dim) {
                return format!(" · {}", tr!("every {axis}", axis = dim.0.told()));
            }
            format!(" · {} {at}", dim.0.told())
        });
        std::iter::once(step.name.to_string()).chain(places).collect()
    }

    pub(super) fn draw(&mut self, frame: &mut Frame) {
        if let Err(error) = self.draw_all(frame) {
            let told = Paragraph::new(error.to_string()).wrap(Wrap { trim: false });
            frame.render_widget(told, frame.area());
        }
    }

    fn draw_all(&mut self, frame: &mut Frame) -> Result<()> {
        let (width, height) = (frame.area().width, frame.area().height);
        if width < LEAST.0 || height < LEAST.1 {
            return self.draw_too_small(frame);
        }
        let heading = self.heading(width.into(), height >= TALL)?;
        let factors = match self.beside {
            Beside::Factors => self.factors(&self.explained()?),
            Beside::Recomputed | Beside::Difference => Vec::new(),
        };
        let lines = u16::try_from(heading.len()).unwrap_or(4);
        let room = height.saturating_sub(lines + EXPLAINED.min(height / 3) + 1);
        let [head, middle, below, last] = Layout::vertical([
            Constraint::Length(lines),
            Constraint::Length(self.tables_height(&factors).min(room).max(4)),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(heading), head);
        self.tables(frame, middle, &factors)?;
        self.above = self.explanation(frame, below)?;
        let hint = match (&self.search, &*self.said) {
            (Some(typed), _) => Line::from(format!("/{typed}█")),
            (None, "") => {
                Line::from(hints(lang::text(HINT), frame.area().width.into())).style(faint())
            }
            (None, said) => Line::from(said.to_owned()).style(bold()),
        };
        frame.render_widget(hint, last);
        self.help = self.help.map(|above| help(frame, above));
        Ok(())
    }

    /// What a window needs that is too small to show anything.
    fn draw_too_small(&self, frame: &mut Frame) -> Result<()> {
        let ((width, height), area) = (LEAST, frame.area());
        let needed = tr!(
            "step needs a window of {width} × {height}; this one has {own_width} × {own_height}. q quits",
            width,
            height,
            own_width = area.width,
            own_height = area.height
        );
        let lines = self.written(vec![Block::Prose(0, needed)], area.width.into())?;
        let lines: Vec<Line> = lines.into_iter().map(Line::from).collect();
        frame.render_widget(Paragraph::new(lines), area);
        Ok(())
    }

    /// The step's title, formula and place; how it compares, where that is known.
    fn heading(&self, width: usize, is_whole: bool) -> Result<Vec<Line<'static>>> {
        let (step, trace) = (self.step(), self.route.trace);
        let shown: Vec<usize> = (0..trace.steps().len())
            .filter(|at| self.view.shows(trace.steps()[*at].name) || *at == self.at)
            .collect();
        let number = shown.iter().position(|at| *at == self.at).unwrap_or_default() + 1;
        let place = tr!(" · {number} of {shown}", number, shown = shown.len());
        let status = self.status(step.name);
        let told = status.map(|status| format!(" · {}", status.told())).unwrap_or_default();
        let title = format!(" · {}", step.name.title());
        // Its place is told in any case.
        let needed = wide(step.name.as_str()) + wide(&title) + wide(&place) + wide(&told);
        let title = if needed > width { String::new() } else { title };
        let mut first = vec![Span::styled(step.name.to_string(), bold()), (title + &place).into()];
        first.extend(status.map(|status| Span::styled(told, self.of_status(status))));
        let mut facts = Vec::new();
        if step.op != Op::Given {
            facts.push(format!("= {}", trace.formula(step)));
        }
        if is_whole || facts.is_empty() {
            let moves = moves(trace, step);
            facts.push(if moves.is_empty() { shape(trace, step) } else { moves.join(tr!(", ")) });
            facts.extend(self.legend()?);
        }
        let facts = facts.into_iter().map(|fact| Block::Prose(1, fact)).collect();
        let facts = self.written(facts, width)?.into_iter().map(Line::from);
        Ok(std::iter::once(Line::from(first)).chain(facts).collect())
    }

    /// What the signs in the step's table mean, and how blocked cells are drawn in it.
    fn legend(&self) -> Result<Option<String>> {
        let (step, trace) = (self.step(), self.route.trace);
        let row = step.name.row();
        if !row.is_of_scores() {
            return Ok(None);
        }
        if row.is_boolean {
            return Ok(Some(boolean_legend(step).to_owned()));
        }
        let is_blocked = step.is_computed() && trace.blocked_before(step)?.is_some();
        Ok(is_blocked.then(|| tr!("struck out: blocked").to_owned()))
    }

    /// How the number under the cursor came about, in the words of `explain`. Returns how many of its lines are above its
    /// window.
    fn explanation(&self, frame: &mut Frame, area: Rect) -> Result<usize> {
        let border = Border::default().borders(Borders::TOP).border_style(faint());
        let inside = border.inner(area);
        frame.render_widget(border, area);
        let found = self.route.check.and_then(|(_, report)| report.diagnosis.as_ref());
        let found = found.map(|diagnosis| diagnosis.findings.as_slice()).unwrap_or_default();
        let found = found.iter().filter(|found| found.step == self.step().name);
        let mut blocks: Vec<Block> = found
            .map(|found| Block::Prose(0, format!("{}: {}", found.id, found.summary)))
            .collect();
        blocks.extend(explanation(self.route.trace, self.route.config, &self.cell(), &self.view)?);
        if self.view.why {
            let stops = stops(self.route.trace, self.route.config)?.into_iter();
            let stops = stops.filter(|stop| stop.is_at(self.step().name.as_str()));
            blocks.extend(
                stops.map(|stop| Block::Prose(1, format!("{}: {}", stop.title, stop.text))),
            );
        }
        let (width, height) = (inside.width.into(), usize::from(inside.height));
        let pinned = self.written(above_mark(&mut blocks, width), width)?.len();
        let lines = self.written(blocks, width)?;
        let most = lines.len().saturating_sub(height);
        let mark = lines.iter().position(|line| pinned > 0 && line.contains(MARK.trim()));
        // The key that is asked for is in view until somebody scrolls, below what says of what its row is.
        let kept = match (self.scrolled, mark) {
            (None, Some(mark)) if mark >= height => pinned.min(height.saturating_sub(1)),
            _ => 0,
        };
        let after = (height - kept.min(height)) / 2;
        let above = match (self.scrolled, mark) {
            (Some(above), _) => above.min(most),
            (None, Some(mark)) if kept > 0 => (mark + after + 1).saturating_sub(height).min(most),
            (None, _) => 0,
        };
        let shown = lines.iter().take(kept).chain(lines.iter().skip(above + kept)).take(height);
        let shown = shown.map(|line| Line::from(line.clone()));
        frame.render_widget(Paragraph::new(shown.collect::<Vec<_>>()), inside);
        if most > above {
            let more = Rect { y: area.y, height: 1, ..area };
            frame.render_widget(
                Line::from(tr!(" PgDn: more ")).right_aligned().style(faint()),
                more,
            );
        }
        Ok(above)
    }

    pub(super) fn of_cell(&self, cell: &Shown) -> Style {
        let mut style = Style::default();
        if let Some(heat) = cell.heat.filter(|_| self.route.color && !cell.is_blocked) {
            let (back, text) = HEAT.heat(heat);
            style = style.bg(indexed(back)).fg(indexed(text));
        }
        if cell.is_blocked {
            style = style.add_modifier(Modifier::DIM | Modifier::CROSSED_OUT);
        }
        if cell.is_lit {
            style = style.add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
            style = if self.route.color { style.fg(Color::Yellow) } else { style };
        }
        if cell.is_here { style.add_modifier(Modifier::REVERSED | Modifier::BOLD) } else { style }
    }

    fn of_status(&self, status: Status) -> Style {
        let color = match status {
            Status::Same => Color::Green,
            Status::Differs => Color::Red,
            Status::Inherited => Color::Yellow,
            Status::Missing => Color::Gray,
        };
        let style = bold();
        if self.route.color { style.fg(color) } else { style }
    }
}

/// What stands above the rows of the table that marks a key, with its header; nothing where there is no such table. A
/// table that is too wide loses how far its scores are from the largest, which their exponentials tell too.
fn above_mark(blocks: &mut [Block], width: usize) -> Vec<Block> {
    let is_marked = |table: &Table| {
        let mut first = table.rows.iter().filter_map(|row| row.first());
        first.any(|text| text.text.ends_with(MARK))
    };
    let at =
        blocks.iter().position(|block| matches!(block, Block::Table(table) if is_marked(table)));
    let Some((at, Block::Table(table))) = at.and_then(|at| Some((at, blocks.get_mut(at)?))) else {
        return Vec::new();
    };
    let cells = |row: &[Text]| row.iter().map(|cell| wide(&cell.text) + 3).sum::<usize>();
    let header: Vec<Text> = table.header.iter().map(|name| name.as_str().into()).collect();
    let widest = table.rows.iter().map(|row| cells(row)).fold(cells(&header), usize::max);
    if widest > width && table.header.len() > LESS {
        table.header.remove(LESS);
        table.wraps = table.wraps.saturating_sub(1);
        table.rows.iter_mut().filter(|row| row.len() > LESS).for_each(|row| drop(row.remove(LESS)));
    }
    let header = Block::Table(Table { rows: Vec::new(), ..table.clone() });
    blocks[..at].iter().cloned().chain([header]).collect()
}

/// The column of a softmax's table that says how far the scores are from the largest.
const LESS: usize = 2;
