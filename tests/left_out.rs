//! What is left out of a comparison is told, and an output that was not compared is not the same.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use mha_trace::check::{OneSided, Report, Tolerances, Verdict, check, diff};
use mha_trace::file::Record;
use mha_trace::foreign::NameMap;
use mha_trace::{Run, Settings, Sources};

/// What PyTorch computed: with biases, and sizes that all differ.
const RUN: &str = "fixtures/golden/causal-lengths.safetensors";
const GIVEN: [(&str, &str); 8] = [
    ("w_q", "q_proj.weight"),
    ("b_q", "q_proj.bias"),
    ("w_k", "k_proj.weight"),
    ("b_k", "k_proj.bias"),
    ("w_v", "v_proj.weight"),
    ("b_v", "v_proj.bias"),
    ("w_o", "o_proj.weight"),
    ("b_o", "o_proj.bias"),
];

/// A file of other code: x, a layer's parameters under a prefix, and what is added.
struct Dump {
    folder: tempfile::TempDir,
    golden: Record,
    tensors: HashMap<String, Tensor>,
    flags: Settings,
}

impl Dump {
    fn new(prefix: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let golden = Record::read(&root.join(RUN)).expect("readable");
        let config = golden.config.clone().expect("a golden run has a config");
        let flags = Settings {
            heads: config.heads,
            lengths: config.lengths,
            prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
            ..Settings::default()
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut dump = Self { folder, golden, tensors: HashMap::new(), flags };
        dump.tensors.insert("x".to_owned(), dump.golden("x"));
        for (ours, theirs) in GIVEN {
            let dot = if prefix.is_empty() { "" } else { "." };
            dump.tensors.insert(format!("{prefix}{dot}{theirs}"), dump.golden(ours));
        }
        dump
    }

    fn golden(&self, name: &str) -> Tensor {
        self.golden.tensor(name).unwrap_or_else(|| panic!("{name} is there")).clone()
    }

    fn with(mut self, name: &str, tensor: Tensor) -> Self {
        self.tensors.insert(name.to_owned(), tensor);
        self
    }

    fn file(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        candle_core::safetensors::save(&self.tensors, &path).expect("written");
        path
    }

    fn check(&self) -> Report {
        let path = self.file("dump.safetensors");
        check(&path, &self.flags, &NameMap::default(), &Tolerances::default()).expect("checks")
    }
}

/// The tensors that were not checked, and why.
fn left_out(report: &Report) -> Vec<(&str, &str)> {
    let unmatched = report.unmatched.iter();
    unmatched.map(|tensor| (tensor.tensor.as_str(), tensor.why.as_str())).collect()
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(shape, DType::F32, &Device::Cpu).expect("zeros")
}

#[test]
fn steps_that_the_prefix_hides_are_told() {
    let dump = Dump::new("layers.1");
    let (weights, output) = (dump.golden("weights"), dump.golden("output"));
    let dump = dump.with("layers.1.weights", weights.clone()).with("layers.0.weights", weights);
    let report = dump.check();
    assert!(report.is_same(), "{report:?}");
    assert_eq!(left_out(&report), [("layers.0.weights", "not under the prefix layers.1")]);
    // An output that is there and is not compared might be wrong.
    let report = dump.with("trace.output", zeros(output.dims())).check();
    assert!(!report.is_same(), "{report:?}");
    assert_eq!(left_out(&report).last().expect("told").0, "trace.output");
}

#[test]
fn gradients_that_were_not_checked_are_not_the_same() {
    let dump = Dump::new("");
    let (output, weight) = (dump.golden("output"), dump.golden("w_q"));
    let dump = dump.with("output", output).with("grad_attn_bias", zeros(&[3, 3]));
    let dump = dump.with("q_proj.weight.grad", weight);
    let report = dump.check();
    assert_eq!(report.verdict(), Verdict::Unchecked, "{report:?}");
    let names: Vec<&str> = left_out(&report).iter().map(|(name, _)| *name).collect();
    assert!(names.contains(&"grad_attn_bias"), "{names:?}");
    let path = dump.file("dump.safetensors");
    let tolerances = Tolerances { ignores_gradients: true, ..Tolerances::default() };
    let report = check(&path, &dump.flags, &NameMap::default(), &tolerances).expect("checks");
    assert!(report.is_same(), "{report:?}");
}

#[test]
fn an_output_of_another_shape_is_not_the_same() {
    let dump = Dump::new("");
    let weights = dump.golden("weights");
    let dump = dump.with("weights", weights).with("attn_output", zeros(&[3, 3]));
    let report = dump.check();
    assert!(!report.is_same(), "{report:?}");
    assert_eq!(left_out(&report)[0].0, "attn_output");
}

#[test]
fn parameters_that_no_step_reads_are_told() {
    let dump = Dump::new("layers.1");
    let output = dump.golden("output");
    let name = "layers.1.relative_attention_bias.weight";
    let dump = dump.with(name, zeros(&[32, 4])).with("layers.1.output", output);
    let report = dump.check();
    assert!(report.is_same(), "{report:?}");
    assert_eq!(left_out(&report), [(name, "no step of this run reads it")]);
    // The same of a checkpoint.
    let path = dump.file("checkpoint.safetensors");
    let weights = Some(path.to_str().expect("UTF-8").into());
    let settings = Settings { weights, prefix: None, lengths: None, ..dump.flags.clone() };
    let run = Run::new(&settings, Sources::load(&settings).expect("reads")).expect("a run");
    assert_eq!(run.unread().collect::<Vec<_>>(), ["layers.1.output", name]);
}

#[test]
fn padded_queries_are_left_out_if_asked_for() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures/modules/left-padded.layer.safetensors");
    let flags = Settings {
        heads: Some(3),
        key_mask: Some(vec!["11111".to_owned(), "00111".to_owned()]),
        ..Settings::default()
    };
    let report = |flags: &Settings, ignores_padding| {
        let tolerances = Tolerances { ignores_padding, ..Tolerances::default() };
        check(&path, flags, &NameMap::default(), &tolerances).expect("checks")
    };
    let told = |report: &Report| {
        let rows = report.padded_rows.as_ref().expect("told");
        assert_eq!(rows.rows, "batch 1, queries 0 to 1");
        rows.left_out
    };
    let whole = report(&flags, false);
    assert!(!whole.is_same() && !told(&whole), "{whole:?}");
    let without = report(&flags, true);
    assert!(without.is_same() && told(&without), "{without:?}");
    // What else is wrong is seen, and named without regard to those rows.
    let scaled = Settings { scale: Some(0.25), ..flags };
    let wrong = report(&scaled, true);
    assert!(!wrong.is_same() && told(&wrong), "{wrong:?}");
    let findings = &wrong.diagnosis.as_ref().expect("differs").findings;
    let found = findings[0].number.as_ref().expect("a number").found;
    assert!((found - 0.5).abs() < 1e-3, "{found}");
}

