//! Which bytes does a file have, and what is wrong if they cannot be read or written?

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::error::{Error, Result};
use base::lang;
use program::make_ready;

/// What to do about a file that ends too early.
pub const TRUNCATED: &str = "it is truncated: write or copy it again";

/// What to do about a file that is not of its extension's format.
pub const NAMED_WRONGLY: &str = "check the file, or give it the extension of its format";

trait Bytes: Read + Seek + Send {}

impl<T: Read + Seek + Send> Bytes for T {}

/// A file that has been opened, or bytes in memory. No more is read of it than is asked for.
pub struct Input {
    path: PathBuf,
    bytes: RefCell<Box<dyn Bytes>>,
    length: u64,
    /// The file, where it is one.
    file: Option<Arc<File>>,
}

impl Input {
    /// Opens the file at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        refuse_folder(path)?;
        // Opening a pipe would wait for a writer.
        if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
            return Err(Error::file(
                path,
                "is not a regular file",
                "copy its content to a regular file",
            ));
        }
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (length, file) = opened.map_err(|error| unreadable(path, &error))?;
        let own = file.try_clone().ok().map(Arc::new);
        Ok(Self::of(path, Box::new(BufReader::new(file)), length, own))
    }

    /// Bytes that are in memory, as a file of that name.
    pub fn of_bytes(name: &Path, bytes: Vec<u8>) -> Self {
        let length = bytes.len() as u64;
        Self::of(name, Box::new(Cursor::new(bytes)), length, None)
    }

    fn of(path: &Path, bytes: Box<dyn Bytes>, length: u64, file: Option<Arc<File>>) -> Self {
        Self { path: path.to_owned(), bytes: RefCell::new(bytes), length, file }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, if it is one: of what is read at places of it no place is kept here.
    pub fn file(&self) -> Option<Arc<File>> {
        self.file.clone()
    }

    /// How many bytes there are.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// All of them.
    pub fn whole(&self) -> Result<Vec<u8>> {
        self.read(|file| {
            let mut bytes = Vec::new();
            file.rewind()?;
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        })
    }

    /// `count` bytes from `start` on. They are compared with what is there before memory is taken for them.
    pub fn range(&self, start: u64, count: u64) -> Result<Vec<u8>> {
        let size = self.size(start, count)?;
        self.read(|file| {
            let mut bytes = vec![0; size];
            file.seek(SeekFrom::Start(start))?;
            file.read_exact(&mut bytes)?;
            Ok(bytes)
        })
    }

    /// What is made of `count` bytes from `start` on.
    pub fn stretch<T, E: From<io::Error>>(
        &self,
        start: u64,
        count: u64,
        read: impl FnOnce(&mut dyn Read) -> Result<T, E>,
    ) -> Result<T, E> {
        if start.checked_add(count).is_none_or(|end| end > self.length) {
            return Err(E::from(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut file = self.bytes.borrow_mut();
        file.seek(SeekFrom::Start(start))?;
        read(&mut file.as_mut().take(count))
    }

    /// `count` numbers of f32, little endian, from the byte at `start` on. No second copy of them all is made.
    pub fn numbers(&self, start: u64, count: u64) -> Result<Vec<f32>> {
        const PIECE: usize = 1 << 16;
        let size = self.size(start, count.saturating_mul(4))?;
        let mut numbers = vec![0.0; size / 4];
        make_ready(&mut numbers);
        let mut bytes = vec![[0; 4]; PIECE.min(numbers.len())];
        self.read(|file| {
            file.seek(SeekFrom::Start(start))?;
            for piece in numbers.chunks_mut(PIECE) {
                let read = bytes.get_mut(..piece.len()).unwrap_or_default();
                file.read_exact(read.as_flattened_mut())?;
                for (number, bytes) in piece.iter_mut().zip(read) {
                    *number = f32::from_le_bytes(*bytes);
                }
            }
            Ok(())
        })?;
        Ok(numbers)
    }

    /// The first bytes, at most `count`.
    pub fn start(&self, count: u64) -> Result<Vec<u8>> {
        self.range(0, count.min(self.length))
    }

    /// The bytes behind those that were read last.
    pub fn next(&self, buffer: &mut [u8]) -> Result<()> {
        self.read(|file| file.read_exact(buffer))
    }

    /// How many bytes are in memory that so many of the file are, which must be there.
    pub fn size(&self, start: u64, count: u64) -> Result<usize> {
        let end = start.checked_add(count).filter(|end| *end <= self.length);
        let size = usize::try_from(count).ok().filter(|_| end.is_some());
        size.ok_or_else(|| unreadable(&self.path, &io::ErrorKind::UnexpectedEof.into()))
    }

    fn read<T>(&self, read: impl FnOnce(&mut dyn Bytes) -> io::Result<T>) -> Result<T> {
        let mut bytes = self.bytes.borrow_mut();
        read(bytes.as_mut()).map_err(|error| unreadable(&self.path, &error))
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.bytes.get_mut().read(buffer)
    }
}

impl Seek for Input {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        self.bytes.get_mut().seek(position)
    }
}

/// What is wrong when a file cannot be read.
pub fn unreadable(path: &Path, error: &io::Error) -> Error {
    let (what, fix) = match error.kind() {
        io::ErrorKind::NotFound => (
            io_reason(error),
            tr!("check the spelling; the path is relative to the current folder"),
        ),
        io::ErrorKind::UnexpectedEof => ("its data ends before its header says".into(), TRUNCATED),
        _ => (io_reason(error), shortage(error).unwrap_or(tr!("make it readable"))),
    };
    Error::file(path, what, fix)
}

/// What is wrong where a file cannot be written.
pub fn unwritable(path: &Path, error: &io::Error) -> Error {
    let fix = match error.kind() {
        io::ErrorKind::NotFound => tr!("create its folder first"),
        _ => shortage(error).unwrap_or(tr!("choose a path that can be written")),
    };
    Error::file(path, tr!("cannot be written: {error}", error = io_reason(error)), fix)
}

/// What to do where the system has too little of something.
pub fn shortage(error: &io::Error) -> Option<&'static str> {
    /// Too many open files, of this process and of all.
    #[cfg(unix)]
    const OPEN_FILES: [Option<i32>; 2] = [Some(24), Some(23)];
    match error.kind() {
        io::ErrorKind::StorageFull => Some(tr!("free some space, or write elsewhere")),
        io::ErrorKind::QuotaExceeded => {
            Some(tr!("free some of your disk quota, or write elsewhere"))
        }
        io::ErrorKind::FileTooLarge => {
            Some(tr!("allow larger files, for example by ulimit -f unlimited, or write less"))
        }
        io::ErrorKind::OutOfMemory => Some(tr!("free some memory, or take a smaller file")),
        #[cfg(unix)]
        _ if OPEN_FILES.contains(&error.raw_os_error()) => {
            Some(tr!("allow more open files, for example by ulimit -n 1024"))
        }
        _ => None,
    }
}

/// Refuses a folder where a file is meant.
pub fn refuse_folder(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Err(Error::file(path, "is a folder", "give a file in it"));
    }
    Ok(())
}

