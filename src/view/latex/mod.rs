//! Pages as LaTeX, for slides and papers: a document of its own, whose body can be copied into another.

mod math;

use std::fmt::Write;

use crate::page::{Block, Grid, Head, Table, Text, Tone, verdict};
use crate::page::{Spell, spelled};
use base::error::Result;
use base::lang::Language;

/// A `fitted` table is made smaller where it is wider than the line. Every engine reads it; labels beyond the Latin script need `XeLaTeX` or `LuaLaTeX` and a font that has them.
const START: &str = r"\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{iftex}
\ifpdftex\usepackage[T1]{fontenc}\else\usepackage{fontspec}\fi
\usepackage{amsmath,amssymb,booktabs,graphicx,xcolor}
\newsavebox{\tablebox}
\newenvironment{fitted}{\begin{lrbox}{\tablebox}}{\end{lrbox}%
  \ifdim\wd\tablebox>\linewidth\resizebox{\linewidth}{!}{\usebox{\tablebox}}\else\usebox{\tablebox}\fi}
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt}
\begin{document}
";

const END: &str = "\\end{document}\n";

/// Columns of numbers that a table has at most; further ones stand in tables below it.
const COLUMNS: usize = 12;

/// A page as LaTeX.
///
/// # Errors
/// The first error among the blocks.
pub fn latex(blocks: impl Iterator<Item = Result<Block>>, spell: Spell) -> Result<String> {
    let class = Language::spoken().latex_class();
    let mut page = format!("\\documentclass{{{class}}}\n{START}");
    for block in blocks {
        // What cannot be written into a text is not there.
        let _ = write_block(&block?, spell, &mut page);
    }
    page.push_str(END);
    Ok(page)
}

fn write_block(block: &Block, spell: Spell, page: &mut String) -> std::fmt::Result {
    match block {
        Block::Title(title) => writeln!(page, "\\section*{{{}}}", plain(title)),
        Block::Step(head) => write_head(head, spell, page),
        Block::Caption(places) if places.is_empty() => Ok(()),
        Block::Caption(places) => {
            writeln!(page, "\\par\\textbf{{{}}}\\par\\nopagebreak", plain(&places.join(" · ")))
        }
        Block::Grid(grid) => write_grid(grid, page),
        Block::Table(table) => write_table(table, page),
        Block::Fact(text) | Block::Text(_, text) | Block::Prose(_, text) => {
            writeln!(page, "{}\\par", plain(&spelled(text, spell)))
        }
        Block::Branch { first, text, .. } => {
            writeln!(page, "{}\\par", plain(&format!("{first}{text}")))
        }
        Block::Verdict(file, word, rest) => {
            writeln!(page, "{}\\par", plain(&verdict(file, &word.text, rest)))
        }
        Block::Gap => writeln!(page),
    }
}

fn write_head(head: &Head, spell: Spell, page: &mut String) -> std::fmt::Result {
    writeln!(page, "\n\\subsection*{{{}}}", plain(&format!("{} · {}", head.name, head.title)))?;
    if let Some((formula, constant)) = &head.formula {
        let constant = constant.iter().map(|own| format!(",\\quad {}", math::formula(own)));
        let constant: String = constant.collect();
        let equation = math::formula(&format!("{} = {formula}", head.name));
        writeln!(page, "{equation}{constant}\\par")?;
    }
    head.lines(spell).try_for_each(|line| writeln!(page, "{}\\par", plain(&line)))
}

fn write_grid(grid: &Grid, page: &mut String) -> std::fmt::Result {
    grid.legend.iter().try_for_each(|legend| writeln!(page, "{}\\par", plain(legend)))?;
    let count = grid.columns.len();
    for start in (0..count).step_by(COLUMNS) {
        let part = start..count.min(start + COLUMNS);
        let columns = grid.columns.iter().skip(start).take(part.len()).map(|label| plain(label));
        let header = std::iter::once(plain(&grid.corner())).chain(columns);
        let rows = grid.rows.iter().map(|(label, cells)| {
            let cells = cells.iter().skip(start).take(part.len()).map(cell);
            std::iter::once(plain(label)).chain(cells).collect()
        });
        let aligned = format!("l{}", "r".repeat(part.len()));
        tabular(&aligned, &header.collect::<Vec<_>>(), rows, page)?;
    }
    Ok(())
}

fn write_table(table: &Table, page: &mut String) -> std::fmt::Result {
    let aligned: String =
        (0..table.header.len()).map(|at| if table.is_number(at) { 'r' } else { 'l' }).collect();
    let rows = table.rows.iter().map(|row| row.iter().map(cell).collect());
    let header: Vec<String> = table.header.iter().map(|name| plain(name)).collect();
    tabular(&aligned, &header, rows, page)
}

/// A table that is made as small as the line needs.
fn tabular(
    aligned: &str,
    header: &[String],
    rows: impl Iterator<Item = Vec<String>>,
    page: &mut String,
) -> std::fmt::Result {
    writeln!(page, "\\begin{{fitted}}")?;
    writeln!(
        page,
        "\\begin{{tabular}}{{{aligned}}}\n\\toprule\n{} \\\\\n\\midrule",
        header.join(" & ")
    )?;
    for row in rows {
        writeln!(page, "{} \\\\", row.join(" & "))?;
    }
    writeln!(page, "\\bottomrule\n\\end{{tabular}}\n\\end{{fitted}}\\par")
}

