//! Pages as text.

use std::io::{self, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle,
    LineStyle, TableStyle,
};
use unicode_width::UnicodeWidthStr;

use super::page::{Block, Grid, Head, Table, Text};
use crate::error::Message;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction('│'))
    .header_separator(LineStyle::none().fill('─').junction('┼'))
    .content_lines(ContentLineStyle::none().junction('│'));

/// The length of the rule above a step, where the line has room for it.
const RULE: usize = 80;

/// How a page is written.
#[derive(Clone, Copy)]
pub struct Style {
    /// Columns of text that fit a line.
    pub width: usize,
    /// Whether to use colour.
    pub color: bool,
    /// How a setting is told: its key, and what it is to be set to, if one thing.
    pub spell: Spell,
}

/// How a setting is told: its key, and what it is to be set to, if one thing.
pub type Spell = fn(&str, Option<&str>) -> String;

/// A text with its settings as the reader would state them.
pub fn spelled(text: &str, spell: Spell) -> String {
    Message::from(text).spelled(spell)
}

/// Writes blocks, one after the other.
///
/// # Errors
/// If the writer fails.
pub fn write_text(
    blocks: impl IntoIterator<Item = Block>,
    style: Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    blocks.into_iter().try_for_each(|block| style.block(&block, out))
}

