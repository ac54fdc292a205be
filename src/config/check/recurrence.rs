//! What is refused of a recurrence, and of what it leaves no place for.

use crate::choice::{End, Mask, QkNorm, Start};
use crate::config::Config;
use base::error::{Result, refuse};

/// Refuses what there is only beside a softmax.
pub(super) fn check(c: &Config) -> Result<()> {
    if c.plain.recurrence.is_none() {
        return Ok(());
    }
    if c.start != Start::Heads {
        let what = tr!(
            "recurrence starts at the queries, keys and values of heads, but start is {start}",
            start = c.start
        );
        return refuse(what, tr!("leave start out, or pass `start=heads`"));
    }
    if !matches!(c.end, End::Heads | End::Concat) {
        let what =
            tr!("recurrence ends at the outputs of the heads, but end is {end}", end = c.end);
        return refuse(what, tr!("leave end out, or pass `end=concat`"));
    }
    let plain = &c.plain;
    let set = [
        ("backward", plain.backward),
        ("mask", c.masks.between == Mask::Causal),
        ("attn_mask", c.masks.attn_mask_true.is_some()),
        ("window", plain.window.is_some()),
        ("chunk", plain.chunk.is_some()),
        ("selected", plain.selected.is_some()),
        ("alibi", plain.alibi),
        ("relative_bias", plain.relative_bias.is_some()),
        ("attn_bias", plain.attn_bias.is_some()),
        ("softcap", plain.softcap.is_some()),
        ("sinks", plain.sinks),
        ("lse", plain.lse),
        ("mean_weights", plain.mean_weights),
        ("dropout", plain.dropout > 0.0),
        ("splits", plain.splits.is_some()),
        ("tiles", plain.tiles.is_some()),
        ("lambda_init", plain.lambda_init.is_some()),
        ("rope", c.rope.is_some()),
        ("v_norm", plain.v_norm.is_some()),
        ("clip_qkv", plain.clip_qkv.is_some()),
        ("value_scale", plain.value_scale.is_some()),
        ("q_temperature", plain.q_temperature.is_some()),
        ("concat_norm", plain.concat_norm.is_some()),
        ("gate", plain.gate.is_some()),
        ("shared_kv", plain.shared_kv.is_some()),
        ("past", c.sizes.past_len > 0),
        ("kv_len", c.sizes.is_cross),
        ("queries", c.sizes.queries.is_some()),
        ("add_bias_kv", c.sizes.has_bias_kv),
        ("add_zero_attn", c.sizes.has_zero_attn),
        ("kv_heads", c.sizes.kv_heads != c.sizes.heads),
    ];
    if let Some((name, _)) = set.into_iter().find(|(_, is_set)| *is_set) {
        let other = "recurrence";
        let what = tr!("{name} and {other} are set, and are not computed together", name, other);
        return refuse(what, tr!("leave one of the two out"));
    }
    if c.norm.is_some_and(|norm| norm.kind != QkNorm::L2) {
        let what = tr!(
            "recurrence has queries and keys of length 1, or as they are: qk_norm is l2, or left out"
        );
        return refuse(what, tr!("pass `qk_norm=l2`, or leave qk_norm out"));
    }
    if plain.state_chunk == Some(0) {
        return refuse(
            tr!("{name} is 0", name = "state_chunk"),
            tr!("give {name} at least 1", name = "state_chunk"),
        );
    }
    let (heads, v_heads) = (c.sizes.heads, c.sizes.value_heads());
    if v_heads == 0 || !v_heads.is_multiple_of(heads) {
        let what = tr!("v_heads {v_heads} is not a multiple of heads {heads}", v_heads, heads);
        return refuse(
            what,
            tr!("every head of queries and keys serves v_heads / heads heads of values"),
        );
    }
    let has_gap = |row: &String| row.trim_matches('0').contains('0');
    if c.masks.key_mask.iter().flatten().any(has_gap) {
        let what = tr!(
            "key_mask has tokens left out between others, and a state goes through one run of them"
        );
        return refuse(what, tr!("give rows whose tokens stand together, or leave key_mask out"));
    }
    if c.masks.segments.is_some() && (c.sizes.batch != 1 || c.plain.lengths.is_some()) {
        let what = tr!("segments pack documents into one row, but there are several, or lengths");
        return refuse(what, tr!("give one row, or leave segments out"));
    }
    Ok(())
}
