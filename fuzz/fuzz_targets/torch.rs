#![no_main]

use mha_trace_fuzz::{archived, read};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    read("x.pt", archived(bytes, &[("a/data.pkl", b""), ("a/data/0", &[1; 64])]));
});