impl Style {
    /// Writes a block.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn block(&self, block: &Block, out: &mut dyn Write) -> io::Result<()> {
        match block {
            Block::Title(title) => writeln!(out, "{}", self.bold(title)),
            Block::Fact(fact) => writeln!(out, "  {}", self.spelled(fact)),
            Block::Step(head) => self.head(head, out),
            Block::Caption(places) if places.is_empty() => writeln!(out),
            Block::Caption(places) => writeln!(out, "\n  {}", places.join(" · ")),
            Block::Grid(grid) => self.grid(grid, out),
            Block::Table(table) => self.table(table, out),
            Block::Text(indent, text) => {
                writeln!(out, "{}{}", "  ".repeat(*indent), self.spelled(text))
            }
            Block::Prose(indent, text) => {
                let indent = "  ".repeat(*indent);
                let lines = wrapped(&self.spelled(text), self.width.saturating_sub(indent.len()));
                lines.iter().try_for_each(|line| writeln!(out, "{indent}{line}"))
            }
            Block::Branch { first, below, text } => {
                let room = self.width.saturating_sub(first.width().max(below.width()));
                for (at, line) in wrapped(text, room).iter().enumerate() {
                    writeln!(out, "{}{line}", if at == 0 { first } else { below })?;
                }
                Ok(())
            }
            Block::Gap => writeln!(out),
        }
    }

    fn spelled(&self, text: &str) -> String {
        spelled(text, self.spell)
    }

    fn bold(&self, text: &str) -> String {
        if self.color { format!("\u{1b}[1m{text}\u{1b}[0m") } else { text.to_owned() }
    }

    fn head(&self, head: &Head, out: &mut dyn Write) -> io::Result<()> {
        let rule = format!("── {} · {} ", head.name, head.title);
        let rest = self.width.min(RULE).saturating_sub(rule.width());
        writeln!(out, "\n{}", self.bold(&format!("{rule}{}", "─".repeat(rest))))?;
        if let Some((formula, constant)) = &head.formula {
            let constant = constant.iter().map(|constant| format!(",  {constant}"));
            writeln!(out, "  {} = {formula}{}", head.name, constant.collect::<String>())?;
        }
        for moves in &head.moves {
            self.block(&Block::Prose(1, moves.clone()), out)?;
        }
        writeln!(out, "  shape {}", head.shape)?;
        if let Some(why) = &head.why {
            self.block(&Block::Prose(1, why.clone()), out)?;
        }
        head.legend.iter().try_for_each(|legend| writeln!(out, "  {legend}"))
    }

    /// Writes a grid; columns that do not fit go into further tables.
    fn grid(&self, grid: &Grid, out: &mut dyn Write) -> io::Result<()> {
        const INDENT: &str = "  ";
        let label_width = grid.rows.iter().map(|(label, _)| label.width()).max().unwrap_or(0);
        let room = self.width.saturating_sub(INDENT.len() + label_width + 2);
        grid.legend.iter().try_for_each(|legend| writeln!(out, "{INDENT}{legend}"))?;
        let blocks = column_blocks(&widths(grid), room);
        for block in &blocks {
            if blocks.len() > 1
                && let (Some(first), Some(last)) =
                    (grid.columns.get(block.start), grid.columns.get(block.end - 1))
            {
                let title =
                    if block.len() == 1 { first.clone() } else { format!("{first} … {last}") };
                writeln!(out, "{INDENT}{title}")?;
            }
            for line in self.columns(grid, block.clone()).lines() {
                writeln!(out, "{INDENT}{}", line.trim_end())?;
            }
        }
        Ok(())
    }

    /// Some columns of a grid.
    fn columns(&self, grid: &Grid, block: std::ops::Range<usize>) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        if self.color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let number = |text: &Text| {
            let cell = Cell::new(&text.text).set_alignment(CellAlignment::Right);
            if text.is_faint { cell.add_attribute(Attribute::Dim) } else { cell }
        };
        let header = grid.columns.iter().skip(block.start).take(block.len());
        let header = header.map(|label| number(&Text::from(label.clone())));
        table.set_header(std::iter::once(Cell::new("")).chain(header).collect::<Vec<_>>());
        for (label, cells) in &grid.rows {
            let cells = cells.iter().skip(block.start).take(block.len()).map(number);
            table.add_row(std::iter::once(Cell::new(label)).chain(cells).collect::<Vec<_>>());
        }
        table
    }

    fn table(&self, table: &Table, out: &mut dyn Write) -> io::Result<()> {
        let indent = if table.is_inner { " " } else { "" };
        let cell = |text: &Text| {
            let alignment = if text.is_number { CellAlignment::Right } else { CellAlignment::Left };
            Cell::new(&text.text).set_alignment(alignment)
        };
        let width = self.width.saturating_sub(indent.len());
        let mut written = comfy_table::Table::new();
        written
            .load_style(STYLE)
            .force_no_tty()
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX))
            .set_header(&table.header)
            .add_rows(table.rows.iter().map(|row| row.iter().map(cell).collect::<Vec<_>>()));
        for (at, column) in written.column_iter_mut().enumerate() {
            if at != table.wraps {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        for line in written.lines() {
            writeln!(out, "{indent}{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A text in lines of at most `width` columns, broken between words; a word that is wider has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The widths of a grid's columns.
fn widths(grid: &Grid) -> Vec<usize> {
    let cells = |at: usize| grid.rows.iter().filter_map(move |(_, cells)| cells.get(at));
    let width = |(at, label): (usize, &String)| {
        let widest = cells(at).map(|cell| cell.text.width()).max().unwrap_or(0);
        widest.max(label.width())
    };
    grid.columns.iter().enumerate().map(width).collect()
}

/// The columns in ranges that fit: each takes its width, two spaces and a line.
fn column_blocks(widths: &[usize], room: usize) -> Vec<std::ops::Range<usize>> {
    let mut blocks = Vec::new();
    let (mut start, mut taken) = (0, 0);
    for (at, width) in widths.iter().enumerate() {
        if at > start && taken + width + 3 > room {
            blocks.push(start..at);
            (start, taken) = (at, 0);
        }
        taken += width + 3;
    }
    // A column alone at the end, such as the sum of the rows, gets company.
    if let Some(last) = blocks.last_mut()
        && start + 1 == widths.len()
        && last.len() > 2
    {
        last.end -= 1;
        start -= 1;
    }
    blocks.push(start..widths.len());
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(grid: &Grid, width: usize) -> String {
        let style = Style { width, color: false, spell: |key, _| key.to_owned() };
        let mut out = Vec::new();
        style.grid(grid, &mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    fn written(width: usize) -> String {
        let cells =
            |row: i32| (0..4).map(|column| Text::from(format!("{row}.{column}00"))).collect();
        let grid = Grid {
            legend: None,
            columns: (0..4).map(|at| format!("key {at}")).collect(),
            rows: (0..2).map(|at| (format!("query {at}"), cells(at))).collect(),
        };
        text(&grid, width)
    }

    #[test]
    fn a_narrow_line_gets_the_columns_in_blocks() {
        let lines = [
            "  key 0 … key 1",
            "           │ key 0 │ key 1",
            "  ─────────┼───────┼───────",
            "   query 0 │ 0.000 │ 0.100",
            "   query 1 │ 1.000 │ 1.100",
            "  key 2 … key 3",
            "           │ key 2 │ key 3",
            "  ─────────┼───────┼───────",
            "   query 0 │ 0.200 │ 0.300",
            "   query 1 │ 1.200 │ 1.300",
        ];
        assert_eq!(written(40).lines().collect::<Vec<_>>(), lines);
    }

    /// Of Chinese labels each character takes two columns.
    #[test]
    fn wide_labels_take_their_room() {
        let grid = Grid {
            legend: None,
            columns: vec!["key 0 猫".to_owned(), "key 1 坐下".to_owned()],
            rows: vec![("query 0 猫".to_owned(), vec![Text::from("0.500"); 2])],
        };
        let text = text(&grid, 37);
        assert!(text.lines().all(|line| line.width() <= 37), "{text}");
        assert_eq!(text.lines().count(), 8, "two blocks of one column");
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for width in 20..80 {
            assert!(written(width).lines().all(|line| line.chars().count() <= width), "{width}");
        }
        assert_eq!(written(80).lines().count(), 4);
    }
}
