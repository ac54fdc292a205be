//! What comes from outside does no harm: texts that terminals obey, files that claim much, signals, full disks, and
//! systems that have no threads, memory or open files left.
#![cfg(unix)]

mod bad_inputs;

use std::ffi::OsStr;
use std::fs;
use std::io::{Cursor, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const BINARY: &str = env!("CARGO_BIN_EXE_mha-trace");

/// More than anything here takes on a slow machine, and less than what it took by a square of its length.
const PATIENCE: Duration = Duration::from_secs(10);

fn command(folder: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command.current_dir(folder);
    command
}

fn run(folder: &Path, args: &[&str]) -> Output {
    command(folder).args(args).output().expect("the binary runs")
}

/// Runs behind `ulimit` with these arguments.
fn limited(folder: &Path, limit: &str, args: &[&str]) -> Output {
    Command::new("sh")
        .current_dir(folder)
        .args(["-c", &format!("ulimit {limit} || exit 99; exec \"$0\" \"$@\""), BINARY])
        .args(args)
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .expect("there is a shell")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("text")
}

/// The two lines of a refusal.
fn refused(output: &Output) -> (String, String) {
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    let [what, fix] = lines[..] else { panic!("not two lines: {said}") };
    let what = what.strip_prefix("error: ").unwrap_or_else(|| panic!("{said}"));
    let fix = fix.strip_prefix("help: ").unwrap_or_else(|| panic!("{said}"));
    (what.to_owned(), fix.to_owned())
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let deflated = CompressionMethod::Deflated;
        let options = SimpleFileOptions::default().compression_method(deflated);
        let stored = options.compression_method(CompressionMethod::Stored);
        let is_pickle = *name == "a/data.pkl";
        zip.start_file(*name, if is_pickle { stored } else { options }).expect("started");
        zip.write_all(bytes).expect("written");
    }
    zip.finish().expect("finished").into_inner()
}

/// An npy file.
fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let length = u16::try_from(header.len()).expect("short");
    [b"\x93NUMPY\x01\0", length.to_le_bytes().as_slice(), header.as_bytes(), data].concat()
}

/// Escapes of terminals, one of them a single character, and marks that turn what follows.
const ACTS: &str = "\u{1b}[31m\u{1b}]0;t\u{7}\u{9b}2J\u{202e}\u{2066}\u{61c}\u{7f}é`heads=9`";

/// The characters of a text that do more than to be seen.
fn acting(text: &str) -> Vec<char> {
    let acts = |c: &char| {
        let turns = ['\u{61c}', '\u{200e}', '\u{200f}'].contains(c)
            || ('\u{2028}'..='\u{202e}').contains(c)
            || ('\u{2066}'..='\u{2069}').contains(c);
        *c != '\n' && c.is_control() || turns
    };
    text.chars().filter(acts).collect()
}

