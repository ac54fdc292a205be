//! Places that people name: `FILE`, `FILE:TENSOR`, or a folder.

use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::at::InFile;
use super::bundle::{Bundle, Info};
use super::format::is_recorded;
use super::input::{extension, io_reason};
use super::record::{Entry, Record};
use base::error::{Error, Result, listed, quoted};
use config::Settings;
use program::Misread;

/// `FILE:TENSOR` taken apart, unless a file of the whole name is there.
#[must_use]
pub fn split_place(place: &str) -> (PathBuf, Option<String>) {
    match place.rsplit_once(':') {
        Some((path, tensor)) if !Path::new(place).exists() && !tensor.contains(['/', '\\']) => {
            (PathBuf::from(path), Some(tensor.to_owned()))
        }
        _ => (PathBuf::from(place), None),
    }
}

/// The same of a path, which need not be text.
#[must_use]
pub fn split_path(place: &Path) -> (PathBuf, Option<String>) {
    if let Some(text) = place.to_str() {
        return split_place(text);
    }
    #[cfg(unix)]
    {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let bytes = place.as_os_str().as_bytes();
        let colon = bytes.iter().rposition(|byte| *byte == b':').filter(|_| !place.exists());
        if let Some((path, tensor)) =
            colon.and_then(|at| Some((bytes.get(..at)?, bytes.get(at + 1..)?)))
            && let Ok(tensor) = std::str::from_utf8(tensor)
            && !tensor.contains(['/', '\\'])
        {
            return (PathBuf::from(OsStr::from_bytes(path)), Some(tensor.to_owned()));
        }
    }
    (place.to_owned(), None)
}

/// What is known of the tensor that a place names, and how it is read.
///
/// The tensor is the one that is named; else the file's only one; else the one called `name`; else the only one of which
/// `may_be` is true. Beside it comes the name that it has in its file, empty if it has none.
///
/// # Errors
/// If the file cannot be read, or holds no such tensor.
pub fn one_tensor(
    place: &str,
    name: &str,
    may_be: impl Fn(&str) -> bool,
) -> Result<(Tensor, String)> {
    let (path, asked) = split_place(place);
    let bundle = Bundle::open(&path)?;
    let names: Vec<&str> = bundle.infos().iter().map(|info| info.name.as_str()).collect();
    let chosen = match (&asked, bundle.infos()) {
        (Some(asked), _) => Some(asked.as_str()),
        (None, [Info { name: only, .. }]) => Some(only.as_str()),
        (None, _) if names.contains(&name) => Some(name),
        (None, _) => {
            let mut alike = names.iter().filter(|other| may_be(other));
            alike.next().filter(|_| alike.next().is_none()).copied()
        }
    };
    match chosen.map(|chosen| bundle.tensor(chosen)).transpose()?.flatten() {
        Some(tensor) => Ok((tensor, chosen.unwrap_or_default().to_owned())),
        None => Err(lacks(&path, asked.as_deref().unwrap_or(name), &names)),
    }
}

fn lacks(path: &Path, asked: &str, names: &[&str]) -> Error {
    let fix = match names {
        [""] => {
            tr!("its one tensor has no name: leave out the colon and what follows it").to_owned()
        }
        [] => tr!("give a file that holds tensors: there are none in it").to_owned(),
        names => tr!("name one of its tensors, as FILE:TENSOR: {names}", names = listed(names)),
    };
    Error::file(path, tr!("holds no tensor {asked}", asked = quoted(asked)), fix)
}

/// What is to be compared, opened: a file, one tensor of it as `FILE:TENSOR`, or a folder of `.npy` files, each a tensor of
/// its file's name. No more is read than is asked for, where the format allows it.
pub struct Files {
    bundles: Vec<Bundle>,
    infos: Vec<Info>,
    /// Of which file each tensor is, and which of its tensors.
    from: Vec<(usize, usize)>,
}

impl Files {
    /// Opens it.
    ///
    /// # Errors
    /// If it cannot be read, or has no such tensor.
    pub fn open(place: &Path) -> Result<Self> {
        if place.is_dir() {
            return Self::in_folder(place);
        }
        let (path, asked) = split_path(place);
        let bundle = Bundle::open(&path)?;
        let mut files = Self { bundles: Vec::new(), infos: Vec::new(), from: Vec::new() };
        files.add(bundle, &path, |name| asked.as_deref().is_none_or(|asked| name == asked));
        match (asked, files.bundles.first()) {
            (Some(asked), Some(bundle)) if files.infos.is_empty() => {
                let names: Vec<&str> =
                    bundle.infos().iter().map(|info| info.name.as_str()).collect();
                Err(lacks(&path, &asked, &names))
            }
            _ => Ok(files),
        }
    }

