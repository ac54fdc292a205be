//! Every format keeps every bit.

use candle_core::{DType, Device, Tensor};
use mha_trace::Sources;
use mha_trace::file::{Entry, Output, Record};
use mha_trace::{Run, Settings, to_record};
use proptest::prelude::*;

use super::common::bits;
use super::reading::entry;
use super::strategy::cases;

const JSON: &str = "run.json";
const NPZ: &str = "run.npz";

/// Writes the record and reads it back.
fn there_and_back(record: &Record, name: &str) -> Record {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join(name);
    Output::create(&path).and_then(|output| output.write(record)).expect("written");
    Record::read(&path).expect("reads back")
}

/// The bits, all NaN alike where `nan_is_nan`.
fn comparable(tensor: &Tensor, nan_is_nan: bool) -> Vec<u64> {
    let nan = |bits: u64| match tensor.dtype() {
        DType::F64 => f64::from_bits(bits).is_nan(),
        DType::F32 => u32::try_from(bits).is_ok_and(|bits| f32::from_bits(bits).is_nan()),
        _ => false,
    };
    bits(tensor)
        .into_iter()
        .map(|bits| if nan_is_nan && nan(bits) { u64::MAX } else { bits })
        .collect()
}

fn assert_same(left: &Record, right: &Record, name: &str) {
    // The cache's length is told by its tensors.
    let config =
        |record: &Record| record.config.clone().map(|config| Settings { past_len: None, ..config });
    assert_eq!(config(left), config(right));
    assert_eq!(left.entries.len(), right.entries.len());
    for (left, right) in left.entries.iter().zip(&right.entries) {
        assert_eq!(left.name, right.name);
        // npz has no place for these.
        if name != NPZ {
            assert_eq!((&left.axes, &left.formula), (&right.axes, &right.formula));
        }
        assert_eq!(left.tensor.dtype(), right.tensor.dtype(), "{}", left.name);
        assert_eq!(left.tensor.dims(), right.tensor.dims(), "{}", left.name);
        // JSON has one NaN, without sign or payload.
        let bits = |entry: &Entry| comparable(&entry.tensor, name == JSON);
        assert_eq!(bits(left), bits(right), "{}", left.name);
    }
}

fn made(name: &str, tensor: candle_core::Result<Tensor>) -> Entry {
    entry(name, tensor.expect("made"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// A file that is written while its run is made is the one that is written of the whole trace, to the byte.
    #[test]
    fn a_file_that_grows_is_the_whole_one(case in cases()) {
        let run = case.run_with(Vec::new());
        let folder = tempfile::tempdir().expect("a temporary folder");
        let paths = ["whole", "grown"].map(|name| folder.path().join(name).with_extension("safetensors"));
        let [whole, grown] = paths.each_ref().map(|path| Output::create(path).expect("writable"));
        whole.write(&to_record(&run.trace().expect("runs"), run.config())).expect("writes");
        run.write(grown).expect("writes");
        let [whole, grown] = paths.map(|path| std::fs::read(path).expect("readable"));
        prop_assert!(whole == grown);
    }

    #[test]
    fn a_run_survives_every_format_and_redoes_itself(case in cases()) {
        let run = case.run_with(Vec::new());
        let trace = run.trace().expect("the case runs");
        let record = to_record(&trace, run.config());
        for name in [JSON, "run.safetensors", NPZ] {
            let read = there_and_back(&record, name);
            assert_same(&record, &read, name);
            let (settings, sources) = Sources::of_record(&read, &Settings::default()).expect("loads");
            let again = Run::new(&settings, sources).and_then(|run| run.trace()).expect("runs again");
            for (step, again) in trace.steps().iter().zip(again.steps()) {
                prop_assert_eq!(bits(&step.value), bits(&again.value), "{}", step.name);
            }
        }
    }

    #[test]
    fn any_bits_survive(singles in prop::collection::vec(any::<u32>(), 1..60), doubles in prop::collection::vec(any::<u64>(), 1..60)) {
        let singles: Vec<f32> = singles.into_iter().map(f32::from_bits).collect();
        let doubles: Vec<f64> = doubles.into_iter().map(f64::from_bits).collect();
        let booleans: Vec<u8> = singles.iter().map(|single| u8::from(single.is_sign_negative())).collect();
        let record = Record {
            config: None,
            entries: vec![
                made("singles", Tensor::from_slice(&singles, (1, singles.len()), &Device::Cpu)),
                made("doubles", Tensor::from_slice(&doubles, (doubles.len(), 1), &Device::Cpu)),
                made("booleans", Tensor::from_slice(&booleans, booleans.len(), &Device::Cpu)),
            ],
        };
        for name in [JSON, "run.safetensors", NPZ] {
            assert_same(&record, &there_and_back(&record, name), name);
        }
    }
}