/// A cell, whose braces keep apart from the others what it says.
fn cell(text: &Text) -> String {
    let shown = if text.is_number {
        // A minus is longer than a hyphen.
        plain(&text.text.replace('-', "−"))
    } else {
        plain(&text.text)
    };
    if text.tone == Tone::Faint {
        format!("\\textcolor{{gray}}{{{shown}}}")
    } else {
        format!("{{{shown}}}")
    }
}

/// A text that means nothing but itself, its signs as LaTeX has them.
fn plain(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for sign in text.chars() {
        if let Some((_, command)) = SIGNS.iter().find(|(own, _)| *own == sign) {
            escaped.push_str(command);
        } else if sign == '-' && escaped.ends_with('-') {
            // Two would be drawn as a dash.
            escaped.push_str("{}-");
        } else if sign.is_control() {
            escaped.push(' ');
        } else {
            escaped.push(sign);
        }
    }
    // Signs of a formula that follow each other are one.
    escaped.replace(r"\)\(", "")
}

/// What LaTeX would take for something else, and the signs of formulas and tables.
const SIGNS: [(char, &str); 51] = [
    ('\\', r"\textbackslash{}"),
    ('{', r"\{"),
    ('}', r"\}"),
    ('$', r"\$"),
    ('&', r"\&"),
    ('%', r"\%"),
    ('#', r"\#"),
    ('_', r"\_"),
    ('^', r"\textasciicircum{}"),
    ('~', r"\textasciitilde{}"),
    ('<', r"\(<\)"),
    ('>', r"\(>\)"),
    ('|', r"\(|\)"),
    ('"', r"\textquotedbl{}"),
    ('`', r"\textasciigrave{}"),
    ('[', "{[}"),
    (']', "{]}"),
    ('·', r"\(\cdot\)"),
    ('−', r"\(-\)"),
    ('±', r"\(\pm\)"),
    ('×', r"\(\times\)"),
    ('√', r"\(\surd\)"),
    ('∞', r"\(\infty\)"),
    ('Σ', r"\(\Sigma\)"),
    ('⌊', r"\(\lfloor\)"),
    ('⌋', r"\(\rfloor\)"),
    ('²', r"\(^{2}\)"),
    ('ᵀ', r"\(^{\mathsf{T}}\)"),
    ('ᵢ', r"\(_{i}\)"),
    ('½', r"\(\frac{1}{2}\)"),
    ('θ', r"\(\theta\)"),
    ('ε', r"\(\varepsilon\)"),
    ('σ', r"\(\sigma\)"),
    ('π', r"\(\pi\)"),
    ('≤', r"\(\leq\)"),
    ('≥', r"\(\geq\)"),
    ('≠', r"\(\neq\)"),
    ('∈', r"\(\in\)"),
    ('→', r"\(\to\)"),
    ('←', r"\(\leftarrow\)"),
    ('↓', r"\(\downarrow\)"),
    ('…', r"\ldots{}"),
    ('■', r"\(\blacksquare\)"),
    ('✓', r"\(\checkmark\)"),
    ('✗', r"\(\times\)"),
    ('␣', r"\textvisiblespace{}"),
    ('▁', r"\textvisiblespace{}"),
    ('░', r"\textcolor{black!25}{\rule{1ex}{1ex}}"),
    ('▒', r"\textcolor{black!50}{\rule{1ex}{1ex}}"),
    ('▓', r"\textcolor{black!75}{\rule{1ex}{1ex}}"),
    ('█', r"\rule{1ex}{1ex}"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn page(blocks: Vec<Block>) -> String {
        latex(blocks.into_iter().map(Ok), |key, _| key.to_owned()).expect("written")
    }

    #[test]
    fn labels_mean_nothing_but_themselves() {
        assert_eq!(plain(r"\end{document}"), r"\textbackslash{}end\{document\}");
        assert_eq!(
            plain("50% a_b & $x$ #1 ~^"),
            concat!(r"50\% a\_b \& \$x\$ \#1 ", r"\textasciitilde{}\textasciicircum{}",)
        );
        assert_eq!(plain("--full -a"), "-{}-full -a");
        assert_eq!(plain("✓ −∞ ✗"), r"\(\checkmark\) \(-\infty\) \(\times\)");
        assert_eq!(plain("a\nb"), "a b");
    }

    #[test]
    fn wide_grids_are_cut_into_tables() {
        let columns = 2 * COLUMNS + 1;
        let cells = |row: usize| vec![Text::number(format!("{row}.5")); columns];
        let grid = Grid {
            down: "query".to_owned(),
            across: "key".to_owned(),
            columns: (0..columns).map(|at| format!("key {at}")).collect(),
            rows: (0..2).map(|row| (format!("query {row}"), cells(row))).collect(),
            ..Grid::default()
        };
        let text = page(vec![Block::Grid(grid)]);
        assert_eq!(text.matches(r"\begin{tabular}").count(), 3);
        assert_eq!(text.matches(r"\end{tabular}").count(), 3);
        assert_eq!(text.matches("{1.5}").count(), columns);
        assert!((0..columns).all(|at| text.contains(&format!("key {at} "))));
    }

    /// Every brace that opens closes, whatever the labels are.
    #[test]
    fn braces_are_balanced() {
        let text = page(vec![Block::Title(r"}{\{ a } b ^ _".to_owned())]);
        let body = text.replace(r"\{", "").replace(r"\}", "");
        assert_eq!(body.matches('{').count(), body.matches('}').count(), "{text}");
    }
}
