//! What is refused of multi-head latent attention.

use super::check::refuse;
use super::{Config, Latent};
use base::error::Result;

impl Config {
    /// Latents have features, and a head some of its own beside those that all share.
    pub(super) fn check_latent(&self) -> Result<()> {
        let Some(Latent { queries, keys, shared, .. }) = self.sizes.latent else { return Ok(()) };
        for (name, size) in [("kv_lora_rank", Some(keys)), ("q_lora_rank", queries)] {
            if size == Some(0) {
                return refuse(tr!("{name} is 0", name), tr!("give {name} at least 1", name));
            }
        }
        let head_dim = self.sizes.head_dim;
        if shared >= head_dim {
            let what = tr!(
                "qk_rope_head_dim {shared} leaves a head of {head_dim} features none of its own",
                shared,
                head_dim
            );
            return refuse(what, "head_dim is of both: give it more than qk_rope_head_dim");
        }
        if shared > 0 && self.norm.is_some_and(|norm| !norm.after_rope) {
            let what =
                tr!("qk_norm is of whole keys, and qk_rope_head_dim is of keys in two parts");
            return refuse(what, "leave qk_norm out, or pass `qk_norm_after_rope`");
        }
        self.check_absorbed()
    }

    /// What stands between the latent and the dot products leaves nothing to absorb.
    fn check_absorbed(&self) -> Result<()> {
        if !self.sizes.absorbs() {
            return Ok(());
        }
        let turns_own = self.rope.is_some() && self.sizes.shared_dim() == 0;
        let set = [
            ("qk_norm", self.norm.is_some()),
            ("v_norm", self.v_norm_eps.is_some()),
            ("clip_qkv", self.clip_qkv.is_some()),
            ("value_scale", self.value_scale.is_some()),
            ("rope_value", self.rope.as_ref().is_some_and(|rope| rope.turns_values)),
            ("rope", turns_own),
            ("past", self.sizes.past_len > 0),
            ("add_zero_attn", self.sizes.has_zero_attn),
            ("kv_heads", self.sizes.kv_heads != self.sizes.heads),
        ];
        if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            let what =
                tr!("{name} is of the keys and values of heads, and absorb makes none", name);
            return refuse(what, tr!("leave {name} or absorb out", name));
        }
        Ok(())
    }

    /// What a layer with latents, or a run without projections, has no place for.
    pub(super) fn check_added(&self) -> Result<()> {
        let has_latent = self.sizes.latent.is_some();
        let set = [
            ("add_bias_kv", self.sizes.has_bias_kv && has_latent),
            ("d_memory_v", self.sizes.d_memory_v.is_some() && has_latent),
            ("k_eq_v", self.k_eq_v && has_latent),
            ("shared_kv", self.shares_kv && has_latent),
        ];
        if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
            let what = tr!(
                "{name} is of projections of keys and values, and kv_lora_rank gives them a latent",
                name
            );
            return refuse(what, tr!("leave {name} or kv_lora_rank out", name));
        }
        if self.k_eq_v
            && (self.sizes.v_head_dim != self.sizes.head_dim || self.sizes.d_memory_v.is_some())
        {
            let what = tr!(
                "k_eq_v takes the keys as values, and v_head_dim or d_memory_v says that these are others"
            );
            return refuse(what, "leave one of the two out");
        }
        if self.shares_kv && self.sizes.is_cross {
            let what = tr!(
                "shared_kv holds keys and values of the same sequence, and cross attention has a second one"
            );
            return refuse(what, "leave shared_kv out, or kv_len and memory");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::Settings;

    fn resolved(mut settings: Value, absorb: bool) -> Result<Config> {
        settings["kv_lora_rank"] = json!(3);
        settings["absorb"] = json!(absorb);
        Config::resolve(&serde_json::from_value::<Settings>(settings).expect("settings"))
    }

    /// What is done to the keys and values of heads cannot be done where there are none.
    #[test]
    fn what_is_of_the_keys_and_values_of_heads_is_not_absorbed() {
        for (name, settings) in [
            ("qk_norm", json!({"qk_norm": "rms"})),
            ("v_norm", json!({"v_norm": "rms"})),
            ("clip_qkv", json!({"clip_qkv": 1.0})),
            ("value_scale", json!({"value_scale": 0.5})),
            ("rope_value", json!({"rope": "half", "qk_rope_head_dim": 2, "rope_value": true})),
            ("rope", json!({"rope": "half"})),
            ("add_zero_attn", json!({"add_zero_attn": true})),
            ("kv_heads", json!({"kv_heads": 1})),
        ] {
            assert!(resolved(settings.clone(), false).is_ok(), "{name}");
            let error = resolved(settings, true).expect_err(name).to_string();
            let said = format!("{name} is of the keys and values of heads, and absorb makes none");
            assert_eq!(error, said);
        }
        let turned = json!({"rope": "half", "qk_rope_head_dim": 2});
        assert!(resolved(turned, true).is_ok(), "the key that all heads share is turned before");
    }

    #[test]
    fn the_features_that_heads_share_are_stated_where_there_are_any() {
        for (shared, stated) in [(0, None), (2, Some(2))] {
            let config = resolved(json!({"qk_rope_head_dim": shared}), false).expect("valid");
            let settings = Settings::from(&config);
            assert_eq!(settings.qk_rope_head_dim, stated);
            assert_eq!(Config::resolve(&settings).expect("valid"), config);
        }
    }
}
