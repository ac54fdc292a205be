#![no_main]

use mha_trace_fuzz::{archived, fuzz, pickle_or_archive, read};

const MEMBERS: [(&str, &[u8]); 2] = [("a/data.pkl", b""), ("a/data/0", &[1; 64])];

fuzz!(|bytes| read("x.pt", &archived(bytes, &MEMBERS)), pickle_or_archive);
