//! Tensors from files, in place of drawn ones.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};

use super::layout;
use super::mask::{MaskShapes, Masks, check_shape};
use crate::config::{Config, Settings};
use crate::error::{Error, Result};
use crate::file::Record;

/// What a run takes from outside: tensors by step name, and the attention mask as its file holds it.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    tensors: HashMap<String, Tensor>,
    attn_mask: Option<Tensor>,
}

impl Sources {
    /// Reads the files that the settings name: `x`, `weights` and `attn_mask`.
    ///
    /// # Errors
    /// If a file cannot be read, or does not hold what it should.
    pub fn load(settings: &Settings) -> Result<Self> {
        let mut sources = Self::default();
        if let Some(path) = &settings.x {
            let x = one_tensor(path, "x")?;
            sources.tensors.insert("x".to_owned(), with_batch(&x)?);
        }
        if let Some(path) = &settings.weights {
            let record = Record::read(Path::new(path))?;
            let prefix = settings.prefix.as_deref().unwrap_or_default();
            sources.tensors.extend(layout::weights(&record, prefix)?);
        }
        if let Some(path) = &settings.attn_mask {
            sources.attn_mask = Some(one_tensor(path, "attn_mask")?);
        }
        Ok(sources)
    }

    /// The settings and sources that check the record at `path`: `flags` over its config, and its own given
    /// tensors but for those that the flags replace. What its config takes from a file that the record lacks is
    /// read.
    ///
    /// # Errors
    /// If such a file cannot be read.
    pub fn of_record(record: &Record, flags: &Settings, path: &Path) -> Result<(Settings, Self)> {
        Self::over_record(record, flags, path, |_| true)
    }

    /// The settings and sources that run the record at `path` again: `flags` over its config, what is drawn is
    /// drawn again, and what its config takes from files is taken from the record.
    ///
    /// # Errors
    /// If the flags or the config name a file that cannot be read.
    pub fn again(record: &Record, flags: &Settings, path: &Path) -> Result<(Settings, Self)> {
        let config = record.config.clone().unwrap_or_default();
        Self::over_record(record, flags, path, |name| match name {
            "x" => config.x.is_some(),
            "mask" | "attn_bias" => config.attn_mask.is_some(),
            "dropout_keep" => false,
            _ => config.weights.is_some(),
        })
    }

