//! Texts in lines.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// What a command begins with that ends a text.
const COMMAND: &str = "mha-trace explain ";

/// A text in lines of at most `width` columns, broken between words, and between Chinese characters; a word that is wider
/// has a line of its own. A dot between two parts stays with the first, and a number with the word before it. A command at
/// its end is broken as a shell takes it.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let Some(at) = text.find(COMMAND).filter(|_| text.width() > width) else {
        return broken(text, width);
    };
    let (before, command) = text.split_at(at);
    let mut lines = broken(before.trim_end(), width);
    let mut line = lines.pop().unwrap_or_default();
    let mut gap = if before.ends_with(' ') { " " } else { "" };
    let mut words = shell_words(command).into_iter().peekable();
    while let Some(word) = words.next() {
        let behind = if words.peek().is_some() { " \\".len() } else { 0 };
        if line.width() + gap.len() + word.width() + behind > width && !line.is_empty() {
            let is_command = word.as_ptr() != command.as_ptr();
            lines.push(if is_command { line + " \\" } else { line });
            (line, gap) = (String::new(), "");
        }
        line.push_str(gap);
        line.push_str(word);
        gap = " ";
    }
    lines.push(line);
    lines
}

/// The words of a command, with their quotes; its name is one.
fn shell_words(command: &str) -> Vec<&str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let (name, arguments) = command.split_at(COMMAND.len());
    let is_end = |sign: char| {
        is_quoted ^= sign == '\'' && !is_escaped;
        is_escaped = sign == '\\' && !is_quoted;
        sign == ' ' && !is_quoted
    };
    std::iter::once(name.trim_end()).chain(arguments.split(is_end)).collect()
}

/// A text without a command.
fn broken(text: &str, width: usize) -> Vec<String> {
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let mut parts: Vec<(&str, String)> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let is_number = word.starts_with(|first: char| first.is_ascii_digit());
        for (at, piece) in pieces(word).into_iter().enumerate() {
            let is_bound =
                |last: &str| word == "·" || is_number && last.ends_with(char::is_alphabetic);
            match parts.last_mut() {
                Some((_, last))
                    if at == 0 && is_bound(last) && last.width() + 1 + piece.width() <= width =>
                {
                    last.push(' ');
                    last.push_str(piece);
                    bind_word(&mut parts, width);
                }
                _ => parts.push((if at == 0 { " " } else { "" }, piece.to_owned())),
            }
        }
    }
    for (gap, part) in parts {
        match lines.last_mut() {
            Some(last) if last.width() + gap.len() + part.width() <= width => {
                last.push_str(gap);
                last.push_str(&part);
            }
            _ => lines.push(part),
        }
    }
    lines
}

/// Joins the last part, a number behind a character of Chinese, with the characters before that: those of its word, which
/// has no more than so many.
fn bind_word(parts: &mut Vec<(&str, String)>, width: usize) {
    const LETTERS: usize = 3;
    for _ in 1..LETTERS {
        let [.., (_, before), ("", last)] = parts.as_slice() else { return };
        let is_word = before.chars().count() == 1 && before.starts_with(char::is_alphabetic);
        if !is_word || before.width() + last.width() > width {
            return;
        }
        let Some((_, last)) = parts.pop() else { return };
        parts.last_mut().into_iter().for_each(|(_, before)| before.push_str(&last));
    }
}

/// Where a word of Chinese may be broken: beside every character that is as wide as two, but neither before what closes
/// nor behind what opens.
fn pieces(word: &str) -> Vec<&str> {
    let is_wide = |sign: char| sign.width() == Some(2);
    let mut pieces = Vec::new();
    let mut start = 0;
    for ((_, before), (at, sign)) in word.char_indices().zip(word.char_indices().skip(1)) {
        let may_break = is_wide(before) || is_wide(sign);
        if may_break && !CLOSING.contains(sign) && !OPENING.contains(before) {
            pieces.extend(word.get(start..at));
            start = at;
        }
    }
    pieces.extend(word.get(start..));
    pieces
}

/// What no line begins with, and what none ends with.
const CLOSING: &str = "，。、；：！？）】》」』”’…—·%,.;:!?)]}";
const OPENING: &str = "（【《「『“‘([{";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_and_never_before_a_dot() {
        assert_eq!(wrapped("one two · three", 8), ["one", "two ·", "three"]);
        assert_eq!(wrapped("  or so", 30), ["  or so"]);
        assert_eq!(wrapped("of head 2, head_dim 4", 20), ["of head 2,", "head_dim 4"]);
        assert_eq!(wrapped("12345 of 6 7 8", 4), ["12345", "of 6", "7 8"]);
    }

    #[test]
    fn commands_break_as_a_shell_takes_them() {
        let told = r"one: mha-trace explain 'x[0,1]' --tokens 'a b,it'\''s c' -H 2";
        assert_eq!(
            wrapped(told, 30),
            [r"one: mha-trace explain \", r"'x[0,1]' --tokens \", r"'a b,it'\''s c' -H 2"]
        );
        assert_eq!(wrapped(told, 80), [told]);
        assert_eq!(
            wrapped("其中一个数：mha-trace explain 'x[0]'", 26),
            ["其中一个数：", "mha-trace explain 'x[0]'"]
        );
    }

    #[test]
    fn chinese_breaks_between_characters_and_never_before_a_comma() {
        assert_eq!(wrapped("查询看不到键，掩码", 12), ["查询看不到", "键，掩码"]);
        assert_eq!(wrapped("查询（q_heads）与键", 8), ["查询", "（q_heads）", "与键"]);
        assert_eq!(wrapped("头 0 的 softmax 之和", 9), ["头 0 的", "softmax", "之和"]);
        assert_eq!(wrapped("样本 0，头 1，查询 3", 17), ["样本 0，头 1，", "查询 3"]);
    }
}
