//! A setting that is stated beside a recorded run holds in place of the recorded one.

use std::path::Path;

use mha_trace::check::{Tolerances, check};
use mha_trace::config::{Setting, Start};
use mha_trace::file::{Output, Record};
use mha_trace::foreign::{NameMap, with_model};
use mha_trace::program::Name;
use mha_trace::{Result, Run, Settings, Sources, to_record};
use serde_json::{Value, json};

fn settings(json: Value) -> Settings {
    serde_json::from_value(json).expect("valid settings")
}

fn fixture(path: &str) -> String {
    format!("{}/fixtures/{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The settings of a recorded run, and what is stated beside it. A run without tensors draws what it needs.
fn case(key: &str) -> (Value, Value) {
    let cross = json!({"batch": 2, "seq_len": 4, "kv_len": 6, "d_memory": 9});
    let rotary = json!({"d_model": 12, "rope": "half"});
    let weights =
        json!({"batch": 2, "seq_len": 5, "d_model": 12, "heads": 3, "d_in": 7, "bias": true});
    let with = |mut base: Value, key: &str, value: Value| {
        base[key] = value;
        base
    };
    let core = |file: &str, names: [&str; 3]| {
        let place = |name: &str| json!(fixture(&format!("core/{file}.safetensors:{name}")));
        let [q, k, v] = names;
        json!({"q": place(q), "k": place(k), "v": place(v)})
    };
    let sdpa = || core("sdpa-math", ["query", "key", "value"]);
    match key {
        "start" => (json!({}), json!("heads")),
        "end" => (json!({}), json!("concat")),
        "q" => (sdpa(), json!(fixture("core/sdpa-math.safetensors:attn_output"))),
        "k" => (sdpa(), json!(fixture("core/sdpa-math.safetensors:value"))),
        "v" => (sdpa(), json!(fixture("core/sdpa-math.safetensors:key"))),
        "qkv_format" => (core("flash-bshd-equal", ["q", "k", "v"]), json!("bshd")),
        "scores" => (json!({"scores": [112, 96], "head_dim": 64}), json!([1, 2])),
        "segments" => (json!({}), json!([1, 3])),
        "selected" => (json!({}), json!("parents=-1,0,0,1")),
        "key_segments" => (json!({"segments": [1, 3]}), json!([2, 2])),
        "lse" | "mean_weights" => (with(json!({}), key, json!(true)), json!(false)),
        "batch" | "d_memory" => (cross, json!(3)),
        "seq_len" | "kv_len" | "d_memory_v" => (cross, json!(5)),
        "d_model" | "d_in" => (json!({}), json!(16)),
        "heads" => (json!({}), json!(4)),
        "kv_heads" => (json!({}), json!(1)),
        "head_dim" | "v_head_dim" | "window" | "chunk" => (json!({}), json!(2)),
        "attn_bias" => (weights, json!(fixture("masks/bias-head-query-key.json"))),
        "seed" => (json!({}), json!(7)),
        "torch_cpu" => (json!({}), json!("arm")),
        "input" => (json!({}), json!("rand")),
        "draw_inputs" => (
            json!({"x": fixture("inputs/x.json"), "batch": 2, "seq_len": 5, "d_model": 12, "heads": 3}),
            json!("all"),
        ),
        "init" => (json!({}), json!("linear")),
        "bias" | "alibi" | "sinks" | "k_eq_v" | "add_bias_kv" | "add_zero_attn" => {
            (json!({}), json!(true))
        }
        "qk_norm" | "v_norm" | "concat_norm" => (json!({}), json!("rms")),
        "qk_norm_over" => (json!({"qk_norm": "rms"}), json!("all")),
        "qk_norm_eps" => (json!({"qk_norm": "rms"}), json!(0.5)),
        "rope_backwards" | "rope_value" => (rotary, json!(true)),
        "rope" => (rotary, json!("interleaved")),
        "rope_base" => (rotary, json!(100.0)),
        "rope_dims" => (rotary, json!(4)),
        "rope_offset" => (rotary, json!(3)),
        "rope_scaling" => (rotary, json!({"rope_type": "linear", "factor": 4.0})),
        "rope_freqs" => (rotary, json!(fixture("inputs/freqs.json"))),
        "rope_attention_factor" => {
            (with(rotary, "rope_freqs", json!(fixture("inputs/freqs.json"))), json!(0.5))
        }
        "memory" => (cross, json!(fixture("inputs/memory.json"))),
        "past" => {
            let base = json!({"batch": 2, "heads": 3, "d_model": 18});
            (base, json!(fixture("inputs/past.safetensors")))
        }
        "queries" => (json!({}), json!("1..3")),
        "mask" => (json!({}), json!("none")),
        "causal_align" => (with(cross, "mask", json!("causal")), json!("bottom-right")),
        "key_mask" => (json!({}), json!(["0111"])),
        "lengths" => (json!({}), json!([2])),
        "attn_mask" => (weights, json!(fixture("masks/query-key.json"))),
        "attn_mask_true" => {
            (with(weights, "attn_mask", json!(fixture("masks/query-key.json"))), json!("block"))
        }
        "mask_fill" => (json!({}), json!("-inf")),
        "scale" | "clip_qkv" | "value_scale" => (json!({}), json!(0.3)),
        "softcap" => (json!({}), json!(1.5)),
        "empty_rows" => (json!({"lengths": [0], "mask_fill": "-inf"}), json!("zero")),
        "dropout" => (json!({}), json!(0.5)),
        "dtype" => (json!({}), json!("f64")),
        "x" => (weights, json!(fixture("inputs/x.json"))),
        "weights" => (weights, json!(fixture("inputs/weights.safetensors"))),
        "prefix" => {
            let weights = with(weights, "weights", json!(fixture("inputs/layers.safetensors")));
            (with(weights, "prefix", json!("layers.0.attn")), json!("layers.1.attn"))
        }
        "tokens" => (json!({}), json!(["the", "cat", "sat", "down"])),
        "memory_tokens" => (cross, json!(["le", "chat", "est", "assis", "là", "."])),
        "model_config" => {
            let base = json!({"d_model": 36, "heads": 6, "kv_heads": 3, "head_dim": 6});
            (base, json!(fixture("architectures/llama/config.json")))
        }
        // Every other layer of Gemma 2 has a window.
        "layer" => {
            let model = fixture("architectures/gemma2/config.json");
            (json!({"seq_len": 9, "model_config": model, "layer": 0}), json!(1))
        }
        "model_family" => {
            let model = fixture("architectures/gemma2/config.json");
            (json!({"model_config": model, "layer": 1}), json!("llama"))
        }
        "without" => (rotary, json!(["rope"])),
        other => of_others(other),
    }
}

/// The same of settings that say more of norms, gates and temperatures.
fn of_others(key: &str) -> (Value, Value) {
    let temperature = json!({"q_temperature": 0.1, "q_temperature_floor": 2});
    match key {
        "backward" => (json!({"backward": true}), json!(false)),
        "d_output" => (json!({"backward": true}), json!("randn")),
        "wrt" => (json!({"backward": true}), json!(["x"])),
        "qk_norm_after_rope" => {
            (json!({"d_model": 12, "rope": "half", "qk_norm": "layer"}), json!(true))
        }
        "shared_kv" => {
            let base = json!({"batch": 3, "seq_len": 5, "heads": 4, "kv_heads": 2, "d_model": 24});
            (base, json!(fixture("inputs/shared.safetensors")))
        }
        "memory_v" => {
            let base =
                json!({"batch": 2, "seq_len": 4, "kv_len": 6, "d_memory": 9, "d_memory_v": 9});
            (base, json!(fixture("inputs/memory.json")))
        }
        "packing" => {
            let file = |name| fixture(&format!("architectures/gpt-neox/{name}"));
            let (model, weights) = (file("config.json"), file("model.safetensors"));
            let prefix = "gpt_neox.layers.0.attention";
            let model =
                json!({"model_config": model, "layer": 0, "weights": weights, "prefix": prefix});
            (model, json!("blocks"))
        }
        "kv_lora_rank" => (json!({}), json!(3)),
        "q_lora_rank" | "qk_rope_head_dim" => (json!({"kv_lora_rank": 3}), json!(2)),
        "absorb" => (json!({"kv_lora_rank": 3}), json!(true)),
        "lora_norm_eps" => (json!({"kv_lora_rank": 3}), json!(0.5)),
        "lambda_init" => (json!({}), json!(0.5)),
        "head_norm_eps" => (json!({"lambda_init": 0.5}), json!(0.5)),
        "v_norm_eps" => (json!({"v_norm": "rms"}), json!(0.5)),
        "concat_norm_eps" => (json!({"concat_norm": "rms"}), json!(0.5)),
        "q_temperature" => (temperature, json!(0.7)),
        "q_temperature_floor" | "q_temperature_offset" => (temperature, json!(1)),
        "gate" => (json!({}), json!("sigmoid")),
        "splits" => (json!({}), json!([2])),
        "recurrence" => (json!({"recurrence": "gated-delta"}), json!("delta")),
        "v_heads" => (json!({"recurrence": "gated-delta"}), json!(4)),
        "states" => (json!({"recurrence": "gated-delta", "states": true}), json!(false)),
        "state_chunk" => (json!({"recurrence": "gated-delta", "state_chunk": 2}), json!(1)),
        "g" | "beta" | "initial_state" => {
            let file = |name: &str| json!(fixture(&format!("recurrent/{name}")));
            let base = json!({"recurrence": "gated-delta", "d_model": 12, "heads": 2, "head_dim": 6, "v_head_dim": 5, "seq_len": 14, "qkv_format": "bshd"});
            let of_tokens = file(&format!("right-packed.safetensors:{key}"));
            let state = file("right-chunk-states.safetensors:initial_state");
            (base, if key == "initial_state" { state } else { of_tokens })
        }
        "tiles" => (json!({}), json!("2")),
        _ => of_positions(key),
    }
}

/// The same of settings that say more of positions.
fn of_positions(key: &str) -> (Value, Value) {
    let rotary = json!({"d_model": 12, "rope": "half"});
    let relative = || {
        let file = json!(fixture("inputs/relative.safetensors"));
        json!({"batch": 2, "seq_len": 5, "d_model": 12, "heads": 3, "d_in": 7, "bias": true, "weights": file,
            "relative_bias": "bidirectional"})
    };
    let sections = || {
        let positions = json!([[[0, 1, 2, 3]], [[0, 5, 6, 7]], [[0, 9, 8, 7]]]);
        json!({"d_model": 24, "rope": "half", "rope_dims": 6, "positions": positions, "rope_sections": [2, 1, 0]})
    };
    match key {
        "alibi_form" => (json!({"alibi": true}), json!("mpt")),
        "relative_bias" => (relative(), json!("one-sided")),
        "relative_buckets" => (relative(), json!(16)),
        "relative_max_distance" => (relative(), json!(3)),
        "disentangled" => (json!({"disentangled": ["c2p", "p2c"]}), json!(["p2c"])),
        "position_buckets" | "max_relative_positions" => {
            (json!({"disentangled": ["c2p"]}), json!(2))
        }
        "share_att_key" => (json!({"disentangled": ["c2p"]}), json!(true)),
        "rel_norm_eps" => (json!({"disentangled": ["c2p"]}), json!(0.5)),
        "rope_at_end" => (json!({"d_model": 12, "rope": "half", "rope_dims": 2}), json!(true)),
        "positions" => (rotary, json!([0, 0, 1, 2])),
        "rope_sections" => (sections(), json!([1, 1, 1])),
        "rope_section_order" => (sections(), json!("interleaved")),
        other => panic!("say what `{other}` changes beside a recorded run"),
    }
}

/// Those that say what is drawn, which is nothing where the numbers are recorded.
const DRAWS: [&str; 6] = ["seed", "torch_cpu", "input", "draw_inputs", "init", "bias"];

/// The settings with what their model says, of which nothing picks weights from a file that there is not.
fn of_model(settings: Settings) -> Settings {
    let settings = with_model(settings).expect("readable");
    let prefix = settings.prefix.clone().filter(|_| settings.weights.is_some());
    Settings { prefix, ..settings }
}

fn recorded(base: &Settings) -> Record {
    let run = Run::new(base, Sources::load(base).expect("readable")).expect("valid");
    to_record(&run.trace().expect("runs"), run.config())
}

/// Which of the cells differ, and by how much; how the cells are called; and what was recorded and contradicts the flags.
fn checked(path: &Path, flags: &Settings) -> Result<String> {
    let flags = with_model(flags.clone())?;
    let report = check(path, &flags, &NameMap::default(), &Tolerances::default())?;
    Ok(format!("{:?} {:?} {:?}", report.steps, report.labels, report.contradictions))
}

#[test]
fn what_is_stated_beside_a_record_holds() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("run.safetensors");
    // A preset is below every file.
    for key in Setting::ALL.iter().map(|setting| setting.key).filter(|key| *key != "preset") {
        let (base, value) = case(key);
        let (base, mut flags) = (settings(base), settings(json!({key: value})));
        if key == "layer" {
            flags.model_config.clone_from(&base.model_config);
        }
        let mut record = recorded(&of_model(base));
        if DRAWS.contains(&key) {
            record.entries.retain(|entry| entry.name == "output");
        }
        Output::create(&path).and_then(|output| output.write(&record)).expect("written");
        let before = checked(&path, &Settings::default()).expect("runs again");
        match checked(&path, &flags) {
            Ok(after) => assert_ne!(after, before, "{key}"),
            // What contradicts the recorded tensors is refused.
            Err(error) => assert!(error.to_string().contains(key), "{key}: {error}"),
        }
    }
}

/// X of a record whose config names no file for it was drawn, and all that is drawn behind it follows from that.
#[test]
fn what_a_record_lacks_is_drawn_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("run.safetensors");
    let weights = ["w_q", "w_k", "w_v", "w_o", "dropout_keep"];
    for lacking in [&weights[4..], &weights[3..], &weights] {
        let mut record = recorded(&settings(json!({"batch": 2, "dropout": 0.3})));
        record.entries.retain(|entry| !lacking.contains(&entry.name.as_str()));
        Output::create(&path).and_then(|output| output.write(&record)).expect("written");
        let flags = (Settings::default(), NameMap::default(), Tolerances::default());
        let report = check(&path, &flags.0, &flags.1, &flags.2).expect("can be checked");
        assert!(report.is_same(), "{lacking:?}");
    }
}

