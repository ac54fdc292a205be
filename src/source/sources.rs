//! Tensors from files, in place of drawn ones.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::alias::meanings;
use super::layout::{none_found, pick};
use super::mask::{MaskShapes, Masks, check_shape, zeros_and_ones};
use super::role::Role;
use super::taken::Taken;
use crate::config::{Config, Settings};
use crate::error::{Error, Result};
use crate::file::{Bundle, Info, Record};

/// What a run takes from outside: tensors by step name, and the attention mask as its file holds it.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    tensors: HashMap<String, Tensor>,
    attn_mask: Option<Tensor>,
    heads: Option<usize>,
    taken: Vec<Taken>,
}

impl Sources {
    /// Reads the files that the settings name: `x`, `weights` and `attn_mask`.
    ///
    /// # Errors
    /// If a file cannot be read, or does not hold what it should.
    pub fn load(settings: &Settings) -> Result<Self> {
        let mut sources = Self::default();
        if let Some(path) = &settings.x {
            let (x, taken) = one_tensor(path, "x")?;
            sources.tensors.insert("x".to_owned(), with_batch(&x)?);
            sources.taken.push(taken);
        }
        if let Some(path) = &settings.weights {
            sources = sources.with_weights(Path::new(path), settings.prefix.as_deref())?;
        }
        if let Some(path) = &settings.attn_mask {
            let (mask, taken) = one_tensor(path, "attn_mask")?;
            sources.attn_mask = Some(mask);
            sources.taken.push(taken);
        }
        Ok(sources)
    }

    /// Adds the weights of the layer that `prefix` picks in a file; no other tensor of it is read.
    fn with_weights(mut self, path: &Path, prefix: Option<&str>) -> Result<Self> {
        let bundle = Bundle::open(path)?;
        let names: Vec<&str> = bundle.infos().iter().map(|info| info.name.as_str()).collect();
        let weights = pick(&names, prefix)
            .and_then(|layer| layer.ok_or_else(|| none_found(&names)))
            .and_then(|layer| layer.weights(|name| bundle.tensor(name)))
            .map_err(|error| error.in_file(path))?;
        self.tensors.extend(weights.tensors);
        self.heads = weights.heads;
        self.taken.extend(weights.taken);
        Ok(self)
    }

    /// What was taken as what from the files.
    #[must_use]
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// The settings and sources that check a record: `flags` over its config, and its own given tensors but for
    /// those that the flags replace. What its config takes from a file that the record lacks is read.
    ///
    /// # Errors
    /// If such a file cannot be read; or if the record has no config to draw by, and lacks X or a weight.
    pub fn of_record(record: &Record, flags: &Settings) -> Result<(Settings, Self)> {
        let (settings, sources) = Self::over_record(record, flags, |_| true)?;
        let needed = ["x", "w_q", "w_k", "w_v", "w_o"];
        let missing = needed.iter().find(|name| !sources.tensors.contains_key(**name));
        match (missing, &record.config) {
            (Some(name), None) => {
                let fix = "record it too, or give it by --x or --weights";
                Err(Error::tensor(*name, "is neither recorded nor given", fix))
            }
            _ => Ok((settings, sources)),
        }
    }

    /// The settings and sources that run a record again: `flags` over its config, what is drawn is drawn again, and
    /// what its config takes from files is taken from the record.
    ///
    /// # Errors
    /// If the flags or the config name a file that cannot be read.
    pub fn again(record: &Record, flags: &Settings) -> Result<(Settings, Self)> {
        let config = record.config.clone().unwrap_or_default();
        Self::over_record(record, flags, |role| match role {
            Role::Input => config.x.is_some(),
            Role::Parameter => config.weights.is_some(),
            Role::Mask | Role::AddedMask => config.attn_mask.is_some(),
            Role::Keep => false,
        })
    }

    fn over_record(
        record: &Record,
        flags: &Settings,
        wanted: impl Fn(Role) -> bool,
    ) -> Result<(Settings, Self)> {
        let masks_stated = flags.mask.is_some()
            || flags.key_mask.is_some()
            || flags.lengths.is_some()
            || flags.window.is_some()
            || flags.alibi.is_some()
            || flags.attn_mask.is_some()
            || flags.attn_mask_true.is_some();
        let replaced = |role: Role| match role {
            Role::Input => flags.x.is_some(),
            Role::Parameter => flags.weights.is_some() || flags.prefix.is_some(),
            Role::Mask | Role::AddedMask => masks_stated,
            Role::Keep => false,
        };
        let own = Self::recorded(record, |role| wanted(role) && !replaced(role));
        let has = |name| own.tensors.contains_key(name);
        let settings = flags.clone().over(record.config.clone().unwrap_or_default());
        let to_read = Settings {
            x: settings.x.clone().filter(|_| !has("x")),
            weights: settings.weights.clone().filter(|_| !has("w_q")),
            attn_mask: settings.attn_mask.clone().filter(|_| !has("mask") && !has("attn_bias")),
            prefix: settings.prefix.clone(),
            ..Settings::default()
        };
        let sources = own.with(Self::load(&to_read)?);
        Ok((settings, sources))
    }

