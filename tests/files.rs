//! Files that numpy, PyTorch and safetensors write (`fixtures/files.py`), and files that nobody should write.

use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use candle_core::{DType, Tensor};
use mha_trace::file::{Bundle, Output, Record};
use mha_trace::{Result, Run, Settings, Sources};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/files").join(name)
}

fn read(name: &str) -> Record {
    Record::read(&fixture(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn numbers(tensor: &Tensor) -> Vec<f64> {
    let wide = tensor.to_dtype(DType::F64).and_then(|tensor| tensor.flatten_all()?.to_vec1());
    wide.expect("numbers")
}

fn ramp(count: u8) -> Vec<f64> {
    (0..count).map(f64::from).collect()
}

fn named<'a>(record: &'a Record, name: &str) -> &'a Tensor {
    record.tensor(name).unwrap_or_else(|| panic!("no {name}"))
}

/// What is wrong, without the file's path, and what to do.
fn refusal<T>(read: Result<T>) -> (String, String) {
    let Err(error) = read else { panic!("was read") };
    let text = error.to_string();
    let (_, what) = text.split_once(": ").expect("a path");
    (what.to_owned(), error.fix().to_string())
}

fn refused_bytes(name: &str, bytes: &[u8]) -> String {
    refusal(Bundle::from_bytes(Path::new(name), bytes.to_vec()).and_then(Bundle::read)).0
}

/// An npy file of that header.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).expect("short");
    [b"\x93NUMPY\x01\0", length.to_le_bytes().as_slice(), header.as_bytes(), data].concat()
}

fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let stored = zip::CompressionMethod::Stored;
        let options = SimpleFileOptions::default().compression_method(stored);
        zip.start_file(*name, options).expect("started");
        zip.write_all(bytes).expect("written");
    }
    zip.finish().expect("finished").into_inner()
}

#[test]
fn every_type_and_layout_of_npy_is_read() {
    for (name, dtype) in [
        ("f2", DType::F16),
        ("f2-big", DType::F16),
        ("f4", DType::F32),
        ("f4-big", DType::F32),
        ("f8", DType::F64),
        ("f8-big", DType::F64),
        ("bf16", DType::BF16),
        ("fortran-big", DType::F32),
        ("version-2", DType::F32),
        ("version-3", DType::F32),
        ("i1", DType::I64),
        ("u1", DType::I64),
        ("i2", DType::I64),
        ("u2-big", DType::I64),
        ("i4-big", DType::I64),
        ("u4", DType::I64),
        ("i8", DType::I64),
        ("i8-big", DType::I64),
        ("u8-big", DType::I64),
    ] {
        let record = read(&format!("{name}.npy"));
        let tensor = named(&record, "");
        assert_eq!((tensor.dtype(), tensor.dims()), (dtype, [2, 3].as_slice()), "{name}");
        assert_eq!(numbers(tensor), ramp(6), "{name}");
    }
    let truths = read("b1.npy");
    assert_eq!(named(&truths, "").dtype(), DType::U8);
    assert_eq!(numbers(named(&truths, "")), [0., 1., 1., 1., 1., 1.]);
    let fortran = read("fortran.npy");
    assert_eq!(named(&fortran, "").dims(), [2, 3, 4]);
    assert_eq!(numbers(named(&fortran, "")), ramp(24));
    let scalar = read("scalar.npy");
    assert_eq!(named(&scalar, "").dims(), [0_usize; 0]);
    assert_eq!(numbers(named(&scalar, "")), [1.5]);
    assert_eq!(named(&read("empty.npy"), "").dims(), [0, 3]);
}

#[test]
fn arrays_that_are_no_tensors_are_refused_by_what_they_are() {
    for (name, what) in [
        ("object", "is an array of Python objects, stored as a pickle"),
        ("structured", "is a structured array"),
        ("complex", "is an array of complex numbers (<c8)"),
        ("text", "is an array of text (<U2)"),
        ("time", "is an array of times (<M8[D])"),
        ("too-large", "holds an integer beyond 9223372036854775807"),
    ] {
        let (refused, fix) = refusal(Record::read(&fixture(&format!("{name}.npy"))));
        assert_eq!(refused, what);
        assert!(!fix.is_empty());
    }
}

