//! Every kind of edit at every operation that can have it, made in PyTorch: what is wrong is told from all steps, and
//! mostly from the output alone. Nothing else is told.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::dump::{self, Part};
use mha_trace::check::catalogue;
use rayon::prelude::*;
use serde_json::Value;

/// What `check` says of a dump, against what is wrong in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    /// The mistake is told.
    Named,
    /// Nothing is told, or steps are left unexplained.
    Missed,
    /// Another mistake is told, or none is seen.
    Wrong,
}

/// A dump's mistake as `edits.json` describes it, and the report of `check`.
struct Checked {
    entry: Value,
    report: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/edits")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

impl Checked {
    /// The findings but for rounding; those that need each other together.
    fn findings(&self) -> Vec<Vec<&Value>> {
        let mut all = list(&self.report["diagnosis"]).iter();
        let mut groups = Vec::new();
        while let Some(one) = all.next() {
            let second = if one["with"].is_null() { None } else { all.next() };
            groups.push([one].into_iter().chain(second).collect::<Vec<_>>());
        }
        groups.retain(|group| group[0]["kind"] != "noise" || self.has_kind("noise"));
        groups
    }

    /// Whether the mistake is of that kind, or can be told as one.
    fn has_kind(&self, kind: &str) -> bool {
        self.entry["kind"] == kind || list(&self.entry["or"]).iter().any(|other| other == kind)
    }

    /// Whether findings tell the mistake: its kind and its step, or a mistake that gives the same numbers.
    fn is_told(&self, findings: &[&Value]) -> bool {
        findings.iter().all(|finding| {
            let also = list(&finding["also"]).iter().map(text);
            let kinds = also.map(|id| catalogue::find(id).map_or(id, |known| known.kind.name()));
            let is_of_step = list(&self.entry["steps"]).contains(&finding["step"]);
            self.has_kind(text(&finding["kind"])) && is_of_step
                || kinds.into_iter().any(|kind| self.has_kind(kind))
        })
    }

    /// From all steps every finding must be right; from the output alone they are alternatives.
    fn answer(&self, output_alone: bool) -> Answer {
        let findings = self.findings();
        let is_unseen = self.report["verdict"] == "same" && self.entry["kind"] != "precision";
        if is_unseen {
            return Answer::Wrong;
        }
        if findings.is_empty() || !list(&self.report["unexplained"]).is_empty() {
            return Answer::Missed;
        }
        let mut told = findings.iter().map(|group| self.is_told(group));
        let is_named = if output_alone { told.any(|told| told) } else { told.all(|told| told) };
        if is_named { Answer::Named } else { Answer::Wrong }
    }

    /// Whether the first step that is off is found; rounding alone may be let through.
    fn is_found(&self) -> bool {
        list(&self.entry["first"]).contains(&self.report["first_divergence"])
            || self.entry["kind"] == "precision" && self.report["verdict"] == "same"
    }

    fn told(&self) -> String {
        let Self { entry, report } = self;
        let said: Vec<_> = self.findings().concat().iter().map(|one| &one["summary"]).collect();
        let (first, unexplained) = (&report["first_divergence"], &report["unexplained"]);
        let mistake =
            format!("{}: {}, {} at {}", entry["run"], entry["name"], entry["kind"], entry["steps"]);
        format!("{mistake}: first off at {first}, told {said:?}, unexplained {unexplained}")
    }
}

/// What `edits.json` describes.
fn entries() -> Vec<Value> {
    let file = fs::read_to_string(folder().join("edits.json")).expect("readable");
    serde_json::from_str(&file).expect("a list")
}

/// One dump of each `every`, checked with the flags that say what was meant; `EVERY` in the environment says how many
/// are left out, and 1 leaves out none.
fn checked(output_alone: bool, every: usize) -> Vec<Checked> {
    let every = std::env::var("EVERY").map_or(every, |text| text.parse().expect("a number"));
    let mut entries = entries();
    entries.retain(|entry| !output_alone || entry["alone"] == true);
    reports(entries.into_iter().step_by(every).collect(), output_alone)
}

/// The dumps of some entries, checked.
fn reports(entries: Vec<Value>, output_alone: bool) -> Vec<Checked> {
    let dumps = tempfile::tempdir().expect("a temporary folder");
    let check = |entry: Value| {
        let (run, mistake) = (text(&entry["run"]), text(&entry["name"]));
        let path = dumps.path().join(format!("{run}.{mistake}.safetensors"));
        let part = Part { mistake: Some(mistake), output_alone };
        dump::write(&folder().join(format!("{run}.safetensors")), part, &path);
        let report = common::checked(&folder(), &path, &entry["args"]);
        Checked { entry, report }
    };
    entries.into_par_iter().map(check).collect()
}

/// Prints what is not named. Asserts that nothing wrong is told, and that so many of a hundred are named.
fn assert_named(all: &[Checked], output_alone: bool, least: usize) {
    let answers = all.iter().map(|one| (one.answer(output_alone), one));
    let mut others: Vec<_> = answers.filter(|(answer, _)| *answer != Answer::Named).collect();
    others.sort_by_key(|(answer, _)| *answer);
    for (answer, one) in &others {
        println!("{answer:?}: {}", one.told());
    }
    let (named, of) = (all.len() - others.len(), all.len());
    let wrong = others.iter().filter(|(answer, _)| *answer == Answer::Wrong).count();
    println!("{named} of {of} named, {wrong} wrong answers");
    assert!(wrong == 0 && named * 100 >= of * least, "{named} of {of} named, {wrong} wrong");
}

#[test]
fn every_edit_is_told_from_all_steps() {
    let all = checked(false, 6);
    assert!(all.len() >= 150, "only {} dumps", all.len());
    let elsewhere: Vec<_> = all.iter().filter(|one| !one.is_found()).map(Checked::told).collect();
    println!("found elsewhere:\n{}", elsewhere.join("\n"));
    assert_named(&all, false, 97);
    assert!(elsewhere.is_empty(), "{} first steps are others", elsewhere.len());
}

#[test]
fn most_edits_are_told_from_the_output_alone() {
    let all = checked(true, 6);
    assert!(all.len() >= 45, "only {} dumps", all.len());
    assert_named(&all, true, 80);
}

/// Where batch, heads and tokens have one length, a mistake can look like another order of axes.
#[test]
fn no_order_of_axes_is_read_that_hides_a_mistake() {
    let mistakes = [("classic-2", "split-without-transpose"), ("open-2", "x-time-major")];
    let mut entries = entries();
    entries.retain(|entry| mistakes.contains(&(text(&entry["run"]), text(&entry["name"]))));
    let all = reports(entries, false);
    assert_eq!(all.len(), mistakes.len());
    for one in all {
        assert!(one.is_found() && one.answer(false) == Answer::Named, "{}", one.told());
    }
}

/// The true step and type are told, and no NaN is called the same.
#[test]
fn an_overflow_is_no_rounding() {
    let mut entries = entries();
    entries.retain(|entry| entry["name"] == "f16-overflow");
    let all = reports(entries, false);
    assert!(all.len() >= 3, "only {} dumps", all.len());
    for one in all {
        let report = &one.report;
        assert_eq!((&report["verdict"], one.answer(false)), (&"differs".into(), Answer::Named));
        assert_eq!(report["first_divergence"], "scores_raw", "{}", one.told());
        assert_eq!(report["non_finite"]["cause"], "overflow", "{}", one.told());
        let q = list(&report["steps"]).iter().find(|step| step["name"] == "q").expect("recorded");
        assert_eq!(q["status"], "same", "{}", one.told());
    }
}
