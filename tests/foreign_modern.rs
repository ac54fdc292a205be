//! Files of other code that computes attention as today's models have it: no config, weights in its layouts.

mod common;

use std::path::{Path, PathBuf};

use candle_core::{D, DType, Device, Tensor};
use mha_trace::Sources;
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::config::{Mask, Pairing};
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::NameMap;
use mha_trace::program::Name;
use mha_trace::{Run, Settings, Trace};

use common::Named;

/// Whether a tensor of that name comes from outside.
fn is_given(name: &str) -> bool {
    Name::named(name).is_some_and(Name::is_given)
}

fn golden(name: &str) -> Record {
    let path = format!("fixtures/golden/{name}.safetensors");
    Record::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("readable")
}

fn entry(name: &str, tensor: Tensor) -> Entry {
    Entry::of(name, tensor)
}

/// A file without a config, and flags that say what its tensors do not.
struct Foreign {
    folder: tempfile::TempDir,
    entries: Vec<Entry>,
    flags: Settings,
}

impl Foreign {
    /// A run by PyTorch but for its masks, which the flags say.
    fn of(name: &str) -> Self {
        let Record { config, entries } = golden(name);
        let masks = ["mask", "attn_bias", "dropout_keep"];
        let entries = entries.into_iter().filter(|entry| !masks.contains(&entry.name.as_str()));
        let entries = entries.map(|found| entry(&found.name, found.tensor)).collect();
        let sizes_are_told = Settings {
            batch: None,
            seq_len: None,
            d_model: None,
            d_in: None,
            kv_heads: None,
            head_dim: None,
            kv_len: None,
            d_memory: None,
            past: None,
            x: None,
            memory: None,
            weights: None,
            rope_freqs: None,
            bias: None,
            ..config.expect("a golden run has a config")
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, entries, flags: sizes_are_told }
    }

    fn remove(&mut self, name: &str) -> Tensor {
        let at = self.entries.iter().position(|entry| entry.name == name);
        self.entries.remove(at.unwrap_or_else(|| panic!("{name} is there"))).tensor
    }

    fn add(&mut self, name: &str, tensor: Tensor) {
        self.entries.push(entry(name, tensor));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let tensor = self.remove(from);
        self.add(to, tensor);
    }

    fn file(&self) -> PathBuf {
        let path = self.folder.path().join("foreign.safetensors");
        let record = Record { config: None, entries: self.entries.clone() };
        Output::create(&path).and_then(|output| output.write(&record)).expect("written");
        path
    }

    fn check(&self) -> mha_trace::Result<Report> {
        // The file has all that the run drew.
        let flags = Settings { seed: None, ..self.flags.clone() };
        check(&self.file(), &flags, &NameMap::default(), &Tolerances::default())
    }

    /// Checks that all of so many computed steps are the same.
    fn assert_same(&self, what: &str) {
        let report =
            self.check().unwrap_or_else(|error| panic!("{what}: {error}\n{}", error.fix()));
        let is_weight = |name: &str| name.contains('.') || name.starts_with("W_");
        let others = self.entries.iter().filter(|entry| !is_weight(&entry.name));
        let computed = others.filter(|entry| !is_given(&entry.name)).count();
        assert!(report.is_same(), "{what}: {report:#?}");
        assert!(report.unmatched.is_empty(), "{what}: {:?}", report.unmatched);
        // Two inputs may have names that tell no role.
        assert!(report.compared() + 2 >= computed, "{what}: {report:#?}");
    }
}

#[test]
fn newer_runs_are_understood_without_their_config() {
    let runs = [
        "kv-heads",
        "multi-query",
        "head-dim",
        "kv-heads-head-dim",
        "rope-half",
        "rope-interleaved-dims",
        "rope-kv-heads-qk-norm",
        "rope-yarn",
        "rope-dynamic",
        "qk-norm",
        "cross",
        "cross-lengths",
        "cross-causal-bottom-right",
        "cross-queries",
        "queries",
        "queries-window",
        "queries-alibi",
        "past",
        "past-rope",
        "past-kv-heads-qk-norm",
        "past-top-left",
        "gemma-2",
    ];
    for run in runs {
        let foreign = Foreign::of(run);
        foreign.assert_same(run);
        assert_eq!(
            foreign.check().expect("checks").compared(),
            foreign.entries.iter().filter(|entry| !is_given(&entry.name)).count(),
            "{run}"
        );
    }
}

