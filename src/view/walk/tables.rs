//! The tables of a walk: the step's own, and beside it those of which the number under the cursor is made.

use std::collections::HashSet;

use candle_core::Tensor;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block as Border, Borders, Paragraph};

use super::screen::faint;
use super::sheet::{Sheet, Source, wide};
use super::state::{Beside, Walk};
use base::error::Result;
use program::{Explanation, Name, Step};

/// Fewer columns than this show no table beside the step's own.
const LEAST_BESIDE: u16 = 24;

/// What stands between the parts of a title.
const APART: &str = " · ";

/// The empty columns beside two tables, of which one is at the end.
const GAPS: usize = 3;

/// A step that a number is made of.
pub struct Factor<'a> {
    step: &'a Step,
    /// The first cell that is read.
    index: Vec<usize>,
    /// All of them.
    lit: HashSet<Vec<usize>>,
}

impl Walk<'_> {
    /// The lines that the tables need.
    pub(super) fn tables_height(&self, factors: &[Factor]) -> u16 {
        let rows = |step: &Step| step.axes.iter().rev().nth(1).map_or(1, |(_, rows)| rows) + 2;
        let factors = factors.iter().map(|factor| rows(factor.step)).sum();
        u16::try_from(rows(self.step()).max(factors)).unwrap_or(u16::MAX)
    }

    /// The step's own table, and what stands beside it.
    pub(super) fn tables(&self, frame: &mut Frame, area: Rect, factors: &[Factor]) -> Result<()> {
        let (step, index) = (self.step(), self.index());
        let compared = match (self.beside, self.route.check) {
            (Beside::Factors, _) | (_, None) => None,
            (beside, Some((meant, _))) => self.compared(beside, meant.step(step.name))?,
        };
        let blocked = self.route.trace.blocked_before(step)?;
        let blocked = blocked.as_ref().filter(|_| step.is_computed());
        let mut own = Source { blocked, ..self.source(step, &step.value, &index) };
        let mut beside: Vec<([String; 2], Source)> = match &compared {
            Some((titles, values)) => {
                let other = Source { blocked, ..self.source(step, values, &index) };
                vec![(titles.map(str::to_owned), Source { is_heat: false, ..other })]
            }
            None => factors.iter().map(|factor| self.factor(factor)).collect(),
        };
        let is_wide = area.width >= 2 * LEAST_BESIDE && !beside.is_empty();
        let mut width = if is_wide { area.width * 11 / 20 } else { area.width };
        if is_wide
            && let [(_, other)] = &mut beside[..]
            && let Some((in_line, columns)) = in_line(&own, other, area)?
        {
            (width, own.most, other.most) = (in_line, columns, columns);
        }
        let parts = [Constraint::Length(width), Constraint::Fill(1)];
        let [left, right] = Layout::horizontal(parts).areas(area);
        let recorded = if self.route.check.is_some() { tr!(" · recorded") } else { "" };
        let title = format!("{}{recorded}", self.title(step, &index));
        // The heading names the step too.
        let shorter = title.match_indices(APART).map(|(at, _)| &title[at + APART.len()..]);
        let titles: Vec<&str> = std::iter::once(&*title).chain(shorter).collect();
        self.sheet(frame, left, &titles, &own)?;
        if !is_wide {
            return Ok(());
        }
        let many = beside.len().min(usize::from(right.height / 4)).max(1);
        let parts = Layout::vertical(vec![Constraint::Fill(1); many]).split(right);
        for (([title, brief], source), part) in beside.iter().zip(parts.iter()) {
            self.sheet(frame, *part, &[title, brief], source)?;
        }
        Ok(())
    }

    fn factor<'s>(&'s self, factor: &'s Factor) -> ([String; 2], Source<'s>) {
        let source = self.source(factor.step, &factor.step.value, &factor.index);
        let lit = factor.lit.clone();
        let source = Source { lit, has_cursor: false, is_heat: false, ..source };
        let titles = [self.title(factor.step, &factor.index), factor.step.name.to_string()];
        (titles, source)
    }

    /// What a recorded step should hold, or how far it is from that, under two titles, of which one is shorter.
    fn compared(
        &self,
        beside: Beside,
        meant: Option<&Step>,
    ) -> Result<Option<([&'static str; 2], Tensor)>> {
        let (Some(meant), step) = (meant, self.step()) else { return Ok(None) };
        if beside == Beside::Recomputed || !step.value.dtype().is_float() {
            return Ok(Some(([tr!("recomputed"); 2], meant.value.clone())));
        }
        let recomputed = meant.value.to_dtype(step.value.dtype())?;
        Ok(Some(([tr!("recorded - recomputed"), tr!("difference")], step.value.sub(&recomputed)?)))
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
            most: usize::MAX,
        }
    }

    /// The steps whose numbers make the one under the cursor.
    pub(super) fn factors(&self, explained: &Explanation) -> Vec<Factor<'_>> {
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
    fn sheet(&self, frame: &mut Frame, area: Rect, titles: &[&str], source: &Source) -> Result<()> {
        let border = Border::default().borders(Borders::TOP).border_style(faint());
        let inside = border.inner(area);
        let sheet = source.sheet(inside.width.into(), inside.height.into())?;
        let scale =
            sheet.scale.iter().map(|(low, high)| tr!(" · light {low} to dark {high}", low, high));
        let scale: String = scale.collect();
        // As much as there is room for, but the axis of the columns always.
        let across = &sheet.across;
        let whole = titles.iter().take(1).map(|title| format!(" {title}{APART}{across}{scale} "));
        let ways = titles.iter().map(|title| format!(" {title}{APART}{across} "));
        let mut ways = whole.chain(ways).chain([format!(" {across} ")]);
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
        let beyond = sheet.beyond.iter().map(|beyond| Line::from(beyond.clone()).style(faint()));
        std::iter::once(header).chain(rows).chain(beyond).collect()
    }
}

/// The width of the left one of two tables of the same cells, and how many columns both show, where not all have room:
/// then row stands beside row, and both show the same columns.
fn in_line(left: &Source, right: &Source, area: Rect) -> Result<Option<(u16, usize)>> {
    let last = |source: &Source| {
        let dims = source.step.axes.iter().zip(source.index.iter().copied());
        dims.rev().take(2).collect::<Vec<_>>()
    };
    let all = left.step.axes.last_size();
    let height = area.height.saturating_sub(1).into();
    let half = usize::from(area.width / 2);
    let [own, other] = [left, right].map(|source| source.sheet(half, height));
    let (own, other) = (own?, other?);
    let are_whole = [&own, &other].iter().all(|sheet| sheet.columns.len() as u128 == all);
    if last(left) != last(right) || are_whole {
        return Ok(None);
    }
    let room = usize::from(area.width).saturating_sub(own.label_width + other.label_width + GAPS);
    let columns = (room / (own.cell_width + other.cell_width)).max(1);
    let right = other.label_width + columns * other.cell_width + 1;
    Ok(Some((area.width.saturating_sub(u16::try_from(right).unwrap_or(0)), columns)))
}
