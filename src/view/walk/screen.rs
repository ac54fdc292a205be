//! A walk on the screen: the step, its table, what the number under the cursor is made of, and how.

use std::collections::HashSet;

use candle_core::Tensor;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block as Border, Borders, Paragraph, Wrap};

use super::help::help;
use super::sheet::{Sheet, Shown, Source, bold, wide};
use super::state::{Beside, Walk};
use crate::label::{is_every, moves, shape};
use crate::text::{self, write_text};
use crate::trace::boolean_legend;
use crate::{Block, Palette, explanation};
use base::error::Result;
use base::lang;
use check::Status;
use program::{Axis, Explanation, Name, Op, Step};

/// Lines of the explanation that are always there.
const EXPLAINED: u16 = 8;

/// Fewer columns than this show no table beside the step's own.
const LEAST_BESIDE: u16 = 24;

/// What a key line has room for.
const HINT: &str = "? keys  q quit  n/p step  ←↑→↓ number  h head  b item  w why  Enter follow";

/// The heat map's colours: the higher, the darker.
const HEAT: Palette = Palette { is_true: false, is_light: true };

/// A step that a number is made of.
struct Factor<'a> {
    step: &'a Step,
    /// The first cell that is read.
    index: Vec<usize>,
    /// All of them.
    lit: HashSet<Vec<usize>>,
}

/// A colour of the 256.
fn indexed(color: comfy_table::Color) -> Color {
    match color {
        comfy_table::Color::AnsiValue(index) => Color::Indexed(index),
        _ => Color::Reset,
    }
}

