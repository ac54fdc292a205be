#![no_main]

//! What is typed to name a cell, rows of queries, tensors, and tolerances.

use std::sync::LazyLock;

use mha_trace::check::PerStep;
use mha_trace::config::{Queries, Tokens};
use mha_trace::foreign::NameMap;
use mha_trace::program::{Cell, Trace};
use mha_trace::view::{Asked, View, explanation, step_json};
use mha_trace::{Config, Run, Settings, Sources};
use mha_trace_fuzz::{fuzz, told};

static RUN: LazyLock<(Trace, Config)> = LazyLock::new(|| {
    let tokens = ["the", "cat", "sat", "cat"].map(str::to_owned).to_vec();
    let settings = Settings { tokens: Some(Tokens::Same(tokens)), ..Settings::default() };
    let run = Run::new(&settings, Sources::default()).expect("valid");
    (run.trace().expect("runs"), run.config().clone())
});

fn asked(bytes: &[u8]) {
    let (trace, config) = &*RUN;
    let text = String::from_utf8_lossy(bytes);
    if let Ok(cell) = text.parse::<Cell>() {
        told(trace.explain(&cell));
    }
    if let Ok(rows) = text.parse::<Queries>() {
        told(rows.of(4));
        assert_eq!(rows.to_string().parse(), Ok(rows));
    }
    if let Ok(map) = text.parse::<NameMap>() {
        assert!(!map.to_string().is_empty());
    }
    let _ = text.parse::<PerStep>();
    let Ok(asked) = text.parse::<Asked>() else { return };
    if let Some(step) = told(asked.step(trace)) {
        let _ = step_json(trace, step);
    }
    if let Some(Some(cell)) = told(asked.cell(trace, config.labels().as_ref())) {
        let view = View { depth: 9, ..View::default() };
        told(explanation(trace, config, &cell, &view));
    }
}

fuzz!(asked, mha_trace_fuzz::asked);
