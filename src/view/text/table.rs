//! Tables as text: one column is broken between words where the line is too narrow.

use std::io::{self, Write};

use comfy_table::{ColumnConstraint, ContentArrangement};
use unicode_width::UnicodeWidthStr;

use super::Style;
use crate::page::{Table, Text};
use crate::wrap::wrapped;

impl Style {
    pub(super) fn table(&self, table: &Table, out: &mut dyn Write) -> io::Result<()> {
        let indent = if table.is_inner { " " } else { "" };
        let width = self.width.saturating_sub(indent.len());
        let mut written = self.empty_table();
        let room = width.saturating_sub(beside(table));
        let widest = table.rows.iter().filter_map(|row| row.get(table.wraps));
        let widest = widest.map(|cell| cell.text.width()).max().unwrap_or(0);
        if room < LEAST_ROOM.min(widest) && table.wraps > 0 {
            return self.table_and_list(table, out);
        }
        let fitted = |at: usize, text: &str| {
            if at == table.wraps { wrapped(text, room).join("\n") } else { text.to_owned() }
        };
        let cells = |row: &Vec<Text>| {
            let is_shown = |cell: &Text| !cell.is_spare || cell.text.width() <= room;
            let cells = row.iter().enumerate().filter(|(_, cell)| is_shown(cell));
            let fitted =
                cells.map(|(at, cell)| Text { text: fitted(at, &cell.text), ..cell.clone() });
            fitted.map(|cell| self.cell(&cell)).collect::<Vec<_>>()
        };
        let header = table.header.iter().enumerate().map(|(at, name)| fitted(at, name));
        written
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(u16::try_from(width).unwrap_or(u16::MAX))
            .set_header(header)
            .add_rows(table.rows.iter().map(cells));
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

    /// A table without the column that is broken to fit, where there is no room for it: its texts stand below, each behind
    /// the first of its row.
    fn table_and_list(&self, table: &Table, out: &mut dyn Write) -> io::Result<()> {
        let mut others = table.clone();
        let title = others.header.remove(table.wraps);
        let mut below = Vec::new();
        for row in others.rows.iter_mut().filter(|row| row.len() > table.wraps) {
            let Text { text, is_spare, .. } = row.remove(table.wraps);
            if !text.is_empty() && !is_spare {
                below.push(format!("{}: {text}", row.first().map_or("", |first| &first.text)));
            }
        }
        let width = |at: &usize| {
            let own = others.rows.iter().filter_map(|row| row.get(*at));
            own.map(|cell| cell.text.width()).max().unwrap_or(0)
        };
        // Where several are as wide, the first.
        others.wraps = (0..others.header.len()).rev().max_by_key(width).unwrap_or(0);
        self.table(&others, out)?;
        if !below.is_empty() {
            self.lines("  ", "  ", &title, out)?;
        }
        below.iter().try_for_each(|line| self.lines("    ", "      ", line, out))
    }
}

/// Columns of text in fewer than which a sentence cannot be read.
const LEAST_ROOM: usize = 16;

/// The columns of text that a table takes beside the column that is broken to fit: of each other one the width, two
/// spaces and a line, and of that one the two spaces.
fn beside(table: &Table) -> usize {
    let columns = 0..table.header.len();
    let others = columns.filter(|at| *at != table.wraps).map(|at| {
        let cells = table.rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.text.width());
        let header = table.header.get(at).map_or(0, |name| name.width());
        cells.fold(header, usize::max) + 3
    });
    others.sum::<usize>() + 2
}
