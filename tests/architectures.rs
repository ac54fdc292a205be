//! Layers of transformers' own models, saved as the library saves them: one command each, with the model's config,
//! its checkpoint and what a hook recorded of the layer.

use std::fs;
use std::path::{Path, PathBuf};

use mha_trace::check::{Report, Tolerances, check};
use mha_trace::error::Part;
use mha_trace::foreign::{NameMap, with_model};
use mha_trace::{Config, Settings};
use serde_json::{Value, json};

fn folders() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/architectures");
    let entries = fs::read_dir(all).expect("the fixtures are there");
    let mut folders: Vec<PathBuf> =
        entries.map(|entry| entry.expect("readable").path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

/// The report on what was recorded of a layer, by the config and the checkpoint in `folder`.
fn judged(folder: &Path, layer: usize, recorded: &str, flags: Settings) -> Report {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned().into();
    let settings = Settings {
        model_config: Some(path("config.json")),
        layer: Some(layer),
        weights: Some(path("model.safetensors")),
        ..flags
    };
    let settings =
        with_model(settings).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let recorded = folder.join(recorded);
    check(&recorded, &settings, &NameMap::default(), &Tolerances::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Every recorded step is within `torch.testing`'s tolerances; what rounding would excuse beyond them does not count.
fn assert_within_tolerances(report: &Report, steps: usize) {
    assert_eq!(report.compared(), steps, "{}", report.path);
    for step in &report.steps {
        let mismatched = step.comparison.as_ref().map(|found| found.mismatched);
        assert_eq!(mismatched, Some(0), "{}: {}", report.path, step.name);
    }
}

#[test]
fn every_architecture_is_reproduced_from_its_config() {
    let folders = folders();
    assert!(folders.len() >= 15, "{folders:?}");
    for folder in folders {
        // BERT's heads side by side are recorded too.
        let steps = if folder.ends_with("bert") { 3 } else { 2 };
        for layer in [0, 1] {
            let report =
                judged(&folder, layer, &format!("layer{layer}.safetensors"), Settings::default());
            assert_within_tolerances(&report, steps);
        }
    }
}

#[test]
fn a_checkpoint_in_bf16_is_read_exactly() {
    for folder in folders() {
        let steps = if folder.ends_with("bert") { 3 } else { 2 };
        for layer in [0, 1] {
            let bf16 = folder.join("bf16");
            let run_in_f32 = format!("layer{layer}.f32.safetensors");
            let report = judged(&bf16, layer, &run_in_f32, Settings::default());
            assert_within_tolerances(&report, steps);
        }
    }
}

#[test]
fn a_run_in_bf16_is_the_same_but_for_rounding() {
    for folder in folders() {
        for layer in [0, 1] {
            let bf16 = folder.join("bf16");
            let run_in_bf16 = format!("layer{layer}.bf16.safetensors");
            let report = judged(&bf16, layer, &run_in_bf16, Settings::default());
            assert!(report.is_same(), "{report:#?}");
        }
    }
}

#[test]
fn padding_is_said_by_a_flag() {
    for name in ["bert", "llama"] {
        let folder = folders().into_iter().find(|folder| folder.ends_with(name)).expect("there");
        for layer in [0, 1] {
            let flags = Settings { lengths: Some(vec![7, 4]), ..Settings::default() };
            let report = judged(&folder, layer, &format!("layer{layer}.padded.safetensors"), flags);
            assert_within_tolerances(&report, if name == "bert" { 3 } else { 2 });
        }
    }
}

/// The recorded cache stands before the one token, whose position is behind it.
#[test]
fn a_decoding_step_is_reproduced_from_its_cache() {
    let folder = folders().into_iter().find(|folder| folder.ends_with("llama")).expect("there");
    for layer in [0, 1] {
        let recorded = format!("decode{layer}.safetensors");
        let report = judged(&folder, layer, &recorded, Settings::default());
        assert_within_tolerances(&report, 2);
    }
}

/// The layers of one model differ, and a scaling or a window that is not read would not be seen otherwise.
#[test]
fn the_fixtures_tell_layers_and_settings_apart() {
    let mut settings: Vec<Settings> = Vec::new();
    for folder in folders() {
        for layer in [0, 1] {
            let of_layer = Settings {
                model_config: Some(
                    folder.join("config.json").to_string_lossy().into_owned().into(),
                ),
                layer: Some(layer),
                ..Settings::default()
            };
            settings.push(with_model(of_layer).expect("known"));
        }
    }
    let count = |is: fn(&Settings) -> bool| settings.iter().filter(|s| is(s)).count();
    assert_eq!(count(|s| s.window.is_some()), 4, "two of Mistral, one of Qwen2 and of Gemma 2");
    assert_eq!(count(|s| s.rope_scaling.is_some()), 12);
    assert_eq!(count(|s| s.softcap.is_some() && s.scale.is_some()), 2);
    assert_eq!(count(|s| s.qk_norm.is_some()), 2);
}

/// Version 4 of transformers had what is said of rotary positions beside each other, under other names.
#[test]
fn older_configs_say_the_same() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut tried = 0;
    for source in folders() {
        let text = fs::read_to_string(source.join("config.json")).expect("readable");
        let mut config: Value = serde_json::from_str(&text).expect("JSON");
        let keys = config.as_object_mut().expect("an object");
        let Some(Value::Object(mut rope)) = keys.remove("rope_parameters") else { continue };
        let is_neox = keys["model_type"] == "gpt_neox";
        let base = if is_neox { "rotary_emb_base" } else { "rope_theta" };
        keys.insert(base.to_owned(), rope.remove("rope_theta").expect("stated"));
        if let Some(part) = rope.remove("partial_rotary_factor") {
            let name = if is_neox { "rotary_pct" } else { "partial_rotary_factor" };
            keys.insert(name.to_owned(), part);
        }
        let kind = rope.remove("rope_type").expect("stated");
        let is_scaled = kind != "default";
        rope.insert("type".to_owned(), kind);
        keys.insert("rope_scaling".to_owned(), if is_scaled { rope.into() } else { Value::Null });
        let older = folder.path().join("config.json");
        fs::write(&older, config.to_string()).expect("written");
        let read = |path: &Path| {
            let path = path.to_string_lossy().into_owned();
            let settings =
                Settings { model_config: Some(path.into()), layer: Some(1), ..Settings::default() };
            let settings = with_model(settings);
            let settings = settings.unwrap_or_else(|error| panic!("{}: {error}", source.display()));
            // The two are of files of other names.
            Settings { before_model: None, ..settings }
        };
        assert_eq!(read(&older), read(&source.join("config.json")), "{}", source.display());
        tried += 1;
    }
    assert!(tried >= 10, "only {tried}");
}

/// What a config leaves unsaid is what transformers' own classes make of it: `defaults.json` is their word.
#[test]
fn brief_configs_have_the_defaults_of_their_library() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/architectures/defaults.json");
    let cases: Vec<Value> =
        serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("config.json");
    for case in cases {
        fs::write(&path, case["config"].to_string()).expect("written");
        for (layer, window) in case["windows"].as_object().expect("an object") {
            let what = format!("layer {layer} of {}", case["config"]);
            let settings = Settings {
                model_config: Some(path.to_string_lossy().into_owned().into()),
                layer: layer.parse().ok(),
                ..Settings::default()
            };
            let read = with_model(settings).unwrap_or_else(|error| panic!("{what}: {error}"));
            let config = Config::resolve(&Settings { prefix: None, ..read }).expect("valid");
            assert_eq!(json!(config.plain.window), *window, "window of {what}");
            assert_eq!(json!(config.sizes.kv_heads), case["kv_heads"], "heads of {what}");
            assert_eq!(json!(config.sizes.head_dim), case["head_dim"], "size of {what}");
            assert_eq!(json!(config.plain.softcap), case["softcap"], "cap of {what}");
            let scale = case["scaled_by"].as_f64().map(|by| 1.0 / by.sqrt());
            assert_eq!(config.plain.scale, scale, "scale of {what}");
            let rope = config.rope.expect("rotary");
            assert_eq!(json!(rope.base), case["rope_base"], "base of {what}");
            let whole = u32::try_from(config.sizes.head_dim).expect("small");
            let part = u32::try_from(rope.dims).expect("small");
            assert_eq!(json!(f64::from(part) / f64::from(whole)), case["rope_part"], "{what}");
        }
    }
}

/// Of a model that is not known the common keys of its config are said as settings: what they say of one that is known,
/// where it stands by itself and where it is part of a larger one.
#[test]
fn an_unknown_models_config_is_told_as_settings() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("config.json");
    let settings = || Settings {
        model_config: Some(path.to_string_lossy().into_owned().into()),
        layer: Some(0),
        ..Settings::default()
    };
    for source in folders() {
        let text = fs::read_to_string(source.join("config.json")).expect("readable");
        let mut keys: Value = serde_json::from_str(&text).expect("JSON");
        fs::write(&path, keys.to_string()).expect("written");
        let known = json!(with_model(settings()).expect("known"));
        keys["model_type"] = json!("mystery");
        let part = json!({"model_type": "mystery", "text_config": keys});
        for config in [keys, part] {
            fs::write(&path, config.to_string()).expect("written");
            let error = with_model(settings()).expect_err("not known");
            let fix = error.fix();
            let told = fix.parts().into_iter().filter_map(|part| match part {
                Part::Setting(key, Some(value)) => Some((key.to_owned(), value.to_owned())),
                _ => None,
            });
            let told: Vec<(String, String)> = told.collect();
            let has = |key: &str| told.iter().any(|(told, _)| told == key);
            for key in ["d_model", "heads", "kv_heads", "rope_base", "rope", "softcap"] {
                let is_default = key == "rope_base" && known["rope"].is_null();
                assert!(
                    has(key) || known[key].is_null() || is_default,
                    "{key} of {}",
                    source.display()
                );
            }
            // What it looks like is told too, and need not be what it is.
            for (key, value) in told.into_iter().filter(|(key, _)| key != "model_family") {
                let value: Value = serde_json::from_str(&value).unwrap_or(json!(value));
                // Some layers have no window.
                let is_it = value == known[&key] || (key == "window" && known[&key].is_null());
                assert!(is_it, "{key} of {}: {value}", source.display());
            }
        }
    }
}

