//! What is refused of masks, and of what else is done to scores.

use crate::choice::{DType, Mask};
use crate::config::Config;
use crate::parts::Packed;
use crate::rows::told;
use crate::segments::Segments;
use crate::sizes::Sizes;
use base::error::{Error, Result, quoted, refuse};
use program::Selection;

/// Masks show keys, and are of as many as there are.
pub(super) fn check(c: &Config) -> Result<()> {
    if c.plain.causal_align.is_some() && c.masks.between != Mask::Causal {
        let what = tr!("causal_align belongs to the causal mask, but mask is none");
        return refuse(what, "pass `mask=causal`, or leave causal_align out");
    }
    scores(c)?;
    fill(c)?;
    key_mask(c)?;
    lengths(c)?;
    segments(c)?;
    selected(c)
}

/// Refuses a selection that is not one of the run's queries and heads.
fn selected(c: &Config) -> Result<()> {
    let Some(selection) = &c.plain.selected else { return Ok(()) };
    let sizes = &c.sizes;
    let refuse = |what: String| {
        let fix = tr!(
            "give a list for each query or tile of them, or a parent for each token of the tree, once for all items and heads or for each"
        );
        Err(Error::tensor("selected", what, fix))
    };
    let (items, batch) = (selection.items(), sizes.batch);
    if items != 1 && items != batch {
        return refuse(tr!("it is of {items} items, but batch is {batch}", items, batch));
    }
    let (heads, seq_len, keys) = (sizes.heads, sizes.seq_len, sizes.keys());
    match selection {
        Selection::Tree(rows) => {
            let tokens = |row: &Vec<i64>| row.len();
            match rows.iter().map(tokens).find(|own| *own != seq_len || *own > keys) {
                Some(own) => refuse(tr!(
                    "there are {own} parents for {seq_len} queries and {keys} keys",
                    own,
                    seq_len,
                    keys
                )),
                None => Ok(()),
            }
        }
        Selection::Lists(lists) => {
            let of_heads = lists.chosen.iter().map(Vec::len);
            if let Some(own) = of_heads
                .into_iter()
                .find(|own| *own == 0 || heads % own > 0 || *own != lists.heads())
            {
                return refuse(tr!("it is of {own} heads, and there are {heads}", own, heads));
            }
            let tiles = seq_len.div_ceil(lists.tile.max(1));
            match lists.chosen.iter().flatten().map(Vec::len).find(|own| *own != tiles) {
                Some(own) => {
                    refuse(tr!("there are {own} lists, but {tiles} tiles of queries", own, tiles))
                }
                None => Ok(()),
            }
        }
    }
}

fn scores(c: &Config) -> Result<()> {
    match c.plain.chunk {
        Some(0) => return refuse("chunk 0 shows no key", "give chunk at least 1"),
        Some(_) if c.sizes.is_cross => {
            let what = tr!("chunk works within one sequence, but cross attention has two");
            return refuse(what, "leave chunk out, or kv_len and memory");
        }
        Some(_) | None => {}
    }
    match (c.plain.window, c.masks.between, c.plain.softcap, c.plain.scale) {
        (Some(0), ..) => refuse("window 0 shows no key", "give window at least 1"),
        (Some(_), Mask::None | Mask::Recorded, ..) if c.sizes.is_cross => refuse(
            "window needs the causal mask, which cross attention has only on request",
            "pass `mask=causal`, or leave window out",
        ),
        (_, _, Some(cap), _) if !(cap > 0.0 && cap.is_finite()) => refuse(
            tr!("softcap {cap} is not a valid cap", cap),
            "give a number above 0, such as 50",
        ),
        (.., Some(scale)) if !scale.is_finite() => {
            refuse(tr!("scale {scale} is not a number", scale), "give one, such as 0.125")
        }
        _ => Ok(()),
    }
}

fn fill(c: &Config) -> Result<()> {
    let fill = c.masks.fill.0;
    #[allow(clippy::cast_possible_truncation, reason = "asks whether it fits")]
    let fits = c.dtype == DType::F64 || (fill as f32).is_finite();
    if fill == f64::NEG_INFINITY || (fill.is_finite() && fits) {
        return Ok(());
    }
    let what =
        tr!("mask_fill {fill} is not a number in {dtype}", fill = c.masks.fill, dtype = c.dtype);
    refuse(what, "give -inf, or a number such as -1e9")
}

