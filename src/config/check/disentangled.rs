//! What is refused of terms of content and relative position, and of what leaves no place for them.

use crate::choice::PositionTerm;
use crate::config::Config;
use base::error::{Result, refuse};

/// Each term is there once, of queries and keys as they are projected, and buckets are of distances that can be told apart.
pub(super) fn check(c: &Config) -> Result<()> {
    let (Some(terms), Some(positions)) = (&c.plain.disentangled, c.sizes.positions) else {
        return Ok(());
    };
    let both = [PositionTerm::C2p, PositionTerm::P2c];
    let is_once = |term| terms.iter().filter(|own| **own == term).count() <= 1;
    if terms.is_empty() || !both.into_iter().all(is_once) {
        let what = tr!("disentangled names each of its terms once, and at least one");
        return refuse(what, tr!("give c2p, p2c, or c2p,p2c"));
    }
    let plain = &c.plain;
    let set = [
        ("recurrence", plain.recurrence.is_some()),
        ("kv_len", c.sizes.is_cross),
        ("kv_heads", c.sizes.kv_heads != c.sizes.heads),
        ("kv_lora_rank", c.sizes.latent.is_some()),
        ("past", c.sizes.past_len > 0),
        ("shared_kv", plain.shared_kv.is_some()),
        ("add_bias_kv", c.sizes.has_bias_kv),
        ("add_zero_attn", c.sizes.has_zero_attn),
        ("rope", c.rope.is_some()),
        ("qk_norm", c.norm.is_some()),
        ("clip_qkv", plain.clip_qkv.is_some()),
        ("q_temperature", plain.q_temperature.is_some()),
        ("lambda_init", c.sizes.is_differential()),
    ];
    if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
        let other = "disentangled";
        let what = tr!("{name} and {other} are set, and are not computed together", name, other);
        return refuse(what, tr!("leave one of the two out"));
    }
    let (span, most) = (positions.span, positions.max_distance);
    if most == 0 {
        let name = "max_relative_positions";
        return refuse(tr!("{name} is 0", name), tr!("give {name} at least 1", name));
    }
    let exact = span / 2;
    if plain.position_buckets.is_some_and(|buckets| buckets < 2) {
        let what =
            tr!("position_buckets {buckets} is too small to tell distances apart", buckets = span);
        return refuse(what, "give at least 2, such as 256");
    }
    if plain.position_buckets.is_some() && most <= exact + 1 {
        let what = tr!(
            "max_relative_positions {distance} must be above {exact}, as distances up to {buckets} have a bucket each",
            distance = most,
            exact = exact + 1,
            buckets = exact
        );
        let larger = plain.position_buckets.unwrap_or(exact).saturating_mul(2);
        return refuse(what, tr!("give a larger one, such as {larger}", larger));
    }
    Ok(())
}
