//! Files of other code: weights in its layouts, steps under its names, axes in its order.

use std::fs;
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use mha_trace::Settings;
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::config::{Fill, Mask, Pairing};
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::NameMap;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures")
}

/// A run by PyTorch with biases, whose dimensions all differ.
fn golden(name: &str) -> Record {
    Record::read(&fixtures().join(format!("golden/{name}.safetensors"))).expect("readable")
}

/// A file that tests write and check.
struct Foreign {
    folder: tempfile::TempDir,
    record: Record,
    flags: Settings,
}

impl Foreign {
    /// What PyTorch computed, without the config: x, the weights and these steps.
    fn of(golden: &Record, steps: &[&str]) -> Self {
        let config = golden.config.clone().expect("a golden run has a config");
        let given = ["x", "w_q", "b_q", "w_k", "b_k", "w_v", "b_v", "w_o", "b_o"];
        let entries = golden.entries.iter();
        let entries = entries
            .filter(|entry| {
                given.contains(&entry.name.as_str()) || steps.contains(&entry.name.as_str())
            })
            .map(|entry| Entry { axes: None, formula: None, ..entry.clone() });
        let flags = Settings {
            heads: config.heads,
            mask: config.mask.or(Some(Mask::None)),
            lengths: config.lengths,
            mask_fill: config.mask_fill,
            ..Settings::default()
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        Self { folder, record: Record { config: None, entries: entries.collect() }, flags }
    }

    fn tensor(&self, name: &str) -> Tensor {
        self.record.tensor(name).unwrap_or_else(|| panic!("{name} is there")).clone()
    }

    fn remove(&mut self, name: &str) -> Tensor {
        let tensor = self.tensor(name);
        self.record.entries.retain(|entry| entry.name != name);
        tensor
    }

    fn add(&mut self, name: &str, tensor: Tensor) {
        self.record.entries.push(Entry::of(name, tensor));
    }

    fn rename(&mut self, from: &str, to: &str) {
        let tensor = self.remove(from);
        self.add(to, tensor);
    }

    fn file(&self) -> PathBuf {
        let path = self.folder.path().join("foreign.safetensors");
        Output::create(&path).and_then(|output| output.write(&self.record)).expect("written");
        path
    }

    fn try_check(&self, map: &str) -> mha_trace::Result<Report> {
        let map = if map.is_empty() { NameMap::default() } else { map.parse().expect("a map") };
        check(&self.file(), &self.flags, &map, &Tolerances::default())
    }

    fn check(&self) -> Report {
        self.try_check("").unwrap_or_else(|error| panic!("{error}\n{}", error.fix()))
    }

    /// The error and what to do about it.
    fn refused(&self, map: &str) -> String {
        let error = self.try_check(map).map(|report| report.steps.len()).expect_err("refused");
        format!("{error}\n{}", error.fix())
    }
}

/// How a step was taken: `scores = qk, axes (…)`.
fn taken(report: &Report, step: &str) -> String {
    let taken = report.matches.iter().find(|taken| taken.step == step);
    taken.map(ToString::to_string).unwrap_or_default()
}

fn assert_same(report: &Report, compared: usize) {
    assert!(report.is_same(), "{report:?}");
    assert_eq!(report.compared(), compared, "{report:?}");
}

fn cat(tensors: &[Tensor]) -> Tensor {
    Tensor::cat(tensors, 0).expect("one width")
}

const RUN: &str = "causal-lengths";
const PROJECTIONS: [&str; 4] = ["q", "k", "v", "o"];

#[test]
fn linear_modules_are_found_under_any_prefix() {
    let schemes = [
        ["q_proj", "k_proj", "v_proj", "o_proj"],
        ["q_proj", "k_proj", "v_proj", "out_proj"],
        ["query", "key", "value", "out"],
        ["W_q", "W_k", "W_v", "out_proj"],
        ["w_q", "w_k", "w_v", "w_o"],
        ["self.query", "self.key", "self.value", "output.dense"],
    ];
    for scheme in schemes {
        for prefix in ["", "model.layers.7.self_attn.", "enc/attn/"] {
            let mut foreign = Foreign::of(&golden(RUN), &["output"]);
            for (projection, module) in PROJECTIONS.into_iter().zip(scheme) {
                for (ours, theirs) in [("w", "weight"), ("b", "bias")] {
                    foreign.rename(
                        &format!("{ours}_{projection}"),
                        &format!("{prefix}{module}.{theirs}"),
                    );
                }
            }
            assert_same(&foreign.check(), 1);
        }
    }
}

/// The weights as `nn.MultiheadAttention` keeps them; GPT-2 stores the same turned.
fn pack(foreign: &mut Foreign, weight: &str, bias: &str, output: &str, turned: bool) {
    let [w, b] = ["w", "b"].map(|kind| {
        cat(&["q", "k", "v"].map(|projection| foreign.remove(&format!("{kind}_{projection}"))))
    });
    let turn = |tensor: Tensor| {
        let turned = if turned { tensor.t() } else { Ok(tensor) };
        turned.and_then(|tensor| tensor.contiguous()).expect("a matrix")
    };
    foreign.add(weight, turn(w));
    foreign.add(bias, b);
    let output_weight = foreign.remove("w_o");
    foreign.add(&format!("{output}.weight"), turn(output_weight));
    foreign.rename("b_o", &format!("{output}.bias"));
}

#[test]
fn packed_weights_are_taken_apart_whichever_way_they_are_stored() {
    let layouts = [
        ("in_proj_weight", "in_proj_bias", "out_proj", false),
        ("h.3.attn.c_attn.weight", "h.3.attn.c_attn.bias", "h.3.attn.c_proj", true),
        ("h.3.attn.c_attn.weight", "h.3.attn.c_attn.bias", "h.3.attn.c_proj", false),
        ("qkv.weight", "qkv.bias", "proj", false),
    ];
    for (weight, bias, output, turned) in layouts {
        let mut foreign = Foreign::of(&golden(RUN), &["q", "output"]);
        pack(&mut foreign, weight, bias, output, turned);
        assert_same(&foreign.check(), 2);
    }
}

#[test]
fn weights_with_an_axis_for_the_heads_tell_how_many_there_are() {
    let mut foreign = Foreign::of(&golden(RUN), &["output"]);
    let heads = foreign.flags.heads.take().expect("stated");
    for projection in ["q", "k", "v"] {
        let weight = foreign.remove(&format!("w_{projection}"));
        let (outputs, inputs) = weight.dims2().expect("a matrix");
        let split = weight.reshape((heads, outputs / heads, inputs)).expect("divides");
        let name = projection.to_uppercase();
        foreign.add(&format!("W_{name}"), split.transpose(1, 2).expect("three axes"));
        let bias = foreign.remove(&format!("b_{projection}"));
        foreign.add(&format!("b_{name}"), bias.reshape((heads, outputs / heads)).expect("divides"));
    }
    let weight = foreign.remove("w_o").t().expect("a matrix").contiguous().expect("copies");
    let (inputs, outputs) = weight.dims2().expect("a matrix");
    foreign.add("W_O", weight.reshape((heads, inputs / heads, outputs)).expect("divides"));
    foreign.rename("b_o", "b_O");
    let report = foreign.check();
    assert_same(&report, 1);
    assert_eq!(report.read_as.map(|config| config.sizes.heads), Some(heads));
}

#[test]
fn a_missing_bias_beside_others_is_zeros() {
    let mut foreign = Foreign::of(&golden(RUN), &["v", "k"]);
    let bias = foreign.remove("b_k");
    let zeroed = foreign.remove("k").broadcast_sub(&bias).expect("one width");
    foreign.add("k", zeroed);
    let report = foreign.check();
    assert_same(&report, 2);
    assert_eq!(taken(&report, "b_k"), "b_k = no tensor, zeros");
}

#[test]
fn several_layers_are_listed_and_a_prefix_picks_one() {
    let mut foreign = Foreign::of(&golden(RUN), &["output"]);
    for projection in PROJECTIONS {
        for (kind, theirs) in [("w", "weight"), ("b", "bias")] {
            let tensor = foreign.remove(&format!("{kind}_{projection}"));
            let other = (&tensor * 2.0).expect("scales");
            foreign.add(
                &format!("layers.0.attn.{projection}_proj.{theirs}").replace("o_proj", "out_proj"),
                other,
            );
            foreign.add(
                &format!("layers.1.attn.{projection}_proj.{theirs}").replace("o_proj", "out_proj"),
                tensor,
            );
        }
    }
    let refused = foreign.refused("");
    assert!(refused.contains("2 layers have them, and no prefix says which one"), "{refused}");
    assert!(refused.contains("prefix: layers.0.attn, layers.1.attn"), "{refused}");
    for prefix in ["layers.1", "layers.1.attn", "layers.1.attn."] {
        foreign.flags.prefix = Some(prefix.to_owned());
        assert_same(&foreign.check(), 1);
    }
    foreign.flags.prefix = Some("layers.0".to_owned());
    assert!(!foreign.check().is_same());
    foreign.flags.prefix = Some("layers.2".to_owned());
    let refused = foreign.refused("");
    assert!(
        refused.contains("none under the prefix layers.2\nthere are layers.0.attn"),
        "{refused}"
    );
}

#[test]
fn a_layer_that_is_not_whole_is_told() {
    let mut foreign = Foreign::of(&golden(RUN), &["output"]);
    foreign.remove("w_v");
    let refused = foreign.refused("");
    assert!(refused.contains("w_v: is neither recorded nor given"), "{refused}");
    for projection in ["q", "k"] {
        foreign.rename(&format!("w_{projection}"), &format!("attn.{projection}_proj.weight"));
    }
    let path = foreign.file();
    foreign.flags.weights = path.to_str().map(Into::into);
    let refused = foreign.refused("");
    assert!(refused.contains("no attn.v_proj.weight"), "{refused}");
}

#[test]
fn steps_are_known_by_the_names_of_common_code() {
    let mut foreign = Foreign::of(
        &golden(RUN),
        &["q_heads", "scores_raw", "masked_scores", "weights", "head_outputs", "concat", "output"],
    );
    for (ours, theirs) in [
        ("x", "hidden_states"),
        ("q_heads", "blocks.0.attn.hook_q"),
        ("scores_raw", "qk"),
        ("masked_scores", "blocks.0.attn.hook_attn_scores"),
        ("weights", "attention_probs"),
        ("head_outputs", "Context"),
        ("concat", "merged"),
        ("output", "attn_out"),
    ] {
        foreign.rename(ours, theirs);
    }
    let report = foreign.check();
    assert_same(&report, 7);
    assert_eq!(taken(&report, "weights"), "weights = attention_probs");
    assert_eq!(taken(&report, "q_heads"), "q_heads = blocks.0.attn.hook_q");
}

#[test]
fn a_name_that_may_be_several_steps_is_told_by_its_numbers() {
    for step in ["scores_raw", "scores", "masked_scores"] {
        let mut foreign = Foreign::of(&golden(RUN), &[step]);
        foreign.rename(step, "attn_scores");
        let report = foreign.check();
        assert_same(&report, 1);
        assert_eq!(report.steps[0].name, step);
        assert!(taken(&report, step).contains("which fits better than"), "{report:?}");
    }
}

#[test]
fn a_map_names_what_is_known_by_no_other_name() {
    let mut foreign = Foreign::of(&golden(RUN), &["weights", "output"]);
    foreign.rename("weights", "A");
    let report = foreign.check();
    assert_eq!(report.compared(), 1);
    assert_eq!(report.unmatched.len(), 1, "{report:?}");
    assert_same(&foreign.try_check("A=weights").expect("fits"), 2);
    for (map, what) in [
        ("A=weihgts", "no step is called weihgts\ndid you mean weights?"),
        ("B=weights", "the file has no tensor B\nit has"),
        ("A=output", "the file has a tensor output as well"),
    ] {
        let refused = foreign.refused(map);
        assert!(refused.contains(what), "{refused}");
    }
    assert!("A".parse::<NameMap>().is_err());
}

fn permuted(tensor: &Tensor, order: &[usize]) -> Tensor {
    tensor.permute(order).and_then(|tensor| tensor.contiguous()).expect("those axes")
}

#[test]
fn axes_in_another_order_are_recognised_and_said() {
    let steps = ["q", "q_heads", "k_heads", "weights", "head_outputs", "output"];
    let mut foreign = Foreign::of(&golden(RUN), &steps);
    let (batch, heads, tokens, head_dim) = foreign.tensor("q_heads").dims4().expect("four axes");
    for (step, order) in [
        ("q_heads", &[0, 2, 1, 3][..]),
        ("weights", &[2, 3, 0, 1]),
        ("head_outputs", &[1, 0, 2, 3]),
        ("output", &[1, 0, 2]),
        ("q", &[1, 0, 2]),
    ] {
        let tensor = permuted(&foreign.remove(step), order);
        foreign.add(step, tensor);
    }
    let k_heads = foreign.remove("k_heads");
    foreign.add("k_heads", k_heads.reshape((batch * heads, tokens, head_dim)).expect("fits"));
    let report = foreign.check();
    assert_same(&report, 6);
    for (step, axes) in [
        ("q_heads", "axes (batch, query, head, head_dim)"),
        ("k_heads", "axes (batch · head, key, head_dim)"),
        ("weights", "axes (query, key, batch, head)"),
        ("head_outputs", "axes (head, batch, query, head_dim)"),
        ("output", "axes (query, batch, model)"),
    ] {
        assert_eq!(taken(&report, step), format!("{step} = {step}, {axes}"));
    }
}

#[test]
fn x_may_have_its_tokens_first() {
    let mut foreign = Foreign::of(&golden(RUN), &["output"]);
    for step in ["x", "output"] {
        let tensor = permuted(&foreign.remove(step), &[1, 0, 2]);
        foreign.add(step, tensor);
    }
    let report = foreign.check();
    assert_same(&report, 1);
    assert_eq!(taken(&report, "x"), "x = x, axes (query, batch, input)");
}

#[test]
fn a_batch_of_one_needs_no_axis() {
    let mut foreign = Foreign::of(&golden("causal-walkthrough"), &["q_heads", "weights", "output"]);
    for step in ["x", "q_heads", "weights", "output"] {
        let tensor = foreign.remove(step).squeeze(0).expect("a batch of one");
        foreign.add(step, tensor);
    }
    foreign.flags.heads = None;
    let report = foreign.check();
    assert_same(&report, 3);
    assert_eq!(taken(&report, "x"), "x = x, a batch of one");
    assert_eq!(taken(&report, "weights"), "weights = weights, axes (head, query, key)");
}

/// As many heads as tokens, so that the shape does not tell them apart.
#[test]
fn of_two_orders_that_fit_the_better_one_is_named() {
    let run = mha_trace::Run::new(
        &Settings {
            seq_len: Some(3),
            heads: Some(3),
            d_model: Some(12),
            batch: Some(2),
            ..Settings::default()
        },
        mha_trace::Sources::default(),
    );
    let run = run.expect("valid");
    let record = mha_trace::to_record(&run.trace().expect("runs"), run.config());
    for turned in [false, true] {
        let mut foreign = Foreign::of(&record, &["v_heads", "output"]);
        let v_heads = foreign.remove("v_heads");
        foreign.add("v_heads", if turned { permuted(&v_heads, &[0, 2, 1, 3]) } else { v_heads });
        let report = foreign.check();
        assert_same(&report, 2);
        if !turned {
            // What stands as it should is not said.
            assert!(report.matches.iter().all(|taken| taken.step != "v_heads"));
            continue;
        }
        let [better, worse] = ["(batch, key, head, head_dim)", "(batch, head, key, head_dim)"];
        let said = taken(&report, "v_heads");
        assert!(said.contains(&format!("axes {better}, which fits better than {worse}")), "{said}");
    }
}

#[test]
fn the_number_of_heads_is_never_guessed() {
    let mut foreign = Foreign::of(&golden(RUN), &["output"]);
    foreign.flags.heads = None;
    let refused = foreign.refused("");
    assert!(
        refused.contains("no tensor says how many heads") && refused.ends_with("heads=N"),
        "{refused}"
    );
    let mut foreign = Foreign::of(&golden(RUN), &["weights", "output"]);
    foreign.flags.heads = None;
    assert_same(&foreign.check(), 2);
}

#[test]
fn the_masks_fill_is_read_from_masked_scores() {
    let mut foreign = Foreign::of(&golden(RUN), &["masked_scores", "weights"]);
    foreign.flags.mask_fill = None;
    let scores = foreign.remove("masked_scores");
    let lowest = Tensor::full(f32::MIN, scores.shape(), &Device::Cpu).expect("a tensor");
    let blocked = scores.le(-9e3).expect("compares");
    foreign.add("masked_scores", blocked.where_cond(&lowest, &scores).expect("one shape"));
    let report = foreign.check();
    assert_same(&report, 2);
    assert_eq!(report.read_as.map(|config| config.masks.fill), Some(Fill(f32::MIN.into())));
}

#[test]
fn a_mask_that_nobody_asked_for_is_told() {
    let mut foreign = Foreign::of(&golden("rand-linear-bias"), &["weights", "output"]);
    assert_same(&foreign.check(), 2);
    foreign.flags.mask = None;
    let report = foreign.check();
    assert!(!report.is_same() && report.fits_unmasked, "{report:?}");
    foreign.flags.mask = Some(Mask::Causal);
    assert!(!foreign.check().fits_unmasked);
}

#[test]
fn what_is_no_step_is_told_and_changes_nothing() {
    let mut foreign = Foreign::of(&golden(RUN), &["output"]);
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, &Device::Cpu).expect("zeros");
    foreign.add("mlp.fc.weight", zeros(&[7, 7]));
    foreign.add("residual", zeros(&[2, 2]));
    foreign.add("causal_mask", zeros(&[2, 2]));
    foreign.add("attn_weights", zeros(&[9, 9]));
    let report = foreign.check();
    assert_same(&report, 1);
    let mut left: Vec<&str> = report.unmatched.iter().map(|found| found.tensor.as_str()).collect();
    left.sort_unstable();
    assert_eq!(left, ["attn_weights", "causal_mask", "residual"]);
}