fn key_mask(c: &Config) -> Result<()> {
    let Some(rows) = &c.masks.key_mask else { return Ok(()) };
    let (batch, keys) = (c.sizes.batch, c.sizes.keys());
    let fix = tr!(
        "give each batch item ({batch} in all) a string of {keys} characters, 1 = attend and 0 = blocked",
        batch,
        keys
    );
    if rows.len() != batch {
        let what =
            tr!("the number of rows is {rows}, but batch is {batch}", rows = rows.len(), batch);
        return Err(Error::tensor("key_mask", what, fix));
    }
    for (item, row) in rows.iter().enumerate() {
        if let Some(other) = row.chars().find(|c| !matches!(c, '0' | '1')) {
            let what = tr!(
                "row {item} is \"{row}\", but '{other}' is neither 0 nor 1",
                item,
                row = quoted(row),
                other = quoted(&other.to_string())
            );
            return Err(Error::tensor("key_mask", what, fix));
        }
        if row.len() != keys {
            let what = tr!(
                "row {item} is \"{row}\", which has {row_2} keys, but {keys_name} is {keys}",
                item,
                row,
                row_2 = row.len(),
                keys_name = keys_name(c),
                keys
            );
            return Err(Error::tensor("key_mask", what, fix));
        }
    }
    Ok(())
}

fn lengths(c: &Config) -> Result<()> {
    let Some(lengths) = &c.plain.lengths else { return Ok(()) };
    let (batch, keys) = (c.sizes.batch, c.sizes.keys());
    let fix = tr!("give each batch item ({batch} in all) a number from 0 to {keys}", batch, keys);
    if lengths.len() != batch {
        let what = tr!(
            "the number of lengths is {lengths}, but batch is {batch}",
            lengths = lengths.len(),
            batch
        );
        return Err(Error::tensor("lengths", what, fix));
    }
    match lengths.iter().find(|length| **length > keys) {
        Some(length) => {
            let what = tr!(
                "{length} is longer than {keys_name} {keys}",
                length,
                keys_name = keys_name(c),
                keys
            );
            Err(Error::tensor("lengths", what, fix))
        }
        None => Ok(()),
    }
}

/// What the number of keys is called.
fn keys_name(c: &Config) -> &'static str {
    match (c.sizes.is_cross, c.sizes.past_len) {
        (true, _) => "kv_len",
        (false, 0) => "seq_len",
        (false, _) => tr!("the number of keys with the cache"),
    }
}

/// Refuses documents that do not fit the run.
fn segments(c: &Config) -> Result<()> {
    let Some(Packed { queries, keys }) = &c.masks.segments else { return Ok(()) };
    documents("segments", queries, &c.sizes, c.sizes.seq_len)?;
    let name = if queries == keys { "segments" } else { "key_segments" };
    documents(name, keys, &c.sizes, c.sizes.keys())?;
    let count = |rows: &[Vec<usize>]| rows.iter().map(Vec::len).max();
    if count(&queries.0) != count(&keys.0) {
        let what =
            tr!("there are {keys} documents of keys, but {queries} of queries", keys, queries);
        return Err(Error::tensor(
            name,
            what,
            "give a number of keys for every document; it may be 0",
        ));
    }
    if c.masks.between == Mask::Causal && queries != keys && queries.0.len() > 1 {
        let what = tr!(
            "in some documents, the numbers of queries and keys differ, which a causal mask does not define"
        );
        return Err(Error::tensor(name, what, "give the mask by `attn_mask=FILE`"));
    }
    Ok(())
}

/// Refuses lengths that are not those of so many tokens.
fn documents(name: &str, Segments(rows): &Segments, sizes: &Sizes, tokens: usize) -> Result<()> {
    if rows.len() != 1 && rows.len() != sizes.batch {
        let what = tr!(
            "the number of rows is {rows}, but batch is {batch}",
            rows = rows.len(),
            batch = sizes.batch
        );
        return Err(Error::tensor(
            name,
            what,
            "give one list for all items, or one per item: 3,2/4,1",
        ));
    }
    for row in rows {
        let sum = row.iter().try_fold(0_usize, |sum, length| sum.checked_add(*length));
        if sum != Some(tokens) {
            let all = sum.map_or("more".to_owned(), |sum| sum.to_string());
            let what = tr!(
                "documents of {lengths} tokens have {all} tokens together, but the row has {tokens}",
                lengths = told(std::slice::from_ref(row)),
                all,
                tokens
            );
            return Err(Error::tensor(
                name,
                what,
                tr!("give lengths that add up to {tokens}", tokens),
            ));
        }
    }
    Ok(())
}
