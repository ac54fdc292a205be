//! The core alone: what kernels and caches hold, from queries, keys and values on. Right dumps are called the same, and
//! the mistakes of wrong ones are named.

mod common;

use std::sync::LazyLock;

use candle_core::Tensor;
use mha_trace::Settings;
use mha_trace::check::{Tolerances, check};
use mha_trace::config::Mask;
use mha_trace::file::{Entry, Output, Record};
use mha_trace::foreign::NameMap;
use serde_json::{Value, json};

/// Every dump with its report.
static ALL: LazyLock<Vec<(Value, Value)>> = LazyLock::new(|| common::all_checked("core"));

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// The names of what a report found, those that give the same numbers among them.
fn found(report: &Value) -> Vec<&str> {
    let all = list(&report["diagnosis"]);
    let ids = all.flat_map(|finding| std::iter::once(&finding["id"]).chain(list(&finding["also"])));
    ids.map(|id| id.as_str().expect("a name")).collect()
}

#[test]
fn right_dumps_are_the_same_and_wrong_ones_named() {
    assert!(ALL.len() >= 210, "only {}", ALL.len());
    let mut wrong = Vec::new();
    for (entry, report) in &*ALL {
        let (name, what) = (&entry["name"], &entry["what"]);
        let found = found(report);
        let meant = entry["found"].as_str().expect("text");
        let is_right = if meant == "same" {
            // In 16 bits the differences are noise, which is told; so is what a step was rounded to that was not recorded.
            let is_told = found == ["precision"] && entry["told"].is_string();
            let is_noise = found.is_empty() || found == ["half-precision"] || is_told;
            let whole = report.to_string();
            let is_read_so = entry["told"].as_str().is_none_or(|own| whole.contains(own));
            let is_same = report["verdict"] == "same" && report["not_checked"].is_array();
            is_same && is_noise && is_read_so
        } else {
            // Without a name of its own it is told in a sentence.
            let told = report["diagnosis"].to_string();
            let words = [
                "rescaled",
                "are read as fp8 (e4m3fnuz)",
                "averaged",
                "not divided",
                "exchange",
                "stands for that of all",
                "exchange their weights",
                "is 0, not −inf",
            ];
            let is_told = meant != "replaced" || words.iter().any(|word| told.contains(word));
            let is_told = is_told || entry["told"].is_string();
            let is_told = is_told && entry["told"].as_str().is_none_or(|own| told.contains(own));
            report["verdict"] == "differs" && found.contains(&meant) && is_told
        };
        if !is_right {
            wrong.push(format!("{name} ({what}): {} {found:?}, not {meant}", report["verdict"]));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Every tensor beside queries, keys and values is compared or understood.
#[test]
fn nothing_that_kernels_hold_is_left_aside() {
    for (entry, report) in &*ALL {
        let name = entry["name"].as_str().expect("a name");
        let left: Vec<&Value> = report["not_checked"].as_array().expect("a list").iter().collect();
        let expected = match name {
            // Rotation that nobody speaks of has been done before. What was written in few bits is compared with these.
            "hooks-rotary"
            | "bits-written"
            | "bits-wrong-saturated"
            | "bits-wrong-other-scale"
            | "pages-padding"
            | "pages-wrong-padding"
            | "pages-wrong-not-written"
            | "serving-wrong-last-unwritten"
            | "serving-scales-halves"
            | "serving-wrong-scales-halves"
            | "serving-wrong-high-halves"
            | "serving-wrong-codes-wrap"
            | "serving-wrong-scale-grows"
            | "kernels-wrong-slot-of-two"
            | "operands-pages-anew"
            | "operands-wrong-pages-grown"
            | "memory-wrong-codes-cut"
            // They have more keys or fewer than the lengths say, or other ones than splits have.
            | "kernels-wrong-length-longer"
            | "kernels-wrong-length-shorter"
            | "kernels-unsaid-stripes"
            // Nothing scales back what is given.
            | "kernels-plain-e5m2"
            | "kernels-wrong-plain-e5m2"
            // Splits are kept without the sink, which is counted in the merge.
            | "serving-sink-in-merge"
            | "serving-wrong-merge-sink" => 2,
            // The mean of the keys, which nothing that was recorded has.
            "serving-scales-mean-aside"
            | "kernels-wrong-scales-grow"
            | "operands-wrong-unsaturated"
            | "operands-wrong-means"
            | "smooth-k_mean-without"
            | "smooth-k_mean-whole"
            | "smooth-km-without"
            | "smooth-km-whole"
            | "smooth-bits-of-smoothed"
            | "smooth-nan"
            | "smooth-empty" => 1,
            // Tiles in another order.
            "serving-tiles-backwards" => 3,
            // The other layer.
            "hooks-0" | "hooks-1" => 6,
            _ => 0,
        };
        assert_eq!(left.len(), expected, "{name}: {left:?}");
        let missing = report["steps"].as_array().expect("a list").iter();
        assert!(missing.into_iter().all(|step| step["status"] != "missing"), "{name}");
    }
}

/// Large codes leave rounding of a size that the tolerance of f32 does not know.
#[test]
fn codes_with_a_zero_point_are_right_but_for_rounding() {
    let flags = json!(["--mask", "none"]);
    let file = "smooth-v_zero_point.rounded.safetensors";
    let report = common::checked(&common::fixtures("core"), file.as_ref(), &flags);
    assert_eq!((&report["verdict"], found(&report)), (&json!("same"), vec!["noise"]), "{report}");
}

/// What a check of a fixture is refused with where one tensor is another.
fn refused(
    file: &str,
    name: &str,
    other: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> String {
    let mut record = Record::read(&common::fixtures("core").join(file)).expect("readable");
    let changed = |own: &mut Entry| own.tensor = other(&own.tensor).expect("another tensor");
    record.entries.iter_mut().filter(|own| own.name == name).for_each(changed);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("changed.npz");
    Output::create(&path).and_then(|output| output.write(&record)).expect("written");
    let tolerances = Tolerances::default();
    let refused = check(&path, &Settings::default(), &NameMap::default(), &tolerances);
    refused.expect_err("refused").to_string()
}

/// A mask without cells is refused, whatever its type.
#[test]
fn a_mask_without_cells_is_refused() {
    let told = refused("masks-two-bool.safetensors", "key_padding_mask", |own| own.narrow(1, 0, 0));
    assert!(told.contains("key_padding_mask: is [2, 0], which has no cells"), "{told}");
}

/// A zero point that takes nothing off is told itself, not the scale that it may come without.
#[test]
fn a_zero_point_without_numbers_is_refused() {
    let file = "smooth-v_zero_point.rounded.safetensors";
    let told = refused(file, "v_zero_point", |own| own.flatten_all()?.narrow(0, 0, 0));
    assert!(told.contains("v_zero_point: is empty"), "{told}");
    let told = refused(file, "v_zero_point", |own| own.affine(f64::NAN, 0.0));
    assert!(told.contains("v_zero_point: holds NaN or infinities"), "{told}");
}

/// What codes stand for is not known without their scale, where 1 is not it.
#[test]
fn codes_with_a_zero_point_and_no_scale_are_refused() {
    let (path, tolerances) = ("smooth-no-scale.refused.safetensors", Tolerances::default());
    let flags = Settings { mask: Some(Mask::Causal), ..Settings::default() };
    let path = common::fixtures("core").join(path);
    let refused = check(&path, &flags, &NameMap::default(), &tolerances).expect_err("refused");
    let what = "k_scale: is not recorded, though k holds whole numbers, and k_zero_point is their";
    assert!(refused.to_string().contains(what), "{refused}");
}

#[test]
fn a_dump_in_16_bits_is_held_to_the_tolerance_of_flash_attention() {
    for (file, flags, within) in [
        ("sdpa-flash-bfloat16.safetensors", ["--mask", "causal"], true),
        ("sdpa-flash-float16.safetensors", ["--mask", "causal"], true),
        ("rough-bfloat16.safetensors", ["--mask", "none"], false),
    ] {
        let flags = json!([&flags[..], &["--flash-tolerance"]].concat());
        let report = common::checked(&common::fixtures("core"), file.as_ref(), &flags);
        let found = &report["flash_tolerance"][0];
        let number = |key: &str| found[key].as_f64().expect("a number");
        assert_eq!(found["step"], "head_outputs", "{file}");
        assert_eq!(number("own") <= 2.0 * number("pytorch"), within, "{file}: {found}");
        assert_eq!(report["verdict"] == "same", within, "{file}");
    }
}
