//! What is wrong by numbers that are on no list: they are read off the recorded values.

use std::path::Path;

use candle_core::{DType, Tensor};
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::config::RelativeBias;
use mha_trace::file::{Output, Record};
use mha_trace::foreign::NameMap;
use mha_trace::program::{Name, Role};
use mha_trace::{Run, Settings, Sources, to_record};
use serde_json::{Value, json};

fn settings(json: Value) -> Settings {
    serde_json::from_value(json).expect("valid settings")
}

fn recorded(settings: &Settings) -> Record {
    let sources = Sources::load(settings).expect("readable");
    let run = Run::new(settings, sources).expect("valid");
    to_record(&run.trace().expect("runs"), run.config())
}

/// What `check` says of a record, which is written there.
fn checked(record: &Record, path: &Path) -> Report {
    Output::create(path).and_then(|output| output.write(record)).expect("written");
    check(path, &Settings::default(), &NameMap::default(), &Tolerances::default()).expect("checks")
}

fn told(report: &Report) -> Vec<&str> {
    let found = report.diagnosis.as_ref().map(|diagnosis| &diagnosis.findings);
    found.into_iter().flatten().map(|found| found.summary.as_ref()).collect()
}

/// Rotations by frequencies that are none of a base: each pair of features shows its own.
#[test]
fn frequencies_are_read_off_the_rotations() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, freqs) = (folder.path().join("run.safetensors"), folder.path().join("freqs.json"));
    let run = json!({"d_model": 16, "heads": 2, "seq_len": 8, "rope": "half"});
    let scaled = json!({"rope_type": "linear", "factor": 4.0});
    let none = Value::Null;
    // 10000 and 2825 to the powers of 0, −1/4, −2/4 and −3/4 are the frequencies of four pairs.
    for (meant, found, summary) in [
        (&none, [1.0, 0.1, 0.01, 0.001], None),
        (&none, [1.0, 0.1, 0.037, 0.001], Some("0.037 where 0.01 was meant (pair 2)")),
        (
            &none,
            [0.9, 0.1, 0.01, 0.005],
            Some("0.9 where 1 was meant (pair 0), 0.005 where 0.001 was meant (pair 3)"),
        ),
        (
            &scaled,
            [0, 1, 2, 3].map(|pair| 2825_f64.powf(-f64::from(pair) / 4.0)),
            Some("those of base 2825, without scaling"),
        ),
    ] {
        let mut plain = run.clone();
        plain["rope_scaling"] = meant.clone();
        let meant = recorded(&settings(plain));
        std::fs::write(&freqs, json!(found).to_string()).expect("written");
        let mut own = run.clone();
        own["rope_freqs"] = json!(freqs);
        let mut record = recorded(&settings(own));
        // It says that it is the run that was meant.
        record.entries.retain(|entry| entry.name != "rope_freqs");
        record.config.clone_from(&meant.config);
        let report = checked(&record, &path);
        let expected = summary.map(|told| format!("rope_freqs: the frequencies are {told}"));
        assert_eq!(told(&report), Vec::from_iter(expected.as_deref()));
    }
}

/// Dot products whose halves are rounded before they are added: in bf16 their numbers tell the type; where they are added
/// in f32, nothing does.
#[test]
fn the_type_of_a_step_is_told_by_its_numbers() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("run.safetensors");
    let mut record =
        recorded(&settings(json!({"d_model": 32, "heads": 2, "seq_len": 8, "batch": 2})));
    record.entries.retain(|entry| {
        ["x", "w_q", "w_k", "w_v", "w_o", "q_heads", "k_heads", "scores_raw"]
            .contains(&entry.name.as_str())
    });
    let half =
        |tensor: &Tensor| tensor.to_dtype(DType::BF16).and_then(|half| half.to_dtype(DType::F32));
    let tensor = |name: &str| record.tensor(name).expect("recorded").clone();
    let (queries, keys) = (tensor("q_heads"), tensor("k_heads"));
    let part = |from: usize| {
        let [queries, keys] = [&queries, &keys]
            .map(|heads| heads.narrow(3, from, 8).and_then(|part| part.contiguous()));
        half(&queries?.matmul(&keys?.transpose(2, 3)?.contiguous()?)?)
    };
    let sum = part(0).and_then(|first| first + part(8)?).expect("products");
    let place =
        record.entries.iter().position(|entry| entry.name == "scores_raw").expect("recorded");
    for (scores, is_told) in [(half(&sum).expect("rounds"), true), (sum, false)] {
        record.entries[place].tensor = scores;
        let report = checked(&record, &path);
        let said = "scores_raw: it is computed in bf16: its numbers are of that type, and off by its rounding alone";
        assert_eq!(told(&report), Vec::from_iter(is_told.then_some(said)));
    }
}

/// Biases of positions by other buckets, in parts of a run too: the numbers are PyTorch's, and the config is another.
#[test]
fn buckets_of_relative_positions_are_told() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/golden/relative-bidirectional.safetensors");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("run.safetensors");
    let golden = Record::read(&root).expect("readable");
    for kept in [&["scores", "scores_biased", "output"][..], &["output"]] {
        let mut record = golden.clone();
        record.entries.retain(|entry| {
            let name = Name::in_files(&entry.name).expect("a step");
            !matches!(name.role(), Role::Computed | Role::Setting) || kept.contains(&&*entry.name)
        });
        record.config.as_mut().expect("a config").relative_bias = Some(RelativeBias::OneSided);
        let report = checked(&record, &path);
        let said = told(&report);
        assert!(said.len() == 1 && said[0].contains("the buckets are bidirectional"), "{said:?}");
    }
}

/// A bias that is added behind the softmax: the scores that were to have it are recorded without it.
#[test]
fn a_bias_that_is_added_too_late_is_told_from_every_step() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("run.safetensors");
    let run = json!({"d_model": 16, "heads": 2, "seq_len": 6, "alibi": true, "mask": "none"});
    let mut record = recorded(&settings(run));
    let tensor = |name: &str| record.tensor(name).expect("recorded").clone();
    let (scores, bias) = (tensor("scores"), tensor("attn_bias"));
    let weights = || {
        let powers = scores.exp()?;
        powers.broadcast_div(&powers.sum_keepdim(3)?)?.broadcast_add(&bias)
    };
    let wrong = [("scores_biased", scores.clone()), ("weights", weights().expect("made"))];
    record.entries.retain(|entry| !["head_outputs", "concat", "output"].contains(&&*entry.name));
    for (name, tensor) in wrong {
        let entry = record.entries.iter_mut().find(|entry| entry.name == name);
        entry.expect("recorded").tensor = tensor;
    }
    let report = checked(&record, &path);
    let said = told(&report);
    assert!(said.len() == 1 && said[0].contains("should come after"), "{said:?}");
}
