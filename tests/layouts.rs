//! Layers in the files and layouts of other ecosystems give what PyTorch makes of them.

mod common;

use std::path::Path;

use serde_json::Value;

#[test]
fn every_layout_gives_the_output_of_its_layer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/layouts");
    let text = std::fs::read_to_string(folder.join("layouts.json")).expect("readable");
    let entries: Vec<Value> = serde_json::from_str(&text).expect("a list");
    assert!(entries.len() >= 9, "only {}", entries.len());
    for entry in entries {
        let run = entry["run"].as_str().expect("a name");
        let report = common::checked(&folder, run.as_ref(), &entry["args"]);
        assert_eq!(report["verdict"], "same", "{run}");
        assert_eq!(report["steps"][0]["name"], "output", "{run}");
        // What rounding would excuse beyond the tolerances does not count.
        assert_eq!(report["steps"][0]["mismatched"], 0, "{run}: {}", report["steps"][0]);
    }
}