#[test]
fn npz_is_read_in_its_order_packed_or_not() {
    for name in ["stored.npz", "deflated.npz"] {
        let record = read(name);
        let names: Vec<&str> = record.entries.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names[..3], ["x", "mask", "a/b"]);
        assert_eq!(numbers(named(&record, "x")), ramp(6));
        assert_eq!(numbers(named(&record, "mask")), [0., 0., 0., 1., 1., 1.]);
        assert_eq!(named(&record, "mask").dtype(), DType::U8);
        assert_eq!(numbers(named(&record, "a/b")), ramp(6));
    }
    assert_eq!(named(&read("deflated.npz"), "zeros").dims(), [10_000]);
    let record = read("config.npz");
    assert_eq!(record.config.expect("a config").heads, Some(4));
    assert_eq!(record.entries.len(), 1);
}

#[test]
fn a_tensor_that_cannot_be_read_leaves_the_others() {
    for (file, unreadable, what) in [
        ("mixed.npz", "names", "tensor \"names\": is an array of text (<U1)"),
        (
            "mixed.pt",
            "complex",
            "tensor \"complex\": is of type ComplexFloat, which cannot be read",
        ),
    ] {
        let bundle = Bundle::open(&fixture(file)).expect("opens");
        assert!(bundle.tensor("x").expect("reads").is_some());
        assert_eq!(refusal(bundle.tensor(unreadable)).0, what);
    }
}

#[test]
fn a_state_dict_is_read_as_safetensors_has_it() {
    for name in ["state-dict.pt", "pytorch_model.bin"] {
        let (left, right) = (read(name), read("state-dict.safetensors"));
        assert_eq!(left.entries.len(), right.entries.len());
        for entry in &right.entries {
            assert_eq!(numbers(named(&left, &entry.name)), numbers(&entry.tensor));
        }
    }
}

#[test]
fn every_type_of_a_checkpoint_is_read() {
    for file in ["types.pth", "protocol-4.pt", "protocol-5.pt", "types.safetensors"] {
        let record = read(file);
        for (name, dtype) in [
            ("float64", DType::F64),
            ("float32", DType::F32),
            ("float16", DType::F16),
            ("bfloat16", DType::BF16),
            ("uint8", DType::I64),
            ("int8", DType::I64),
            ("int16", DType::I64),
            ("int32", DType::I64),
            ("int64", DType::I64),
            ("uint16", DType::I64),
            ("uint32", DType::I64),
            ("uint64", DType::I64),
        ] {
            let tensor = named(&record, name);
            assert_eq!((tensor.dtype(), tensor.dims()), (dtype, [2, 3].as_slice()), "{name}");
            assert_eq!(numbers(tensor), ramp(6), "{file} {name}");
        }
        assert_eq!(named(&record, "bool").dtype(), DType::U8);
        assert_eq!(numbers(named(&record, "bool")), [0., 1., 1., 1., 1., 1.]);
    }
}

#[test]
fn views_of_one_storage_are_read() {
    let record = read("views.pt");
    let transposed = [0., 4., 8., 1., 5., 9., 2., 6., 10., 3., 7., 11.];
    for (name, shape, values) in [
        ("whole", [3, 4].as_slice(), ramp(12)),
        ("transposed", &[4, 3], transposed.to_vec()),
        ("row", &[4], vec![4., 5., 6., 7.]),
        ("column", &[3], vec![1., 5., 9.]),
        ("expanded", &[2, 3], vec![1., 1., 1., 2., 2., 2.]),
        ("scalar", &[], vec![5.]),
        ("empty", &[0, 2], vec![]),
    ] {
        let tensor = named(&record, name);
        assert_eq!((tensor.dims(), numbers(tensor)), (shape, values), "{name}");
    }
}

#[test]
fn nested_checkpoints_are_flattened_and_other_objects_passed_over() {
    let record = read("nested.pt");
    let found: Vec<(&str, Vec<f64>)> =
        record.entries.iter().map(|entry| (entry.name.as_str(), numbers(&entry.tensor))).collect();
    let expected = [
        ("state_dict.weight", vec![1., 1.]),
        ("layers.0.bias", vec![0.]),
        ("layers.1.0", vec![2.]),
        ("by_number.7", vec![7.]),
    ];
    assert_eq!(found, expected);
    assert_eq!(numbers(named(&read("decoder_layer_weights.pt"), "a")), ramp(6));
    for name in ["single.pt", "parameter.pt"] {
        assert_eq!(numbers(named(&read(name), "")), ramp(3));
    }
}

