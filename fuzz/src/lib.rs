//! Fuzzing of all that is read from outside: whatever the bytes are, reading them ends, without a panic, and in ten times
//! their memory and 200 MB.

mod json;
mod memory;
mod numbers;
mod packed;
mod pickle;
mod texts;

use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzzer_mutate;
use mha_trace::file::Bundle;
use mha_trace::program::Trace;
use mha_trace::view::shapes_json;
use mha_trace::{Config, Result, Run, Settings, Sources};

pub use json::json;
pub use memory::within_memory;
pub use numbers::gguf;
pub use packed::{archive, archived, npy, pickle_or_archive, safetensors};
pub use texts::{asked, settings_text};

/// Random choices of a change.
pub type Rng = fastrand::Rng;

/// A target: what is done with the bytes, and how those of a valid file become others that are nearly valid.
#[macro_export]
macro_rules! fuzz {
    ($read:expr, $changed:expr) => {
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::within_memory(bytes, $read));
        libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, most: usize, seed: u32| {
            $crate::mutated(data, size, most, seed, $changed)
        });
    };
}

/// Changes the input by what it is made of, or, one time of three, by its bytes. What cannot be read is changed by its bytes.
pub fn mutated(
    data: &mut [u8],
    size: usize,
    most: usize,
    seed: u32,
    changed: fn(&[u8], &mut Rng) -> Option<Vec<u8>>,
) -> usize {
    let mut rng = Rng::with_seed(seed.into());
    let new = if rng.u8(..3) > 0 { changed(&data[..size], &mut rng) } else { None };
    match new.filter(|new| new.len() <= most) {
        Some(new) => {
            data[..new.len()].copy_from_slice(&new);
            new.len()
        }
        None => fuzzer_mutate(data, size, most),
    }
}

/// One of several.
pub fn any<'a, T>(of: &'a [T], rng: &mut Rng) -> Option<&'a T> {
    rng.choice(of)
}

/// Opens the bytes as the file of that name would be, and reads every tensor.
pub fn read(name: impl AsRef<Path>, bytes: &[u8]) {
    let Some(bundle) = told(Bundle::from_bytes(name.as_ref(), bytes.to_vec())) else { return };
    for info in bundle.infos() {
        let Some(Some(tensor)) = told(bundle.tensor(&info.name)) else { continue };
        assert_eq!((tensor.dims(), tensor.dtype()), (info.shape.as_slice(), info.dtype));
    }
    told(bundle.read());
}

/// What came of it; an error says what is wrong and what to do.
pub fn told<T>(result: Result<T>) -> Option<T> {
    if let Err(error) = &result {
        assert!(!error.to_string().is_empty() && !error.fix().to_string().is_empty());
    }
    result.ok()
}

/// The bytes as a file of that name, which only this process writes.
pub fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let path = std::env::temp_dir().join(format!("mha-trace-fuzz-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).expect("written");
    path
}

/// The file of that name among the fixtures.
pub fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures").join(name)
}

/// What a run keeps at most so that it is run here: a thousand of them take a second.
const SMALL: u128 = 100_000;

/// The run of these settings: laid out, stated as settings again, and run where it is small.
pub fn run(settings: &Settings, sources: Sources) -> Option<Trace> {
    let run = told(Run::new(settings, sources))?;
    let stated = Settings::from(run.config());
    let again = told(Config::resolve(&stated)).map(|config| Settings::from(&config).to_json());
    assert_eq!(again, Some(stated.to_json()), "settings are stated as they were");
    let _ = shapes_json(&run);
    let bytes = run.program().bytes(mha_trace::candle_core::DType::F64);
    // What is drawn and of no step is as large as it is asked for.
    let are_drawn = [stated.d_memory_v, stated.v_head_dim];
    if bytes < SMALL && are_drawn.iter().flatten().all(|size| *size < 1000) {
        told(run.trace())
    } else {
        None
    }
}