#[test]
fn two_tensors_of_one_step_are_refused() {
    let mut foreign = Foreign::of(&golden(RUN), &["weights", "output"]);
    let weights = foreign.remove("weights");
    foreign.add("layers.0.attn_probs", (&weights * 2.0).expect("scales"));
    foreign.add("layers.1.attn_probs", weights);
    let refused = foreign.refused("");
    assert!(
        refused.contains("both layers.0.attn_probs and layers.1.attn_probs may be weights"),
        "{refused}"
    );
}

/// Layers of PyTorch and transformers, as those libraries save them.
#[test]
fn real_modules_check_clean() {
    let modules = fixtures().join("modules");
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    for (layer, weights, prefix, mask, heads, steps) in [
        ("mha", "mha.pt", None, Mask::Causal, Some(3), 1),
        ("bert", "bert/model.safetensors", Some("encoder.layer.1"), Mask::None, None, 3),
        (
            "gpt2",
            "gpt2/model.safetensors.index.json",
            Some("transformer.h.1"),
            Mask::Causal,
            None,
            2,
        ),
    ] {
        let flags = Settings {
            weights: Some(text(&modules.join(weights)).into()),
            prefix: prefix.map(str::to_owned),
            mask: Some(mask),
            lengths: Some(vec![5, 3]),
            heads,
            ..Settings::default()
        };
        let path = modules.join(format!("{layer}.layer.safetensors"));
        assert!(fs::exists(&path).expect("a folder"));
        let report = check(&path, &flags, &NameMap::default(), &Tolerances::default());
        assert_same(&report.unwrap_or_else(|error| panic!("{layer}: {error}")), steps);
    }
}

