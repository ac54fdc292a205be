#![no_main]

use mha_trace_fuzz::{fuzz, gguf, read};

fuzz!(|bytes| read("x.gguf", bytes), gguf);
