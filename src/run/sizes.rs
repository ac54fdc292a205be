//! What the shapes of given tensors say of a run.

use super::masks::dims;
use super::sources::Sources;
use base::error::{Error, Message, Part, Result};
use config::{Config, DEFAULT_HEADS, NormOver, Setting, Settings};
use program::Name;

/// A size that the settings say, and the shape of a tensor otherwise.
pub struct OtherSize {
    /// The setting.
    pub key: &'static str,
    /// What it says.
    pub stated: usize,
    /// What the shape makes it.
    pub found: usize,
    /// The tensor of that shape.
    pub tensor: Name,
}

impl Sources {
    /// The settings completed by the sizes of the tensors, and decided.
    ///
    /// # Errors
    /// If a tensor has the wrong number of axes, or contradicts a setting, or [`Config::resolve`] refuses.
    pub fn resolve(&self, settings: &Settings) -> Result<Config> {
        let settings = &self.of_scored_heads(settings)?;
        let sizes = self.sizes(settings)?;
        self.refuse_other_sizes(settings, &sizes)?;
        self.refuse_missing_latents(settings)?;
        if settings.bias == Some(true) && sizes.bias == Some(false) {
            let fix = tr!("pass `bias=false`, or give all four biases (they may be zeros)");
            return Err(Error::tensor("weights", "have no biases, but bias is set", fix));
        }
        // A model that says how positions are biased leaves the number of buckets to the table.
        let relative_buckets = settings.relative_buckets.or(sizes.relative_buckets);
        let settings = Settings { relative_buckets, ..settings.clone() };
        let config = Config::resolve(&settings.over(sizes))?;
        self.check_norms(&config)?;
        Ok(config)
    }

    /// The sizes that the settings say, and tensors otherwise.
    ///
    /// # Errors
    /// If a tensor has the wrong number of axes.
    pub fn other_sizes(&self, settings: &Settings) -> Result<Vec<OtherSize>> {
        let settings = &self.of_scored_heads(settings)?;
        Ok(self.unlike(settings, &self.sizes(settings)?))
    }

