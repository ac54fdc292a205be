//! The index of a Hugging Face checkpoint in several files: `{"weight_map": {tensor: file beside the index}}`.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use serde::Deserialize;

use super::bundle::{Bundle, Info, Opener, Shards};
use super::input::extension;
use super::text::{Members, parse};
use base::error::{Error, Result, quoted};

#[derive(Deserialize)]
struct Index {
    weight_map: Members<String>,
}

/// The tensors of a file that no name of the index has asked for yet, and where they stand in it.
type Known = BTreeMap<String, (usize, Info)>;

/// Opens the files that an index names, without reading their data.
pub fn open(path: &Path, text: &str, open: Opener) -> Result<Bundle> {
    let Index { weight_map: Members(mut weight_map) } = parse(path, text)?;
    weight_map.sort();
    let twice =
        weight_map.iter().zip(weight_map.iter().skip(1)).find(|(one, next)| one.0 == next.0);
    if let Some(((twice, _), _)) = twice {
        let what = tr!("its weight_map names the tensor \"{twice}\" twice", twice = quoted(twice));
        return Err(Error::file(path, what, "keep one of the two"));
    }
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut opened: BTreeMap<String, (usize, Known)> = BTreeMap::new();
    let mut shards = Shards { bundles: Vec::new(), places: Vec::new() };
    let mut infos = Vec::with_capacity(weight_map.len());
    for (name, file) in weight_map {
        if !opened.contains_key(&file) {
            let bundle = open_shard(path, folder, &file, open)?;
            let known = bundle.infos().iter().enumerate();
            let known = known.map(|(at, info)| (info.name.clone(), (at, info.clone())));
            opened.insert(file.clone(), (shards.bundles.len(), known.collect()));
            shards.bundles.push(bundle);
        }
        let Some((shard, known)) = opened.get_mut(&file) else { continue };
        let found = known.remove(&name).ok_or_else(|| lacks(&folder.join(&file), &name));
        let (at, info) = found?;
        infos.push(info);
        shards.places.push((*shard, at));
    }
    Ok(Bundle::new(path, None, infos, Box::new(shards)))
}

fn open_shard(path: &Path, folder: &Path, file: &str, open: Opener) -> Result<Bundle> {
    let mut components = Path::new(file).components();
    let beside =
        matches!((components.next(), components.next()), (Some(Component::Normal(_)), None));
    if !beside || file.contains(['/', '\\']) {
        let file = quoted(file);
        let what =
            tr!("its weight_map names the file \"{file}\", which is not one beside it", file);
        return Err(Error::file(path, what, "put the files beside the index, and name them alone"));
    }
    // Another index could name this one.
    if !matches!(extension(Path::new(file)).as_deref(), Some("safetensors" | "bin" | "pt" | "pth"))
    {
        let file = quoted(file);
        let what = tr!("its weight_map names \"{file}\", which is not a file of tensors", file);
        return Err(Error::file(path, what, "name .safetensors or .bin files"));
    }
    let shard = folder.join(file);
    if !shard.exists() {
        let file = quoted(file);
        let what = tr!("\"{file}\", which its weight_map names, is missing beside it", file);
        return Err(Error::file(path, what, "download the whole checkpoint"));
    }
    open(&shard)
}

fn lacks(shard: &Path, name: &str) -> Error {
    let what =
        tr!("holds no tensor \"{quoted}\", although the index says so", quoted = quoted(name));
    Error::file(shard, what, "download the index and its files again")
}
