#![no_main]

mha_trace_fuzz::fuzz!(|bytes| mha_trace_fuzz::read("run.json", bytes), mha_trace_fuzz::json);
