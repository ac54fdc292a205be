//! PyTorch's generator, call after call: `fixtures/generator.json`, written by `fixtures/draws.py`; and its normal numbers
//! as they are on Arm, `fixtures/generator_arm.json`.

use std::fs;
use std::path::Path;

use mha_trace::config::TorchCpu;
use mha_trace::program::dropout_scale;
use mha_trace::torch::Generator;
use serde::Deserialize;

/// One `torch.manual_seed` and the calls that follow it.
#[derive(Deserialize)]
struct Record {
    seed: u64,
    calls: Vec<Draw>,
}

/// A call, and what came of it: a hash of all values, and the bits of those at the ends.
#[derive(Deserialize)]
struct Draw {
    #[serde(flatten)]
    call: Call,
    hash: String,
    first: Vec<u32>,
    last: Vec<u32>,
    scale: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "call", rename_all = "lowercase")]
enum Call {
    Randn {
        n: usize,
    },
    Rand {
        n: usize,
    },
    Uniform {
        n: usize,
        low: f64,
        high: f64,
    },
    Linear {
        #[serde(rename = "in")]
        inputs: usize,
        #[serde(rename = "out")]
        outputs: usize,
        bias: bool,
    },
    Xavier {
        #[serde(rename = "in")]
        inputs: usize,
        #[serde(rename = "out")]
        outputs: usize,
    },
    Keep {
        n: usize,
        p: f64,
    },
}

#[test]
fn every_draw_is_torchs_with_the_state_carried_over() {
    held("generator.json", 400, TorchCpu::X86);
}

/// The bits are those of glibc, which is what PyTorch's own are on Arm.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn normal_numbers_are_torchs_on_arm() {
    held("generator_arm.json", 100, TorchCpu::Arm);
}

fn held(file: &str, least: usize, cpu: TorchCpu) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(file);
    let text = fs::read_to_string(path).expect("readable");
    let records: Vec<Record> = serde_json::from_str(&text).expect("records");
    assert!(records.len() >= least, "only {} records", records.len());
    for Record { seed, calls } in records {
        assert!(!calls.is_empty(), "seed {seed} draws nothing");
        let mut generator = Generator::of_cpu(seed, cpu);
        for (at, draw) in calls.iter().enumerate() {
            check(&mut generator, draw, &format!("seed {seed}, call {at}, {:?}", draw.call));
        }
    }
}

fn check(generator: &mut Generator, draw: &Draw, place: &str) {
    let drawn = drawn(generator, &draw.call);
    let ends = (&drawn[..drawn.len().min(4)], &drawn[drawn.len().saturating_sub(2)..]);
    assert_eq!(ends, (&draw.first[..], &draw.last[..]), "{place}");
    assert_eq!(fnv1a(&bytes(&drawn, &draw.call)), draw.hash, "{place}");
    if let (Call::Keep { p, .. }, Some(scale)) = (&draw.call, draw.scale) {
        assert_eq!(dropout_scale(*p).to_bits(), scale, "{place}");
    }
}

/// The bits of the values; 0 and 1 for what dropout keeps.
fn drawn(generator: &mut Generator, call: &Call) -> Vec<u32> {
    let values = match *call {
        Call::Keep { n, p } => {
            return generator.dropout_keep(n, p).into_iter().map(u32::from).collect();
        }
        Call::Randn { n } => generator.randn(n),
        Call::Rand { n } => generator.rand(n),
        Call::Uniform { n, low, high } => generator.uniform(n, low, high),
        Call::Xavier { inputs, outputs } => generator.xavier_uniform(inputs, outputs),
        Call::Linear { inputs, outputs, bias } => {
            let mut values = generator.linear_weight(inputs, outputs);
            if bias {
                values.extend(generator.linear_bias(inputs, outputs));
            }
            values
        }
    };
    values.into_iter().map(f32::to_bits).collect()
}

/// What the hash runs over: one byte per element for [`Call::Keep`], little-endian f32 otherwise.
fn bytes(drawn: &[u32], call: &Call) -> Vec<u8> {
    let width = if matches!(call, Call::Keep { .. }) { 1 } else { 4 };
    drawn.iter().flat_map(|bits| bits.to_le_bytes().into_iter().take(width)).collect()
}

/// FNV-1a, 64 bits, as hexadecimal.
fn fnv1a(bytes: &[u8]) -> String {
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}
