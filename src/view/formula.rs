//! Formulas, read so that they can be set as mathematics.
//!
//! Formulas are texts that operations write for people. What their signs stand for is read here, once for all that sets
//! formulas: `ᵀ`, `²` and `^` raise, `/` makes a fraction, what stands behind `√` is under a root, words are words.

use crate::program::Name;

/// A part of a formula.
#[derive(Debug, Clone, PartialEq)]
pub enum Part<'a> {
    /// Of a tensor or a size.
    Name(&'a str),
    /// A name with its arguments in brackets behind it.
    Function(&'a str),
    Number(&'a str),
    /// Words that follow each other.
    Words(Vec<&'a str>),
    Sign(char),
    /// What stands in brackets, which are the first and the last sign.
    Brackets(char, Vec<Part<'a>>, char),
    Root(Vec<Part<'a>>),
    Fraction(Vec<Part<'a>>, Vec<Part<'a>>),
    /// A part, and what is raised behind it.
    Power(Box<Part<'a>>, Vec<Part<'a>>),
}

/// The parts of a formula.
pub fn parts(formula: &str) -> Vec<Part<'_>> {
    let tokens = tokens(formula);
    let mut at = 0;
    let mut all = Vec::new();
    while at < tokens.len() {
        all.extend(until(&tokens, &mut at, None).0);
    }
    all
}

/// Words as a text: with spaces between them, but before a wide comma.
pub fn text(words: &[&str]) -> String {
    words.join(" ").replace(" ，", "，")
}

/// The signs of a formula that stand for operations.
const SIGNS: &str = "·+−-/()[]=,|⌊⌋Σ±√ᵀ²^∞≥≤≠…";

const BRACKETS: [(char, char); 3] = [('(', ')'), ('[', ']'), ('⌊', '⌋')];

fn tokens(formula: &str) -> Vec<Part<'_>> {
    let mut tokens = Vec::new();
    let mut rest = formula.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if SIGNS.contains(first) { first.len_utf8() } else { word(rest) };
        let (token, behind) = rest.split_at(length);
        tokens.push(match token {
            _ if SIGNS.contains(first) => Part::Sign(first),
            "<" | ">" => Part::Sign(first),
            "inf" => Part::Sign('∞'),
            token if first.is_ascii_digit() => Part::Number(token),
            token if behind.starts_with('(') => Part::Function(token),
            token if is_name(token) => Part::Name(token),
            token => Part::Words(vec![token]),
        });
        rest = behind.trim_start();
    }
    tokens
}

/// The bytes up to the next space or sign, or to another script. The sign of an exponent belongs to its number: 1e-5.
fn word(text: &str) -> usize {
    let is_number = text.starts_with(|first: char| first.is_ascii_digit());
    let is_wide = |sign: char| sign >= '\u{2e80}';
    let starts_wide = text.starts_with(is_wide);
    let is_end = |(at, sign): &(usize, char)| {
        let is_exponent = is_number && *sign == '-' && text[..*at].ends_with('e');
        let is_other = is_wide(*sign) != starts_wide;
        is_other || sign.is_whitespace() || (SIGNS.contains(*sign) && !is_exponent)
    };
    text.char_indices().find(is_end).map_or(text.len(), |(at, _)| at)
}

/// Names of tensors, of sizes and of functions, beside the words of a sentence, which may be one of another script.
fn is_name(token: &str) -> bool {
    let is_marked = |sign: char| sign.is_ascii() && !sign.is_ascii_lowercase();
    token.chars().count() == 1
        || token == "log"
        || token.chars().any(is_marked)
        || Name::named(token).is_some()
}

/// The parts from a place on, up to a sign that closes. Whether that is there.
fn until<'a>(tokens: &[Part<'a>], at: &mut usize, close: Option<char>) -> (Vec<Part<'a>>, bool) {
    let mut all: Vec<Part> = Vec::new();
    while let Some(token) = tokens.get(*at) {
        *at += 1;
        match token {
            Part::Sign(sign) if Some(*sign) == close => return (all, true),
            Part::Sign('√') => {
                let inner = operand(tokens, at);
                all.push(Part::Root(inner));
            }
            Part::Sign('/') if !all.is_empty() => {
                let above = taken(&mut all);
                let below = operand(tokens, at);
                all.push(Part::Fraction(above, below));
            }
            Part::Sign(sign @ ('ᵀ' | '²' | '^')) if !all.is_empty() => {
                let raised = match sign {
                    'ᵀ' => vec![Part::Sign('ᵀ')],
                    '²' => vec![Part::Number("2")],
                    _ => operand(tokens, at),
                };
                if let Some(base) = all.pop() {
                    all.push(Part::Power(Box::new(base), raised));
                }
            }
            Part::Sign(sign) => all.push(bracketed(*sign, tokens, at)),
            Part::Words(more) => match all.last_mut() {
                Some(Part::Words(words)) => words.extend(more),
                _ => all.push(Part::Words(more.clone())),
            },
            token => all.push(token.clone()),
        }
    }
    (all, close.is_none())
}

