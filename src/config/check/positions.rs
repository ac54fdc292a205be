//! What is refused of positions: rotary ones, those of tokens, and biases of distances.

use crate::config::Config;
use crate::rotary::Rotary;
use crate::rows::told;
use crate::sizes::Sizes;
use base::error::{Error, Result, quoted, refuse};
use program::{Places, RelativeBias, grid};

/// f32, in which positions are multiplied, counts no further.
const MOST: usize = 1 << 24;

/// What speaks of positions needs one sequence.
pub(super) fn check(c: &Config) -> Result<()> {
    if c.sizes.is_cross {
        let of_one_sequence = [
            ("rope", c.rope.is_some(), tr!("rotates queries and keys by their positions")),
            ("alibi", c.plain.alibi, tr!("measures the distance of queries and keys")),
            (
                "relative_bias",
                c.plain.relative_bias.is_some(),
                tr!("measures the distances of queries and keys"),
            ),
            ("past", c.sizes.past_len > 0, tr!("holds earlier keys")),
        ];
        if let Some((name, _, why)) = of_one_sequence.iter().find(|(_, is_set, _)| *is_set) {
            let what =
                tr!("{name} {why} within one sequence, but cross attention has two", name, why);
            return refuse(what, tr!("leave {name} out, or kv_len and memory", name));
        }
    }
    if let Some(sort) = c.plain.relative_bias {
        relative(c, sort)?;
    }
    match (&c.rope, &c.plain.positions) {
        (Some(rope), _) => rotary(rope, &c.sizes),
        (None, Some(positions)) => places(&positions.plain(), &c.sizes, 0),
        (None, None) => Ok(()),
    }
}

/// Buckets are enough to be told apart, and a grid has as many places as there are tokens.
fn relative(c: &Config, sort: RelativeBias) -> Result<()> {
    let buckets = c.sizes.buckets.unwrap_or(0);
    let exact = match sort {
        RelativeBias::Bidirectional => buckets / 4,
        RelativeBias::OneSided => buckets / 2,
        RelativeBias::Grid => {
            let Some((side, has_class)) = grid(buckets) else {
                let what = tr!("relative_buckets {buckets} does not fit a square grid", buckets);
                let fix =
                    tr!("give (2 · side − 1)², or 3 more if the first token is not in the grid");
                return refuse(what, fix);
            };
            let (tokens, keys) = (side * side + usize::from(has_class), c.sizes.keys());
            if tokens == keys {
                return Ok(());
            }
            let what = tr!(
                "relative_buckets {buckets} fits a grid of {tokens} tokens, but there are {keys}",
                buckets,
                tokens,
                keys
            );
            return refuse(what, "give a table for this grid, or another number of tokens");
        }
    };
    if exact == 0 {
        let what = tr!("relative_buckets {buckets} is too small to tell distances apart", buckets);
        return refuse(what, "give at least 4, such as 32");
    }
    if c.plain.relative_max_distance <= exact {
        let distance = c.plain.relative_max_distance;
        let what = tr!(
            "relative_max_distance {distance} must be above {exact}, as the first {exact} distances have a bucket each",
            distance,
            exact
        );
        return refuse(what, "give a larger one, such as 128");
    }
    Ok(())
}

