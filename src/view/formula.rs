//! Formulas, read so that they can be set as mathematics.
//!
//! Formulas are texts that operations write for people. What their signs stand for is read here, once for all that sets
//! formulas: `ᵀ`, `²` and `^` raise, `/` makes a fraction, what stands behind `√` is under a root, words are words.

use program::Name;

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

/// Longer texts are no formulas of operations. What stands in files can be anything.
const LONGEST: usize = 500;

/// The parts of a formula.
pub fn parts(formula: &str) -> Vec<Part<'_>> {
    if formula.len() > LONGEST {
        return vec![Part::Words(vec![formula])];
    }
    let tokens = tokens(formula);
    let mut reader = Reader { closes: closes(&tokens), tokens, at: 0 };
    reader.until(reader.tokens.len())
}

/// Words as a text: with spaces between them, but before a wide comma.
pub fn text(words: &[&str]) -> String {
    words.join(" ").replace(" ，", "，")
}

/// The signs of a formula that stand for operations.
const SIGNS: &str = "·+−-/()[]=,|⌊⌋Σ±√ᵀ²^∞≥≤≠…";

/// Those that raise what stands before them, by themselves or by what stands behind them.
const RAISE: [char; 3] = ['ᵀ', '²', '^'];

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

/// Where the bracket closes that opens at a place; nothing of other tokens, and of brackets that stay open.
fn closes(tokens: &[Part]) -> Vec<Option<usize>> {
    let mut closes = vec![None; tokens.len()];
    let mut open: Vec<(usize, char)> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        let Part::Sign(sign) = token else { continue };
        if let Some((_, close)) = BRACKETS.into_iter().find(|(open, _)| open == sign) {
            open.push((at, close));
        } else if let Some((start, _)) = open.pop_if(|(_, close)| close == sign) {
            closes[start] = Some(at);
        }
    }
    closes
}

/// The tokens of a formula, read one after the other.
struct Reader<'a> {
    tokens: Vec<Part<'a>>,
    closes: Vec<Option<usize>>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Part<'a>> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    /// The parts up to a place.
    fn until(&mut self, end: usize) -> Vec<Part<'a>> {
        let mut all: Vec<Part> = Vec::new();
        while self.at < end
            && let Some(token) = self.next()
        {
            match token {
                Part::Sign('√') => {
                    let inner = self.operand();
                    all.push(Part::Root(inner));
                }
                Part::Sign('/') if !all.is_empty() => {
                    let above = taken(&mut all);
                    let below = self.below();
                    all.push(Part::Fraction(above, below));
                }
                Part::Sign(sign) if RAISE.contains(&sign) => self.raise(&mut all, sign),
                Part::Sign(sign) => all.push(self.bracketed(sign)),
                Part::Words(more) => match all.last_mut() {
                    Some(Part::Words(words)) => words.extend(more),
                    _ => all.push(Part::Words(more)),
                },
                token => all.push(token),
            }
        }
        all
    }

    /// The sign that was read, or with what it opens.
    fn bracketed(&mut self, sign: char) -> Part<'a> {
        let Some(close) = self.closes.get(self.at - 1).copied().flatten() else {
            return Part::Sign(sign);
        };
        let inner = self.until(close);
        let Some(Part::Sign(last)) = self.next() else { return Part::Brackets(sign, inner, ' ') };
        Part::Brackets(sign, inner, last)
    }

    /// Raises the last of some parts by what a sign says, or by what stands behind it.
    fn raise(&mut self, all: &mut Vec<Part<'a>>, sign: char) {
        let Some(base) = all.pop() else { return all.push(Part::Sign(sign)) };
        let raised = match sign {
            'ᵀ' => vec![Part::Sign('ᵀ')],
            '²' => vec![Part::Number("2")],
            _ => self.operand(),
        };
        all.push(Part::Power(Box::new(base), raised));
    }

    /// What stands behind a root or `^`: a part, or what is in brackets.
    fn operand(&mut self) -> Vec<Part<'a>> {
        unbracketed(self.factor())
    }

    /// What stands behind a fraction's stroke: a part with what raises it, or what is in brackets.
    fn below(&mut self) -> Vec<Part<'a>> {
        let mut below = self.factor();
        while let Some(&Part::Sign(sign)) = self.tokens.get(self.at)
            && RAISE.contains(&sign)
        {
            self.at += 1;
            self.raise(&mut below, sign);
        }
        unbracketed(below)
    }

    /// The next part; a function with its arguments.
    fn factor(&mut self) -> Vec<Part<'a>> {
        // What closes belongs to what is around it.
        let is_closing = self.closes.contains(&Some(self.at));
        let Some(token) = self.tokens.get(self.at).filter(|_| !is_closing).cloned() else {
            return Vec::new();
        };
        self.at += 1;
        vec![match token {
            Part::Sign('√') => Part::Root(self.operand()),
            Part::Sign(sign) => self.bracketed(sign),
            Part::Function(name) => return vec![Part::Function(name), self.arguments()],
            token => token,
        }]
    }

    /// What stands behind the name of a function.
    fn arguments(&mut self) -> Part<'a> {
        self.at += 1;
        self.bracketed('(')
    }
}

/// What stands above a fraction's line: the last part; a function with its arguments; of brackets what they hold.
fn taken<'a>(all: &mut Vec<Part<'a>>) -> Vec<Part<'a>> {
    let arguments = match all.last() {
        Some(Part::Power(base, _)) => matches!(**base, Part::Brackets(..)),
        last => matches!(last, Some(Part::Brackets(..))),
    };
    let before = all.len().saturating_sub(2);
    let is_call = arguments && matches!(all.get(before), Some(Part::Function(_)));
    let at = if is_call { before } else { all.len().saturating_sub(1) };
    unbracketed(all.split_off(at))
}

/// Parts without the brackets around all of them: a root and a fraction's line are brackets themselves.
fn unbracketed(mut parts: Vec<Part>) -> Vec<Part> {
    match parts.as_mut_slice() {
        [Part::Brackets('(', inner, _)] => std::mem::take(inner),
        _ => parts,
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
    fn what_is_raised_is_raised_before_it_divides() {
        let squared = |part| Part::Power(Box::new(part), vec![Part::Number("2")]);
        let (a, b) = (Part::Name("a"), Part::Name("b"));
        let fraction = |above, below| [Part::Fraction(above, below)];
        let brackets = |part| Part::Brackets('(', vec![part], ')');
        assert_eq!(parts("a / b²"), fraction(vec![a.clone()], vec![squared(b.clone())]));
        assert_eq!(parts("a² / b"), fraction(vec![squared(a.clone())], vec![b.clone()]));
        assert_eq!(
            parts("a / (b)^2"),
            fraction(vec![a.clone()], vec![squared(brackets(b.clone()))])
        );
        let call = vec![Part::Function("tanh"), squared(brackets(b.clone()))];
        assert_eq!(parts("a / tanh(b)²"), fraction(vec![a.clone()], call.clone()));
        assert_eq!(parts("tanh(b)² / a"), fraction(call, vec![a.clone()]));
        assert_eq!(
            parts("(a / b)²"),
            [squared(Part::Brackets('(', fraction(vec![a], vec![b]).to_vec(), ')'))]
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
        for text in [
            "",
            "(",
            ")",
            "√",
            "/",
            "a /",
            "²",
            "((√(",
            "^",
            "f(",
            "a / ²",
            "(^)",
            "[1, (2",
            "− ⌊x / 2",
        ] {
            let _ = parts(text);
        }
        assert_eq!(parts("(a").len(), 2);
        assert_eq!(parts("a)").len(), 2);
    }
}
