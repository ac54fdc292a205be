//! A recorded layer of every family that is known: one command each, with the model's config, its checkpoint and what a
//! hook recorded of the layer (`fixtures/families.py`).

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::DType;
use mha_trace::check::{Tolerances, check};
use mha_trace::file::{Output, Record};
use mha_trace::foreign::{NameMap, known, with_model};
use mha_trace::{Config, Result, Settings};
use serde_json::{Map, Value, json};

fn folders() -> Vec<PathBuf> {
    let all = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/families");
    let entries = fs::read_dir(all).expect("the fixtures are there");
    let mut folders: Vec<PathBuf> = entries.map(|entry| entry.expect("readable").path()).collect();
    folders.sort();
    folders
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("readable")).expect("JSON")
}

/// The checkpoint of a layer: the family's own, or that of another one with the same names and shapes.
fn weights(layer: &Value) -> &str {
    layer["weights"].as_str().unwrap_or("model.safetensors")
}

/// The settings that one command makes of a recorded layer.
fn settings(folder: &Path, layer: &Value) -> Settings {
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned().into();
    let settings = Settings {
        model_config: Some(path("config.json")),
        layer: layer["layer"].as_u64().and_then(|layer| usize::try_from(layer).ok()),
        weights: Some(path(weights(layer))),
        prefix: layer["prefix"].as_str().map(str::to_owned),
        alibi_form: serde_json::from_value(layer["alibi_form"].clone()).expect("a form"),
        positions: serde_json::from_value(layer["positions"].clone()).expect("positions"),
        shared_kv: layer["shared_kv"].as_str().map(path),
        attn_bias: layer["attn_bias"].as_str().map(path),
        ..Settings::default()
    };
    with_model(settings).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

/// The output is within `torch.testing`'s tolerances; what rounding would excuse beyond them does not count.
#[test]
fn every_family_is_reproduced_from_its_config() {
    let mut layers = 0;
    for folder in folders() {
        for layer in json(&folder.join("layers.json")).as_array().expect("a list") {
            let recorded = folder.join(layer["file"].as_str().expect("a name"));
            let settings = settings(&folder, layer);
            let report = check(&recorded, &settings, &NameMap::default(), &Tolerances::default())
                .unwrap_or_else(|error| panic!("{}: {error}", recorded.display()));
            let output = report.steps.iter().find(|step| step.name == "output");
            let compared = output.and_then(|step| step.comparison.as_ref());
            let mismatched = compared.map(|found| found.mismatched);
            assert_eq!(mismatched, Some(0), "{}", recorded.display());
            layers += 1;
        }
    }
    assert!(layers >= 120, "only {layers}");
}

/// The same in bf16, as the library runs the model: its weights are those of the checkpoint, cast.
#[test]
fn every_family_is_the_same_in_bf16() {
    let temporary = tempfile::tempdir().expect("a temporary folder");
    let (mut layers, mut wrong, mut families) = (0, Vec::new(), HashSet::new());
    for folder in folders() {
        let name = folder.file_name().and_then(|name| name.to_str()).expect("text").to_owned();
        let layers_of = json(&folder.join("layers.json"));
        let wide = folder.join(weights(&layers_of[0]));
        let mut record = Record::read(&wide).expect("readable");
        for entry in &mut record.entries {
            entry.tensor = entry.tensor.to_dtype(DType::BF16).expect("rounds");
        }
        record.config = None;
        let cast = temporary.path().join(format!("{name}.safetensors"));
        Output::create(&cast).and_then(|output| output.write(&record)).expect("written");
        for layer in layers_of.as_array().expect("a list") {
            let file = layer["file"].as_str().expect("a name");
            let recorded = folder.join(file.replace(".safetensors", ".bf16.safetensors"));
            if !recorded.exists() {
                continue;
            }
            let weights = Some(cast.to_string_lossy().into_owned().into());
            let biases = folder.join(file.replace(".safetensors", ".bf16.bias.safetensors"));
            let biases = biases.exists().then(|| biases.to_string_lossy().into_owned().into());
            let settings = Settings { weights, attn_bias: biases, ..settings(&folder, layer) };
            let report = check(&recorded, &settings, &NameMap::default(), &Tolerances::default())
                .unwrap_or_else(|error| panic!("{}: {error}", recorded.display()));
            if !report.is_same() {
                wrong.push(format!("{name}/{file}"));
            }
            families.insert(name.clone());
            layers += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {layers}: {wrong:?}", wrong.len());
    assert_eq!(families.len(), folders().len(), "each family has a layer in bf16");
}

/// A dump in the absorbed order is known by its steps; its output is that of the expanded order.
#[test]
fn an_absorbed_layer_is_known_by_its_steps() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = fixtures.join("families/deepseek_v3");
    let settings = settings(&folder, &json(&folder.join("layers.json"))[0]);
    let recorded = fixtures.join("absorbed/deepseek_v3.safetensors");
    let report = check(&recorded, &settings, &NameMap::default(), &Tolerances::default())
        .unwrap_or_else(|error| panic!("{error}"));
    let compared = report.steps.iter().map(|step| {
        let mismatched = step.comparison.as_ref().map(|found| found.mismatched);
        (step.name.as_str(), mismatched)
    });
    let expected = ["c_kv_norm", "k_r_rot", "q_absorbed", "weights", "latent_outputs", "output"]
        .map(|name| (name, Some(0)));
    assert_eq!(compared.collect::<Vec<_>>(), expected);
    assert!(report.is_same());
}

/// The layer whose weights fit is named where another one is meant, also where it is of another kind: the one meant here
/// slides, and turns by other frequencies.
#[test]
fn a_layer_of_another_kind_is_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/families/gemma3");
    let layers = json(&folder.join("layers.json"));
    let (first, second) = (&layers[0], &layers[1]);
    for (meant, recorded) in [(first, second), (second, first)] {
        let path = folder.join(recorded["file"].as_str().expect("a name"));
        let settings = settings(&folder, meant);
        let report = check(&path, &settings, &NameMap::default(), &Tolerances::default())
            .unwrap_or_else(|error| panic!("{error}"));
        assert!(!report.is_same());
        assert_eq!(report.fits_layer.as_deref(), recorded["prefix"].as_str());
    }
}

/// No row of the table stands without a recorded layer of each of its model types.
#[test]
fn every_model_type_is_recorded() {
    let mut recorded = HashSet::new();
    for folder in folders() {
        let config = json(&folder.join("config.json"));
        let parts = ["text_config", "vision_config"].map(|part| config[part].clone());
        for config in std::iter::once(config).chain(parts) {
            recorded.extend(config["model_type"].as_str().map(str::to_owned));
        }
    }
    for family in known() {
        for kind in family.types {
            assert!(recorded.contains(*kind), "{kind} is in the table and not recorded");
        }
    }
}

#[test]
fn an_encoder_of_another_build_is_not_read_as_the_decoder() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/families");
    let read = |name: &str, prefix: &str| {
        let path = folder.join(name).join("config.json").to_string_lossy().into_owned();
        let prefix = Some(prefix.to_owned());
        with_model(Settings { model_config: Some(path.into()), prefix, ..Settings::default() })
    };
    for (name, stack) in [
        ("pegasus_x", "model.encoder.layers.0.self_attn"),
        ("bigbird_pegasus", "model.encoder.layers.0.self_attn"),
        ("longt5", "encoder.block.0.layer.0.LocalSelfAttention"),
    ] {
        let error = read(name, stack).expect_err("a refusal").to_string();
        assert!(error.contains("has an attention in its encoder that is not supported"), "{error}");
        // What names no stack is a layer of the one that is known.
        assert!(read(name, "").is_ok(), "{name}");
    }
    assert!(read("pegasus_x", "model.decoder.layers.0.self_attn").is_ok());
}

