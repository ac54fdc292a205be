//! Pages as text.

use std::io::{self, Write};

use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, ContentLineStyle,
    LineStyle, TableStyle,
};
use unicode_width::UnicodeWidthStr;

use super::page::{Block, Grid, Head, Table, Text, Tone, verdict};
use super::palette::Palette;
use super::wrap::wrapped;
use crate::error::Message;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction('│'))
    .header_separator(LineStyle::none().fill('─').junction('┼'))
    .content_lines(ContentLineStyle::none().junction('│'));

/// The length of the rule above a step, where the line has room for it.
const RULE: usize = 80;

/// From the lowest numbers to the highest, where there is no colour.
const SHADES: [&str; 5] = ["   ", "░░░", "▒▒▒", "▓▓▓", "███"];

/// How a page is written.
#[derive(Clone, Copy)]
pub struct Style {
    /// Columns of text that fit a line.
    pub width: usize,
    /// The colours to use, if any.
    pub colors: Option<Palette>,
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
            Block::Fact(fact) => self.lines("  ", "    ", &self.spelled(fact), out),
            Block::Step(head) => self.head(head, out),
            Block::Caption(places) if places.is_empty() => writeln!(out),
            Block::Caption(places) => {
                writeln!(out)?;
                self.lines("  ", "    ", &places.join(" · "), out)
            }
            Block::Grid(grid) => self.grid(grid, out),
            Block::Table(table) => self.table(table, out),
            Block::Verdict(file, word, rest) => self.verdict(file, word, rest, out),
            Block::Text(indent, text) => {
                let indent = "  ".repeat(*indent);
                let below = format!("{indent}  ");
                let spelled = self.spelled(text);
                spelled.lines().try_for_each(|line| self.lines(&indent, &below, line, out))
            }
            Block::Prose(indent, text) => {
                let indent = "  ".repeat(*indent);
                self.lines(&indent, &indent, &self.spelled(text), out)
            }
            Block::Branch { first, below, text } => {
                let before = std::iter::once(first).chain(std::iter::repeat(below));
                before
                    .zip(text.lines())
                    .try_for_each(|(before, line)| self.lines(before, below, line, out))
            }
            Block::Gap => writeln!(out),
        }
    }

    /// Writes a text in lines between words, behind what stands before the first and before those below.
    fn lines(&self, first: &str, below: &str, text: &str, out: &mut dyn Write) -> io::Result<()> {
        let room = self.width.saturating_sub(first.width().max(below.width()));
        for (at, line) in wrapped(text, room).iter().enumerate() {
            writeln!(out, "{}{line}", if at == 0 { first } else { below })?;
        }
        Ok(())
    }

    /// The word of a verdict is in its colour. The line is not broken: programs look for `FILE: same`.
    fn verdict(&self, file: &str, word: &Text, rest: &str, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{}", verdict(file, &self.painted(word), rest))
    }

    fn painted(&self, text: &Text) -> String {
        let code = match text.tone {
            Tone::Good => "1;32",
            Tone::Bad => "1;31",
            Tone::Inherited => "33",
            Tone::Faint => "2",
            Tone::Plain => return text.text.clone(),
        };
        match self.colors {
            Some(_) => format!("\u{1b}[{code}m{}\u{1b}[0m", text.text),
            None => text.text.clone(),
        }
    }

    fn spelled(&self, text: &str) -> String {
        spelled(text, self.spell)
    }

    fn bold(&self, text: &str) -> String {
        match self.colors {
            Some(_) => format!("\u{1b}[1m{text}\u{1b}[0m"),
            None => text.to_owned(),
        }
    }

    fn head(&self, head: &Head, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out)?;
        let mut lines = wrapped(&format!("── {} · {}", head.name, head.title), self.width);
        if let Some(last) = lines.last_mut() {
            let rest = self.width.min(RULE).saturating_sub(last.width() + 1);
            if rest > 0 {
                last.push(' ');
                last.push_str(&"─".repeat(rest));
            }
        }
        lines.iter().try_for_each(|line| writeln!(out, "{}", self.bold(line)))?;
        let mut say = |text: &str| self.lines("  ", "    ", text, out);
        if let Some((formula, constant)) = &head.formula {
            let constant = constant.iter().map(|constant| format!(",  {constant}"));
            say(&format!("{} = {formula}{}", head.name, constant.collect::<String>()))?;
        }
        head.moves.iter().try_for_each(|moves| say(moves))?;
        say(&tr!("shape {shape}", shape = head.shape))?;
        if let Some(why) = &head.why {
            self.block(&Block::Prose(1, why.clone()), out)?;
        }
        head.legend.iter().try_for_each(|legend| self.lines("  ", "    ", legend, out))
    }

    /// Writes a grid; columns that do not fit go into further tables.
    fn grid(&self, grid: &Grid, out: &mut dyn Write) -> io::Result<()> {
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

    fn empty_table(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        table.load_style(STYLE);
        if self.colors.is_some() {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table
    }

    fn cell(&self, text: &Text) -> Cell {
        let alignment = if text.is_number { CellAlignment::Right } else { CellAlignment::Left };
        let cell = Cell::new(&text.text).set_alignment(alignment);
        let Some(palette) = self.colors else { return cell };
        if let Some(heat) = text.heat {
            let (back, ink) = palette.heat(heat);
            return cell.bg(back).fg(ink);
        }
        match text.tone {
            Tone::Plain => cell,
            Tone::Faint => cell.add_attribute(Attribute::Dim),
            Tone::Good => cell.fg(Color::DarkGreen),
            Tone::Bad => cell.fg(Color::DarkRed).add_attribute(Attribute::Bold),
            Tone::Inherited => cell.fg(Color::DarkYellow),
        }
    }

    fn table(&self, table: &Table, out: &mut dyn Write) -> io::Result<()> {
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
        let mut others = Table { wraps: 0, ..table.clone() };
        let title = others.header.remove(table.wraps);
        let mut below = Vec::new();
        for row in others.rows.iter_mut().filter(|row| row.len() > table.wraps) {
            let Text { text, is_spare, .. } = row.remove(table.wraps);
            if !text.is_empty() && !is_spare {
                below.push(format!("{}: {text}", row.first().map_or("", |first| &first.text)));
            }
        }
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

    #[test]
    fn the_verdict_is_in_its_colour() {
        let style = |colors| Style { width: 40, colors, spell: |key, _| key.to_owned() };
        let told = |colors| {
            let word = Text::toned("same", Tone::Good);
            let block =
                Block::Verdict("same.json".to_owned(), word, ", 13 steps compared".to_owned());
            let mut out = Vec::new();
            style(colors).block(&block, &mut out).expect("written");
            String::from_utf8(out).expect("text")
        };
        assert_eq!(told(None), "same.json: same, 13 steps compared\n");
        let painted = "same.json: \u{1b}[1;32msame\u{1b}[0m, 13 steps compared\n";
        assert_eq!(told(Some(Palette::default())), painted);
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
