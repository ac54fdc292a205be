//! What is refused of multi-head latent attention, and of what projections are told beside it.

use crate::config::Config;
use crate::sizes::Latent;
use base::error::{Result, refuse};

/// Latents have features, and a head some of its own beside those that all share.
pub(super) fn check(c: &Config) -> Result<()> {
    let Some(Latent { queries, keys, shared, .. }) = c.sizes.latent else { return Ok(()) };
    for (name, size) in [("kv_lora_rank", Some(keys)), ("q_lora_rank", queries)] {
        if size == Some(0) {
            return refuse(tr!("{name} is 0", name), tr!("give {name} at least 1", name));
        }
    }
    let head_dim = c.sizes.head_dim;
    if shared >= head_dim {
        let what = tr!(
            "qk_rope_head_dim {shared} leaves no features of its own to a head of {head_dim}",
            shared,
            head_dim
        );
        return refuse(what, "head_dim counts both parts: make it larger than qk_rope_head_dim");
    }
    if shared > 0 && c.norm.is_some() && !c.plain.qk_norm_after_rope {
        let what =
            tr!("qk_norm normalises whole keys, but qk_rope_head_dim splits the keys in two parts");
        return refuse(what, "leave qk_norm out, or pass `qk_norm_after_rope`");
    }
    absorbed(c)
}

/// What stands between the latent and the dot products leaves nothing to absorb.
fn absorbed(c: &Config) -> Result<()> {
    if !c.sizes.absorbs() {
        return Ok(());
    }
    let turns_own = c.rope.is_some() && c.sizes.shared_dim() == 0;
    let set = [
        ("qk_norm", c.norm.is_some()),
        ("v_norm", c.plain.v_norm.is_some()),
        ("clip_qkv", c.plain.clip_qkv.is_some()),
        ("value_scale", c.plain.value_scale.is_some()),
        ("rope_value", c.rope.as_ref().is_some_and(|rope| rope.turns_values)),
        ("rope", turns_own),
        ("past", c.sizes.past_len > 0),
        ("add_zero_attn", c.sizes.has_zero_attn),
        ("kv_heads", c.sizes.kv_heads != c.sizes.heads),
        ("lambda_init", c.sizes.is_differential()),
    ];
    if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
        let what = tr!("{name} is of the keys and values of heads, and absorb makes none", name);
        return refuse(what, tr!("leave {name} or absorb out", name));
    }
    Ok(())
}

/// What a layer with latents, or a run without projections, has no place for.
pub(super) fn beside(c: &Config) -> Result<()> {
    let has_latent = c.sizes.latent.is_some();
    let set = [
        ("add_bias_kv", c.sizes.has_bias_kv && has_latent),
        ("d_memory_v", c.sizes.d_memory_v.is_some() && has_latent),
        ("k_eq_v", c.plain.k_eq_v && has_latent),
        ("shared_kv", c.plain.shared_kv.is_some() && has_latent),
    ];
    if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
        let what = tr!(
            "{name} belongs to projections of keys and values, but kv_lora_rank computes these from a latent",
            name
        );
        return refuse(what, tr!("leave {name} or kv_lora_rank out", name));
    }
    if c.plain.k_eq_v && (c.sizes.v_head_dim != c.sizes.head_dim || c.sizes.d_memory_v.is_some()) {
        let what = tr!(
            "k_eq_v uses the keys as values, but v_head_dim or d_memory_v says that the values differ"
        );
        return refuse(what, "leave one of the two out");
    }
    if c.plain.shared_kv.is_some() && c.sizes.is_cross {
        let what = tr!(
            "shared_kv holds keys and values of the same sequence, but cross attention has a second one"
        );
        return refuse(what, "leave shared_kv out, or kv_len and memory");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::{Config, Settings};

    fn resolved(mut settings: Value, absorb: bool) -> base::Result<Config> {
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
            ("lambda_init", json!({"lambda_init": 0.5})),
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
