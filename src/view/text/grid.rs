//! Grids as text: as many columns as fit, with colours or shades for a heat map.

use std::io::{self, Write};

use comfy_table::{Cell, ContentArrangement};
use unicode_width::UnicodeWidthStr;

use super::Style;
use crate::page::{Grid, Text, Tone};

/// From the lowest numbers to the highest, where there is no colour.
const SHADES: [&str; 5] = ["   ", "░░░", "▒▒▒", "▓▓▓", "███"];

impl Style {
    /// Writes a grid; columns that do not fit go into further tables.
    pub(super) fn grid(&self, grid: &Grid, out: &mut dyn Write) -> io::Result<()> {
        const INDENT: &str = "  ";
        let scale = grid.scale.iter().map(|(low, high)| format!("{low} [{}] {high}", self.scale()));
        let legend: Vec<String> = scale.chain(grid.legend.iter().cloned()).collect();
        if !legend.is_empty() {
            writeln!(out, "{INDENT}{}", legend.join(tr!(", ")))?;
        }
        let labels = grid.rows.iter().map(|(label, _)| label).chain([&grid.down]);
        let label_width = labels.map(|label| label.width()).max().unwrap_or(0);
        // What is coloured is coloured to its end, where other columns need no space.
        let is_toned = |cell: &Text| cell.heat.is_some() || cell.tone != Tone::Plain;
        let is_toned = grid.rows.iter().flat_map(|(_, cells)| cells).any(is_toned);
        let margin = usize::from(self.colors.is_some() && is_toned);
        let room = self.width.saturating_sub(INDENT.len() + label_width + 1 + margin);
        let mut shown = self.drawn(grid, true);
        let mut blocks = column_blocks(&widths(&shown), room);
        if blocks.len() > 1 && grid.scale.is_some() {
            shown = self.drawn(grid, false);
            blocks = column_blocks(&widths(&shown), room);
        }
        for (at, block) in blocks.iter().enumerate() {
            if at > 0 {
                writeln!(out)?;
            }
            if !grid.across.is_empty() {
                writeln!(out, "{INDENT}{:label_width$}  │ {}", "", grid.across)?;
            }
            for line in self.columns(&shown, block.clone()).lines() {
                // The last column needs no space behind it, nor does the rule there.
                let line = line.trim_end();
                writeln!(out, "{INDENT}{}", line.strip_suffix('─').unwrap_or(line))?;
            }
        }
        Ok(())
    }

    /// A grid whose cells show how high they are, and beside that their numbers if these are wanted. Colours stand behind
    /// the numbers.
    fn drawn(&self, grid: &Grid, has_numbers: bool) -> Grid {
        let mut drawn = grid.clone();
        if self.colors.is_none() {
            for cell in drawn.rows.iter_mut().flat_map(|(_, cells)| cells) {
                if let Some(shade) = cell.heat.map(shade) {
                    cell.text = if has_numbers {
                        format!("{shade} {}", cell.text)
                    } else {
                        shade.to_owned()
                    };
                }
            }
        }
        drawn
    }

    /// The shades or colours from the lowest to the highest.
    fn scale(&self) -> String {
        let Some(palette) = self.colors else { return SHADES.concat() };
        let step = |at: u16| palette.painted(at, "   ");
        [0, 250, 500, 750, 1000].map(step).concat()
    }

    /// Some columns of a grid.
    fn columns(&self, grid: &Grid, block: std::ops::Range<usize>) -> comfy_table::Table {
        let mut table = self.empty_table();
        table.set_content_arrangement(ContentArrangement::Disabled);
        let header = grid.columns.iter().skip(block.start).take(block.len());
        let header = header.map(|label| self.cell(&Text::number(label.clone())));
        table.set_header(std::iter::once(Cell::new(&grid.down)).chain(header).collect::<Vec<_>>());
        for (label, cells) in &grid.rows {
            let cells = cells.iter().skip(block.start).take(block.len());
            let cells = cells.map(|cell| self.cell(cell));
            table.add_row(std::iter::once(Cell::new(label)).chain(cells).collect::<Vec<_>>());
        }
        table
    }
}

