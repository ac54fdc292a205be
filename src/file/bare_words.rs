//! How are the bare `NaN`, `Infinity` and `-Infinity` read that Python writes into JSON?

use std::borrow::Cow;

/// Strings that stand for Python's bare words once [`quote_bare_words`] has been over the text. Each is as long
/// as its word, so that lines and columns stay right, and reads as a number where it can.
pub const NAN: &str = "\u{7f}";
pub const INFINITY: &str = "inf   ";
pub const NEGATIVE_INFINITY: &str = "-inf   ";

/// Turns the bare `NaN`, `Infinity` and `-Infinity` that Python writes into strings of the same length.
pub fn quote_bare_words(text: &str) -> Cow<'_, str> {
    if !text.contains("NaN") && !text.contains("Infinity") {
        return Cow::Borrowed(text);
    }
    let words = [("-Infinity", NEGATIVE_INFINITY), ("Infinity", INFINITY), ("NaN", NAN)];
    let mut quoted = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '-', 'I', 'N']) {
        let (before, from) = rest.split_at(at);
        quoted.push_str(before);
        let end = if from.starts_with('"') {
            quoted.push_str(&from[..string_end(from)]);
            string_end(from)
        } else if let Some((word, stand_in)) = words.iter().find(|(word, _)| from.starts_with(word))
        {
            quoted.extend(["\"", stand_in, "\""]);
            word.len()
        } else {
            quoted.push_str(&from[..1]);
            1
        };
        rest = &from[end..];
    }
    quoted.push_str(rest);
    Cow::Owned(quoted)
}

/// The length of the string literal that `text` begins with.
fn string_end(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_words_become_strings_of_the_same_length() {
        let text = r#"{"a NaN": [NaN, -Infinity, Infinity, -1.5], "b\"NaN": "Infinity"}"#;
        let quoted = quote_bare_words(text);
        assert_eq!(quoted.len(), text.len());
        assert_eq!(
            quoted,
            format!(
                r#"{{"a NaN": ["{NAN}", "{NEGATIVE_INFINITY}", "{INFINITY}", -1.5], "b\"NaN": "Infinity"}}"#
            )
        );
    }

    #[test]
    fn broken_text_keeps_its_length() {
        for text in ["NaN\"", "\"NaN", "Nan -Infinity\\", "é NaN ü\"", "\"\\"] {
            assert_eq!(quote_bare_words(text).len(), text.len());
        }
    }
}
