#![no_main]

//! The files that the seeds name are beside the index.

use mha_trace_fuzz::{fixture, fuzz, json, read};

fuzz!(|bytes| read(fixture("files/x.safetensors.index.json"), bytes), json);
