//! Files of texts as gettext has them: `msgid` is the English text, `msgstr` what it is in the language.

use std::borrow::Cow;

/// The texts with their translations, but the first, which tells of the file. A text is one string, or several below
/// each other that are one.
pub fn texts(file: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let mut lines = file.lines().filter(|line| !line.starts_with('#')).peekable();
    std::iter::from_fn(move || {
        let mut string = |keyword: &str| {
            let first = lines.find_map(|line| line.strip_prefix(keyword))?;
            let mut string = plain(first);
            while let Some(line) = lines.next_if(|line| line.starts_with('"')) {
                string.to_mut().push_str(&plain(line));
            }
            Some(string)
        };
        Some((string("msgid ")?, string("msgstr ")?))
    })
    .skip(1)
}

/// A string without its quotes.
fn plain(quoted: &str) -> Cow<'_, str> {
    let inner = quoted.trim().trim_start_matches('"');
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    if !inner.contains('\\') {
        return inner.into();
    }
    let mut plain = String::new();
    let mut signs = inner.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => plain.extend(signs.next().map(|sign| if sign == 'n' { '\n' } else { sign })),
            sign => plain.push(sign),
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_with_their_translations() {
        let file = "msgid \"\"\nmsgstr \"\"\n\"Language: zh\\n\"\n\n# A head.\nmsgid \"head {at}\"\nmsgstr \"头 {at}\"\n\n\
                    msgid \"\"\n\"say \\\"so\\\"\"\n\" twice\\n\"\nmsgstr \"说\\\\\"\n";
        let texts: Vec<_> = texts(file).collect();
        let read = [("head {at}", "头 {at}"), ("say \"so\" twice\n", "说\\")];
        assert!(texts.iter().map(|(id, text)| (id.as_ref(), text.as_ref())).eq(read));
    }
}