/// What classes say in another way than it is read from a config that leaves it out, setting by setting: what the library
/// saves says it. `prefix` stands for whether the layer has an attention at all.
const SAID_WHEN_SAVED: [(&str, &[&str]); 17] = [
    ("albert", &["prefix"]),
    ("emu3_text_model", &["rope_base"]),
    ("falcon_h1", &["scale"]),
    ("flint", &["rope", "rope_base", "rope_dims", "rope_offset", "window"]),
    ("gemma4_text", &["head_dim", "rope_dims"]),
    ("gemma4_unified_text", &["head_dim", "rope_dims"]),
    ("granite_docling_text", &["kv_heads", "scale"]),
    ("gte", &["rope_base"]),
    ("hyperclovax", &["scale"]),
    ("kimi_linear", &["prefix"]),
    ("laguna", &["rope_base", "rope_dims"]),
    ("lfm3", &["prefix"]),
    ("mistral4", &["rope_scaling", "scale"]),
    ("muse_glimmer_text", &["rope", "rope_base", "rope_dims", "rope_offset", "scale", "window"]),
    ("nemotron_h", &["prefix"]),
    ("olmo_hybrid", &["prefix"]),
    ("qwen2_5_vl_text", &["kv_heads", "rope_base"]),
];

/// The settings of a layer of a model with such a config, which is written there.
fn settings_of(config: &Value, file: &Path, layer: u64, prefix: Option<&str>) -> Result<Settings> {
    fs::write(file, config.to_string()).expect("written");
    let settings = Settings {
        model_config: Some(file.to_string_lossy().into_owned().into()),
        layer: usize::try_from(layer).ok(),
        prefix: prefix.map(str::to_owned),
        ..Settings::default()
    };
    with_model(settings)
}

