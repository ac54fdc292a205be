//! Backward passes that PyTorch computed, right ones and wrong ones: what `check` says of them.

use std::path::Path;

use mha_trace::Settings;
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::foreign::NameMap;
use serde::Deserialize;

#[derive(Deserialize)]
struct Case {
    file: String,
    mistake: Option<String>,
    flags: Settings,
}

/// The mistakes that a report names, those with the same numbers too.
fn named(report: &Report) -> Vec<&'static str> {
    let found = report.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    found
        .flat_map(|found| std::iter::once(found).chain(&found.also))
        .map(|found| found.id)
        .collect()
}

#[test]
fn wrong_gradients_are_named_and_right_ones_are_the_same() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gradients");
    let cases = std::fs::read_to_string(folder.join("cases.jsonl")).expect("readable");
    let mut wrong = Vec::new();
    for line in cases.lines() {
        let Case { file, mistake, flags } = serde_json::from_str(line).expect("a case");
        let path = folder.join(&file);
        let report = check(&path, &flags, &NameMap::default(), &Tolerances::default());
        let report = report.unwrap_or_else(|error| panic!("{file}: {error}"));
        let is_told = match &mistake {
            None => report.is_same(),
            Some(id) => {
                let is_explained = report.diagnosis.iter().all(|own| own.unexplained.is_empty());
                is_explained && named(&report).contains(&id.as_str())
            }
        };
        if !is_told {
            let first = report.first_divergence().map(|step| &step.name);
            wrong.push(format!("{file}: {mistake:?}, not {:?} at {first:?}", named(&report)));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
