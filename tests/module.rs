//! Calls of `nn.MultiheadAttention`, as hooks record them: `query`, `key`, `value`, masks, and what comes out.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};
use mha_trace::Settings;
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::config::Mask;
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::NameMap;

fn modules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/modules")
}

fn checked(path: &Path, flags: &Settings) -> Report {
    check(path, flags, &NameMap::default(), &Tolerances::default()).expect("checks")
}

fn heads() -> Settings {
    Settings { heads: Some(3), ..Settings::default() }
}

/// Every recorded call is the same, weights and output, with no more said than the number of heads.
#[test]
fn calls_of_the_module_are_the_same() {
    let calls =
        ["bias-kv", "zero-attn", "kdim-vdim", "all", "float-mask", "value-apart", "one-item"];
    for (at, call) in calls.iter().enumerate() {
        let report = checked(&modules().join(format!("mha-{call}.layer.safetensors")), &heads());
        assert!(report.is_same(), "{call}: {report:?}");
        let steps: Vec<&str> = report.steps.iter().map(|step| step.name.as_str()).collect();
        // Of one item without an axis for it, averaged weights have the shape of no step.
        let weights = if at % 2 == 0 { "weights_mean" } else { "weights" };
        let expected = if *call == "one-item" { vec!["output"] } else { vec![weights, "output"] };
        assert_eq!(steps, expected, "{call}");
    }
}

/// What the file says is read from it: nothing else makes it the same.
#[test]
fn what_is_added_is_needed() {
    let all = modules().join("mha-all.layer.safetensors");
    for flags in [
        Settings { add_zero_attn: Some(false), ..heads() },
        Settings { add_bias_kv: Some(false), ..heads() },
        Settings { heads: Some(2), ..heads() },
    ] {
        assert!(
            !check(&all, &flags, &NameMap::default(), &Tolerances::default())
                .is_ok_and(|report| report.is_same())
        );
    }
}

/// The wrong outputs of the same arithmetic, each beside the words that name what is wrong.
const MISTAKES: &[(&str, &str)] = &[
    ("bias-kv-missing", "the learned key and value are not appended"),
    ("zero-attn-missing", "the key and value of zeros are not appended"),
    ("neither-added", "nobody sees the added keys: they are not appended"),
    ("bias-k-zeros", "k_with_bias: zeros are appended in place of what was learned"),
    ("bias-kv-swapped", "bias_"),
    ("mask-padded-as-blocked", "padded as blocked"),
    ("mask-padded-in-front", "stand in front of the mask"),
    ("values-of-the-keys-input", "memory"),
];

#[test]
fn mistakes_of_what_is_added_are_named_from_the_output_alone() {
    let record = Record::read(&modules().join("mha-mistakes.layer.safetensors")).expect("readable");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("call.safetensors");
    let with = |mistake: &str| {
        let is_given = |entry: &&Entry| !entry.name.starts_with("output.");
        let mut entries: Vec<Entry> = record.entries.iter().filter(is_given).cloned().collect();
        let output = record.tensor(&format!("output.{mistake}")).expect("recorded").clone();
        entries.push(Entry::of("output", output));
        let own = Record { config: None, entries };
        Output::create(&path).and_then(|output| output.write(&own)).expect("written");
        checked(&path, &Settings { add_zero_attn: Some(true), ..heads() })
    };
    assert!(with("none").is_same());
    for (mistake, words) in MISTAKES {
        let report = with(mistake);
        let findings = report.diagnosis.as_ref().map(|diagnosis| &diagnosis.findings);
        let told: Vec<&str> =
            findings.into_iter().flatten().map(|found| found.summary.as_ref()).collect();
        assert!(told.len() == 1 && told[0].contains(words), "{mistake}: {told:?}");
    }
}

/// What attention with three heads of two features makes of (batch, token, feature), without a mask.
fn attended([queries, keys, values]: &[Tensor; 3]) -> candle_core::Result<Tensor> {
    let heads = |tensor: &Tensor| tensor.reshape((2, 4, 3, 2))?.transpose(1, 2)?.contiguous();
    let products = heads(queries)?.matmul(&heads(keys)?.transpose(2, 3)?.contiguous()?)?;
    let weights = (products * 0.5_f64.sqrt())?.exp()?;
    let weights = weights.broadcast_div(&weights.sum_keepdim(3)?)?;
    weights.matmul(&heads(values)?)?.transpose(1, 2)?.contiguous()?.reshape((2, 4, 6))
}

/// `query`, `key` and `value` beside projections that change nothing may be called before them or behind them. Parameters
/// that only the module has say which; otherwise the plain reading stands, of queries that are projected already.
#[test]
fn a_call_that_can_be_read_in_two_ways_goes_by_its_parameters() {
    let input = |step: f64| {
        let cells = Tensor::arange(0_f32, 48.0, &Device::Cpu)
            .and_then(|all| ((all * 0.37)? + step)?.sin()?.reshape((2, 4, 6)));
        cells.expect("48 cells")
    };
    let same = Tensor::eye(6, DType::F32, &Device::Cpu).expect("a matrix");
    let thrice = Tensor::cat(&[&same, &same, &same], 0).expect("a matrix");
    let packed = vec![("in_proj_weight", thrice), ("out_proj.weight", same.clone())];
    let separate = ["w_q", "w_k", "w_v", "w_o"].map(|name| (name, same.clone())).to_vec();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("call.safetensors");
    for (parameters, step) in [(separate, "q"), (packed, "x")] {
        let inputs = [0.0, 0.3, 0.7].map(input);
        let output = attended(&inputs).expect("multiplies");
        let [query, key, value] = inputs;
        let given = [("query", query), ("key", key), ("value", value), ("output", output)];
        let entries = given.into_iter().chain(parameters);
        let entries = entries.map(|(name, tensor)| Entry::of(name, tensor)).collect();
        let record = Record { config: None, entries };
        Output::create(&path).and_then(|output| output.write(&record)).expect("written");
        let report = checked(&path, &Settings { mask: Some(Mask::None), ..heads() });
        assert!(report.is_same(), "{report:?}");
        let taken = report.matches.iter().find(|taken| taken.tensor == "query");
        assert_eq!(taken.map(|taken| taken.step.as_str()), Some(step), "{report:?}");
    }
}
