//! Fuzzing of the file readers: whatever the bytes are, reading them ends, and without a panic.

use std::io::{Cursor, Write};
use std::path::Path;

use mha_trace::file::Bundle;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

/// Opens the bytes as the file of that name would be, and reads every tensor.
pub fn read(name: &str, bytes: Vec<u8>) {
    let Ok(bundle) = Bundle::from_bytes(Path::new(name), bytes) else { return };
    for info in bundle.infos() {
        let Ok(Some(tensor)) = bundle.tensor(&info.name) else { continue };
        assert_eq!((tensor.dims(), tensor.dtype()), (info.shape.as_slice(), info.dtype));
    }
    let _ = bundle.read();
}

/// What is no archive becomes the first member of one, so that not every change breaks the archive.
pub fn archived(bytes: &[u8], members: &[(&str, &[u8])]) -> Vec<u8> {
    if bytes.starts_with(b"PK") {
        return bytes.to_vec();
    }
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for (at, (name, content)) in members.iter().enumerate() {
        zip.start_file(*name, stored).expect("starts");
        zip.write_all(if at == 0 { bytes } else { content }).expect("writes");
    }
    zip.finish().expect("finishes").into_inner()
}