#[test]
fn what_files_hold_is_shown_and_not_obeyed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let name = format!("f{}.json", ACTS.replace('/', ""));
    let trace = |value: f64| {
        let odd =
            json!({"name": ACTS, "formula": ACTS, "axes": [ACTS, "b"], "data": [[value, 2.0]]});
        let known = json!({"name": "output", "data": [[value]]});
        json!({"format": "mha-trace", "version": 1, "steps": [odd, known]}).to_string()
    };
    fs::write(at.join(&name), trace(1.0)).expect("written");
    fs::write(at.join("other.json"), trace(1.5)).expect("written");
    assert!(run(at, &["-q", "-o", "run.json"]).status.success());
    let mut recorded: Value =
        serde_json::from_slice(&fs::read(at.join("run.json")).expect("there")).expect("JSON");
    for key in ["x", "weights", "attn_mask"] {
        recorded["config"][key] = json!(ACTS);
    }
    fs::write(at.join("config.json"), recorded.to_string()).expect("written");
    fs::write(at.join("tokens.json"), json!(["a", ACTS, "c", "d"]).to_string()).expect("written");
    let all: &[&[&str]] = &[
        &["diff", &name, "other.json"],
        &["diff", &name, "other.json", "--format", "json"],
        &["diff", &name, "other.json", "-q", "-o", "diff.html"],
        &["check", &name, "--format", "json"],
        &["check", &name, "-v"],
        &["check", "config.json", "-v"],
        &["check", "config.json", "--format", "json"],
        &["--config", "config.json", "--format", "json"],
        &["--config", "config.json", "-o", "a.json", "-o", "a.md", "-o", "a.tex", "-o", "a.html"],
        &["shapes", "--config", "config.json"],
        &["shapes", "--config", "config.json", "--format", "json"],
        &["--tokens", "tokens.json", "-o", "b.json", "-o", "b.md", "-o", "b.tex", "-o", "b.html"],
        &["--tokens", "tokens.json", "--format", "json"],
        &["explain", "weights[0,0,1,1]", "--tokens", "tokens.json"],
        &["explain", "weights[0,0,1,1]", "--tokens", "tokens.json", "--format", "json"],
        &["explain", ACTS],
        &["--heads", ACTS],
        &["--config", ACTS],
        &["bugs", ACTS],
        &[ACTS],
    ];
    for args in all {
        let output = run(at, args);
        for said in [&output.stdout, &output.stderr] {
            assert_eq!(acting(text(said)), [], "{args:?}: {}", text(said));
        }
    }
    for file in names(at).iter().filter(|file| file.contains(['a', 'b']) && file.len() < 10) {
        if !["config.json", "tokens.json", "run.json", "other.json"].contains(&file.as_str()) {
            let held = fs::read_to_string(at.join(file)).expect("text");
            assert_eq!(acting(&held), [], "{file}");
        }
    }
    // It is the same text for programs.
    let report: Value = serde_json::from_slice(&run(at, all[1]).stdout).expect("a report in JSON");
    assert_eq!(report["files"][0]["path"], name);
    assert_eq!(report["files"][0]["first_divergence"], ACTS);
}

#[test]
fn a_machine_without_threads_does_all_in_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    assert!(run(at, &["-t", "40", "-q", "-o", "run.json"]).status.success());
    let golden = "tests/cli/inputs/scale-missing.json";
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join(golden);
    let all: &[&[&str]] = &[
        &["-t", "40"],
        &["shapes"],
        &["check", "run.json"],
        &["diff", "run.json", "run.json"],
        &["explain", "output[0,1,2]"],
        &["check", golden.to_str().expect("text")],
        &["-t", "40", "-q", "-o", "again.json"],
        // Candle would start threads of its own for these.
        &["-t", "200", "-H", "4", "--softcap", "5", "--dtype", "f64", "--last", "1"],
    ];
    for args in all {
        // No thread gets a stack of this size.
        let alone = command(at).args(*args).env("RUST_MIN_STACK", "200000000000000").output();
        let alone = alone.expect("the binary runs");
        let usual = run(at, args);
        assert_eq!(text(&alone.stderr), text(&usual.stderr), "{args:?}");
        assert_eq!((alone.status, alone.stdout), (usual.status, usual.stdout), "{args:?}");
    }
    let few = command(at).args(all[0]).env("RAYON_NUM_THREADS", "1").output();
    assert!(few.expect("the binary runs").status.success());
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([name, &child.id().to_string()]).status();
    assert!(sent.expect("there is a kill").success());
}

/// Whether the program has begun to write a file in the folder, with a name or without one.
fn has_begun(child: &Child, folder: &Path) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{}/fd", child.id())) else {
        return names(folder).len() > 1;
    };
    let mut open = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    open.any(|file| file.starts_with(folder))
}

/// Files of several kinds, each large enough that writing takes a while.
const LARGE: [&str; 4] = ["run.json", "run.npz", "run.safetensors", "run.html"];

