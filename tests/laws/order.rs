//! In which order the steps of a run are told.

use mha_trace::program::Name;
use mha_trace::{Run, Settings, Sources};

#[test]
fn a_mask_is_told_where_it_is_used() {
    let settings = serde_json::from_value(serde_json::json!({
        "lengths": [3], "dropout": 0.5, "rope": "half", "heads": 2, "d_model": 8
    }));
    let settings: Settings = settings.expect("settings");
    let run = Run::new(&settings, Sources::default()).expect("a run");
    let program = run.program();
    let told = program.as_told();
    let at = |name| told.position(name).expect("it is there");
    for (setting, reader) in [
        (Name::Mask, Name::MaskedScores),
        (Name::CausalMask, Name::Mask),
        (Name::RopeFreqs, Name::QRot),
    ] {
        assert!(at(setting) < at(reader), "{setting}");
    }
    assert!(at(Name::Scores) < at(Name::CausalMask));
    assert!(at(Name::Weights) < at(Name::DropoutKeep));
    assert_eq!(at(Name::RopeFreqs) + 1, at(Name::QRot));
    // Every step reads what it read.
    assert_eq!(told.steps().len(), program.steps().len());
    for step in told.steps() {
        let before = program.step(step.name).expect("it is there");
        assert_eq!(told.formula(step), program.formula(before));
        assert!(step.inputs.iter().all(|input| *input < at(step.name)), "{}", step.name);
    }
}
