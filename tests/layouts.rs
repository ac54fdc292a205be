//! Layers in the files and layouts of other ecosystems give what PyTorch makes of them.

mod common;

use std::path::Path;

use mha_trace::check::{Tolerances, check};
use mha_trace::file::Bundle;
use mha_trace::foreign::NameMap;
use mha_trace::{Settings, Sources};
use serde_json::Value;

#[test]
fn every_layout_gives_the_output_of_its_layer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/layouts");
    let text = std::fs::read_to_string(folder.join("layouts.json")).expect("readable");
    let entries: Vec<Value> = serde_json::from_str(&text).expect("a list");
    assert!(entries.len() >= 9, "only {}", entries.len());
    for entry in entries {
        let run = entry["run"].as_str().expect("a name");
        let report = common::checked(&folder, run.as_ref(), &entry["args"]);
        assert_eq!(report["verdict"], "same", "{run}");
        assert_eq!(report["steps"][0]["name"], "output", "{run}");
        // What rounding would excuse beyond the tolerances does not count.
        assert_eq!(report["steps"][0]["mismatched"], 0, "{run}: {}", report["steps"][0]);
    }
}

/// Weights in few bits are scaled back by what stands beside them, and weights that are no codes are left as they are. Scales
/// that are left out, inverted or applied twice are named.
#[test]
fn weights_in_few_bits_are_read_with_their_scales() {
    for (entry, report) in common::all_checked("weight_scales") {
        let name = entry["name"].as_str().expect("a name");
        if let Some(told) = entry["told"].as_str() {
            assert!(report.to_string().contains(told), "{name}: {report}");
        }
        if entry["found"].is_string() {
            assert_eq!(report["verdict"], "differs", "{name}");
            assert_eq!(report["diagnosis"][0]["id"], entry["found"], "{name}: {report}");
            continue;
        }
        assert_eq!(report["verdict"], "same", "{name}");
        assert_eq!(report["steps"][0]["mismatched"], 0, "{name}: {}", report["steps"][0]);
        let told = report.to_string();
        assert_eq!(
            told.contains("scale of self_attn.q_proj.weight"),
            name != "float",
            "{name}: {told}"
        );
    }
}

#[test]
fn a_scale_of_no_shape_that_its_weight_has_is_refused() {
    let folder = common::fixtures("weight_scales");
    let flags = Settings { heads: Some(4), ..Settings::default() };
    let (path, tolerances) = (folder.join("refused.safetensors"), Tolerances::default());
    let refused = check(&path, &flags, &NameMap::default(), &tolerances).expect_err("refused");
    let what = "self_attn.q_proj.weight_scale_inv: is [5, 3], which is no scale of self_attn.q_proj.weight";
    assert!(refused.to_string().contains(what), "{refused}");
}

/// A model's layer of a number is llama.cpp's block of that number, whatever the model calls it.
#[test]
fn the_layer_of_a_model_is_a_block_of_a_gguf_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/layouts");
    let settings = |prefix: &str| Settings {
        weights: Some(folder.join("gguf-f32.gguf").to_string_lossy().into_owned().into()),
        prefix: Some(prefix.to_owned()),
        ..Settings::default()
    };
    assert!(Sources::load(&settings("model.layers.0.self_attn")).is_ok());
    assert!(Sources::load(&settings("model.layers.7.self_attn")).is_err());
}

/// A GGUF file that is cut short, or states what cannot be, is an error.
#[test]
fn a_broken_gguf_file_is_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/layouts/gguf-q8_0.gguf");
    let whole = std::fs::read(path).expect("readable");
    let refused = |bytes: Vec<u8>| {
        let read = Bundle::from_bytes(Path::new("x.gguf"), bytes).and_then(Bundle::read);
        read.expect_err("must be refused").to_string()
    };
    for length in (0..whole.len()).step_by(61) {
        let what = refused(whole[..length].to_vec());
        let is_told = what.contains("not a GGUF file") || what.contains("ends before");
        assert!(is_told, "{length} bytes: {what}");
    }
    // One more setting, an alignment of 0.
    let mut bytes = whole[..16].to_vec();
    let count = u64::from_le_bytes(whole[16..24].try_into().expect("8 bytes"));
    bytes.extend((count + 1).to_le_bytes());
    bytes.extend(17_u64.to_le_bytes());
    bytes.extend(b"general.alignment");
    bytes.extend([4_u32, 0].map(u32::to_le_bytes).concat());
    bytes.extend(&whole[24..]);
    assert_eq!(refused(bytes), "x.gguf: its header states an alignment of 0");
}

/// Tensors begin at the next multiple of the alignment behind the header ("GGUF", ggml's specification of the format), which
/// is where the header ends if that is one.
#[test]
fn the_data_of_a_gguf_file_begins_at_its_alignment() {
    let mut ends = std::collections::BTreeSet::new();
    for length in 1..=40_usize {
        let mut bytes = b"GGUF".to_vec();
        bytes.extend(3_u32.to_le_bytes());
        // One tensor and no settings: its name, its axes, its type (F32), and where it begins in the data.
        bytes.extend([1_u64, 0].map(u64::to_le_bytes).concat());
        bytes.extend((length as u64).to_le_bytes());
        bytes.extend(vec![b'a'; length]);
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(3_u64.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        ends.insert(bytes.len() % 32);
        bytes.resize(bytes.len().next_multiple_of(32), 0xff);
        bytes.extend([1.0_f32, 2.0, 3.0].map(f32::to_le_bytes).concat());
        // Behind the data, so that one read too far along is no end of the file.
        bytes.extend([0xff; 64]);
        let read = Bundle::from_bytes(Path::new("x.gguf"), bytes).and_then(Bundle::read);
        let entry = &read.expect("a GGUF file").entries[0];
        let numbers = entry.tensor.to_vec1::<f32>().expect("numbers");
        assert_eq!((entry.name.len(), numbers), (length, vec![1.0, 2.0, 3.0]));
    }
    assert_eq!(ends.len(), 32, "every remainder, 0 among them");
}
