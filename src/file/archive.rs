//! What does a zip archive hold, as npz files and PyTorch's checkpoints are, and can it be believed?

use std::cell::RefCell;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::PathBuf;

use zip::read::{ArchiveOffset, Config};
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::element::DAMAGED;
use super::input::{Input, TRUNCATED, unreadable};
use base::error::{Error, Result, quoted};

/// Deflate makes at most this much of a byte.
const MAX_EXPANSION: u64 = 1032;

/// An archive in which no two members have one name or share bytes, and none is larger than its bytes can make it.
pub struct Archive {
    path: PathBuf,
    zip: RefCell<ZipArchive<Input>>,
    members: Vec<Member>,
}

/// What is known of a member.
pub struct Member {
    pub name: String,
    /// Its bytes, once unpacked.
    pub size: u64,
    /// Whether it is stored as it is.
    pub stored: bool,
}

impl Archive {
    /// Opens the archive that a file is.
    pub fn open(input: Input) -> Result<Self> {
        let (path, there) = (&input.path().to_owned(), input.length());
        if claims_too_many(&input)? {
            return Err(Error::file(path, "says that it has more members than it can", DAMAGED));
        }
        let refuse = |error: ZipError| match error {
            ZipError::Io(error) => unreadable(path, &error),
            // Its directory stands at the end.
            ZipError::InvalidArchive(_) => {
                Error::file(path, "is a broken zip archive, or ends too early", TRUNCATED)
            }
            other => Error::file(path, tr!("cannot be unpacked: {other}", other), DAMAGED),
        };
        // Where the archive starts is not to be guessed: a guess can take what stands in a name for a directory.
        let config = Config { archive_offset: ArchiveOffset::Known(0) };
        let mut zip = ZipArchive::with_config(config, input).map_err(refuse)?;
        if zip.has_duplicate_names() {
            return Err(Error::file(path, "holds two members by one name", "keep one of them"));
        }
        if zip.has_overlapping_entries().map_err(refuse)? {
            return Err(Error::file(path, "has members that share bytes", DAMAGED));
        }
        let mut members = Vec::with_capacity(zip.len());
        for at in 0..zip.len() {
            let member = zip.by_index_data(at).map_err(refuse)?;
            let name = member.name().map_err(refuse)?.into_owned();
            let packing = member.compression();
            let stored = packing == CompressionMethod::Stored;
            let (size, packed) = (member.size(), member.compressed_size());
            let lies = packed > there
                || if stored { size != packed } else { size.div_ceil(MAX_EXPANSION) > packed };
            if lies {
                let what = tr!(
                    "member \"{quoted}\" says that it is larger than it can be",
                    quoted = quoted(&name)
                );
                return Err(Error::file(path, what, DAMAGED));
            }
            if !stored && packing != CompressionMethod::Deflated || member.encrypted() {
                let what = tr!(
                    "member \"{quoted}\" is encrypted, or packed by {packing}",
                    quoted = quoted(&name),
                    packing
                );
                return Err(Error::file(path, what, "pack it without, or by deflate"));
            }
            members.push(Member { name, size, stored });
        }
        Ok(Self { path: path.clone(), zip: RefCell::new(zip), members })
    }

    /// What it holds, in order.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The position of the member of that name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.zip.borrow().index_for_name(name)
    }

    /// A member's bytes from their start on, unpacked.
    pub fn reader(&mut self, at: usize) -> Result<impl Read + '_> {
        let path = &self.path;
        self.zip.get_mut().by_index(at).map_err(|error| unreadable(path, &error.into()))
    }

    /// `count` bytes of a member, from `start` on.
    pub fn range(&self, at: usize, start: u64, count: u64) -> Result<Vec<u8>> {
        let all = |bytes: &mut dyn Read| {
            let size = usize::try_from(count).map_err(|_| io::ErrorKind::OutOfMemory)?;
            let mut all = Vec::new();
            // No more than its member can have, which was compared with what is there.
            all.try_reserve_exact(size).map_err(|_| io::ErrorKind::OutOfMemory)?;
            bytes.read_to_end(&mut all)?;
            if all.len() == size { Ok(all) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        };
        self.read(at, start, count, all).map_err(|error: io::Error| unreadable(&self.path, &error))
    }

    /// What is made of `count` bytes of a member, from `start` on, which are unpacked as they are read.
    pub fn read<T, E: From<io::Error>>(
        &self,
        at: usize,
        start: u64,
        count: u64,
        read: impl FnOnce(&mut dyn Read) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut zip = self.zip.borrow_mut();
        let missing = |kind: io::ErrorKind| E::from(kind.into());
        let member = self.members.get(at).ok_or_else(|| missing(io::ErrorKind::NotFound))?;
        if start.checked_add(count).is_none_or(|end| end > member.size) {
            return Err(missing(io::ErrorKind::UnexpectedEof));
        }
        if member.stored {
            // These bytes are there: the members do not overlap.
            let mut reader = zip.by_index_seek(at).map_err(io::Error::from)?;
            reader.seek(SeekFrom::Start(start))?;
            read(&mut reader.take(count))
        } else {
            let mut reader = zip.by_index(at).map_err(io::Error::from)?;
            io::copy(&mut reader.by_ref().take(start), &mut io::sink())?;
            read(&mut reader.take(count))
        }
    }
}

/// Whether a 64-bit directory counts more members than there are bytes for: the zip crate takes memory for that many
/// before it looks for them. A directory of 16 bits can do no harm.
fn claims_too_many(input: &Input) -> Result<bool> {
    /// The directory's end with the longest comment, and what a 64-bit one adds before it.
    const LONGEST_END: u64 = 22 + 65_535 + 20 + 56;
    /// The least that a member takes in the directory.
    const ENTRY: u64 = 46;
    let length = input.length();
    let start = length.saturating_sub(LONGEST_END);
    let tail = input.range(start, length - start)?;
    let number = |at: usize| {
        let bytes = tail.get(at..).and_then(|from| from.first_chunk());
        bytes.map_or(u64::MAX, |bytes| u64::from_le_bytes(*bytes))
    };
    let ends = find(&tail, b"PK\x05\x06").filter_map(|end| end.checked_sub(20));
    for locator in ends.filter(|at| tail[*at..].starts_with(b"PK\x06\x07")) {
        let directory = number(locator + 8).checked_sub(start);
        let directory = directory.and_then(|at| usize::try_from(at).ok());
        let Some(between) = directory.and_then(|at| tail.get(at..locator)) else {
            return Ok(true);
        };
        let first = locator - between.len();
        if find(between, b"PK\x06\x06").any(|at| number(first + at + 32) > length / ENTRY) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the mark stands in the bytes.
fn find<'a>(bytes: &'a [u8], mark: &'a [u8; 4]) -> impl Iterator<Item = usize> + 'a {
    let windows = bytes.windows(mark.len()).enumerate();
    windows.filter(move |(_, window)| window == mark).map(|(at, _)| at)
}
