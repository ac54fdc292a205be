//! ONNX's Attention operator, by its reference evaluator: a second oracle, independent of PyTorch.

use mha_trace::Settings;
use mha_trace::check::{Status, Tolerances, check};
use mha_trace::foreign::NameMap;

use super::{fixtures, name};

#[test]
fn every_case_of_the_operator_is_reproduced() {
    let cases = fixtures("onnx");
    assert!(cases.len() >= 27, "only {} cases", cases.len());
    for path in cases {
        let case = name(&path);
        let flags = Settings::default();
        let report = check(&path, &flags, &NameMap::default(), &Tolerances::default())
            .unwrap_or_else(|error| panic!("{error}"));
        let steps: Vec<&str> = report.steps.iter().map(|step| step.name.as_str()).collect();
        assert!(
            steps.ends_with(&["weights", "head_outputs", "concat", "output"]),
            "{case}: {steps:?}"
        );
        for step in &report.steps {
            assert_eq!(step.status, Status::Same, "{case}: {step:#?}");
            let mismatched = step.comparison.as_ref().map(|found| found.mismatched);
            assert_eq!(mismatched, Some(0), "{case}: {}", step.name);
        }
    }
}
