//! A labelled grid of cells as tables no wider than a line.

use std::io::{self, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, ColumnConstraint, ContentArrangement, ContentLineStyle,
    LineStyle, Table, TableStyle,
};
use unicode_width::UnicodeWidthStr;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction('│'))
    .header_separator(LineStyle::none().fill('─').junction('┼'))
    .content_lines(ContentLineStyle::none().junction('│'));

/// A table of texts with a header; only the column `wraps` may be broken into lines to fit the width.
pub fn plain(header: &[&str], rows: Vec<Vec<Cell>>, wraps: usize, width: usize) -> Table {
    let mut table = Table::new();
    table
        .load_style(STYLE)
        .force_no_tty()
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(width).unwrap_or(u16::MAX))
        .set_header(header)
        .add_rows(rows);
    for (at, column) in table.column_iter_mut().enumerate() {
        if at != wraps {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table
}

/// A cell of a plain table with its text to the right.
pub fn right(text: String) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// One cell: its text, and whether it stands back (a masked cell).
#[derive(Debug, Clone)]
pub struct Text {
    pub text: String,
    pub faint: bool,
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self { text, faint: false }
    }
}

/// A grid with a label a row and a label a column.
#[derive(Default)]
pub struct Grid {
    /// What stands above it.
    pub legend: Option<String>,
    /// The labels of the columns.
    pub columns: Vec<String>,
    /// The rows: label and cells.
    pub rows: Vec<(String, Vec<Text>)>,
}

impl Grid {
    /// Writes the grid, indented by `indent`; columns that do not fit `width` go into further tables.
    pub fn write(
        &self,
        indent: &str,
        width: usize,
        color: bool,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let label_width = self.rows.iter().map(|(label, _)| label.width()).max().unwrap_or(0);
        let room = width.saturating_sub(indent.len() + label_width + 2);
        if let Some(legend) = &self.legend {
            writeln!(out, "{indent}{legend}")?;
        }
        let blocks = blocks(&self.widths(), room);
        for block in &blocks {
            if blocks.len() > 1
                && let (Some(first), Some(last)) =
                    (self.columns.get(block.start), self.columns.get(block.end - 1))
            {
                let title =
                    if block.len() == 1 { first.clone() } else { format!("{first} … {last}") };
                writeln!(out, "{indent}{title}")?;
            }
            for line in self.table(block.clone(), color).lines() {
                writeln!(out, "{indent}{}", line.trim_end())?;
            }
        }
        Ok(())
    }

    fn widths(&self) -> Vec<usize> {
        let cells = |at: usize| self.rows.iter().filter_map(move |(_, cells)| cells.get(at));
        let width = |(at, label): (usize, &String)| {
            let widest = cells(at).map(|cell| cell.text.width()).max().unwrap_or(0);
            widest.max(label.width())
        };
        self.columns.iter().enumerate().map(width).collect()
    }

    fn table(&self, block: std::ops::Range<usize>, color: bool) -> Table {
        let mut table = Table::new();
        table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
        if color {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        let right = |text: &Text| {
            let cell = Cell::new(&text.text).set_alignment(CellAlignment::Right);
            if text.faint { cell.add_attribute(Attribute::Dim) } else { cell }
        };
        let labels = self.columns.iter().skip(block.start).take(block.len());
        let header = labels.map(|label| right(&Text::from(label.clone())));
        table.set_header(std::iter::once(Cell::new("")).chain(header).collect::<Vec<_>>());
        for (label, cells) in &self.rows {
            let cells = cells.iter().skip(block.start).take(block.len()).map(right);
            table.add_row(std::iter::once(Cell::new(label)).chain(cells).collect::<Vec<_>>());
        }
        table
    }
}

/// The columns in ranges that fit: each takes its width, two spaces and a line.
fn blocks(widths: &[usize], room: usize) -> Vec<std::ops::Range<usize>> {
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

    fn written(width: usize) -> String {
        let cells =
            |row: i32| (0..4).map(|column| Text::from(format!("{row}.{column}00"))).collect();
        let grid = Grid {
            legend: None,
            columns: (0..4).map(|at| format!("key {at}")).collect(),
            rows: (0..2).map(|at| (format!("query {at}"), cells(at))).collect(),
        };
        let mut out = Vec::new();
        grid.write("  ", width, false, &mut out).expect("written");
        String::from_utf8(out).expect("text")
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
            rows: vec![("query 0 猫".to_owned(), vec![Text::from("0.500".to_owned()); 2])],
        };
        let mut out = Vec::new();
        grid.write("", 35, false, &mut out).expect("written");
        let text = String::from_utf8(out).expect("text");
        assert!(text.lines().all(|line| line.width() <= 35), "{text}");
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
