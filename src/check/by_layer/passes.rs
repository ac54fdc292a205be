//! Which keys do the records of a port's attention show to its queries, and which ones do those of the reference?

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{D, DType, Device, Tensor};

use super::super::cells::cells;
use super::measure::Beside;
use base::error::Result;
use file::{Bundle, open_place};
use program::{Name, unravel};

/// Masks block by numbers that are lower, where they are added: −10000 is the least usual, and −9984 in bf16.
const LOW: f64 = -1e3;

/// In which cells the masks of a port's records differ from those of the reference's, of which there are as many; those of one
/// call each, of which some `rows` of tokens stand beside each other, in these alone.
pub fn other_masks(
    left: &[&PathBuf],
    right: &[&PathBuf],
    rows: Option<&[Beside]>,
) -> Result<Option<String>> {
    if left.len() != right.len() {
        return Ok(None);
    }
    let right_count = right.len();
    for (step, (left, right)) in left.iter().zip(right).enumerate() {
        let (meant, own) = (open_place(left)?, open_place(right)?);
        let is_step = step > 0;
        let empty = if is_step { empty_slot(&own)? } else { None };
        let both = (seen(&meant, is_step)?, seen(&own, is_step)?);
        let (Some(mut meant), Some(own)) = both else { continue };
        // The slots of a cache may be others; a token sees as many.
        if is_step
            && meant.dim(D::Minus1)? != own.dim(D::Minus1)?
            && let Some(told) = other_counts(&meant, &own, empty)?
        {
            return Ok(Some(at_step(step, &told)));
        }
        if let Some(rows) = rows.filter(|_| right_count == 1) {
            let Some(moved) = in_places(&meant, &own, rows)? else { continue };
            meant = moved;
        }
        if let Some(told) = apart_in_cells(&meant, &own)? {
            return Ok(Some(if step == 0 { told } else { at_step(step, &told) }));
        }
    }
    Ok(None)
}

/// Which keys the port's queries are to see, in its places: those of tokens that the reference has beside them, and no padding.
/// Queries that stand beside none see what they see. Nothing where queries and keys are not the same tokens.
fn in_places(meant: &Tensor, own: &Tensor, rows: &[Beside]) -> Result<Option<Tensor>> {
    let ((batch, heads, tokens, keys), (own_batch, own_heads, own_tokens, own_keys)) =
        (meant.dims4()?, own.dims4()?);
    if tokens != keys || own_tokens != own_keys || tokens == 0 || own_tokens == 0 {
        return Ok(None);
    }
    let pairs =
        rows.iter().flat_map(|own| (0..own.count).map(|at| (own.left + at, own.right + at)));
    let pairs: Vec<(usize, usize)> = pairs.collect();
    let beside: HashMap<usize, usize> = pairs.iter().map(|(left, right)| (*right, *left)).collect();
    let items = pairs.iter().map(|(_, right)| right / own_tokens + 1).max().unwrap_or(0);
    let (items, all_heads) = (items.max(own_batch), heads.max(own_heads));
    let shape = (items, all_heads, own_tokens, own_keys);
    let Ok(own) = own.broadcast_as(shape) else { return Ok(None) };
    let (meant, mut all) = (cells(meant)?, cells(&own)?);
    let at = |item: usize, head: usize, query: usize, key: usize| {
        let (item, head) = (item.min(batch - 1), head.min(heads - 1));
        meant
            .get(((item * heads + head) * tokens + query) * keys + key)
            .is_some_and(|own| *own > 0.0)
    };
    let in_same_places = tokens == own_tokens && pairs.iter().all(|(left, right)| left == right);
    for (left, right) in &pairs {
        let (item, own_item) = (left / tokens, right / own_tokens);
        for (head, key) in (0..all_heads).flat_map(|head| (0..own_keys).map(move |key| (head, key)))
        {
            let known =
                beside.get(&(own_item * own_tokens + key)).filter(|row| *row / tokens == item);
            let known = known.map(|row| row % tokens).or(in_same_places.then_some(key));
            let is_seen = known.is_some_and(|known| at(item, head, left % tokens, known));
            let place = (own_item * all_heads + head) * own_tokens + right % own_tokens;
            if let Some(cell) = all.get_mut(place * own_keys + key) {
                *cell = f64::from(u8::from(is_seen));
            }
        }
    }
    let all: Vec<u8> = all.into_iter().map(|own| u8::from(own > 0.0)).collect();
    Ok(Some(Tensor::from_vec(all, shape, &Device::Cpu)?))
}

pub fn at_step(step: usize, told: &str) -> String {
    tr!("at step {step} of its cache, {told}", step, told)
}