    fn in_folder(folder: &Path) -> Result<Self> {
        let arrays = arrays_in(&files_in(folder)?);
        if arrays.is_empty() {
            let fix = tr!("name a file in it, or a folder of .npy files");
            return Err(Error::file(folder, "is a folder without .npy files", fix));
        }
        let mut files = Self { bundles: Vec::new(), infos: Vec::new(), from: Vec::new() };
        for path in arrays {
            files.add(Bundle::open(&path)?, &path, |_| true);
        }
        Ok(files)
    }

    /// Adds the tensors of a file that are wanted. One without a name has that of its file.
    fn add(&mut self, bundle: Bundle, path: &Path, is_wanted: impl Fn(&str) -> bool) {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        for (at, info) in
            bundle.infos().iter().enumerate().filter(|(_, info)| is_wanted(&info.name))
        {
            let mut info = info.clone();
            if info.name.is_empty() {
                info.name = stem.clone().unwrap_or_default();
            }
            self.infos.push(info);
            self.from.push((self.bundles.len(), at));
        }
        self.bundles.push(bundle);
    }

    /// The setting of the run that the file records.
    #[must_use]
    pub fn config(&self) -> Option<&Settings> {
        self.bundles.first().filter(|_| self.bundles.len() == 1)?.config()
    }

    /// What there is, in order.
    #[must_use]
    pub fn infos(&self) -> &[Info] {
        &self.infos
    }

    /// The same, to be called something else.
    pub fn infos_mut(&mut self) -> &mut [Info] {
        &mut self.infos
    }

    /// Reads the tensor at that place in [`Files::infos`]: mutably, so that a thread can have these files to itself.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn entry(&mut self, at: usize) -> Result<Entry> {
        let (Some((of, tensor)), Some(info)) = (self.from.get(at), self.infos.get(at)) else {
            return Err(Misread.into());
        };
        let tensor = self.bundles.get(*of).ok_or(Misread)?.tensor_at(*tensor)?;
        let Info { name, formula, axes, .. } = info.clone();
        Ok(Entry { name, formula, axes, tensor })
    }

    /// Where the numbers of the tensor at that place stand, if they are of f32 and stand in a file as they are.
    #[must_use]
    pub fn in_file(&self, at: usize) -> Option<InFile> {
        let (of, tensor) = self.from.get(at)?;
        self.bundles.get(*of)?.in_file(*tensor)
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// If a tensor cannot be read.
    pub fn read(mut self) -> Result<Record> {
        for (of, bundle) in self.bundles.iter().enumerate() {
            let own = self.infos.iter().zip(&self.from).filter(|(_, (from, _))| *from == of);
            let infos: Vec<Info> = own.map(|(info, _)| info.clone()).collect();
            bundle.refuse_beyond_memory(&infos)?;
        }
        let entries = (0..self.infos.len()).map(|at| self.entry(at)).collect::<Result<_>>()?;
        Ok(Record { config: self.config().cloned(), entries })
    }
}

/// Reads what is to be compared, as [`Files`] has it.
///
/// # Errors
/// If it cannot be read, or has no such tensor.
pub fn read_place(place: &Path) -> Result<Record> {
    Files::open(place)?.read()
}

/// The recorded files in a folder, by name; `.npy` files in it are together one, the folder itself.
///
/// # Errors
/// If the folder cannot be listed, or has none.
pub fn recorded_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let files = files_in(folder)?;
    let mut paths: Vec<PathBuf> = files.iter().filter(|path| is_recorded(path)).cloned().collect();
    if !arrays_in(&files).is_empty() {
        paths.push(folder.to_owned());
    }
    if paths.is_empty() {
        let what = tr!("holds no .json, .safetensors, .npz or .npy file");
        return Err(Error::file(folder, what, "name a folder of recorded traces"));
    }
    Ok(paths)
}

/// The files in a folder, by name.
fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let what = tr!("cannot be listed: {error}", error = io_reason(&error));
        Error::file(folder, what, "make it readable")
    })?;
    let paths = entries.filter_map(std::io::Result::ok).map(|entry| entry.path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
}

fn arrays_in(files: &[PathBuf]) -> Vec<PathBuf> {
    let is_array = |path: &&PathBuf| extension(path).as_deref() == Some("npy");
    files.iter().filter(is_array).cloned().collect()
}
