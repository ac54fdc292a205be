//! Numbers that are small as a whole: what PyTorch computed, times a power of 2, which is what it computes of a loss that is so
//! much smaller. Right ones are the same at any size, and wrong ones are not.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Device, Tensor};
use mha_trace::Settings;
use mha_trace::check::{Report, Tolerances, check};
use mha_trace::config::Mask;
use mha_trace::foreign::NameMap;

type Tensors = HashMap<String, Tensor>;

const CAUSAL: Mask = Mask::Causal;

fn fixture(name: &str) -> Tensors {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/gradients");
    let path = folder.join(format!("{name}.safetensors"));
    candle_core::safetensors::load(path, &Device::Cpu).expect("readable")
}

/// The tensors, those of these names multiplied by 2 to the power of `by`.
fn scaled(mut tensors: Tensors, names: &[&str], by: i32) -> Tensors {
    for name in names {
        let scaled = (&tensors[*name] * 2.0_f64.powi(by)).expect("scales");
        tensors.insert((*name).to_owned(), scaled);
    }
    tensors
}

fn report(tensors: &Tensors, tolerances: &Tolerances) -> Report {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("dump.safetensors");
    candle_core::safetensors::save(tensors, &path).expect("written");
    let flags = Settings { mask: Some(CAUSAL), ..Settings::default() };
    check(&path, &flags, &NameMap::default(), tolerances).expect("checks")
}

fn is_same(tensors: &Tensors) -> bool {
    report(tensors, &Tolerances::default()).is_same()
}

/// What is wrong with a tensor that was computed: it is 0, has the other sign, or stands for another.
fn wrong(tensors: &Tensors, name: &str, other: &str) -> [Tensors; 3] {
    let own = &tensors[name];
    let zeros = own.zeros_like().expect("as large");
    let changed = [zeros, own.neg().expect("numbers"), tensors[other].clone()];
    changed.map(|changed| {
        let mut tensors = tensors.clone();
        tensors.insert(name.to_owned(), changed);
        tensors
    })
}

/// Whether the tensors of a fixture are held to their size where those of these names are smaller by a power of 2: right
/// ones are the same, and not so where what is called `name` is wrong, or stands for `other`.
fn assert_held(file: &str, names: &[&str], [name, other]: [&str; 2], by: i32) {
    let right = scaled(fixture(file), names, by);
    assert!(is_same(&right), "{file}, 2^{by}");
    for wrong in wrong(&right, name, other) {
        assert!(!is_same(&wrong), "{file}, 2^{by}");
    }
}

#[test]
fn gradients_of_a_small_loss_are_held_to_their_size() {
    for by in [0, -10, -20, -30] {
        assert_held("right", &["do", "dq", "dk", "dv"], ["dk", "dv"], by);
        let all = ["grad_output", "grad_query", "grad_key", "grad_value"];
        assert_held("sdpa-bf16", &all, ["grad_key", "grad_value"], by);
    }
}

#[test]
fn small_values_are_held_to_their_size() {
    // Below 2^-24, f16 has 0 alone.
    for by in [0, -10, -20] {
        let all = ["value", "attn_output", "grad_query", "grad_key"];
        assert_held("sdpa", &all, ["attn_output", "query"], by);
    }
}

/// What is beyond the stated tolerance is the same if it is rounding, and no type's own tolerance excuses it.
#[test]
fn a_stated_tolerance_holds() {
    let right = fixture("right");
    let mut shifted = right.clone();
    shifted.insert("dq".to_owned(), (&right["dq"] + 4e-6).expect("adds"));
    let stated =
        |atol: &str| Tolerances { atol: atol.parse().expect("a number"), ..Tolerances::default() };
    for atol in ["0", "1e-13", "d_q_heads=1e-7"] {
        assert!(report(&right, &stated(atol)).is_same(), "{atol}");
        assert!(!report(&shifted, &stated(atol)).is_same(), "{atol}");
    }
    assert!(report(&shifted, &stated("1e-3")).is_same());
}

/// Whatever becomes NaN agrees with NaN.
#[test]
fn nothing_is_told_of_nan_alone() {
    let mut tensors = fixture("sdpa");
    let nan = (&tensors["attn_output"] * f64::NAN).expect("scales");
    tensors.retain(|name, _| !name.starts_with("grad_"));
    tensors.insert("attn_output".to_owned(), nan);
    let report = report(&tensors, &Tolerances::default());
    let diagnosis = report.diagnosis.expect("it differs");
    assert!(diagnosis.findings.is_empty(), "{diagnosis:?}");
}
