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
    let plain = match (dashes, is_name) {
        ("", _) | ("-", true) => word.to_owned(),
        (_, true) if is_long => {
            let value = value.map(|value| format!("={}", value.trim_matches(QUOTES)));
            format!("--{}{}", name.replace('_', "-"), value.unwrap_or_default())
        }
        (_, true) => format!("-{rest}"),
        // A number.
        _ if !dashes.is_ascii() && !rest.is_empty() => format!("-{rest}"),
        _ => return None,
    };
    Some(plain).filter(|plain| plain != text)
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
