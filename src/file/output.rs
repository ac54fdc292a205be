//! Files that appear whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::format::{Page, Writer, writer};
use super::input::io_reason;
use super::record::Record;
use crate::error::{Error, Result};

/// A file to be written: opened before the work, so that an unwritable path fails early, and put in place by
/// [`Output::write`]. Dropped unwritten, it leaves nothing behind.
pub struct Output {
    path: PathBuf,
    writer: Writer,
    temporary: NamedTempFile,
}

impl Output {
    /// Opens a temporary file beside `path`, whose extension names the format.
    ///
    /// # Errors
    /// If the extension is unknown, or the file cannot be written there.
    pub fn create(path: &Path) -> Result<Self> {
        let writer = writer(path)?;
        #[cfg_attr(not(unix), expect(unused_variables, reason = "there are none"))]
        let permissions = replaceable(path)?;
        let target = target(path).map_err(|error| unwritable(path, &error))?;
        let folder = target.parent().unwrap_or(Path::new("/"));
        let mut builder = tempfile::Builder::new();
        builder.prefix(".mha-trace-");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Of a new file, the system takes away what its mask says.
            builder.permissions(permissions.unwrap_or(fs::Permissions::from_mode(0o666)));
        }
        let temporary = builder.tempfile_in(folder).map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: target, writer, temporary })
    }

    /// Where the file will stand, links followed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The page to look at that it is, which [`Output::write_page`] writes, where it is no record.
    #[must_use]
    pub fn page(&self) -> Option<Page> {
        match self.writer {
            Writer::Page(page) => Some(page),
            Writer::Record(_) => None,
        }
    }

    /// Writes the record and moves it to its place.
    ///
    /// # Errors
    /// If the disk is full or the file has become unwritable, or if it is a page. What stood at the path then still
    /// stands.
    pub fn write(self, record: &Record) -> Result<()> {
        match self.writer {
            Writer::Record(write) => self.fill(|path| write(record, path)),
            Writer::Page(_) => {
                let fix = tr!("record the run as .json, .safetensors or .npz");
                Err(Error::file(&self.path, "is a page, which holds no record", fix))
            }
        }
    }

    /// Writes a page and moves it to its place.
    ///
    /// # Errors
    /// As [`Output::write`], and if it is no page.
    pub fn write_page(self, text: &str) -> Result<()> {
        if self.page().is_none() {
            return Err(Error::file(&self.path, "is no page", "write pages as .html, .md or .tex"));
        }
        self.fill(|path| fs::write(path, text))
    }

    fn fill(self, write: impl FnOnce(&Path) -> io::Result<()>) -> Result<()> {
        let permissions =
            self.temporary.as_file().metadata().map(|metadata| metadata.permissions());
        let written = permissions.and_then(|permissions| {
            write(self.temporary.path())?;
            fs::set_permissions(self.temporary.path(), permissions)
        });
        written.map_err(|error| unwritable(&self.path, &error))?;
        let moved = self.temporary.persist(&self.path);
        moved.map(drop).map_err(|error| unwritable(&self.path, &error.error))
    }
}

/// The permissions of the file at `path`, if there is one; it must be a regular one that can be written.
fn replaceable(path: &Path) -> Result<Option<fs::Permissions>> {
    let Ok(metadata) = fs::metadata(path) else {
        if path.is_symlink() {
            return Err(Error::file(path, "is a link to nothing", "name the file itself"));
        }
        return Ok(None);
    };
    if !metadata.is_file() {
        return Err(Error::file(path, "is not a regular file", "name one, or a new one"));
    }
    let writable = fs::OpenOptions::new().append(true).open(path);
    writable.map_err(|error| unwritable(path, &error))?;
    Ok(Some(metadata.permissions()))
}

/// The absolute path. Through a link, the file that it points to is replaced, not the link.
fn target(path: &Path) -> io::Result<PathBuf> {
    if path.exists() {
        return fs::canonicalize(path);
    }
    let absolute = std::path::absolute(path)?;
    match (absolute.parent(), absolute.file_name()) {
        (Some(folder), Some(name)) => Ok(fs::canonicalize(folder)?.join(name)),
        _ => Ok(absolute),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    let fix = match error.kind() {
        std::io::ErrorKind::NotFound => tr!("make its folder first"),
        std::io::ErrorKind::StorageFull => tr!("free some space, or write elsewhere"),
        _ => tr!("choose a path that can be written"),
    };
    Error::file(path, tr!("cannot be written: {error}", error = io_reason(error)), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unwritten_output_leaves_the_folder_as_it_was() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("trace.json");
        fs::write(&path, "kept").expect("writable");
        drop(Output::create(&path).expect("writable"));
        assert_eq!(fs::read_to_string(&path).expect("readable"), "kept");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1);
    }

    #[test]
    fn a_written_output_replaces_the_file_and_nothing_else_stays() {
        let folder = tempfile::tempdir().expect("temporary folder");
        for name in ["trace.json", "trace.safetensors", "trace.npz"] {
            let path = folder.path().join(name);
            fs::write(&path, "old").expect("writable");
            Output::create(&path).expect("writable").write(&Record::default()).expect("written");
            assert_ne!(fs::read(&path).expect("readable"), b"old");
        }
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 3);
        let page = folder.path().join("trace.html");
        let output = || Output::create(&page).expect("writable");
        output().write_page("<!DOCTYPE html>").expect("written");
        // Neither is taken for the other.
        assert!(output().write(&Record::default()).is_err());
        let record = Output::create(&folder.path().join("trace.json")).expect("writable");
        assert!(record.write_page("").is_err());
        assert_eq!(fs::read(&page).expect("readable"), b"<!DOCTYPE html>");
        assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 4);
    }
}
