//! What is refused of multi-head latent attention.

use super::check::refuse;
use super::{Config, Latent};
use crate::error::Result;

impl Config {
    /// Latents have features, and a head some of its own beside those that all share.
    pub(super) fn check_latent(&self) -> Result<()> {
        let Some(Latent { queries, keys, shared }) = self.sizes.latent else { return Ok(()) };
        for (name, size) in [("kv_lora_rank", Some(keys)), ("q_lora_rank", queries)] {
            if size == Some(0) {
                return refuse(format!("{name} is 0"), format!("give {name} at least 1"));
            }
        }
        let head_dim = self.sizes.head_dim;
        if shared >= head_dim {
            let what = format!(
                "qk_rope_head_dim {shared} leaves a head of {head_dim} features none of its own"
            );
            return refuse(what, "head_dim is of both: give it more than qk_rope_head_dim");
        }
        if shared > 0 && self.norm.is_some_and(|norm| !norm.after_rope) {
            let what = "qk_norm is of whole keys, and qk_rope_head_dim is of keys in two parts";
            return refuse(what, "leave qk_norm out, or pass `qk_norm_after_rope`");
        }
        Ok(())
    }
}
