//! What a model's config says of rotary positions; since transformers 5 all of it stands in `rope_parameters`.

use serde_json::{Map, Value};

use super::Model;
use super::family::{Kind, Long, Rope};
use super::keys::as_size;
use base::error::{Error, Result};
use config::{Pairing, RopeScaling, SectionOrder, Settings};

/// Keys that may stand among what is said of rotary positions, and that say nothing of the frequencies of text.
const OF_OTHERS: [&str; 3] = ["mrope_section", "mrope_interleaved", "llama_4_scaling_beta"];

impl Model<'_> {
    /// The settings of rotary positions, if the layer turns its queries and keys.
    pub(super) fn rotary(&self) -> Result<Settings> {
        let Some(rope) = &self.family.rope else { return Ok(Settings::default()) };
        if !self.config.holds(rope.when)? || !self.turns(rope.layers)? {
            return Ok(Settings::default());
        }
        let own = rope.sliding_base.is_some() && self.kind()? == Kind::Sliding;
        // What the library takes where a config says nothing has its own base.
        let stated = match self.stated(own)? {
            None if !own && !rope.scaling.is_empty() => serde_json::from_str(rope.scaling).ok(),
            stated => stated,
        };
        let mut base = self.base(rope, own, stated.as_ref())?;
        let alpha = match &stated {
            Some(stated) if rope.alpha => self.config.number_in(stated, "alpha")?,
            _ => None,
        };
        let alpha = alpha.filter(|_| stated.as_ref().and_then(kind_of) == Some("dynamic"));
        if let (Some(alpha), Some(head_dim)) = (alpha, self.head_dim()?) {
            let head_dim = head_dim as f64;
            base *= alpha.powf(head_dim / (head_dim - 2.0));
        }
        if base == 0.0 {
            return Ok(Settings::default());
        }
        Ok(Settings {
            rope: Some(if self.config.holds(rope.halves)? { Pairing::Half } else { rope.pairing }),
            rope_at_end: rope.at_end.then_some(true),
            rope_base: Some(base),
            rope_dims: self.turned(rope, stated.as_ref())?,
            rope_section_order: rope
                .sections
                .map(|(order, _)| order)
                .filter(|order| *order != SectionOrder::default()),
            rope_sections: stated
                .as_ref()
                .map_or(Ok(None), |stated| self.sections(stated))?
                .or(rope.sections.map(|(_, sizes)| Vec::from(sizes))),
            rope_value: self.config.holds(rope.values)?.then_some(true),
            rope_backwards: rope.backwards.then_some(true),
            rope_scaling: match stated {
                Some(stated) if alpha.is_none() => self.scaling(rope, &stated)?,
                Some(_) | None => None,
            },
            ..Settings::default()
        })
    }

    /// What is said of rotary positions, of layers of this one's type where types differ.
    pub(super) fn stated(&self, of_sliding: bool) -> Result<Option<Map<String, Value>>> {
        // What older configs scale is the frequencies of the layers that see all.
        let older = if of_sliding { None } else { self.config.object("rope_scaling")? };
        let Some(stated) = self.config.object("rope_parameters")?.or(older) else {
            return Ok(None);
        };
        let of_types = || stated.values().any(Value::is_object);
        if !of_types() {
            return Ok(Some(stated.clone()));
        }
        let kind = match self.kind()? {
            Kind::Sliding => "sliding_attention",
            Kind::Chunked => "chunked_attention",
            Kind::Full | Kind::Other => "full_attention",
        };
        Ok(stated.get(kind).and_then(Value::as_object).cloned())
    }

    /// What the frequencies are powers of.
    fn base(&self, rope: &Rope, own: bool, stated: Option<&Map<String, Value>>) -> Result<f64> {
        if let Some(bases) = self.config.numbers(rope.bases)? {
            let base = bases.get(self.this_layer()?).copied().flatten().unwrap_or(0.0);
            // A base of 0 says that the layer does not turn.
            return if base == 0.0 { Ok(base) } else { self.config.above_0(rope.bases, base) };
        }
        let inside = |key| stated.map_or(Ok(None), |stated| self.config.number_in(stated, key));
        if let Some(base) = inside("rope_theta")? {
            return self.config.above_0("rope_theta", base);
        }
        let (keys, otherwise) = match rope.sliding_base {
            Some(of_sliding) if own => of_sliding,
            _ => (rope.base_keys, rope.base),
        };
        for key in keys {
            if let Some(base) = inside(key)?.or(self.config.number(key)?) {
                return self.config.above_0(key, base);
            }
        }
        Ok(otherwise)
    }

    /// How many features of a head are turned, where that is a part of them.
    fn turned(&self, rope: &Rope, stated: Option<&Map<String, Value>>) -> Result<Option<usize>> {
        let mut part = match stated {
            Some(stated) => self.config.number_in(stated, "partial_rotary_factor")?,
            None => None,
        };
        // Of all features, those of the pairs beyond the part do not turn.
        let kind = stated.and_then(|stated| stated.get("rope_type")).and_then(Value::as_str);
        if kind == Some("proportional") {
            return Ok(None);
        }
        for key in rope.part_keys {
            let inside = stated.map_or(Ok(None), |stated| self.config.number_in(stated, key))?;
            part = part.or(inside).or(self.config.number(key)?);
        }
        if let (None, Some((key, otherwise))) = (part, rope.dims)
            && let Some(dims) = self.config.size(key)?.or(otherwise)
        {
            return Ok(Some(dims));
        }
        let part = part.unwrap_or(rope.part);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a head has few features; rounded down as the library does"
        )]
        let of = |head_dim: usize| (head_dim as f64 * part) as usize;
        #[allow(clippy::float_cmp, reason = "1 exactly")]
        Ok(self.head_dim()?.filter(|_| part != 1.0).map(of))
    }

    /// The pairs that turn by the positions of time, height and width.
    fn sections(&self, stated: &Map<String, Value>) -> Result<Option<Vec<usize>>> {
        let Some(sections) = stated.get("mrope_section").filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let sizes = sections.as_array().and_then(|all| all.iter().map(as_size).collect());
        sizes.map(Some).ok_or_else(|| self.config.wrong("mrope_section", tr!("a list of sizes")))
    }

    /// The scaling of rotary frequencies, completed by what the library takes from beside it.
    fn scaling(&self, rope: &Rope, stated: &Map<String, Value>) -> Result<Option<RopeScaling>> {
        let kind = kind_of(stated);
        if matches!(kind, None | Some("default" | "mrope")) {
            return Ok(None);
        }
        let mut keys = stated.clone();
        keys.retain(|key, _| !OF_OTHERS.contains(&key.as_str()));
        for name in ["max_position_embeddings", "original_max_position_embeddings"] {
            if let Some(value) = self.config.keys.get(name)
                && !keys.contains_key(name)
            {
                keys.insert(name.to_owned(), value.clone());
            }
        }
        match rope.long {
            _ if kind != Some("longrope") => {}
            Long::Short => {
                let short = keys.get("short_factor").cloned();
                keys.extend(short.map(|short| ("long_factor".to_owned(), short)));
            }
            Long::Stated | Long::First(_) => {
                keys.retain(|key, _| !["short_mscale", "long_mscale"].contains(&key.as_str()));
            }
        }
        if let Long::First(otherwise) = rope.long {
            let key = "original_max_position_embeddings";
            let first = self.config.sized((key, otherwise))?;
            keys.insert(key.to_owned(), first.into());
        }
        // A null says nothing.
        keys.retain(|_, value| !value.is_null());
        let scaling = Value::Object(keys).to_string().parse::<RopeScaling>();
        scaling.map(Some).map_err(|error| {
            let fix = tr!("say the rest by `rope`, `rope_freqs=FILE`, `rope_attention_factor`");
            Error::file(&self.config.path, tr!("rope: {error}", error), fix)
        })
    }
}

/// The kind of scaling that is stated.
fn kind_of(stated: &Map<String, Value>) -> Option<&str> {
    stated.get("rope_type").or_else(|| stated.get("type")).and_then(Value::as_str)
}
