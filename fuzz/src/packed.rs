//! Changes of files whose header is a text, and of archives.

use std::io::{Cursor, Read, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use super::numbers::{number, overwrite};
use super::{Rng, any, json::json, pickle::pickle};

/// What is no archive becomes the first member of one, so that not every change breaks the archive.
pub fn archived(bytes: &[u8], members: &[(&str, &[u8])]) -> Vec<u8> {
    if bytes.starts_with(b"PK") {
        return bytes.to_vec();
    }
    let member = |(at, (name, content)): (usize, &(&str, &[u8]))| {
        ((*name).to_owned(), if at == 0 { bytes.to_vec() } else { content.to_vec() })
    };
    zipped(&members.iter().enumerate().map(member).collect::<Vec<_>>(), CompressionMethod::Stored)
}

fn zipped(members: &[(String, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(method);
    for (name, content) in members {
        // One that is there twice is left out.
        if zip.start_file(name.as_str(), options).is_ok() {
            zip.write_all(content).expect("writes");
        }
    }
    zip.finish().expect("finishes").into_inner()
}

/// An archive with a member changed, or a number of what it says of its members. Another file by what it is itself.
pub fn archive(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    if !bytes.starts_with(b"PK") {
        return npy(bytes, rng);
    }
    if rng.bool() {
        return record(bytes, rng);
    }
    let mut zip = ZipArchive::new(Cursor::new(bytes)).ok()?;
    let count = zip.len();
    let member = |at| {
        let mut member = zip.by_index(at).ok()?;
        let mut content = Vec::new();
        // Others claim more than there is.
        member.by_ref().take(1 << 20).read_to_end(&mut content).ok()?;
        Some((member.name().ok()?.into_owned(), content))
    };
    let mut members: Vec<(String, Vec<u8>)> = (0..count).map_while(member).collect();
    let at = rng.usize(..members.len().max(1));
    let (name, content) = members.get_mut(at)?;
    match rng.u8(..8) {
        0 => drop(members.remove(at)),
        1 => name.push_str(any(&["x", "/", "/../a", ".npy", "é"], rng)?),
        2 => content.truncate(rng.usize(..=content.len())),
        _ if name.ends_with(".pkl") => *content = pickle(content, rng)?,
        _ if name.ends_with(".npy") => *content = npy(content, rng)?,
        _ => content.push(0),
    }
    let methods = [CompressionMethod::Stored, CompressionMethod::Deflated];
    Some(zipped(&members, *any(&methods, rng)?))
}

/// A pickle, or an archive that holds one, changed by what it is made of.
pub fn pickle_or_archive(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    if bytes.starts_with(b"PK") { archive(bytes, rng) } else { pickle(bytes, rng) }
}

/// The records of an archive: how each begins, and how many bytes of numbers follow.
const RECORDS: [(&[u8], usize); 3] =
    [(b"PK\x03\x04", 26), (b"PK\x01\x02", 42), (b"PK\x05\x06", 18)];

/// An archive with a number of one of its records changed.
fn record(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let of = |(sign, length): &(&[u8], usize)| {
        let at = bytes.windows(4).enumerate().filter(|(_, four)| four == sign);
        let numbers = at.flat_map(|(at, _)| (at + 4..at + 4 + length).step_by(2));
        numbers.flat_map(|at| [(at, 2), (at, 4)]).collect::<Vec<_>>()
    };
    let fields: Vec<(usize, usize)> = RECORDS.iter().flat_map(of).collect();
    let mut bytes = bytes.to_vec();
    overwrite(&mut bytes, &fields, rng)?;
    Some(bytes)
}

/// An npy file with its header changed, and the header's length as it is then.
pub fn npy(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let length = usize::from(u16::from_le_bytes(*bytes.get(8..)?.first_chunk()?));
    let (start, rest) = bytes.split_at_checked(10)?;
    let (header, data) = rest.split_at_checked(length)?;
    let mut header = std::str::from_utf8(header).ok()?.to_owned();
    let types =
        ["<f4", ">f8", "|b1", "<i8", "|u1", "<f2", "|O", "<c16", "<f16", "V2", "<U4", ">u8"];
    for _ in 0..rng.usize(1..3) {
        let shape = header.find('(')?..=header.rfind(')')?;
        if shape.is_empty() {
            return None;
        }
        match rng.u8(..6) {
            0 => header.replace_range(shape, "()"),
            1 => header.insert_str(*shape.start() + 1, &format!("{}, ", number(rng))),
            2 => header.replace_range(shape, &format!("({},{})", number(rng), rng.u8(..5))),
            3 => header = header.replace("False", "True"),
            4 => {
                let descr = header.find("descr': '")? + 9;
                let end = descr + header.get(descr..)?.find('\'')?;
                header.replace_range(descr..end, any(&types, rng)?);
            }
            _ => {
                let at = rng.usize(..=header.len());
                let part = any(&["'", ",", "(", "}", " ", "L", "-1", "\n"], rng)?;
                header.is_char_boundary(at).then(|| header.insert_str(at, part))?;
            }
        }
    }
    let length = u16::try_from(header.len()).ok()?.to_le_bytes();
    let kept = if rng.u8(..4) == 0 { rng.usize(..=data.len()) } else { data.len() };
    Some([&start[..8], &length, header.as_bytes(), &data[..kept]].concat())
}

/// A safetensors file with its header changed, and the header's length as it is then.
pub fn safetensors(bytes: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let (length, rest) = bytes.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (header, data) = rest.split_at_checked(length)?;
    let header = json(header, rng)?;
    Some([&(header.len() as u64).to_le_bytes(), header.as_slice(), data].concat())
}
