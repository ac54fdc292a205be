//! What was typed, where an editor or a keyboard has made other signs of it?

use std::ffi::OsString;

/// What becomes of hyphens.
const DASHES: [char; 5] = ['-', '–', '—', '−', '－'];

/// What stands around words that were copied from a text.
const QUOTES: [char; 6] = ['“', '”', '„', '‘', '’', '＂'];

/// The arguments with the hyphens of flags as they are typed, and without typographic quotation marks around them.
pub fn plain(args: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut is_flag = true;
    args.map(|arg| {
        is_flag &= arg != "--";
        let plain = if is_flag { arg.to_str().and_then(plainly) } else { None };
        plain.map_or(arg, OsString::from)
    })
    .collect()
}

/// Another spelling of an argument, if it needs one.
fn plainly(text: &str) -> Option<String> {
    let word = text.trim_matches(QUOTES);
    let rest = word.trim_start_matches(DASHES);
    let dashes = &word[..word.len() - rest.len()];
    let (name, value) =
        rest.split_once('=').map_or((rest, None), |(name, value)| (name, Some(value)));
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_long = dashes == "--" || !dashes.is_ascii() && name.len() > 1;
    let is_whole = |name: &str| name.len() > 2 && super::meant::is_flag(&name.replace('_', "-"));
    let plain = match (dashes, is_name) {
        ("-", true) if is_whole(name) => {
            return plainly(&format!("-{word}")).or(Some(format!("-{word}")));
        }
        ("-", true) => word.to_owned(),
        ("", _) => numbers(word).unwrap_or_else(|| word.to_owned()),
        (_, true) if is_long => {
            let value = value.map(|value| value.trim_matches(QUOTES));
            let value = value.map(|value| numbers(value).unwrap_or_else(|| value.to_owned()));
            let value = value.map(|value| format!("={value}"));
            format!("--{}{}", name.replace('_', "-"), value.unwrap_or_default())
        }
        (_, true) => format!("-{rest}"),
        // A number.
        _ if !dashes.is_ascii() && !rest.is_empty() => format!("-{rest}"),
        _ => return None,
    };
    Some(plain).filter(|plain| plain != text)
}

/// Numbers as flags take them, where they have full-width digits or commas, or the brackets of a list around them.
fn numbers(text: &str) -> Option<String> {
    let half = |c: char| match c {
        '\u{FF01}'..='\u{FF5E}' => char::from_u32(u32::from(c) - 0xFEE0).unwrap_or(c),
        '、' => ',',
        c => c,
    };
    let plain: String = text.chars().map(half).collect();
    let inner = plain.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&plain);
    let are_numbers = inner.chars().all(|c| c.is_ascii_digit() || " ,.-".contains(c));
    let inner = inner.replace(", ", ",");
    (are_numbers && inner.contains(|c: char| c.is_ascii_digit())).then_some(inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_dashes_and_quotes_are_those_of_the_keyboard() {
        let cases = [
            ("–-heads", "--heads"),
            ("—heads=3", "--heads=3"),
            ("－－heads", "--heads"),
            ("--n_heads=3", "--n-heads=3"),
            ("--tokens=“a,b”", "--tokens=a,b"),
            ("–H", "-H"),
            ("−1", "-1"),
            ("“weights[0,0,1,1]”", "weights[0,0,1,1]"),
            ("--attn-mask=my_mask.json", "--attn-mask=my_mask.json"),
            ("my_file.json", "my_file.json"),
            ("-heads", "--heads"),
            ("-d_model=16", "--d-model=16"),
            ("３，２", "3,2"),
            ("[3, 2]", "3,2"),
            ("--lengths=[3,2]", "--lengths=3,2"),
            ("[[1,2],[3,4]]", "[[1,2],[3,4]]"),
            ("我，爱", "我，爱"),
            ("-H4", "-H4"),
            ("-H", "-H"),
            ("-1e9", "-1e9"),
            ("--", "--"),
            ("-", "-"),
            ("–", "–"),
        ];
        for (typed, meant) in cases {
            assert_eq!(plain(std::iter::once(typed.into())), [meant], "{typed}");
        }
        let behind = ["--", "–-heads"].map(OsString::from);
        assert_eq!(plain(behind.clone().into_iter()), behind);
    }
}