#[test]
fn what_is_no_state_dict_is_refused_with_the_way_to_make_one() {
    for (name, what, fix) in [
        (
            "legacy.pt",
            "is in the format of PyTorch before 1.6",
            "save it again with a recent PyTorch: torch.save(torch.load(path), path)",
        ),
        (
            "module.pt",
            "is a pickled module, not a state dict",
            "save its tensors: torch.save(model.state_dict(), path)",
        ),
        (
            "script.pt",
            "is a TorchScript program, not a state dict",
            "save its tensors: torch.save(torch.jit.load(path).state_dict(), path)",
        ),
    ] {
        assert_eq!(refusal(Record::read(&fixture(name))), (what.to_owned(), fix.to_owned()));
    }
}

#[test]
fn a_checkpoint_in_several_files_is_one() {
    let bundle = Bundle::open(&fixture("model.safetensors.index.json")).expect("opens");
    let names: Vec<&str> = bundle.infos().iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    assert_eq!(numbers(&bundle.tensor("second").expect("reads").expect("is there")), [1., 1.]);
    assert!(bundle.tensor("unnamed").expect("reads").is_none());
    assert_eq!(read("pytorch_model.bin.index.json").entries.len(), 1);
}

#[test]
fn an_index_that_does_not_hold_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let shard = folder.path().join("a.safetensors");
    std::fs::copy(fixture("model-00001-of-00002.safetensors"), shard).expect("copied");
    let index = folder.path().join("any.json");
    for (file, what) in [
        ("../a.safetensors", "which is not one beside it"),
        ("/a.safetensors", "which is not one beside it"),
        ("b\\a.safetensors", "which is not one beside it"),
        ("..", "which is not one beside it"),
        ("", "which is not one beside it"),
        ("any.json", "which is not a file of tensors"),
        ("b.safetensors", "which its weight_map names, is missing beside it"),
        ("a.safetensors", "holds no tensor \"x\", although the index says so"),
    ] {
        let text = serde_json::json!({"weight_map": {"x": file}}).to_string();
        std::fs::write(&index, text).expect("written");
        let (refused, _) = refusal(Bundle::open(&index));
        assert!(refused.ends_with(what), "{refused}");
    }
}

#[test]
fn reading_one_tensor_leaves_the_others_alone() {
    // The data of "b" is cut away: "a" is read all the same once the file says that it is long enough.
    let header = br#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1000000],"data_offsets":[4,4000004]}}"#;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("large.safetensors");
    let mut file = std::fs::File::create(&path).expect("created");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("written");
    file.write_all(header).expect("written");
    file.write_all(&1.5_f32.to_le_bytes()).expect("written");
    file.set_len(8 + header.len() as u64 + 4_000_004).expect("resized");
    let bundle = Bundle::open(&path).expect("opens");
    file.set_len(8 + header.len() as u64 + 4).expect("resized");
    assert_eq!(numbers(&bundle.tensor("a").expect("reads").expect("is there")), [1.5]);
    assert_eq!(refusal(bundle.tensor("b")).0, "its data ends before its header says");
}

#[test]
fn extensions_are_read_in_any_case_and_unknown_ones_told() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("RUN.NPZ");
    std::fs::copy(fixture("stored.npz"), &path).expect("copied");
    assert_eq!(Record::read(&path).expect("reads").entries.len(), 3);
    let known = "use .json, .safetensors, .npz, .npy, .gguf, .pt, .pth or .bin";
    let unknown = refusal(Bundle::from_bytes(Path::new("x.txt"), Vec::new()));
    assert_eq!(unknown, ("`.txt` is not a known format".to_owned(), known.to_owned()));
    let what = "`.npy` is a format that is read, not written".to_owned();
    let unwritten = refusal(Output::create(Path::new("x.npy")));
    assert_eq!(unwritten, (what, "use .json, .safetensors, .npz, .html, .md or .tex".to_owned()));
}

#[test]
fn every_file_cut_short_is_refused() {
    let names = ["f4.npy", "stored.npz", "deflated.npz", "state-dict.pt", "state-dict.safetensors"];
    for name in names {
        let bytes = std::fs::read(fixture(name)).expect("readable");
        for length in 0..bytes.len() {
            refused_bytes(name, &bytes[..length]);
        }
    }
}

