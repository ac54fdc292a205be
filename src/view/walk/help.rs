//! What the keys of a walk do, in a box above all else.

use ratatui::Frame;
use ratatui::layout::Constraint;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block as Border, Borders, Clear, Paragraph};

use super::sheet::{bold, wide};
use crate::wrapped;
use base::lang;

/// What the keys do, a line each.
const KEYS: [(&str, &str); 14] = [
    ("n, space / p", "next step / step before"),
    ("← ↑ → ↓", "another number; Home and End: the row's ends"),
    ("h / H", "next head / head before"),
    ("b / B", "next batch item / item before"),
    ("Enter", "follow the number to the largest that it is made of"),
    ("Backspace", "back to where it was followed from"),
    ("w", "why the step is there, and its stop on the tour"),
    ("m", "heat map of scores and weights, or the table alone"),
    ("/", "search for a step: type its name, then Enter"),
    ("Tab", "beside a file's table: factors, right numbers, difference"),
    ("d", "next step of a file that differs by itself"),
    ("PgUp / PgDn", "scroll the explanation"),
    ("Esc", "close what is open; else as Backspace"),
    ("q", "leave; ? shows this page"),
];

/// Draws the box, from a line on. Returns that line, or the last one from which the box is full.
pub fn help(frame: &mut Frame, above: usize) -> usize {
    const KEY: usize = 14;
    let width = usize::from(frame.area().width.min(76));
    let lines: Vec<Line> = KEYS
        .iter()
        .flat_map(|(key, does)| {
            let key = lang::text(key);
            let does = wrapped(lang::text(does), width.saturating_sub(KEY + 2));
            does.into_iter().enumerate().map(move |(at, does)| {
                let key = if at == 0 { key } else { "" };
                let gap = " ".repeat(KEY.saturating_sub(wide(key)));
                Line::from(vec![Span::styled(key, bold()), gap.into(), does.into()])
            })
        })
        .collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let area = frame.area().centered(Constraint::Max(76), Constraint::Max(height));
    let border = Border::default().borders(Borders::ALL).title(tr!(" keys "));
    let most = lines.len().saturating_sub(border.inner(area).height.into());
    let above = above.min(most);
    let border = if above < most { border.title_bottom(tr!(" ↓: more ")) } else { border };
    let shown: Vec<Line> = lines.into_iter().skip(above).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(shown).block(border), area);
    above
}
