//! Recorded runs that are there as JSON and as safetensors: both files hold the same.

use std::path::{Path, PathBuf};

use mha_trace::file::{Entry, Record};

use super::common::bits;
use super::{fixtures, name};

#[test]
fn json_and_safetensors_hold_the_same_bits() {
    let twins = twins();
    assert!(twins.len() >= 2, "only {} runs are there in both formats", twins.len());
    for (json, safetensors) in twins {
        let [left, right] = [&json, &safetensors].map(|path| Record::read(path).expect("readable"));
        assert_eq!(left.config, right.config, "{}", name(&json));
        assert_eq!(names(&left), names(&right), "{}", name(&json));
        for (left, right) in left.entries.iter().zip(&right.entries) {
            assert_same(&json, left, right);
        }
    }
}

fn twins() -> Vec<(PathBuf, PathBuf)> {
    let is_json = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "json");
    let json = fixtures("golden").into_iter().filter(is_json);
    json.map(|path| (path.clone(), path.with_extension("safetensors")))
        .filter(|(_, twin)| twin.exists())
        .collect()
}

fn names(record: &Record) -> Vec<&str> {
    record.entries.iter().map(|entry| entry.name.as_str()).collect()
}

fn assert_same(path: &Path, left: &Entry, right: &Entry) {
    let step = format!("{}: {}", name(path), left.name);
    assert_eq!(left.axes, right.axes, "{step}");
    assert_eq!(left.tensor.dims(), right.tensor.dims(), "{step}");
    assert_eq!(left.tensor.dtype(), right.tensor.dtype(), "{step}");
    assert_eq!(bits(&left.tensor), bits(&right.tensor), "{step}");
}
