//! The digits that two notebooks print: ours, printed as they print, are the same text.

use std::fs;
use std::path::Path;

use candle_core::{D, DType, Device, Tensor};
use mha_trace::Run;
use mha_trace::Sources;
use mha_trace::config::Preset;
use mha_trace::{Settings, Trace};
use serde::Deserialize;
use serde_json::Value;

use super::common::{Named, values};
use super::{fixtures, name};

#[derive(Deserialize)]
struct Notebook {
    preset: Preset,
    decimals: usize,
    printed: Vec<Printed>,
}

/// What a notebook prints of a step, from the index `at` on.
#[derive(Deserialize)]
struct Printed {
    step: String,
    at: Vec<usize>,
    values: Value,
}

#[test]
fn every_printed_number_is_ours() {
    let notebooks = fixtures("notebooks");
    assert_eq!(notebooks.len(), 2);
    for path in notebooks {
        check(&path);
    }
}

fn check(path: &Path) {
    let text = fs::read_to_string(path).expect("readable");
    let Notebook { preset, decimals, printed } = serde_json::from_str(&text).expect("a notebook");
    assert!(!printed.is_empty(), "{} prints nothing", name(path));
    let settings = Settings { preset: Some(preset), ..Settings::default() };
    let run = Run::new(&settings, Sources::default()).expect("a preset is valid");
    let trace = run.trace().expect("a preset runs");
    for Printed { step, at, values } in printed {
        let ours = part(&shown(&run, &trace, &step), &at);
        let place = format!("{}: {step}{at:?}", name(path));
        assert_eq!(our_text(&ours, decimals), their_text(&values, decimals), "{place}");
    }
}

/// A step, or what the notebook derives from one.
fn shown(run: &Run, trace: &Trace, step: &str) -> Tensor {
    let value = |name| &trace.named(name).unwrap_or_else(|| panic!("no step {name}")).value;
    match step {
        "scale" => Tensor::new(1.0 / run.config().scale_factor(), &Device::Cpu).expect("a number"),
        "row_sums" => value("weights").sum(D::Minus1).expect("rows have a sum"),
        step => value(step).clone(),
    }
}

fn part(tensor: &Tensor, at: &[usize]) -> Tensor {
    at.iter().fold(tensor.clone(), |tensor, index| tensor.get(*index).expect("within the tensor"))
}

/// The tensor as nested rows of printed numbers.
fn our_text(tensor: &Tensor, decimals: usize) -> String {
    if tensor.rank() > 0 {
        let rows = (0..tensor.dim(0).expect("has axes")).map(|at| part(tensor, &[at]));
        let rows: Vec<String> = rows.map(|row| our_text(&row, decimals)).collect();
        return format!("[{}]", rows.join(", "));
    }
    match (tensor.dtype(), values(tensor)[0]) {
        (DType::U8, bit) => (bit > 0.0).to_string(),
        (_, number) => format!("{number:.decimals$}"),
    }
}

/// The notebook's numbers in the same way: its JSON leaves out zeros at the end.
fn their_text(value: &Value, decimals: usize) -> String {
    match value {
        Value::Array(rows) => {
            let rows: Vec<String> = rows.iter().map(|row| their_text(row, decimals)).collect();
            format!("[{}]", rows.join(", "))
        }
        Value::Number(number) => format!("{:.decimals$}", number.as_f64().expect("fits")),
        other => other.to_string(),
    }
}
