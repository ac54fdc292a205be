//! Queries, keys and values that stand in a file with something taken off them, and without scales: a mean, as smoothed
//! keys are without theirs, or a zero point.

use candle_core::{DType, Tensor};

use super::arranged::{Qkv, arranged};
use super::few_bits::{offset_of, whole};
use super::matched::Match;
use super::names::meanings;
use base::error::{Error, Result, quoted};
use file::{Entry, Record};
use program::Name;

/// What may be added to queries, keys or values, or taken off them.
struct Shift {
    by: Tensor,
    matched: Match,
}

/// A way to read queries, keys and values, and the same with what stands beside them added, or taken off. The shifted ones are
/// tentative: they count only where all numbers agree. So does the plain one, if it is of codes.
///
/// # Errors
/// If candle fails.
pub fn with_shifts(record: &Record, entries: [&Entry; 3], mut plain: Qkv) -> Result<Vec<Qkv>> {
    plain.is_tentative |= (0..3).any(|slot| lacks_scale(record, slot, entries[slot]).is_some());
    let mut all = vec![plain];
    for (slot, stored) in entries.into_iter().enumerate() {
        let mut others = Vec::new();
        for Shift { by, matched } in shifts(record, slot, stored)? {
            let numbers = stored.tensor.to_dtype(DType::F64)?.broadcast_add(&by)?;
            for own in &all {
                let mut own = Qkv { is_tentative: true, ..own.clone() };
                let name = quoted(&stored.name);
                own.tensors[slot].1 = arranged(&name, &numbers, own.format, Some(own.start))?.1;
                own.matches.push(matched.clone());
                others.push(own);
            }
        }
        all.extend(others);
    }
    Ok(all)
}

/// What may be added to one of them.
fn shifts(record: &Record, slot: usize, stored: &Entry) -> Result<Vec<Shift>> {
    let [_, _, _, zero_point, _] = Name::FEW_BITS[slot];
    let dims = stored.tensor.dims();
    let Some((beside, signs)) = beside(record, slot, stored) else { return Ok(Vec::new()) };
    let Some(shape) = whole(beside, dims) else { return Ok(Vec::new()) };
    let by = beside.tensor.reshape(shape)?.to_dtype(DType::F64)?;
    let shift = |sign: &f64| {
        let how = if *sign > 0.0 { tr!("added") } else { tr!("taken off") };
        let matched = Match::as_it_is(zero_point.as_str(), &beside.name).read(how);
        Ok(Shift { by: (&by * *sign)?, matched })
    };
    signs.iter().map(shift).collect()
}

/// A zero point, which is subtracted, or an offset, which is added; that of codes may be meant as a zero point.
fn beside<'r>(
    record: &'r Record,
    slot: usize,
    stored: &Entry,
) -> Option<(&'r Entry, &'static [f64])> {
    let [_, _, _, zero_point, _] = Name::FEW_BITS[slot];
    let is_zero = |entry: &&Entry| meanings(&entry.name).contains(&zero_point);
    if let Some(zero) = record.entries.iter().find(is_zero) {
        return Some((zero, &[-1.0]));
    }
    let signs: &[f64] = if stored.tensor.dtype().is_float() { &[1.0] } else { &[1.0, -1.0] };
    Some((offset_of(record, slot)?, signs))
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
    for (slot, [_, own, scale, zero_point, _]) in Name::FEW_BITS.into_iter().enumerate() {
        let names = [own, [Name::Q, Name::K, Name::V][slot], Name::FEW_BITS[slot][0]];
        let is_it = |entry: &&Entry| meanings(&entry.name).iter().any(|own| names.contains(own));
        let found = |stored| Some((lacks_scale(record, slot, stored)?, stored));
        let Some((beside, stored)) = record.entries.iter().filter(is_it).find_map(found) else {
            continue;
        };
        let what = tr!(
            "is not recorded, though {stored} holds whole numbers, and {beside} is their {zero_point}; with a scale of 1 they do not give what was recorded",
            stored = quoted(&stored.name),
            beside = quoted(&beside.name),
            zero_point
        );
        return Err(Error::tensor(scale, what, tr!("record {scale}, too", scale)));
    }
    Ok(())
}