/// Rotary positions turn pairs of features that are there, by angles that are numbers.
fn rotary(rope: &Rotary, sizes: &Sizes) -> Result<()> {
    let head_dim = sizes.head_dim;
    if let Some(places) = &rope.places {
        if rope.offset > 0 {
            let what = tr!(
                "rope_offset gives the first position, but positions already gives all of them"
            );
            return refuse(what, "leave one of the two out");
        }
        self::places(places, sizes, rope.dims / 2)?;
    }
    let &Rotary { base, dims, offset, attention_factor, .. } = rope;
    if let Some(path) = rope.freqs.as_ref().filter(|_| dims == 0 || dims > head_dim) {
        let what = tr!(
            "rope_freqs {path} has {dims} frequencies, but a head has {head_dim} features",
            path = quoted(&path.0),
            dims = dims / 2,
            head_dim
        );
        return refuse(what, "give one for every pair that is rotated, at most head_dim / 2");
    }
    if dims > head_dim {
        let what =
            tr!("rope_dims {dims} is more than the {head_dim} features of a head", dims, head_dim);
        return refuse(what, "give at most head_dim");
    }
    if rope.turns_values && sizes.v_head_dim < dims {
        let values = sizes.v_head_dim;
        let what =
            tr!("rope_value rotates {dims} features, but values have {values}", dims, values);
        return refuse(what, "give rope_dims of at most v_head_dim, or leave rope_value out");
    }
    let shared = sizes.shared_dim();
    if shared > 0 && (dims != shared || !rope.at_end) {
        let what = tr!("rope rotates exactly the {shared} features of the shared key", shared);
        return refuse(what, "leave rope_dims and rope_at_end out, or qk_rope_head_dim");
    }
    if dims == 0 || dims % 2 == 1 {
        // Nothing but the size of a head says how many are rotated.
        if dims == head_dim {
            let what = tr!("rope rotates pairs of features, but a head has {head_dim}", head_dim);
            let fix = tr!(
                "give heads an even number of features, such as `head_dim={even}`",
                even = dims + 1
            );
            return refuse(what, fix);
        }
        let what = tr!("rope rotates pairs of features, but rope_dims is {dims}", dims);
        return refuse(what, "give an even rope_dims, at least 2");
    }
    if !(base > 0.0 && base.is_finite()) {
        return refuse(
            tr!("rope_base {base} is not a valid base", base),
            "give a number above 0, such as 10000",
        );
    }
    // f32, in which positions are multiplied, counts no further.
    if offset >= 1 << 24 {
        let what = tr!("rope_offset {offset} is too large for f32 to count exactly", offset);
        return refuse(what, "give a position below 2^24");
    }
    match attention_factor {
        Some(factor) if !factor.is_finite() => refuse(
            tr!("rope_attention_factor {factor} is not a number", factor),
            "give one, such as 1",
        ),
        _ => Ok(()),
    }
}

/// Refuses positions that are not those of the tokens, and sections that are not those of the pairs.
fn places(places: &Places, sizes: &Sizes, pairs: usize) -> Result<()> {
    let (count, sum) = (places.sections.len(), places.sections.iter().sum::<usize>());
    if count != 0 && (count != 3 || sum != pairs) {
        let sections = told(std::slice::from_ref(&places.sections));
        let what = tr!(
            "rope_sections {sections} are not three numbers that add up to {pairs}",
            sections,
            pairs
        );
        return refuse(what, "give the pairs of time, height and width, such as 16,24,24");
    }
    if places.rows.len() > 1 && count == 0 {
        let what = tr!("there are several positions per token, but no rope_sections");
        return refuse(what, "give rope_sections, or one position per token");
    }
    let Sizes { batch, seq_len, .. } = *sizes;
    let fix = tr!(
        "give {seq_len} positions, once or for each of the {batch} batch items",
        seq_len,
        batch
    );
    for rows in places.rows.iter() {
        if rows.len() != 1 && rows.len() != batch {
            let what = tr!("are for {rows} items, but batch is {batch}", rows = rows.len(), batch);
            return Err(Error::tensor("positions", what, fix));
        }
        if let Some(row) = rows.iter().find(|row| row.len() != seq_len) {
            let what =
                tr!("are for {row} tokens, but seq_len is {seq_len}", row = row.len(), seq_len);
            return Err(Error::tensor("positions", what, fix));
        }
    }
    if !matches!(places.rows.len(), 1 | 3) {
        let what = tr!("are {rows} a token", rows = places.rows.len());
        return Err(Error::tensor("positions", what, "give one, or three: time, height and width"));
    }
    if places.last() >= MOST {
        let what = tr!(
            "go up to {last}, which is too large for f32 to count exactly",
            last = places.last()
        );
        return Err(Error::tensor("positions", what, "give positions below 2^24"));
    }
    Ok(())
}