#[test]
fn memory_and_a_cache_are_known_by_other_names() {
    for (run, names) in [
        ("cross", &[("x", "hidden_states"), ("memory", "encoder_hidden_states")][..]),
        ("past-rope", &[("k_past", "past_key"), ("v_past", "past_value"), ("k_rot", "k_embed")]),
        ("past-kv-heads-qk-norm", &[("k_past", "k_cache"), ("v_past", "v_cache")]),
    ] {
        let mut foreign = Foreign::of(run);
        for (ours, theirs) in names {
            foreign.rename(ours, theirs);
        }
        foreign.assert_same(run);
    }
}

/// As Phi-3 has them: fewer keys and values than queries, below each other in one matrix.
#[test]
fn grouped_heads_are_taken_from_a_packed_matrix() {
    let mut foreign = Foreign::of("kv-heads-head-dim");
    for (kind, theirs) in [("w", "weight"), ("b", "bias")] {
        let parts = ["q", "k", "v"].map(|name| foreign.remove(&format!("{kind}_{name}")));
        foreign.add(&format!("self_attn.qkv_proj.{theirs}"), Tensor::cat(&parts, 0).expect("fits"));
        foreign.rename(&format!("{kind}_o"), &format!("self_attn.o_proj.{theirs}"));
    }
    foreign.assert_same("packed");
}

/// As Falcon has them: of every key head its queries, itself and its value. The number of heads must be said.
#[test]
fn heads_that_are_packed_one_by_one_are_taken_apart() {
    let mut foreign = Foreign::of("kv-heads");
    let [q, k, v] = ["w_q", "w_k", "w_v"].map(|name| foreign.remove(name));
    let (head_dim, shared) = (6, 2);
    let rows = |tensor: &Tensor, at: usize, heads: usize| {
        tensor.narrow(0, at * heads * head_dim, heads * head_dim).expect("has them")
    };
    let groups = (0..2).flat_map(|at| [rows(&q, at, shared), rows(&k, at, 1), rows(&v, at, 1)]);
    let packed = Tensor::cat(&groups.collect::<Vec<_>>(), 0).expect("one width");
    foreign.add("h.0.self_attention.query_key_value.weight", packed);
    foreign.rename("w_o", "h.0.self_attention.dense.weight");
    foreign.assert_same("packed one by one");
    foreign.flags.heads = None;
    let refused = foreign.check().map(|report| report.steps.len()).expect_err("refused");
    assert!(refused.to_string().contains("nothing says how many heads there are"), "{refused}");
    assert_eq!(refused.fix().to_string(), "pass heads=N");
}

/// As `TransformerLens` has them: an axis for the heads, of which keys and values have fewer.
#[test]
fn grouped_heads_with_an_axis_of_their_own_tell_their_number() {
    let mut foreign = Foreign::of("kv-heads");
    foreign.flags.heads = None;
    for (name, heads) in [("q", 4), ("k", 2), ("v", 2)] {
        let weight = foreign.remove(&format!("w_{name}"));
        let split = weight.reshape((heads, 6, weight.dim(1).expect("a matrix"))).expect("divides");
        foreign
            .add(&format!("W_{}", name.to_uppercase()), split.transpose(1, 2).expect("three axes"));
    }
    let output = foreign.remove("w_o").t().expect("a matrix").contiguous().expect("copies");
    let model = output.dim(D::Minus1).expect("a matrix");
    foreign.add("W_O", output.reshape((4, 6, model)).expect("divides"));
    foreign.assert_same("an axis for the heads");
}

