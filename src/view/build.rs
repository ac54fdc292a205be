//! Makes the script and the style of the pages out of the files beside their markup: one text each, without comments and
//! indentation.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{env, fs};

/// In this order: the later ones use the earlier ones.
const SCRIPTS: [&str; 6] =
    ["numbers.js", "terms.js", "tables.js", "drawn.js", "working.js", "page.js"];
const STYLES: [&str; 2] = ["page.css", "tables.css"];

fn main() {
    let folder = Path::new("html");
    println!("cargo::rerun-if-changed=build.rs");
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
    write("page.js", renamed(&shorter(minifier::js::minify(&script).to_string())));
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

/// What keeps its name, as it is called from outside: by tests, and by whoever looks at a page in a console.
const KEPT: [&str; 8] =
    ["STEPS", "DATA", "address", "brief", "cellName", "explain", "grid", "number"];

/// A piece of a script: a word, or a sign, and whether it stands in a text.
struct Token<'a> {
    text: &'a str,
    is_word: bool,
    is_quoted: bool,
}

fn tokens(script: &str) -> Vec<Token<'_>> {
    let is_word = |sign: char| sign.is_ascii_alphanumeric() || sign == '_' || sign == '$';
    let mut tokens = Vec::new();
    // The quotes around, and the braces within a text of code in it.
    let mut around: Vec<char> = Vec::new();
    let mut rest = script;
    while let Some(first) = rest.chars().next() {
        let quote = around.last().copied().filter(|quote| *quote != '{');
        let length = match first {
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            '$' if quote == Some('`') && rest.starts_with("${") => 2,
            _ if is_word(first) => rest.find(|sign| !is_word(sign)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (text, behind) = rest.split_at(length);
        tokens.push(Token {
            text,
            is_word: is_word(first) && text != "${",
            is_quoted: quote.is_some(),
        });
        match (quote, text) {
            (Some(own), text) if text.len() == 1 && text.starts_with(own) => drop(around.pop()),
            (Some(_), "${") | (None, "{") => around.push('{'),
            (None, "}") => drop(around.pop()),
            (None, "\"" | "`" | "'") => around.extend(text.chars()),
            _ => {}
        }
        rest = behind;
    }
    tokens
}

/// The script with short names for its own functions and variables: those that are declared in it, and are no property and
/// no word of a text anywhere.
fn renamed(script: &str) -> String {
    let tokens = tokens(script);
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut declared, mut kept) = (BTreeSet::new(), BTreeSet::from(KEPT));
    let mut brackets: Vec<&str> = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        match token.text {
            "${" => brackets.push(token.text),
            "(" | "[" | "{" if !token.is_quoted => brackets.push(token.text),
            ")" | "]" | "}" if !token.is_quoted => drop(brackets.pop()),
            _ => {}
        }
        if !token.is_word {
            continue;
        }
        let near =
            |at: Option<usize>| at.and_then(|at| tokens.get(at)).map_or("", |token| token.text);
        let (before, behind) = (near(at.checked_sub(1)), near(Some(at + 1)));
        *counts.entry(token.text).or_default() += 1;
        // In an object, `{step}` is a property and a variable.
        let is_both = brackets.last() == Some(&"{")
            && ["{", ","].contains(&before)
            && ["}", ","].contains(&behind);
        let is_property =
            (before == "." && near(at.checked_sub(2)) != ".") || (behind == ":" && before != "?");
        if token.is_quoted || is_both || is_property {
            kept.insert(token.text);
        }
        if before == " " && ["let", "function"].contains(&near(at.checked_sub(2))) {
            declared.insert(token.text);
        }
    }
    let mut own: Vec<&str> = declared.difference(&kept).copied().collect();
    own.sort_by_key(|name| std::cmp::Reverse((counts[name] * name.len(), *name)));
    let letters = || ('a'..='z').chain('A'..='Z');
    let short = letters().map(String::from);
    let longer =
        letters().flat_map(|first| letters().map(move |second| format!("{first}{second}")));
    let free = short.chain(longer).filter(|name| !counts.contains_key(name.as_str()));
    let names: BTreeMap<&str, String> =
        own.into_iter().zip(free).filter(|(old, new)| new.len() < old.len()).collect();
    let told = |token: &Token| match names.get(token.text) {
        Some(name) if token.is_word && !token.is_quoted => name.clone(),
        _ => token.text.to_owned(),
    };
    tokens.iter().map(told).collect()
}
