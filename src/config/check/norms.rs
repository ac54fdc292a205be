//! What is refused of norms, and of what later models do beside them.

use crate::choice::{End, NormOver, Start};
use crate::config::Config;
use base::error::{Result, refuse};

/// What norms add, and what later models do beside them.
pub(super) fn check(c: &Config) -> Result<()> {
    let added = [
        ("lora_norm_eps", c.plain.lora_norm_eps),
        ("qk_norm_eps", c.norm.map_or(0.0, |norm| norm.eps)),
        ("v_norm_eps", c.plain.v_norm_eps),
        ("concat_norm_eps", c.plain.concat_norm_eps),
        ("rel_norm_eps", c.plain.rel_norm_eps.unwrap_or_default()),
    ];
    if let Some((name, eps)) = added.into_iter().find(|(_, eps)| !(*eps >= 0.0 && eps.is_finite()))
    {
        let what = tr!("{name} {eps} is not a valid epsilon", name, eps);
        return refuse(what, "give a small one, such as 1e-6");
    }
    if let (Some(kind), NormOver::PerHead) = (c.plain.qk_norm, c.plain.qk_norm_over)
        && !kind.has_weight()
    {
        let what = tr!(
            "qk_norm_over per-head gives each head its own weight, but {kind} has no weights",
            kind
        );
        return refuse(what, "leave qk_norm_over out");
    }
    if c.plain.qk_norm_over == NormOver::All && c.plain.qk_norm_after_rope {
        let what = tr!("qk_norm_over all normalises before the rotation, not after it");
        return refuse(what, "leave qk_norm_over or qk_norm_after_rope out");
    }
    if let Some(limit) = c.plain.clip_qkv.filter(|limit| !(*limit > 0.0 && limit.is_finite())) {
        let what = tr!("clip_qkv {limit} is not a valid limit", limit);
        return refuse(what, "give a number above 0, such as 8");
    }
    let factors = [("value_scale", c.plain.value_scale), ("q_temperature", c.plain.q_temperature)];
    if let Some((name, Some(factor))) =
        factors.into_iter().find(|(_, factor)| factor.is_some_and(|own| !own.is_finite()))
    {
        return refuse(
            tr!("{name} {factor} is not a number", name, factor),
            "give one, such as 0.1",
        );
    }
    if c.plain.q_temperature_floor == 0 {
        let what = tr!("q_temperature_floor is 0, but positions are divided by it");
        return refuse(what, "give it at least 1, such as 8192");
    }
    let offset = c.plain.q_temperature_offset;
    if offset >= 1 << 24 {
        let what =
            tr!("q_temperature_offset {offset} is too large for f32 to count exactly", offset);
        return refuse(what, "give a position below 2^24");
    }
    if c.plain.gate.is_some() && c.start != Start::Inputs && c.end == End::Output {
        let what = tr!("gate is a projection of x, but the run starts after x");
        return refuse(what, "leave gate out, or end before it: `end=concat`");
    }
    Ok(())
}