#[test]
fn norms_beside_the_projections_are_used() {
    let modules =
        [("q_proj", "k_proj", "q_norm", "k_norm"), ("query", "key", "q_layernorm", "k_layernorm")];
    for (query, key, query_norm, key_norm) in modules {
        let mut foreign = Foreign::of("real-inputs-kv-heads");
        foreign.flags.qk_norm = None;
        let value = if query == "query" { "value" } else { "v_proj" };
        for (ours, theirs) in [("q", query), ("k", key), ("v", value), ("o", "out_proj")] {
            foreign.rename(&format!("w_{ours}"), &format!("layers.3.attn.{theirs}.weight"));
            if foreign.entries.iter().any(|entry| entry.name == format!("b_{ours}")) {
                foreign.rename(&format!("b_{ours}"), &format!("layers.3.attn.{theirs}.bias"));
            }
        }
        foreign.rename("w_q_norm", &format!("layers.3.attn.{query_norm}.weight"));
        foreign.rename("w_k_norm", &format!("layers.3.attn.{key_norm}.weight"));
        foreign.assert_same(query_norm);
    }
}

/// A norm whose weight has a bias beside it is `LayerNorm`, and `StableLM` has one per head.
#[test]
fn layer_norms_are_known_by_their_parameters() {
    let projections = [("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")];
    let renamed = |file: &str| {
        let mut foreign = Foreign::of(file);
        for (ours, theirs) in projections {
            foreign.rename(&format!("w_{ours}"), &format!("attn.{theirs}.weight"));
            foreign.rename(&format!("b_{ours}"), &format!("attn.{theirs}.bias"));
        }
        foreign
    };
    let mut foreign = renamed("qk-norm-layer");
    for name in ["q", "k"] {
        foreign.rename(&format!("w_{name}_norm"), &format!("attn.{name}_layernorm.weight"));
        foreign.rename(&format!("b_{name}_norm"), &format!("attn.{name}_layernorm.bias"));
    }
    foreign.flags.qk_norm = None;
    foreign.assert_same("layer norm");
    let mut foreign = renamed("qk-norm-layer-per-head");
    for name in ["q", "k"] {
        let weights = foreign.remove(&format!("w_{name}_norm"));
        for head in 0..weights.dim(0).expect("heads") {
            let stored = format!("attn.{name}_layernorm.norms.{head}.weight");
            foreign.add(&stored, weights.get(head).expect("within"));
        }
    }
    foreign.assert_same("a norm per head");
}

#[test]
fn other_norms_are_refused() {
    let mut foreign = Foreign::of("qk-norm");
    let norm = foreign.remove("w_q_norm");
    for (ours, theirs) in [("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")] {
        foreign.rename(&format!("w_{ours}"), &format!("attn.{theirs}.weight"));
    }
    let of_all = Tensor::cat(&vec![norm; foreign.flags.heads.expect("stated")], 0).expect("fits");
    foreign.add("attn.q_norm.weight", of_all);
    let refused = foreign.check().map(|report| report.steps.len()).expect_err("refused");
    assert!(refused.to_string().contains("is a norm of all heads together"), "{refused}");
}

/// The layer is named by a part of the prefix, as a model's config knows it.
#[test]
fn a_prefix_may_stand_within_a_longer_one() {
    let mut foreign = Foreign::of("kv-heads");
    for layer in [1, 11] {
        for name in ["q", "k", "v", "o"] {
            let tensor = golden("kv-heads").tensor(&format!("w_{name}")).expect("there").clone();
            let scaled = (tensor * if layer == 1 { 1.0 } else { 2.0 }).expect("scales");
            foreign.add(&format!("model.layers.{layer}.self_attn.{name}_proj.weight"), scaled);
        }
    }
    for name in ["q", "k", "v", "o"] {
        foreign.remove(&format!("w_{name}"));
    }
    foreign.flags.prefix = Some("layers.1".to_owned());
    foreign.assert_same("layers.1");
    foreign.flags.prefix = Some("layers.11".to_owned());
    assert!(!foreign.check().expect("checks").is_same());
    foreign.flags.prefix = Some("layers.2".to_owned());
    assert!(foreign.check().is_err());
}

/// `nn.MultiheadAttention` has the tokens of both inputs first, unless it is told otherwise.
#[test]
fn memory_with_the_tokens_first_is_turned_too() {
    let mut foreign = Foreign::of("cross");
    for name in ["x", "memory", "output"] {
        let turned = foreign.remove(name).transpose(0, 1).and_then(|tensor| tensor.contiguous());
        foreign.add(name, turned.expect("three axes"));
    }
    foreign.assert_same("tokens first");
}

