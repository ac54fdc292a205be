//! Every step of every recorded run: given ones bit for bit, computed ones within `torch.testing`'s tolerances.

use std::path::Path;

use candle_core::{DType, Tensor};
use mha_trace::Sources;
use mha_trace::config::Preset;
use mha_trace::file::{Entry, Output, Record};
use mha_trace::program::{Role, Step, Trace};
use mha_trace::{Config, Run, Settings, to_record};

use super::common::{bits, unravel, values};
use super::{fixtures, name};

#[test]
fn the_notebooks_are_among_the_recorded_runs() {
    let names: Vec<String> = fixtures("golden").iter().map(|path| name(path)).collect();
    assert!(names.len() > 30, "only {} files: {names:?}", names.len());
    for preset in Preset::ALL {
        assert!(names.contains(&format!("{preset}.safetensors")), "no file for {preset}");
    }
}

#[test]
fn every_recorded_run_is_reproduced_from_its_seed() {
    let differences: Vec<String> =
        fixtures("golden").iter().flat_map(|path| differences(path)).collect();
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}

/// A file that is written while its run is made is the one that is written of the whole trace, to the byte.
#[test]
fn a_file_that_grows_is_the_whole_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for path in fixtures("golden") {
        let settings = settings(&path, &read(&path));
        let run = Sources::load(&settings).and_then(|sources| Run::new(&settings, sources));
        let run = run.unwrap_or_else(|error| panic!("{}: {error}", name(&path)));
        let paths =
            ["whole", "grown"].map(|name| folder.path().join(name).with_extension("safetensors"));
        let [whole, grown] = paths.each_ref().map(|path| Output::create(path).expect("writable"));
        whole.write(&to_record(&run.trace().expect("runs"), run.config())).expect("writes");
        run.write(grown).expect("writes");
        let [whole, grown] = paths.map(|path| std::fs::read(path).expect("readable"));
        assert!(whole == grown, "{}", name(&path));
    }
}

/// The presets are the notebooks' settings: their recorded configs say the same.
#[test]
fn presets_resolve_to_the_recorded_configs() {
    for preset in Preset::ALL {
        let file = format!("{preset}.safetensors");
        let path = fixtures("golden").into_iter().find(|path| name(path) == file).expect("there");
        let mut recorded = Config::resolve(&settings(&path, &read(&path))).expect("valid");
        let settings = Settings { preset: Some(*preset), ..Settings::default() };
        let ours = Config::resolve(&settings).expect("valid");
        // Formal padding draws from a seed that the fixtures chose; the notebook sets none.
        recorded.plain.seed = ours.plain.seed;
        assert_eq!(ours, recorded, "{preset}");
    }
}

fn read(path: &Path) -> Record {
    Record::read(path).unwrap_or_else(|error| panic!("{error}"))
}

/// The record's config with its paths, which are relative to the file's folder, joined to it.
fn settings(path: &Path, record: &Record) -> Settings {
    let settings = record.config.clone().unwrap_or_else(|| panic!("{} has no config", name(path)));
    settings.in_folder(path.parent().expect("a file is in a folder"))
}

fn run(path: &Path, record: &Record) -> Trace {
    let settings = settings(path, record);
    let run = Sources::load(&settings).and_then(|sources| Run::new(&settings, sources));
    run.and_then(|run| run.trace()).unwrap_or_else(|error| panic!("{}: {error}", name(path)))
}

/// What differs between the file's steps and ours, one line per step.
fn differences(path: &Path) -> Vec<String> {
    let record = read(path);
    let trace = run(path, &record);
    let theirs: Vec<&str> = record.entries.iter().map(|entry| entry.name.as_str()).collect();
    let ours: Vec<&str> = trace.outer().map(|step| step.name.as_str()).collect();
    if ours != theirs {
        return vec![format!("{}: steps {ours:?}, expected {theirs:?}", name(path))];
    }
    let pairs = trace.outer().zip(&record.entries);
    let differences = pairs.filter_map(|(ours, theirs)| difference(ours, theirs));
    differences.map(|difference| format!("{}: {difference}", name(path))).collect()
}

fn difference(ours: &Step, theirs: &Entry) -> Option<String> {
    let step = ours.name;
    if Some(ours.axes.names()) != theirs.axes {
        return Some(format!("{step}: axes {}, expected {:?}", ours.axes, theirs.axes));
    }
    let kind = |tensor: &Tensor| (tensor.dtype(), tensor.dims().to_vec());
    if kind(&ours.value) != kind(&theirs.tensor) {
        let (ours, theirs) = (kind(&ours.value), kind(&theirs.tensor));
        return Some(format!("{step}: type and shape {ours:?}, expected {theirs:?}"));
    }
    let at = match ours.name.role() {
        Role::Computed => first_beyond_tolerance(&ours.value, &theirs.tensor),
        _ => first_unequal_bits(&ours.value, &theirs.tensor),
    }?;
    let cell = unravel(at, ours.value.dims());
    let (ours, theirs) = (values(&ours.value)[at], values(&theirs.tensor)[at]);
    Some(format!("{step}{cell:?} is {ours:?}, expected {theirs:?}"))
}

fn first_unequal_bits(ours: &Tensor, theirs: &Tensor) -> Option<usize> {
    bits(ours).into_iter().zip(bits(theirs)).position(|(ours, theirs)| ours != theirs)
}

pub fn first_beyond_tolerance(ours: &Tensor, theirs: &Tensor) -> Option<usize> {
    // `torch.testing.assert_close`'s defaults.
    let (relative, absolute) = match ours.dtype() {
        DType::F64 => (1e-7, 1e-7),
        _ => (1.3e-6, 1e-5),
    };
    let agree = |ours: f64, theirs: f64| {
        let same = ours.to_bits() == theirs.to_bits() || (ours.is_nan() && theirs.is_nan());
        let both = ours.is_finite() && theirs.is_finite();
        same || (both && (ours - theirs).abs() <= absolute + relative * theirs.abs())
    };
    values(ours).into_iter().zip(values(theirs)).position(|(ours, theirs)| !agree(ours, theirs))
}