fn faint() -> Style {
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
    fn title(&self, step: &Step, index: &[usize]) -> String {
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
        let heading = self.heading(frame.area().width.into())?;
        let factors = match self.beside {
            Beside::Factors => self.factors(&self.explained()?),
            Beside::Recomputed | Beside::Difference => Vec::new(),
        };
        let lines = u16::try_from(heading.len()).unwrap_or(4);
        let room = frame.area().height.saturating_sub(lines + EXPLAINED + 1);
        let [head, middle, below, last] = Layout::vertical([
            Constraint::Length(lines),
            Constraint::Length(self.tables_height(&factors).min(room).max(4)),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(heading), head);
        self.tables(frame, middle, &factors)?;
        self.scrolled = self.explanation(frame, below)?;
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

    /// The step's title, formula and place; how it compares, where that is known.
    fn heading(&self, width: usize) -> Result<Vec<Line<'static>>> {
        let (step, trace) = (self.step(), self.route.trace);
        let shown: Vec<usize> = (0..trace.steps().len())
            .filter(|at| self.view.shows(trace.steps()[*at].name) || *at == self.at)
            .collect();
        let number = shown.iter().position(|at| *at == self.at).unwrap_or_default() + 1;
        let title = tr!(
            " · {title} · {number} of {shown}",
            title = step.name.title(),
            number,
            shown = shown.len()
        );
        let mut first = vec![Span::styled(step.name.to_string(), bold()), title.into()];
        if let Some(status) = self.status(step.name) {
            first.push(Span::styled(format!(" · {}", status.told()), self.of_status(status)));
        }
        let mut facts = Vec::new();
        if step.op != Op::Given {
            facts.push(format!("= {}", trace.formula(step)));
        }
        let moves = moves(trace, step);
        facts.push(if moves.is_empty() { shape(trace, step) } else { moves.join(tr!(", ")) });
        facts.extend(self.legend()?);
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

    /// The lines that the tables need.
    fn tables_height(&self, factors: &[Factor]) -> u16 {
        let rows = |step: &Step| step.axes.iter().rev().nth(1).map_or(1, |(_, rows)| rows) + 2;
        let factors = factors.iter().map(|factor| rows(factor.step)).sum();
        u16::try_from(rows(self.step()).max(factors)).unwrap_or(u16::MAX)
    }

    /// The step's own table, and what stands beside it.
    fn tables(&self, frame: &mut Frame, area: Rect, factors: &[Factor]) -> Result<()> {
        let (step, index) = (self.step(), self.index());
        let compared = match (self.beside, self.route.check) {
            (Beside::Factors, _) | (_, None) => None,
            (beside, Some((meant, _))) => self.compared(beside, meant.step(step.name))?,
        };
        let blocked = self.route.trace.blocked_before(step)?;
        let blocked = blocked.as_ref().filter(|_| step.is_computed());
        let own = Source { blocked, ..self.source(step, &step.value, &index) };
        let beside: Vec<(String, Source)> = match &compared {
            Some((title, values)) => {
                let other = Source { blocked, ..self.source(step, values, &index) };
                vec![((*title).to_owned(), Source { is_heat: false, ..other })]
            }
            None => factors.iter().map(|factor| self.factor(factor)).collect(),
        };
        let is_wide = area.width >= 2 * LEAST_BESIDE && !beside.is_empty();
        let width = if is_wide { area.width * 11 / 20 } else { area.width };
        let parts = [Constraint::Length(width), Constraint::Fill(1)];
        let [left, right] = Layout::horizontal(parts).areas(area);
        let recorded = if self.route.check.is_some() { tr!(" · recorded") } else { "" };
        let title = format!("{}{recorded}", self.title(step, &index));
        // The heading names the step too.
        let brief = title.split_once(" · ").map_or(&*title, |(_, places)| places);
        self.sheet(frame, left, [&title, brief], &own)?;
        if !is_wide {
            return Ok(());
        }
        let many = beside.len().min(usize::from(right.height / 3)).max(1);
        let parts = Layout::vertical(vec![Constraint::Fill(1); many]).split(right);
        for ((title, source), part) in beside.iter().zip(parts.iter()) {
            self.sheet(frame, *part, [title, title], source)?;
        }
        Ok(())
    }

    fn factor<'s>(&'s self, factor: &'s Factor) -> (String, Source<'s>) {
        let source = self.source(factor.step, &factor.step.value, &factor.index);
        let lit = factor.lit.clone();
        let source = Source { lit, has_cursor: false, is_heat: false, ..source };
        (self.title(factor.step, &factor.index), source)
    }

    /// What a recorded step should hold, or how far it is from that.
    fn compared(
        &self,
        beside: Beside,
        meant: Option<&Step>,
    ) -> Result<Option<(&'static str, Tensor)>> {
        let (Some(meant), step) = (meant, self.step()) else { return Ok(None) };
        if beside == Beside::Recomputed || !step.value.dtype().is_float() {
            return Ok(Some((tr!("recomputed"), meant.value.clone())));
        }
        let recomputed = meant.value.to_dtype(step.value.dtype())?;
        Ok(Some((tr!("recorded - recomputed"), step.value.sub(&recomputed)?)))
    }

    fn source<'s>(&'s self, step: &'s Step, values: &'s Tensor, index: &'s [usize]) -> Source<'s> {
        Source {
            step,
            values,
            labels: self.labels.as_ref(),
            index,
            blocked: None,
            lit: HashSet::new(),
            has_cursor: true,
            is_heat: self.is_heat,
            decimals: self.view.decimals,
        }
    }

    /// The steps whose numbers make the one under the cursor.
    fn factors(&self, explained: &Explanation) -> Vec<Factor<'_>> {
        let mut found: Vec<Factor> = Vec::new();
        let cells = explained.terms.iter().flat_map(|term| &term.0);
        for cell in cells.filter_map(|factor| factor.cell.as_ref()) {
            let step = Name::named(&cell.step).and_then(|name| self.route.trace.step(name));
            let Some(step) = step else { continue };
            let at = found.iter().position(|known| known.step.name == step.name);
            let at = at.unwrap_or_else(|| {
                found.push(Factor { step, index: cell.index.clone(), lit: HashSet::new() });
                found.len() - 1
            });
            found[at].lit.insert(cell.index.clone());
        }
        found
    }

    /// A table under the first of its titles that there is room for.
    fn sheet(
        &self,
        frame: &mut Frame,
        area: Rect,
        [title, brief]: [&str; 2],
        source: &Source,
    ) -> Result<()> {
        let border = Border::default().borders(Borders::TOP).border_style(faint());
        let inside = border.inner(area);
        let sheet = source.sheet(inside.width.into(), inside.height.into())?;
        let scale =
            sheet.scale.iter().map(|(low, high)| tr!(" · light {low} to dark {high}", low, high));
        let scale: String = scale.collect();
        // As much as there is room for, but the axis of the columns always.
        let [full, short] = &sheet.axes;
        let ways = [
            (title, full, &*scale),
            (title, full, ""),
            (title, short, &*scale),
            (title, short, ""),
            (brief, full, ""),
            (brief, short, ""),
        ];
        let ways = ways.map(|(title, axes, scale)| format!(" {title}{axes}{scale} "));
        let mut ways = ways.into_iter();
        let fits = |title: &String| wide(title) <= area.width.into();
        let title = ways.clone().find(fits).or(ways.next_back()).unwrap_or_default();
        frame.render_widget(border.title(title), area);
        frame.render_widget(Paragraph::new(self.lines(&sheet)), inside);
        Ok(())
    }

    fn lines(&self, sheet: &Sheet) -> Vec<Line<'static>> {
        let right = |text: &str| {
            format!("{}{text}", " ".repeat(sheet.cell_width.saturating_sub(wide(text))))
        };
        let left = |text: &str| {
            format!("{text}{}", " ".repeat(sheet.label_width.saturating_sub(wide(text))))
        };
        let header: String = sheet.columns.iter().map(|column| right(column)).collect();
        let header = Line::from(format!("{}{header}", left(sheet.down))).style(faint());
        let rows = sheet.rows.iter().map(|(label, cells)| {
            let label = Span::styled(left(label), faint());
            let cells = cells.iter().flat_map(|cell| {
                let gap = sheet.cell_width.saturating_sub(wide(&cell.text));
                [Span::raw(" ".repeat(gap)), Span::styled(cell.text.clone(), self.of_cell(cell))]
            });
            Line::from(std::iter::once(label).chain(cells).collect::<Vec<_>>())
        });
        std::iter::once(header).chain(rows).collect()
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
        let lines = self.written(blocks, inside.width.into())?;
        let most = lines.len().saturating_sub(inside.height.into());
        let above = self.scrolled.min(most);
        let shown = lines.into_iter().skip(above).map(Line::from);
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

    fn of_cell(&self, cell: &Shown) -> Style {
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