/// A sign alone, or with what it opens. What is not closed is no bracket.
fn bracketed<'a>(sign: char, tokens: &[Part<'a>], at: &mut usize) -> Part<'a> {
    let Some((_, close)) = BRACKETS.into_iter().find(|(open, _)| *open == sign) else {
        return Part::Sign(sign);
    };
    let start = *at;
    let (inner, is_closed) = until(tokens, at, Some(close));
    if is_closed {
        return Part::Brackets(sign, inner, close);
    }
    *at = start;
    Part::Sign(sign)
}

/// What stands behind a root, a fraction's stroke or `^`: a part, or what is in brackets.
fn operand<'a>(tokens: &[Part<'a>], at: &mut usize) -> Vec<Part<'a>> {
    let Some(token) = tokens.get(*at) else { return Vec::new() };
    *at += 1;
    let part = match token {
        Part::Sign('√') => Part::Root(operand(tokens, at)),
        Part::Sign(sign) => bracketed(*sign, tokens, at),
        Part::Function(name) => {
            let called = operand_in_brackets(tokens, at);
            return std::iter::once(Part::Function(name)).chain(called).collect();
        }
        token => token.clone(),
    };
    // A root and a fraction's line are brackets themselves.
    if let Part::Brackets('(', inner, _) = part { inner } else { vec![part] }
}

fn operand_in_brackets<'a>(tokens: &[Part<'a>], at: &mut usize) -> Option<Part<'a>> {
    let Some(Part::Sign(sign)) = tokens.get(*at) else { return None };
    *at += 1;
    Some(bracketed(*sign, tokens, at))
}

/// What stands above a fraction's line: the last part; a function with its arguments; of brackets what they hold.
fn taken<'a>(all: &mut Vec<Part<'a>>) -> Vec<Part<'a>> {
    let last = all.pop();
    match (last, all.last()) {
        (Some(last @ Part::Brackets(..)), Some(Part::Function(_))) => {
            all.pop().into_iter().chain([last]).collect()
        }
        (Some(Part::Brackets('(', inner, _)), _) => inner,
        (last, _) => last.into_iter().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_bind_what_stands_beside_them() {
        let (name, sign) = (Part::Name, Part::Sign);
        let root = Part::Root(vec![name("d_k")]);
        assert_eq!(
            parts("scores_raw / √d_k"),
            [Part::Fraction(vec![name("scores_raw")], vec![root])]
        );
        let raised = Part::Power(Box::new(name("w_q")), vec![sign('ᵀ')]);
        assert_eq!(parts("x · w_qᵀ"), [name("x"), sign('·'), raised]);
        let inner = |part| Part::Brackets('(', vec![part], ')');
        assert_eq!(
            parts("q / tanh(q) · (1)"),
            [
                Part::Fraction(vec![name("q")], vec![Part::Function("tanh"), inner(name("q"))]),
                sign('·'),
                inner(Part::Number("1")),
            ]
        );
    }

    #[test]
    fn words_are_words_in_any_script() {
        let words = |words: &[&'static str]| Part::Words(words.to_vec());
        assert_eq!(
            parts("q split into 2 heads"),
            [Part::Name("q"), words(&["split", "into"]), Part::Number("2"), words(&["heads"])]
        );
        assert_eq!(
            parts("沿键 1e-5，其余为 scores"),
            [words(&["沿键"]), Part::Number("1e-5"), words(&["，其余为"]), Part::Name("scores")]
        );
    }

    /// What is no formula is read to its end all the same.
    #[test]
    fn whatever_is_written_is_read() {
        for text in ["", "(", ")", "√", "/", "a /", "²", "((√(", "^", "f(", "[1, (2", "− ⌊x / 2"]
        {
            let _ = parts(text);
        }
        assert_eq!(parts("(a").len(), 2);
        assert_eq!(parts("a)").len(), 2);
    }
}
