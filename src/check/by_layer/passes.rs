//! What do the records of a port's attention show by themselves: another mask than the reference's, or a cache that does not
//! hold what earlier steps wrote?

use std::collections::HashMap;
use std::path::PathBuf;

use candle_core::{D, DType, Device, Tensor};

use super::super::cells::{cells, cells_at, multiple};
use super::measure::{Beside, apart};
use base::error::Result;
use file::{Bundle, open_place};
use program::{Name, unravel};

/// Masks block by numbers that are lower, where they are added: −10000 is the least usual, and −9984 in bf16.
const LOW: f64 = -1e3;

/// Caches in four bits are off by less than that, relative to the size of a row.
const ROUNDED: f64 = 0.05;
/// So many times as much as the reference's cache is off by is no rounding.
const MUCH: f64 = 4.0;

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
        let (Some(mut meant), Some(own)) = (seen(&meant)?, seen(&own)?) else { continue };
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

fn at_step(step: usize, told: &str) -> String {
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

/// Which keys the queries of a record see, as (batch, head, query, key); nothing where it does not say.
fn seen(file: &Bundle) -> Result<Option<Tensor>> {
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
    let (Some(is_causal), Some(queries), Some(keys)) = (file.tensor("is_causal")?, queries, keys)
    else {
        return Ok(None);
    };
    let is_causal = cells(&is_causal)?.first().is_some_and(|own| *own != 0.0);
    let sees = |query: usize, key: usize| !is_causal || key + queries <= query + keys;
    let all = (0..queries).flat_map(|query| (0..keys).map(move |key| u8::from(sees(query, key))));
    Ok(Some(Tensor::from_vec(all.collect::<Vec<_>>(), (1, 1, queries, keys), &Device::Cpu)?))
}

/// The tensor of the first of these names that a record has.
fn first_of(file: &Bundle, names: &[Name]) -> Result<Option<Tensor>> {
    for name in names {
        if let Some(own) = file.tensor(name.as_str())? {
            return Ok(Some(own));
        }
    }
    Ok(None)
}

/// What a cache holds, and its names in the records of its steps.
#[derive(Clone, Copy)]
struct Cached {
    told: &'static str,
    /// What was there before a step.
    past: Name,
    /// What a step has written, as it stands in the cache.
    written: [Name; 3],
    /// The same before a rotation, if there may be one: what comes last before it.
    unturned: &'static [Name],
}

fn cached() -> [Cached; 2] {
    [
        Cached {
            told: tr!("keys"),
            past: Name::KPast,
            written: [Name::KCached, Name::KRot, Name::KHeads],
            unturned: &[Name::KClipped, Name::KNorm, Name::K],
        },
        Cached {
            told: tr!("values"),
            past: Name::VPast,
            written: [Name::VCached, Name::VRot, Name::VHeads],
            unturned: &[],
        },
    ]
}

/// Slots of earlier tokens, what was written there, and what that was before a rotation.
struct Slots {
    of: Cached,
    past: Tensor,
    written: Tensor,
    unturned: Option<Tensor>,
}

/// Asks of the slots at each step of a cache, those of keys and of values, until something is told.
fn of_slots<T>(
    records: &[&PathBuf],
    mut asked: impl FnMut(usize, &Slots) -> Result<Option<T>>,
) -> Result<Option<T>> {
    let mut all = cached().map(|of| (of, None, None));
    for (step, path) in records.iter().enumerate() {
        let file = open_place(path)?;
        let mut slots = Vec::new();
        for (of, written, unturned) in &mut all {
            let past = file.tensor(of.past.as_str())?;
            if let (Some(past), Some(written)) = (&past, &*written) {
                slots.extend(Slots::new(*of, past, written, unturned.as_ref())?);
            }
            let count = past.as_ref().map_or(Ok(0), |past| past.dim(2))?;
            let new = first_of(&file, &of.written)?.filter(|new| new.rank() == 4);
            let Some(new) = new else { return Ok(None) };
            let taken = if new.dim(2)? > count { count } else { 0 };
            let new = new.narrow(2, taken, new.dim(2)? - taken)?.contiguous()?;
            let flat = first_of(&file, of.unturned)?;
            let flat = flat.map(|flat| by_head(&flat, &new)).transpose()?.flatten();
            *unturned = joined(unturned.take(), flat)?;
            *written = joined(written.take(), Some(new))?;
        }
        for own in slots {
            if let Some(told) = asked(step, &own)? {
                return Ok(Some(told));
            }
        }
    }
    Ok(None)
}

/// (batch, token, features) by heads, as others stand; heads as they are.
fn by_head(flat: &Tensor, like: &Tensor) -> Result<Option<Tensor>> {
    if flat.dims() == like.dims() {
        return Ok(Some(flat.clone()));
    }
    let (batch, heads, tokens, features) = like.dims4()?;
    if flat.dims() != [batch, tokens, heads * features] {
        return Ok(None);
    }
    Ok(Some(flat.reshape((batch, tokens, heads, features))?.transpose(1, 2)?.contiguous()?))
}

fn joined(before: Option<Tensor>, new: Option<Tensor>) -> Result<Option<Tensor>> {
    Ok(match (before, new) {
        (Some(before), Some(new)) => Some(Tensor::cat(&[before, new], 2)?),
        (before, new) => before.or(new),
    })
}

impl Slots {
    /// Nothing where these are other shapes.
    fn new(
        of: Cached,
        past: &Tensor,
        written: &Tensor,
        unturned: Option<&Tensor>,
    ) -> Result<Option<Self>> {
        let count = past.dim(2)?;
        let last = |own: &Tensor| -> Result<Option<Tensor>> {
            let Some(first) = own.dim(2)?.checked_sub(count) else { return Ok(None) };
            let own = own.narrow(2, first, count)?.contiguous()?.to_dtype(DType::F32)?;
            Ok(Some(own).filter(|own| own.dims() == past.dims()))
        };
        let Some(written) = last(written)? else { return Ok(None) };
        let past = past.to_dtype(DType::F32)?.contiguous()?;
        let unturned = unturned.map(&last).transpose()?.flatten();
        Ok(Some(Self { of, past, written, unturned }))
    }

    /// How far they are from what was written, relative to a row.
    fn off(&self) -> Result<f64> {
        apart(&self.written, &self.past)
    }

    /// In which way they differ from what was written.
    fn told(&self) -> Result<String> {
        let what = self.of.told;
        if let Some(unturned) = &self.unturned
            && apart(unturned, &self.past)? < ROUNDED
        {
            return Ok(tr!("the cached keys are those before the rotation").to_owned());
        }
        if cells(&self.past)?.iter().all(|own| *own == 0.0) {
            return Ok(tr!("the cached {what} are 0, whatever earlier steps wrote", what));
        }
        Ok(match self.factors()? {
            Some(factors) => tr!(
                "the cached {what} are those that earlier steps wrote times {factors}, head by head",
                what,
                factors = factors.join(", ")
            ),
            None => tr!("the cached {what} are not those that earlier steps wrote", what),
        })
    }

    /// What the slots of each head are multiplied by, if that is all that is done to them.
    fn factors(&self) -> Result<Option<Vec<String>>> {
        let factor = |head: usize| {
            let (own, of) = (cells_at(&self.past, 1, head)?, cells_at(&self.written, 1, head)?);
            Ok(multiple(&own, &of, ROUNDED).map(|factor| format!("{factor:.3}")))
        };
        (0..self.past.dim(1)?).map(factor).collect()
    }
}

/// The first step of a cache at which its slots do not hold what was written there, and those of the reference do.
pub fn caches(left: &[&PathBuf], right: &[&PathBuf]) -> Result<Option<String>> {
    let mut usual = HashMap::new();
    if left.len() == right.len() {
        of_slots::<()>(left, |step, own| {
            usual.insert((step, own.of.past), own.off()?);
            Ok(None)
        })?;
    }
    of_slots(right, |step, own| {
        let usual = usual.get(&(step, own.of.past)).copied().unwrap_or(0.0);
        let is_off = own.off()? > ROUNDED + MUCH * usual;
        is_off.then(|| Ok(at_step(step, &own.told()?))).transpose()
    })
}