    /// The settings that are stated of parameters otherwise than those are there: what they say, if there are any, and the
    /// first of them. `reads` says whether the run under these settings reads a parameter.
    pub fn others_brought(
        &self,
        settings: &Settings,
        reads: impl Fn(Name) -> bool,
    ) -> Vec<(&'static str, Option<String>, Name)> {
        let mut brought: Vec<(&'static Setting, String, Vec<Name>)> = Vec::new();
        let biases = || Some((Setting::named("bias")?, "true".to_owned()));
        let biases = [Name::BQ, Name::BO].map(|name| (name, biases()));
        let others = Name::ALL.iter().map(|name| (*name, brought_by(*name)));
        let all = biases.into_iter().chain(others);
        for (name, by) in all {
            let Some((setting, value)) = by else { continue };
            let is_it = |(other, own, _): &&mut (&Setting, String, _)| {
                other.key == setting.key && *own == value
            };
            match brought.iter_mut().find(is_it) {
                Some((.., names)) => names.push(name),
                None => brought.push((setting, value, vec![name])),
            }
        }
        let other = |(setting, value, names): (&'static Setting, String, Vec<Name>)| {
            let there = names.iter().copied().find(|name| self.has(*name));
            let stated = setting.switched(settings);
            match (there, stated) {
                (Some(name), _) if stated == Some(false) || setting.is_left_out(settings) => {
                    Some((setting.key, Some(value), name))
                }
                (Some(name), None) if setting.is_set(settings) && !reads(name) => {
                    Some((setting.key, Some(value), name))
                }
                (None, Some(true)) => Some((setting.key, None, *names.first()?)),
                _ => None,
            }
        };
        brought.into_iter().filter_map(other).collect()
    }

    fn unlike(&self, settings: &Settings, sizes: &Settings) -> Vec<OtherSize> {
        let [queries, keys, values] = match self.start() {
            Some(start) => match start.given() {
                [queries, keys, values, ..] => [*queries, *keys, *values],
                [only, ..] => [*only; 3],
                [] => [Name::WQ, Name::WK, Name::WV],
            },
            None => [Name::WQ, Name::WK, Name::WV],
        };
        let keys = if self.has(Name::KShared) { Name::KShared } else { keys };
        let tokens = if self.start().is_some() { queries } else { Name::X };
        let of_x = |otherwise| if self.has(tokens) { tokens } else { otherwise };
        let of_w_o = if self.has(Name::WO) { Name::WO } else { queries };
        let second = if self.start().is_some() { keys } else { Name::Memory };
        let of_values = if self.has(Name::MemoryV) { Name::MemoryV } else { Name::WV };
        let stated = [
            ("batch", settings.batch, sizes.batch, of_x(Name::Memory)),
            ("seq_len", settings.seq_len, sizes.seq_len, tokens),
            ("d_in", settings.d_in, sizes.d_in, of_x(Name::WQ)),
            ("d_model", settings.d_model, sizes.d_model, of_w_o),
            ("heads", settings.heads, sizes.heads, queries),
            ("head_dim", settings.head_dim, sizes.head_dim, queries),
            ("kv_heads", settings.kv_heads, sizes.kv_heads, keys),
            ("kv_lora_rank", settings.kv_lora_rank, sizes.kv_lora_rank, Name::WDkv),
            ("q_lora_rank", settings.q_lora_rank, sizes.q_lora_rank, Name::WDq),
            ("qk_rope_head_dim", settings.qk_rope_head_dim, sizes.qk_rope_head_dim, Name::WKr),
            ("v_head_dim", settings.v_head_dim, sizes.v_head_dim, values),
            ("kv_len", settings.kv_len, sizes.kv_len, second),
            ("d_memory", settings.d_memory, sizes.d_memory, second),
            ("d_memory_v", settings.d_memory_v, sizes.d_memory_v, of_values),
            (
                "relative_buckets",
                settings.relative_buckets,
                sizes.relative_buckets,
                Name::RelativeTable,
            ),
        ];
        let other = |(key, stated, found, tensor): (_, Option<usize>, Option<usize>, _)| {
            let (stated, found) = stated.zip(found).filter(|(stated, found)| stated != found)?;
            Some(OtherSize { key, stated, found, tensor })
        };
        stated.into_iter().filter_map(other).collect()
    }

    /// Refuses settings that say another size than a tensor has.
    fn refuse_other_sizes(&self, settings: &Settings, sizes: &Settings) -> Result<()> {
        let Some(OtherSize { key: name, stated, found, tensor }) =
            self.unlike(settings, sizes).into_iter().next()
        else {
            return Ok(());
        };
        let dims = self.tensor(tensor).map(|tensor| tensor.dims().to_vec());
        let what = tr!(
            "is {dims}, so {name} is {found}, but the settings say {stated}",
            dims = format!("{:?}", dims.unwrap_or_default()),
            name,
            found,
            stated
        );
        let fix = tr!(
            "set `{name}` to {found}, or do not set it, or give a tensor of the stated size",
            name,
            found
        );
        Err(Error::tensor(tensor.as_str(), what, fix))
    }

    /// Refuses weights without the projections to the latents that are set.
    fn refuse_missing_latents(&self, settings: &Settings) -> Result<()> {
        let latents = [
            ("kv_lora_rank", settings.kv_lora_rank, Name::WDkv),
            ("q_lora_rank", settings.q_lora_rank, Name::WDq),
            ("qk_rope_head_dim", settings.qk_rope_head_dim.filter(|own| *own > 0), Name::WKr),
        ];
        let is_missing = |(_, stated, weight): &(&str, Option<usize>, Name)| {
            stated.is_some() && self.has(Name::WK) && !self.has(*weight)
        };
        if let Some((name, _, weight)) = latents.into_iter().find(is_missing) {
            let what = tr!("is not among the weights, but {name} is set", name);
            let fix = tr!("give it too, or leave {name} out", name);
            return Err(Error::tensor(weight, what, fix));
        }
        Ok(())
    }

    /// The parameters of a norm have an axis for the heads unless all share them.
    fn check_norms(&self, config: &Config) -> Result<()> {
        if config.norm.is_none() {
            return Ok(());
        }
        let over = config.plain.qk_norm_over;
        let (axes, other) = match over {
            NormOver::Head => (1, NormOver::PerHead),
            NormOver::PerHead | NormOver::All => (2, NormOver::Head),
        };
        for name in [Name::WQNorm, Name::BQNorm, Name::WKNorm, Name::BKNorm] {
            if let Some(weight) = self.tensor(name).filter(|weight| weight.rank() == 3 - axes) {
                let what = tr!(
                    "is {dims}, but qk_norm_over is {over}",
                    dims = format!("{:?}", weight.dims()),
                    over
                );
                let fix = tr!("give it {axes} axes, or pass `qk_norm_over={other}`", axes, other);
                return Err(Error::tensor(name, what, fix));
            }
        }
        Ok(())
    }

    /// What the tensors' shapes say of the run, where the settings say the rest.
    fn sizes(&self, settings: &Settings) -> Result<Settings> {
        let mut sizes = match self.start() {
            Some(start) => self.parameter_sizes()?.over(self.core_sizes(start, settings)?),
            None => self.input_sizes(settings)?,
        };
        if let Some(past) = self.tensor(Name::KPast) {
            let axes = "(batch, kv_heads, key, head_dim)";
            let [batch, kv_heads, keys, head_dim] = dims(past, Name::KPast, axes)?;
            as_many_items(Name::KPast, batch, sizes.batch)?;
            sizes.batch = Some(batch);
            sizes.kv_heads = sizes.kv_heads.or(Some(kv_heads));
            sizes.head_dim = sizes.head_dim.or(Some(head_dim));
            sizes.past_len = Some(keys);
        }
        if let Some(keys) = self.tensor(Name::KShared) {
            let axes = "(batch, kv_heads, key, head_dim)";
            let [batch, kv_heads, _, head_dim] = dims(keys, Name::KShared, axes)?;
            as_many_items(Name::KShared, batch, sizes.batch)?;
            sizes.kv_heads = Some(kv_heads);
            sizes.head_dim = sizes.head_dim.or(Some(head_dim));
        }
        if let Some(freqs) = self.tensor(Name::RopeFreqs) {
            let [pairs] = dims(freqs, Name::RopeFreqs, "(rope_dims / 2)")?;
            sizes.rope_dims = settings.rope.map(|_| 2 * pairs);
        }
        if let Some(table) = self.tensor(Name::RelativeTable) {
            let [buckets, _] = dims(table, Name::RelativeTable, "(relative_buckets, heads)")?;
            sizes.relative_buckets = settings.relative_bias.map(|_| buckets);
        }
        if let Some(own) = self.tensor(Name::RelEmbeddings) {
            let rows = own.rank().checked_sub(2).and_then(|at| own.dims().get(at).copied());
            let is_open = settings.disentangled.is_some() && settings.position_buckets.is_none();
            sizes.max_relative_positions = rows.filter(|_| is_open).map(|rows| rows / 2);
        }
        Ok(sizes)
    }

    /// What x, memory and the weights say.
    fn input_sizes(&self, settings: &Settings) -> Result<Settings> {
        let mut sizes = self.weight_sizes(settings)?;
        if let Some(x) = self.tensor(Name::X) {
            let [batch, tokens, inputs] = dims(x, Name::X, "(batch, seq_len, d_in)")?;
            sizes.batch = Some(batch);
            sizes.seq_len = Some(tokens);
            sizes.d_in = Some(inputs);
        }
        if let Some(memory) = self.tensor(Name::Memory) {
            let [batch, tokens, width] = dims(memory, Name::Memory, "(batch, kv_len, d_memory)")?;
            as_many_items(Name::Memory, batch, sizes.batch)?;
            sizes.batch = Some(batch);
            sizes.kv_len = Some(tokens);
            sizes.d_memory = Some(width);
        }
        if let Some(memory) = self.tensor(Name::MemoryV) {
            let axes = "(batch, kv_len, d_memory_v)";
            let [batch, tokens, width] = dims(memory, Name::MemoryV, axes)?;
            as_many_items(Name::MemoryV, batch, sizes.batch)?;
            if let Some(keys) = sizes.kv_len.or(settings.kv_len).filter(|keys| *keys != tokens) {
                let what = tr!("has {tokens} tokens, but the keys' input has {keys}", tokens, keys);
                return Err(Error::tensor(Name::MemoryV, what, "give a value for every key"));
            }
            sizes.kv_len = Some(tokens);
            sizes.d_memory_v = Some(width);
        }
        Ok(sizes)
    }

    /// What parameters say that a run need not project its input for.
    fn parameter_sizes(&self) -> Result<Settings> {
        let mut sizes = Settings::default();
        for name in Name::ALL.iter().filter(|name| self.has(**name)) {
            bring(*name, &mut sizes)?;
        }
        if let Some(w_o) = self.tensor(Name::WO) {
            let [outputs, _] = dims(w_o, Name::WO, "(d_model, heads · head_dim)")?;
            sizes.d_model = Some(outputs);
            sizes.bias = Some(self.has(Name::BO) || self.has(Name::BQ));
        }
        Ok(sizes)
    }

    /// What the weights' shapes say: of the heads only how many features they share, unless the weights have an axis for
    /// them.
    fn weight_sizes(&self, settings: &Settings) -> Result<Settings> {
        let mut sizes = Settings::default();
        let Some(w_q) = self.tensor(Name::WQ) else { return Ok(sizes) };
        let [width, inputs] = dims(w_q, Name::WQ, "(heads · head_dim, d_in)")?;
        if width == 0 || inputs == 0 {
            let what = tr!("is {dims}, which is empty", dims = format!("{:?}", w_q.dims()));
            return Err(Error::tensor(Name::WQ, what, "give weights (heads · head_dim, d_in)"));
        }
        let mut latent = self.latent_sizes()?;
        let d_in = latent.d_in.take();
        sizes.d_in = d_in.or(Some(inputs));
        sizes.d_model = Some(width);
        sizes.bias = Some(self.has(Name::BQ));
        sizes.heads = self.heads();
        let shared = latent.qk_rope_head_dim.unwrap_or(0);
        let mut sizes = self.parameter_sizes()?.over(latent).over(sizes);
        let norm = self.tensor(Name::WQNorm).and_then(|norm| norm.dims().last());
        let known = settings.clone().over(sizes.clone());
        let (heads, head_dim) = match (known.heads, known.head_dim.or(norm.copied())) {
            (None, Some(head_dim)) => (width.checked_div(head_dim), Some(head_dim)),
            (heads, _) => {
                let preset = settings.preset.unwrap_or_default().settings();
                let heads = heads.or(preset.heads).unwrap_or(DEFAULT_HEADS);
                (Some(heads), width.checked_div(heads))
            }
        };
        let (Some(heads), Some(head_dim)) = (heads, head_dim) else { return Ok(sizes) };
        if heads.checked_mul(head_dim) != Some(width) {
            // A width that is d_model is told of as such.
            if sizes.d_model == Some(width) && known.head_dim.is_none() {
                return Ok(sizes);
            }
            let what =
                tr!("has {width} rows, which {heads} heads cannot share evenly", width, heads);
            return Err(Error::tensor(Name::WQ, what, "set heads, or head_dim, to a divisor"));
        }
        sizes.heads = known.heads.or(Some(heads));
        sizes.head_dim = Some(head_dim);
        if let Some(w_k) = self.tensor(Name::WK) {
            let [rows, memory_width] = dims(w_k, Name::WK, "(kv_heads · head_dim, d_in)")?;
            // What all heads share is projected apart.
            let own = head_dim.saturating_sub(shared).max(1);
            if !rows.is_multiple_of(own) {
                let what = tr!(
                    "has {rows} rows, which do not divide into heads of {own} features",
                    rows,
                    own
                );
                let fix = tr!("set heads so that head_dim fits: w_q has heads · head_dim rows");
                return Err(Error::tensor(Name::WK, what, fix));
            }
            sizes.kv_heads = Some(rows / own);
            sizes.d_memory = sizes.d_memory.or(known.kv_len.map(|_| memory_width));
            let of_values = self.tensor(Name::WV).and_then(|w_v| w_v.dims().get(1).copied());
            let is_apart = |width: &usize| *width != memory_width || known.d_memory_v.is_some();
            sizes.d_memory_v = of_values.filter(|width| known.kv_len.is_some() && is_apart(width));
            sizes.v_head_dim = self.value_size(rows / own / known.heads_per_output())?;
        }
        Ok(sizes)
    }

    /// The features of a head's values, of so many.
    fn value_size(&self, heads: usize) -> Result<Option<usize>> {
        let Some(w_v) = self.tensor(Name::WV) else { return Ok(None) };
        let [rows, _] = dims(w_v, Name::WV, "(kv_heads · v_head_dim, d_in)")?;
        if let Some(size) = rows.checked_div(heads).filter(|size| size * heads == rows) {
            return Ok(Some(size));
        }
        let what = tr!("has {rows} rows, which {heads} key heads cannot share evenly", rows, heads);
        Err(Error::tensor(Name::WV, what, "give a value head for every key head"))
    }

    /// What the projections to latents say.
    fn latent_sizes(&self) -> Result<Settings> {
        let mut sizes = Settings::default();
        let rows = |name, axes| {
            let own = self.tensor(name).map(|tensor| dims::<2>(tensor, name, axes));
            own.transpose()
        };
        if let Some([rank, inputs]) = rows(Name::WDkv, "(kv_lora_rank, d_in)")? {
            sizes.kv_lora_rank = Some(rank);
            sizes.d_memory = self.has(Name::Memory).then_some(inputs);
            sizes.d_in = Some(inputs).filter(|_| !self.has(Name::Memory));
        }
        if let Some([rank, inputs]) = rows(Name::WDq, "(q_lora_rank, d_in)")? {
            sizes.q_lora_rank = Some(rank);
            sizes.d_in = Some(inputs);
        }
        if let Some([features, _]) = rows(Name::WKr, "(qk_rope_head_dim, d_in)")? {
            sizes.qk_rope_head_dim = Some(features);
        }
        Ok(sizes)
    }
}

/// Sets what brings a parameter beside the projections.
fn bring(step: Name, sizes: &mut Settings) -> Result<()> {
    let Some((setting, value)) = brought_by(step) else { return Ok(()) };
    let set = setting.set(sizes, &value);
    set.map_err(|what| Error::tensor(step, what, "set it to another value"))
}

/// The setting that brings a parameter beside the projections, and its value.
fn brought_by(step: Name) -> Option<(&'static Setting, String)> {
    let row = step.row();
    let brought = Message::from(row.brought_by);
    // Of several that may be meant, none is.
    let is_one =
        brought.parts().iter().filter(|part| matches!(part, Part::Setting(..))).count() == 1;
    match &brought.parts()[..] {
        // A size is read off the shape, and a number is to be stated.
        [_, Part::Setting(_, Some("N" | "X")), ..] => None,
        [_, Part::Setting(key, value), ..] if is_one && !row.stored.is_empty() => {
            Some((Setting::named(key)?, value.unwrap_or("true").to_owned()))
        }
        _ => None,
    }
}

/// Refuses another number of batch items than X has.
fn as_many_items(name: Name, batch: usize, of_x: Option<usize>) -> Result<()> {
    match of_x {
        Some(of_x) if of_x != batch => {
            let what = tr!("has {batch} batch items, but x has {of_x}", batch, of_x);
            Err(Error::tensor(name, what, "give the same number for both"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor};

    use super::*;
    use config::Start;
    use file::{Entry, Record};

    /// Why a run of weights of these shapes is refused.
    fn refusal(w_q: [usize; 2], others: [usize; 2]) -> String {
        let entry = |(name, _): (Name, Name)| {
            let shape = if name == Name::WQ { w_q } else { others };
            let zeros = Tensor::zeros(&shape, DType::F32, &Device::Cpu).expect("a tensor");
            Entry::of(name.as_str(), zeros)
        };
        let record = Record { config: None, entries: Name::PROJECTIONS.map(entry).into() };
        let resolved =
            Sources::recorded(&record, Start::Inputs, |_| true).resolve(&Settings::default());
        resolved.expect_err("refused").to_string()
    }

    #[test]
    fn empty_weights_are_refused() {
        for (w_q, others) in
            [([0, 0], [0, 0]), ([0, 0], [8, 8]), ([0, 8], [8, 8]), ([8, 0], [8, 8])]
        {
            let said = format!("w_q: is {w_q:?}, which is empty");
            assert_eq!(refusal(w_q, others), said);
        }
    }
}
