//! Dumps that are parts of recorded files.

use std::collections::BTreeMap;
use std::path::Path;

use mha_trace::program::Name;
use safetensors::SafeTensors;

/// Which part of a recorded file a dump is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Part<'a> {
    /// Of several mistakes in one file, whose steps stand behind its name, this one; all others are those of a right run.
    pub mistake: Option<&'a str>,
    /// Whether of what is computed the output alone is kept.
    pub output_alone: bool,
}

/// Writes a part of a recorded file.
pub fn write(recorded: &Path, part: Part, path: &Path) {
    let bytes = std::fs::read(recorded).expect("readable");
    let recorded = SafeTensors::deserialize(&bytes).expect("safetensors");
    let mut dump = BTreeMap::new();
    for (name, tensor) in recorded.tensors() {
        let (mistake, step) = match name.split_once('/') {
            Some((mistake, step)) => (Some(mistake), step),
            None => (None, name.as_str()),
        };
        let is_other = mistake.is_some() && mistake != part.mistake;
        let is_computed = Name::named(step).is_some_and(|known| !known.is_given());
        if is_other || part.output_alone && is_computed && step != "output" {
            continue;
        }
        // A wrong step stands in the place of the right one.
        if mistake.is_some() || !dump.contains_key(step) {
            dump.insert(step.to_owned(), tensor);
        }
    }
    safetensors::serialize_to_file(dump, None, path).expect("written");
}
