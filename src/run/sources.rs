//! Tensors from files, in place of drawn ones.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::masks::{self, check_shape, zeros_and_ones};
use attention::Outside;
use base::error::{Error, Result};
use config::{Config, End, Place, Settings, Start};
use file::{Record, one_tensor, split_place};
use foreign::{Match, meanings, read_weights, with_batch};
use program::{Given, Name, Program, Role};

/// What a run takes from outside: tensors by step, and the attention mask as its file holds it.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    tensors: Given,
    /// The steps whose tensors are what follows from the settings anyway.
    following: Vec<Name>,
    attn_mask: Option<Tensor>,
    heads: Option<usize>,
    matches: Vec<Match>,
    /// The files that were read.
    files: Vec<PathBuf>,
    /// Parameters of the layer that were not read.
    unread: Vec<String>,
}

impl Sources {
    /// Reads the files that the settings name: `x`, `memory`, `memory_v`, `q`, `k`, `v`, `weights`, `past`, `rope_freqs`,
    /// `attn_bias` and `attn_mask`.
    ///
    /// # Errors
    /// If a file cannot be read, or does not hold what it should.
    pub fn load(settings: &Settings) -> Result<Self> {
        let mut sources = Self::default();
        for (name, place) in [
            (Name::X, &settings.x),
            (Name::Memory, &settings.memory),
            (Name::MemoryV, &settings.memory_v),
        ] {
            if let Some(tokens) = sources.read(name, place.as_ref())? {
                sources.tensors.insert(name, with_batch(&tokens)?);
            }
        }
        sources.read_qkv(settings)?;
        sources.read_scores(settings)?;
        if let Some(freqs) = sources.read(Name::RopeFreqs, settings.rope_freqs.as_ref())? {
            sources.tensors.insert(Name::RopeFreqs, freqs);
        }
        if let Some(place) = &settings.past {
            sources.read_pair(Path::new(&place.0), super::core::PAST)?;
        }
        if let Some(place) = &settings.shared_kv {
            sources.read_pair(Path::new(&place.0), super::core::SHARED)?;
        }
        if let Some(place) = &settings.weights {
            let weights = read_weights(Path::new(&place.0), settings)?;
            sources.tensors.extend(weights.tensors);
            sources.heads = weights.heads;
            sources.matches.extend(weights.matches);
            sources.files.extend(weights.files);
            sources.unread.extend(weights.unread);
        }
        if let Some(biases) = sources.read(Name::GivenBias, settings.attn_bias.as_ref())? {
            sources.tensors.insert(Name::GivenBias, biases);
        }
        sources.attn_mask = sources.read(Name::FileMask, settings.attn_mask.as_ref())?;
        Ok(sources)
    }

    /// The tensor of a place that is to be a step.
    fn read(&mut self, step: Name, place: Option<&Place>) -> Result<Option<Tensor>> {
        let Some(Place(place)) = place else { return Ok(None) };
        // A mask is called what its setting is called.
        let name = step.row().file.unwrap_or(step.as_str());
        let (tensor, found) = one_tensor(place, name, |other| meanings(other).contains(&step))?;
        let found = if found.is_empty() { place } else { &found };
        self.matches.push(Match::as_it_is(name, found));
        self.files.push(split_place(place).0);
        Ok(Some(tensor))
    }

    /// Takes a tensor as a step, from a place.
    pub(super) fn take(&mut self, step: Name, tensor: Tensor, matched: Match, place: &str) {
        self.matches.push(matched);
        self.files.push(split_place(place).0);
        self.tensors.insert(step, tensor);
    }

    /// Takes a tensor as a step, from the settings.
    pub(super) fn keep(&mut self, step: Name, tensor: Tensor) {
        self.tensors.insert(step, tensor);
    }

