#![no_main]

use mha_trace_fuzz::{archive, archived, fuzz, read};

fuzz!(|bytes| read("x.npz", &archived(bytes, &[("config.npy", b"")])), archive);
