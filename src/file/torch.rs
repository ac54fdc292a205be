//! PyTorch's checkpoints: a zip archive of a pickle, which says what the tensors are, and their storages.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};

use super::archive::Archive;
use super::bundle::{Bundle, Info, Tensors, refuse_beyond_memory};
use super::element::{DAMAGED, Element, Fault, byte_length, gather, row_major};
use super::input::{Input, NAMED_WRONGLY, unreadable};
use super::pickle::{Id, Pickle, SAVE, Value};
use base::error::{Error, Result, quoted};
use base::memory::lacking;

/// The magic number that files from before PyTorch 1.6 begin with, as a pickle.
const LEGACY: &[u8] = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19";
/// A pickle says what the tensors are; their numbers are outside it.
const MAX_PICKLE: u64 = 16 << 20;
/// Dicts and lists in each other; those that hold themselves have no end.
const MAX_DEPTH: usize = 64;
/// Bytes that the tensors may have beyond a multiple of the file's: a view can repeat a number without end.
const MAX_REPEATED: u64 = 128 << 20;

struct Torch {
    path: PathBuf,
    archive: Archive,
    big_endian: bool,
    views: Vec<View>,
    /// The packed storages that several tensors share, which are unpacked for the first of them.
    shared: HashMap<usize, Shared>,
}

/// What several tensors are of in a storage: its bytes from the first to the last that one of them has.
struct Shared {
    start: u64,
    end: u64,
    bytes: OnceCell<Vec<u8>>,
}

impl Torch {
    /// Bytes of a storage.
    fn range(&self, member: usize, start: u64, length: u64) -> Result<Vec<u8>> {
        let archive = &self.archive;
        let Some(shared) = self.shared.get(&member) else {
            return archive.range(member, start, length);
        };
        let fail = |kind: io::ErrorKind| unreadable(&self.path, &kind.into());
        let storage = if let Some(storage) = shared.bytes.get() {
            storage
        } else {
            let size = shared.end.saturating_sub(shared.start);
            if lacking(size.into()).is_some() {
                return Err(fail(io::ErrorKind::OutOfMemory));
            }
            let unpacked = archive.range(member, shared.start, size)?;
            shared.bytes.get_or_init(|| unpacked)
        };
        let start = start.checked_sub(shared.start).and_then(|start| usize::try_from(start).ok());
        let end = start.zip(usize::try_from(length).ok());
        let end = end.and_then(|(start, length)| start.checked_add(length));
        let part = start.zip(end).and_then(|(start, end)| storage.get(start..end));
        part.map(<[u8]>::to_vec).ok_or_else(|| fail(io::ErrorKind::UnexpectedEof))
    }
}

/// A tensor: elements of a storage.
struct View {
    name: String,
    element: Result<&'static Element, Fault>,
    /// The member of the archive that is the storage.
    member: usize,
    offset: usize,
    shape: Vec<usize>,
    strides: Vec<usize>,
    /// How many elements of the storage lie between the first and the last one, both included.
    span: usize,
}

impl View {
    /// The first byte of the storage that it has, and the one behind its last, where an element has so many.
    fn bytes(&self, size: usize) -> (u64, u64) {
        ((self.offset * size) as u64, ((self.offset + self.span) * size) as u64)
    }
}

impl Tensors for Torch {
    fn read(&self, at: usize) -> Result<Tensor> {
        let view = &self.views[at];
        let fail = |fault: Fault| fault.of(&self.path, &view.name);
        let element = view.element.clone().map_err(fail)?;
        let size = element.size();
        // Both were found to lie in the storage.
        let (start, end) = view.bytes(size);
        let mut bytes = self.range(view.member, start, end - start)?;
        if view.strides != row_major(&view.shape) {
            let gathered = gather(&bytes, size, &view.shape, &view.strides);
            bytes = gathered.ok_or_else(|| fail(beyond_storage()))?;
        }
        element.tensor(bytes, self.big_endian, &view.shape).map_err(fail)
    }
}

