//! The crate against PyTorch: recorded runs, printed notebooks and generator draws in `fixtures/`.

mod backward;
#[path = "../common/mod.rs"]
mod common;
mod generator;
mod notebooks;
mod onnx;
mod rotary;
mod steps;
mod threads;
mod twins;

use std::fs;
use std::path::{Path, PathBuf};

/// The files below `fixtures/FOLDER`, in order of their names.
fn fixtures(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(folder);
    let entries = fs::read_dir(&folder).expect("the fixtures are there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// The file's name, for messages.
fn name(path: &Path) -> String {
    path.file_name().expect("a file").to_string_lossy().into_owned()
}
