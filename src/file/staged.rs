//! How does a file take its place once it is whole, so that nothing of it stays where it does not?

use std::fs::{File, Permissions};
use std::io::{self, Seek};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

/// A file that is written in the folder in which it is to stand.
pub enum Staged {
    /// Without a name: nothing of it stays, however the process ends.
    Unnamed(File),
    /// With another name, where there are no files without one.
    Named(NamedTempFile),
}

impl Staged {
    /// Begins a file with these permissions, or those that the system gives to a new one.
    ///
    /// # Errors
    /// If no file can be made in the folder.
    pub fn new(folder: &Path, permissions: Option<Permissions>) -> io::Result<Self> {
        match unnamed(folder, permissions.as_ref()) {
            Ok(file) => Ok(Self::Unnamed(file)),
            Err(_) => Ok(Self::Named(named(folder, permissions)?)),
        }
    }

    /// The file, to be written.
    pub fn file(&self) -> &File {
        match self {
            Self::Unnamed(file) => file,
            Self::Named(file) => file.as_file(),
        }
    }

    /// The name that it has until it is put in its place. Whoever ends the process without dropping this has to remove it.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Unnamed(_) => None,
            Self::Named(file) => Some(file.path()),
        }
    }

    /// Puts it in its place. What stood there goes when this is on the disk.
    ///
    /// # Errors
    /// If the system refuses that. What stood there then still does.
    pub fn put(self, path: &Path) -> io::Result<()> {
        if path.exists() {
            self.file().sync_all()?;
        }
        match self {
            Self::Unnamed(file) => put_unnamed(file, path),
            Self::Named(file) => Ok(file.persist(path).map(drop)?),
        }
    }
}

/// Gives it the name. Where another file has that, only a name can take its place, so this has one of its own for a
/// moment.
fn put_unnamed(mut file: File, path: &Path) -> io::Result<()> {
    if link(&file, path).is_ok() {
        return Ok(());
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let moment = undisturbed();
    if let Ok(named) = hidden().make_in(folder, |name| link(&file, name)) {
        return Ok(named.persist(path).map(drop)?);
    }
    drop(moment);
    // Some systems have such files, and refuse to name them.
    let copy = Staged::Named(named(folder, Some(file.metadata()?.permissions()))?);
    file.rewind()?;
    io::copy(&mut file, &mut copy.file())?;
    copy.put(path)
}

/// Whoever holds this keeps files that are whole from having two names: one that ends the process waits for it.
pub fn undisturbed() -> MutexGuard<'static, ()> {
    static NAMING: Mutex<()> = Mutex::new(());
    NAMING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn hidden() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".mha-trace-");
    builder
}

#[cfg(unix)]
fn named(folder: &Path, permissions: Option<Permissions>) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt;
    // Of a new file, the system takes away what its mask says.
    hidden().permissions(permissions.unwrap_or(Permissions::from_mode(0o666))).tempfile_in(folder)
}

/// Elsewhere a new file has the permissions of its folder.
#[cfg(not(unix))]
fn named(folder: &Path, _: Option<Permissions>) -> io::Result<NamedTempFile> {
    hidden().tempfile_in(folder)
}

#[cfg(target_os = "linux")]
fn unnamed(folder: &Path, permissions: Option<&Permissions>) -> io::Result<File> {
    use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};

    let mode = permissions.map_or(0o666, PermissionsExt::mode);
    let flags = i32::try_from(rustix::fs::OFlags::TMPFILE.bits()).map_err(io::Error::other)?;
    File::options().read(true).write(true).mode(mode).custom_flags(flags).open(folder)
}

#[cfg(target_os = "linux")]
fn link(file: &File, name: &Path) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    use rustix::fs::{AtFlags, CWD, linkat};

    let open = format!("/proc/self/fd/{}", file.as_raw_fd());
    Ok(linkat(CWD, open, CWD, name, AtFlags::SYMLINK_FOLLOW)?)
}

#[cfg(not(target_os = "linux"))]
fn unnamed(_: &Path, _: Option<&Permissions>) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    #[test]
    fn every_kind_takes_the_place_of_what_stood_there_or_leaves_it() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let (at, path) = (folder.path(), folder.path().join("trace.json"));
        fs::write(&path, "old").expect("writable");
        let kinds = || {
            // One that the system refuses to name.
            let nameless = tempfile::tempfile_in(at).expect("writable");
            let usual = Staged::new(at, None).expect("writable");
            [usual, Staged::Named(named(at, None).expect("writable")), Staged::Unnamed(nameless)]
        };
        for (number, staged) in kinds().into_iter().enumerate() {
            write!(staged.file(), "new {number}").expect("written");
            staged.put(&path).expect("put in its place");
            assert_eq!(fs::read_to_string(&path).expect("readable"), format!("new {number}"));
        }
        for staged in kinds() {
            write!(staged.file(), "given up").expect("written");
            drop(staged);
            let staged = Staged::new(at, None).expect("writable");
            assert!(staged.put(at).is_err(), "a folder is no file");
        }
        assert_eq!(fs::read_to_string(&path).expect("readable"), "new 2");
        assert_eq!(fs::read_dir(at).expect("readable").count(), 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_file_has_no_name_while_it_is_written() {
        let folder = tempfile::tempdir().expect("temporary folder");
        let staged = Staged::new(folder.path(), None).expect("writable");
        let names = fs::read_dir(folder.path()).expect("readable").count();
        // Not every disk has such files.
        assert_eq!(names, usize::from(staged.path().is_some()));
    }
}
