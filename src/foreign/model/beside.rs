//! What a model's config says of norms, clipping, temperatures and gates.

use serde_json::Value;

use super::Model;
use super::family::{Eps, Sees, Turned, When};
use base::error::{Error, Result};
use config::{NormOver, OtherNorm, PositionTerm, Settings};

/// The key of the terms of relative position that scores have.
pub(super) const POSITION_TERMS: &str = "pos_att_type";

impl Model<'_> {
    /// The norm of queries and keys.
    pub(super) fn norm(&self) -> Result<Settings> {
        let Some(norm) = self.family.norm else { return Ok(Settings::default()) };
        let is_elsewhere = norm.of_memory && !matches!(self.part.sees, Sees::Memory);
        if is_elsewhere
            || !self.config.holds(norm.when)?
            || (norm.after_rope && !self.turns_at_all()?)
        {
            return Ok(Settings::default());
        }
        Ok(Settings {
            qk_norm: Some(norm.kind),
            qk_norm_over: Some(norm.over).filter(|over| *over != NormOver::Head),
            qk_norm_eps: Some(self.eps(norm.eps)?),
            qk_norm_after_rope: norm.after_rope.then_some(true),
            ..Settings::default()
        })
    }

    /// What stands beside the norm of queries and keys.
    pub(super) fn beside(&self) -> Result<Settings> {
        let family = self.family;
        let eps = |own: Option<Eps>| own.map(|own| self.eps(own)).transpose();
        let settings = Settings {
            v_norm: family.v_norm.map(|_| OtherNorm::Rms),
            v_norm_eps: eps(family.v_norm)?,
            concat_norm: family.concat_norm.map(|_| OtherNorm::Rms),
            concat_norm_eps: eps(family.concat_norm)?,
            value_scale: family
                .value_scale
                .map_or(Ok(None), |scale| self.config.number_or(scale))?,
            clip_qkv: family.clip.map_or(Ok(None), |key| self.config.number(key))?,
            gate: match family.gate {
                Some((gate, when)) if self.config.holds(when)? => Some(gate),
                Some(_) | None => None,
            },
            ..Settings::default()
        };
        let Some(own) = family.temperature else { return Ok(settings) };
        if !self.config.holds(own.when)? || (own.of_unturned && self.turns_at_all()?) {
            return Ok(settings);
        }
        Ok(Settings {
            q_temperature: Some(self.config.first_number(own.scale.0)?.unwrap_or(own.scale.1)),
            q_temperature_floor: Some(self.config.first(own.floor.0)?.unwrap_or(own.floor.1)),
            q_temperature_offset: Some(own.offset).filter(|offset| *offset > 0),
            ..settings
        })
    }

    /// Refuses layers that have no keys and values of their own.
    pub(super) fn refuse_shared(&self, layers: Option<usize>) -> Result<()> {
        let Some(shared) = self.family.shared else { return Ok(()) };
        let shared = self.config.sized(shared)?;
        let Some(layers) = layers.filter(|_| shared > 0) else { return Ok(()) };
        let own = layers.saturating_sub(shared);
        if self.this_layer()? < own || self.has_shared {
            return Ok(());
        }
        let what =
            tr!("this layer uses the keys and values of an earlier one, which are not given");
        let fix = tr!(
            "give the keys and values that its attention function got by `shared_kv=FILE`, or choose one of the first {own} layers: `layer=N`",
            own
        );
        Err(self.config.refused(what, &fix))
    }

    /// The terms of relative position that scores have, as an array or with | between.
    pub(super) fn terms(&self) -> Vec<PositionTerm> {
        let listed: Vec<&str> = match self.config.get(POSITION_TERMS) {
            Some(Value::Array(terms)) => terms.iter().filter_map(Value::as_str).collect(),
            Some(Value::String(terms)) => terms.split('|').collect(),
            _ => Vec::new(),
        };
        let is_listed = |term: &&PositionTerm| {
            listed.iter().any(|own| own.trim().eq_ignore_ascii_case(term.name()))
        };
        PositionTerm::ALL.iter().filter(is_listed).copied().collect()
    }

    /// Whether the layer's run computes these terms: where they are not given as what is added to the scores.
    pub(super) fn has_terms(&self) -> Result<bool> {
        let is_computed = !self.has_bias && self.config.holds(self.family.disentangled)?;
        Ok(is_computed && !self.terms().is_empty())
    }

    /// The terms of content and relative position.
    pub(super) fn disentangled(&self) -> Result<Settings> {
        let config = &self.config;
        if !self.has_terms()? {
            return Ok(Settings::default());
        }
        // What is below 1 is none.
        let stated = |key| match config.number(key)? {
            Some(number) if number < 1.0 => Ok::<_, Error>(None),
            _ => config.size(key),
        };
        let most = match stated("max_relative_positions")? {
            Some(most) => most,
            None => config.sized(("max_position_embeddings", 512))?,
        };
        let norms = config.get("norm_rel_ebd").and_then(Value::as_str).unwrap_or_default();
        let is_normed = norms.split('|').any(|own| own.trim().eq_ignore_ascii_case("layer_norm"));
        let eps = is_normed.then(|| self.eps(("layer_norm_eps", 1e-7))).transpose()?;
        Ok(Settings {
            disentangled: Some(self.terms()),
            position_buckets: stated("position_buckets")?,
            max_relative_positions: Some(most),
            share_att_key: config.holds(When::If("share_att_key", false))?.then_some(true),
            rel_norm_eps: eps,
            ..Settings::default()
        })
    }

    fn eps(&self, (key, otherwise): Eps) -> Result<f64, Error> {
        Ok(self.config.number(key)?.unwrap_or(otherwise))
    }

    fn turns_at_all(&self) -> Result<bool> {
        self.turns(self.family.rope.map_or(Turned::All, |rope| rope.layers))
    }
}