#[test]
fn a_signal_removes_what_was_begun_and_ends_the_program() {
    for (name, number) in [("-INT", 2), ("-TERM", 15)] {
        for file in LARGE {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let at = folder.path();
            fs::write(at.join(file), "kept").expect("written");
            let args = ["-t", "700", "-d", "64", "-H", "8", "-q", "-o", file];
            let mut child = command(at).args(args).spawn().expect("the binary runs");
            let start = Instant::now();
            while !has_begun(&child, at) && start.elapsed() < PATIENCE {
                sleep(Duration::from_micros(200));
            }
            signal(&child, name);
            let status = child.wait().expect("it ends");
            assert_eq!(status.signal(), Some(number), "{file}: {status}");
            assert_eq!(names(at), [file], "{name}");
            assert_eq!(fs::read_to_string(at.join(file)).expect("there"), "kept", "{name}");
        }
    }
}

#[test]
fn a_file_that_is_ended_at_any_moment_is_the_old_one_or_the_new() {
    const TIMES: u64 = 100;
    let args = |seed| ["-t", "120", "-d", "32", "-H", "4", "--seed", seed, "-q", "-o"];
    scope(|threads| {
        for (half, file) in ["run.json", "run.safetensors"].into_iter().enumerate() {
            threads.spawn(move || {
                let folder = tempfile::tempdir().expect("a temporary folder");
                let at = folder.path();
                let mut longest = Duration::ZERO;
                let [first, second] = ["1", "2"].map(|seed| {
                    let start = Instant::now();
                    assert!(run(at, &[&args(seed)[..], &[file]].concat()).status.success());
                    longest = longest.max(start.elapsed());
                    fs::read(at.join(file)).expect("written")
                });
                let most = u64::try_from(longest.as_micros()).expect("short") * 5 / 4;
                let mut random = 12_345 + half as u64;
                let (mut ended, mut stayed) = (0, 0);
                for time in 0..TIMES {
                    // The generator of Numerical Recipes.
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % (1 << 32);
                    let seed = if time % 2 == 0 { "1" } else { "2" };
                    let name =
                        ["-INT", "-TERM", "-KILL"][usize::try_from(time % 3).expect("small")];
                    let mut child =
                        command(at).args(args(seed)).arg(file).spawn().expect("the binary runs");
                    sleep(Duration::from_micros(random % most));
                    signal(&child, name);
                    let status = child.wait().expect("it ends");
                    ended += u32::from(status.signal().is_some());
                    let held = fs::read(at.join(file)).expect("there");
                    assert!(held == first || held == second, "{name}: {} bytes", held.len());
                    if name == "-KILL" {
                        for left in names(at).iter().filter(|left| left.starts_with(".mha-trace-"))
                        {
                            fs::remove_file(at.join(left)).expect("ours");
                            stayed += 1;
                        }
                    }
                    assert_eq!(names(at), [file], "{name}");
                }
                assert!(ended > 10, "{ended} of {TIMES} were still running");
                // A file that is whole has a name of its own for a moment; where files need a name to be written, it stays.
                let is_rare = stayed < 4 || !cfg!(target_os = "linux");
                assert!(is_rare, "{stayed} files stayed, of those that were killed");
            });
        }
    });
}

#[test]
fn a_disk_that_is_full_keeps_the_old_file_and_says_so() {
    for file in ["run.json", "run.npz", "run.safetensors", "run.html", "run.md", "run.tex"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = folder.path();
        fs::write(at.join(file), "kept").expect("written");
        let args = ["-t", "60", "-d", "32", "-H", "4", "--full", "-q", "-o", file];
        let (what, fix) = refused(&limited(at, "-f 8", &args));
        assert!(what.ends_with("cannot be written: file too large"), "{what}");
        assert_eq!(fix, "allow larger files, for example by ulimit -f unlimited, or write less");
        assert_eq!(names(at), [file]);
        assert_eq!(fs::read_to_string(at.join(file)).expect("there"), "kept");
    }
}

