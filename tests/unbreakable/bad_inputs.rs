//! Bad files in every place where files are named, and bad values of flags: each is refused by one line of what is wrong
//! and one of what to do, at once and without much memory.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread::scope;
use std::time::{Duration, Instant};

use super::{limited, npy, text, zipped};

/// A refusal takes hundredths of a second; this is for a machine that does much else.
const AT_ONCE: Duration = Duration::from_secs(5);

/// An address space in which no more than 100 MB can be used beside the program and its threads.
const MEMORY: &str = "-v 300000";

/// A safetensors file of that header.
fn tensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// A checkpoint of that pickle.
fn checkpoint(pickle: &[u8]) -> Vec<u8> {
    zipped(&[("a/data.pkl", pickle)])
}

/// A trace of that only step.
fn trace(step: &str) -> Vec<u8> {
    format!(r#"{{"format":"mha-trace","version":1,"steps":[{step}]}}"#).into_bytes()
}

/// Files that nothing can be made of, by their names.
fn files() -> Vec<(&'static str, Vec<u8>)> {
    let json = |text: &str| text.as_bytes().to_vec();
    let gguf = |version: u32, tensors: u64| {
        [b"GGUF".as_slice(), &version.to_le_bytes(), &tensors.to_le_bytes(), &[0; 8]].concat()
    };
    vec![
        ("empty.json", json("")),
        ("cut.json", json(r#"{"steps": ["#)),
        ("word.json", json("hello")),
        ("zeros.json", vec![0; 3]),
        ("latin.json", b"\"\xff\"".to_vec()),
        ("deep.json", json(&"[".repeat(100_000))),
        ("ragged.json", json("[[1, 2], [3]]")),
        ("mixed.json", json("[1, true]")),
        ("text.json", json(r#"["a"]"#)),
        ("object.json", json(r#"{"a": {"b": 1}}"#)),
        ("twice.json", json(r#"{"a": [1], "a": [2]}"#)),
        ("version.json", json(r#"{"format": "mha-trace", "version": 99, "steps": []}"#)),
        ("format.json", json(r#"{"format": ["other"]}"#)),
        ("no-steps.json", trace("")),
        ("no-data.json", trace(r#"{"name": "output"}"#)),
        ("shape.json", trace(r#"{"name": "output", "shape": [3], "data": [1]}"#)),
        ("dtype.json", trace(r#"{"name": "output", "dtype": "f7", "data": [1]}"#)),
        ("elsewhere.index.json", json(r#"{"weight_map": {"a": "../x.safetensors"}}"#)),
        ("lost.index.json", json(r#"{"weight_map": {"a": "x.safetensors"}}"#)),
        ("empty.npy", vec![]),
        ("magic.npy", b"\x93NUMPY".to_vec()),
        ("header.npy", b"\x93NUMPY\x01\0\xff\xff".to_vec()),
        ("huge.npy", npy("<f4", "(9223372036854775807,)", b"")),
        ("short.npy", npy("<f4", "(4,)", &[0; 8])),
        ("long.npy", npy("<f4", "(1,)", &[0; 8])),
        ("objects.npy", npy("|O", "(1,)", &[0; 8])),
        ("negative.npy", npy("<f4", "(-1,)", b"")),
        ("axes.npy", npy("<f4", &format!("({})", "1,".repeat(40)), &[0; 4])),
        ("empty.npz", vec![]),
        ("no-zip.npz", b"PKxx".to_vec()),
        ("junk.npz", zipped(&[("output.npy", b"junk")])),
        ("short.npz", zipped(&[("output.npy", &npy("<f4", "(4,)", &[0; 4]))])),
        ("nothing.npz", zipped(&[])),
        ("empty.safetensors", vec![]),
        ("length.safetensors", [[0xff; 8].as_slice(), b"{"].concat()),
        ("header.safetensors", tensors(r#"{"a": 1}"#, b"")),
        (
            "hole.safetensors",
            tensors(r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}"#, &[0; 8]),
        ),
        ("more.safetensors", tensors("{}", &[0; 8])),
        (
            "dtype.safetensors",
            tensors(r#"{"a": {"dtype": "X9", "shape": [1], "data_offsets": [0, 4]}}"#, &[0; 4]),
        ),
        ("about.safetensors", tensors(r#"{"__metadata__": {"mha-trace": "{"}}"#, b"")),
        ("nothing.safetensors", tensors("{}", b"")),
        ("empty.pt", vec![]),
        ("text.pt", b"hello".to_vec()),
        ("other.pt", zipped(&[("a.txt", b"")])),
        ("broken.pt", checkpoint(b"\x80\x02.")),
        ("module.pt", checkpoint(b"cos\nsystem\nU\x04true\x85R.")),
        ("instruction.pt", checkpoint(b"i.")),
        ("circle.pt", checkpoint(b"}q\0U\x01ah\0s.")),
        ("empty.gguf", vec![]),
        ("magic.gguf", b"GGUF".to_vec()),
        ("version.gguf", gguf(9, 0)),
        ("many.gguf", gguf(3, 1 << 60)),
        ("extension", b"x".to_vec()),
        ("unknown.xyz", b"x".to_vec()),
        ("page.html", b"<p>".to_vec()),
    ]
}

/// The places of `*` that a file is named in.
const USES: [&[&str]; 8] = [
    &["check", "*"],
    &["diff", "*", "good.json"],
    &["diff", "good.json", "*"],
    &["--config", "*", "-q", "-o", "new.json"],
    &["--x", "*"],
    &["--weights", "*"],
    &["--attn-mask", "*"],
    &["explain", "output", "*"],
];

/// Flags that take a number, and what is none.
const NUMBERS: [&str; 16] = [
    "--heads",
    "--batch",
    "--seq-len",
    "--d-model",
    "--head-dim",
    "--kv-heads",
    "--decimals",
    "--window",
    "--chunk",
    "--seed",
    "--dropout",
    "--rope-base",
    "--edge",
    "--head",
    "--batch-item",
    "--width",
];
const NO_NUMBERS: [&str; 7] =
    ["x", "", "-", "1e400x", "9999999999999999999999999999999999999x", "\u{202e}1", "0x10"];

/// Other values and commands that cannot be.
const OTHERS: [&[&str]; 61] = [
    &["--heads", "0"],
    &["--heads", "3"],
    &["--seq-len", "0"],
    &["--batch", "0"],
    &["--kv-heads", "3"],
    &["--dropout", "2"],
    &["--dropout", "-1"],
    &["--mask", "sideways"],
    &["--dtype", "f7"],
    &["--lengths", "x"],
    &["--key-mask", "2"],
    &["--preset", "nothing"],
    &["--queries", "9..3"],
    &["--rope", "x"],
    &["--rope", "half", "--rope-offset", "18446744073709551615"],
    &["--q-temperature", "1", "--q-temperature-offset", "18446744073709551615"],
    &["--rope-scaling", "{"],
    &["--rope-scaling", "[]"],
    &["--positions", "x"],
    &["--segments", "9"],
    &["--start", "nowhere"],
    &["--steps", "nothing"],
    &["--color", "pink"],
    &["--format", "xml"],
    &["-o", "nowhere/x.json"],
    &["-o", "folder"],
    &["-o", "x.xyz"],
    &["-o", ""],
    &["-o", "x.npy"],
    &["-o", "new.json", "-o", "new.json"],
    &["--head", "9"],
    &["--batch-item", "9"],
    &["--prefix", "nothing"],
    &["--layer", "9"],
    &["--model-config", "missing.json"],
    &["--scores", "x"],
    &["--attn-bias", "missing.npy"],
    &["--q", "missing.npy"],
    &["-b", "99999999", "-o", "new.json"],
    &["-t", "4000000", "-o", "new.npz"],
    &["-d", "99999999999"],
    &["explain", "nothing"],
    &["explain", "scores[9,9,9,9]"],
    &["explain", "scores[0]"],
    &["explain", "scores[["],
    &["explain", ""],
    &["explain", "scores", "--depth", "0"],
    &["explain", "scores", "--depth", "2"],
    &["bugs", "nothing"],
    &["completions", "csh"],
    &["check"],
    &["diff", "good.json"],
    &["nothing"],
    &["--nothing"],
    &["check", "good.json", "--map", "x"],
    &["check", "good.json", "--map", "a=b"],
    &["check", "good.json", "--rtol", "nothing=1"],
    &["check", "good.json", "-o", "good.json"],
    &["check", "good.json", "-o", "new.json"],
    &["diff", "good.json:nothing", "good.json"],
    &["shapes", "--heads", "3"],
];

/// What is wrong with the refusal of a command, if anything is.
fn fault(folder: &Path, args: &[&str]) -> Option<String> {
    let start = Instant::now();
    let output = limited(folder, MEMORY, args);
    let (took, said) = (start.elapsed(), text(&output.stderr));
    let lines: Vec<&str> = said.trim_end().lines().collect();
    let by_us = matches!(lines[..], [what, fix] if what.starts_with("error: ") && fix.starts_with("help: "));
    // Flags are refused by clap, which says where to read on.
    let by_clap = lines.first().is_some_and(|what| what.starts_with("error: "))
        && lines.last().is_some_and(|last| last.contains("try '--help'"));
    let is_refused = output.status.code() == Some(2) && output.stdout.is_empty();
    let is_told = by_us || by_clap;
    (!is_refused || !is_told || took > AT_ONCE)
        .then(|| format!("{args:?}: {} after {took:?}: {said}", output.status))
}

#[test]
fn whatever_is_bad_is_refused_in_two_lines() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let files = files();
    for (name, bytes) in &files {
        fs::write(at.join(name), bytes).expect("written");
    }
    fs::create_dir(at.join("folder")).expect("made");
    assert!(super::run(at, &["-q", "-o", "good.json"]).status.success());
    let before = super::names(at);
    let missing = ["missing.json", "missing/x.json", "missing.npz", "folder"];
    let named = files.iter().map(|(name, _)| *name).chain(missing);
    let of_files = named.flat_map(|file| {
        USES.map(|args| args.iter().map(|arg| if *arg == "*" { file } else { *arg }).collect())
    });
    let of_numbers = NUMBERS.iter().flat_map(|flag| NO_NUMBERS.map(|value| vec![*flag, value]));
    let others = OTHERS.iter().map(|args| args.to_vec());
    let all: Vec<Vec<&str>> = of_files.chain(of_numbers).chain(others).collect();
    assert!(all.len() > 600, "{}", all.len());
    let left = Mutex::new(all.iter());
    let faults = Mutex::new(Vec::new());
    scope(|threads| {
        for _ in 0..4 {
            threads.spawn(|| {
                loop {
                    let next = left.lock().expect("whole").next();
                    let Some(args) = next else { return };
                    let fault = fault(at, args);
                    faults.lock().expect("whole").extend(fault);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("whole");
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), all.len(), faults.join("\n"));
    assert_eq!(super::names(at), before);
}

/// What a refusal takes at most, whatever it repeats.
const LONGEST: usize = 2048;

/// Commands that repeat a word, `*`: as a name of a tensor, a key or a value in a file, and on the command line.
const REPEAT: [&[&str]; 24] = [
    &["check", "tensor.json"],
    &["check", "two.json"],
    &["check", "step.json"],
    &["check", "key.json"],
    &["check", "value.json"],
    &["check", "index.json"],
    &["diff", "tensor.json", "index.json"],
    &["diff", "--by-layer", "tensor.json", "step.json"],
    &["check", "--format", "json", "two.json"],
    &["--model-config", "model.json"],
    &["--model-config", "scaling.json"],
    &["--weights", "two.json"],
    &["check", "tensor.json:*"],
    &["check", "tensor.json", "--map", "*=x"],
    &["check", "tensor.json", "--map", "x=*"],
    &["explain", "*"],
    &["check", "*", "*"],
    &["diff", "--by-layer", "*", "*"],
    &["*"],
    &["--*"],
    &["--heads", "*"],
    &["--key-mask", "*"],
    &["--tokens=*", "-t", "2"],
    &["bugs", "*", "*"],
];

#[test]
fn long_words_make_no_long_refusal() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = folder.path();
    let words = [
        "x".repeat(100_000),
        "ab ".repeat(33_000),
        "`heads`=".repeat(12_000),
        "\u{5b57}".repeat(33_000),
    ];
    for word in words {
        let model = r#""hidden_size": 8, "num_attention_heads": 2"#;
        for (file, held) in [
            ("tensor.json", format!(r#"{{"{word}": [1, 2]}}"#)),
            ("two.json", format!(r#"{{"{word}": [1], "{word}2": [2], "scores": [[1]]}}"#)),
            (
                "step.json",
                format!(
                    r#"{{"format": "mha-trace", "version": 1, "steps": [{{"name": "{word}", "dtype": "{word}", "data": [1]}}]}}"#
                ),
            ),
            (
                "key.json",
                format!(
                    r#"{{"format": "mha-trace", "version": 1, "config": {{"{word}": 1}}, "steps": []}}"#
                ),
            ),
            (
                "value.json",
                format!(
                    r#"{{"format": "mha-trace", "version": 1, "config": {{"mask": "{word}"}}, "steps": []}}"#
                ),
            ),
            ("index.json", format!(r#"{{"weight_map": {{"{word}": "{word}"}}}}"#)),
            ("model.json", format!(r#"{{"model_type": "{word}", "{word}": 1}}"#)),
            (
                "scaling.json",
                format!(
                    r#"{{"model_type": "llama", {model}, "rope_scaling": {{"rope_type": "{word}"}}}}"#
                ),
            ),
        ] {
            fs::write(at.join(file), held).expect("written");
        }
        for (args, language) in REPEAT.iter().flat_map(|args| [(args, "en"), (args, "zh")]) {
            let args: Vec<String> = args.iter().map(|arg| arg.replace('*', &word)).collect();
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let output = super::run(at, &[&["--lang", language], &args[..]].concat());
            let said = text(&output.stderr);
            let start: String = format!("{args:?}: {said}").chars().take(300).collect();
            assert_eq!(output.status.code(), Some(2), "{start}");
            assert!(!said.is_empty() && said.len() <= LONGEST, "{} bytes: {start}", said.len());
        }
    }
}
