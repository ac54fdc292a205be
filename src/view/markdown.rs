//! Pages as Markdown, for notes: `CommonMark` with the tables of GitHub.

use std::fmt::Write;

use super::page::{Block, Grid, Head, Spell, Table, Text, spelled, verdict};
use base::error::Result;

/// A page as Markdown.
///
/// # Errors
/// The first error among the blocks.
pub fn markdown(blocks: impl Iterator<Item = Result<Block>>, spell: Spell) -> Result<String> {
    let mut page = String::new();
    for block in blocks {
        // What cannot be written into a text is not there.
        let _ = write_block(&block?, spell, &mut page);
    }
    Ok(page)
}

fn write_block(block: &Block, spell: Spell, page: &mut String) -> std::fmt::Result {
    match block {
        Block::Title(title) => writeln!(page, "# {}\n", plain(title)),
        Block::Fact(fact) => writeln!(page, "- {}", plain(&spelled(fact, spell))),
        Block::Step(head) => write_head(head, spell, page),
        Block::Caption(places) if places.is_empty() => Ok(()),
        Block::Caption(places) => writeln!(page, "\n**{}**", plain(&places.join(" · "))),
        Block::Grid(grid) => write_grid(grid, page),
        Block::Table(table) => write_table(table, page),
        Block::Text(_, text) | Block::Prose(_, text) => {
            writeln!(page, "\n{}", plain(&spelled(text, spell)))
        }
        Block::Branch { first, text, .. } => {
            writeln!(page, "\n{}", code(&format!("{first}{text}")))
        }
        Block::Verdict(file, word, rest) => {
            writeln!(page, "\n{}", plain(&verdict(file, &word.text, rest)))
        }
        Block::Gap => Ok(()),
    }
}

fn write_head(head: &Head, spell: Spell, page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n## {} · {}", plain(&head.name), plain(&head.title))?;
    if let Some((formula, constant)) = &head.formula {
        write!(page, "\n{}", code(&format!("{} = {formula}", head.name)))?;
        match constant {
            Some(constant) => writeln!(page, ", {}", code(constant))?,
            None => writeln!(page)?,
        }
    }
    head.lines(spell).try_for_each(|line| writeln!(page, "\n{}", plain(&line)))
}

fn write_grid(grid: &Grid, page: &mut String) -> std::fmt::Result {
    grid.legend.iter().try_for_each(|legend| writeln!(page, "\n{}", code(legend)))?;
    let corner = grid.corner();
    let header = std::iter::once(corner.as_str()).chain(grid.columns.iter().map(String::as_str));
    writeln!(page)?;
    write_row(header.map(plain), page)?;
    let rules = std::iter::once("---").chain(grid.columns.iter().map(|_| "--:"));
    write_row(rules.map(str::to_owned), page)?;
    grid.rows.iter().try_for_each(|(label, cells)| {
        write_row(std::iter::once(plain(label)).chain(cells.iter().map(cell)), page)
    })
}

fn write_table(table: &Table, page: &mut String) -> std::fmt::Result {
    writeln!(page)?;
    write_row(table.header.iter().map(|name| plain(name)), page)?;
    let rules = (0..table.header.len()).map(|at| if table.is_number(at) { "--:" } else { "---" });
    write_row(rules.map(str::to_owned), page)?;
    table.rows.iter().try_for_each(|row| write_row(row.iter().map(cell), page))
}

fn write_row(cells: impl Iterator<Item = String>, page: &mut String) -> std::fmt::Result {
    writeln!(page, "| {} |", cells.collect::<Vec<_>>().join(" | "))
}

fn cell(text: &Text) -> String {
    plain(&text.text)
}

/// A text that means nothing but itself.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        match sign {
            '\n' | '\r' => escaped.push(' '),
            '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '$' | '#' => {
                escaped.extend(['\\', sign]);
            }
            sign => escaped.push(sign),
        }
    }
    // What would begin a list or underline a heading.
    let digits = escaped.bytes().take_while(u8::is_ascii_digit).count();
    let begins = if digits == 0 { ['-', '+', '='] } else { ['.', ')', ')'] };
    let is_list = escaped[digits..].starts_with(begins)
        && escaped[digits..].chars().nth(1).is_none_or(char::is_whitespace);
    if is_list {
        escaped.insert(digits, '\\');
    }
    escaped
}

/// A text as code, between more backticks than stand in it.
fn code(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    let longest = text.split(|sign| sign != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    if text.contains('`') { format!("{fence} {text} {fence}") } else { format!("`{text}`") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_mean_nothing_but_themselves() {
        assert_eq!(plain("a|b_c*<i>`x`"), r"a\|b\_c\*\<i\>\`x\`");
        assert_eq!(plain("[x](y) #1 ~~a~~ &amp; $z$"), r"\[x\](y) \#1 \~\~a\~\~ \&amp; \$z\$");
        assert_eq!(plain("a\nb"), "a b");
        // A list, a heading's line, and what is none of these.
        assert_eq!(plain("- a"), r"\- a");
        assert_eq!(plain("12. a"), r"12\. a");
        assert_eq!(plain("-1.25"), "-1.25");
        assert_eq!(plain("1.000"), "1.000");
        assert_eq!(code("a`b``c"), "``` a`b``c ```");
    }

    #[test]
    fn a_grid_is_a_table() {
        let grid = Grid {
            down: "query".to_owned(),
            across: "key".to_owned(),
            columns: vec!["0 a|b".to_owned()],
            rows: vec![("0".to_owned(), vec![Text::number("-1e9")])],
            ..Grid::default()
        };
        let blocks = [Block::Caption(vec!["head 1".to_owned()]), Block::Grid(grid)];
        let page = markdown(blocks.into_iter().map(Ok), |key, _| key.to_owned());
        let lines =
            ["", "**head 1**", "", r"| query \\ key | 0 a\|b |", "| --- | --: |", "| 0 | -1e9 |"];
        assert_eq!(page.expect("written").lines().collect::<Vec<_>>(), lines);
    }
}
