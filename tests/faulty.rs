//! Dumps of PyTorch code with a mistake in it: each is named, from all its steps and from its output alone.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use mha_trace::file::{Output, Record};
use mha_trace::source::Sources;
use mha_trace::trace::Op;
use mha_trace::verdict::mutation::catalogue;
use mha_trace::verdict::{Finding, Report, Tolerances, check};
use mha_trace::{Run, Settings, Trace};

/// The dumps of `fixtures/faulty`: those of all steps, or those of the output alone.
fn dumps(output_alone: bool) -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/faulty");
    let entries = fs::read_dir(folder).expect("the fixtures are there");
    let paths = entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_file());
    let named = paths.filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".safetensors")?.to_owned();
        let stem = name.strip_suffix(".output").unwrap_or(&name).to_owned();
        (name.ends_with(".output") == output_alone).then_some((path, stem))
    });
    let mut dumps: Vec<_> = named.collect();
    dumps.sort();
    assert!(dumps.len() >= 45, "only {} dumps", dumps.len());
    dumps
}

fn judged(path: &Path) -> Report {
    check(path, &Settings::default(), &Tolerances::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn findings(report: &Report) -> &[Finding] {
    report.diagnosis.as_ref().map_or(&[], |diagnosis| &diagnosis.findings)
}

fn named(report: &Report) -> BTreeSet<&'static str> {
    findings(report).iter().map(|finding| finding.id).collect()
}

/// Whether a finding is that of a dump, whose name may go on to tell a variant.
fn is_named(stem: &str, ids: &BTreeSet<&str>) -> bool {
    ids.iter()
        .any(|id| stem == *id || stem.strip_prefix(id).is_some_and(|rest| rest.starts_with('-')))
}

#[test]
fn every_mistake_is_named_from_all_steps() {
    let mut missed = Vec::new();
    for (path, stem) in dumps(false) {
        let report = judged(&path);
        let ids = named(&report);
        if !is_named(&stem, &ids) {
            let first = report.first_divergence().map(|step| step.name.clone());
            missed.push(format!("{stem}: {ids:?}, first divergence {first:?}"));
        }
    }
    assert!(missed.is_empty(), "\n{}", missed.join("\n"));
}

#[test]
fn nine_of_ten_mistakes_are_named_from_the_output_alone() {
    let (mut missed, mut count) = (Vec::new(), 0);
    for (path, stem) in dumps(true) {
        let report = judged(&path);
        let ids = named(&report);
        count += 1;
        if !is_named(&stem, &ids) || ids.len() > 3 {
            missed.push(format!("{stem}: {ids:?}"));
        }
    }
    println!("{} of {count} named", count - missed.len());
    assert!(missed.len() * 10 <= count, "\n{}", missed.join("\n"));
}

#[test]
fn the_catalogue_is_documented() {
    for mutation in catalogue() {
        let texts =
            [mutation.id, mutation.summary, mutation.silent, mutation.example, mutation.fix];
        assert!(texts.iter().all(|text| !text.is_empty()), "{}", mutation.id);
        assert_ne!(mutation.example, mutation.fix, "{}", mutation.id);
    }
}

/// A fault that is in no catalogue: one number of one step is off, and what follows from it follows.
#[test]
fn an_unknown_fault_is_not_given_a_name() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let goldens = ["large", "causal-lengths", "dropout-xavier-bias", "attn-bias-causal", "f64"];
    let mut count = 0;
    for golden in goldens {
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("fixtures/golden/{golden}.safetensors"));
        let record = Record::read(&source).expect("readable");
        let (settings, sources) =
            Sources::of_record(&record, &Settings::default()).expect("complete");
        let run = Run::new(&settings, sources).expect("valid");
        let right = run.trace().expect("runs");
        for at in (0..right.steps().len()).filter(|at| right.steps()[*at].op != Op::Given) {
            let path = folder.path().join(format!("{golden}-{at}.safetensors"));
            let faulty = record_with_a_wrong_number(&right, &run, at);
            Output::create(&path).and_then(|output| output.write(&faulty)).expect("written");
            let report = judged(&path);
            let name = &right.steps()[at].name;
            assert_eq!(report.first_divergence().map(|step| &step.name), Some(name), "{golden}");
            assert_eq!(findings(&report), [], "{golden}, {name}");
            let unexplained = report.diagnosis.map(|diagnosis| diagnosis.unexplained);
            assert_eq!(unexplained, Some(vec![name.clone()]), "{golden}");
            count += 1;
        }
    }
    assert!(count >= 50, "only {count} faults");
}

/// The run with 0.3 added to the first number of a step, and every later step computed from that.
fn record_with_a_wrong_number(right: &Trace, run: &Run, faulty: usize) -> Record {
    let mut record = right.to_record(run.config());
    for at in faulty..right.steps().len() {
        let step = &right.steps()[at];
        let inputs: Vec<_> =
            step.inputs.iter().map(|input| record.entries[*input].tensor.clone()).collect();
        let mut value = step.op.eval(&inputs.iter().collect::<Vec<_>>()).expect("computes");
        if at == faulty {
            let mut off = vec![0.0_f64; value.elem_count()];
            off[0] = 0.3;
            let off = Tensor::from_vec(off, value.shape(), &Device::Cpu).expect("fits");
            value = (value.clone() + off.to_dtype(value.dtype()).expect("narrows")).expect("adds");
        }
        record.entries[at].tensor = value;
    }
    record
}
