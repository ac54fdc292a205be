//! The settings of a Hugging Face model, from its `config.json`.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::config::{Feature, Mask, Pairing, QkNorm, RopeScaling, Settings};
use crate::error::{Error, Result, quoted};
use crate::file::read_json;

impl Settings {
    /// The settings completed by those of `model_config` and `layer`, if there is one: these stand, and the model says
    /// what they leave open.
    ///
    /// # Errors
    /// If the file cannot be read, is of no known architecture, or does not have the layer.
    pub fn with_model(mut self) -> Result<Self> {
        let Some(path) = self.model_config.take() else { return Ok(self) };
        let layer = self.layer.take();
        let has_freqs = self.rope_freqs.is_some();
        let is_scaled = !has_freqs && self.rope_scaling.is_none();
        let keys = read_json(Path::new(&path.0))?;
        let mut model = Model { path: path.0.into(), keys, layer, is_scaled }.settings()?;
        if has_freqs {
            model.rope_base = None;
        }
        // A model says all of these: what it does without, a file below it does not add.
        let without = Some(Feature::ALL.to_vec());
        Ok(Settings { without, ..self.over(model) })
    }
}

/// The architectures that are known, by `model_type`.
const KNOWN: &[&str] =
    &["bert", "gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2", "phi3", "gpt_neox"];

/// What most models call the width of the model and the number of its heads.
const WIDTH_AND_HEADS: [&str; 2] = ["hidden_size", "num_attention_heads"];

/// The model's config.
struct Model {
    path: PathBuf,
    keys: Map<String, Value>,
    layer: Option<usize>,
    /// Whether the model says how frequencies are scaled; otherwise the settings do.
    is_scaled: bool,
}

impl Model {
    fn settings(&self) -> Result<Settings> {
        let of_layers = |layers: &str| self.layer.map(|layer| format!("{layers}.{layer}"));
        let kind = match self.keys.get("model_type") {
            None | Some(Value::Null) => "",
            Some(kind) => kind.as_str().ok_or_else(|| self.wrong("model_type", "a string"))?,
        };
        let layers = self.size("num_hidden_layers")?.or(self.size("n_layer")?);
        if let (Some(layer), Some(layers)) = (self.layer, layers)
            && layer >= layers
        {
            let fix = format!("they are counted from 0 to {}", layers.saturating_sub(1));
            return Err(Error::file(&self.path, format!("there is no layer {layer}"), fix));
        }
        let settings = match kind {
            "bert" => Settings {
                mask: Some(self.bert_mask()?),
                bias: Some(true),
                prefix: of_layers("layer"),
                ..self.sizes(WIDTH_AND_HEADS)?
            },
            "gpt2" => Settings {
                bias: Some(true),
                scale: self.gpt2_scale()?,
                prefix: of_layers("h"),
                ..self.sizes(["n_embd", "n_head"])?
            },
            "llama" => Settings {
                bias: self.is("attention_bias", false)?.then_some(true),
                ..self.rotary()?
            },
            "mistral" => Settings {
                kv_heads: self.size_or("num_key_value_heads", 8)?,
                window: self.of_layer(self.size_or("sliding_window", 4096)?, || Ok(true))?,
                ..self.rotary()?
            },
            "qwen2" => Settings {
                bias: Some(true),
                kv_heads: self.size_or("num_key_value_heads", 32)?,
                window: self.qwen_window()?,
                ..self.rotary()?
            },
            "qwen3" => Settings {
                bias: self.is("attention_bias", false)?.then_some(true),
                qk_norm: Some(QkNorm::Rms),
                qk_norm_eps: Some(self.number("rms_norm_eps")?.unwrap_or(1e-6)),
                kv_heads: self.size_or("num_key_value_heads", 32)?,
                window: self.qwen_window()?,
                head_dim: self.size("head_dim")?.or(Some(128)),
                ..self.rotary()?
            },
            "gemma2" => Settings {
                bias: self.is("attention_bias", false)?.then_some(true),
                head_dim: self.size("head_dim")?.or(Some(256)),
                kv_heads: self.size_or("num_key_value_heads", 4)?,
                scale: Some(self.gemma2_scale()?),
                softcap: match self.keys.get("attn_logit_softcapping") {
                    Some(Value::Null) => None,
                    _ => Some(self.number("attn_logit_softcapping")?.unwrap_or(50.0)),
                },
                window: self.of_layer(self.size_or("sliding_window", 4096)?, || {
                    Ok(self.this_layer()? % 2 == 0)
                })?,
                ..self.rotary()?
            },
            "phi3" => Settings {
                window: self.of_layer(self.size("sliding_window")?, || Ok(true))?,
                rope_dims: self.partial("partial_rotary_factor", 1.0)?,
                ..self.rotary()?
            },
            "gpt_neox" => Settings {
                bias: self.is("attention_bias", true)?.then_some(true),
                rope_dims: self.partial("rotary_pct", 0.25)?,
                ..self.rotary()?
            },
            other => return Err(self.unknown(other)),
        };
        Ok(Settings { mask: settings.mask.or(Some(Mask::Causal)), ..settings })
    }