/// A dump of code with one mistake, its steps under our names.
fn faulty(name: &str, steps: &[&str]) -> Foreign {
    let path = fixtures().join(format!("faulty/{name}.safetensors"));
    Foreign::of(&Record::read(&path).expect("readable"), steps)
}

fn named(report: &Report) -> Vec<&str> {
    let diagnosis = report.diagnosis.iter().flat_map(|diagnosis| &diagnosis.findings);
    diagnosis.map(|finding| finding.id).collect()
}

#[test]
fn a_mask_that_was_written_into_ambiguous_scores_tells_what_they_are() {
    for bug in ["mask-inverted", "mask-causal-reversed"] {
        let mut foreign = faulty(bug, &["scores", "masked_scores", "weights"]);
        foreign.remove("scores");
        foreign.rename("masked_scores", "attn_scores");
        assert_eq!(named(&foreign.check()), [bug]);
    }
}

#[test]
fn a_mistake_under_another_name_is_still_named() {
    let mut foreign = faulty("scale-missing", &["weights"]);
    foreign.rename("weights", "attn_weights");
    assert_eq!(named(&foreign.check()), ["scale-missing"]);
}

/// As many heads as tokens and a mistake: no order of axes gives the right numbers.
#[test]
fn mistakes_are_named_where_shapes_do_not_tell_the_order() {
    let mut settings = golden(RUN).config.expect("a config");
    (settings.heads, settings.seq_len, settings.batch) = (Some(3), Some(3), Some(2));
    (settings.lengths, settings.seed) = (None, None);
    let run = mha_trace::Run::new(&settings, mha_trace::Sources::default()).expect("valid");
    let record = mha_trace::to_record(&run.trace().expect("runs"), run.config());
    let mut foreign = Foreign::of(&record, &["q_heads", "k_heads", "v_heads", "output"]);
    let output = foreign.remove("output");
    foreign.add("output", (output + 1.0).expect("adds"));
    for (step, hook) in [("q_heads", "hook_q"), ("k_heads", "hook_v"), ("v_heads", "hook_k")] {
        let tensor = permuted(&foreign.remove(step), &[0, 2, 1, 3]);
        foreign.add(hook, tensor);
    }
    let report = foreign.check();
    for step in ["k_heads", "v_heads"] {
        let axes = format!("axes (batch, {}, head, head_dim)", "key");
        assert!(taken(&report, step).contains(&axes), "{report:?}");
    }
}

