//! What `check` says of every recorded file: its verdict, the steps, and what it finds, as it was written down. A change of
//! the search shows here, the better as well as the worse; `VERDICTS=write cargo test --release --test verdicts` writes
//! them down anew, with the seconds that each took, to be read before they are committed.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use common::dump::{self, Part};
use rayon::prelude::*;
use serde_json::{Value, json};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// What was written down of each file.
fn lines() -> Vec<Value> {
    let text = fs::read_to_string(fixtures().join("verdicts.jsonl")).expect("readable");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The report of `check` of a file, or of a part of it, in a few words that do not depend on last digits.
fn verdict(line: &Value, temporary: &Path, at: usize) -> Value {
    let file = fixtures().join(line["file"].as_str().expect("a name"));
    let folder = file.parent().expect("a folder").to_owned();
    let part =
        Part { mistake: line["mistake"].as_str(), output_alone: line["output_alone"] == true };
    let dump = if part == Part::default() {
        file
    } else {
        let path = temporary.join(format!("{at}.safetensors"));
        dump::write(&file, part, &path);
        path
    };
    let args = line.get("args").cloned().unwrap_or_else(|| json!([]));
    let started = Instant::now();
    let report = common::checked(&folder, &dump, &args);
    let seconds = format!("{:.2}", started.elapsed().as_secs_f64());
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let statuses = list(&report["steps"]).into_iter().map(|step| {
        let status = step["status"].as_str().expect("text");
        status.chars().next().expect("a letter")
    });
    let found = list(&report["diagnosis"]).into_iter().map(|finding| {
        let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        let also: Vec<String> = list(&finding["also"])
            .iter()
            .map(|id| format!(" or {}", id.as_str().expect("an id")))
            .collect();
        let with = if finding["with"].is_null() { "" } else { " with" };
        format!("{}@{}{}{with}", text("id"), text("step"), also.concat())
    });
    let mut verdict = json!({
        "verdict": report["verdict"],
        "steps": statuses.collect::<String>(),
        "found": found.collect::<Vec<_>>(),
        "unexplained": list(&report["unexplained"]),
        "seconds": seconds.parse::<f64>().expect("a number"),
    });
    let all = verdict.as_object_mut().expect("an object");
    all.retain(|_, value| *value != json!([]));
    verdict
}

/// One of each 20, beginning with the first; all where `EVERY` is 1 or they are written.
#[test]
fn verdicts_are_as_they_were() {
    let is_written = std::env::var("VERDICTS").is_ok_and(|value| value == "write");
    let every = std::env::var("EVERY").map_or(20, |text| text.parse().expect("a number"));
    let every = if is_written { 1 } else { every };
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let lines = lines();
    assert!(lines.len() >= 3200, "only {}", lines.len());
    let checked = lines.par_iter().enumerate().step_by(every);
    let checked = checked.map(|(at, line)| (line, verdict(line, temporary.path(), at)));
    let checked: Vec<(&Value, Value)> = checked.collect();
    if is_written {
        let line = |(line, verdict): &(&Value, Value)| {
            let mut line = (*line).clone();
            let all = line.as_object_mut().expect("an object");
            all.retain(|key, _| {
                ["file", "mistake", "output_alone", "args"].contains(&key.as_str())
            });
            all.extend(verdict.as_object().expect("an object").clone());
            format!("{line}\n")
        };
        let text: String = checked.iter().map(line).collect();
        fs::write(fixtures().join("verdicts.jsonl"), text).expect("written");
        return;
    }
    let other = checked.iter().filter_map(|(line, verdict)| {
        let keys = ["verdict", "steps", "found", "unexplained"];
        let differs = keys.iter().any(|key| line.get(key) != verdict.get(key));
        differs.then(|| format!("{line}\n  now {verdict}"))
    });
    let other: Vec<String> = other.collect();
    // Looking for an explanation takes limited time, and last bits are those of the processor.
    let most = checked.len() / 100;
    assert!(other.len() <= most, "{} of {}\n{}", other.len(), checked.len(), other.join("\n"));
}
