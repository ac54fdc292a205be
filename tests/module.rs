//! Calls of `nn.MultiheadAttention`, as hooks record them: `query`, `key`, `value`, masks, and what comes out.

use std::path::{Path, PathBuf};

use mha_trace::Settings;
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::NameMap;

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/modules")
}

fn checked(path: &Path, flags: &Settings) -> Report {
    check(path, flags, &NameMap::default(), &Tolerances::default()).expect("checks")
}

fn heads() -> Settings {
    Settings { heads: Some(3), ..Settings::default() }
}

/// Every recorded call is the same, weights and output, with no more said than the number of heads.
#[test]
fn calls_of_the_module_are_the_same() {
    let calls =
        ["bias-kv", "zero-attn", "kdim-vdim", "all", "float-mask", "value-apart", "one-item"];
    for (at, call) in calls.iter().enumerate() {
        let report = checked(&modules().join(format!("mha-{call}.layer.safetensors")), &heads());
        assert!(report.is_same(), "{call}: {report:?}");
        let steps: Vec<&str> = report.steps.iter().map(|step| step.name.as_str()).collect();
        // Of one item without an axis for it, averaged weights have the shape of no step.
        let weights = if at % 2 == 0 { "weights_mean" } else { "weights" };
        let expected = if *call == "one-item" { vec!["output"] } else { vec![weights, "output"] };
        assert_eq!(steps, expected, "{call}");
    }
}

/// What the file says is read from it: nothing else makes it the same.
#[test]
fn what_is_added_is_needed() {
    let all = modules().join("mha-all.layer.safetensors");
    for flags in [
        Settings { add_zero_attn: Some(false), ..heads() },
        Settings { add_bias_kv: Some(false), ..heads() },
        Settings { heads: Some(2), ..heads() },
    ] {
        assert!(
            !check(&all, &flags, &NameMap::default(), &Tolerances::default())
                .is_ok_and(|report| report.is_same())
        );
    }
}

/// The wrong outputs of the same arithmetic, each beside the words that name what is wrong.
const MISTAKES: &[(&str, &str)] = &[
    ("bias-kv-missing", "the learned key and value are not appended"),
    ("zero-attn-missing", "the key and value of zeros are not appended"),
    ("neither-added", "nobody sees the added keys: they are not appended"),
    ("bias-k-zeros", "k_with_bias: zeros are appended in place of what was learned"),
    ("bias-kv-swapped", "bias_"),
    ("mask-padded-as-blocked", "padded as blocked"),
    ("mask-padded-in-front", "stand in front of the mask"),
    ("values-of-the-keys-input", "memory"),
];

#[test]
fn mistakes_of_what_is_added_are_named_from_the_output_alone() {
    let record = Record::read(&modules().join("mha-mistakes.layer.safetensors")).expect("readable");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("call.safetensors");
    let with = |mistake: &str| {
        let is_given = |entry: &&Entry| !entry.name.starts_with("output.");
        let mut entries: Vec<Entry> = record.entries.iter().filter(is_given).cloned().collect();
        let output = record.tensor(&format!("output.{mistake}")).expect("recorded").clone();
        entries.push(Entry::of("output", output));
        let own = Record { config: None, entries };
        Output::create(&path).and_then(|output| output.write(&own)).expect("written");
        checked(&path, &Settings { add_zero_attn: Some(true), ..heads() })
    };
    assert!(with("none").is_same());
    for (mistake, words) in MISTAKES {
        let report = with(mistake);
        let findings = report.diagnosis.as_ref().map(|diagnosis| &diagnosis.findings);
        let told: Vec<&str> =
            findings.into_iter().flatten().map(|found| found.summary.as_ref()).collect();
        assert!(told.len() == 1 && told[0].contains(words), "{mistake}: {told:?}");
    }
}
