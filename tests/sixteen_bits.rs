//! Mistakes in 16-bit runs that are hardly larger than the rounding of the type (`fixtures/sixteen_bits.py`).

use std::path::Path;

use mha_trace::Settings;
use mha_trace::check::{Finding, Report, Tolerances, check};
use mha_trace::config::Mask;
use mha_trace::foreign::NameMap;
use mha_trace::program::{Kind, Name};

fn report(file: &str) -> Report {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/sixteen_bits");
    let flags = Settings { heads: Some(4), mask: Some(Mask::Causal), ..Settings::default() };
    let path = folder.join(format!("{file}.safetensors"));
    check(&path, &flags, &NameMap::default(), &Tolerances::default()).expect("checks")
}

fn findings(report: &Report) -> &[Finding] {
    report.diagnosis.as_ref().map_or(&[], |diagnosis| &diagnosis.findings)
}

#[test]
fn rounding_is_no_mistake() {
    for dtype in ["bf16", "f16"] {
        let report = report(&format!("{dtype}.right"));
        assert!(report.is_same(), "{dtype}: {report:?}");
        assert!(findings(&report).iter().all(Finding::is_rounding), "{dtype}");
    }
}

#[test]
fn biases_that_are_hardly_larger_than_rounding_are_missed() {
    for dtype in ["bf16", "f16"] {
        for (projection, step) in [("q", Name::Q), ("v", Name::V), ("o", Name::Output)] {
            let id = format!("bias-missing-{projection}");
            let report = report(&format!("{dtype}.{id}"));
            let first = report.first_divergence().and_then(|first| first.step);
            assert_eq!(first, Some(step), "{dtype} {id}");
            let told: Vec<&str> = findings(&report).iter().map(|found| found.id).collect();
            assert_eq!(told, [&id], "{dtype}");
        }
    }
}

#[test]
fn what_numbers_share_is_no_rounding() {
    let mistakes = [
        ("scale", Kind::Parameter, Name::Scores, ""),
        ("head", Kind::Inserted, Name::HeadOutputs, "in head 1 alone"),
        ("rows", Kind::Inserted, Name::Weights, "in query rows 10 to 12 alone"),
    ];
    for dtype in ["bf16", "f16"] {
        for (mistake, kind, step, place) in mistakes {
            let report = report(&format!("{dtype}.{mistake}"));
            let [found] = findings(&report) else { panic!("{dtype} {mistake}: {report:?}") };
            assert_eq!((found.kind, found.step), (Some(kind), step), "{dtype} {mistake}");
            assert!(found.summary.ends_with(place), "{dtype}: {}", found.summary);
        }
    }
}
