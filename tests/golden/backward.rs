//! Gradients of recorded runs: those of PyTorch's autograd, within `torch.testing`'s tolerances.

use std::path::Path;

use mha_trace::file::Record;
use mha_trace::program::Name;
use mha_trace::{Run, Sources};

use super::steps::first_beyond_tolerance;
use super::{fixtures, name};

/// What differs between the gradients of a file and ours, a line each.
fn differences(path: &Path) -> Vec<String> {
    let record = Record::read(path).unwrap_or_else(|error| panic!("{error}"));
    let settings = record.config.clone().expect("a config");
    let settings = settings.in_folder(Path::new("fixtures/golden"));
    let run = Sources::load(&settings).and_then(|sources| Run::new(&settings, sources));
    let trace = match run.and_then(|run| run.trace()) {
        Ok(trace) => trace,
        Err(error) => return vec![format!("{}: {error}", name(path))],
    };
    let mut wrong = Vec::new();
    let own = trace.outer().filter(|step| matches!(step.name, Name::Gradient(_)));
    let own: Vec<&str> = own.map(|step| step.name.as_str()).collect();
    for entry in &record.entries {
        let Some(step) = Name::in_files(&entry.name).and_then(|name| trace.step(name)) else {
            wrong.push(format!("{}: no {}", name(path), entry.name));
            continue;
        };
        if step.value.dims() != entry.tensor.dims() || step.value.dtype() != entry.tensor.dtype() {
            wrong.push(format!("{}: {} is {:?}", name(path), entry.name, step.value));
        } else if let Some(at) = first_beyond_tolerance(&step.value, &entry.tensor) {
            wrong.push(format!("{}: {} at {at}", name(path), entry.name));
        }
    }
    // One tensor is two steps where keys are values; wide weights are not recorded.
    let is_part = |own: &str| own == "d_v" || own.starts_with("d_w");
    let others = own
        .iter()
        .filter(|own| !is_part(own) && !record.entries.iter().any(|entry| entry.name == **own));
    wrong.extend(others.map(|own| format!("{}: {own} is not PyTorch's", name(path))));
    wrong
}

#[test]
fn gradients_are_those_of_autograd() {
    let files = fixtures("backward");
    assert!(files.len() > 100, "only {} files", files.len());
    let wrong: Vec<String> = files.iter().flat_map(|path| differences(path)).collect();
    assert!(wrong.is_empty(), "{} are wrong\n{}", wrong.len(), wrong.join("\n"));
}
