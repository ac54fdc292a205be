#![no_main]

//! Settings as flags give them: lines of `key=value`.

use mha_trace::config::Setting;
use mha_trace::{Settings, Sources};
use mha_trace_fuzz::{fuzz, run, settings_text};

fn settings(bytes: &[u8]) {
    let mut settings = Settings::default();
    for line in String::from_utf8_lossy(bytes).lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let Some(setting) = Setting::named(key) else { continue };
        if let Err(what) = setting.set(&mut settings, value) {
            assert!(!what.is_empty());
        }
    }
    run(&settings, Sources::default());
}

fuzz!(settings, settings_text);
