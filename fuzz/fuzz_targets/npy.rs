#![no_main]

use mha_trace_fuzz::{fuzz, npy, read};

fuzz!(|bytes| read("x.npy", bytes), npy);
