//! Mistakes in 16-bit runs that are hardly larger than the rounding of the type (`fixtures/sixteen_bits.py`).

use std::path::{Path, PathBuf};

use candle_core::Device;
use mha_trace::Settings;
use mha_trace::check::{Finding, Report, Tolerances, check};
use mha_trace::config::{Mask, QkNorm};
use mha_trace::foreign::NameMap;
use mha_trace::program::{Kind, Name};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/sixteen_bits")
}

fn report(file: &str) -> Report {
    let folder = folder();
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

/// Whether a step was recorded.
type IsRecorded = fn(Name) -> bool;

/// The report of a file of which these computed steps were recorded.
fn report_of(file: &str, qk_norm: Option<QkNorm>, is_recorded: IsRecorded) -> Report {
    let path = folder().join(format!("{file}.safetensors"));
    let mut all = candle_core::safetensors::load(path, &Device::Cpu).expect("readable");
    all.retain(|name, _| {
        let step = Name::named(name).expect("a step");
        step.is_given() || is_recorded(step)
    });
    let dumps = tempfile::tempdir().expect("a temporary folder");
    let path = dumps.path().join("part.safetensors");
    candle_core::safetensors::save(&all, &path).expect("written");
    let (heads, mask) = (Some(4), Some(Mask::Causal));
    let flags = Settings { heads, mask, qk_norm, ..Settings::default() };
    check(&path, &flags, &NameMap::default(), &Tolerances::default()).expect("checks")
}

/// Not as a factor, nor as that of one norm.
#[test]
fn the_eps_that_norms_share_is_told() {
    let recorded: [(&str, IsRecorded); 4] = [
        ("all", |_| true),
        ("all but the norms", |name| !matches!(name, Name::QNorm | Name::KNorm)),
        ("three", |name| matches!(name, Name::Scores | Name::Weights | Name::Output)),
        ("the output", |name| name == Name::Output),
    ];
    for dtype in ["f32", "bf16", "f16"] {
        for (which, is_recorded) in recorded {
            let report = report_of(&format!("{dtype}.eps"), Some(QkNorm::Rms), is_recorded);
            let [found] = findings(&report) else { panic!("{dtype}, {which}: {report:?}") };
            let summary = "q_norm, k_norm: eps is 0.003 where 1e-6 was meant";
            assert_eq!(found.summary, summary, "{dtype}, {which}");
        }
    }
}

/// From the output alone a mistake with a name can be as near.
#[test]
fn another_eps_is_told_beside_a_mistake_with_a_name() {
    let report = report_of("bf16.eps-q", Some(QkNorm::Rms), |_| true);
    let also = findings(&report).iter().flat_map(|found| &found.also);
    let told: Vec<&str> = also.map(|also| also.summary.as_str()).collect();
    assert!(told.contains(&"q_norm: eps is 0.1 where 1e-6 was meant"), "{report:?}");
}

#[test]
fn what_rounding_may_hide_is_not_called_right() {
    let told = |file: &str, is_recorded: IsRecorded| {
        let report = report_of(file, None, is_recorded);
        assert!(report.is_same(), "{file}: {report:?}");
        let [found] = findings(&report) else { panic!("{file}: {report:?}") };
        found.summary.clone()
    };
    let is_output: IsRecorded = |name| name == Name::Output;
    let hidden = told("bf16.bias-missing-q", is_output);
    assert!(hidden.ends_with("rounding in bf16: record more steps"), "{hidden}");
    for dtype in ["bf16", "f16"] {
        let right = format!("{dtype}.right");
        let told = [told(&right, is_output), told(&right, |_| true)];
        let arithmetic = "the differences are no larger than those of 16-bit arithmetic";
        assert_eq!(told[0], arithmetic, "{dtype}");
        assert!(told[1].starts_with("no bug"), "{dtype}: {}", told[1]);
    }
}