#[test]
fn lying_npy_headers_are_refused() {
    for (header, data, what) in [
        (
            "(9223372036854775807, 9223372036854775807)",
            0,
            "its shape [9223372036854775807, 9223372036854775807] is beyond any memory",
        ),
        (
            "(0, 9223372036854775807, 4)",
            0,
            "its shape [0, 9223372036854775807, 4] is beyond any memory",
        ),
        ("(1000000000000,)", 4, "its header says 4000000000000 bytes of data, and it holds 4"),
        ("(1,)", 8, "its header says 4 bytes of data, and it holds 8"),
    ] {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {header}}}");
        let bytes = npy(&text, &vec![0; data]);
        assert_eq!(refused_bytes("x.npy", &bytes), what);
        refused_bytes("x.npz", &zipped(&[("x.npy", &bytes)]));
    }
    let ones = "1, ".repeat(33);
    for (text, what) in [
        (
            format!("{{'descr': '<f4', 'fortran_order': True, 'shape': ({ones})}}"),
            "beyond any memory",
        ),
        ("{'descr': '<f4', 'fortran_order': True, 'shape': (-1,)}".to_owned(), "is not understood"),
        ("{'descr': 'é'}".to_owned(), "is not understood"),
        (String::new(), "its header \"\" is not understood"),
    ] {
        let refused = refused_bytes("x.npy", &npy(&text, &[0; 4]));
        assert!(refused.ends_with(what), "{refused}");
    }
    let long = [b"\x93NUMPY\x02\0".as_slice(), &[0xff; 4]].concat();
    assert_eq!(refused_bytes("x.npy", &long), "its header says that it is 4294967295 bytes long");
    let version = b"\x93NUMPY\x09\0";
    assert_eq!(refused_bytes("x.npy", version), "is an npy array of version 9");
}

#[test]
fn lying_archives_are_refused() {
    let array = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", &[0; 4]);
    let whole = zipped(&[("a.npy", &array), ("b.npy", &array)]);
    let directory = |bytes: &[u8], count: usize| {
        let starts = bytes.windows(4).enumerate().filter(|(_, window)| window == b"PK\x01\x02");
        starts.map(|(at, _)| at).nth(count).expect("an entry")
    };
    let [first, second] = [0, 1].map(|count| directory(&whole, count));
    // Both entries point at the first member.
    let mut overlapping = whole.clone();
    overlapping[second + 42..second + 46].fill(0);
    assert_eq!(refused_bytes("x.npz", &overlapping), "has members that share bytes");
    let mut large = whole.clone();
    large[first + 24..first + 28].copy_from_slice(&u32::MAX.wrapping_sub(1).to_le_bytes());
    let what = "member \"a.npy\" says that it is larger than it can be";
    assert_eq!(refused_bytes("x.npz", &large), what);
    let mut twice = whole;
    twice[second + 46] = b'a';
    assert_eq!(refused_bytes("x.npz", &twice), "holds two members by one name");
    // A 64-bit directory that counts 2 to the 40th members.
    let mut many = zipped(&[("a.npy", &array)]);
    let end = many.len() - 22;
    let record = [0, 1 << 40, 1 << 40, 1 << 46, directory(&many, 0) as u64];
    let record = record.iter().flat_map(|number| number.to_le_bytes());
    let record: Vec<u8> =
        b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0".iter().copied().chain(record).collect();
    let locator = [b"PK\x06\x07\0\0\0\0".as_slice(), &(end as u64).to_le_bytes(), &[1, 0, 0, 0]];
    many.splice(end..end, [record, locator.concat()].concat());
    assert_eq!(refused_bytes("x.npz", &many), "says that it has more members than it can");
    assert_eq!(refused_bytes("x.npz", &array), "is not an npz archive, though its name says so");
}

#[test]
fn a_checkpoint_with_long_lists_of_numbers_is_read() {
    // {"losses": [1, 1, …], "pairs": [(1, 2), (1, 2), …]}
    let (losses, pairs) = (b"K\x01".repeat(100_000), b"K\x01K\x02\x86".repeat(10_000));
    let pickle =
        [b"}U\x06losses](".as_slice(), &losses, b"esU\x05pairs](", &pairs, b"es."].concat();
    let bundle = Bundle::from_bytes(Path::new("x.pt"), zipped(&[("a/data.pkl", &pickle)]));
    assert!(bundle.expect("opens").infos().is_empty());
}

/// A checkpoint whose pickle is one tensor of four floats, of that offset, size and stride.
fn checkpoint(offset: &[u8], size: &[u8], stride: &[u8]) -> Vec<u8> {
    let pickle = [
        b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
            .as_slice(),
        b"X\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ",
        offset,
        b"(",
        size,
        b"t(",
        stride,
        b"t\x89}tR.",
    ];
    zipped(&[("a/data.pkl", &pickle.concat()), ("a/data/0", &[0; 16])])
}

