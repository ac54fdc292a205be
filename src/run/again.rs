//! Which tensors of a record a run takes when the record is checked, or run again.

use super::masks;
use super::sources::Sources;
use base::error::{Error, Result};
use config::{End, Mask, OutputGradient, Place, Setting, Settings, Start};
use file::{Record, split_place};
use foreign::unknown;
use program::{Name, Role};

impl Sources {
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
        match needed.into_iter().find(|name| sources.given_as(*name).is_none()) {
            Some(name) if !may_draw => {
                let fix = match name {
                    Name::X => {
                        tr!(
                            "record it too, or give it by `x`; or record q, k and v to start from them; or pass `seed=N` to draw it"
                        )
                    }
                    _ => {
                        tr!("record it too, or give it by `weights`; or pass `seed=N` to draw it")
                    }
                };
                let unknown = unknown(record);
                let what = if unknown.is_empty() {
                    tr!("is neither recorded nor given").to_owned()
                } else {
                    tr!("is neither recorded nor given; no step has the name {unknown}", unknown)
                };
                Err(Error::tensor(name, what, fix))
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
            // There is no other place that a cache could come from, and gradients that are drawn are drawn again.
            let is_made =
                name.is_gradient() && !matches!(config.d_output, Some(OutputGradient::File(_)));
            name.role() == Role::Cache || (config.name_file_of(name) && !is_made)
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
        // The recorded mask of a run that states its own is that.
        let states_own = |mask: &Mask| *mask == Mask::Recorded && config.mask.is_some();
        let flags =
            &Settings { mask: flags.mask.filter(|mask| !states_own(mask)), ..flags.clone() };
        let settings = flags.clone().over(config);
        let start = settings.start.unwrap_or_default();
        let own =
            Self::recorded(record, start, |name| wanted(name) && !replaces(record, flags, name));
        // A record may have one of the two and the file be the other. One that we wrote whole needs no file.
        let both = [Name::Mask, Name::AttnBias];
        let is_there = |place: &Place| split_place(&place.0).0.exists();
        let may_need = |place: &Place| match both.iter().filter(|name| own.has(**name)).count() {
            0 => true,
            1 => record.config.is_none() || is_there(place),
            _ => false,
        };
        let mut to_read = settings.clone();
        // What one file holds together is all there if the first of it is.
        let first_gradient = settings.first_gradient();
        let tells = |name: &&Name| match name.role() {
            Role::Parameter => **name == Name::WQ,
            Role::Cache => matches!(name, Name::KPast | Name::KShared),
            _ => !name.is_gradient() || Some(**name) == first_gradient,
        };
        let files = own.tensors.keys().filter(tells).filter_map(|name| name.row().file);
        files.filter_map(Setting::named).for_each(|file| file.clear(&mut to_read));
        to_read.attn_mask = settings.attn_mask.clone().filter(may_need);
        to_read.attn_bias = settings.attn_bias.clone().filter(|_| !own.has(Name::AttnBias));
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
    // Without a file of weights, how one matrix is packed is said of the record's own.
    let packing = flags.packing.filter(|_| flags.weights.is_some());
    Settings { queries: None, packing, ..flags.clone() }.replace(file)
}
