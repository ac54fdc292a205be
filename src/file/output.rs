//! How is a file written that appears whole or not at all?

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};

use super::bundle::Info;
use super::format::{Page, Writer, json_writer, writer};
use super::growing::Growing;
use super::input::{is_unread, unwritable};
use super::record::Record;
use super::staged::Staged;
use base::error::{Error, Result};
use config::Settings;

/// A file to be written: opened before the work, so that an unwritable path fails early, and put in place by
/// [`Output::write`]. Dropped unwritten, it leaves nothing behind.
pub struct Output {
    path: PathBuf,
    writer: Writer,
    place: Place,
}

/// Where an output is written.
enum Place {
    /// To a file beside the target, which then takes its place.
    Beside(Staged),
    /// To a stream that is open already.
    Stream(File),
}

impl Output {
    /// Begins a file in the folder of `path`, whose extension names the format. A stream, as `/dev/stdout`, is JSON.
    ///
    /// # Errors
    /// If the extension is unknown, or the file cannot be written there.
    pub fn create(path: &Path) -> Result<Self> {
        if is_stream(path) {
            let opened = fs::OpenOptions::new().append(true).open(path);
            let stream = opened.map_err(|error| unwritable(path, &error))?;
            let (path, writer) = (path.to_owned(), json_writer());
            return Ok(Self { path, writer, place: Place::Stream(stream) });
        }
        let writer = writer(path)?;
        let permissions = replaceable(path)?;
        let target = target(path).map_err(|error| unwritable(path, &error))?;
        let folder = target.parent().unwrap_or(Path::new("/"));
        let staged = Staged::new(folder, permissions).map_err(|error| unwritable(path, &error))?;
        Ok(Self { path: target, writer, place: Place::Beside(staged) })
    }

    /// The file beside the target that is written first, if it has a name. Whoever ends without dropping this has to
    /// remove it.
    pub fn temporary(&self) -> Option<&Path> {
        match &self.place {
            Place::Beside(staged) => staged.path(),
            Place::Stream(_) => None,
        }
    }

    /// Where the file will stand, links followed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The page to look at that it is, which [`Output::write_page`] writes, where it is no record.
    pub fn page(&self) -> Option<Page> {
        match self.writer {
            Writer::Page(page) => Some(page),
            Writer::Record(_) | Writer::Steps(..) => None,
        }
    }

    /// Writes the record and moves it to its place.
    ///
    /// # Errors
    /// If the disk is full or the file has become unwritable, or if it is a page. What stood at the path then still
    /// stands.
    pub fn write(self, record: &Record) -> Result<()> {
        match self.writer {
            Writer::Record(write) | Writer::Steps(write, _) => {
                self.fill(|file| write(record, file))
            }
            Writer::Page(_) => {
                let fix = tr!("record the run as .json, .safetensors or .npz");
                Err(Error::file(&self.path, "is a page, which holds no record", fix))
            }
        }
    }

    /// Whether it can be written while the steps are made, as a run can write it.
    pub fn can_grow(&self) -> bool {
        matches!(self.writer, Writer::Steps(..))
    }

    /// Writes a record of these tensors, whose numbers `make` hands over as they are made, and moves it to its place.
    ///
    /// # Errors
    /// As [`Output::write`], if the format is one that is written as a whole, and those of `make`.
    pub fn write_growing(
        self,
        infos: &[Info],
        config: &Settings,
        make: impl FnOnce(&Growing) -> Result<()>,
    ) -> Result<()> {
        let Writer::Steps(_, begin) = self.writer else {
            let fix = tr!("record the run as .safetensors");
            return Err(Error::file(
                &self.path,
                "has a format that can only be written as a whole",
                fix,
            ));
        };
        let (path, mut failed) = (self.path.clone(), None);
        let written = self.fill(|file| {
            let growing = Growing { path: &path, file, places: begin(infos, Some(config), file)? };
            make(&growing).map_err(|error| {
                failed = Some(error);
                io::ErrorKind::Other.into()
            })
        });
        failed.map_or(written, Err)
    }

    /// Writes a page and moves it to its place.
    ///
    /// # Errors
    /// As [`Output::write`], and if it is no page.
    pub fn write_page(self, text: &str) -> Result<()> {
        if self.page().is_none() {
            return Err(Error::file(
                &self.path,
                "is not a page",
                "write pages as .html, .md or .tex",
            ));
        }
        self.fill(|mut file| file.write_all(text.as_bytes()))
    }

    fn fill(self, write: impl FnOnce(&File) -> io::Result<()>) -> Result<()> {
        let Self { path, place, .. } = self;
        let written = match place {
            Place::Beside(staged) => write(staged.file()).and_then(|()| staged.put(&path)),
            Place::Stream(stream) => through(&stream, write),
        };
        written.map_err(|error| unwritable(&path, &error))
    }
}

/// Writes to a stream what is written to a file: only files can be written from any place on. A reader may stop early.
fn through(mut stream: &File, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let mut file = tempfile::tempfile()?;
    write(&file)?;
    file.rewind()?;
    match io::copy(&mut file, &mut stream) {
        Err(error) if !is_unread(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Whether the path is that of a stream of this process.
fn is_stream(path: &Path) -> bool {
    ["/dev/stdout", "/dev/stderr"].iter().any(|stream| path == Path::new(stream))
        || path.parent() == Some(Path::new("/dev/fd"))
}

/// The permissions of the file at `path`, if there is one; it must be a regular one that can be written.
fn replaceable(path: &Path) -> Result<Option<fs::Permissions>> {
    let Ok(metadata) = fs::metadata(path) else {
        if path.is_symlink() {
            return Err(Error::file(
                path,
                "is a link whose target does not exist",
                "name the file itself",
            ));
        }
        return Ok(None);
    };
    if !metadata.is_file() {
        return Err(Error::file(
            path,
            "is not a regular file",
            "give a regular file, or a new one",
        ));
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