/// Opens a checkpoint. No code in it is run.
pub fn open(input: Input) -> Result<Bundle> {
    let path = &input.path().to_owned();
    let start = input.start(LEGACY.len() as u64)?;
    if start == LEGACY {
        let fix = tr!("save it again with a recent PyTorch: torch.save(torch.load(path), path)");
        return Err(Error::file(path, "is in the format of PyTorch before 1.6", fix));
    }
    if !start.starts_with(b"PK") {
        let what = tr!("is not a PyTorch checkpoint, though its name says so");
        return Err(Error::file(path, what, NAMED_WRONGLY));
    }
    let length = input.length();
    let archive = Archive::open(input)?;
    let (folder, pickle) = find_pickle(path, &archive)?;
    let big_endian = match archive.position(&format!("{folder}byteorder")) {
        Some(at) => archive.range(at, 0, archive.members()[at].size.min(8))? == b"big",
        None => false,
    };
    let size = archive.members()[pickle].size;
    refuse_beyond_memory(
        path,
        Pickle::most_bytes(size),
        "save its tensors alone, or free some memory",
    )?;
    let bytes = archive.range(pickle, 0, size)?;
    let pickle = Pickle::read(&bytes).map_err(|fault| fault.of(path, ""))?;
    let mut finder = Finder {
        pickle: &pickle,
        archive: &archive,
        folder: &folder,
        // A state dict names each tensor with fewer letters than it takes to describe it.
        work: 8 * bytes.len() + 65_536,
        opaque: false,
        views: Vec::new(),
    };
    finder.find(pickle.top(), "", 0).map_err(|(name, fault)| fault.of(path, &name))?;
    let Finder { views, opaque, .. } = finder;
    if views.is_empty() && opaque {
        return Err(Error::file(path, "is a pickled module, not a state dict", SAVE));
    }
    refuse_unreasonable(path, &views, length)?;
    let infos = views.iter().map(|view| {
        let dtype = view.element.as_ref().map_or(DType::F32, |element| element.read_as());
        Info::unlabelled(view.name.clone(), dtype, view.shape.clone())
    });
    let infos = infos.collect();
    let mut shared = HashMap::new();
    for view in &views {
        let is_packed = archive.members().get(view.member).is_some_and(|member| !member.stored);
        let Some(element) = view.element.as_ref().ok().filter(|_| is_packed) else { continue };
        let (start, end) = view.bytes(element.size());
        let (count, all) =
            shared.entry(view.member).or_insert((0, Shared { start, end, bytes: OnceCell::new() }));
        (*count, all.start, all.end) = (*count + 1, all.start.min(start), all.end.max(end));
    }
    let several = shared.into_iter().filter(|(_, (count, _))| *count > 1);
    let shared = several.map(|(member, (_, all))| (member, all)).collect();
    let torch = Torch { path: path.clone(), archive, big_endian, views, shared };
    Ok(Bundle::new(path, None, infos, Box::new(torch)))
}

/// The folder of the archive that everything is in, and the member that is the pickle.
fn find_pickle(path: &Path, archive: &Archive) -> Result<(String, usize)> {
    let members = archive.members();
    let found = members.iter().position(|member| member.name.ends_with("/data.pkl"));
    let Some((at, pickle)) = found.and_then(|at| Some((at, members.get(at)?))) else {
        let what = tr!("holds no data.pkl: it is a zip archive, but not a PyTorch checkpoint");
        return Err(Error::file(path, what, NAMED_WRONGLY));
    };
    let folder = pickle.name.trim_end_matches("data.pkl").to_owned();
    if archive.position(&format!("{folder}constants.pkl")).is_some() {
        let fix = tr!("save its tensors: torch.save(torch.jit.load(path).state_dict(), path)");
        return Err(Error::file(path, "is a TorchScript program, not a state dict", fix));
    }
    if !pickle.stored || pickle.size > MAX_PICKLE {
        let what =
            tr!("its data.pkl of {size} bytes is not as PyTorch writes it", size = pickle.size);
        return Err(Error::file(path, what, SAVE));
    }
    Ok((folder, at))
}