#[test]
fn lying_checkpoints_are_refused() {
    let huge = b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f".as_slice();
    let bundle = Bundle::from_bytes(Path::new("x.pt"), checkpoint(b"K\x01", b"K\x03", b"K\x01"));
    assert_eq!(numbers(named(&bundle.and_then(Bundle::read).expect("reads"), "")), [0.; 3]);
    let beyond = "reaches beyond its storage";
    let negative = "has a size, offset or stride that is no whole number from 0 up";
    let repeated =
        "its tensors are 4.0 GiB from a file of 331 B: they are views that repeat its numbers";
    for (offset, size, stride, what) in [
        (b"K\x02".as_slice(), b"K\x03".as_slice(), b"K\x01".as_slice(), beyond),
        (b"K\x00", b"K\x04", b"K\x02", beyond),
        (huge, b"K\x01", b"K\x01", beyond),
        (b"K\x00", b"K\x02", huge, beyond),
        (b"K\x00", b"J\xff\xff\xff\xff", b"K\x01", negative),
        (b"K\x00", b"K\x02", b"J\xff\xff\xff\xff", negative),
        (b"K\x00", b"J\0\0\0\x40", b"K\x00", repeated),
        (b"K\x00", b"K\x02K\x02", b"K\x01", "its sizes [2, 2] and strides [1] make no tensor"),
    ] {
        let bytes = checkpoint(offset, size, stride);
        assert_eq!(refused_bytes("x.pt", &bytes), what);
    }
    let sizes = [huge, huge].concat();
    let refused = refused_bytes("x.pt", &checkpoint(b"K\x00", &sizes, b"K\x00K\x00"));
    assert!(refused.ends_with("make no tensor"), "{refused}");
}

#[test]
fn dicts_without_end_are_refused() {
    let of_pickle = |pickle: &[u8]| refused_bytes("x.pt", &zipped(&[("a/data.pkl", pickle)]));
    // A dict that holds itself.
    assert_eq!(of_pickle(b"}q\0U\x01ah\0s."), "its dicts hold each other without end");
    // Each of 40 dicts holds the one before twice: 2 to the 40th paths.
    let mut doubling = b"}q\0".to_vec();
    for level in 1..=40 {
        doubling.extend([b'}', b'q', level, b'(', b'U', 1, b'a', b'h', level - 1]);
        doubling.extend([b'U', 1, b'b', b'h', level - 1, b'u']);
    }
    doubling.push(b'.');
    assert_eq!(of_pickle(&doubling), "its dicts hold the same things again and again");
    assert_eq!(of_pickle(b"cos\nsystem\nU\x04true\x85R."), "is a pickled module, not a state dict");
    let other = zipped(&[("a.txt", b"")]);
    let what = "holds no data.pkl: it is a zip archive, but not a PyTorch checkpoint";
    assert_eq!(refused_bytes("x.pt", &other), what);
    let what = "is not a PyTorch checkpoint, though its name says so";
    assert_eq!(refused_bytes("x.bin", b"\0\0"), what);
}

#[test]
fn lying_safetensors_headers_are_refused() {
    for (header, what) in [
        (
            r#"{"a":{"dtype":"F32","shape":[9223372036854775807,4],"data_offsets":[0,0]}}"#,
            "its header is broken: ",
        ),
        (
            r#"{"a":{"dtype":"F32","shape":[0,9223372036854775807,4],"data_offsets":[0,0]}}"#,
            "tensor \"a\": its shape ",
        ),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, "its header is broken: "),
        (
            r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}}"#,
            "its header is broken: ",
        ),
        (
            r#"{"a":{"dtype":"F8_E8M0","shape":[0],"data_offsets":[0,0]}}"#,
            "tensor \"a\": is of type F8_E8M0",
        ),
        (r#"{"a":1}"#, "its header is broken: "),
        ("{", "its header is broken: "),
    ] {
        let bytes = [&(header.len() as u64).to_le_bytes(), header.as_bytes()].concat();
        let refused = refused_bytes("x.safetensors", &bytes);
        assert!(refused.starts_with(what), "{refused}");
    }
    let long = [&u64::MAX.to_le_bytes(), b"{".as_slice()].concat();
    assert_eq!(refused_bytes("x.safetensors", &long), "its header is too large");
}

/// What can be written while its run is made, and what cannot.
#[test]
fn safetensors_can_grow() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let output = |name| Output::create(&folder.path().join(name)).expect("writable");
    let run = Run::new(&Settings::default(), Sources::default()).expect("valid");
    assert!(output("run.safetensors").can_grow());
    run.write(output("run.safetensors")).expect("writes");
    assert!(!output("run.json").can_grow());
    assert!(run.write(output("run.json")).is_err());
    run.compute().expect("runs");
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
}
