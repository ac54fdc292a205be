//! What a model's config says of multi-head latent attention.

use super::Model;
use base::error::{Error, Result};
use config::Settings;

impl Model<'_> {
    /// The sizes of latents. The norms of latents add the same whatever the config says of other norms.
    pub(super) fn latent(&self) -> Result<Settings> {
        let Some(latent) = self.family.latent else { return Ok(Settings::default()) };
        let size = |(key, otherwise)| {
            let size = self.config.size_or(key, Some(otherwise))?;
            Ok::<_, Error>(size.filter(|size| *size > 0))
        };
        Ok(Settings {
            q_lora_rank: size(latent.queries)?,
            kv_lora_rank: size(latent.keys)?,
            qk_rope_head_dim: size(latent.shared)?,
            ..Settings::default()
        })
    }

    /// What scaled positions make of the scores: 0.1 · `mscale_all_dim` · ln factor + 1, where a config says it
    /// (`yarn_apply_mscale` of transformers).
    pub(super) fn yarn_factor(&self) -> Result<Option<f64>> {
        let Some(stated) = self.stated(false)? else { return Ok(None) };
        let kind = stated.get("rope_type").or(stated.get("type"));
        let number = |key| self.config.number_in(&stated, key);
        let of_all = number("mscale_all_dim")?.filter(|scale| *scale != 0.0);
        if kind.is_none_or(|kind| kind == "default") {
            return Ok(None);
        }
        let factor = number("factor")?.unwrap_or(1.0);
        Ok(of_all.filter(|_| factor > 1.0).map(|scale| 0.1 * scale * factor.ln() + 1.0))
    }
}
