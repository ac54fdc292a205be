//! Queries, keys and values that stand in a file with something taken off them, and without scales: a mean, as smoothed
//! keys are without theirs, or a zero point.

use candle_core::{DType, Tensor};

use super::arranged::{Qkv, arranged};
use super::contradiction::Contradiction;
use super::few_bits::{is_offset, offset_of};
use super::matched::Match;
use super::names::meanings;
use super::scale_axes::whole;
use base::error::{Error, Result, quoted};
use file::{Entry, Record};
use program::{Name, first_number};

/// What may be added to queries, keys or values, or taken off them.
struct Shift {
    by: Tensor,
    matched: Match,
    /// Whether nothing is meant to be shifted so.
    is_wrong: bool,
}

/// A way to read queries, keys and values, and the same with what stands beside them added, or taken off. The shifted ones are
/// tentative: they count only where all numbers agree. So does the plain one, if it is of codes.
///
/// # Errors
/// If candle fails.
pub fn with_shifts(record: &Record, entries: [&Entry; 3], mut plain: Qkv) -> Result<Vec<Qkv>> {
    for (slot, stored) in entries.into_iter().enumerate() {
        let beside = lacks_scale(record, slot, stored);
        plain.is_tentative |= beside.is_some();
        let zero = beside.filter(|own| is_zero_point(own, slot));
        let told = |zero: &Entry| {
            let [name, stored] = [&zero.name, &stored.name].map(|name| quoted(name));
            let told = tr!("{name} is left out: {stored} is read as it is stored", name, stored);
            against(slot, told).named("quantized-zero-point-missing")
        };
        plain.against.extend(zero.map(told));
    }
    let mut all = vec![plain];
    for (slot, stored) in entries.into_iter().enumerate() {
        let mut others = Vec::new();
        for Shift { by, matched, is_wrong } in shifts(record, slot, stored)? {
            let numbers = stored.tensor.to_dtype(DType::F64)?.broadcast_add(&by)?;
            for own in &all {
                let mut own = Qkv { is_tentative: true, ..own.clone() };
                let name = quoted(&stored.name);
                own.tensors[slot].1 = arranged(&name, &numbers, own.format, Some(own.start))?.1;
                own.matches.push(matched.clone());
                own.against.retain(|own| own.setting != zero_point(slot).as_str());
                own.against.extend(is_wrong.then(|| {
                    let name = quoted(&matched.tensor);
                    against(slot, tr!("{name} is added, not taken off", name))
                }));
                others.push(own);
            }
        }
        all.extend(others);
    }
    Ok(all)
}

/// What may be added to one of them.
fn shifts(record: &Record, slot: usize, stored: &Entry) -> Result<Vec<Shift>> {
    let dims = stored.tensor.dims();
    let Some((beside, signs)) = beside(record, slot, stored) else { return Ok(Vec::new()) };
    let Some(shape) = whole(beside, dims) else { return Ok(Vec::new()) };
    let by = beside.tensor.reshape(shape)?.to_dtype(DType::F64)?;
    let shift = |sign: &f64| {
        let how = if *sign > 0.0 { tr!("added") } else { tr!("taken off") };
        let matched = Match::as_it_is(zero_point(slot).as_str(), &beside.name).read(how);
        let is_wrong = *sign > 0.0 && is_zero_point(beside, slot);
        Ok(Shift { by: (&by * *sign)?, matched, is_wrong })
    };
    signs.iter().map(shift).collect()
}

/// A zero point, which is subtracted, or an offset, which is added; that of codes may be meant as a zero point.
fn beside<'r>(
    record: &'r Record,
    slot: usize,
    stored: &Entry,
) -> Option<(&'r Entry, &'static [f64])> {
    let is_float = stored.tensor.dtype().is_float();
    if let Some(zero) = record.entries.iter().find(|entry| is_zero_point(entry, slot)) {
        return Some((zero, if is_float { &[-1.0] } else { &[-1.0, 1.0] }));
    }
    let signs: &[f64] = if is_float { &[1.0] } else { &[1.0, -1.0] };
    Some((offset_of(record, slot)?, signs))
}

/// The step that a zero point of queries, keys or values is.
fn zero_point(slot: usize) -> Name {
    Name::FEW_BITS[slot][3]
}

fn is_zero_point(entry: &Entry, slot: usize) -> bool {
    meanings(&entry.name).contains(&zero_point(slot))
}

/// That a zero point is not taken off.
fn against(slot: usize, told: String) -> Contradiction {
    let (setting, step) = (zero_point(slot).as_str(), Name::FEW_BITS[slot][0]);
    let both = [tr!("taken off"), tr!("not taken off")].map(str::to_owned);
    Contradiction::told(setting, step, both, told)
}

/// Why what is called as an offset was not added to anything, if this is one.
///
/// # Errors
/// If candle fails.
pub fn not_added(entry: &Entry) -> Result<Option<&'static str>> {
    if (0..3).all(|slot| !is_offset(entry, slot)) {
        return Ok(None);
    }
    Ok(Some(match entry.tensor.elem_count() {
        0 => tr!("it is empty"),
        _ if !is_finite(entry)? => tr!("it holds NaN or infinities"),
        _ => tr!("nothing that was recorded has it added"),
    }))
}

fn is_finite(entry: &Entry) -> Result<bool> {
    Ok(first_number(&entry.tensor, |number| !number.is_finite())?.is_none())
}

/// A zero point or an offset of codes that have no scale.
fn lacks_scale<'r>(record: &'r Record, slot: usize, stored: &Entry) -> Option<&'r Entry> {
    let [_, _, scale, ..] = Name::FEW_BITS[slot];
    let has_scale = record.entries.iter().any(|entry| meanings(&entry.name).contains(&scale));
    let found = beside(record, slot, stored).map(|(beside, _)| beside);
    found.filter(|_| !has_scale && !stored.tensor.dtype().is_float())
}

/// Refuses codes with a zero point or an offset of which no scale was recorded: what they stand for is not known.
///
/// # Errors
/// If a file holds such.
pub fn without_scale(record: &Record) -> Result<()> {
    for (slot, [_, own, scale, ..]) in Name::FEW_BITS.into_iter().enumerate() {
        let names = [own, [Name::Q, Name::K, Name::V][slot], Name::FEW_BITS[slot][0]];
        let is_it = |entry: &&Entry| meanings(&entry.name).iter().any(|own| names.contains(own));
        let found = |stored| Some((lacks_scale(record, slot, stored)?, stored));
        let Some((beside, stored)) = record.entries.iter().filter(is_it).find_map(found) else {
            continue;
        };
        let unusable = match beside.tensor.elem_count() {
            0 => Some(tr!("is empty")),
            _ if !is_finite(beside)? => Some(tr!("holds NaN or infinities")),
            _ => None,
        };
        if let Some(what) = unusable {
            let fix = tr!("record it as it was applied, or not at all");
            return Err(Error::tensor(quoted(&beside.name), what, fix));
        }
        let what = tr!(
            "is not recorded, though {stored} holds whole numbers, and {beside} is their zero point; with a scale of 1 they do not give what was recorded",
            stored = quoted(&stored.name),
            beside = quoted(&beside.name)
        );
        return Err(Error::tensor(scale, what, tr!("record {scale}, too", scale)));
    }
    Ok(())
}