    /// The number of heads, where the weights' shapes tell it.
    #[must_use]
    pub fn heads(&self) -> Option<usize> {
        self.heads
    }

    /// The tensor of a step.
    #[must_use]
    pub fn tensor(&self, step: &str) -> Option<&Tensor> {
        self.tensors.get(step)
    }

    /// The same with X (`seq_len`, batch, `d_in`) turned into (batch, `seq_len`, `d_in`); nothing where that is the same.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with_tokens_first(&self) -> Result<Option<(Self, Taken)>> {
        let Some(x) = self.tensors.get("x").filter(|x| x.rank() == 3) else { return Ok(None) };
        let mut turned = self.clone();
        turned.tensors.insert("x".to_owned(), x.transpose(0, 1)?.contiguous()?);
        let seen = Taken::as_it_is("x", "x").read("axes (query, batch, input)");
        Ok(Some((turned, seen)))
    }

    /// The given tensors of a recorded trace whose role `wanted` accepts.
    #[must_use]
    pub fn recorded(record: &Record, wanted: impl Fn(Role) -> bool) -> Self {
        let entries =
            record.entries.iter().filter(|entry| Role::of(&entry.name).is_some_and(&wanted));
        let tensors = entries.map(|entry| (entry.name.clone(), entry.tensor.clone()));
        Self { tensors: tensors.collect(), ..Self::default() }
    }

    /// Adds what `other` has, in place of what stands under the same name.
    fn with(mut self, other: Self) -> Self {
        self.tensors.extend(other.tensors);
        self.attn_mask = other.attn_mask.or(self.attn_mask);
        self.heads = other.heads.or(self.heads);
        self.taken.extend(other.taken);
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
            ("heads", settings.heads, sizes.heads, "w_q"),
        ];
        for (name, stated, found, tensor) in stated {
            if let (Some(stated), Some(found)) = (stated, found)
                && stated != found
            {
                let dims = self.tensors.get(tensor).map(|tensor| tensor.dims().to_vec());
                let what = format!(
                    "is {:?}, which makes {name} {found}, and the settings say {stated}",
                    dims.unwrap_or_default()
                );
                let fix =
                    format!("set {name} to {found} or nowhere, or give a tensor of that size");
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
            sizes.heads = self.heads;
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
            let tensor = match Role::of(name) {
                Some(role) if role.is_boolean() => zeros_and_ones(name, tensor)?,
                _ => tensor.to_dtype(config.dtype.into())?,
            };
            given.insert(name.clone(), tensor);
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
pub fn with_batch(x: &Tensor) -> Result<Tensor> {
    Ok(if x.rank() == 2 { x.unsqueeze(0)? } else { x.clone() })
}

/// The tensor of `FILE` or `FILE:TENSOR`. A file of one tensor needs no name; of several, `name` is taken, or the one
/// that may be it.
fn one_tensor(place: &str, name: &str) -> Result<(Tensor, Taken)> {
    let (path, asked) = split_place(place);
    let bundle = Bundle::open(&path)?;
    let names: Vec<&str> = bundle.infos().iter().map(|info| info.name.as_str()).collect();
    let chosen = match (&asked, bundle.infos()) {
        (Some(asked), _) => Some(asked.as_str()),
        (None, [Info { name: only, .. }]) => Some(only.as_str()),
        (None, _) if names.contains(&name) => Some(name),
        (None, _) => {
            let mut alike = names.iter().filter(|other| meanings(other).contains(&name));
            alike.next().filter(|_| alike.next().is_none()).copied()
        }
    };
    let tensor = chosen.map(|chosen| bundle.tensor(chosen)).transpose()?.flatten();
    let taken = Taken::as_it_is(name, chosen.filter(|name| !name.is_empty()).unwrap_or(place));
    tensor.map(|tensor| (tensor, taken)).ok_or_else(|| {
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
#[must_use]
pub fn split_place(place: &str) -> (PathBuf, Option<String>) {
    match place.rsplit_once(':') {
        Some((path, tensor)) if !Path::new(place).exists() && !tensor.contains(['/', '\\']) => {
            (PathBuf::from(path), Some(tensor.to_owned()))
        }
        _ => (PathBuf::from(place), None),
    }
}

/// The rows of a key mask (batch, key), as a config states them, from `FILE` or `FILE:TENSOR`.
///
/// # Errors
/// If the file cannot be read, or does not hold such a tensor of 0 and 1.
pub fn key_mask_rows(place: &str) -> Result<Vec<String>> {
    let (mask, _) = one_tensor(place, "key_mask")?;
    let [_, _] = dims(&mask, "key_mask", "(batch, key)")?;
    let rows = zeros_and_ones("key_mask", &mask)?.to_vec2::<u8>()?;
    let text = |row: Vec<u8>| row.into_iter().map(|bit| if bit == 1 { '1' } else { '0' }).collect();
    Ok(rows.into_iter().map(text).collect())
}
