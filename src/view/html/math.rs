//! Formulas as `MathML`.

use maud::{Markup, html};

use crate::formula::{Part, parts, text};
use program::Name;

/// A formula, `name = formula`.
pub fn equation(name: &str, formula: &str) -> Markup {
    html! {
        math display="block" {
            mrow { (identifier(name)) mo { "=" } (row(&parts(formula))) }
        }
    }
}

/// A text in which letters with an index are set as such: `d_k`.
pub fn prose(text: &str) -> Markup {
    let is_word = |sign: char| sign.is_alphanumeric() || sign == '_';
    let pieces = text.split_inclusive(|sign| !is_word(sign));
    let set = |piece: &str| {
        let end = piece.trim_end_matches(|sign| !is_word(sign));
        let letters: Vec<char> = end.chars().collect();
        if let [base, '_', below] = letters.as_slice() {
            html! { (base) sub { (below) } (&piece[end.len()..]) }
        } else {
            html! { (piece) }
        }
    };
    html! { @for piece in pieces { (set(piece)) } }
}

fn row(parts: &[Part]) -> Markup {
    let is_number_before = |at: usize| {
        let before = at.checked_sub(1).and_then(|at| parts.get(at));
        !matches!(before, None | Some(Part::Words(_) | Part::Sign(_)))
    };
    html! {
        @for (at, part) in parts.iter().enumerate() {
            @match part {
                // It belongs to what stands behind it, as near as a sign is to its number.
                Part::Sign('-' | '−') if !is_number_before(at) => mo form="prefix" { "−" },
                part => (one(part)),
            }
        }
    }
}

/// Parts that are one where only one may stand.
fn group(parts: &[Part]) -> Markup {
    if let [part] = parts {
        one(part)
    } else {
        html! { mrow { (row(parts)) } }
    }
}

fn one(part: &Part) -> Markup {
    match part {
        Part::Name(name) | Part::Function(name) => identifier(name),
        Part::Number(number) => html! { mn { (number) } },
        // Spaces at the ends of a text are not kept. Wide commas have room of their own.
        Part::Words(words) => {
            let told = text(words);
            let space = if told.starts_with('，') { "" } else { "\u{a0}" };
            html! { mtext { (space) (told) "\u{a0}" } }
        }
        Part::Root(inner) => html! { msqrt { (row(inner)) } },
        Part::Fraction(above, below) => html! { mfrac { (group(above)) (group(below)) } },
        Part::Power(base, raised) => html! { msup { (one(base)) (group(raised)) } },
        Part::Brackets(open, inner, close) => {
            html! { (bracket(*open)) (row(inner)) (bracket(*close)) }
        }
        Part::Sign('ᵀ') => html! { mi mathvariant="normal" { "T" } },
        Part::Sign('-') => html! { mo { "−" } },
        Part::Sign('∞') => html! { mi mathvariant="normal" { "∞" } },
        Part::Sign('|') => bracket('|'),
        Part::Sign(sign) => html! { mo { (sign) } },
    }
}

/// Brackets as high as the letters.
fn bracket(sign: char) -> Markup {
    html! { mo stretchy="false" { (sign) } }
}

/// A name; what stands behind the underscore of a letter is below the line, as that of `d_k`, but of names of steps only
/// where it is a letter too.
fn identifier(name: &str) -> Markup {
    // A single letter would be slanted, and names are not.
    let plain = |name: &str| {
        html! { mi mathvariant=[(name.chars().count() == 1).then_some("normal")] { (name) } }
    };
    let is_index =
        |below: &str| below.chars().count() == 1 || below.len() > 1 && Name::named(name).is_none();
    match name.split_once('_') {
        Some((base, below)) if base.chars().count() == 1 && is_index(below) => {
            html! { msub { (plain(base)) (plain(below)) } }
        }
        _ => plain(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(formula: &str) -> String {
        row(&parts(formula)).into_string()
    }

    #[test]
    fn roots_fractions_and_transposes_are_set() {
        assert_eq!(
            told("scores_raw / √d_k"),
            "<mfrac><mi>scores_raw</mi><msqrt><msub><mi mathvariant=\"normal\">d</mi><mi mathvariant=\"normal\">k</mi></msub></msqrt></mfrac>"
        );
        assert_eq!(
            told("x · w_qᵀ"),
            "<mi mathvariant=\"normal\">x</mi><mo>·</mo><msup><msub><mi mathvariant=\"normal\">w</mi><mi mathvariant=\"normal\">q</mi></msub><mi mathvariant=\"normal\">T</mi></msup>"
        );
        assert_eq!(
            told("q / √(mean(q²) + 1e-6)"),
            "<mfrac><mi mathvariant=\"normal\">q</mi><msqrt><mi>mean</mi><mo stretchy=\"false\">(</mo><msup><mi mathvariant=\"normal\">q</mi><mn>2</mn></msup><mo stretchy=\"false\">)</mo><mo>+</mo><mn>1e-6</mn></msqrt></mfrac>"
        );
    }

    #[test]
    fn letters_with_an_index_are_set_in_prose_and_names_are_not() {
        assert_eq!(
            prose("divided by √d_k, not d_model; w_qs < W_i").into_string(),
            "divided by √d<sub>k</sub>, not d_model; w_qs &lt; W<sub>i</sub>"
        );
    }

    #[test]
    fn words_are_words_and_nothing_is_markup() {
        assert_eq!(
            told("-1e9 where mask, else <b>"),
            "<mo form=\"prefix\">−</mo><mn>1e9</mn><mtext>\u{a0}where\u{a0}</mtext><mi>mask</mi><mo>,</mo><mtext>\u{a0}else\u{a0}</mtext><mi>&lt;b&gt;</mi>"
        );
    }
}