/// The first cell of which one mask shows the key and the other hides it, in rows that see a key in both.
fn apart_in_cells(meant: &Tensor, own: &Tensor) -> Result<Option<String>> {
    let (one, other) = (meant.dims(), own.dims());
    let shape: Vec<usize> = one.iter().zip(other).map(|(one, other)| *one.max(other)).collect();
    let (Ok(meant), Ok(own)) =
        (meant.broadcast_as(shape.as_slice()), own.broadcast_as(shape.as_slice()))
    else {
        return Ok(None);
    };
    let sees = |mask: &Tensor| mask.max_keepdim(D::Minus1)?.broadcast_as(shape.as_slice());
    let differs = meant.ne(&own)?.mul(&sees(&meant)?)?.mul(&sees(&own)?)?;
    let differs = cells(&differs)?;
    let count = differs.iter().filter(|cell| **cell > 0.0).count();
    let Some(first) = differs.iter().position(|cell| *cell > 0.0) else { return Ok(None) };
    let &[item, _, query, key] = &unravel(first, &shape)[..] else { return Ok(None) };
    let is_seen = cells(&own)?.get(first).is_some_and(|cell| *cell > 0.0);
    Ok(Some(if is_seen {
        tr!(
            "its mask shows key {key} to query {query} of item {item}, and the reference's hides it; {count} cells differ",
            key,
            query,
            item,
            count
        )
    } else {
        tr!(
            "its mask hides key {key} from query {query} of item {item}, and the reference's shows it; {count} cells differ",
            key,
            query,
            item,
            count
        )
    }))
}

/// The first query that sees more keys in one mask than in the other, of those that see one in both.
fn other_counts(meant: &Tensor, own: &Tensor, empty: Option<usize>) -> Result<Option<String>> {
    let count = |mask: &Tensor| cells(&mask.to_dtype(DType::F64)?.sum(D::Minus1)?);
    let (items, heads, queries, _) = own.dims4()?;
    let (meant_items, meant_heads, meant_queries, _) = meant.dims4()?;
    if queries != meant_queries {
        return Ok(None);
    }
    let (left, right) = (count(meant)?, count(own)?);
    let at = |all: &[f64], items: usize, heads: usize, item: usize, query: usize| {
        all.get(item.min(items - 1) * heads * queries + query).copied().unwrap_or(0.0)
    };
    for item in 0..items.max(meant_items) {
        for query in 0..queries {
            let many = at(&left, meant_items, meant_heads, item, query);
            let seen = at(&right, items, heads, item, query);
            // Whole numbers.
            if (many - seen).abs() < 0.5 || many < 0.5 || seen < 0.5 {
                continue;
            }
            let told = tr!(
                "query {query} of item {item} sees {seen} keys, and the reference's sees {many}",
                query,
                item,
                seen,
                many
            );
            let empty = empty.filter(|_| seen > many);
            return Ok(Some(match empty {
                Some(slot) => {
                    tr!(
                        "{told}: slot {slot} of its cache is 0, as nothing was written to it",
                        told,
                        slot
                    )
                }
                None => told,
            }));
        }
    }
    Ok(None)
}

/// The first slot of the keys that a step reads in which all is 0.
fn empty_slot(file: &Bundle) -> Result<Option<usize>> {
    let Some(keys) = first_of(file, &[Name::KCached, Name::KPast])?.filter(|own| own.rank() == 4)
    else {
        return Ok(None);
    };
    let sizes = cells(&keys.to_dtype(DType::F64)?.abs()?.sum((0, 1, 3))?)?;
    Ok(sizes.iter().position(|size| *size == 0.0))
}

/// Which keys the queries of a record see, as (batch, head, query, key); nothing where it does not say. The token of a step of a
/// cache sees all where there is no mask.
fn seen(file: &Bundle, is_step: bool) -> Result<Option<Tensor>> {
    if let Some(mask) = file.tensor("attn_mask")?.filter(|mask| mask.rank() == 4) {
        if !mask.dtype().is_float() {
            return Ok(Some(mask.ne(0_f64)?));
        }
        let is_mask = cells(&mask)?.iter().all(|cell| *cell == 0.0 || *cell < LOW);
        return Ok(if is_mask { Some(mask.gt(LOW)?) } else { None });
    }
    let tokens = |names: &[Name]| -> Result<Option<usize>> {
        Ok(first_of(file, names)?.and_then(|own| own.dim(D::Minus2).ok()))
    };
    let queries = tokens(&[Name::QRot, Name::QHeads, Name::Q])?;
    let keys = tokens(&[Name::KCached, Name::KRot, Name::KHeads, Name::K])?;
    let (Some(queries), Some(keys)) = (queries, keys) else { return Ok(None) };
    let is_causal = match file.tensor("is_causal")? {
        Some(stated) => cells(&stated)?.first().is_some_and(|own| *own != 0.0),
        None if is_step && queries == 1 => false,
        None => return Ok(None),
    };
    let sees = |query: usize, key: usize| !is_causal || key + queries <= query + keys;
    let all = (0..queries).flat_map(|query| (0..keys).map(move |key| u8::from(sees(query, key))));
    Ok(Some(Tensor::from_vec(all.collect::<Vec<_>>(), (1, 1, queries, keys), &Device::Cpu)?))
}

/// The tensor of the first of these names that a record has.
pub fn first_of(file: &Bundle, names: &[Name]) -> Result<Option<Tensor>> {
    for name in names {
        if let Some(own) = file.tensor(name.as_str())? {
            return Ok(Some(own));
        }
    }
    Ok(None)
}
