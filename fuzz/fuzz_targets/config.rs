#![no_main]

//! A file of settings, or a recorded run.

use mha_trace::Sources;
use mha_trace::file::read_config;
use mha_trace_fuzz::{fuzz, json, run, told, written};

fn config(bytes: &[u8]) {
    let settings =
        told(read_config(&written("config.json", bytes))).and_then(|record| record.config);
    if let Some(settings) = settings {
        run(&settings, Sources::default());
    }
}

fuzz!(config, json);
