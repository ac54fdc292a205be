//! What do people mean by a place: `FILE`, `FILE:TENSOR`, or a folder?

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::bundle::{Bundle, Info, Shards};
use super::format::{is_opened, is_recorded};
use super::input::{extension, io_reason};
use super::record::Record;
use base::error::{Error, Result, listed, near_miss, quoted};

/// `FILE:TENSOR` taken apart, unless a file of the whole name is there.
pub fn split_place(place: &str) -> (PathBuf, Option<String>) {
    match place.rsplit_once(':') {
        Some((path, tensor)) if !Path::new(place).exists() && !tensor.contains(['/', '\\']) => {
            (PathBuf::from(path), Some(tensor.to_owned()))
        }
        _ => (PathBuf::from(place), None),
    }
}

/// The same of a path, which need not be text.
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
    let names = names(&bundle);
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
        names => match near_miss(asked, names) {
            Some(near) => tr!("did you mean {near}?", near = quoted(near)),
            None => {
                tr!("choose one of its tensors with FILE:TENSOR: {names}", names = listed(names))
            }
        },
    };
    Error::file(path, tr!("holds no tensor {asked}", asked = quoted(asked)), fix)
}

/// What is to be compared, opened: a file, one tensor of it as `FILE:TENSOR`, or a folder of `.npy` files, each a tensor of
/// its file's name. No more is read than is asked for, where the format allows it.
///
/// # Errors
/// If it cannot be read, or has no such tensor.
pub fn open_place(place: &Path) -> Result<Bundle> {
    if place.is_dir() {
        let arrays = arrays_in(&files_in(place)?);
        if arrays.is_empty() {
            let fix = tr!("name a file in it, or a folder of .npy files");
            return Err(Error::file(place, "is a folder without .npy files", fix));
        }
        let bundles = arrays.iter().map(|path| Bundle::open(path)).collect::<Result<_>>()?;
        return Ok(together(place, bundles, |_| true));
    }
    let (path, asked) = split_path(place);
    let bundle = Bundle::open(&path)?;
    let is_asked = |name: &str| asked.as_deref().is_none_or(|asked| name == asked);
    match &asked {
        Some(asked) if !bundle.infos().iter().any(|info| is_asked(&info.name)) => {
            Err(lacks(&path, asked, &names(&bundle)))
        }
        None if bundle.infos().iter().all(|info| !info.name.is_empty()) => Ok(bundle),
        _ => Ok(together(&path, vec![bundle], is_asked)),
    }
}

/// The tensors of files that are wanted, as those of one. A tensor without a name has that of its file.
fn together(path: &Path, bundles: Vec<Bundle>, is_wanted: impl Fn(&str) -> bool) -> Bundle {
    let config = bundles.iter().find_map(Bundle::config).cloned();
    let (mut infos, mut places) = (Vec::new(), Vec::new());
    for (of, bundle) in bundles.iter().enumerate() {
        let stem = || Some(bundle.path().file_stem()?.to_string_lossy().into_owned());
        let all = bundle.infos().iter().enumerate();
        for (at, info) in all.filter(|(_, info)| is_wanted(&info.name)) {
            let mut info = info.clone();
            if info.name.is_empty() {
                info.name = stem().unwrap_or_default();
            }
            infos.push(info);
            places.push((of, at));
        }
    }
    Bundle::new(path, config, infos, Box::new(Shards { bundles, places }))
}

/// A recording of a whole model: the tensors of its modules, and beside them records of single attentions.
pub struct Recording {
    /// The tensors of each forward pass; those of files that have no name in common are one pass.
    pub passes: Vec<Bundle>,
    /// The files of single attentions.
    pub records: Vec<PathBuf>,
}

/// Opens a recording of a whole model: a file, an index of several, or a folder of files. Those of which `is_record` says so
/// are records of single attentions. A folder of folders, or of files that are called after their ranks, holds the recordings
/// of several ranks, in order of their numbers.
///
/// # Errors
/// If a file cannot be read, or there is none.
pub fn open_ranks(
    place: &Path,
    is_record: impl Fn(&Bundle) -> bool + Copy,
) -> Result<Vec<Recording>> {
    if !place.is_dir() {
        return Ok(vec![open_recording(place, vec![place.to_owned()], is_record)?]);
    }
    let files = files_in(place)?;
    let mut ranks: Vec<(usize, PathBuf)> =
        files.iter().filter_map(|file| Some((rank_of(file)?, file.clone()))).collect();
    if ranks.len() < 2 {
        let is_rank = |folder: &PathBuf| {
            files_in(folder).is_ok_and(|own| own.iter().any(|file| is_opened(file)))
        };
        let folders = folders_in(place)?.into_iter().filter(is_rank);
        ranks = folders.filter_map(|folder| Some((last_number(&folder)?, folder))).collect();
    }
    if ranks.len() < 2 {
        return Ok(vec![open_recording(place, tensor_files(place)?, is_record)?]);
    }
    ranks.sort();
    let open = |(_, own): (usize, PathBuf)| {
        let files = if own.is_dir() { tensor_files(&own)? } else { vec![own.clone()] };
        open_recording(&own, files, is_record)
    };
    ranks.into_iter().map(open).collect()
}