#[test]
fn a_stream_takes_a_record() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    assert!(run(at, &["-q", "-o", "run.json"]).status.success());
    let piped = run(at, &["-q", "-o", "/dev/stdout"]);
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    assert_eq!(piped.stdout, fs::read(at.join("run.json")).expect("written"));
    let to_file = fs::File::create(at.join("redirected")).expect("made");
    let status = command(at).args(["-q", "-o", "/dev/stdout"]).stdout(to_file).status();
    assert!(status.expect("the binary runs").success());
    assert_eq!(fs::read(at.join("redirected")).expect("written"), piped.stdout);
    let full = fs::OpenOptions::new().write(true).open("/dev/full");
    let output =
        command(at).args(["-q", "-o", "/dev/stdout"]).stdout(full.expect("there")).output();
    let (what, fix) = refused(&output.expect("the binary runs"));
    assert_eq!(what, "/dev/stdout: cannot be written: no space left on device");
    assert_eq!(fix, "free some space, or write elsewhere");
    let mut child = command(at)
        .args(["-t", "200", "-q", "-o", "/dev/stdout"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn links_stay_links() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    fs::write(at.join("one.json"), "old").expect("written");
    fs::hard_link(at.join("one.json"), at.join("twin.json")).expect("linked");
    std::os::unix::fs::symlink("one.json", at.join("link.json")).expect("linked");
    std::os::unix::fs::symlink("nothing.json", at.join("loose.json")).expect("linked");
    assert!(run(at, &["-q", "-o", "link.json"]).status.success());
    assert!(fs::symlink_metadata(at.join("link.json")).expect("there").is_symlink());
    assert!(fs::read_to_string(at.join("one.json")).expect("text").contains("mha-trace"));
    // The other name of the old file still has the old file.
    assert_eq!(fs::read_to_string(at.join("twin.json")).expect("text"), "old");
    let (what, _) = refused(&run(at, &["-q", "-o", "loose.json"]));
    assert_eq!(what, "loose.json: is a link whose target does not exist");
    assert_eq!(names(at), ["link.json", "loose.json", "one.json", "twin.json"]);
}

/// A checkpoint of that many tensors of one element, all of one storage of zeros.
fn views(count: u32, elements: u32) -> Vec<u8> {
    let mut pickle = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nq\x000".to_vec();
    pickle.extend(b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000X\x03\0\0\0cpuJ");
    pickle.extend(elements.to_le_bytes());
    pickle.extend(b"tQq\x010}(");
    for at in 0..count {
        let name = format!("t{at}");
        pickle.extend([b"U", [u8::try_from(name.len()).expect("short")].as_slice()].concat());
        pickle.extend(name.as_bytes());
        pickle.extend(b"h\0(h\x01J");
        pickle.extend((elements - 1).to_le_bytes());
        pickle.extend(b"(K\x01t(K\x01t\x89}tR");
    }
    pickle.extend(b"u.");
    let storage = vec![0; elements as usize * 4];
    zipped(&[("a/data.pkl", &pickle), ("a/data/0", &storage)])
}

#[test]
fn a_packed_storage_is_unpacked_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    fs::write(at.join("views.pt"), views(3000, 2_000_000)).expect("written");
    let start = Instant::now();
    let output = run(at, &["diff", "views.pt", "views.pt", "-q"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
}

#[test]
fn what_does_not_fit_in_memory_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let zeros = vec![0; 100_000_000];
    let members = [("output.npy", npy("|u1", "(100000000,)", &zeros))];
    let members = members.each_ref().map(|(name, bytes)| (*name, bytes.as_slice()));
    fs::write(at.join("bomb.npz"), zipped(&members)).expect("written");
    drop(zeros);
    assert!(fs::metadata(at.join("bomb.npz")).expect("there").len() < 1_000_000);
    let large = ["-t", "700", "-d", "256", "-H", "8", "-q", "-o", "large.safetensors"];
    assert!(run(at, &large).status.success());
    let brackets = format!("{{\"format\": [{}1]}}", "[],".repeat(4_000_000));
    fs::write(at.join("brackets.json"), brackets).expect("written");
    let all: &[&[&str]] = &[
        &["check", "bomb.npz"],
        &["diff", "bomb.npz", "bomb.npz"],
        &["--x", "bomb.npz"],
        &["--attn-mask", "bomb.npz"],
        // A page shows the numbers of both sides.
        &["check", "-o", "large.html", "large.safetensors"],
        &["--config", "large.safetensors"],
        &["explain", "output", "large.safetensors"],
        &["-t", "2000"],
        // Runs that keep nothing, by what they are given, by a step as a whole, and by what is read behind its rows.
        &["-q", "-t", "100000000"],
        &["-q", "-t", "18446744073709551615", "-o", "never.safetensors"],
        &["-q", "-t", "4000", "--softcap", "2"],
        &["-q", "-t", "4000", "--no-mask", "--lse"],
        // What is drawn and no step of the run.
        &["-q", "--kv-len", "3", "--d-memory-v", "137438953471", "--end", "weights"],
        &["-q", "--v-head-dim", "137438953471", "--end", "weights"],
    ];
    for args in all {
        // Of 200 MB, and of what a little more is too little for.
        for kilobytes in [200_000, 300_000] {
            let (what, fix) = refused(&limited(at, &format!("-v {kilobytes}"), args));
            assert!(what.contains(" and the limits of this process leave "), "{args:?}: {what}");
            assert!(!fix.is_empty());
        }
    }
    // What the allocator has taken ahead is free for values: here 265 MiB of them.
    let output = limited(at, "-v 1500000", &["-t", "2048", "-d", "64", "-H", "4"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    // What is compared where it stands, or made some rows at a time, needs no room.
    for args in [
        &["diff", "-q", "large.safetensors", "large.safetensors"][..],
        &["check", "-q", "large.safetensors"],
        &["-q", "-t", "4000", "--no-mask"],
        &["-q", "-t", "3000", "--no-mask", "-o", "grown.safetensors"],
    ] {
        let output = limited(at, "-v 300000", args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    assert!(!at.join("never.safetensors").exists());
    // 12 MB of it are read, and no more is made of them than text.
    let (what, _) = refused(&limited(at, "-v 600000", &["check", "brackets.json"]));
    assert_eq!(what, "brackets.json: its format is a list, not \"mha-trace\"");
}

#[test]
fn a_pickle_of_brackets_is_refused_early() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    for (name, part) in [("lists.pt", "]"), ("marks.pt", "("), ("dicts.pt", "}")] {
        let pickle = part.repeat(15_000_000) + ".";
        fs::write(at.join(name), zipped(&[("a/data.pkl", pickle.as_bytes())])).expect("written");
        let (what, _) = refused(&limited(at, "-v 700000", &["diff", name, name]));
        assert_eq!(what, format!("{name}: its pickle is of more than 1000000 parts"));
    }
}

#[test]
fn many_names_and_long_ones_take_their_length_in_time() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let names: Vec<String> = (0..40_000).map(|at| format!("layer.{at:05}.weight")).collect();
    let infos: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| (name.clone(), json!({"dtype": "F32", "shape": [0], "data_offsets": [0, 0]})))
        .collect();
    let header = Value::Object(infos).to_string();
    let shard = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
    fs::write(at.join("model-1.safetensors"), shard).expect("written");
    let map: serde_json::Map<String, Value> =
        names.iter().map(|name| (name.clone(), json!("model-1.safetensors"))).collect();
    let index = at.join("model.safetensors.index.json");
    fs::write(index, json!({"weight_map": map}).to_string()).expect("written");
    let long = "k".repeat(1_000_000);
    fs::write(at.join("key.json"), json!({ &long: 1 }).to_string()).expect("written");
    fs::write(at.join("value.json"), json!({ "mask": &long }).to_string()).expect("written");
    let header = "x".repeat(60_000);
    fs::write(at.join("header.npy"), npy(&header, "(1,)", &[0; 4])).expect("written");
    let all: &[&[&str]] = &[
        &["check", "model.safetensors.index.json"],
        &["--weights", "model.safetensors.index.json"],
        &["--config", "key.json"],
        &["--config", "value.json"],
        &["check", "header.npy"],
    ];
    for args in all {
        let start = Instant::now();
        let (what, fix) = refused(&run(at, args));
        assert!(start.elapsed() < PATIENCE, "{args:?}: {:?}", start.elapsed());
        assert!(what.len() < 2000 && fix.len() < 4000, "{args:?}: {what}\n{fix}");
    }
}

#[test]
fn names_of_files_need_not_be_text() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let name = OsStr::from_bytes(b"run\xff.json");
    if fs::write(at.join(name), "").is_err() {
        // This file system has no such names.
        return;
    }
    let made = command(at).args(["-q", "-o"]).arg(name).output().expect("the binary runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let one = OsStr::from_bytes(b"run\xff.json:output");
    for args in [vec![OsStr::new("check"), name], vec![OsStr::new("diff"), name, one]] {
        let output = command(at).args(&args).output().expect("the binary runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((said.as_ref(), output.status.code().is_some_and(|code| code < 2)), ("", true));
    }
    // Beside a file of the whole name, that is meant.
    fs::copy(at.join(name), at.join(OsStr::from_bytes(b"a\xff:b.json"))).expect("copied");
    let whole = OsStr::from_bytes(b"a\xff:b.json");
    let output = command(at).arg("check").arg(whole).output().expect("the binary runs");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn what_is_there_twice_is_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let header = br#"{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#;
    let shard = [&(header.len() as u64).to_le_bytes(), header.as_slice()].concat();
    fs::write(at.join("s.safetensors"), &shard).expect("written");
    fs::write(at.join("t.safetensors"), &shard).expect("written");
    let text = |text: &str| [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat();
    let empty = [text("a"), [1, 0, 0, 0].into(), vec![0; 20]].concat();
    let counts = [2_u64.to_le_bytes(), [0; 8]].concat();
    let gguf = [b"GGUF\x03\0\0\0", counts.as_slice(), &empty, &empty].concat();
    fs::write(at.join("a.gguf"), gguf).expect("written");
    let (what, _) = refused(&run(at, &["check", "a.gguf"]));
    assert_eq!(what, "a.gguf: holds two tensors that are \"a\"");
    for (file, held, said) in [
        ("plain.json", r#"{"a": [1], "b": [2], "a": [3]}"#, r#"array "a" is there twice"#),
        (
            "model.index.json",
            r#"{"weight_map": {"a": "s.safetensors", "a": "t.safetensors"}}"#,
            r#"its weight_map names the tensor "a" twice"#,
        ),
        ("config.json", r#"{"heads": 1, "heads": 2}"#, "duplicate field ``heads`` at line 1"),
    ] {
        fs::write(at.join(file), held).expect("written");
        let args = if file == "config.json" { ["--config", file] } else { ["check", file] };
        let (what, _) = refused(&run(at, &args));
        assert!(what.starts_with(&format!("{file}: {}", said.replace("``", "`"))), "{what}");
    }
    fs::write(at.join("mask.npy"), npy("|b1", "(0, 4)", &[])).expect("written");
    let (what, fix) = refused(&run(at, &["--key-mask", "mask.npy"]));
    assert_eq!(what, "key_mask: is [0, 4], which has no rows");
    assert_eq!(fix, "give a row of 0 and 1 for every batch item");
}

#[test]
fn rows_without_a_place_are_not_counted_out() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    fs::write(at.join("rows.npy"), npy("<i8", "(68719476736, 0)", &[])).expect("written");
    for (flag, of, lacks) in
        [("--key-mask", "key_mask", "keys"), ("--positions", "positions", "tokens")]
    {
        let (what, _) = refused(&limited(at, "-v 600000", &[flag, "rows.npy"]));
        assert_eq!(what, format!("{of}: is [68719476736, 0], which has no {lacks}"));
    }
}

#[test]
fn a_system_without_open_files_says_how_to_get_more() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let mut map = serde_json::Map::new();
    for shard in 0..20 {
        let (name, file) = (format!("t{shard:02}"), format!("s{shard:02}.safetensors"));
        let header = json!({ &name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} });
        let header = header.to_string();
        let length = (header.len() as u64).to_le_bytes();
        fs::write(at.join(&file), [&length, header.as_bytes()].concat()).expect("written");
        map.insert(name, json!(file));
    }
    let index = json!({"weight_map": map}).to_string();
    fs::write(at.join("model.index.json"), index).expect("written");
    let (what, fix) = refused(&limited(at, "-n 10", &["check", "model.index.json"]));
    assert!(what.ends_with(".safetensors: too many open files"), "{what}");
    assert_eq!(fix, "allow more open files, for example by ulimit -n 1024");
}
