//! Every command that the README and the pages beside it show prints what they say.

use std::fs;
use std::path::Path;

#[test]
fn the_readme_shows_what_is_printed() {
    shows_what_is_printed("README.md");
}

#[test]
fn the_chinese_readme_shows_what_is_printed() {
    shows_what_is_printed("README.zh-CN.md");
}

#[test]
fn the_page_on_pages_shows_what_is_printed() {
    shows_what_is_printed("docs/pages.md");
}

/// The commands run in a folder of their own, as some write files. With `TRYCMD=overwrite` what they print is put
/// into the text.
fn shows_what_is_printed(text: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let copy = folder.path().join("README.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shown = [
        "fixtures/faulty/kv-swapped.output.safetensors",
        "fixtures/core/sdpa-flash-causal.safetensors",
        "fixtures/core/flash-varlen-cached.safetensors",
        "fixtures/core/hooks-1.safetensors",
        "fixtures/core/wrong-running-maximum-sum.safetensors",
        "fixtures/core/wrong-documents.output.safetensors",
        "fixtures/core/sdpa-flash-bfloat16.safetensors",
        "fixtures/modules",
        "fixtures/architectures/gemma2",
        "fixtures/architectures/llama",
    ];
    for shown in shown {
        copy_into(&root.join(shown), &folder.path().join("README.in").join(shown));
    }
    let readme = root.join(text);
    fs::copy(&readme, &copy).expect("the text is there");
    trycmd::TestCases::new().env("COLUMNS", "100").env("LC_ALL", "C").case(&copy).run();
    if std::env::var_os("TRYCMD").is_some_and(|mode| mode == "overwrite") {
        fs::copy(&copy, &readme).expect("writable");
    }
}

/// Copies a file, or a folder with all that is in it.
fn copy_into(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).expect("readable") {
            let name = entry.expect("readable").file_name();
            copy_into(&from.join(&name), &to.join(&name));
        }
    } else {
        fs::create_dir_all(to.parent().expect("it is in a folder")).expect("writable");
        fs::copy(from, to).expect("the file is there");
    }
}
