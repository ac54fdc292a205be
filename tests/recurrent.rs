//! The delta rule: dumps of right code are called the same, and the mistakes of wrong ones are named.

mod common;

use serde_json::{Value, json};

#[test]
fn right_dumps_are_the_same_and_wrong_ones_named() {
    let all = common::all_checked("recurrent");
    assert!(all.len() >= 45, "only {}", all.len());
    let mut wrong = Vec::new();
    for (entry, report) in &all {
        let (name, meant) = (&entry["name"], entry["found"].as_str().expect("text"));
        let is_right = if meant == "same" {
            report["verdict"] == "same" && report["diagnosis"] == json!([])
        } else {
            // The first of all that is told, and alone; without a name of its own it is a sentence.
            let found = report["diagnosis"].as_array().map(Vec::as_slice).unwrap_or_default();
            let told = |finding: &Value| {
                let summary = finding["summary"].as_str().unwrap_or_default();
                finding["id"] == meant || summary.contains(meant)
            };
            report["unexplained"] == json!([]) && found.len() == 1 && found.iter().all(told)
        };
        if !is_right {
            wrong.push(format!("{name}: {}, {}", report["verdict"], report["diagnosis"]));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