/// The absorbed order makes no keys and values that a bias could be added to; one of zeros changes nothing.
#[test]
fn a_bias_of_keys_is_refused_in_the_absorbed_order() {
    let latent =
        |absorb: bool| settings(json!({"kv_lora_rank": 3, "bias": true, "absorb": absorb}));
    assert!(Run::new(&latent(true), Sources::default()).is_err(), "it is drawn");
    let mut record = recorded(&latent(false));
    let run = |record: &Record| {
        let sources = Sources::recorded(record, Start::Inputs, |_| true);
        Run::new(&latent(true), sources).and_then(|run| run.trace())
    };
    let error = run(&record).expect_err("it is not 0");
    assert!(error.to_string().starts_with("b_k"), "{error}");
    for entry in &mut record.entries {
        if ["b_k", "b_v"].contains(&entry.name.as_str()) {
            entry.tensor = entry.tensor.zeros_like().expect("zeros");
        }
    }
    assert!(run(&record).is_ok());
}

/// The mask of a record is not that of a run under a flag that says which keys are seen: it is made anew, of the flag and
/// what the record's own settings say beside it.
#[test]
fn a_flag_of_masks_replaces_the_recorded_mask() {
    let file = |name: &str| json!(fixture(&format!("masks/{name}")));
    let base = json!({"batch": 2, "seq_len": 5, "heads": 3, "d_model": 12, "attn_mask": file("query-key.json")});
    let weights = |settings: &Settings, sources: Sources| {
        let trace = Run::new(settings, sources).and_then(|run| run.trace()).expect("runs");
        let weights = trace.step(Name::Weights).expect("it has weights").value.clone();
        weights.flatten_all().and_then(|all| all.to_vec1::<f32>()).expect("f32")
    };
    let base = settings(base);
    let record = recorded(&base);
    let own = weights(&base, Sources::load(&base).expect("readable"));
    for (key, value) in [
        ("mask", json!("none")),
        ("key_mask", json!(["01111", "11100"])),
        ("lengths", json!([2, 4])),
        ("window", json!(1)),
        ("chunk", json!(2)),
        ("segments", json!([2, 3])),
        ("selected", json!("keys=0;0;1;2,3;0,4")),
        ("alibi", json!(true)),
        ("attn_mask", file("batch-key.json")),
        ("attn_mask_true", json!("block")),
    ] {
        let flags = settings(json!({key: value}));
        let (found, sources) = Sources::of_record(&record, &flags).expect("readable");
        let meant = flags.over(base.clone());
        let expected = weights(&meant, Sources::load(&meant).expect("readable"));
        assert_ne!(expected, own, "{key} changes nothing");
        assert_eq!(weights(&found, sources), expected, "{key}");
    }
}

/// The mask of a file that says nothing of its run stands, unless flags say which keys are seen; which queries are
/// computed is not that.
#[test]
fn the_mask_of_a_file_without_settings_stands_unless_flags_say_another() {
    let mut record = recorded(&settings(json!({"lengths": [3]})));
    record.config = None;
    for (flags, stands) in [
        (json!({}), true),
        (json!({"queries": "1..3"}), true),
        (json!({"scale": 0.5}), true),
        (json!({"mask": "none"}), false),
        (json!({"lengths": [2]}), false),
        (json!({"queries": "1..3", "window": 2}), false),
    ] {
        let mut own = settings(flags.clone());
        own.heads = Some(2);
        let (_, sources) = Sources::of_record(&record, &own).expect("readable");
        assert_eq!(sources.has(Name::Mask), stands, "{flags}");
    }
}
