//! What does an opened file hold, before it is read, and how is it read when it is asked for?

use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};

use super::at::InFile;
use super::record::{Entry, Record};
use base::error::{Error, Result, bytes};
use base::memory::short_of;
use config::Settings;
use program::Misread;

/// What is known of a tensor before it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// Its name; empty where the file has none for it.
    pub name: String,
    /// How it was computed, for readers.
    pub formula: Option<String>,
    /// The names of its axes, outermost first.
    pub axes: Option<Vec<String>>,
    /// Its type; `U8` is boolean. `F32` stands for a type that cannot be read, which reading the tensor tells.
    pub dtype: DType,
    /// The lengths of its axes.
    pub shape: Vec<usize>,
}

impl Info {
    /// What is known of an entry but its numbers.
    pub(super) fn of(entry: &Entry) -> Self {
        let Entry { name, formula, axes, tensor, .. } = entry;
        let (dtype, shape) = (tensor.dtype(), tensor.dims().to_vec());
        Self { name: name.clone(), formula: formula.clone(), axes: axes.clone(), dtype, shape }
    }

    /// A tensor of which no more is known than its type and shape.
    pub(super) fn unlabelled(name: String, dtype: DType, shape: Vec<usize>) -> Self {
        Self { name, formula: None, axes: None, dtype, shape }
    }

    /// The tensor that this is known of, as it was read.
    pub fn with(self, tensor: Tensor) -> Entry {
        let Self { name, formula, axes, .. } = self;
        Entry { name, formula, axes, tensor, called: None }
    }

    /// The bytes that the tensor takes once it has been read.
    fn bytes(&self) -> u128 {
        let size = self.dtype.size_in_bytes() as u128;
        self.shape.iter().fold(size, |bytes, length| bytes.saturating_mul(*length as u128))
    }
}

/// What opens another file.
pub type Opener = fn(&Path) -> Result<Bundle>;

/// A file that has been opened. One layer of a checkpoint can be read from it without the others.
pub struct Bundle {
    path: PathBuf,
    config: Option<Settings>,
    infos: Vec<Info>,
    tensors: Box<dyn Tensors + Send>,
}

/// The tensors of an opened file, by their position in it.
pub(super) trait Tensors {
    /// Reads a tensor.
    fn read(&self, at: usize) -> Result<Tensor>;

    /// Reads `count` numbers of a tensor, row-major, from the one at `first` on, as a flat tensor.
    fn read_some(&self, at: usize, first: usize, count: usize) -> Result<Tensor> {
        Ok(self.read(at)?.flatten_all()?.narrow(0, first, count)?)
    }

    /// Where the numbers of a tensor stand, if they are of f32 and stand in a file as they are.
    fn in_file(&self, _at: usize) -> Option<InFile> {
        None
    }

    /// Whether they have been read with the file.
    fn are_read(&self) -> bool {
        false
    }

    /// The other files that they are read from.
    fn others(&self) -> Vec<PathBuf> {
        Vec::new()
    }
}

impl Tensors for Vec<Tensor> {
    fn read(&self, at: usize) -> Result<Tensor> {
        Ok(self[at].clone())
    }

    fn are_read(&self) -> bool {
        true
    }
}

/// Tensors of several opened files as those of one: of which file each is, and which of its tensors.
pub(super) struct Shards {
    pub(super) bundles: Vec<Bundle>,
    pub(super) places: Vec<(usize, usize)>,
}

impl Tensors for Shards {
    fn read(&self, at: usize) -> Result<Tensor> {
        let (shard, at) = self.places[at];
        self.bundles[shard].tensor_at(at)
    }

    fn read_some(&self, at: usize, first: usize, count: usize) -> Result<Tensor> {
        let (shard, at) = self.places[at];
        self.bundles[shard].tensors.read_some(at, first, count)
    }

    fn in_file(&self, at: usize) -> Option<InFile> {
        let (shard, at) = self.places.get(at)?;
        self.bundles.get(*shard)?.in_file(*at)
    }

    fn are_read(&self) -> bool {
        self.bundles.iter().all(|bundle| bundle.tensors.are_read())
    }

    fn others(&self) -> Vec<PathBuf> {
        self.bundles.iter().map(|bundle| bundle.path.clone()).collect()
    }
}