/// Refuses names that are there twice, and tensors that repeat the file's bytes out of all proportion.
fn refuse_unreasonable(path: &Path, views: &[View], file: u64) -> Result<()> {
    let mut names = HashSet::new();
    if let Some(twice) = views.iter().find(|view| !names.insert(view.name.as_str())) {
        let what = tr!("holds two tensors that are \"{twice}\"", twice = quoted(&twice.name));
        return Err(Error::file(path, what, "keep one of them"));
    }
    let (mut made, mut read) = (0_u64, 0_u64);
    for view in views {
        let Ok(element) = &view.element else { continue };
        // As many bytes as the tensor has when it is read; an integer is widened.
        let size = element.read_as().size_in_bytes();
        let bytes = byte_length(&view.shape, size).map_or(u64::MAX, |bytes| bytes as u64);
        made = made.saturating_add(bytes);
        read = read.saturating_add((view.span as u64).saturating_mul(size as u64));
    }
    let beyond =
        |bytes: u64, times: u64| bytes > file.saturating_mul(times).saturating_add(MAX_REPEATED);
    if beyond(made, 16) || beyond(read, 64) {
        let what = tr!(
            "its tensors are {made} from a file of {file}: they are views that repeat its numbers",
            made = base::error::bytes(made.into()),
            file = base::error::bytes(file.into())
        );
        return Err(Error::file(path, what, "save copies of them: tensor.clone()"));
    }
    Ok(())
}

/// Finds the tensors in what was pickled.
struct Finder<'a> {
    pickle: &'a Pickle,
    archive: &'a Archive,
    folder: &'a str,
    /// How much may still be looked at: what is shared is looked at wherever it is.
    work: usize,
    /// Whether something was passed over that could have been a module.
    opaque: bool,
    views: Vec<View>,
}

type Found<T> = Result<T, (String, Fault)>;

