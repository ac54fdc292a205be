//! What was recorded against what was stated: the record is told against the statement where the numbers follow it, and
//! nothing is told where they do not contradict each other.

mod common;

use std::path::Path;

use candle_core::{Device, Tensor};
use mha_trace::Settings;
use mha_trace::check::{Contradiction, OneSided, Report, Tolerances, check, diff};
use mha_trace::config::{Mask, Pairing};
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::NameMap;
use rayon::prelude::*;
use serde_json::Value;

fn checked(file: &str, flags: &Settings) -> Report {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let path = root.join(file);
    check(&path, flags, &NameMap::default(), &Tolerances::default())
        .unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// What is told of a file, as setting, statement and record; nothing else is wrong in it.
fn told(file: &str, flags: &Settings) -> Vec<(&'static str, String, String)> {
    let report = checked(file, flags);
    assert_eq!(report.is_same(), report.contradictions.is_empty(), "{file}: {report:?}");
    assert!(report.first_divergence().is_none(), "{file}: {report:?}");
    let told =
        |found: &Contradiction| (found.setting, found.stated.clone(), found.recorded.clone());
    report.contradictions.iter().map(told).collect()
}

fn causal() -> Settings {
    Settings { mask: Some(Mask::Causal), ..Settings::default() }
}

#[test]
fn masks_that_show_other_keys_are_told() {
    let layer = "modules/attention_mask-added.layer.safetensors";
    let pairs = "modules/square-mask-pairs.layer.safetensors";
    let heads = Settings { heads: Some(3), ..causal() };
    let windowed = Settings { window: Some(2), ..heads.clone() };
    assert_eq!(told(layer, &heads), []);
    let found = told(layer, &windowed);
    let [(setting, stated, recorded)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((*setting, stated.as_str()), ("mask", "causal with a window of 2"));
    assert!(recorded.starts_with("causal"), "{recorded}");
    let [(_, stated, _)] = &told(pairs, &heads)[..] else { panic!("one is told") };
    assert_eq!(stated, "causal");
    for kernel in ["core/sdpa-math-bool-mask.safetensors", "core/sdpa-flash-bool-mask.safetensors"]
    {
        assert_eq!(told(kernel, &Settings::default()), [], "{kernel}");
        assert_eq!(told(kernel, &causal()).len(), 1, "{kernel}");
    }
}

#[test]
fn a_mask_that_is_meant_as_it_was_recorded_contradicts_nothing() {
    let recorded = Settings { mask: Some(Mask::Recorded), ..Settings::default() };
    assert_eq!(told("core/sdpa-math-bool-mask.safetensors", &recorded), []);
}

#[test]
fn documents_of_other_lengths_are_told() {
    let file = "core/flash-varlen-cached.safetensors";
    assert_eq!(told(file, &causal()), []);
    let segments = Some("1,2,3".parse().expect("lengths"));
    let found = told(file, &Settings { segments, ..causal() });
    assert!(found.contains(&("segments", "1,2,3".to_owned(), "2,1,3".to_owned())), "{found:?}");
}

#[test]
fn heads_that_are_not_so_many_are_told() {
    let file = "core/sdpa-math.safetensors";
    assert_eq!(told(file, &Settings { heads: Some(3), ..Settings::default() }), []);
    let found = told(file, &Settings { heads: Some(2), ..Settings::default() });
    assert_eq!(found, [("heads", "2".to_owned(), "3".to_owned())]);
}

/// Where the numbers are those of the statement, what else the file says of it is no contradiction.
#[test]
fn a_record_that_the_numbers_do_not_follow_is_no_finding() {
    let file = "core/sdpa-math-causal.safetensors";
    let report = checked(file, &causal());
    assert!(report.is_same() && report.contradictions.is_empty(), "{report:?}");
    let without = checked(file, &Settings { mask: Some(Mask::None), ..Settings::default() });
    assert!(without.contradictions.is_empty(), "nothing was recorded: {without:?}");
    assert!(without.first_divergence().is_some(), "{without:?}");
}

/// Two files of one run, in one of which a step is wrong: it is named there, though `diff` compares them as they are.
#[test]
fn a_difference_of_two_files_is_named_where_one_states_its_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let right = root.join("golden/kv-heads.safetensors");
    let mut record = Record::read(&right).expect("readable");
    let scores = record.entries.iter_mut().find(|entry| entry.name == "scores").expect("recorded");
    scores.tensor = (&scores.tensor * 2.0).expect("made");
    let wrong = folder.path().join("wrong.safetensors");
    Output::create(&wrong).expect("made").write(&record).expect("written");
    for sides in [[&wrong, &right], [&right, &wrong]] {
        let (map, tolerances) = (NameMap::default(), Tolerances::default());
        let report =
            diff(sides[0], sides[1], &map, &tolerances, OneSided::default()).expect("read");
        assert_eq!(report.diagnosed, Some(wrong.display().to_string()), "{report:?}");
        let findings = &report.diagnosis.as_ref().expect("named").findings;
        let first = findings.first().expect("one at least");
        let number = first.number.as_ref().expect("a number is off");
        assert_eq!((first.step.as_str(), number.parameter), ("scores", "scale"), "{findings:?}");
        assert!((number.found / number.meant - 2.0).abs() < 1e-6, "{findings:?}");
    }
}

/// What a file contradicts is told of it beside another one, too, where that one does not.
#[test]
fn what_one_of_two_files_contradicts_is_told() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let right = root.join("golden/kv-heads.safetensors");
    let mut record = Record::read(&right).expect("readable");
    let config = record.config.as_mut().expect("stated");
    config.scale = Some(0.9);
    let features = record.entries.iter().find(|entry| entry.name == "q_heads").expect("recorded");
    let features = *features.tensor.dims().last().expect("four axes");
    let number = 1.0 / f64::sqrt(f64::from(u32::try_from(features).expect("few")));
    let scale = Tensor::new(&[number], &Device::Cpu).expect("made");
    record.entries.push(Entry::of("scale", scale));
    let wrong = folder.path().join("wrong.safetensors");
    Output::create(&wrong).expect("made").write(&record).expect("written");
    for sides in [[&wrong, &right], [&right, &wrong]] {
        let (map, tolerances) = (NameMap::default(), Tolerances::default());
        let report =
            diff(sides[0], sides[1], &map, &tolerances, OneSided::default()).expect("read");
        let settings: Vec<&str> = report.contradictions.iter().map(|found| found.setting).collect();
        assert_eq!(settings, ["scale"], "{report:?}");
        assert_eq!(report.diagnosed, Some(wrong.display().to_string()), "{report:?}");
    }
}