#[test]
fn what_one_side_has_can_be_left_out_of_a_diff() {
    let dump = Dump::new("");
    let (weights, output) = (dump.golden("weights"), dump.golden("output"));
    let left = dump.file("left.safetensors");
    let dump = dump.with("weights", weights.permute((0, 2, 1, 3)).expect("four axes"));
    let dump = dump.with("y", output);
    let right = dump.file("right.safetensors");
    let of = |left: &Path, right: &Path, one_sided| {
        diff(left, right, &NameMap::default(), &Tolerances::default(), one_sided).expect("compares")
    };
    let report = of(&left, &right, OneSided::Differ);
    assert!(!report.is_same() && report.missing().count() == 2, "{report:?}");
    let report = of(&left, &right, OneSided::LeftOut);
    assert!(report.is_same(), "{report:?}");
    let only_right = "only in the right file";
    let mut told = left_out(&report);
    told.sort_unstable();
    assert_eq!(told, [("weights", only_right), ("y", only_right)]);

    // A file that names its axes says in which order the other's are to be.
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join(RUN);
    for (left, right) in [(&ours, &right), (&right, &ours)] {
        let report = of(left, right, OneSided::LeftOut);
        assert!(report.is_same(), "{report:?}");
        let weights = report.matches.iter().find(|matched| matched.step == "weights");
        let axes = "axes (batch, query, head, key)";
        assert_eq!(weights.expect("told").how.as_deref(), Some(axes));
        assert!(
            report
                .matches
                .iter()
                .any(|matched| matched.how.as_deref() == Some("the name beside it"))
        );
    }
}
