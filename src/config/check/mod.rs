//! What a config is refused for, and why.

mod companions;
mod disentangled;
mod latents;
mod masks;
mod norms;
mod parts;
mod positions;
mod recurrence;

pub use companions::companions;

use super::choice::{End, Start};
use super::config::Config;
use super::divisors::would_divide;
use super::sizes::Sizes;
use base::error::{Result, quoted, refuse};
use program::Name;

/// Refuses sizes that are none, and what contradicts them or each other.
pub(crate) fn check(c: &Config) -> Result<()> {
    if c.start == Start::Scores && c.end != End::Weights {
        let what = tr!("end is {end}, but a run that starts at scores has no values", end = c.end);
        return refuse(what, "leave out end: it ends at the weights");
    }
    let Sizes { heads, kv_heads, head_dim, .. } = &c.sizes;
    let sizes = [
        ("batch", c.sizes.batch),
        ("seq_len", c.sizes.seq_len),
        ("d_model", c.sizes.d_model),
        ("heads", *heads),
        ("kv_heads", *kv_heads),
        ("head_dim", *head_dim),
        ("v_head_dim", c.sizes.v_head_dim),
        ("d_in", c.sizes.d_in),
        ("kv_len", c.sizes.own_keys),
        ("d_memory", c.sizes.d_memory),
        ("d_memory_v", c.sizes.d_memory_v.unwrap_or(1)),
    ];
    if let Some((name, _)) = sizes.iter().find(|(_, size)| *size == 0) {
        return refuse(tr!("{name} is 0", name), tr!("give {name} at least 1", name));
    }
    let larger = *head_dim.max(&c.sizes.v_head_dim);
    if heads.checked_mul(larger).is_none() {
        let what = tr!("{heads} heads of {larger} features are too many to count", heads, larger);
        return refuse(what, "give smaller heads or head_dim");
    }
    if !heads.is_multiple_of(*kv_heads) {
        let what = tr!("heads {heads} is not divisible by kv_heads {kv_heads}", kv_heads, heads);
        let fix = tr!("every key head serves heads / kv_heads query heads");
        return refuse(
            what,
            tr!("{fix}: try kv_heads {heads}", fix, heads = would_divide(*kv_heads, *heads)),
        );
    }
    if c.sizes.is_differential()
        && let Some((name, odd)) =
            [("heads", heads), ("kv_heads", kv_heads)].iter().find(|(_, size)| **size % 2 == 1)
    {
        let what = tr!("{name} is {odd}, and lambda_init makes pairs of heads", name, odd);
        return refuse(what, tr!("give an even number: twice what the paper calls heads"));
    }
    if !(0.0..=1.0).contains(&c.plain.dropout) {
        let what = tr!("dropout {dropout} is not a probability", dropout = c.plain.dropout);
        return refuse(what, "give a number from 0 to 1");
    }
    let wrt = c.plain.wrt.iter().flatten();
    if let Some(name) = wrt.clone().find(|name| Name::in_files(name).is_none()) {
        let what = tr!("wrt: no step is called {name}", name = quoted(name));
        return refuse(what, "give names of inputs, parameters or steps, such as x,w_q");
    }
    let mut gradients = wrt.filter_map(|name| Name::in_files(name));
    if let Some(name) = gradients.find(|name| name.is_gradient()) {
        let name = name.as_str();
        let what = tr!("wrt: {name} is a gradient itself", name);
        let of = name.trim_start_matches("d_");
        return refuse(what, tr!("name what it is the gradient of: --wrt {of}", of));
    }
    latents::check(c)?;
    latents::beside(c)?;
    positions::check(c)?;
    norms::check(c)?;
    masks::check(c)?;
    parts::check(c)?;
    recurrence::check(c)?;
    disentangled::check(c)?;
    tokens(c)
}

/// Labels are of all tokens, in every batch item.
fn tokens(c: &Config) -> Result<()> {
    let Sizes { batch, seq_len, past_len, own_keys, .. } = c.sizes;
    let with_cache = past_len.saturating_add(seq_len);
    let labelled = [
        ("tokens", &c.plain.tokens, [seq_len, with_cache]),
        ("memory_tokens", &c.plain.memory_tokens, [own_keys; 2]),
    ];
    for (name, tokens, sizes) in labelled {
        if let Some(tokens) = tokens {
            tokens.check(name, batch, sizes)?;
        }
    }
    Ok(())
}
