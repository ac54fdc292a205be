#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mha_trace_fuzz::read("x.gguf", bytes.to_vec()));
