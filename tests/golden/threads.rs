//! The same bits on any number of threads, and on every run.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::{fixtures, name};

/// More threads than this machine may have, and numbers that divide no axis evenly. The first is run twice.
const THREADS: [&str; 5] = ["1", "1", "2", "3", "8"];

/// Every step of a run, as its file has it, on so many threads.
fn steps(args: &[&OsStr], threads: &str, folder: &Path) -> Vec<u8> {
    let file = folder.join("run.safetensors");
    let output = Command::new(env!("CARGO_BIN_EXE_mha-trace"))
        // Files are named by their place beside the recorded runs.
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden"))
        .args(args)
        .args([OsStr::new("-q"), OsStr::new("-o"), file.as_os_str()])
        .env("RAYON_NUM_THREADS", threads)
        .output()
        .expect("the binary runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?} on {threads}: {said}");
    fs::read(file).expect("written")
}

/// Which numbers of threads give other bits than the first.
fn differing(args: &[&OsStr]) -> Vec<&'static str> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [first, others @ ..] = THREADS;
    let expected = steps(args, first, folder.path());
    others.into_iter().filter(|threads| steps(args, threads, folder.path()) != expected).collect()
}

#[test]
fn recorded_runs_have_the_same_bits_on_any_number_of_threads() {
    for path in fixtures("golden") {
        let differing = differing(&[OsStr::new("--config"), path.as_os_str()]);
        assert!(differing.is_empty(), "{}: other bits on {differing:?} threads", name(&path));
    }
}

/// Runs whose values are large enough that several threads share each of them.
#[test]
fn large_runs_have_the_same_bits_on_any_number_of_threads() {
    for flags in [
        "--dropout 0.1 --bias --alibi",
        "--batch 2 --rope half --qk-norm rms --kv-heads 3 --softcap 20 --lse --end weights",
        "--dtype f64 --bias --window 100 --sinks",
        "--no-mask --relative-bias bidirectional --gate sigmoid --mean-weights",
    ] {
        let sizes = "--seq-len 301 --d-model 102 --heads 6 --head-dim 18";
        let args: Vec<&OsStr> = sizes.split(' ').chain(flags.split(' ')).map(OsStr::new).collect();
        let differing = differing(&args);
        assert!(differing.is_empty(), "{flags}: other bits on {differing:?} threads");
    }
}
