//! Where NaN and infinities start, and why: the first cell of a dump that has them, and its cause.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};
use mha_trace::Sources;
use mha_trace::check::{Cause, NonFinite, Place, Tolerances, check};
use mha_trace::config::{DType as RunType, EmptyRow, Fill};
use mha_trace::foreign::NameMap;
use mha_trace::{Run, Settings};

type Tensors = HashMap<String, Tensor>;

/// A run of batch 2, 3 tokens, 2 heads of 2 features, of the second item the first key alone, with −∞ for the
/// masked scores.
fn settings() -> Settings {
    Settings {
        batch: Some(2),
        seq_len: Some(3),
        d_model: Some(4),
        heads: Some(2),
        lengths: Some(vec![3, 1]),
        mask_fill: Some(Fill(f64::NEG_INFINITY)),
        ..Settings::default()
    }
}

fn run(settings: &Settings, x: f64) -> Tensors {
    let run = Run::new(settings, Sources::default()).expect("valid");
    let given = run.trace().expect("runs");
    let mut values: Tensors = HashMap::new();
    for step in given.steps() {
        let value = match step.name.as_str() {
            "x" => (&step.value * x).expect("scales"),
            _ if step.inputs.is_empty() => step.value.clone(),
            _ => {
                let inputs: Vec<&Tensor> =
                    given.read_by(step).iter().map(|read| &values[read.name.as_str()]).collect();
                step.op.eval(&inputs).expect("computes")
            }
        };
        values.insert(step.name.to_string(), value);
    }
    values
}

fn only(mut values: Tensors, steps: &[&str]) -> Tensors {
    let is_given = |name: &str| name.starts_with("w_") || name == "x" || name == "mask";
    values.retain(|name, _| is_given(name) || steps.contains(&name.as_str()));
    values
}

/// The tensors with one cell of a step replaced.
fn with(mut values: Tensors, step: &str, index: &[usize], value: f64) -> Tensors {
    let old = &values[step];
    let mut cells: Vec<f64> =
        old.flatten_all().and_then(|flat| flat.to_dtype(DType::F64)?.to_vec1()).expect("numbers");
    let at = index.iter().zip(old.dims()).fold(0, |at, (index, dim)| at * dim + index);
    cells[at] = value;
    let new = Tensor::from_vec(cells, old.shape(), &Device::Cpu)
        .and_then(|new| new.to_dtype(old.dtype()));
    values.insert(step.to_owned(), new.expect("fits"));
    values
}

fn found(values: &Tensors, settings: &Settings) -> Option<NonFinite> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("dump.safetensors");
    candle_core::safetensors::save(values, &path).expect("written");
    check(&path, settings, &NameMap::default(), &Tolerances::default()).expect("checks").non_finite
}

fn place(found: &Place) -> (&str, &[usize]) {
    (&found.step, &found.index)
}

#[test]
fn the_fill_of_a_mask_belongs_where_it_is() {
    assert_eq!(found(&run(&settings(), 1.0), &settings()), None);
}

#[test]
fn a_given_one_is_told_first() {
    let values = with(run(&settings(), 1.0), "x", &[1, 2, 0], f64::NAN);
    let found = found(&values, &settings()).expect("there is one");
    assert_eq!((place(&found.place), found.cause), (("x", &[1, 2, 0][..]), Cause::Given));
    assert!(found.value.is_nan() && found.origin.is_none());
}

#[test]
fn a_row_without_a_visible_key_is_told() {
    let settings = Settings { lengths: Some(vec![3, 0]), ..settings() };
    let values = run(&settings, 1.0);
    let weights = found(&values, &settings).expect("there is one");
    assert_eq!(place(&weights.place), ("weights", &[1, 0, 0, 0][..]));
    assert_eq!((weights.cause, weights.origin), (Cause::FullyMasked, None));

    let output = found(&only(values, &["scores", "output"]), &settings).expect("there is one");
    assert_eq!(place(&output.place), ("output", &[1, 0, 0][..]));
    assert_eq!(output.cause, Cause::FullyMasked);
    let origin = output.origin.expect("the recomputed run has it");
    assert_eq!(place(&origin), ("weights", &[1, 0, 0, 0][..]));
}

/// What was meant has no NaN; the mask alone tells why the dump has.
#[test]
fn a_masked_row_is_told_where_the_right_run_has_no_nan() {
    let settings = Settings { lengths: Some(vec![3, 0]), ..settings() };
    let values = only(run(&settings, 1.0), &["output"]);
    let meant = Settings { empty_rows: Some(EmptyRow::Zero), ..settings };
    let found = found(&values, &meant).expect("there is one");
    assert_eq!(place(&found.place), ("output", &[1, 0, 0][..]));
    assert_eq!((found.cause, found.origin), (Cause::FullyMasked, None));
}

#[test]
fn an_overflow_of_f32_is_told() {
    let values = run(&settings(), 1e20);
    let scores = found(&values, &settings()).expect("there is one");
    assert_eq!(place(&scores.place), ("scores_raw", &[0, 0, 0, 0][..]));
    assert_eq!(scores.cause, Cause::Overflow(DType::F32));
    assert!(scores.value.is_infinite());

    let output = found(&only(values, &["weights", "output"]), &settings()).expect("there is one");
    assert_eq!((place(&output.place).0, output.cause), ("weights", Cause::Overflow(DType::F32)));
    assert_eq!(output.origin.map(|origin| origin.step).as_deref(), Some("scores_raw"));
}

#[test]
fn an_overflow_of_f16_is_told() {
    let settings = Settings { dtype: Some(RunType::F32), ..settings() };
    let half = |values: Tensors| -> Tensors {
        let cast = |value: Tensor| {
            if value.dtype().is_float() { value.to_dtype(DType::F16) } else { Ok(value) }
        };
        values.into_iter().map(|(name, value)| (name, cast(value).expect("casts"))).collect()
    };
    let values = half(run(&settings, 500.0));
    let scores = found(&values, &settings).expect("there is one");
    assert_eq!((place(&scores.place).0, scores.cause), ("scores_raw", Cause::Overflow(DType::F16)));

    // In f16 the softmax of an infinite score is NaN; of that no step before the output is known.
    let output = only(with(values, "output", &[0, 1, 2], f64::NAN), &["output"]);
    let output = found(&output, &settings).expect("there is one");
    assert_eq!(
        (place(&output.place), output.cause),
        (("output", &[0, 1, 2][..]), Cause::Overflow(DType::F16))
    );
    assert_eq!(output.origin.map(|origin| origin.step).as_deref(), Some("scores_raw"));
}

#[test]
fn an_infinity_that_is_passed_on_is_told() {
    let mut values = run(&settings(), 1.0);
    values.insert("weights".to_owned(), values["masked_scores"].clone());
    let found = found(&values, &settings()).expect("there is one");
    assert_eq!(place(&found.place), ("weights", &[0, 0, 0, 1][..]));
    assert_eq!(found.cause, Cause::Inherited);
}

#[test]
fn what_cannot_be_explained_is_not() {
    let values = with(run(&settings(), 1.0), "scores", &[0, 1, 2, 0], f64::NAN);
    let cell = found(&values, &settings()).expect("there is one");
    assert_eq!((place(&cell.place), cell.cause), (("scores", &[0, 1, 2, 0][..]), Cause::Unknown));

    let values = only(with(values, "output", &[1, 0, 3], f64::INFINITY), &["output"]);
    let cell = found(&values, &settings()).expect("there is one");
    assert_eq!((place(&cell.place), cell.cause), (("output", &[1, 0, 3][..]), Cause::Unknown));
}
