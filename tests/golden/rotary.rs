//! The frequencies of the rotary position embedding: `fixtures/rotary.json`, written by `fixtures/rotary.py`.

use std::fs;
use std::path::Path;

use mha_trace::config::RopeScaling;
use mha_trace::source::frequencies;
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

#[test]
fn every_frequency_is_transformers() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/rotary.json");
    let text = fs::read_to_string(path).expect("readable");
    let fixture: Fixture = serde_json::from_str(&text).expect("records");
    assert!(fixture.records.len() >= 30, "only {} records", fixture.records.len());
    let (mut all, mut off) = (0, 0);
    for record in fixture.records {
        let Record { dims, base, scaling, positions, bits, attention_factor } = record;
        let place = format!("dims {dims}, base {base}, {scaling:?}, {positions} positions");
        let ours = frequencies(dims, base, scaling.as_ref(), positions).expect("numbers");
        assert_eq!(ours.len(), bits.len(), "{place}");
        for (at, (ours, theirs)) in ours.iter().zip(&bits).enumerate() {
            let apart = ours.to_bits().abs_diff(*theirs);
            if apart > 0 {
                println!("{place}: {at} {apart}");
            }
            all += 1;
            off += usize::from(apart > 0);
        }
        let factor = scaling.as_ref().map_or(1.0, RopeScaling::attention_factor);
        let apart = (factor - attention_factor).abs();
        if apart > 0.0 {
            println!("{place} AF {apart}");
        }
        assert!(apart <= f64::EPSILON * attention_factor, "{place}: {factor}");
    }
    println!("{off} of {all}");
}