/// Of families that are as near, the common one is named, and a picture is not read from left to right.
#[test]
fn an_unknown_config_is_said_to_look_like_a_common_family() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("config.json");
    let sizes = json!({"hidden_size": 48, "num_attention_heads": 6, "num_hidden_layers": 2});
    let cases = [
        (json!({"vocab_size": 99, "type_vocab_size": 2, "layer_norm_eps": 1e-12}), "bert", "none"),
        (json!({"image_size": 32, "patch_size": 8, "num_channels": 3}), "vit", "none"),
        (json!({"num_mel_bins": 80}), "vit", "none"),
        (json!({"vocab_size": 99, "rope_theta": 1e4, "num_key_value_heads": 2}), "llama", "causal"),
    ];
    for (own, name, mask) in cases {
        let mut config = sizes.clone();
        config["model_type"] = json!("mystery");
        let all = config.as_object_mut().expect("an object");
        all.extend(own.as_object().expect("an object").clone());
        fs::write(&path, config.to_string()).expect("written");
        let model_config = Some(path.to_string_lossy().into_owned().into());
        let settings = Settings { model_config, layer: Some(0), ..Settings::default() };
        let error = with_model(settings).expect_err("not known");
        let told = |key: &str, value: &str| {
            error.fix().parts().into_iter().any(
                |part| matches!(part, Part::Setting(own, Some(of)) if own == key && of == value),
            )
        };
        assert!(told("model_family", name) && told("mask", mask), "{config}: {error}");
    }
}