/// A run of one item with rotary positions, without its config, and what `fault` makes of these steps.
fn rotated(kv_heads: usize, steps: &[&str], fault: impl Fn(&str, &Trace) -> Tensor) -> Foreign {
    let flags = Settings { heads: Some(4), rope: Some(Pairing::Half), ..Settings::default() };
    let settings =
        Settings { seq_len: Some(7), d_model: Some(24), kv_heads: Some(kv_heads), ..flags.clone() };
    let run = Run::new(&settings, Sources::default()).expect("valid");
    let trace = run.trace().expect("runs");
    let of = |name: &str| trace.named(name).expect("there").value.clone();
    let given = ["x", "w_q", "w_k", "w_v", "w_o"].map(|name| entry(name, of(name)));
    let recorded = steps.iter().map(|step| entry(step, fault(step, &trace)));
    let entries = given.into_iter().chain(recorded).collect();
    Foreign { folder: tempfile::tempdir().expect("a temporary folder"), entries, flags }
}

fn named(foreign: &Foreign) -> Vec<&'static str> {
    let report = foreign.check().expect("checks");
    let findings = report.diagnosis.map(|diagnosis| diagnosis.findings).unwrap_or_default();
    findings.iter().map(|found| found.id).collect()
}

/// Of one token attention is none, and a rotation at position 0 nothing: X of one item is not read as items of a token.
#[test]
fn one_item_is_not_many_of_one_token() {
    let heads = |step: &str, trace: &Trace| {
        let name = step.replace("_rot", "_heads");
        trace.named(&name).expect("there").value.clone()
    };
    for steps in [&["q_rot", "k_rot"][..], &["q_heads", "k_heads", "v_heads", "q_rot", "k_rot"]] {
        let mut foreign = rotated(4, steps, heads);
        assert_eq!(named(&foreign), ["rope-missing"], "{steps:?}");
        // The same with the tokens first.
        let x = foreign.remove("x").transpose(0, 1).and_then(|x| x.contiguous()).expect("turns");
        foreign.add("x", x);
        assert_eq!(named(&foreign), ["rope-missing"], "{steps:?}, tokens first");
    }
}

/// Items of one token each look like the tokens of one item: what tells them apart is heard; otherwise the order of
/// axes decides, and both are told.
#[test]
fn items_of_one_token_are_told_apart() {
    let flags = Settings { heads: Some(4), ..Settings::default() };
    let settings =
        Settings { batch: Some(5), seq_len: Some(1), d_model: Some(24), ..flags.clone() };
    let run = Run::new(&settings, Sources::default()).expect("valid");
    let trace = run.trace().expect("runs");
    let of = |name: &str| entry(name, trace.named(name).expect("there").value.clone());
    let foreign = |names: &[&str], flags: &Settings| Foreign {
        folder: tempfile::tempdir().expect("a temporary folder"),
        entries: names.iter().copied().map(of).collect(),
        flags: flags.clone(),
    };
    let outside = ["x", "w_q", "w_k", "w_v", "w_o", "output"];
    let report = foreign(&outside, &flags).check().expect("checks");
    assert!(report.is_same() && report.fits_single_tokens);
    let as_tokens = Settings { seq_len: Some(5), ..flags.clone() };
    let report = foreign(&outside, &as_tokens).check().expect("checks");
    assert!(!report.is_same() && !report.fits_single_tokens);
    // Projections of the shape of X tell no more than X does.
    let with_projections = [&outside[..], &["q", "k", "v"]].concat();
    let report = foreign(&with_projections, &flags).check().expect("checks");
    assert!(report.is_same() && report.fits_single_tokens);
    // A mask of five tokens by five does.
    let mut with_mask = foreign(&outside, &Settings { mask: Some(Mask::Causal), ..flags.clone() });
    let square = Tensor::ones((5, 5), DType::U8, &Device::Cpu).expect("ones");
    with_mask.add("mask", square);
    let report = with_mask.check().expect("checks");
    assert!(!report.is_same() && !report.fits_single_tokens && !report.fits_unmasked);
    let with_heads = [&outside[..], &["q_heads", "head_outputs"]].concat();
    foreign(&with_heads, &flags).assert_same("heads");
    let lengths = Settings { lengths: Some(vec![1; 5]), ..flags.clone() };
    foreign(&outside, &lengths).assert_same("lengths");
    let core = ["q_heads", "k_heads", "v_heads", "head_outputs"];
    let is_same = |names: &[&str], flags: &Settings| {
        foreign(names, flags).check().is_ok_and(|report| report.is_same())
    };
    assert!(is_same(&core, &flags), "the number of heads");
    assert!(is_same(&[&core[..], &["weights"]].concat(), &Settings::default()), "weights");
    // Scores of any step do, with heads and items as two axes or as one, whatever the order of the output's axes.
    let capped = Settings { softcap: Some(5.0), ..settings };
    let run = Run::new(&capped, Sources::default()).expect("valid");
    let trace = run.trace().expect("runs");
    let value = |name: &str| trace.named(name).expect("there").value.clone();
    let flags = Settings { softcap: capped.softcap, ..flags };
    for shape in [&[5, 4, 1, 1][..], &[20, 1, 1]] {
        let mut one = foreign(&["x", "w_q", "w_k", "w_v", "w_o"], &flags);
        one.add("scores_capped", value("scores_capped").reshape(shape).expect("fits"));
        let turned = value("output").transpose(1, 2).and_then(|output| output.contiguous());
        one.add("y", turned.expect("turns"));
        one.assert_same("capped scores");
    }
}