    /// The sizes that every model has, under these names.
    fn sizes(&self, [width, heads]: [&str; 2]) -> Result<Settings> {
        let missing = |name: &str| {
            let fix = "give the model's own config.json, whole";
            Error::file(&self.path, format!("has no {name}"), fix)
        };
        let d_model = self.size(width)?.ok_or_else(|| missing(width))?;
        Ok(Settings {
            d_model: Some(d_model),
            d_in: Some(d_model),
            heads: Some(self.size(heads)?.ok_or_else(|| missing(heads))?),
            ..Settings::default()
        })
    }

    /// The sizes and rotary positions of Llama and its kin.
    fn rotary(&self) -> Result<Settings> {
        let sizes = self.sizes(WIDTH_AND_HEADS)?;
        Ok(Settings {
            kv_heads: self.size("num_key_value_heads")?,
            head_dim: self.head_dim(WIDTH_AND_HEADS)?,
            rope: Some(Pairing::Half),
            rope_base: self.of_rope(&["rope_theta", "rotary_emb_base"])?,
            rope_scaling: match self.rope()? {
                Some(rope) if self.is_scaled => self.scaling(rope)?,
                _ => None,
            },
            prefix: self.layer.map(|layer| format!("layers.{layer}")),
            ..sizes
        })
    }

    fn head_dim(&self, names: [&str; 2]) -> Result<Option<usize>> {
        let sizes = self.sizes(names)?;
        let split = sizes.d_model.zip(sizes.heads);
        let split = split.filter(|(width, heads)| *heads > 0 && width % heads == 0);
        Ok(self.size("head_dim")?.or(split.map(|(width, heads)| width / heads)))
    }