impl Finder<'_> {
    fn find(&mut self, id: Id, name: &str, depth: usize) -> Found<()> {
        if depth > MAX_DEPTH {
            let what = tr!("its dicts hold each other without end");
            return Err((String::new(), Fault::new(what, SAVE)));
        }
        match self.pickle.get(id) {
            Value::Dict(pairs) => pairs.iter().try_for_each(|(key, value)| {
                let key = match self.pickle.get(*key) {
                    Value::Text(key) => key.clone(),
                    Value::Integer(key) => key.to_string(),
                    _ => return Ok(()),
                };
                self.inside(*value, name, &key, depth)
            }),
            Value::Sequence(items) => items
                .iter()
                .enumerate()
                .try_for_each(|(at, item)| self.inside(*item, name, &at.to_string(), depth)),
            Value::Call(function, arguments) => {
                match self.rebuild(*function, *arguments, name, 0) {
                    Ok(Some(view)) => {
                        self.views.push(view);
                        Ok(())
                    }
                    Ok(None) => {
                        self.opaque = true;
                        Ok(())
                    }
                    Err(fault) => Err((name.to_owned(), fault)),
                }
            }
            _ => Ok(()),
        }
    }

    /// Finds the tensors in what is by that key in something of that name.
    fn inside(&mut self, id: Id, outer: &str, key: &str, depth: usize) -> Found<()> {
        let holds =
            matches!(self.pickle.get(id), Value::Dict(_) | Value::Sequence(_) | Value::Call(..));
        // A number in a list of many costs no name.
        let cost = if holds { 1 + outer.len() + key.len() } else { 1 };
        let Some(left) = self.work.checked_sub(cost) else {
            let what = tr!("its dicts hold the same things again and again");
            return Err((String::new(), Fault::new(what, SAVE)));
        };
        self.work = left;
        if holds { self.find(id, &within(outer, key), depth + 1) } else { Ok(()) }
    }

    /// The tensor that a call would have made, if it would have made one.
    fn rebuild(
        &self,
        function: Id,
        arguments: Id,
        name: &str,
        depth: usize,
    ) -> Result<Option<View>, Fault> {
        let Some(function) = self.pickle.global(function) else { return Ok(None) };
        let arguments = self.pickle.sequence(arguments).unwrap_or_default();
        match (function, arguments) {
            // Around a tensor: a parameter, or a tensor with attributes of its own.
            (
                "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
                [data, ..],
            ) => match self.pickle.get(*data) {
                Value::Call(function, arguments) if depth < MAX_DEPTH => {
                    self.rebuild(*function, *arguments, name, depth + 1)
                }
                _ => Ok(None),
            },
            ("torch._tensor._rebuild_from_type_v2", [function, _, arguments, ..])
                if depth < MAX_DEPTH =>
            {
                self.rebuild(*function, *arguments, name, depth + 1)
            }
            ("torch._utils._rebuild_tensor_v2", [storage, offset, shape, strides, ..]) => {
                self.view(name, *storage, None, [*offset, *shape, *strides]).map(Some)
            }
            (
                "torch._utils._rebuild_tensor_v3",
                [storage, offset, shape, strides, _, _, dtype, ..],
            ) => self.view(name, *storage, Some(*dtype), [*offset, *shape, *strides]).map(Some),
            _ => Ok(None),
        }
    }

    fn view(
        &self,
        name: &str,
        storage: Id,
        dtype: Option<Id>,
        [offset, shape, strides]: [Id; 3],
    ) -> Result<View, Fault> {
        let damaged = |what: &str| Fault::new(what, DAMAGED);
        let Value::Outside(storage) = self.pickle.get(storage) else {
            return Err(damaged(tr!("has no storage")));
        };
        // ("storage", type, key, device, number of elements)
        let [_, class, key, ..] = self.pickle.sequence(*storage).unwrap_or_default() else {
            return Err(damaged(tr!("has no storage")));
        };
        let class = self.pickle.global(dtype.unwrap_or(*class)).unwrap_or_default();
        let element = element(class);
        let key = self.pickle.text(*key).unwrap_or_default();
        let member = self.archive.position(&format!("{}data/{key}", self.folder));
        let Some((member, storage)) =
            member.and_then(|at| Some((at, self.archive.members().get(at)?)))
        else {
            return Err(damaged(tr!("its storage is missing")));
        };
        let shape = self.pickle.lengths(shape);
        let layout = (self.pickle.length(offset), shape, self.pickle.lengths(strides));
        let (Some(offset), Some(shape), Some(strides)) = layout else {
            return Err(damaged(tr!(
                "has a size, offset or stride that is no whole number from 0 up"
            )));
        };
        if shape.len() != strides.len() || byte_length(&shape, 8).is_none() {
            return Err(damaged(&tr!(
                "its sizes {shape} and strides {strides} make no tensor",
                shape = format!("{shape:?}"),
                strides = format!("{strides:?}")
            )));
        }
        let span = span(&shape, &strides).ok_or_else(beyond_storage)?;
        if let Ok(element) = &element {
            let end = offset.checked_add(span).and_then(|end| end.checked_mul(element.size()));
            if end.is_none_or(|end| end as u64 > storage.size) {
                return Err(beyond_storage());
            }
        }
        Ok(View { name: name.to_owned(), element, member, offset, shape, strides, span })
    }
}

/// How many elements of the storage lie between the first and the last one, both included.
fn span(shape: &[usize], strides: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().zip(strides).try_fold(1_usize, |span, (length, stride)| {
        span.checked_add(length.checked_sub(1)?.checked_mul(*stride)?)
    })
}

fn beyond_storage() -> Fault {
    Fault::new(tr!("reaches beyond its storage"), DAMAGED)
}

fn within(outer: &str, key: &str) -> String {
    if outer.is_empty() { key.to_owned() } else { format!("{outer}.{key}") }
}

/// The type of the elements of a class of storages, or by its own name.
fn element(class: &str) -> Result<&'static Element, Fault> {
    let name = class.trim_start_matches("torch.");
    Element::of_torch(name).ok_or_else(|| {
        let name = name.trim_end_matches("Storage");
        let fix = tr!("save it as floats, integers or booleans: tensor.float()");
        Fault::new(tr!("is of type {name}, which cannot be read", name), fix)
    })
}
