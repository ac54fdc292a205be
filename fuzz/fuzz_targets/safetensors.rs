#![no_main]

use mha_trace_fuzz::{fuzz, read, safetensors};

fuzz!(|bytes| read("x.safetensors", bytes), safetensors);