    /// How many features of a head are turned, where that is a part of them.
    fn partial(&self, name: &str, otherwise: f64) -> Result<Option<usize>> {
        let part = self.of_rope(&["partial_rotary_factor", name])?.unwrap_or(otherwise);
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a head has few features; rounded down as the library does"
        )]
        let of = |head_dim: usize| (head_dim as f64 * part) as usize;
        #[allow(clippy::float_cmp, reason = "1 exactly")]
        Ok(self.head_dim(WIDTH_AND_HEADS)?.filter(|_| part != 1.0).map(of))
    }

    /// What is said of rotary positions; since transformers 5 all of it stands there.
    fn rope(&self) -> Result<Option<&Map<String, Value>>> {
        for name in ["rope_parameters", "rope_scaling"] {
            match self.keys.get(name) {
                None | Some(Value::Null) => {}
                Some(Value::Object(rope)) => return Ok(Some(rope)),
                Some(_) => return Err(self.wrong(name, "an object")),
            }
        }
        Ok(None)
    }

    /// The first of these numbers, among what is said of rotary positions or beside it.
    fn of_rope(&self, names: &[&str]) -> Result<Option<f64>> {
        for keys in self.rope()?.into_iter().chain([&self.keys]) {
            for name in names {
                if let Some(number) = self.number_in(keys, name)? {
                    return Ok(Some(number));
                }
            }
        }
        Ok(None)
    }

    fn bert_mask(&self) -> Result<Mask> {
        match self.keys.get("position_embedding_type").and_then(Value::as_str) {
            None | Some("absolute") => {}
            Some(kind) => {
                let what = format!("position_embedding_type {} adds to the scores", quoted(kind));
                return Err(Error::file(&self.path, what, "this is not traced"));
            }
        }
        Ok(if self.is("is_decoder", false)? { Mask::Causal } else { Mask::None })
    }

    fn gemma2_scale(&self) -> Result<f64> {
        let scalar = self.number("query_pre_attn_scalar")?.unwrap_or(256.0);
        if scalar > 0.0 {
            return Ok(scalar.powf(-0.5));
        }
        Err(self.wrong("query_pre_attn_scalar", "a number above 0"))
    }

    /// The scaling of rotary frequencies, completed by what the library takes from beside it.
    fn scaling(&self, stated: &Map<String, Value>) -> Result<Option<RopeScaling>> {
        let kind = stated.get("rope_type").or_else(|| stated.get("type")).and_then(Value::as_str);
        if matches!(kind, None | Some("default")) {
            return Ok(None);
        }
        let mut keys = stated.clone();
        for name in ["max_position_embeddings", "original_max_position_embeddings"] {
            if let Some(value) = self.keys.get(name)
                && !keys.contains_key(name)
            {
                keys.insert(name.to_owned(), value.clone());
            }
        }
        let scaling = Value::Object(keys).to_string().parse::<RopeScaling>();
        scaling.map(Some).map_err(|error| {
            let fix = "say the rest by `rope`, `rope_freqs=FILE`, `rope_attention_factor`";
            Error::file(&self.path, format!("rope: {error}"), fix)
        })
    }

    /// The window, if the layer has it: `layer_types` says so, and where there is no such key `otherwise`.
    fn of_layer(
        &self,
        window: Option<usize>,
        otherwise: impl FnOnce() -> Result<bool>,
    ) -> Result<Option<usize>> {
        let slides = match self.keys.get("layer_types").and_then(Value::as_array) {
            _ if window.is_none() => false,
            None => otherwise()?,
            Some(types) => {
                let slides = |kind: &Value| kind.as_str() == Some("sliding_attention");
                match types.first() {
                    Some(first) if types.iter().all(|kind| kind == first) => slides(first),
                    _ => match types.get(self.this_layer()?) {
                        Some(kind) => slides(kind),
                        None => otherwise()?,
                    },
                }
            }
        };
        Ok(window.filter(|_| slides))
    }

    fn qwen_window(&self) -> Result<Option<usize>> {
        if !self.is("use_sliding_window", false)? {
            return Ok(None);
        }
        let slides = || Ok(self.this_layer()? >= self.size("max_window_layers")?.unwrap_or(28));
        self.of_layer(self.size_or("sliding_window", 4096)?, slides)
    }

    /// GPT-2 can leave its scores unscaled, or divide them by the number of the layer too.
    fn gpt2_scale(&self) -> Result<Option<f64>> {
        let is_scaled = self.is("scale_attn_weights", true)?;
        let by_layer = self.is("scale_attn_by_inverse_layer_idx", false)?;
        if is_scaled && !by_layer {
            return Ok(None);
        }
        let head_dim = self.head_dim(["n_embd", "n_head"])?.unwrap_or(1);
        let plain = if is_scaled { 1.0 / root(head_dim) } else { 1.0 };
        #[allow(clippy::cast_precision_loss, reason = "layers are few")]
        let by = if by_layer { (self.this_layer()? + 1) as f64 } else { 1.0 };
        Ok(Some(plain / by))
    }

    fn this_layer(&self) -> Result<usize> {
        let what = "its layers differ in their attention";
        self.layer.ok_or_else(|| Error::file(&self.path, what, "say which is meant: `layer=N`"))
    }

    fn is(&self, name: &str, otherwise: bool) -> Result<bool> {
        match self.keys.get(name) {
            None | Some(Value::Null) => Ok(otherwise),
            Some(value) => value.as_bool().ok_or_else(|| self.wrong(name, "true or false")),
        }
    }

    /// A size, if the key is there and not null.
    fn size(&self, name: &str) -> Result<Option<usize>> {
        match self.keys.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let size = value.as_u64().and_then(|size| usize::try_from(size).ok());
                size.map(Some).ok_or_else(|| self.wrong(name, "a whole number from 0 up"))
            }
        }
    }

    /// A size that has a default where the key is absent, and none where it is null.
    fn size_or(&self, name: &str, otherwise: usize) -> Result<Option<usize>> {
        match self.keys.get(name) {
            None => Ok(Some(otherwise)),
            Some(_) => self.size(name),
        }
    }

    fn number(&self, name: &str) -> Result<Option<f64>> {
        self.number_in(&self.keys, name)
    }

    fn number_in(&self, keys: &Map<String, Value>, name: &str) -> Result<Option<f64>> {
        match keys.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| self.wrong(name, "a number")),
        }
    }

    fn wrong(&self, name: &str, wanted: &str) -> Error {
        let what = format!("{name} is not {wanted}");
        Error::file(&self.path, what, "give the model's own config.json")
    }

    /// An architecture that is not known is not guessed at; what its config says by common names is told as flags.
    fn unknown(&self, kind: &str) -> Error {
        let names = [
            ("hidden_size", "d_model"),
            ("n_embd", "d_model"),
            ("d_model", "d_model"),
            ("num_attention_heads", "heads"),
            ("num_heads", "heads"),
            ("n_head", "heads"),
            ("num_key_value_heads", "kv_heads"),
            ("head_dim", "head_dim"),
            ("d_kv", "head_dim"),
            ("rope_theta", "rope_base"),
            ("sliding_window", "window"),
            ("attn_logit_softcapping", "softcap"),
        ];
        // Models of more than text have their sizes a level down.
        let text = self.keys.get("text_config").and_then(Value::as_object);
        let of_text = [Some(&self.keys), text].into_iter().flatten();
        let rope = of_text.clone().filter_map(|keys| keys.get("rope_parameters")?.as_object());
        let places: Vec<_> = of_text.chain(rope).collect();
        let setting = |(name, key): (&str, &str)| {
            let value = places.iter().find_map(|keys| keys.get(name))?;
            let value = Some(value).filter(|value| value.is_number())?;
            let pairing = if key == "rope_base" { "`rope=half` " } else { "" };
            Some(format!("{pairing}`{key}={value}`"))
        };
        let settings: Vec<String> = names.into_iter().filter_map(setting).collect();
        let kind = if kind.is_empty() {
            "has no model_type".to_owned()
        } else {
            format!("is of model_type {}, which is not known", quoted(kind))
        };
        let what = format!("{kind}; known are {}", KNOWN.join(", "));
        let settings =
            if settings.is_empty() { "`heads=N` and so on".to_owned() } else { settings.join(" ") };
        let fix = format!(
            "say by flags what the model does, and pick the layer by `prefix`; from its sizes: {settings}"
        );
        Error::file(&self.path, what, fix)
    }
}

/// √`d_k`.
#[allow(clippy::cast_precision_loss, reason = "exact below 2^53 features")]
fn root(head_dim: usize) -> f64 {
    (head_dim as f64).sqrt()
}
