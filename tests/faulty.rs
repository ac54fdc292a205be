//! Dumps of PyTorch code with a mistake in it: each is named, from all its steps and from its output alone. Two
//! mistakes at once are named from the output alone, and from a few steps.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use mha_trace::Sources;
use mha_trace::check::{Finding, Pairs, Report, Tolerances, check};
use mha_trace::file::{Output, Record};
use mha_trace::foreign::NameMap;
use mha_trace::program::Name;
use mha_trace::{Run, Settings, Trace, to_record};

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
    check(path, &Settings::default(), &NameMap::default(), &Tolerances::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

fn findings(report: &Report) -> &[Finding] {
    report.diagnosis.as_ref().map_or(&[], |diagnosis| &diagnosis.findings)
}

/// The mistake of a finding, and those that give the same numbers.
fn ids(finding: &Finding) -> BTreeSet<&'static str> {
    finding.also.iter().map(|also| also.id).chain([finding.id]).collect()
}

fn named(report: &Report) -> BTreeSet<&'static str> {
    findings(report).iter().flat_map(ids).collect()
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

/// Recording more never tells less: what is named from the output alone is so with any step of its dump beside it. Of these
/// each fourth is tried.
#[test]
fn what_is_named_from_the_output_is_named_with_any_step_beside_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut missed, mut count) = (Vec::new(), 0);
    for (path, stem) in dumps(true) {
        if !is_named(&stem, &named(&judged(&path))) {
            continue;
        }
        let few = Record::read(&path).expect("readable");
        let whole = Record::read(&path.with_file_name(format!("{stem}.safetensors")));
        for entry in whole.expect("readable").entries {
            if few.tensor(&entry.name).is_some() {
                continue;
            }
            count += 1;
            if count % 4 == 0 {
                let name = entry.name.clone();
                let mut record = few.clone();
                record.entries.push(entry);
                let path = folder.path().join(format!("{stem}.{name}.safetensors"));
                write(&path, &record);
                let ids = named(&judged(&path));
                if !is_named(&stem, &ids) {
                    missed.push(format!("{stem}, {name}: {ids:?}"));
                }
            }
        }
    }
    assert!(count > 900 && missed.is_empty(), "{count} records\n{}", missed.join("\n"));
}

#[test]
fn two_mistakes_are_named_from_few_steps() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/faulty/pairs");
    let (mut missed, mut count) = (Vec::new(), 0);
    for entry in fs::read_dir(folder).expect("the fixtures are there") {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
        let pair = name.split('.').next().and_then(|stem| stem.split_once("-and-"));
        let wanted = BTreeSet::from(<[&str; 2]>::from(pair.expect("named by both")));
        let report = judged(&path);
        let both = |found: &Finding| -> BTreeSet<&str> {
            found.with.iter().map(|other| other.id).chain([found.id]).collect()
        };
        let found: Vec<_> = findings(&report).iter().map(both).collect();
        let alternatives: BTreeSet<_> = found.iter().collect();
        assert_eq!(alternatives.len(), found.len(), "{name}: a pair is listed twice");
        // Where each shows in a recorded step of its own, they are told one by one.
        let each: Vec<BTreeSet<&str>> = findings(&report).iter().map(ids).collect();
        let is_told_alone = |id: &&str| each.iter().any(|ids| ids.contains(*id));
        let are_apart = each.len() == 2 && wanted.iter().all(is_told_alone);
        count += 1;
        if !(found.contains(&wanted) || are_apart) || found.len() > 4 {
            missed.push(format!("{name}: {found:?}"));
        }
    }
    assert!(count >= 20 && missed.is_empty(), "{count} dumps\n{}", missed.join("\n"));
}

/// A fault that is in no catalogue: one number of one step is off, and what follows from it follows.
#[test]
fn an_unknown_fault_is_not_given_a_name() {
    let count = with_unknown_faults(|right, run, at, path| {
        write(path, &record_with_a_wrong_number(right, run, at, 0));
        let (report, name) = (judged(path), right.steps()[at].name);
        assert_eq!(report.first_divergence().and_then(|step| step.step), Some(name), "{path:?}");
        assert_eq!(findings(&report), [], "{path:?}");
        let unexplained = report.diagnosis.map(|diagnosis| diagnosis.unexplained);
        assert_eq!(unexplained, Some(vec![name]), "{path:?}");
        1
    });
    assert!(count >= 50, "only {count} faults");
}

/// Nor is it explained by two mistakes where its output is all that is known.
#[test]
fn an_unknown_fault_is_not_given_two_names() {
    let count = with_unknown_faults(|right, run, at, path| {
        let last = right.steps()[at].value.elem_count() - 1;
        let cell = [last / 3, last][at % 2];
        let mut record = record_with_a_wrong_number(right, run, at, cell);
        let is_given = |name: &str| Name::named(name).is_some_and(Name::is_given);
        record.entries.retain(|entry| is_given(&entry.name) || entry.name == "output");
        write(path, &record);
        let report = judged(path);
        assert_eq!(findings(&report), [], "{path:?}");
        let Some(diagnosis) = &report.diagnosis else { return 0 };
        assert_eq!(diagnosis.unexplained, ["output"], "{path:?}");
        assert_eq!(diagnosis.pairs, Pairs::Tried { unlisted: 0 }, "{path:?}");
        1
    });
    assert!(count >= 50, "only {count} faults that show");
}

/// Calls `judge` for every computed step of some golden runs, with a path to write a dump to; the sum of its counts.
fn with_unknown_faults(judge: impl Fn(&Trace, &Run, usize, &Path) -> usize) -> usize {
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
        for at in (0..right.steps().len()).filter(|at| !right.steps()[*at].name.is_given()) {
            let name = &right.steps()[at].name;
            count += judge(
                &right,
                &run,
                at,
                &folder.path().join(format!("{golden}-{name}.safetensors")),
            );
        }
    }
    count
}

fn write(path: &Path, record: &Record) {
    Output::create(path).and_then(|output| output.write(record)).expect("written");
}

/// The run with 0.3 added to one number of a step, and every later step computed from that.
fn record_with_a_wrong_number(right: &Trace, run: &Run, faulty: usize, cell: usize) -> Record {
    let mut at = 0;
    let wrong = right.run_with(|step, inputs| {
        at += 1;
        let mut value =
            if step.name.is_given() { step.value.clone() } else { step.op.eval(inputs)? };
        if at - 1 == faulty {
            let mut off = vec![0.0_f64; value.elem_count()];
            off[cell] = 0.3;
            let off = Tensor::from_vec(off, value.shape(), &Device::Cpu)?;
            value = (value.clone() + off.to_dtype(value.dtype())?)?;
        }
        Ok::<_, mha_trace::Error>(value)
    });
    to_record(&wrong.expect("computes"), run.config())
}

/// `NumPy` has no bf16, so people widen what they record.
#[test]
fn half_precision_is_known_when_it_was_widened() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (path, stem) in dumps(false).into_iter().chain(dumps(true)) {
        if !stem.starts_with("half-precision") {
            continue;
        }
        let mut record = Record::read(&path).expect("readable");
        for entry in record.entries.iter_mut().filter(|entry| entry.tensor.dtype() != DType::U8) {
            entry.tensor = entry.tensor.to_dtype(DType::F32).expect("widens");
        }
        let path = folder.path().join(path.file_name().expect("a file"));
        Output::create(&path).and_then(|output| output.write(&record)).expect("written");
        let report = judged(&path);
        assert!(report.is_same(), "{stem}: {report:?}");
        assert_eq!(named(&report), BTreeSet::from(["half-precision"]), "{stem}");
    }
}
