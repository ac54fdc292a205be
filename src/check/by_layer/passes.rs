//! What do the records of a port's attention show by themselves: another mask than the reference's, or a cache that does not
//! hold what earlier steps wrote?

use std::path::PathBuf;

use candle_core::{D, DType, Device, Tensor};

use super::super::cells::cells;
use super::measure::apart;
use base::error::Result;
use file::{Bundle, open_place};
use program::{Name, unravel};

/// Masks block by numbers that are lower, where they are added.
const LOW: f64 = -1e3;

/// Caches in four bits are off by less than that, relative to the size of a row.
const ROUNDED: f64 = 0.05;
/// So many times as much as the reference's cache is off by is no rounding.
const MUCH: f64 = 4.0;

/// In which cells the masks of a port's records differ from those of the reference's, of which there are as many.
pub fn other_masks(left: &[&PathBuf], right: &[&PathBuf]) -> Result<Vec<String>> {
    if left.len() != right.len() {
        return Ok(Vec::new());
    }
    for (step, (left, right)) in left.iter().zip(right).enumerate() {
        let (meant, own) = (open_place(left)?, open_place(right)?);
        let (Some(meant), Some(own)) = (seen(&meant)?, seen(&own)?) else { continue };
        if let Some(told) = apart_in_cells(&meant, &own)? {
            return Ok(vec![if step == 0 { told } else { at_step(step, &told) }]);
        }
    }
    Ok(Vec::new())
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
        for name in names {
            if let Some(own) = file.tensor(name.as_str())? {
                return Ok(own.dim(D::Minus2).ok());
            }
        }
        Ok(None)
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

/// Keys or values that the records of a cache's steps show: those that were written, and those before a rotation.
#[derive(Default)]
struct Written {
    all: Option<Tensor>,
    unturned: Option<Tensor>,
}

/// How far slots are from what was written there, relative to a row, and in which way.
type Gap = (f64, String);

/// How far the slots of the earlier tokens are from what was written there: at each step, keys and values.
fn gaps(records: &[&PathBuf]) -> Result<Vec<[Option<Gap>; 2]>> {
    let mut written = [Written::default(), Written::default()];
    let mut all = Vec::new();
    for path in records {
        let file = open_place(path)?;
        let mut found = [None, None];
        let slots = [(Name::KPast, Name::KCached), (Name::VPast, Name::VCached)];
        for (at, (past, cached)) in slots.into_iter().enumerate() {
            let own = &mut written[at];
            let past = file.tensor(past.as_str())?;
            if let (Some(past), Some(written)) = (&past, &own.all) {
                found[at] = gap(past, written, own.unturned.as_ref(), at == 0)?;
            }
            let count = past.as_ref().map_or(Ok(0), |past| past.dim(2))?;
            let made = if at == 0 {
                [cached, Name::KRot, Name::KHeads]
            } else {
                [cached, Name::VRot, Name::VHeads]
            };
            let mut new = None;
            for name in made {
                new = new.map_or_else(|| file.tensor(name.as_str()), |new| Ok(Some(new)))?;
            }
            let Some(new) = new.filter(|new| new.rank() == 4) else { return Ok(all) };
            let taken = if new.dim(2)? > count { count } else { 0 };
            let new = new.narrow(2, taken, new.dim(2)? - taken)?.contiguous()?;
            let flat = file.tensor(if at == 0 { Name::K.as_str() } else { Name::V.as_str() })?;
            let unturned = flat.map(|flat| by_head(&flat, &new)).transpose()?.flatten();
            own.all = joined(own.all.take(), Some(new))?;
            own.unturned = joined(own.unturned.take(), unturned)?;
        }
        all.push(found);
    }
    Ok(all)
}

/// (batch, token, features) by heads, as others stand.
fn by_head(flat: &Tensor, like: &Tensor) -> Result<Option<Tensor>> {
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

/// How far slots are from what was written there, relative to a row, and in which way.
fn gap(
    past: &Tensor,
    written: &Tensor,
    unturned: Option<&Tensor>,
    are_keys: bool,
) -> Result<Option<Gap>> {
    let count = past.dim(2)?;
    let last = |own: &Tensor| -> Result<Option<Tensor>> {
        let Some(first) = own.dim(2)?.checked_sub(count) else { return Ok(None) };
        let own = own.narrow(2, first, count)?.contiguous()?.to_dtype(DType::F32)?;
        Ok(Some(own).filter(|own| own.dims() == past.dims()))
    };
    let Some(written) = last(written)? else { return Ok(None) };
    let past = past.to_dtype(DType::F32)?.contiguous()?;
    let off = apart(&written, &past)?;
    let what = if are_keys { tr!("keys") } else { tr!("values") };
    let unturned = unturned.map(&last).transpose()?.flatten();
    let told = if are_keys
        && let Some(unturned) = unturned
        && apart(&unturned, &past)? < ROUNDED
    {
        tr!("the cached keys are those before the rotation").to_owned()
    } else if cells(&past)?.iter().all(|own| *own == 0.0) {
        tr!("the cached {what} are 0, whatever earlier steps wrote", what)
    } else if let Some(factors) = factors(&written, &past)? {
        tr!(
            "the cached {what} are those that earlier steps wrote times {factors}, head by head",
            what,
            factors = factors.join(", ")
        )
    } else {
        tr!("the cached {what} are not those that earlier steps wrote", what)
    };
    Ok(Some((off, told)))
}

/// What the slots of each head are multiplied by, if that is all that is done to them.
fn factors(written: &Tensor, past: &Tensor) -> Result<Option<Vec<String>>> {
    let mut all = Vec::new();
    for head in 0..past.dim(1)? {
        let [one, other] = [written, past].map(|own| cells(&own.narrow(1, head, 1)?.contiguous()?));
        let (one, other) = (one?, other?);
        let dot = |left: &[f64], right: &[f64]| -> f64 {
            left.iter().zip(right).map(|(left, right)| left * right).sum()
        };
        let factor = dot(&one, &other) / dot(&one, &one);
        let rest = one.iter().zip(&other).map(|(one, other)| (other - factor * one).powi(2));
        let rest: f64 = rest.sum();
        if rest.is_nan() || rest > ROUNDED.powi(2) * dot(&other, &other) {
            return Ok(None);
        }
        all.push(format!("{factor:.3}"));
    }
    Ok(Some(all))
}

/// The first step of a cache at which its slots do not hold what was written there, and those of the reference do.
pub fn caches(left: &[&PathBuf], right: &[&PathBuf]) -> Result<Option<String>> {
    let meant = if left.len() == right.len() { gaps(left)? } else { Vec::new() };
    for (step, own) in gaps(right)?.into_iter().enumerate() {
        for (at, own) in own.into_iter().enumerate() {
            let usual = meant.get(step).and_then(|both| both[at].as_ref()).map_or(0.0, |own| own.0);
            if let Some((off, told)) = own
                && off > ROUNDED + MUCH * usual
            {
                return Ok(Some(at_step(step, &told)));
            }
        }
    }
    Ok(None)
}