#[test]
fn a_mistake_in_one_of_the_two_is_not_called_one_in_both() {
    let right = |step: &str, trace: &Trace| trace.named(step).expect("there").value.clone();
    let only = |wrong: &'static str, other: &'static str| {
        rotated(2, &["q_rot", "k_rot", "k_repeated", "v_repeated"], move |step, trace| {
            if step == wrong {
                trace.named(other).expect("there").value.clone()
            } else {
                right(step, trace)
            }
        })
    };
    assert_eq!(named(&only("q_rot", "q_heads")), ["rope-k-only"]);
    let tiled =
        rotated(2, &["q_rot", "k_rot", "k_repeated", "v_heads", "v_repeated"], |step, trace| {
            let k_rot = right("k_rot", trace);
            if step == "k_repeated" {
                Tensor::cat(&[&k_rot, &k_rot], 1).expect("fits")
            } else {
                right(step, trace)
            }
        });
    let report = tiled.check().expect("checks");
    let findings = report.diagnosis.expect("differs").findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].summary.starts_with("key heads are tiled"), "{findings:?}");
}

/// `transformers` gives its locals their names again after each step.
#[test]
fn states_may_be_of_any_stage() {
    let right = |step: &str, trace: &Trace| trace.named(step).expect("there").value.clone();
    let steps = ["q_rot", "k_repeated", "v_repeated", "weights", "output"];
    let mut foreign = rotated(2, &steps, right);
    for (ours, theirs) in [
        ("q_rot", "query_states"),
        ("k_repeated", "key_states"),
        ("v_repeated", "value_states"),
        ("weights", "attn_weights"),
        ("output", "attn_output"),
    ] {
        foreign.rename(ours, theirs);
    }
    let report = foreign.check().expect("checks");
    assert!(report.is_same() && report.compared() == 5, "{report:#?}");
}

/// With one key head the norm of keys is as long as all of them.
#[test]
fn the_norm_of_one_key_head_is_no_norm_of_all() {
    let mut foreign =
        rotated(1, &["output"], |step, trace| trace.named(step).expect("there").value.clone());
    for (ours, theirs) in [("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "o_proj")] {
        foreign.rename(&format!("w_{ours}"), &format!("attn.{theirs}.weight"));
    }
    let ones = Tensor::ones(6, candle_core::DType::F32, &candle_core::Device::Cpu).expect("made");
    foreign.add("attn.q_norm.weight", ones.clone());
    foreign.add("attn.k_norm.weight", ones);
    let report = foreign.check().expect("is not refused");
    assert!(!report.is_same(), "it was made without norms");
    foreign.remove("attn.q_norm.weight");
    foreign.remove("attn.k_norm.weight");
    foreign.assert_same("without norms");
}
