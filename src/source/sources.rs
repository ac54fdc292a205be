//! Tensors from files, in place of drawn ones.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};

use super::alias::meanings;
use super::frequencies::frequencies;
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
    /// Reads the files that the settings name: `x`, `memory`, `weights`, `past`, `rope_freqs` and `attn_mask`.
    ///
    /// # Errors
    /// If a file cannot be read, or does not hold what it should.
    pub fn load(settings: &Settings) -> Result<Self> {
        let mut sources = Self::default();
        for (name, path) in [("x", &settings.x), ("memory", &settings.memory)] {
            if let Some(path) = path {
                let (tokens, taken) = one_tensor(path, name)?;
                sources.tensors.insert(name.to_owned(), with_batch(&tokens)?);
                sources.taken.push(taken);
            }
        }
        if let Some(path) = &settings.rope_freqs {
            let (freqs, taken) = one_tensor(path, "rope_freqs")?;
            sources.tensors.insert("rope_freqs".to_owned(), freqs);
            sources.taken.push(taken);
        }
        if let Some(path) = &settings.past {
            sources = sources.with_past(Path::new(path))?;
        }
        if let Some(path) = &settings.weights {
            sources = sources.with_weights(Path::new(path), settings)?;
        }
        if let Some(path) = &settings.attn_mask {
            let (mask, taken) = one_tensor(path, "attn_mask")?;
            sources.attn_mask = Some(mask);
            sources.taken.push(taken);
        }
        Ok(sources)
    }

    /// Adds the keys and values of a cache.
    fn with_past(mut self, path: &Path) -> Result<Self> {
        let bundle = Bundle::open(path)?;
        let names = || bundle.infos().iter().map(|info| info.name.as_str());
        for name in ["k_past", "v_past"] {
            let exact = names().find(|other| *other == name);
            let found = exact.or_else(|| names().find(|other| meanings(other).contains(&name)));
            let past = found.map(|found| bundle.tensor(found)).transpose()?.flatten();
            let (Some(found), Some(past)) = (found, past) else {
                let fix = "a cache is k_past and v_past, each (batch, kv_heads, key, head_dim)";
                return Err(Error::file(path, format!("holds no tensor {name}"), fix));
            };
            self.taken.push(Taken::as_it_is(name, found));
            self.tensors.insert(name.to_owned(), past);
        }
        Ok(self)
    }

    /// Adds the weights of the layer that the prefix picks in a file; no other tensor of it is read.
    fn with_weights(mut self, path: &Path, settings: &Settings) -> Result<Self> {
        let bundle = Bundle::open(path)?;
        let names: Vec<&str> = bundle.infos().iter().map(|info| info.name.as_str()).collect();
        let weights = pick(&names, settings.prefix.as_deref())
            .and_then(|layer| layer.ok_or_else(|| none_found(&names)))
            .and_then(|layer| layer.weights(settings.into(), |name| bundle.tensor(name)))
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
        let missing = needed.iter().find(|name| !sources.has(name));
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
            Role::Memory => config.memory.is_some(),
            Role::Parameter => config.weights.is_some(),
            Role::Frequencies => config.rope_freqs.is_some(),
            // There is no other place that a cache could come from.
            Role::Past => true,
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
            || flags.attn_mask_true.is_some()
            || flags.causal_align.is_some()
            || flags.past.is_some()
            || (flags.queries.is_some() && record.config.is_some());
        let frequencies_stated = flags.rope.is_some()
            || flags.rope_base.is_some()
            || flags.rope_dims.is_some()
            || flags.rope_scaling.is_some()
            || flags.rope_freqs.is_some();
        let replaced = |role: Role| match role {
            Role::Input => flags.x.is_some(),
            Role::Memory => flags.memory.is_some(),
            Role::Parameter => flags.weights.is_some() || flags.prefix.is_some(),
            Role::Frequencies => frequencies_stated && record.config.is_some(),
            Role::Past => flags.past.is_some(),
            Role::Mask | Role::AddedMask => masks_stated,
            Role::Keep => false,
        };
        let own = Self::recorded(record, |role| wanted(role) && !replaced(role));
        let has = |name| own.has(name);
        let settings = flags.clone().over(record.config.clone().unwrap_or_default());
        let to_read = Settings {
            x: settings.x.clone().filter(|_| !has("x")),
            weights: settings.weights.clone().filter(|_| !has("w_q")),
            attn_mask: settings.attn_mask.clone().filter(|_| !has("mask") && !has("attn_bias")),
            memory: settings.memory.clone().filter(|_| !has("memory")),
            past: settings.past.clone().filter(|_| !has("k_past")),
            rope_freqs: settings.rope_freqs.clone().filter(|_| !has("rope_freqs")),
            prefix: settings.prefix.clone(),
            heads: settings.heads,
            head_dim: settings.head_dim,
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

    /// Whether a step is given.
    #[must_use]
    pub fn has(&self, step: &str) -> bool {
        self.tensors.contains_key(step)
    }

    /// The tensor of a step.
    #[must_use]
    pub fn tensor(&self, step: &str) -> Option<&Tensor> {
        self.tensors.get(step)
    }

    /// The same with X (`seq_len`, batch, `d_in`) turned into (batch, `seq_len`, `d_in`), and memory likewise; nothing
    /// where that is the same.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with_tokens_first(&self) -> Result<Option<(Self, Taken)>> {
        let mut turned = self.clone();
        for name in ["x", "memory"] {
            match self.tensors.get(name) {
                Some(tokens) if tokens.rank() == 3 => {
                    turned.tensors.insert(name.to_owned(), tokens.transpose(0, 1)?.contiguous()?);
                }
                Some(_) => return Ok(None),
                None if name == "x" => return Ok(None),
                None => {}
            }
        }
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

    /// The shapes of the run's masks.
    ///
    /// # Errors
    /// As [`MaskShapes::of`].
    pub fn mask_shapes(&self, config: &Config) -> Result<MaskShapes> {
        let mut shapes = MaskShapes::of(config, self.attn_mask.as_ref())?;
        let recorded = |name: &str| match self.tensors.get(name) {
            Some(mask) => check_shape(config, name, mask, config.query_count())
                .map(|()| Some(mask.dims().to_vec())),
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
        let lacks = |name: &str| !self.has(name);
        let drawn = lacks("x")
            || (config.kv_len.is_some() && lacks("memory"))
            || weights.iter().any(|name| lacks(name))
            || (config.dropout > 0.0 && lacks("dropout_keep"));
        let mut given = if drawn { super::draw(config)? } else { HashMap::new() };
        let masks = Masks::compose(config, self.attn_mask.as_ref())?;
        given.extend(masks.blocked.map(|mask| ("mask".to_owned(), mask)));
        given.extend(masks.added.map(|mask| ("attn_bias".to_owned(), mask)));
        if config.qk_norm.is_some() {
            // As nn.RMSNorm starts.
            let ones = Tensor::ones(config.head_dim, config.dtype.into(), &Device::Cpu)?;
            given.insert("w_q_norm".to_owned(), ones.clone());
            given.insert("w_k_norm".to_owned(), ones);
        }
        if let Some(rope) = &config.rope {
            let positions = rope.offset.saturating_add(config.seq_len);
            let freqs = frequencies(rope.dims, rope.base, rope.scaling.as_ref(), positions)?;
            let freqs = Tensor::new(freqs, &Device::Cpu)?.to_dtype(config.dtype.into())?;
            given.insert("rope_freqs".to_owned(), freqs);
        }
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
pub fn dims<const N: usize>(tensor: &Tensor, name: &str, axes: &str) -> Result<[usize; N]> {
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
