//! How long a large run takes in this process, what it is given left out: the first one, and the median of more; and how long it
//! takes to draw 2^24 normal numbers.
//!
//! `cargo bench --bench large -- BATCH SEQ_LEN D_MODEL HEADS RUNS`

use std::time::Instant;

use mha_trace::candle_core::Tensor;
use mha_trace::config::Start;
use mha_trace::file::{Entry, Record};
use mha_trace::torch::Generator;
use mha_trace::{Run, Settings, Sources};

// The allocator of the command-line tool.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// So many numbers are drawn, at last.
const DRAWN: usize = 1 << 24;

fn main() {
    let numbers: Vec<usize> = std::env::args().filter_map(|word| word.parse().ok()).collect();
    let [batch, seq_len, d_model, heads, runs] = numbers.try_into().unwrap_or([8, 512, 512, 8, 10]);
    let settings = Settings {
        batch: Some(batch),
        seq_len: Some(seq_len),
        d_model: Some(d_model),
        heads: Some(heads),
        ..Settings::default()
    };
    let mut generator = Generator::new(42);
    let mut entry = |name: &str, shape: &[usize]| {
        let numbers = generator.randn(shape.iter().product());
        let tensor = Tensor::from_vec(numbers, shape, &mha_trace::candle_core::Device::Cpu);
        Entry::of(name, tensor.expect("as many as the shape has"))
    };
    let weights = ["w_q", "w_k", "w_v", "w_o"].map(|name| entry(name, &[d_model, d_model]));
    let mut entries = vec![entry("x", &[batch, seq_len, d_model])];
    entries.extend(weights);
    let sources = Sources::recorded(&Record { config: None, entries }, Start::Inputs, |_| true);
    let run = Run::new(&settings, sources).expect("the sizes fit");
    let seconds = || {
        let started = Instant::now();
        let trace = run.trace().expect("runs");
        let seconds = started.elapsed().as_secs_f64();
        drop(trace);
        seconds
    };
    let first = seconds();
    let mut others: Vec<f64> = (0..runs.max(1)).map(|_| seconds()).collect();
    others.sort_by(f64::total_cmp);
    println!(
        "first {first:.4} s, median of {} more {:.4} s",
        others.len(),
        others[others.len() / 2]
    );
    let started = Instant::now();
    let numbers = Generator::new(42).randn(DRAWN);
    println!("randn of {} numbers {:.4} s", numbers.len(), started.elapsed().as_secs_f64());
}
