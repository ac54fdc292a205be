//! Formulas as LaTeX has them.

use super::plain;
use crate::formula::{Part, parts, text};

/// A formula in a line of its own, which can be broken between its words and signs.
pub fn formula(formula: &str) -> String {
    let parts = parts(formula);
    let chunks = parts.chunk_by(|left, right| is_words(left) == is_words(right));
    let chunks = chunks.map(|chunk| match chunk {
        [Part::Words(words)] => format!(" {} ", plain(&text(words))),
        parts => format!(r"\(\displaystyle {}\)", spaced(parts)),
    });
    let line: String = chunks.collect();
    // A comma stands beside its word.
    line.trim().replace(r" \(\displaystyle ,", r"\(\displaystyle ,").replace(" ，", "，")
}

/// Parts between words. Signs at their ends keep the space that they have between two numbers.
fn spaced(parts: &[Part]) -> String {
    let nothing =
        |end: Option<&Part>| if matches!(end, Some(Part::Sign('·' | '+'))) { "{}" } else { "" };
    let before = nothing(parts.first().filter(|_| parts.len() > 1));
    format!("{before}{}{}", row(parts), nothing(parts.last()))
}

fn is_words(part: &Part) -> bool {
    matches!(part, Part::Words(_))
}

fn row(parts: &[Part]) -> String {
    parts.iter().map(one).collect::<Vec<_>>().join(" ")
}

/// Functions that LaTeX knows by their names, with the space that belongs around them.
const OPERATORS: [&str; 5] = ["log", "exp", "tanh", "max", "min"];

fn one(part: &Part) -> String {
    match part {
        Part::Name(name) | Part::Function(name) if OPERATORS.contains(name) => format!(r"\{name}"),
        Part::Name(name) => identifier(name),
        Part::Function(name) => format!(r"\operatorname{{{}}}", plain(name)),
        Part::Number(number) => power_of_ten(number),
        Part::Words(words) => format!(r"\text{{ {} }}", plain(&text(words))),
        Part::Root(inner) => format!(r"\sqrt{{{}}}", row(inner)),
        Part::Fraction(above, below) => format!(r"\frac{{{}}}{{{}}}", row(above), row(below)),
        Part::Power(base, raised) if matches!(**base, Part::Name(_)) => {
            format!("{}^{{{}}}", one(base), row(raised))
        }
        Part::Power(base, raised) => format!("{{{}}}^{{{}}}", one(base), row(raised)),
        Part::Brackets(open, inner, close) => {
            format!(r"\left{} {} \right{}", sign(*open), row(inner), sign(*close))
        }
        Part::Sign(own) => sign(*own).to_owned(),
    }
}

/// `d_k` as a letter with an index, and longer names upright as they are.
fn identifier(name: &str) -> String {
    let is_plain = name.chars().all(|sign| sign.is_ascii_alphanumeric() || sign == '_');
    match name.split_once('_') {
        _ if !is_plain => format!(r"\text{{{}}}", plain(name)),
        Some((letter, index)) if letter.len() == 1 && index.len() == 1 => {
            format!("{letter}_{{{index}}}")
        }
        Some((letter, index)) if letter.len() == 1 => {
            format!(r"{letter}_{{\mathrm{{{}}}}}", plain(index))
        }
        None if name.len() == 1 => name.to_owned(),
        Some(_) | None => format!(r"\mathrm{{{}}}", plain(name)),
    }
}

/// `1e-5` as a power of ten.
fn power_of_ten(number: &str) -> String {
    let is_number = number.parse::<f64>().is_ok();
    match number.split_once('e').filter(|_| is_number) {
        Some(("1", exponent)) => format!("10^{{{exponent}}}"),
        Some((digits, exponent)) => format!(r"{digits} \cdot 10^{{{exponent}}}"),
        None => number.to_owned(),
    }
}

fn sign(sign: char) -> &'static str {
    match sign {
        '·' => r"\cdot",
        '+' => "+",
        '−' | '-' => "-",
        '/' => "/",
        '(' => "(",
        ')' => ")",
        '[' => "[",
        ']' => "]",
        '=' => "=",
        ',' => ",",
        '|' => "|",
        '⌊' => r"\lfloor",
        '⌋' => r"\rfloor",
        'Σ' => r"\sum",
        '±' => r"\pm",
        '√' => r"\surd",
        'ᵀ' => r"\mathsf{T}",
        '²' => "{}^{2}",
        '^' => r"\wedge",
        '∞' => r"\infty",
        '≥' => r"\geq",
        '≤' => r"\leq",
        '≠' => r"\neq",
        '…' => r"\ldots",
        '<' => "<",
        '>' => ">",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas_are_mathematics() {
        for (told, set) in [
            ("scores_raw / √d_k", r"\(\displaystyle \frac{\mathrm{scores\_raw}}{\sqrt{d_{k}}}\)"),
            ("x · w_qᵀ", r"\(\displaystyle x \cdot w_{q}^{\mathsf{T}}\)"),
            (
                "rotated by position · rope_freqs",
                r"rotated by position \(\displaystyle {}\cdot \mathrm{rope\_freqs}\)",
            ),
            (
                "-1e9 where mask, else scores",
                r"\(\displaystyle - 10^{9}\) where \(\displaystyle \mathrm{mask} ,\) else \(\displaystyle \mathrm{scores}\)",
            ),
            (
                "softmax(x / (1 − 2.5e-6))",
                r"\(\displaystyle \operatorname{softmax} \left( \frac{x}{1 - 2.5 \cdot 10^{-6}} \right)\)",
            ),
            (
                "log Σ exp(scores)",
                r"\(\displaystyle \log \sum \exp \left( \mathrm{scores} \right)\)",
            ),
        ] {
            assert_eq!(formula(told), set);
        }
    }

    #[test]
    fn every_sign_is_set() {
        let formula = "·+−-/()[]=,|⌊⌋Σ±√ᵀ²^∞≥≤≠…<>";
        assert!(formula.chars().all(|own| !sign(own).is_empty()));
    }

    #[test]
    fn names_mean_nothing_but_themselves() {
        assert_eq!(formula(r"\x{}_1"), r"\(\displaystyle \text{\textbackslash{}x\{\}\_1}\)");
    }
}