/// The system's reason, without the number that it appends. Windows has sentences of its own for what others say in a few
/// words.
pub fn io_reason(error: &io::Error) -> String {
    let text = error.to_string();
    let (reason, number) = text.split_once(" (os error").unwrap_or((&text, ""));
    let usual = REASONS.iter().find(|(kind, _)| *kind == error.kind());
    match usual {
        Some((_, usual)) if cfg!(windows) && !number.is_empty() => lang::text(usual).to_owned(),
        _ => lang::text(&reason.to_lowercase()).to_owned(),
    }
}

/// What systems say most, which is told in the language in force.
pub const REASONS: [(io::ErrorKind, &str); 7] = [
    (io::ErrorKind::NotFound, "no such file or directory"),
    (io::ErrorKind::PermissionDenied, "permission denied"),
    (io::ErrorKind::IsADirectory, "is a directory"),
    (io::ErrorKind::NotADirectory, "not a directory"),
    (io::ErrorKind::StorageFull, "no space left on device"),
    (io::ErrorKind::ReadOnlyFilesystem, "read-only file system"),
    (io::ErrorKind::BrokenPipe, "broken pipe"),
];

/// Whether nobody reads any more what is written.
pub fn is_unread(error: &io::Error) -> bool {
    /// "No process is on the other end of the pipe."
    const PIPE_NOT_CONNECTED: i32 = 233;
    error.kind() == io::ErrorKind::BrokenPipe
        || cfg!(windows) && error.raw_os_error() == Some(PIPE_NOT_CONNECTED)
}

/// The extension of a file in lower case.
pub fn extension(path: &Path) -> Option<String> {
    path.extension()?.to_str().map(str::to_ascii_lowercase)
}