    fn over_record(
        record: &Record,
        flags: &Settings,
        path: &Path,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<(Settings, Self)> {
        let masks_stated = flags.mask.is_some()
            || flags.key_mask.is_some()
            || flags.lengths.is_some()
            || flags.attn_mask.is_some();
        let replaced = |name: &str| match name {
            "x" => flags.x.is_some(),
            "mask" | "attn_bias" => masks_stated,
            "dropout_keep" => false,
            _ => flags.weights.is_some(),
        };
        let own = Self::recorded(record).only(|name| wanted(name) && !replaced(name));
        let has = |name| own.tensors.contains_key(name);
        let (has_x, has_weights) = (has("x"), has("w_q"));
        let has_mask = has("mask") || has("attn_bias");
        // What is still to be read is named relative to the record's folder.
        let config = record.config.clone().unwrap_or_default();
        let folder = path.parent().unwrap_or(Path::new(""));
        let beside = config.clone().in_folder(folder);
        let config = Settings {
            x: if has_x { config.x } else { beside.x },
            weights: if has_weights { config.weights } else { beside.weights },
            attn_mask: if has_mask { config.attn_mask } else { beside.attn_mask },
            ..config
        };
        let settings = flags.clone().over(config);
        let to_read = Settings {
            x: settings.x.clone().filter(|_| !has_x),
            weights: settings.weights.clone().filter(|_| !has_weights),
            attn_mask: settings.attn_mask.clone().filter(|_| !has_mask),
            prefix: settings.prefix.clone(),
            ..Settings::default()
        };
        let sources = own.with(Self::load(&to_read)?);
        Ok((settings, sources))
    }

    /// The given tensors of a recorded trace: inputs, weights, masks and dropout's keep-mask.
    #[must_use]
    pub fn recorded(record: &Record) -> Self {
        let given = |name: &str| {
            matches!(name, "x" | "mask" | "attn_bias" | "dropout_keep")
                || matches!(name.split_once('_'), Some(("w" | "b", "q" | "k" | "v" | "o")))
        };
        let entries = record.entries.iter().filter(|entry| given(&entry.name));
        let tensors = entries.map(|entry| (entry.name.clone(), entry.tensor.clone()));
        Self { tensors: tensors.collect(), attn_mask: None }
    }

    /// Keeps the tensors whose name `keep` accepts.
    fn only(mut self, keep: impl Fn(&str) -> bool) -> Self {
        self.tensors.retain(|name, _| keep(name));
        self
    }

    /// Adds what `other` has, in place of what stands under the same name.
    fn with(mut self, other: Self) -> Self {
        self.tensors.extend(other.tensors);
        self.attn_mask = other.attn_mask.or(self.attn_mask);
        self
    }

    /// The settings completed by the sizes of the tensors, and decided.
    ///
    /// # Errors
    /// If a tensor has the wrong number of axes, or contradicts a setting, or [`Config::resolve`] refuses.
    pub fn resolve(&self, settings: &Settings) -> Result<Config> {
        let sizes = self.sizes()?;
        let stated = [
            ("batch", settings.batch, sizes.batch, "x"),
            ("seq_len", settings.seq_len, sizes.seq_len, "x"),
            (
                "d_in",
                settings.d_in,
                sizes.d_in,
                if self.tensors.contains_key("x") { "x" } else { "w_q" },
            ),
            ("d_model", settings.d_model, sizes.d_model, "w_q"),
        ];
        for (name, stated, found, tensor) in stated {
            if let (Some(stated), Some(found)) = (stated, found)
                && stated != found
            {
                let dims = self.tensors.get(tensor).map(|tensor| tensor.dims().to_vec());
                let what = format!(
                    "is {:?}, which makes {name} {found}, and {name} is set to {stated}",
                    dims.unwrap_or_default()
                );
                let fix = format!("leave {name} out, or give a tensor of that size");
                return Err(Error::tensor(tensor, what, fix));
            }
        }
        if settings.bias == Some(true) && sizes.bias == Some(false) {
            let fix = "pass --no-bias, or give all four biases; zeros will do";
            return Err(Error::tensor("weights", "have no biases, and bias is set", fix));
        }
        Config::resolve(&settings.clone().over(sizes))
    }

    /// What the tensors' shapes say of the run.
    fn sizes(&self) -> Result<Settings> {
        let mut sizes = Settings::default();
        if let Some(weight) = self.tensors.get("w_q") {
            let [outputs, inputs] = dims(weight, "w_q", "(d_model, d_in)")?;
            sizes.d_model = Some(outputs);
            sizes.d_in = Some(inputs);
            sizes.bias = Some(self.tensors.contains_key("b_q"));
        }
        if let Some(x) = self.tensors.get("x") {
            let [batch, tokens, inputs] = dims(x, "x", "(batch, seq_len, d_in)")?;
            sizes.batch = Some(batch);
            sizes.seq_len = Some(tokens);
            sizes.d_in = Some(inputs);
        }
        Ok(sizes)
    }

    /// The shapes of the run's masks.
    ///
    /// # Errors
    /// As [`MaskShapes::of`].
    pub fn mask_shapes(&self, config: &Config) -> Result<MaskShapes> {
        let mut shapes = MaskShapes::of(config, self.attn_mask.as_ref())?;
        let recorded = |name: &str| match self.tensors.get(name) {
            Some(mask) => check_shape(config, name, mask).map(|()| Some(mask.dims().to_vec())),
            None => Ok(None),
        };
        shapes.blocked = recorded("mask")?.or(shapes.blocked);
        shapes.added = recorded("attn_bias")?.or(shapes.added);
        Ok(shapes)
    }

    /// Every tensor that the run is given: from here, composed, or drawn.
    ///
    /// # Errors
    /// If a mask does not fit, or a tensor cannot be made.
    pub fn given(&self, config: &Config) -> Result<HashMap<String, Tensor>> {
        let weights = ["w_q", "w_k", "w_v", "w_o"];
        let drawn = !self.tensors.contains_key("x")
            || weights.iter().any(|name| !self.tensors.contains_key(*name))
            || (config.dropout > 0.0 && !self.tensors.contains_key("dropout_keep"));
        let mut given = if drawn { super::draw(config)? } else { HashMap::new() };
        let masks = Masks::compose(config, self.attn_mask.as_ref())?;
        given.extend(masks.blocked.map(|mask| ("mask".to_owned(), mask)));
        given.extend(masks.added.map(|mask| ("attn_bias".to_owned(), mask)));
        for (name, tensor) in &self.tensors {
            let dtype = match name.as_str() {
                "mask" | "dropout_keep" => DType::U8,
                _ => config.dtype.into(),
            };
            given.insert(name.clone(), tensor.to_dtype(dtype)?);
        }
        Ok(given)
    }
}

/// The lengths of a tensor's axes, as many as `axes` names.
fn dims<const N: usize>(tensor: &Tensor, name: &str, axes: &str) -> Result<[usize; N]> {
    <[usize; N]>::try_from(tensor.dims()).map_err(|_| {
        let what = format!("is {:?}, {} axes where {axes} is needed", tensor.dims(), tensor.rank());
        Error::tensor(name, what, format!("give a tensor of shape {axes}"))
    })
}

/// X (`seq_len`, `d_in`) is a batch of one.
fn with_batch(x: &Tensor) -> Result<Tensor> {
    Ok(if x.rank() == 2 { x.unsqueeze(0)? } else { x.clone() })
}

/// The tensor of `FILE` or `FILE:TENSOR`. A file of one tensor needs no name; of several, `name` is taken.
fn one_tensor(place: &str, name: &str) -> Result<Tensor> {
    let (path, asked) = split_place(place);
    let record = Record::read(&path)?;
    let names: Vec<&str> = record.entries.iter().map(|entry| entry.name.as_str()).collect();
    let tensor = match (&asked, record.entries.as_slice()) {
        (Some(asked), _) => record.tensor(asked),
        (None, [only]) => Some(&only.tensor),
        (None, _) => record.tensor(name),
    };
    tensor.cloned().ok_or_else(|| {
        let what = format!("holds no tensor {}", asked.as_deref().unwrap_or(name));
        let fix = match names.as_slice() {
            [""] => {
                "its one tensor has no name: leave out the colon and what follows it".to_owned()
            }
            names => format!("name one of its tensors, as FILE:TENSOR: {}", names.join(", ")),
        };
        Error::file(&path, what, fix)
    })
}

/// `FILE:TENSOR` taken apart, unless a file of the whole name is there.
fn split_place(place: &str) -> (PathBuf, Option<String>) {
    match place.rsplit_once(':') {
        Some((path, tensor)) if !Path::new(place).exists() && !tensor.contains(['/', '\\']) => {
            (PathBuf::from(path), Some(tensor.to_owned()))
        }
        _ => (PathBuf::from(place), None),
    }
}
