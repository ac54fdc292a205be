//! The frequencies of the rotary position embedding: `fixtures/rotary.json`, written by `fixtures/rotary.py`.

use std::fs;
use std::path::Path;

use candle_core::DType;
use mha_trace::config::RopeScaling;
use mha_trace::program::Frequencies;
use serde::Deserialize;

#[derive(Deserialize)]
struct Fixture {
    records: Vec<Record>,
}

/// One model's settings, and what its rotary module held after a run.
#[derive(Deserialize)]
struct Record {
    dims: usize,
    base: f64,
    scaling: Option<RopeScaling>,
    positions: usize,
    bits: Vec<u32>,
    attention_factor: f64,
}

/// torch's power is approximate where it is computed by 16 or 32 at a time (with AVX-512, which wrote these): of 733
/// frequencies 5 are the neighbouring number, all of them of 64 or 128 dims.
#[test]
fn every_frequency_is_that_of_transformers_or_its_neighbour() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/rotary.json");
    let text = fs::read_to_string(path).expect("readable");
    let fixture: Fixture = serde_json::from_str(&text).expect("records");
    assert!(fixture.records.len() >= 30, "only {} records", fixture.records.len());
    let (mut all, mut neighbours) = (0, 0);
    for record in fixture.records {
        let Record { dims, base, scaling, positions, bits, attention_factor } = record;
        let place = format!("dims {dims}, base {base}, {scaling:?}, {positions} positions");
        let factor = scaling.as_ref().map_or(1.0, |scaling| scaling.attention_factor(positions));
        let frequencies = Frequencies { dims, base, scaling, positions, dtype: DType::F32 };
        let ours = frequencies.numbers().expect("numbers");
        assert_eq!(ours.len(), bits.len(), "{place}");
        for (pair, (ours, theirs)) in ours.iter().zip(&bits).enumerate() {
            let apart = ours.to_bits().abs_diff(*theirs);
            assert!(apart <= 1, "{place}: pair {pair} is {apart} away");
            neighbours += usize::from(apart == 1);
        }
        all += bits.len();
        let apart = (factor - attention_factor).abs();
        assert!(apart <= f64::EPSILON * attention_factor, "{place}: {factor}");
    }
    assert!(neighbours * 100 <= all, "{neighbours} of {all} differ");
}
