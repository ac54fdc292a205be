//! How long the parts of a run take: drawing, computing, writing.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use mha_trace::Sources;
use mha_trace::config::{Pairing, QkNorm};
use mha_trace::file::write_json;
use mha_trace::torch::Generator;
use mha_trace::view::{Style, View, trace_page};
use mha_trace::{Run, Settings, to_record};

fn run(batch: usize, seq_len: usize, d_model: usize, heads: usize) -> Run {
    let settings = Settings {
        batch: Some(batch),
        seq_len: Some(seq_len),
        d_model: Some(d_model),
        heads: Some(heads),
        ..Settings::default()
    };
    Run::new(&settings, Sources::default()).expect("the sizes fit")
}

fn benches(c: &mut Criterion) {
    c.bench_function("randn of 2^20", |b| b.iter(|| Generator::new(42).randn(black_box(1 << 20))));
    for (batch, seq_len, d_model, heads) in [(1, 4, 8, 2), (4, 128, 256, 8)] {
        let run = run(batch, seq_len, d_model, heads);
        let name = format!("trace of ({batch}, {seq_len}, {d_model}), {heads} heads");
        c.bench_function(&name, |b| b.iter(|| run.trace().expect("runs")));
    }
    let newer = Settings {
        kv_heads: Some(2),
        qk_norm: Some(QkNorm::Rms),
        rope: Some(Pairing::Half),
        ..Settings::from(run(4, 128, 256, 8).config())
    };
    let newer = Run::new(&newer, Sources::default()).expect("the sizes fit");
    c.bench_function("trace of (4, 128, 256), 8 heads, 2 of keys, normed and rotated", |b| {
        b.iter(|| newer.trace().expect("runs"));
    });
    let run = run(1, 64, 64, 4);
    let trace = run.trace().expect("runs");
    let record = to_record(&trace, run.config());
    c.bench_function("tables of (1, 64, 64), 4 heads", |b| {
        let style = Style { width: 100, colors: None, spell: |key, _| key.to_owned() };
        b.iter(|| {
            let mut out = Vec::new();
            for block in trace_page(&trace, run.config(), &View::default()) {
                style.block(&block.expect("read"), &mut out).expect("written");
            }
        });
    });
    c.bench_function("JSON of (1, 64, 64), 4 heads", |b| {
        b.iter(|| write_json(&record, &mut Vec::new()).expect("written"));
    });
}

criterion_group!(all, benches);
criterion_main!(all);