/// Frequencies are powers of the base: what is no number above 0 is refused, by its key, wherever a config states it.
#[test]
fn a_base_that_is_no_number_above_0_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("config.json");
    let places = [
        ("llama", "\"rope_theta\": BASE"),
        ("llama", "\"rope_parameters\": {\"rope_theta\": BASE}"),
        ("gemma3_text", "\"sliding_window_pattern\": 2, \"rope_local_base_freq\": BASE"),
        ("granite_swa", "\"layer_rope_theta\": [BASE, 1e4]"),
    ];
    for (family, place) in places {
        for base in ["NaN", "Infinity", "-Infinity", "1e999", "-1", "-1e-9", "0", "\"1e4\"", "500"]
        {
            let sizes = "\"hidden_size\": 64, \"num_attention_heads\": 8, \"num_hidden_layers\": 2";
            let text = format!(
                "{{\"model_type\": \"{family}\", {sizes}, {}}}",
                place.replace("BASE", base)
            );
            fs::write(&path, &text).expect("written");
            let model_config = Some(path.to_string_lossy().into_owned().into());
            let read = with_model(Settings { model_config, layer: Some(0), ..Settings::default() });
            // A base of 0 in a list of the layers' says that one does not turn.
            let is_off = base == "0" && family == "granite_swa";
            match read {
                Ok(read) if base == "500" => assert_eq!(read.rope_base, Some(500.0), "{text}"),
                Ok(read) => assert!(is_off && read.rope.is_none(), "{text}"),
                Err(error) => {
                    assert!(base != "500" && !is_off, "{text}: {error}");
                    let is_named =
                        ["theta is not a", "freq is not a", "a list of numbers", "out of range"];
                    let told = error.to_string();
                    assert!(is_named.iter().any(|part| told.contains(part)), "{text}: {told}");
                }
            }
        }
    }
}