/// The settings in which the two differ; `prefix` where one alone has an attention there.
fn differing(left: Option<&Value>, right: Option<&Value>) -> HashSet<String> {
    let (Some(left), Some(right)) = (left, right) else {
        let is_one = left.is_some() || right.is_some();
        return is_one.then(|| "prefix".to_owned()).into_iter().collect();
    };
    let keys = [left, right].into_iter().filter_map(Value::as_object).flat_map(Map::keys);
    keys.filter(|key| left.get(key) != right.get(key)).cloned().collect()
}

/// What a config leaves out is what the library's class has by itself: with its sizes alone, or one thing more, it is read
/// as with all that the class says (`fixtures/families_defaults.py`).
#[test]
fn what_a_config_leaves_out_has_the_librarys_defaults() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/families_defaults.json");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("config.json");
    // Nothing where the layer has no attention, or a class names its sizes in another way.
    let read = |config: &Value, layer| {
        let settings = settings_of(config, &file, layer, None).ok()?;
        let config = Config::resolve(&Settings { prefix: None, ..settings }).ok()?;
        Some(Settings::from(&config).to_json())
    };
    let cases = json(&path);
    let list = |key: &str| cases[key].as_array().expect("a list");
    let plain = list("configs").iter().map(|config| (json!({}), config));
    let more = list("said").iter().map(|case| (case["said"].clone(), &case["config"]));
    let (mut compared, mut wrong) = (0, Vec::new());
    for (mut brief, whole) in plain.chain(more) {
        let said = brief.to_string();
        for key in list("sizes").iter().filter_map(Value::as_str) {
            if let Some(size) = whole.get(key) {
                brief[key] = size.clone();
            }
        }
        let kind = whole["model_type"].as_str().expect("text");
        let known =
            SAID_WHEN_SAVED.iter().find(|(own, _)| *own == kind).map_or(&[][..], |own| own.1);
        for layer in [0, 1, 3, 5] {
            let (brief, whole) = (read(&brief, layer), read(whole, layer));
            compared += usize::from(whole.is_some());
            let mut others = differing(brief.as_ref(), whole.as_ref());
            others.retain(|key| !known.contains(&key.as_str()));
            if !others.is_empty() {
                wrong.push(format!("{kind} {layer} {said}: {others:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(compared >= 600, "only {compared}");
}

/// Whether projections have biases, what the dot products are multiplied by and how many keys a query sees are read from a
/// config as the library builds its layers, which may not go by all that it says (`fixtures/families_built.py`).
#[test]
fn a_layer_is_read_as_the_library_builds_it() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("config.json");
    let configs = json(&fixtures.join("families_defaults.json"))["configs"].clone();
    let configs = configs.as_array().expect("a list");
    let (mut compared, mut wrong) = (0, Vec::new());
    for case in json(&fixtures.join("families_built.json")).as_array().expect("a list") {
        let is_it = |config: &&Value| config["model_type"] == case["model_type"];
        let mut config = configs.iter().find(is_it).expect("it is among them").clone();
        for (key, value) in case["said"].as_object().expect("an object") {
            config[key] = value.clone();
        }
        for built in case["layers"].as_array().expect("a list") {
            let told = || format!("{} {} {built}", case["model_type"], case["said"]);
            let layer = built["layer"].as_u64().expect("a number");
            let own = match settings_of(&config, &file, layer, built["path"].as_str()) {
                Ok(own) => own,
                Err(error) => {
                    assert!(error.to_string().ends_with("not supported"), "{}: {error}", told());
                    continue;
                }
            };
            compared += 1;
            let is_window = |window: &Value| window.as_u64() == own.window.map(|own| own as u64);
            if built["bias"] != (own.bias == Some(true))
                || !built.get("window").is_none_or(is_window)
                || !built["scale"].as_f64().is_none_or(|scale| is_scale(&own, scale))
            {
                wrong.push(format!("{}: {:?} {:?} {:?}", told(), own.bias, own.scale, own.window));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
    assert!(compared >= 1000, "only {compared}");
}

/// Whether the dot products are multiplied by that number, computed in f64 on both sides.
fn is_scale(settings: &Settings, expected: f64) -> bool {
    let Some(head_dim) = settings.head_dim else {
        // A class whose heads do not share its width has a head of another size.
        return true;
    };
    let head_dim = f64::from(u32::try_from(head_dim).expect("few features"));
    (settings.scale.unwrap_or(1.0 / head_dim.sqrt()) - expected).abs() <= 1e-12
}