/// `record` says so of a module that lost a bias; the numbers follow the module.
#[test]
fn a_bias_that_a_module_lacks_is_told() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut record = Record::read(&root.join("golden/kv-heads.safetensors")).expect("readable");
    let shape = Tensor::from_vec(vec![30_i64], 1, &Device::Cpu).expect("made");
    record.entries.push(Entry::of("lacks.o_proj.bias", shape));
    let path = folder.path().join("module.safetensors");
    Output::create(&path).expect("made").write(&record).expect("written");
    let path = path.to_str().expect("text");
    let found = told(path, &Settings::default());
    assert_eq!(found, [("bias", "[30]".to_owned(), "none".to_owned())]);
    // What else contradicts the record is told beside it.
    let other = Settings { heads: Some(1), ..Settings::default() };
    assert!(checked(path, &other).contradictions.iter().any(|found| found.setting == "bias"));
}

/// People's names for what is added to scores say the same as `attn_mask` does.
#[test]
fn biases_of_kernels_have_many_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("kernel.safetensors");
    for name in ["bias", "attention_bias", "position_bias", "pos_bias", "rpb"] {
        let file = root.join("core/sdpa-math-float-mask.safetensors");
        let mut record = Record::read(&file).expect("readable");
        let mask = record.entries.iter_mut().find(|entry| entry.name == "attn_mask");
        mask.expect("recorded").name = name.to_owned();
        Output::create(&path).expect("made").write(&record).expect("written");
        let report = checked(path.to_str().expect("text"), &Settings::default());
        assert!(report.is_same(), "{name}: {report:?}");
        assert!(report.matches.iter().any(|taken| taken.tensor == name), "{name}: {report:?}");
    }
}

/// Which weights dropout kept goes by many names, and true means either.
#[test]
fn the_weights_that_dropout_keeps_have_many_names() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("kernel.safetensors");
    let flags = Settings { dropout: Some(0.25), ..Settings::default() };
    for (name, is_kept) in [("dropout_mask", true), ("keep_mask", true), ("drop_mask", false)] {
        let file = root.join("contradictions/dropout-kept.safetensors");
        let mut record = Record::read(&file).expect("readable");
        let kept = record.entries.iter_mut().find(|entry| entry.name == "dropout_keep");
        let kept = kept.expect("recorded");
        kept.name = name.to_owned();
        if !is_kept {
            kept.tensor = kept.tensor.eq(0.0).expect("made");
        }
        Output::create(&path).expect("made").write(&record).expect("written");
        assert_eq!(told(path.to_str().expect("text"), &flags), [], "{name}");
    }
}

/// A file of another run with its config, or another tensor, changed: what is told of it.
fn told_after(file: &str, change: impl FnOnce(&mut Record), flags: &Settings) -> Vec<[String; 3]> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut record = Record::read(&root.join(file)).expect("readable");
    change(&mut record);
    let path = folder.path().join("changed.safetensors");
    Output::create(&path).expect("made").write(&record).expect("written");
    let found = told(path.to_str().expect("text"), flags);
    found.into_iter().map(|(setting, stated, found)| [setting.to_owned(), stated, found]).collect()
}