/// What files of single ranks are called after.
const RANKS: &[&str] = &["rank", "stage", "chunk", "shard", "tp", "cp", "pp"];

/// The number of the rank that a file is called after: `rank1`, `model.tp_3`.
fn rank_of(path: &Path) -> Option<usize> {
    let stem = path.file_stem()?.to_string_lossy().to_lowercase();
    let word = stem.trim_end_matches(|c: char| c.is_ascii_digit());
    let word = word.trim_end_matches(['-', '_', '.']);
    let is_rank = RANKS.iter().any(|rank| {
        let before = word.strip_suffix(rank);
        before.is_some_and(|before| !before.ends_with(char::is_alphanumeric))
    });
    if is_rank && is_opened(path) { last_number(path) } else { None }
}

/// The number that a name ends in.
fn last_number(path: &Path) -> Option<usize> {
    let stem = if path.is_dir() { path.file_name()? } else { path.file_stem()? };
    let stem = stem.to_string_lossy();
    let from = stem.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    stem.get(from..)?.parse().ok()
}

fn open_recording(
    place: &Path,
    paths: Vec<PathBuf>,
    is_record: impl Fn(&Bundle) -> bool,
) -> Result<Recording> {
    let (mut passes, mut records): (Vec<Vec<Bundle>>, Vec<PathBuf>) = (Vec::new(), Vec::new());
    for path in paths {
        let bundle = open_place(&path)?;
        if is_record(&bundle) {
            records.push(path);
            continue;
        }
        let own: HashSet<&str> = names(&bundle).into_iter().collect();
        let is_apart =
            |pass: &Vec<Bundle>| pass.iter().flat_map(names).all(|name| !own.contains(name));
        match passes.iter().position(is_apart).and_then(|at| passes.get_mut(at)) {
            Some(pass) => pass.push(bundle),
            None => passes.push(vec![bundle]),
        }
    }
    let passes = passes.into_iter().map(|pass| together(place, pass, |_| true)).collect();
    Ok(Recording { passes, records })
}

/// The files of tensors in a folder: an index where there is one, in place of the files that it names.
fn tensor_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let is_index = |path: &PathBuf| path.to_string_lossy().ends_with(".index.json");
    let files: Vec<PathBuf> =
        files_in(folder)?.into_iter().filter(|path| is_opened(path)).collect();
    let indices: Vec<PathBuf> = files.iter().filter(|path| is_index(path)).cloned().collect();
    let mut named = HashSet::new();
    for index in &indices {
        named.extend(Bundle::open(index)?.files());
    }
    let others = files.into_iter().filter(|path| !named.contains(path) || is_index(path));
    // Those that are numbered come in that order, behind the one that is not.
    let number = |path: &PathBuf| {
        let stem = path.file_stem()?.to_string_lossy().into_owned();
        let (name, number) = stem.rsplit_once('.')?;
        Some((name.to_owned(), 1 + number.parse::<usize>().ok()?))
    };
    let stem = |path: &PathBuf| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    // A config is no file of tensors.
    let is_config = |path: &PathBuf| extension(path).as_deref() == Some("json") && !is_index(path);
    let mut paths: Vec<PathBuf> = others.filter(|path| !is_config(path)).collect();
    paths.sort_by_key(|path| number(path).unwrap_or((stem(path).unwrap_or_default(), 0)));
    if paths.is_empty() {
        let fix = tr!("record a model into it, by mha_trace.record(model, everything=True)");
        return Err(Error::file(folder, tr!("is a folder without files of tensors"), fix));
    }
    Ok(paths)
}

/// What the tensors of a file are called.
fn names(bundle: &Bundle) -> Vec<&str> {
    bundle.infos().iter().map(|info| info.name.as_str()).collect()
}

/// Reads what is to be compared, as [`open_place`] has it.
///
/// # Errors
/// If it cannot be read, or has no such tensor.
pub fn read_place(place: &Path) -> Result<Record> {
    open_place(place)?.read()
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
    Ok(entries_of(folder)?.into_iter().filter(|path| path.is_file()).collect())
}

fn folders_in(folder: &Path) -> Result<Vec<PathBuf>> {
    Ok(entries_of(folder)?.into_iter().filter(|path| path.is_dir()).collect())
}

fn entries_of(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let what = tr!("cannot be listed: {error}", error = io_reason(&error));
        Error::file(folder, what, "make it readable")
    })?;
    let mut paths: Vec<PathBuf> =
        entries.filter_map(std::io::Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

fn arrays_in(files: &[PathBuf]) -> Vec<PathBuf> {
    let is_array = |path: &&PathBuf| extension(path).as_deref() == Some("npy");
    files.iter().filter(is_array).cloned().collect()
}