#[test]
fn an_average_over_the_heads_is_that_of_weights_alone() {
    let mut foreign = Foreign::of(&golden(RUN), &["weights", "scores", "output"]);
    for name in ["weights", "scores"] {
        let average = foreign.remove(name).mean(1).expect("four axes");
        foreign.add(name, average);
    }
    let report = foreign.check();
    assert_same(&report, 2);
    assert!(report.steps.iter().any(|step| step.name == "weights_mean"), "{report:?}");
    assert!(report.unmatched[0].why.contains("an average over them is no step"), "{report:?}");
}

#[test]
fn two_tensors_that_may_be_one_step_are_told_though_x_could_be_turned() {
    let mut foreign = Foreign::of(&golden(RUN), &["weights", "output"]);
    let weights = foreign.remove("weights");
    foreign.add("attn_weights", (&weights * 2.0).expect("scales"));
    foreign.add("attention", weights);
    let refused = foreign.refused("");
    assert!(refused.contains(" may be weights\nsay which step the other one is"), "{refused}");
}

#[test]
fn a_bias_beside_a_weight_of_no_shape_is_refused() {
    let mut foreign = Foreign::of(&golden(RUN), &["output"]);
    foreign.remove("b_k");
    foreign.remove("w_k");
    foreign.add("w_k", Tensor::new(1.0_f32, &Device::Cpu).expect("a number"));
    let refused = foreign.refused("");
    assert!(refused.contains("w_k: is []"), "{refused}");
}

