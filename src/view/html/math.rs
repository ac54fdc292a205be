//! Formulas as `MathML`.
//!
//! Formulas are texts that operations write for people; here their signs are set as mathematics: `ᵀ` and `²` are raised,
//! what stands behind `√` is under a root, words are words.

use maud::{Markup, PreEscaped, html};

/// A formula, `name = formula`.
pub fn equation(name: &str, formula: &str) -> Markup {
    html! {
        math display="block" {
            mrow { (identifier(name)) mo { "=" } (row(formula)) }
        }
    }
}

/// A part of a formula.
enum Token<'a> {
    Name(&'a str),
    Number(&'a str),
    Word(&'a str),
    Sign(char),
}

/// The signs of a formula that stand for operations.
const SIGNS: &str = "·+−-/()[]=,|⌊⌋Σ±√ᵀ²^∞";

fn tokens(formula: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = formula.trim_start();
    while let Some(first) = rest.chars().next() {
        if SIGNS.contains(first) {
            tokens.push(Token::Sign(first));
            rest = &rest[first.len_utf8()..];
        } else {
            let is_end = |at: char| at.is_whitespace() || SIGNS.contains(at);
            // The sign of an exponent belongs to its number: 1e-5.
            let is_number = first.is_ascii_digit();
            let bytes = rest.as_bytes();
            let end = rest
                .char_indices()
                .position(|(at, sign)| {
                    let is_exponent =
                        is_number && sign == '-' && at > 0 && bytes.get(at - 1) == Some(&b'e');
                    is_end(sign) && !is_exponent
                })
                .and_then(|count| rest.char_indices().nth(count));
            let (token, behind) = rest.split_at(end.map_or(rest.len(), |(at, _)| at));
            tokens.push(match token {
                token if is_number => Token::Number(token),
                token if is_name(token, behind) => Token::Name(token),
                token => Token::Word(token),
            });
            rest = behind;
        }
        rest = rest.trim_start();
    }
    tokens
}

/// Names of tensors, of sizes and of functions, beside the words of a sentence.
fn is_name(token: &str, behind: &str) -> bool {
    let is_called = behind.starts_with('(');
    let has_mark = token.contains('_') || token.chars().any(|sign| !sign.is_ascii_lowercase());
    is_called || has_mark || token.len() == 1 || crate::program::Name::named(token).is_some()
}

fn identifier(name: &str) -> Markup {
    // A single letter would be slanted, and names are not.
    html! { mi mathvariant=[(name.chars().count() == 1).then_some("normal")] { (name) } }
}

/// A token alone, or with what stands behind a root.
fn row(formula: &str) -> Markup {
    let mut out: Vec<String> = Vec::new();
    let all = tokens(formula);
    let mut at = 0;
    while let Some(token) = all.get(at) {
        at += 1;
        let markup = match token {
            Token::Sign('√') => {
                let (inner, next) = operand(&all, at);
                at = next;
                html! { msqrt { (inner) } }
            }
            Token::Sign(raised @ ('ᵀ' | '²')) => {
                let base = PreEscaped(out.pop().unwrap_or_else(|| html! { mrow {} }.into_string()));
                let exponent = if *raised == '²' {
                    html! { mn { "2" } }
                } else {
                    html! { mi mathvariant="normal" { "T" } }
                };
                html! { msup { (base) (exponent) } }
            }
            Token::Word(word) if matches!(all.get(at), Some(Token::Word(_))) => {
                html! { mtext { "\u{a0}" (word) } }
            }
            other => single(other),
        };
        out.push(markup.into_string());
    }
    PreEscaped(out.concat())
}

/// What stands behind a root: one token, or what is in brackets.
fn operand(all: &[Token], at: usize) -> (Markup, usize) {
    if !matches!(all.get(at), Some(Token::Sign('('))) {
        return (all.get(at).map(single).unwrap_or_default(), at + 1);
    }
    let mut depth = 0_usize;
    let mut end = at;
    for token in all.get(at..).unwrap_or_default() {
        match token {
            Token::Sign('(') => depth += 1,
            Token::Sign(')') => depth -= 1,
            _ => {}
        }
        end += 1;
        if depth == 0 {
            break;
        }
    }
    let inner = all.get(at + 1..end.saturating_sub(1)).unwrap_or_default();
    let mut out = String::new();
    for (place, token) in inner.iter().enumerate() {
        match (token, inner.get(place + 1)) {
            (Token::Sign('²'), _) => {}
            (token, Some(Token::Sign('²'))) => {
                out.push_str(&html! { msup { (single(token)) mn { "2" } } }.into_string());
            }
            (token, _) => out.push_str(&single(token).into_string()),
        }
    }
    (PreEscaped(out), end)
}

fn single(token: &Token) -> Markup {
    match token {
        Token::Name(name) => identifier(name),
        Token::Number(number) => html! { mn { (number) } },
        // Spaces at the ends of a text are not kept.
        Token::Word(word) => html! { mtext { "\u{a0}" (word) "\u{a0}" } },
        Token::Sign('-') => html! { mo { "−" } },
        Token::Sign('∞') => html! { mi mathvariant="normal" { "∞" } },
        // Brackets as high as the letters.
        Token::Sign(sign @ ('(' | ')' | '[' | ']' | '|' | '⌊' | '⌋')) => {
            html! { mo stretchy="false" { (sign) } }
        }
        Token::Sign(sign) => html! { mo { (sign) } },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(formula: &str) -> String {
        row(formula).into_string()
    }

    #[test]
    fn roots_and_transposes_are_set() {
        assert_eq!(
            told("scores_raw / √d_k"),
            "<mi>scores_raw</mi><mo>/</mo><msqrt><mi>d_k</mi></msqrt>"
        );
        assert_eq!(
            told("x · w_qᵀ"),
            "<mi mathvariant=\"normal\">x</mi><mo>·</mo><msup><mi>w_q</mi><mi mathvariant=\"normal\">T</mi></msup>"
        );
        assert_eq!(
            told("q / √(mean(q²) + 1e-6)"),
            "<mi mathvariant=\"normal\">q</mi><mo>/</mo><msqrt><mi>mean</mi><mo stretchy=\"false\">(</mo><msup><mi mathvariant=\"normal\">q</mi><mn>2</mn></msup><mo stretchy=\"false\">)</mo><mo>+</mo><mn>1e-6</mn></msqrt>"
        );
    }

    #[test]
    fn words_are_words_and_nothing_is_markup() {
        assert_eq!(
            told("-1e9 where mask, else <b>"),
            "<mo>−</mo><mn>1e9</mn><mtext>\u{a0}where\u{a0}</mtext><mi>mask</mi><mo>,</mo><mtext>\u{a0}else\u{a0}</mtext><mi>&lt;b&gt;</mi>"
        );
    }
}