/// The config of a file is a statement too.
#[test]
fn a_file_whose_config_says_otherwise_is_told() {
    let of_config = |change: fn(&mut Settings)| {
        move |record: &mut Record| change(record.config.as_mut().expect("a config"))
    };
    let silent = Settings::default();
    let none = of_config(|config| config.mask = Some(Mask::None));
    let found = told_after("golden/kv-heads.safetensors", none, &silent);
    assert!(
        matches!(&found[..], [[key, stated, found]]
        if key == "mask" && stated.starts_with("none") && found == "causal"),
        "{found:?}"
    );
    let base = of_config(|config| config.rope_base = Some(500.0));
    let found = told_after("golden/rope-half-dims.safetensors", base, &silent);
    assert!(
        matches!(&found[..], [[key, stated, found]]
            if key == "rope" && stated.contains("base 500") && found.contains("base 10000")),
        "{found:?}"
    );
    // A flag beside the file says as much against it.
    for flags in [
        Settings { rope_base: Some(500.0), ..silent.clone() },
        Settings { mask: Some(Mask::None), ..silent.clone() },
        Settings { rope: Some(Pairing::Interleaved), ..silent },
    ] {
        let found = told_after("golden/rope-half-dims.safetensors", |_| (), &flags);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}

/// A mask of keys alone says nothing of positions: what was stated of these stays.
#[test]
fn a_mask_of_keys_leaves_the_causal_one() {
    let as_foreign = |record: &mut Record| {
        let config = record.config.take().expect("a config");
        let (tokens, lengths) = (config.seq_len.expect("stated"), config.lengths.expect("stated"));
        let seen = |length: &usize| (0..tokens).map(|key| i64::from(key < *length)).collect();
        let seen: Vec<Vec<i64>> = lengths.iter().map(seen).collect();
        record.entries.retain(|entry| entry.name != "mask");
        let seen = Tensor::new(seen, &Device::Cpu).expect("made");
        record.entries.push(Entry::of("attention_mask", seen));
    };
    let own = Record::read(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/causal-lengths.safetensors"),
    );
    let config = own.expect("readable").config.expect("a config");
    let longer = config.lengths.iter().flatten().map(|length| length + 1).collect();
    let flags = Settings {
        heads: config.heads,
        lengths: Some(longer),
        empty_rows: config.empty_rows,
        ..causal()
    };
    let found = told_after("golden/causal-lengths.safetensors", as_foreign, &flags);
    assert!(
        matches!(&found[..], [[key, _, found]] if key == "mask" && found.starts_with("lengths"))
    );
}

/// Right runs beside flags that say something else of them: that one contradiction is told, and no mistake; beside flags that
/// agree all is the same.
#[test]
fn what_was_recorded_is_told_against_what_was_stated() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/contradictions");
    let text = std::fs::read_to_string(folder.join("contradictions.json")).expect("readable");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("a list");
    assert!(cases.len() >= 115, "only {}", cases.len());
    let other = cases.par_iter().flat_map(|case| {
        let (name, stated) = (case["name"].as_str().expect("a name"), &case["stated"]);
        let told = |flags: &Value| {
            let file = folder.join(format!("{name}.safetensors"));
            let report = common::checked(&folder, &file, flags);
            let found = report["diagnosis"].as_array().expect("a list").clone();
            let said = found.iter().map(|one| format!("{}: {}", one["id"], one["parameter"]));
            let first = &report["first_divergence"];
            format!("{} {first} {:?}", report["verdict"], said.collect::<Vec<_>>())
        };
        let expected = [format!("\"contradiction\": {}", case["setting"])];
        let expected = format!("\"differs\" null {expected:?}");
        let agree = case["agree"].as_array().expect("a list").iter();
        let agree = agree.map(|flags| (flags, "\"same\" null []".to_owned()));
        let all = agree.chain(Some((stated, expected)).filter(|_| !stated.is_null()));
        let wrong = all.filter_map(|(flags, expected)| {
            let told = told(flags);
            (told != expected).then(|| format!("{name} {flags}: {told}"))
        });
        wrong.collect::<Vec<_>>()
    });
    let other: Vec<String> = other.collect();
    assert!(other.is_empty(), "{}", other.join("\n"));
}

/// A boolean `mask` may mean either: code that reads the stated one the other way around is wrong, and contradicts nothing.
#[test]
fn a_stated_mask_that_is_read_the_other_way_around_is_a_mistake() {
    let turned = |record: &mut Record| {
        let mask = record.entries.iter_mut().find(|entry| entry.name == "mask").expect("recorded");
        mask.tensor = mask.tensor.eq(0_u8).expect("made");
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = root.join("contradictions/blocked-causal-for-window.safetensors");
    let mut record = Record::read(&file).expect("readable");
    turned(&mut record);
    let path = folder.path().join("turned.safetensors");
    Output::create(&path).expect("made").write(&record).expect("written");
    let path = path.to_str().expect("text");
    assert_eq!(told(path, &causal()), [], "the numbers are those of the statement");
    // Only what is seen the other way around, against what was stated.
    let keys = record.entries.iter_mut().find(|entry| entry.name == "out").expect("recorded");
    keys.tensor = (&keys.tensor * 2.0).expect("made");
    Output::create(Path::new(path)).expect("made").write(&record).expect("written");
    let report = checked(path, &causal());
    assert!(report.contradictions.is_empty() && report.first_divergence().is_some(), "{report:?}");
}