#[test]
fn a_prefix_picks_steps_too() {
    let mut foreign = Foreign::of(&golden(RUN), &["weights", "output"]);
    for step in ["x", "weights", "output"] {
        let tensor = foreign.remove(step);
        foreign.add(&format!("l0.{step}"), (&tensor * 2.0).expect("scales"));
        foreign.add(&format!("l1.{step}"), tensor);
    }
    foreign.flags.prefix = Some("l1".to_owned());
    assert_same(&foreign.check(), 2);
}

/// Masked scores in bf16, whose fill is rounded by millions: that excuses no other cell.
#[test]
fn the_rounding_of_a_masks_fill_hides_no_mistake() {
    let mut foreign = faulty("scale-missing", &["masked_scores", "weights"]);
    for entry in
        foreign.record.entries.iter_mut().filter(|entry| entry.tensor.dtype() == DType::F32)
    {
        let half = entry.tensor.to_dtype(DType::BF16).and_then(|half| half.to_dtype(DType::F32));
        entry.tensor = half.expect("rounds");
    }
    foreign.flags.mask_fill = None;
    let report = foreign.check();
    assert_eq!(named(&report), ["scale-missing"], "{report:?}");
}

/// Correct runs of PyTorch in bf16 under −∞, whose scores were rounded before they were masked.
#[test]
fn correct_scores_in_half_precision_under_infinity_are_the_same() {
    let mut foreign =
        faulty("half-precision-bf16", &["q_heads", "k_heads", "masked_scores", "weights"]);
    foreign.rename("masked_scores", "attn_scores");
    let report = foreign.check();
    assert!(report.is_same(), "{report:?}");
}