/// The shade of a number, by how high it is in thousandths.
fn shade(thousandths: u16) -> &'static str {
    let at = usize::from(thousandths) * SHADES.len() / 1000;
    SHADES.get(at.min(SHADES.len() - 1)).copied().unwrap_or_default()
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
    use crate::palette::Palette;

    fn text(grid: &Grid, width: usize, colors: Option<Palette>) -> String {
        let style = Style { width, colors, spell: |key, _| key.to_owned() };
        let mut out = Vec::new();
        style.grid(grid, &mut out).expect("written");
        String::from_utf8(out).expect("text")
    }

    fn grid(columns: i32) -> Grid {
        let cells =
            |row: i32| (0..columns).map(|at| Text::number(format!("{row}.{at}00"))).collect();
        Grid {
            down: "query".to_owned(),
            across: "key".to_owned(),
            columns: (0..columns).map(|at| at.to_string()).collect(),
            rows: (0..2).map(|at| (at.to_string(), cells(at))).collect(),
            ..Grid::default()
        }
    }

    #[test]
    fn a_narrow_line_gets_the_columns_in_blocks() {
        let lines = [
            "         │ key",
            "   query │     0 │     1",
            "  ───────┼───────┼──────",
            "   0     │ 0.000 │ 0.100",
            "   1     │ 1.000 │ 1.100",
            "",
            "         │ key",
            "   query │     2 │     3",
            "  ───────┼───────┼──────",
            "   0     │ 0.200 │ 0.300",
            "   1     │ 1.200 │ 1.300",
        ];
        assert_eq!(text(&grid(4), 25, None).lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn eight_signed_features_fit_80_columns() {
        let mut grid = grid(8);
        for cell in grid.rows.iter_mut().flat_map(|(_, cells)| cells) {
            cell.text.insert(0, '-');
        }
        let text = text(&grid, 80, None);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert_eq!(text.lines().map(UnicodeWidthStr::width).max(), Some(80));
    }

    fn heat() -> Grid {
        let heat = [Some(0), Some(500), Some(1000)];
        let cells = heat.into_iter().zip(["0.000", "0.500", "1.000"]);
        let cells = cells.map(|(heat, text)| Text { heat, ..Text::number(text) });
        let blocked = Text { tone: Tone::Faint, ..Text::number("■") };
        let row = cells.chain([blocked, Text::number("nan")]).collect();
        Grid {
            scale: Some(("0.000".to_owned(), "1.000".to_owned())),
            legend: ["■ blocked", "nan: not a number"].map(str::to_owned).to_vec(),
            rows: vec![("0".to_owned(), row)],
            ..grid(5)
        }
    }

    #[test]
    fn shades_have_their_numbers_where_these_fit() {
        let wide = [
            "  0.000 [   ░░░▒▒▒▓▓▓███] 1.000, ■ blocked, nan: not a number",
            "         │ key",
            "   query │         0 │         1 │         2 │ 3 │   4",
            "  ───────┼───────────┼───────────┼───────────┼───┼────",
            "   0     │     0.000 │ ▒▒▒ 0.500 │ ███ 1.000 │ ■ │ nan",
        ];
        assert_eq!(text(&heat(), 80, None).lines().collect::<Vec<_>>(), wide);
        let narrow = [
            "         │ key",
            "   query │   0 │   1 │   2 │ 3 │   4",
            "  ───────┼─────┼─────┼─────┼───┼────",
            "   0     │     │ ▒▒▒ │ ███ │ ■ │ nan",
        ];
        assert_eq!(text(&heat(), 40, None).lines().skip(1).collect::<Vec<_>>(), narrow);
    }

    #[test]
    fn colours_stand_behind_the_numbers() {
        let palette = |is_true, is_light| Some(Palette { is_true, is_light });
        let dark = text(&heat(), 80, palette(false, false));
        assert!(dark.contains("48;5;17m") && dark.contains(" 0.500 "), "{dark}");
        assert!(!dark.contains('▒'), "{dark}");
        assert!(text(&heat(), 80, palette(true, true)).contains("48;2;215;255;255m"));
    }

    #[test]
    fn shades_are_fifths() {
        let shades = [0, 190, 200, 500, 790, 800, 1000].map(shade);
        assert_eq!(shades, ["   ", "   ", "░░░", "▒▒▒", "▓▓▓", "███", "███"]);
    }

    /// Of Chinese labels each character takes two columns.
    #[test]
    fn wide_labels_take_their_room() {
        let grid = Grid {
            columns: vec!["0 猫".to_owned(), "1 坐下".to_owned()],
            rows: vec![("0 猫".to_owned(), vec![Text::from("0.500"); 2])],
            ..grid(2)
        };
        let text = text(&grid, 20, None);
        assert!(text.lines().all(|line| line.width() <= 20), "{text}");
        assert_eq!(text.lines().count(), 9, "two blocks of one column");
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        for width in 20..80 {
            let text = text(&grid(4), width, None);
            assert!(text.lines().all(|line| line.width() <= width), "{width}");
        }
    }
}