    /// What was taken as what from the files.
    #[must_use]
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// The files that were read.
    #[must_use]
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The parameters of the layer that no step of a program reads, as their files call them.
    pub fn unread<'a>(&'a self, program: &'a Program) -> impl Iterator<Item = &'a str> {
        let is_read =
            |step: &str| Name::in_files(step).is_none_or(|name| program.step(name).is_some());
        let idle = self.matches.iter();
        let idle = idle.filter(move |matched| !matched.filled && !is_read(&matched.step));
        let idle = idle.map(|matched| matched.tensor.as_str());
        // One tensor may hold several parameters.
        let mut seen = HashSet::new();
        let all = self.unread.iter().map(String::as_str).chain(idle);
        all.filter(move |name| seen.insert(*name))
    }

    /// The settings and sources that check a record: `flags` over its config, and its own given tensors but for
    /// those that the flags replace. What its config takes from a file that the record lacks is read.
    ///
    /// # Errors
    /// If such a file cannot be read; or if the record has no config to draw by, and nothing says a seed or a preset, and
    /// it lacks what the run starts at or a weight.
    pub fn of_record(record: &Record, flags: &Settings) -> Result<(Settings, Self)> {
        let (settings, sources) = Self::over_record(record, flags, |_| true)?;
        let [inputs @ .., (output, _)] = Name::PROJECTIONS;
        let is_core = settings.start.unwrap_or_default() != Start::Inputs;
        let mut needed = match settings.start.unwrap_or_default() {
            Start::Inputs => {
                // Those of keys and values are not of every run.
                let own = match (settings.shared_kv.is_some(), settings.k_eq_v == Some(true)) {
                    (true, _) => 1,
                    (false, true) => 2,
                    (false, false) => 3,
                };
                let weights = inputs.iter().map(|(weight, _)| *weight).take(own);
                std::iter::once(Name::X).chain(weights).collect()
            }
            start => start.given().to_vec(),
        };
        if let (Start::Inputs, Some(_)) =
            (settings.start.unwrap_or_default(), settings.kv_lora_rank)
        {
            let [(of_queries, _), (of_keys, _), (shared, _)] = Name::LATENT;
            needed.push(of_keys);
            needed.extend(settings.q_lora_rank.map(|_| of_queries));
            needed.extend(settings.qk_rope_head_dim.filter(|own| *own > 0).map(|_| shared));
        }
        if settings.add_bias_kv == Some(true) {
            needed.extend([Name::BiasK, Name::BiasV]);
        }
        needed.extend(settings.d_memory_v.map(|_| Name::MemoryV).filter(|_| !is_core));
        needed.extend(Some(output).filter(|_| settings.end.unwrap_or_default() == End::Output));
        // A seed, or the notebook that has one, says how what is missing is drawn.
        let may_draw =
            record.config.is_some() || settings.seed.is_some() || settings.preset.is_some();
        match needed.into_iter().find(|name| !sources.has(*name)) {
            Some(name) if !may_draw => {
                let fix = match name {
                    Name::X => {
                        tr!(
                            "record it too, or give it by `x`; or record q, k and v, to start there; or pass `seed=N`, to \
                         draw it"
                        )
                    }
                    _ => {
                        tr!("record it too, or give it by `weights`; or pass `seed=N`, to draw it")
                    }
                };
                Err(Error::tensor(name, "is neither recorded nor given", fix))
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
        let is_from_file = |name: Name| {
            // There is no other place that a cache could come from.
            name.role() == Role::Cache || config.name_file_of(name)
        };
        Self::over_record(record, flags, is_from_file)
    }

    fn over_record(
        record: &Record,
        flags: &Settings,
        wanted: impl Fn(Name) -> bool,
    ) -> Result<(Settings, Self)> {
        let mut config = record.config.clone().unwrap_or_default();
        if record.config.is_some() && config.start.is_none() {
            // Where it starts somewhere else by a flag, it ends where it did.
            config.end.get_or_insert_default();
        }
        let settings = flags.clone().over(config);
        let start = settings.start.unwrap_or_default();
        let own =
            Self::recorded(record, start, |name| wanted(name) && !replaces(record, flags, name));
        let lacks = |names: &[Name]| !names.iter().any(|name| own.has(*name));
        // A record may have one of the two and the file be the other. One that we wrote whole needs no file.
        let both = [Name::Mask, Name::AttnBias];
        let is_there = |place: &Place| split_place(&place.0).0.exists();
        let may_need = |place: &Place| match both.iter().filter(|name| own.has(**name)).count() {
            0 => true,
            1 => record.config.is_none() || is_there(place),
            _ => false,
        };
        let to_read = Settings {
            x: settings.x.clone().filter(|_| lacks(&[Name::X])),
            weights: settings.weights.clone().filter(|_| lacks(&[Name::WQ])),
            attn_mask: settings.attn_mask.clone().filter(may_need),
            attn_bias: settings.attn_bias.clone().filter(|_| lacks(&[Name::AttnBias])),
            memory: settings.memory.clone().filter(|_| lacks(&[Name::Memory])),
            memory_v: settings.memory_v.clone().filter(|_| lacks(&[Name::MemoryV])),
            q: settings.q.clone().filter(|_| lacks(&[Name::Q, Name::QHeads])),
            k: settings.k.clone().filter(|_| lacks(&[Name::K, Name::KHeads])),
            v: settings.v.clone().filter(|_| lacks(&[Name::V, Name::VHeads])),
            scores: settings.scores.clone().filter(|_| lacks(&[Name::ScoresRaw])),
            start: settings.start,
            end: settings.end,
            qkv_format: settings.qkv_format,
            past: settings.past.clone().filter(|_| lacks(&[Name::KPast])),
            shared_kv: settings.shared_kv.clone().filter(|_| lacks(&[Name::KShared])),
            k_eq_v: settings.k_eq_v,
            rope_freqs: settings.rope_freqs.clone().filter(|_| lacks(&[Name::RopeFreqs])),
            prefix: settings.prefix.clone(),
            packing: settings.packing,
            qk_norm_over: settings.qk_norm_over,
            heads: settings.heads,
            head_dim: settings.head_dim,
            kv_lora_rank: settings.kv_lora_rank,
            ..Settings::default()
        };
        let mut sources = own.with(Self::load(&to_read)?);
        // What the record holds is not taken from the file once more.
        let name = sources.attn_mask.as_ref().map(masks::sort_of_file);
        let is_recorded = name.is_some_and(|name| match name {
            Name::FileMask => sources.has(Name::Mask),
            _ => sources.has(Name::AttnBias),
        });
        sources.attn_mask = sources.attn_mask.filter(|_| !is_recorded);
        Ok((settings, sources))
    }

    /// The number of heads, where the weights' shapes tell it.
    #[must_use]
    pub fn heads(&self) -> Option<usize> {
        self.heads
    }

    /// Whether a step is given.
    #[must_use]
    pub fn has(&self, step: Name) -> bool {
        self.tensors.contains_key(&step)
    }

    /// The tensor of a step.
    #[must_use]
    pub fn tensor(&self, step: Name) -> Option<&Tensor> {
        self.tensors.get(&step)
    }

    /// The same with an attention mask, as its file holds it.
    #[must_use]
    pub fn with_mask(self, mask: Tensor) -> Self {
        Self { attn_mask: Some(mask), ..self }
    }

    /// The same with X (`seq_len`, batch, `d_in`) turned into (batch, `seq_len`, `d_in`), and memory likewise; nothing
    /// where that is the same.
    ///
    /// # Errors
    /// If candle fails.
    pub fn with_tokens_first(&self) -> Result<Option<(Self, Match)>> {
        let mut turned = self.clone();
        for name in [Name::X, Name::Memory, Name::MemoryV] {
            match self.tensor(name) {
                Some(tokens) if tokens.rank() == 3 => {
                    turned.tensors.insert(name, tokens.transpose(0, 1)?.contiguous()?);
                }
                Some(_) => return Ok(None),
                None if name == Name::X => return Ok(None),
                None => {}
            }
        }
        let seen = Match::as_it_is("x", "x").read(tr!("axes (query, batch, input)"));
        Ok(Some((turned, seen)))
    }

    /// The given tensors of a recorded trace that are `wanted`, of a run that starts there.
    #[must_use]
    pub fn recorded(record: &Record, start: Start, wanted: impl Fn(Name) -> bool) -> Self {
        let is_given = |name: &Name| name.is_given() || start.given().contains(name);
        let given = record.entries.iter().filter_map(|entry| {
            let name =
                Name::in_files(&entry.name).filter(|name| is_given(name) && wanted(*name))?;
            Some((name, entry.tensor.clone()))
        });
        Self { tensors: given.collect(), ..Self::default() }
    }

    /// Adds what `other` has, in place of what stands under the same name.
    fn with(mut self, other: Self) -> Self {
        self.tensors.extend(other.tensors);
        self.attn_mask = other.attn_mask.or(self.attn_mask);
        self.heads = other.heads.or(self.heads);
        self.matches.extend(other.matches);
        self.files.extend(other.files);
        self.unread.extend(other.unread);
        self
    }

    /// The same without the tensor of a step.
    pub(super) fn without(&self, step: Name) -> Self {
        let mut others = self.clone();
        others.tensors.remove(&step);
        others
    }

    /// Marks a step's tensor as what follows from the settings, in a value of this shape.
    pub(super) fn follow(&mut self, step: Name, shape: &[usize]) {
        self.following.push(step);
        self.tensors.retain(|name, tensor| *name != step || tensor.dims() == shape);
    }

    /// The shapes of what is given in place of what would follow from the settings.
    ///
    /// # Errors
    /// If a mask does not broadcast to (batch, head, query, key).
    pub fn outside(&self, config: &Config) -> Result<Outside> {
        let mut outside = Outside::new();
        if let Some(mask) = &self.attn_mask {
            let (name, mask) = masks::shape_of_file(config, mask)?;
            outside.insert(name, mask.dims().to_vec());
        }
        for (name, tensor) in &self.tensors {
            if name.role() == Role::Setting && !self.following.contains(name) {
                let tensor = match name {
                    Name::GivenBias => masks::biases_of_file(config, tensor)?,
                    _ => tensor.clone(),
                };
                if name.row().is_of_scores() {
                    check_shape(config, name.as_str(), &tensor, config.sizes.query_count())?;
                }
                outside.insert(*name, tensor.dims().to_vec());
            }
        }
        Ok(outside)
    }

    /// The tensors that the run is given from here, in its type.
    ///
    /// # Errors
    /// If a mask does not fit, or a tensor cannot be made.
    pub fn given(&self, config: &Config) -> Result<Given> {
        let mut given = Given::new();
        if let Some(mask) = &self.attn_mask {
            let (name, mask) = masks::of_file(config, mask)?;
            given.insert(name, mask);
        }
        for (name, tensor) in &self.tensors {
            let tensor = if name.row().is_boolean {
                zeros_and_ones(name.as_str(), tensor)?
            } else {
                tensor.to_dtype(config.dtype.into())?
            };
            let tensor = match name {
                Name::GivenBias => masks::biases_of_file(config, &tensor)?,
                _ => Self::computed_rows(config, *name, tensor)?,
            };
            given.insert(*name, tensor);
        }
        Ok(given)
    }
}

/// Whether the flags say something else of a step than the record holds.
fn replaces(record: &Record, flags: &Settings, step: Name) -> bool {
    let Some(file) = step.row().file else { return false };
    if record.config.is_some() {
        return flags.replace(file);
    }
    // Flags that say what was meant say nothing against frequencies, queries and rows that the file holds.
    if step == Name::RopeFreqs {
        return flags.rope_freqs.is_some();
    }
    if step.role() == Role::Computed {
        return if step == Name::ScoresRaw { flags.scores.is_some() } else { flags.q.is_some() };
    }
    Settings { queries: None, ..flags.clone() }.replace(file)
}
