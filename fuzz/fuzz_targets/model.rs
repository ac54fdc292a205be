#![no_main]

//! The `config.json` of a model, and its first layers.

use mha_trace::config::Place;
use mha_trace::foreign::with_model;
use mha_trace::{Settings, Sources};
use mha_trace_fuzz::{fuzz, json, run, told, written};

fn model(bytes: &[u8]) {
    let path = written("config.json", bytes).display().to_string();
    for layer in [None, Some(0), Some(1), Some(5)] {
        let model_config = Some(Place(path.clone()));
        let settings = Settings { model_config, layer, ..Settings::default() };
        if let Some(settings) = told(with_model(settings)) {
            run(&settings, Sources::default());
        }
    }
}

fuzz!(model, json);
