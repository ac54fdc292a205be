//! What ports of `DeBERTa`'s disentangled attention get wrong (`fixtures/disentangled.py`): told at its step, or at one that
//! it cannot be told from, and no right layer is accused.

mod common;

use serde_json::Value;

/// What is wrong with the report of a dump, if anything is.
fn missed((entry, report): &(Value, Value)) -> Option<String> {
    let [name, at, said] = ["name", "at", "said"].map(|key| entry[key].as_str().expect("text"));
    if at.is_empty() {
        return (report["verdict"] != "same").then(|| format!("{name}: a right layer is accused"));
    }
    let findings = report["diagnosis"].as_array().map_or(&[][..], Vec::as_slice);
    let told = findings.iter().map(|finding| finding["summary"].as_str().expect("text"));
    let told: Vec<&str> = told.collect();
    let is_it = |told: &&str| told.starts_with(&format!("{at}: ")) && told.contains(said);
    (!told.iter().any(is_it)).then(|| format!("{name}: {told:?}"))
}

#[test]
fn mistakes_of_disentangled_attention_are_told() {
    let all = common::all_checked("disentangled");
    let missed: Vec<String> = all.iter().filter_map(missed).collect();
    assert!(missed.is_empty(), "{} of {}\n{}", missed.len(), all.len(), missed.join("\n"));
}