/// What 1 means in a mask that a file has is told by its name; floats are added.
#[test]
fn masks_are_understood_by_their_names() {
    for (name, mask, how) in [
        ("key_padding_mask", Mask::None, "true means ignored"),
        ("attention_mask", Mask::None, "1 means attend"),
        ("attention_mask-added", Mask::Recorded, "added to the scores"),
    ] {
        let path = fixtures().join(format!("modules/{name}.layer.safetensors"));
        let flags = Settings { heads: Some(3), mask: Some(mask), ..Settings::default() };
        let tolerances = Tolerances::default();
        let report = check(&path, &flags, &NameMap::default(), &tolerances).expect("checks");
        assert_same(&report, 1);
        let taken = report.matches.iter().find(|taken| taken.step == "attn_mask");
        assert_eq!(taken.and_then(|taken| taken.how.as_deref()), Some(how), "{name}");
        // What states which keys are seen overrules the file.
        let (mask, lengths) = (Some(Mask::None), Some(vec![5, 5]));
        let stated = Settings { mask, lengths, ..flags };
        let report = check(&path, &stated, &NameMap::default(), &tolerances).expect("checks");
        assert!(!report.is_same(), "{name}");
    }
}

/// A mask (query, key) of as many tokens as items has the shape of one (batch, key): what it explains tells which it is.
#[test]
fn a_square_mask_is_read_as_what_fits() {
    for (name, how) in
        [("keys", "1 means attend"), ("pairs", "of queries and keys, 1 means attend")]
    {
        let path = fixtures().join(format!("modules/square-mask-{name}.layer.safetensors"));
        let flags = Settings { heads: Some(3), mask: Some(Mask::None), ..Settings::default() };
        let report =
            check(&path, &flags, &NameMap::default(), &Tolerances::default()).expect("checks");
        assert_same(&report, 1);
        let taken = report.matches.iter().find(|taken| taken.step == "attn_mask");
        assert_eq!(taken.and_then(|taken| taken.how.as_deref()), Some(how), "{name}");
    }
}

