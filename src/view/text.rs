//! Pages as text.

mod grid;
mod table;

use std::io::{self, Write};

use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentLineStyle, LineStyle, TableStyle};
use unicode_width::UnicodeWidthStr;

use super::page::{Block, Head, Spell, Text, Tone, spelled, verdict};
use super::palette::Palette;
use super::wrap::wrapped;

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
    /// The colours to use, if any.
    pub colors: Option<Palette>,
    /// How a setting is told: its key, and what it is to be set to, if one thing.
    pub spell: Spell,
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
