//! How the features of a model are shared among its heads, and which numbers would share them.

use base::error::{Result, refuse};

/// Features of a head where none are set.
pub fn split(d_model: usize, heads: usize) -> Result<usize> {
    match d_model.checked_div(heads) {
        Some(head_dim) if head_dim * heads == d_model => Ok(head_dim),
        Some(_) => refuse(
            tr!("d_model {d_model} is not divisible by heads {heads}", heads, d_model),
            tr!(
                "every head gets d_model / heads features: try heads {divisor}, or set `head_dim`",
                divisor = would_divide(heads, d_model)
            ),
        ),
        None => refuse("heads is 0", "give heads at least 1"),
    }
}

/// The nearest divisors, looked for so far as an answer comes at once.
pub(super) fn would_divide(divisor: usize, size: usize) -> String {
    const FAR: usize = 100_000;
    let divides = |n: &usize| size.is_multiple_of(*n);
    let below = (1..=divisor.min(size)).rev().take(FAR).find(divides).unwrap_or(1);
    let above = (divisor..=size).take(FAR).find(divides);
    match above {
        Some(above) if above != below => tr!("{below} or {above}", below, above),
        _ => below.to_string(),
    }
}
