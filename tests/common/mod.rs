//! What the tests read tensors with, and how they run `check`.

#![allow(dead_code, reason = "not every test reads with all of it")]

pub mod dump;
pub mod transcript;

use std::path::{Path, PathBuf};
use std::process::Command;

use candle_core::{DType, Tensor};
use mha_trace::program::{Name, Step, Trace};
use rayon::prelude::*;
use serde_json::Value;

/// What `check` reports of a dump with the flags that say what was meant, run in `folder`. It exits as it reports.
pub fn checked(folder: &Path, dump: &Path, flags: &Value) -> Value {
    let flags = flags.as_array().expect("a list").iter();
    let output = Command::new(env!("CARGO_BIN_EXE_mha-trace"))
        .args(["check", "--format", "json"])
        .arg(dump)
        .args(flags.map(|flag| flag.as_str().expect("text")))
        .current_dir(folder)
        .env("LC_ALL", "C")
        .output()
        .expect("runs");
    let (file, said) = (dump.display(), String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{file}: {error}: {said}"));
    let report = report["files"][0].clone();
    assert_eq!(output.status.code(), Some(i32::from(report["verdict"] != "same")), "{file}");
    report
}

/// A folder of fixtures.
pub fn fixtures(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(folder)
}

/// Every dump of a folder of fixtures that has a list: its entry in it, and the report of `check` with the flags that say what
/// was meant.
pub fn all_checked(folder: &str) -> Vec<(Value, Value)> {
    let at = fixtures(folder);
    let text = std::fs::read_to_string(at.join(folder).with_extension("json")).expect("readable");
    let entries: Vec<Value> = serde_json::from_str(&text).expect("a list");
    let check = |entry: Value| {
        let file = format!("{}.safetensors", entry["name"].as_str().expect("a name"));
        let report = checked(&at, file.as_ref(), &entry["args"]);
        (entry, report)
    };
    entries.into_par_iter().map(check).collect()
}

/// The bit patterns of all elements, row-major: −0 is not 0, and a NaN equals only itself.
pub fn bits(tensor: &Tensor) -> Vec<u64> {
    let flat = tensor.flatten_all().expect("any tensor flattens");
    match flat.dtype() {
        DType::U8 => flat.to_vec1::<u8>().expect("u8").into_iter().map(u64::from).collect(),
        DType::F32 => {
            let values = flat.to_vec1::<f32>().expect("f32");
            values.into_iter().map(|value| u64::from(value.to_bits())).collect()
        }
        DType::F64 => flat.to_vec1::<f64>().expect("f64").into_iter().map(f64::to_bits).collect(),
        other => panic!("no step is of type {other:?}"),
    }
}

/// The values of all elements, row-major. Widening is exact.
pub fn values(tensor: &Tensor) -> Vec<f64> {
    let wide = tensor.to_dtype(DType::F64).expect("every type widens");
    wide.flatten_all().and_then(|flat| flat.to_vec1()).expect("any tensor flattens")
}

/// Steps by the names that files have for them.
pub trait Named {
    /// The step of that name.
    fn named(&self, name: &str) -> Option<&Step>;
}

impl Named for Trace {
    fn named(&self, name: &str) -> Option<&Step> {
        self.step(Name::named(name)?)
    }
}

/// The place of an element in a tensor of this shape, from where it stands among all, row-major.
pub fn unravel(mut at: usize, shape: &[usize]) -> Vec<usize> {
    let mut place = vec![0; shape.len()];
    for (index, size) in place.iter_mut().zip(shape).rev() {
        (*index, at) = (at % size, at / size);
    }
    place
}
