#![no_main]

//! A recorded run that is checked, and run again.

use mha_trace::check::{Tolerances, check};
use mha_trace::file::read_config;
use mha_trace::foreign::NameMap;
use mha_trace::{Settings, Sources};
use mha_trace_fuzz::{fuzz, json, run, told, written};

fn record(bytes: &[u8]) {
    let path = written("run.json", bytes);
    let (flags, map) = (Settings::default(), NameMap::default());
    let Some(record) = told(read_config(&path)) else { return };
    let Some((settings, sources)) = told(Sources::again(&record, &flags)) else { return };
    // What is large is not checked here, for its time.
    if run(&settings, sources).is_some() {
        told(check(&path, &flags, &map, &Tolerances::default()));
    }
}

fuzz!(record, json);
