//! Numbers in binary files: sizes, lengths and places that say something else than what is there.

use super::{Rng, any};

/// A number at the edge of what a size can be, or a small one.
pub fn number(rng: &mut Rng) -> u64 {
    let edge = 1_u64.checked_shl(rng.u32(..66)).unwrap_or(0);
    match rng.u8(..4) {
        0 => edge,
        1 => edge.wrapping_sub(1),
        _ => rng.u64(..9),
    }
}

/// Writes another number over one of those fields, each a place and a width.
pub fn overwrite(bytes: &mut [u8], fields: &[(usize, usize)], rng: &mut Rng) -> Option<()> {
    let &(at, width) = any(fields, rng)?;
    let field = bytes.get_mut(at..at.checked_add(width)?)?;
    let mut old = [0; 8];
    old[..width].copy_from_slice(field);
    let old = u64::from_le_bytes(old);
    let new = match rng.u8(..4) {
        0 => old.wrapping_add(1),
        1 => old.wrapping_sub(1),
        _ => number(rng),
    };
    field.copy_from_slice(&new.to_le_bytes()[..width]);
    Some(())
}

/// A GGUF file with a number of its header changed.
pub fn gguf(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut header = Header { bytes, at: 4, fields: Vec::new() };
    // What breaks off has the fields up to there.
    let _ = header.walk();
    let fields = header.fields;
    let mut bytes = bytes.to_vec();
    overwrite(&mut bytes, &fields, rng)?;
    Some(bytes)
}

/// The numbers of a GGUF header.
struct Header<'a> {
    bytes: &'a [u8],
    at: usize,
    fields: Vec<(usize, usize)>,
}

impl Header<'_> {
    fn number(&mut self, width: usize) -> Option<u64> {
        let mut number = [0; 8];
        number[..width].copy_from_slice(self.bytes.get(self.at..self.at + width)?);
        self.fields.push((self.at, width));
        self.at += width;
        Some(u64::from_le_bytes(number))
    }

    fn text(&mut self) -> Option<()> {
        let length = usize::try_from(self.number(8)?).ok()?;
        self.at = self.at.checked_add(length).filter(|end| *end <= self.bytes.len())?;
        Some(())
    }

    fn value(&mut self, kind: u64) -> Option<()> {
        match kind {
            0 | 1 | 7 => drop(self.number(1)?),
            2 | 3 => drop(self.number(2)?),
            4..=6 => drop(self.number(4)?),
            10..=12 => drop(self.number(8)?),
            8 => self.text()?,
            _ => {
                let (kind, count) = (self.number(4)?, self.number(8)?);
                (0..count).try_for_each(|_| self.value(kind))?;
            }
        }
        Some(())
    }

    fn walk(&mut self) -> Option<()> {
        let (_version, tensors, pairs) = (self.number(4)?, self.number(8)?, self.number(8)?);
        for _ in 0..pairs {
            self.text()?;
            let kind = self.number(4)?;
            self.value(kind)?;
        }
        for _ in 0..tensors {
            self.text()?;
            let axes = self.number(4)?;
            (0..axes).try_for_each(|_| self.number(8).map(drop))?;
            (self.number(4)?, self.number(8)?);
        }
        Some(())
    }
}
