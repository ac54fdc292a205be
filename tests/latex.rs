//! Runs as LaTeX: the documents compile. Skipped with a notice where there is no TeX.

use std::path::Path;
use std::process::Command;

/// Writes a run as LaTeX with these flags, and compiles it; what TeX says of faults, or nothing where there is no TeX.
fn faults(engine: &str, flags: &[&str]) -> Option<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    let status = Command::new(env!("CARGO_BIN_EXE_mha-trace"))
        .args(["-q", "-o", "run.tex", "--why"])
        .args(flags)
        .current_dir(folder.path())
        .status();
    assert!(status.expect("runs").success());
    let compiled = Command::new(engine)
        .args(["-interaction=nonstopmode", "run.tex"])
        .current_dir(folder.path())
        .output();
    let Ok(output) = compiled else {
        eprintln!("skipped: there is no {engine}");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_fault = |line: &&str| line.starts_with('!') || line.starts_with("Missing character");
    if said.contains(".sty' not found") || said.contains(".cls' not found") {
        eprintln!("skipped: {engine} lacks packages that the document uses");
        return None;
    }
    assert!(Path::new(folder.path()).join("run.pdf").exists(), "{said}");
    Some(said.lines().filter(is_fault).map(str::to_owned).collect())
}

/// Runs whose formulas have all sorts of signs.
const RUNS: [&[&str]; 3] = [
    &[],
    &["--preset", "formal-padding", "--heatmap", "--steps", "mask,weights,dropout_keep,output"],
    &[
        "--rope",
        "half",
        "--qk-norm",
        "rms",
        "--softcap",
        "30",
        "--alibi",
        "--kv-heads",
        "1",
        "--lengths",
        "3",
        "--tokens",
        "a_b,50%,{x},\\y",
    ],
];

#[test]
fn english_documents_compile() {
    for flags in RUNS {
        let Some(found) = faults("pdflatex", flags) else { return };
        assert!(found.is_empty(), "{flags:?}: {found:#?}");
    }
}

#[test]
fn chinese_documents_compile() {
    for flags in RUNS {
        let flags = [flags, &["--lang", "zh"]].concat();
        let Some(found) = faults("xelatex", &flags) else { return };
        assert!(found.is_empty(), "{flags:?}: {found:#?}");
    }
}
