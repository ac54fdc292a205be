//! Batches of unequal length as transformers' layers compute them: what they got and gave is all that a file holds
//! (`fixtures/padding.py`).

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::{NameMap, with_model};
use mha_trace::program::Name;
use mha_trace::{Run, Settings, Sources};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// What one command says of a file of the first layer of that family.
fn checked(file: &Path, family: &str, flags: Settings) -> Report {
    checked_within(file, family, flags, &Tolerances::default())
}

fn checked_within(file: &Path, family: &str, flags: Settings, within: &Tolerances) -> Report {
    let own = folder().join("families").join(family);
    let path = |name: &str| own.join(name).to_string_lossy().into_owned().into();
    let settings = Settings {
        model_config: Some(path("config.json")),
        layer: Some(0),
        weights: Some(path("model.safetensors")),
        ..flags
    };
    let settings = with_model(settings).expect("a known family");
    check(file, &settings, &NameMap::default(), within)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// A recorded file without some of its tensors, and others under another name.
fn changed(file: &str, renamed: &[(&str, Option<&str>)]) -> (tempfile::TempDir, PathBuf) {
    let path = folder().join("padding").join(format!("{file}.safetensors"));
    let mut record = Record::read(&path).expect("readable");
    for (name, to) in renamed {
        match to {
            Some(to) => {
                let own = record.entries.iter_mut().find(|entry| entry.name == *name);
                (*to).clone_into(&mut own.expect("recorded").name);
            }
            None => record.entries.retain(|entry| entry.name != *name),
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("changed.safetensors");
    Output::create(&path).and_then(|output| output.write(&record)).expect("written");
    (folder, path)
}

fn took(report: &Report, tensor: &str) -> bool {
    report.matches.iter().any(|matched| matched.tensor == tensor)
}

#[test]
fn masks_and_positions_that_a_file_brings_are_the_layers_own() {
    let mut files = 0;
    for entry in std::fs::read_dir(folder().join("padding")).expect("the fixtures are there") {
        let path = entry.expect("readable").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned();
        let family = name.split('-').next().expect("a family");
        // Its mask is of keys.
        if family == "llama4" {
            continue;
        }
        let report = checked(&path, family, Settings::default());
        assert!(took(&report, "attention_mask") && took(&report, "position_ids"), "{name}");
        // A query of padding sees no key: boolean masks make its weights 0, and floats that are added even.
        let are_zeros = report.matches.iter().any(|matched| matched.step == "empty_rows");
        assert_eq!(are_zeros, name.ends_with("sdpa-left"), "{name}");
        assert!(report.is_same(), "{name}: {:?}", report.steps);
        files += 1;
    }
    assert!(files >= 10, "only {files}");
}

/// Chunks begin at an item's first token, which a mask of keys tells.
#[test]
fn chunks_begin_behind_padding() {
    let path = folder().join("padding/llama4-eager-left.safetensors");
    let within = Tolerances { ignores_padding: true, ..Tolerances::default() };
    let report = checked_within(&path, "llama4", Settings::default(), &within);
    assert!(report.is_same(), "{:?}", report.steps);
    let mask = report.matches.iter().find(|matched| matched.step == "attn_mask").expect("taken");
    let how = "1 means attend, and chunks of 3 are counted from the first token of each item";
    assert_eq!(mask.how.as_deref(), Some(how));
}

#[test]
fn weights_that_leave_keys_out_tell_which() {
    let gone = [("attention_mask", None)];
    let (_folder, path) = changed("llama-eager-left", &gone);
    let report = checked(&path, "llama", Settings::default());
    assert!(!report.is_same());
    let fits = report.fits_keys.expect("told");
    assert_eq!((fits.setting.as_str(), fits.is_same), ("key_mask=1111111,0001111", true));
    let (_folder, path) = changed("llama-eager-right", &gone);
    let fits = checked(&path, "llama", Settings::default()).fits_keys.expect("told");
    assert_eq!((fits.setting.as_str(), fits.is_same), ("lengths=7,5", true));
    // Queries of padding are at other positions than the settings' own.
    let (_folder, path) = changed("llama-eager-right", &[gone[0], ("position_ids", None)]);
    let fits = checked(&path, "llama", Settings::default()).fits_keys.expect("told");
    assert_eq!((fits.setting.as_str(), fits.is_same), ("lengths=7,5", false));
}

#[test]
fn a_mask_beside_a_model_is_tried_and_told() {
    let (_folder, path) = changed("llama-eager-left", &[("attention_mask", Some("mask"))]);
    let report = checked(&path, "llama", Settings::default());
    assert!(report.is_same() && took(&report, "mask"));
    // Sdpa's is true where a query attends, and a file's `mask` is true where it is blocked: both are tried.
    let (_folder, path) = changed("llama-sdpa-right", &[("attention_mask", Some("mask"))]);
    let report = checked(&path, "llama", Settings::default());
    assert!(report.is_same() && took(&report, "mask"));
    // One that says nothing new is told to be left out.
    let recorded = folder().join("families/llama/0.safetensors");
    let mut record = Record::read(&recorded).expect("readable");
    let other = Record::read(&folder().join("padding/llama-eager-left.safetensors"));
    let mask = other.expect("readable").tensor("attention_mask").expect("recorded").clone();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("beside.safetensors");
    record.entries.push(Entry::of("mask", mask.lt(0.0).expect("floats")));
    Output::create(&path).and_then(|output| output.write(&record)).expect("written");
    let report = checked(&path, "llama", Settings::default());
    assert!(report.is_same());
    assert!(report.unmatched.iter().any(|left| left.tensor == "mask"), "{:?}", report.unmatched);
}

/// Queries, keys and values of a core, of (2, 3, T, 4) and (2, 3, S, 4).
fn core(queries: usize, keys: usize, mask: Tensor) -> Record {
    let numbers = |tokens: usize, by: f32| {
        let count = u16::try_from(24 * tokens).expect("few");
        let values: Vec<f32> = (0..count).map(|at| (f32::from(at) * by).sin()).collect();
        Tensor::from_vec(values, (2, 3, tokens, 4), &Device::Cpu).expect("fits")
    };
    let qkv = [("query", queries, 0.7), ("key", keys, 1.3), ("value", keys, 1.9)];
    let entries = qkv.map(|(name, tokens, by)| Entry::of(name, numbers(tokens, by)));
    Record { config: None, entries: [&entries[..], &[Entry::of("attention_mask", mask)]].concat() }
}

/// A mask of queries and keys that are not as many is read by its axes: (2, 6) may be of two items' keys, (6, 2) may not.
#[test]
fn a_mask_of_queries_and_keys_is_none_of_items_and_keys() {
    let mask = Tensor::ones((6, 2), DType::U8, &Device::Cpu).expect("made");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("core.safetensors");
    let mut record = core(6, 2, mask.clone());
    let settings = Settings {
        q: Some(place(&path, "query")),
        k: Some(place(&path, "key")),
        v: Some(place(&path, "value")),
        ..Settings::default()
    };
    Output::create(&path).and_then(|output| output.write(&record)).expect("written");
    let run = Sources::load(&settings).and_then(|sources| Run::new(&settings, sources));
    let trace = run.and_then(|run| run.trace()).expect("runs");
    let heads = trace.step(Name::HeadOutputs).expect("computed").value.clone();
    record.entries.push(Entry::of("attn_output", heads));
    Output::create(&path).and_then(|output| output.write(&record)).expect("written");
    let report = check(&path, &Settings::default(), &NameMap::default(), &Tolerances::default());
    let report = report.expect("read");
    assert!(report.is_same() && took(&report, "attention_mask"), "{:?}", report.steps);
}

fn place(path: &Path, tensor: &str) -> mha_trace::config::Place {
    format!("{}:{tensor}", path.display()).into()
}

/// Positions of the model say nothing to a layer that goes by none, and scale the queries of one that does.
#[test]
fn positions_of_a_model_are_not_refused_by_its_layers_without_rotation() {
    let own = folder().join("families/llama4");
    let of_layer = |layer: usize| {
        let settings = Settings {
            model_config: Some(own.join("config.json").to_string_lossy().into_owned().into()),
            layer: Some(layer),
            seq_len: Some(3),
            positions: Some("0,5,9".parse().expect("positions")),
            ..Settings::default()
        };
        let settings = with_model(settings).expect("a known family");
        let settings = Settings { prefix: None, ..settings };
        let run = Sources::load(&settings).and_then(|sources| Run::new(&settings, sources));
        run.expect("valid").config().clone()
    };
    let (turned, scaled) = (of_layer(0), of_layer(1));
    assert!(turned.rope.is_some() && scaled.rope.is_none());
    assert!(scaled.plain.q_temperature.is_some() && scaled.plain.positions.is_some());
}
