//! Several masks of one attention: what do they block together, and what if one is not applied?

use candle_core::{DType, Tensor};

use super::contradiction::Contradiction;
use super::found_mask::{FoundMask, states_items};
use super::matched::Match;
use super::names::last_segment;
use super::numbers::numbers;
use base::error::{Result, quoted};
use base::lang;
use program::Name;

/// So many ways to read all of them are tried.
const WAYS: usize = 8;

/// What is as low leaves no weight.
const LOW: f64 = -1e4;

/// The ways to read several masks of a file of so many items together, and then those with one left out, which is a mistake
/// if it blocks more; nothing where there is one alone, or they do not stand beside each other.
///
/// # Errors
/// If candle fails.
pub fn joined(all: &[&[FoundMask]], items: Option<usize>) -> Result<Option<Vec<FoundMask>>> {
    let of_items = all.iter().filter_map(|ways| ways.first()).any(states_items);
    let whole = |ways: &&[FoundMask]| -> Result<Vec<FoundMask>> {
        // What is against one alone is not told of several.
        let plain = ways.iter().filter(|own| own.against.is_none()).cloned();
        plain.map(|own| in_four_axes(own, items, of_items)).collect()
    };
    let all: Vec<Vec<FoundMask>> = all.iter().map(whole).collect::<Result<_>>()?;
    let Some(mut found) = together(&all)?.filter(|_| all.len() > 1) else { return Ok(None) };
    let Some(both) = found.first().cloned() else { return Ok(None) };
    for left in 0..all.len() {
        let mut others = all.clone();
        let Some(left) = others.remove(left).into_iter().next() else { continue };
        for mut own in together(&others)?.into_iter().flatten() {
            let whole = with(&own, &left)?.map_or_else(|| both.mask.clone(), |whole| whole.mask);
            if !blocks_as_much(&own.mask, &whole)? && is_of_one_side(&own, &left) {
                own.against = Some((without(&own, &left), whole));
            }
            own.aside.push(left.name.clone());
            found.push(own);
        }
    }
    Ok(Some(found))
}

/// A mask with its axes in (batch, head, query, key), as far as its lengths and its name tell them.
fn in_four_axes(own: FoundMask, items: Option<usize>, of_items: bool) -> Result<FoundMask> {
    let Some(items) = items.filter(|items| *items > 0) else { return Ok(own) };
    let is_of_keys = |keys| states_items(&own) || !of_items && items != keys;
    let shape = match *own.mask.dims() {
        [first, keys] if first == items && is_of_keys(keys) => [items, 1, 1, keys],
        [first, queries, keys] if first.is_multiple_of(items) => {
            [items, first / items, queries, keys]
        }
        _ => return Ok(own),
    };
    Ok(FoundMask { mask: own.mask.reshape(&shape[..])?, ..own })
}

/// What several block together, in each way to read them; nothing where their lengths differ.
fn together(all: &[Vec<FoundMask>]) -> Result<Option<Vec<FoundMask>>> {
    let Some((first, others)) = all.split_first() else { return Ok(None) };
    let mut found = first.clone();
    for ways in others {
        let mut longer = Vec::new();
        for (own, other) in found.iter().flat_map(|own| ways.iter().map(move |other| (own, other)))
        {
            let Some(both) = with(own, other)? else { return Ok(None) };
            longer.push(both);
        }
        longer.truncate(WAYS);
        found = longer;
    }
    Ok(Some(found))
}

/// A mask and another one: both have to let a cell through, and floats are added. Nothing where their lengths differ.
fn with(own: &FoundMask, other: &FoundMask) -> Result<Option<FoundMask>> {
    let (left, right) = (&own.mask, &other.mask);
    if left.shape().broadcast_shape_binary_op(right.shape(), "masks").is_err() {
        return Ok(None);
    }
    let is_float = left.dtype().is_float() || right.dtype().is_float();
    let mask = if is_float {
        added(left)?.broadcast_add(&added(right)?)?
    } else {
        left.broadcast_mul(right)?
    };
    let mut both = FoundMask { mask, ..own.clone() };
    both.also.push(Match::as_it_is("attn_mask", &other.name).read(&other.how));
    Ok(Some(both))
}

/// What a mask adds to scores: its numbers, or −∞ where it blocks.
fn added(mask: &Tensor) -> Result<Tensor> {
    if mask.dtype().is_float() {
        return Ok(mask.to_dtype(DType::F64)?);
    }
    let shape = mask.shape();
    let low = Tensor::new(f64::NEG_INFINITY, mask.device())?.broadcast_as(shape)?;
    let none = Tensor::zeros(shape, DType::F64, mask.device())?;
    Ok(mask.ne(0.0)?.where_cond(&none, &low)?)
}

/// Whether a mask blocks all that the one does that it is a part of, and adds the same.
fn blocks_as_much(own: &Tensor, whole: &Tensor) -> Result<bool> {
    let own = added(own)?.broadcast_as(whole.shape())?;
    let pairs = numbers(&own)?.into_iter().zip(numbers(&added(whole)?)?);
    Ok(pairs.into_iter().all(|(own, whole)| own.total_cmp(&whole).is_eq() || own.max(whole) <= LOW))
}

/// Whether two are masks of one attention by their names: those of `src` and `tgt` need not be.
fn is_of_one_side(own: &FoundMask, other: &FoundMask) -> bool {
    let side = |name: &str| {
        let sides = ["src_", "tgt_", "memory_", "encoder_"];
        sides.into_iter().find(|side| last_segment(name).to_ascii_lowercase().starts_with(side))
    };
    let also = own.also.iter().map(|also| also.tensor.as_str());
    also.chain([own.name.as_str()]).all(|name| {
        let sides = [side(name), side(&other.name)];
        sides.contains(&None) || sides[0] == sides[1]
    })
}

/// That one of the masks is not applied.
fn without(own: &FoundMask, left: &FoundMask) -> Contradiction {
    let others = own.also.iter().map(|also| also.tensor.as_str());
    let others: Vec<&str> = std::iter::once(own.name.as_str()).chain(others).collect();
    let (name, others) = (quoted(&left.name), quoted(&lang::list(&others)));
    let summary =
        tr!("{name} is not applied: the numbers are those of {others} alone", name, others);
    let both = tr!("{others} and {name}", others, name);
    let is_of_keys = matches!(left.mask.dims(), [_, _, 1, _] | [_]);
    let id = if is_of_keys { "mask-padding-missing" } else { "mask-missing" };
    Contradiction::told("attn_mask", Name::MaskedScores, [both, others], summary).named(id)
}
