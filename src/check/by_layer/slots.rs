//! Does the cache of a port hold what its earlier steps wrote, and where not, what does it hold?

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};

use super::super::cells::{cells, cells_at, multiple};
use super::measure::apart;
use super::passes::{at_step, first_of};
use base::error::{Result, listed, shown};
use file::{Entry, open_place};
use program::Name;

/// Caches in four bits are off by less than that, relative to the size of a row.
const ROUNDED: f64 = 0.05;
/// So many times as much as the reference's cache is off by is no rounding.
const MUCH: f64 = 4.0;
/// The slots of more tokens than these are not looked for in other places.
const MOST_SLOTS: usize = 1024;

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
        let known = match self.scaled()? {
            Some(told) => Some(told),
            None => self.moved()?.or(self.clipped()?).or(self.turned()?),
        };
        Ok(known.unwrap_or_else(|| {
            tr!("the cached {what} are not those that earlier steps wrote", what)
        }))
    }

    fn scaled(&self) -> Result<Option<String>> {
        let told = |factors: Vec<String>| {
            tr!(
                "the cached {what} are those that earlier steps wrote times {factors}, head by head",
                what = self.of.told,
                factors = factors.join(", ")
            )
        };
        Ok(self.factors()?.map(told))
    }

    /// Slots that hold what was written to others, of the same item or of another one.
    fn moved(&self) -> Result<Option<String>> {
        let (items, _, slots, _) = self.past.dims4()?;
        if items * slots > MOST_SLOTS {
            return Ok(None);
        }
        let rows = |own: &Tensor| -> Result<Vec<Vec<f32>>> {
            Ok(own.transpose(1, 2)?.flatten_from(2)?.flatten_to(1)?.to_vec2::<f32>()?)
        };
        let (past, written) = (rows(&self.past)?, rows(&self.written)?);
        let is_near = |own: &[f32], of: &[f32]| {
            let squares = |all: &mut dyn Iterator<Item = f32>| all.map(|x| f64::from(x * x)).sum();
            let apart: f64 = squares(&mut own.iter().zip(of).map(|(own, of)| own - of));
            let size: f64 = squares(&mut of.iter().copied());
            apart <= ROUNDED * ROUNDED * size
        };
        let mut others = Vec::new();
        for (at, own) in past.iter().enumerate() {
            if written.get(at).is_some_and(|of| is_near(own, of)) {
                continue;
            }
            let Some(from) = written.iter().position(|of| is_near(own, of)) else {
                return Ok(None);
            };
            others.push((at, from));
        }
        let what = self.of.told;
        let Some(&(at, from)) = others.first() else { return Ok(None) };
        let (item, slot, other, place) = (at / slots, at % slots, from / slots, from % slots);
        let mut of_items: Vec<(usize, usize)> =
            others.iter().map(|(at, from)| (at / slots, from / slots)).collect();
        of_items.dedup();
        if others.iter().all(|(at, from)| at % slots == from % slots && at != from) {
            let each = of_items
                .iter()
                .map(|(own, from)| tr!("item {own} has those of item {from}", own, from));
            let each = listed(&each.collect::<Vec<_>>());
            return Ok(Some(tr!("the cached {what} are those of other items: {each}", what, each)));
        }
        Ok(Some(tr!(
            "{count} slots of the cached {what} hold those of others: slot {slot} of item {item} has what was written to slot {place} of item {other}",
            count = others.len(),
            what,
            slot,
            item,
            place,
            other
        )))
    }

    /// Slots whose numbers are cut off at one limit in each head.
    fn clipped(&self) -> Result<Option<String>> {
        let (mut clipped, mut limits) = (Vec::new(), Vec::new());
        for head in 0..self.past.dim(1)? {
            let (own, of) = (self.past.narrow(1, head, 1)?, self.written.narrow(1, head, 1)?);
            let most = |tensor: &Tensor| -> Result<f64> {
                Ok(f64::from(tensor.abs()?.max_all()?.to_scalar::<f32>()?))
            };
            let limit = most(&own)?;
            if limit < most(&of)? * (1.0 - ROUNDED) {
                limits.push(format!("{limit:.3}"));
            }
            clipped.push(of.clamp(-limit, limit)?);
        }
        let is_it = !limits.is_empty() && apart(&Tensor::cat(&clipped, 1)?, &self.past)? < ROUNDED;
        Ok(is_it.then(|| {
            tr!(
                "the cached {what} are those that earlier steps wrote, cut off at {limits} in {count} heads",
                what = self.of.told,
                limits = limits.join(", "),
                count = limits.len()
            )
        }))
    }

    /// Slots that are turned once more: all pairs of features have their sizes, at other angles.
    fn turned(&self) -> Result<Option<String>> {
        let features = self.past.dim(3)?;
        if self.of.unturned.is_empty() || !features.is_multiple_of(2) {
            return Ok(None);
        }
        let (items, heads, slots, _) = self.past.dims4()?;
        for shape in [[2, features / 2], [features / 2, 2]] {
            let axis = if shape[0] == 2 { 3 } else { 4 };
            let sizes = |own: &Tensor| -> Result<Tensor> {
                let pairs = own.reshape((items, heads, slots, shape[0], shape[1]))?;
                Ok(pairs.sqr()?.sum(axis)?.sqrt()?)
            };
            if apart(&sizes(&self.written)?, &sizes(&self.past)?)? < ROUNDED {
                return Ok(Some(
                    tr!("the cached keys are turned once more: their pairs of features have the sizes that were written, at other angles").to_owned(),
                ));
            }
        }
        Ok(None)
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

/// The first step of a cache at which its slots do not hold what was written there, and those of the reference do; `others` are
/// the records of other attentions of the port. Where both have one step alone, what the reference holds is what was written,
/// and slots are told where it is known what they hold.
pub fn caches(
    left: &[&PathBuf],
    right: &[&PathBuf],
    others: &[(&str, Vec<&PathBuf>)],
) -> Result<Option<String>> {
    if let ([meant], [own]) = (left, right) {
        return of_one_step(meant, own);
    }
    let mut usual = HashMap::new();
    if left.len() == right.len() {
        of_slots::<()>(left, |step, own| {
            usual.insert((step, own.of.past), own.off()?);
            Ok(None)
        })?;
    }
    of_slots(right, |step, own| {
        let usual = usual.get(&(step, own.of.past)).copied().unwrap_or(0.0);
        if own.off()? <= ROUNDED + MUCH * usual {
            return Ok(None);
        }
        for (name, records) in others {
            let Some(record) = records.get(step) else { continue };
            let past = open_place(record)?.tensor(own.of.past.as_str())?;
            let past = past.map(|past| past.to_dtype(DType::F32)).transpose()?;
            if past.is_some_and(|past| apart(&past, &own.past).is_ok_and(|off| off < ROUNDED)) {
                let (what, name) = (own.of.told, shown(name));
                let told = tr!("the cached {what} are those of {name}", what, name);
                return Ok(Some(at_step(step, &told)));
            }
        }
        Ok(Some(at_step(step, &own.told()?)))
    })
}

/// What a step of a cache should have found of earlier ones, by what these wrote, where it found other numbers.
pub fn written_before(records: &[&PathBuf], step: usize) -> Result<Vec<Entry>> {
    let mut all = Vec::new();
    of_slots::<()>(records.get(..=step).unwrap_or_default(), |at, own| {
        if at == step && own.off()? > ROUNDED {
            all.push(Entry::of(own.of.past.as_str(), own.written.clone()));
        }
        Ok(None)
    })?;
    Ok(all)
}

fn of_one_step(meant: &Path, own: &Path) -> Result<Option<String>> {
    let (meant, own) = (open_place(meant)?, open_place(own)?);
    for of in cached() {
        let both = (meant.tensor(of.past.as_str())?, own.tensor(of.past.as_str())?);
        let (Some(meant), Some(past)) = both else { continue };
        let Some(slots) = Slots::new(of, &past, &meant, None)? else { continue };
        if slots.off()? > ROUNDED
            && let Some(told) = slots.scaled()?.or(slots.moved()?).or(slots.clipped()?)
        {
            return Ok(Some(told));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    /// A cache that was recorded after a step had written its value over the last one.
    #[test]
    fn what_a_step_should_have_found_is_what_earlier_ones_wrote() {
        let folder = tempfile::tempdir().expect("a folder");
        let save = |step: usize, all: &[(Name, &Tensor)]| {
            let path = folder.path().join(format!("{step}.safetensors"));
            let all = all.iter().map(|(name, own)| (name.as_str(), (*own).clone()));
            candle_core::safetensors::save(&all.collect::<HashMap<_, _>>(), &path)
                .expect("written");
            path
        };
        let first = Tensor::arange(1_f32, 13.0, &Device::Cpu);
        let first = first.and_then(|own| own.reshape((1, 2, 3, 2))).expect("fits");
        let last = Tensor::ones((1, 2, 1, 2), DType::F32, &Device::Cpu).expect("fits");
        let past = Tensor::cat(&[&first.narrow(2, 0, 2).expect("fits"), &last], 2).expect("fits");
        let paths = [
            save(0, &[(Name::KHeads, &first), (Name::VHeads, &first)]),
            save(
                1,
                &[
                    (Name::KPast, &first),
                    (Name::KHeads, &last),
                    (Name::VPast, &past),
                    (Name::VHeads, &last),
                ],
            ),
        ];
        let paths: Vec<&PathBuf> = paths.iter().collect();
        let found = written_before(&paths, 1).expect("reads");
        let [own] = &found[..] else { panic!("values alone") };
        assert_eq!(own.name, "v_past");
        assert!(apart(&first, &own.tensor).expect("numbers") < 1e-6);
        assert!(written_before(&paths[..1], 0).expect("reads").is_empty());
    }
}
