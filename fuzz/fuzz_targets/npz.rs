#![no_main]

use mha_trace_fuzz::{archived, read};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| read("x.npz", archived(bytes, &[("config.npy", b"")])));
