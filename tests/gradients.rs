//! Backward passes that PyTorch computed, right ones and wrong ones: what `check` says of them.

use std::path::Path;

use mha_trace::Settings;
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::config::Mask;
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::NameMap;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    file: String,
    mistake: Option<String>,
    says: Option<String>,
    flags: Settings,
}

/// The mistakes that a report names, those with the same numbers too, and what it says of each.
fn named(report: &Report) -> Vec<(&str, &str)> {
    let found = report.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    let all = found.flat_map(|found| std::iter::once(found).chain(&found.also));
    all.map(|found| (found.id, found.summary.as_str())).collect()
}

#[test]
fn wrong_gradients_are_named_and_right_ones_are_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gradients");
    let cases = std::fs::read_to_string(folder.join("cases.jsonl")).expect("readable");
    let mut wrong = Vec::new();
    for line in cases.lines() {
        let Case { file, mistake, says, flags } = serde_json::from_str(line).expect("a case");
        let path = folder.join(&file);
        let report = check(&path, &flags, &NameMap::default(), &Tolerances::default());
        let report = report.unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_explained = report.diagnosis.iter().all(|own| own.unexplained.is_empty());
        let is_told = match (&mistake, &says) {
            (None, None) => report.is_same(),
            (Some(id), _) => is_explained && named(&report).iter().any(|(own, _)| own == id),
            (_, Some(says)) => {
                is_explained && named(&report).iter().any(|(_, told)| told.contains(says.as_str()))
            }
        };
        if !is_told {
            let first = report.first_divergence().map(|step| &step.name);
            let wanted = mistake.or(says);
            wrong.push(format!("{file}: {wanted:?}, not {:?} at {first:?}", named(&report)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn what_is_said_of_gradients_has_the_names_of_their_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gradients");
    let entries = Record::read(&folder.join("sdpa.safetensors")).expect("readable").entries;
    let checked = |change: &dyn Fn(&mut Vec<Entry>)| {
        let mut entries = entries.clone();
        change(&mut entries);
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("own.safetensors");
        let record = Record { config: None, entries };
        Output::create(&path).and_then(|output| output.write(&record)).expect("written");
        let flags = Settings { mask: Some(Mask::Causal), ..Settings::default() };
        check(&path, &flags, &NameMap::default(), &Tolerances::default())
    };
    let twice = checked(&|all| {
        let query = all.iter().find(|entry| entry.name == "grad_query").expect("it is there");
        let other = (&query.tensor * 2.0).expect("numbers");
        all.push(Entry::of("q.grad", other));
    });
    let told = twice.expect_err("one step twice").to_string();
    assert!(told.contains("both grad_query and q.grad may be d_q_heads"), "{told}");
    let once_more = checked(&|all| {
        let query = all.iter().find(|entry| entry.name == "grad_query").expect("it is there");
        all.push(Entry::of("q.grad", query.tensor.clone()));
    });
    let once_more = once_more.expect("checked");
    assert!(once_more.is_same() && once_more.unmatched.is_empty());
    let without = checked(&|all| all.retain(|entry| entry.name != "grad_output")).expect("checked");
    let why = |name: &str| without.unmatched.iter().find(|other| other.tensor == name);
    assert!(why("grad_query").is_some_and(|other| other.why.contains("d_output")));
    assert!(!without.is_same());
}

/// A module's packed weight may be all whose gradient was kept: the module's own parameters tell how it is laid out.
#[test]
fn gradients_of_some_parameters_are_checked_alone() {
    let file = "fixtures/gradients/multihead-sharp.safetensors";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let folder = tempfile::tempdir().expect("a folder");
    let own = folder.path().join("own.safetensors");
    for (factor, is_same) in [(1.0, true), (2.0, false)] {
        let mut record = Record::read(&path).expect("readable");
        let is_left =
            |entry: &Entry| entry.name.contains(".grad") && entry.name != "in_proj_weight.grad";
        record.entries.retain(|entry| !is_left(entry));
        let kept = record.entries.iter_mut().find(|entry| entry.name == "in_proj_weight.grad");
        let kept = kept.expect("recorded");
        kept.tensor = (&kept.tensor * factor).expect("made");
        Output::create(&own).and_then(|output| output.write(&record)).expect("written");
        let flags = Settings { mask: Some(Mask::None), heads: Some(3), ..Settings::default() };
        let report = check(&own, &flags, &NameMap::default(), &Tolerances::default());
        let report = report.expect("checked");
        assert_eq!((report.is_same(), report.unmatched.len()), (is_same, 0), "{report:?}");
    }
}
