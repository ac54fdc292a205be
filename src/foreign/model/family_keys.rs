//! Which keys of a config a family's row names.

use super::beside::POSITION_TERMS;
use super::family::{Family, HeadDim, KeyHeads, Pattern, Scale, Sees, Turned, When};

impl Family {
    /// The keys that only some configs have, of what is read.
    pub fn keys(&self) -> Vec<&'static str> {
        let mut keys: Vec<&str> = [self.width, self.heads, self.layers].concat();
        keys.extend(self.parts.iter().flat_map(|part| part.heads));
        keys.extend(match self.kv_heads {
            KeyHeads::AsQueries => vec![],
            KeyHeads::Key(key, _) | KeyHeads::OneIf(key) | KeyHeads::TwiceIfSliding(key, _) => {
                vec![key]
            }
            KeyHeads::Falcon => vec!["num_kv_heads", "new_decoder_architecture", "multi_query"],
        });
        keys.extend(self.parts.iter().filter_map(|part| match part.sees {
            Sees::PastIf(when) | Sees::PastUnlessMasked(when) => when.key(),
            Sees::Past | Sees::All | Sees::Memory => None,
        }));
        keys.extend(self.refused.iter().filter_map(|when| when.key()));
        if let HeadDim::Key(key, _) = self.head_dim {
            keys.push(key);
        }
        if let HeadDim::Parts(parts) = self.head_dim {
            keys.extend(parts.map(|(key, _)| key));
        }
        keys.extend(self.v_head_dim.map(|(key, _)| key));
        keys.extend(self.value_scale.map(|(key, _)| key));
        if let Some(latent) = self.latent {
            keys.extend([latent.queries, latent.keys, latent.shared].map(|(key, _)| key));
        }
        let norm = self.norm.map(|norm| norm.when);
        let rope = self.rope.map(|rope| rope.when);
        let values = self.rope.map(|rope| rope.values);
        let window = self.window.map(|window| window.when);
        let temperature = self.temperature.map(|own| own.when);
        keys.extend(self.clip);
        keys.extend(self.shared.map(|(key, _)| key));
        let gate = self.gate.map(|(_, when)| when);
        let own = [self.bias, self.alibi, self.k_eq_v, self.disentangled].map(Some);
        let others = own.into_iter().chain([values, gate]);
        let whens = others.chain([norm, rope, window, temperature]);
        keys.extend(whens.flatten().filter_map(When::key));
        if let Some(rope) = self.rope {
            keys.extend(["rope_parameters", "rope_theta", "rope_scaling"]);
            keys.extend(rope.base_keys.iter().chain(rope.part_keys));
            keys.extend(rope.dims.map(|(key, _)| key));
            keys.extend(Some(rope.bases).filter(|key| !key.is_empty()));
            keys.extend(Some("no_rope_layers").filter(|_| rope.layers == Turned::Listed));
        }
        match self.scale {
            Scale::RootTimes(key) | Scale::RootOf(key, _) | Scale::Key(key, _) => keys.push(key),
            Scale::RootOfTerms => keys.push(POSITION_TERMS),
            Scale::Gpt2 => keys.push("scale_attn_by_inverse_layer_idx"),
            Scale::Root | Scale::RootYarn | Scale::By(_) => {}
        }
        keys.extend(self.softcap.map(|(key, _)| key));
        keys.extend(self.window.map(|window| window.key));
        match self.pattern {
            Pattern::From(key, _) | Pattern::EvenBefore(key, _) => keys.push(key),
            Pattern::Few { period, .. } => keys.push(period.0),
            Pattern::Uniform
            | Pattern::Each(_)
            | Pattern::FirstAndEvery(_)
            | Pattern::Every { .. }
            | Pattern::Unturned
            | Pattern::ChunkedIfTurned => {}
        }
        keys.extend(self.chunk.map(|(key, _)| key));
        if let Some(relative) = self.relative {
            keys.extend([relative.buckets.0, relative.max_distance.0]);
            keys.extend(relative.when.key());
        }
        keys.retain(|key| !key.is_empty());
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl When {
    /// The key that decides it.
    pub fn key(self) -> Option<&'static str> {
        match self {
            Self::Always | Self::Never => None,
            Self::If(key, _) | Self::IfNot(key, _) | Self::Is(key, _) | Self::Either(key, _) => {
                Some(key)
            }
        }
    }
}
