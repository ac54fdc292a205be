//! Changes of pickles by their opcodes.

use super::numbers::overwrite;
use super::{Rng, any};

/// A pickle with a few opcodes taken away, doubled, exchanged or changed in their argument.
pub fn pickle(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let mut codes = opcodes(bytes);
    for _ in 0..rng.usize(1..4) {
        let at = rng.usize(..codes.len().max(1));
        let other = any(&codes, rng)?.clone();
        let code = codes.get_mut(at)?;
        match rng.u8(..6) {
            0 => drop(codes.remove(at)),
            1 => codes.insert(at, other),
            2 => *code = other,
            3 => codes.insert(
                at,
                vec![*any(b"()]}.0120NRbetusaqhKMJQ\x85\x86\x87\x94\x93\x81\x90\x91", rng)?],
            ),
            // Of a text its length too.
            _ => match code.len() {
                0 | 1 => *code = other,
                2 => overwrite(code, &[(1, 1)], rng)?,
                3 | 4 => overwrite(code, &[(1, 2)], rng)?,
                _ => overwrite(code, &[(1, 1), (1, 4)], rng)?,
            },
        }
    }
    Some(codes.concat())
}

/// The opcodes with their arguments. What is none stands alone, byte by byte.
fn opcodes(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut codes = Vec::new();
    while let Some((code, rest)) = bytes.split_first() {
        let lines = |count: usize| {
            let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            ends.map(|(at, _)| at + 1).nth(count - 1)
        };
        let short = |start: usize| rest.first().map(|length| start + usize::from(*length));
        let long = |start: usize| {
            let length = rest.first_chunk().map(|four| u32::from_le_bytes(*four))?;
            usize::try_from(length).ok()?.checked_add(start)
        };
        let length = match code {
            b'c' | b'i' => lines(2),
            b'F' | b'I' | b'L' | b'S' | b'V' | b'g' | b'p' | b'P' => lines(1),
            b'K' | b'q' | b'h' | 0x80 => Some(1),
            b'M' => Some(2),
            b'J' | b'r' | b'j' => Some(4),
            b'G' | 0x95 => Some(8),
            b'U' | b'C' | 0x8a | 0x8c => short(1),
            b'X' | b'T' | b'B' | 0x8b => long(4),
            _ => Some(0),
        };
        let end = 1 + length.filter(|length| *length <= rest.len()).unwrap_or(0);
        codes.push(bytes[..end].to_vec());
        bytes = &bytes[end..];
    }
    codes
}
