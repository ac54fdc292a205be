//! The sweep of a kernel by files: its kernels are commands, most of them this very binary with other settings.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

const BINARY: &str = env!("CARGO_BIN_EXE_mha-trace");

fn fuzz(args: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    command.env("LC_ALL", "C").env("COLUMNS", "100").arg("fuzz").args(args);
    command.output().expect("the binary runs")
}

fn json(args: &[&str]) -> (Value, Option<i32>) {
    let output = fuzz(&[args, &["--format", "json"]].concat());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{errors}"));
    (report, output.status.code())
}

/// A kernel that is a run of the binary on the case's tensors.
fn run_with(settings: &str) -> String {
    format!(
        "'{BINARY}' --q {{in}}:q --k {{in}}:k --v {{in}}:v --mask-fill=-inf {settings} -q -o {{out}}"
    )
}

fn states(report: &Value) -> Vec<&str> {
    let cases = report["cases"].as_array().expect("cases").iter();
    cases.map(|case| case["state"].as_str().expect("a state")).collect()
}

fn text(report: &Value) -> String {
    report["text"].as_str().expect("a text").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn a_right_kernel_is_the_same_in_every_case() {
    let (report, code) = json(&[&run_with("--mask none")]);
    assert_eq!((code, &report["verdict"]), (Some(0), &"same".into()), "{}", text(&report));
    let states = states(&report);
    assert_eq!(states.len(), 87);
    assert!(states.iter().all(|state| *state == "same"));
}

#[test]
fn the_mistake_that_explains_all_failing_cases_is_told() {
    let (report, code) = json(&["--dtypes", "f32", &run_with("--mask none --scale 1")]);
    assert_eq!(code, Some(1));
    let found = &report["mistakes"][0];
    assert_eq!(found["id"], "scale-missing");
    let wrong = states(&report).iter().filter(|state| **state == "differs").count();
    assert_eq!(found["cases"].as_array().expect("names").len(), wrong);
    assert!(text(&report).contains("it explains every failing case"), "{}", text(&report));
}

#[test]
fn what_failing_cases_have_in_common_is_derived() {
    let kernel = run_with("--mask causal --causal-align bottom-right --window 64");
    let (report, code) =
        json(&["--causal", "--dtypes", "f32", "--skip", "large,decode-large", &kernel]);
    assert_eq!(code, Some(1));
    let facts = report["fails_exactly_where"].as_array().expect("facts");
    assert_eq!(facts.first(), Some(&"there are more than 64 keys".into()), "{}", text(&report));
}

/// The causal mask ends at the last key or starts at the first, unless one of them is stated.
#[test]
fn a_convention_holds_where_it_is_stated() {
    let top_left = run_with("--mask causal");
    let (report, code) = json(&["--causal", "--dtypes", "f32", &top_left]);
    assert_eq!(code, Some(0), "{}", text(&report));
    assert!(text(&report).contains("aligned top-left"));
    let (report, code) =
        json(&["--causal", "--causal-align", "bottom-right", "--dtypes", "f32", &top_left]);
    assert_eq!(code, Some(1));
    assert_eq!(report["mistakes"][0]["id"], "mask-causal-top-left");
}

#[test]
fn kernels_that_give_nothing_to_check_are_never_the_same() {
    let cases: &[(&str, &str, &str)] = &[
        ("true", "failed", "it wrote no output"),
        ("false", "failed", "exit code 1"),
        ("sh -c 'echo no such shape >&2; exit 77'", "refused", "no such shape"),
        ("sh -c 'exec sleep 9'", "slow", "it was ended after 0.3 s"),
        ("cp {in} {out}", "shape", "it gave no out"),
        (r#"sh -c 'echo x > "$1"' sh {out}"#, "failed", ""),
        (r#"sh -c 'cp "$1" "$2"; echo >> "$1"' sh {in} {out}"#, "overwrites", "its inputs"),
    ];
    for (command, state, said) in cases {
        let args = ["--only", "few-tokens", "--dtypes", "f32", "--timeout", "0.3", command];
        let (report, code) = json(&args);
        assert_eq!((states(&report), code), (vec![*state], Some(1)), "{command}");
        let told = report["cases"][0]["said"].as_str().expect("a text");
        assert!(told.contains(said), "{command}: {told}");
    }
}

#[test]
fn what_cannot_be_run_is_an_error() {
    for (args, said) in [
        (&["no-such-kernel"][..], "no-such-kernel cannot be run"),
        (&["'open"], "is no command"),
        (&["true", "--only", "nothing"], "no case is called nothing"),
        (&["true", "-t", "5"], "--seq-len is what the cases"),
        (&["sh -c 'exit 3' {dir}"], "the command failed"),
        (&[], "missing: <COMMAND>"),
    ] {
        let output = fuzz(args);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(errors.contains(said), "{args:?}: {errors}");
    }
}

#[test]
fn failing_cases_are_kept_and_shown_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let keep = folder.path().join("a b");
    let kernel = run_with("--mask none --scale 1");
    let args = ["--only", "tail,one-token", "--dtypes", "f32", "--keep"];
    let output = fuzz(&[&args[..], &[keep.to_str().expect("text"), &kernel]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(!keep.join("one-token-f32.safetensors").exists());
    let kept = keep.join("tail-f32.safetensors");
    let output = Command::new(BINARY).env("LC_ALL", "C").arg("check").arg(&kept).output();
    let output = output.expect("the binary runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("known mistake scale-missing"));
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("readable").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    names
}

/// The two halves: what is written is what is read, in the type of the case.
#[test]
fn inputs_are_written_and_outputs_read_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("text");
    let args = ["--only", "chunk,grouped-heads", "--takes", "lengths"];
    let output = fuzz(&[&["--write", place], &args[..]].concat());
    assert_eq!(output.status.code(), Some(0));
    let files = names(&folder.path().join("in"));
    assert_eq!(files.len(), 6);
    let file = fs::read(folder.path().join("in/grouped-heads-bf16.safetensors")).expect("a file");
    let tensors = safetensors::SafeTensors::deserialize(&file).expect("safetensors");
    let shape = |name: &str| {
        let tensor = tensors.tensor(name).expect("it is there");
        assert_eq!(tensor.dtype(), safetensors::Dtype::BF16);
        tensor.shape().to_vec()
    };
    assert_eq!([shape("q"), shape("k")], [vec![2, 4, 64, 32], vec![2, 2, 64, 32]]);
    let (report, code) = json(&[&["--read", place], &args[..]].concat());
    assert_eq!((states(&report), code), (vec!["failed"; 6], Some(1)));
}

/// A sweep is the same for the same seed, and larger ones draw sizes.
#[test]
fn cases_beyond_the_table_are_drawn() {
    let list = |seed: &str| json(&["--list", "--cases", "40", "--seed", seed, "--dtypes", "f32"]).0;
    let (one, again, other) = (list("1"), list("1"), list("2"));
    assert_eq!(one["cases"].as_array().expect("cases").len(), 40);
    assert_eq!(one, again);
    assert_ne!(one, other);
}
