//! Makes the script and the style of the pages out of the files beside their markup: one text each, without comments and
//! indentation.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// In this order: the later ones use the earlier ones.
const SCRIPTS: [&str; 5] = ["numbers.js", "terms.js", "tables.js", "working.js", "page.js"];
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
    write("page.js", shorter(minifier::js::minify(&script).to_string()));
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
