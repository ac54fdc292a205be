//! Makes the script and the style of the pages out of the files beside their markup: one text each, without comments and
//! indentation.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// In this order: the later ones use the earlier ones.
const SCRIPTS: [&str; 5] = ["numbers.js", "terms.js", "tables.js", "working.js", "page.js"];
const STYLES: [&str; 2] = ["page.css", "tables.css"];

fn main() {
    let folder = Path::new("src/view/html");
    println!("cargo::rerun-if-changed=src/view/html/minify.rs");
    let read = |name: &str| {
        let path = folder.join(name);
        println!("cargo::rerun-if-changed={}", path.display());
        fs::read_to_string(path).expect("the file is a part of the crate")
    };
    let script: String = SCRIPTS.into_iter().map(read).collect();
    let style: String = STYLES.into_iter().map(read).collect();
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let write =
        |name: &str, text: String| fs::write(out.join(name), text).expect("cargo's own folder");
    let short = shorter(minifier::js::minify(&script).to_string());
    write("page.js", with_joined_declarations(&with_bare_parameters(&renamed(&script, &short))));
    write("page.css", minifier::css::minify(&style).expect("the style is CSS").to_string());
}

/// What the minifier leaves that a browser does not need. None of it stands in a text of the scripts.
fn shorter(script: String) -> String {
    let needless = [
        ("const ", "let "),
        ("const[", "let["),
        ("const{", "let{"),
        (";}", "}"),
        (",)", ")"),
        (",]", "]"),
        (",}", "}"),
    ];
    needless.into_iter().fold(script, |script, (long, short)| script.replace(long, short))
}

/// The script with short names for what its source declares under long ones. A name of several words, as `valueAt`, or of
/// capitals can be told from the words of texts and from what browsers and data call things; one that is a property, or
/// stands in quotes, stays.
fn renamed(source: &str, script: &str) -> String {
    let declared = words(source).zip(words(source).skip(1));
    let declared = declared.filter(|((at, keyword), (_, name))| {
        let is_long = name.chars().any(char::is_uppercase) && name.len() > 3;
        // What stands in braces is a property of something.
        let is_own = source[at + keyword.len()..].starts_with(&format!(" {name}"));
        is_long && is_own && ["const", "let", "function"].contains(keyword) && !KEPT.contains(name)
    });
    let mut long: Vec<&str> = declared.map(|(_, (_, name))| name).collect();
    long.sort_unstable();
    long.dedup();
    let stays = |(at, name): &(usize, &str)| {
        let (before, behind) = (&script[..*at], &script[at + name.len()..]);
        let is_property = before.ends_with('.') && !before.ends_with("...");
        is_property || before.ends_with(QUOTES) || behind.starts_with(QUOTES)
    };
    let staying: Vec<&str> = words(script).filter(stays).map(|(_, name)| name).collect();
    long.retain(|name| !staying.contains(name));
    let taken: Vec<&str> = words(script).map(|(_, word)| word).collect();
    let letters = || ('a'..='z').chain('A'..='Z');
    let pairs = letters().flat_map(|first| letters().map(move |second| format!("{first}{second}")));
    let mut free =
        pairs.filter(|name| !taken.contains(&name.as_str()) && !RESERVED.contains(&name.as_str()));
    let short: HashMap<&str, String> = long.into_iter().zip(free.by_ref()).collect();
    let mut out = String::new();
    let mut end = 0;
    for (at, word) in words(script) {
        out.push_str(&script[end..at]);
        out.push_str(short.get(word).map_or(word, String::as_str));
        end = at + word.len();
    }
    out + &script[end..]
}

/// What the tests of pages call by its name.
const KEPT: [&str; 2] = ["STEPS", "cellName"];
const QUOTES: [char; 2] = ['"', '\''];
const RESERVED: [&str; 6] = ["as", "do", "if", "in", "is", "of"];

/// The words of a script, and where they are.
fn words(script: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == '$';
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + script[rest..].find(is_part)?;
        let end = script[start..].find(|sign| !is_part(sign)).map_or(script.len(), |at| start + at);
        rest = end;
        Some((start, &script[start..end]))
    })
}

/// The script with `x=>` in the place of `(x)=>`.
fn with_bare_parameters(script: &str) -> String {
    let mut out = String::new();
    let mut rest = script;
    while let Some(at) = rest.find(")=>") {
        let (before, behind) = rest.split_at(at);
        let name = before.rfind('(').filter(|open| {
            let is_name = words(&before[open + 1..]).next() == Some((0, &before[open + 1..]));
            let is_free = !before[..*open].ends_with(|sign: char| sign.is_ascii_alphanumeric());
            is_name && is_free
        });
        let open = name.unwrap_or(at);
        out.push_str(&before[..open]);
        out.push_str(before[open..].strip_prefix('(').unwrap_or(")"));
        out.push_str("=>");
        rest = &behind[")=>".len()..];
    }
    out + rest
}

/// The script with `let a=1,b=2` in the place of `let a=1;let b=2`, where nothing in the first has braces.
fn with_joined_declarations(script: &str) -> String {
    let mut out = String::new();
    for part in script.split_inclusive(';') {
        let declared = part.strip_prefix("let").filter(|rest| rest.starts_with([' ', '[', '{']));
        let start = out.trim_end_matches(';').rfind([';', '{', '}']).map_or(0, |at| at + 1);
        let before = &out[start..];
        let is_whole = [('(', ')'), ('[', ']')]
            .iter()
            .all(|(open, close)| before.matches(*open).count() == before.matches(*close).count());
        match declared {
            Some(declared) if before.starts_with("let") && before.ends_with(';') && is_whole => {
                out.pop();
                out.push(',');
                out.push_str(declared.trim_start());
            }
            _ => out.push_str(part),
        }
    }
    out
}