/// Refuses to read what takes more memory than is free.
pub(super) fn refuse_beyond_memory(path: &Path, needed: u128, fix: &str) -> Result<()> {
    let Some(left) = short_of(needed) else { return Ok(()) };
    let what = tr!("takes {needed} to read, and {left}", needed = bytes(needed), left);
    Err(Error::file(path, what, fix))
}

impl Bundle {
    /// A file whose tensors are read when they are asked for.
    pub(super) fn new(
        path: &Path,
        config: Option<Settings>,
        infos: Vec<Info>,
        tensors: Box<dyn Tensors + Send>,
    ) -> Self {
        Self { path: path.to_owned(), config, infos, tensors }
    }

    /// A file whose tensors have all been read.
    pub(super) fn of_record(path: &Path, record: Record) -> Self {
        let infos = record.entries.iter().map(Info::of).collect();
        let tensors: Vec<Tensor> = record.entries.into_iter().map(|entry| entry.tensor).collect();
        Self::new(path, record.config, infos, Box::new(tensors))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, and those that it says the tensors are in.
    pub fn files(&self) -> Vec<PathBuf> {
        std::iter::once(self.path.clone()).chain(self.tensors.others()).collect()
    }

    /// The setting of the run that the file records.
    pub fn config(&self) -> Option<&Settings> {
        self.config.as_ref()
    }

    /// What the file holds, in order.
    pub fn infos(&self) -> &[Info] {
        &self.infos
    }

    /// The same, to be called otherwise.
    pub fn infos_mut(&mut self) -> &mut [Info] {
        &mut self.infos
    }

    /// The names of what it holds, to be others.
    pub fn names_mut(&mut self) -> Vec<&mut String> {
        self.infos.iter_mut().map(|info| &mut info.name).collect()
    }

    /// Reads the tensor of that name.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor>> {
        let at = self.infos.iter().position(|info| info.name == name);
        at.map(|at| self.tensor_at(at)).transpose()
    }

    /// Reads the tensor at that place in [`Bundle::infos`].
    ///
    /// # Errors
    /// If it cannot be read, or does not fit into memory.
    pub fn tensor_at(&self, at: usize) -> Result<Tensor> {
        self.refuse_beyond_memory(self.infos.get(at..=at).unwrap_or_default())?;
        self.tensors.read(at)
    }

    /// Reads the tensor at that place in [`Bundle::infos`], with its labels: mutably, so that a thread can have the file to
    /// itself.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn entry(&mut self, at: usize) -> Result<Entry> {
        let info = self.infos.get(at).ok_or(Misread)?.clone();
        Ok(info.with(self.tensor_at(at)?))
    }

    /// Reads numbers of the tensor at that place in [`Bundle::infos`], row-major, as a flat tensor: of large files no more than
    /// these, where the format allows it.
    ///
    /// # Errors
    /// If the tensor has fewer numbers, or they cannot be read.
    pub fn some_of(&self, at: usize, first: usize, count: usize) -> Result<Tensor> {
        let all = self.infos.get(at).map_or(0, |info| info.shape.iter().product());
        let is_there = first.checked_add(count).is_some_and(|end: usize| end <= all);
        if is_there { self.tensors.read_some(at, first, count) } else { Err(Misread.into()) }
    }

    /// Where the numbers of the tensor at that place stand, if they are of f32 and stand in a file as they are.
    pub fn in_file(&self, at: usize) -> Option<InFile> {
        self.tensors.in_file(at)
    }

    /// Refuses to read tensors that the machine cannot hold, with what the largest is made of beside it.
    fn refuse_beyond_memory(&self, infos: &[Info]) -> Result<()> {
        if self.tensors.are_read() {
            return Ok(());
        }
        let bytes = || infos.iter().map(Info::bytes);
        let needed = bytes().fold(bytes().max().unwrap_or(0), u128::saturating_add);
        let fix = "give the tensor that you want as FILE:TENSOR, or free some memory";
        refuse_beyond_memory(&self.path, needed, fix)
    }

    /// Reads every tensor.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn read(self) -> Result<Record> {
        self.refuse_beyond_memory(&self.infos)?;
        let entries = self.infos.into_iter().enumerate();
        let entries = entries.map(|(at, info)| Ok(info.with(self.tensors.read(at)?)));
        Ok(Record { config: self.config, entries: entries.collect::<Result<_>>()? })
    }
}
