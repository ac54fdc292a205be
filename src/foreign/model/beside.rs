//! What a model's config says of norms, clipping, temperatures and gates.

use serde_json::Value;

use super::Model;
use super::family::{Eps, Sees, Turned};
use base::error::{Error, Result};
use config::{NormOver, OtherNorm, Settings};

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

    /// How many terms a key lists, as an array or with | between.
    pub(super) fn terms(&self, key: &str) -> usize {
        match self.config.get(key) {
            Some(Value::Array(terms)) => terms.len(),
            Some(Value::String(terms)) => terms.split('|').count(),
            _ => 0,
        }
    }

    /// Refuses a layer whose scores have biases that nothing gives.
    pub(super) fn refuse_no_bias(&self) -> Result<()> {
        if self.has_bias || !self.config.holds(self.family.given_bias)? {
            return Ok(());
        }
        let what = tr!(
            "its scores have biases that come from parts of the model that are not supported, and they are not given"
        );
        let fix = tr!("give what its module adds to the scores by `attn_bias=FILE`");
        Err(self.config.refused(what, fix))
    }

    fn eps(&self, (key, otherwise): Eps) -> Result<f64, Error> {
        Ok(self.config.number(key)?.unwrap_or(otherwise))
    }

    fn turns_at_all(&self) -> Result<bool> {
        self.turns(self.family.rope.map_or(Turned::All, |rope| rope.layers))
    }
}