#[test]
fn the_layer_whose_weights_fit_is_named() {
    let modules = fixtures().join("modules");
    let checked = |layer: usize| {
        let flags = Settings {
            heads: Some(3),
            mask: Some(Mask::None),
            lengths: Some(vec![5, 3]),
            weights: Some(
                modules.join("bert/model.safetensors").to_string_lossy().into_owned().into(),
            ),
            prefix: Some(format!("encoder.layer.{layer}")),
            ..Settings::default()
        };
        let path = modules.join("bert.layer.safetensors");
        check(&path, &flags, &NameMap::default(), &Tolerances::default()).expect("checks")
    };
    assert_eq!(checked(0).fits_layer.as_deref(), Some("encoder.layer.1.attention"));
    assert_eq!(checked(1).fits_layer, None);
}

/// `nn.MultiheadAttention` returns the mean of its weights over the heads.
#[test]
fn averaged_weights_are_compared_as_such() {
    let path = fixtures().join("modules/average-weights.layer.safetensors");
    let checked = |heads: usize| {
        let flags = Settings { heads: Some(heads), mask: Some(Mask::None), ..Settings::default() };
        check(&path, &flags, &NameMap::default(), &Tolerances::default()).expect("checks")
    };
    let report = checked(3);
    assert_same(&report, 2);
    assert!(report.steps.iter().any(|step| step.name == "weights_mean"), "{report:?}");
    assert!(!checked(2).is_same());
}

/// Rows of queries of a longer sequence, where the items are fewer than the rows go: no reading of them as tokens is in the way.
#[test]
fn rows_of_queries_are_checked_in_other_files() {
    let record = golden("queries-rope-last");
    let config = record.config.clone().expect("a config");
    let mut foreign = Foreign::of(&record, &["scores", "output"]);
    let Settings { queries, rope, .. } = config;
    foreign.flags = Settings { queries, rope, ..foreign.flags };
    assert_same(&foreign.check(), 2);
}

/// Queries twice as wide as the heads' outputs hold gates in Qwen3-Next, and none where keys and values come from a latent.
#[test]
fn wide_queries_of_latent_attention_hold_no_gates() {
    let of_run = Settings {
        seq_len: Some(3),
        d_in: Some(8),
        heads: Some(2),
        head_dim: Some(6),
        v_head_dim: Some(3),
        kv_lora_rank: Some(5),
        qk_rope_head_dim: Some(2),
        rope: Some(Pairing::Half),
        mask_fill: Some(Fill(f64::NEG_INFINITY)),
        ..Settings::default()
    };
    let run = mha_trace::Run::new(&of_run, mha_trace::Sources::default()).expect("valid");
    let record = mha_trace::to_record(&run.trace().expect("runs"), run.config());
    let mut foreign = Foreign::of(&record, &["w_dkv", "w_kr", "w_c_kv_norm", "k_r", "output"]);
    foreign.flags = Settings { mask: Some(Mask::Causal), ..of_run };
    assert_same(&foreign.check(), 2);
}
