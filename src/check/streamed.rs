//! Files that state their run and are as it makes them, checked while it is made: no more of either side is in memory than a
//! step takes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use candle_core::{DType, Tensor};
use rayon::prelude::*;

use super::compare::{Comparison, Parts, compare};
use super::contradiction::against_its_config;
use super::half::is_of_softmax;
use super::non_finite::{first_of, is_amiss};
use super::readings::readings;
use super::step_report::StepReport;
use super::tolerance::{Tolerance, Tolerances};
use base::error::{Error, Result};
use config::Settings;
use file::{Bundle, InFile, Record};
use foreign::says_a_setting;
use program::{CHUNK, Misread, Name, Numbers, Precision, Receiver, Step, first_number};
use run::{Run, fits_step};

/// The recorded steps beside those of the run, if all agree and nothing else is to be said of them. Otherwise, or where that
/// cannot be told, the file is to be checked as a whole.
///
/// # Errors
/// If the file cannot be read, or does not fit its settings or the flags.
pub fn same(
    files: &mut Bundle,
    flags: &Settings,
    tolerances: &Tolerances,
) -> Result<Option<(Run, Vec<StepReport>)>> {
    let asks_for_more = tolerances.ignores_padding || tolerances.flash;
    let says_else = flags.seed.is_some() || flags.preset.is_some();
    let Some(config) = files.config().filter(|_| !asks_for_more && !says_else).cloned() else {
        return Ok(None);
    };
    let starts = config.given_steps();
    let is_given = |name: Name| name.is_given() || starts.contains(&name);
    let names: Vec<_> = files.infos().iter().map(|info| Name::in_files(&info.name)).collect();
    let given = names.iter().enumerate().filter(|(_, name)| name.is_some_and(is_given));
    let entries = given.map(|(at, _)| files.entry(at)).collect::<Result<Vec<_>>>()?;
    let is_half = entries.iter().any(|entry| is_half(entry.tensor.dtype()));
    let record = Record { config: Some(config), entries };
    let mut readings = readings(&record, flags)?.into_iter();
    let (Some(mut reading), None) = (readings.next(), readings.next()) else { return Ok(None) };
    let run = reading.run()?;
    let Some(recorded) = recorded(files, &names, &run)? else { return Ok(None) };
    let has_more = || Ok::<bool, Error>(!against_its_config(&reading, &run)?.is_empty());
    if is_half || run.unread().next().is_some() || has_more()? {
        return Ok(None);
    }
    let beside = Beside::new(recorded, tolerances, run.config().dtype.into());
    // What ends the run is told when the file is checked as a whole.
    if run.stream_to(&beside).is_err() || !beside.is_wide() {
        return Ok(None);
    }
    let steps = beside.reports(&run);
    Ok(Some((run, steps)))
}

/// What the file has of the run's computed steps; nothing if it has something else as well.
fn recorded(
    files: &mut Bundle,
    names: &[Option<Name>],
    run: &Run,
) -> Result<Option<HashMap<Name, Recorded>>> {
    let mut recorded = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        let is_beside = files.infos().get(at).is_some_and(|info| says_a_setting(&info.name));
        if is_beside {
            continue;
        }
        let Some(step) = name.and_then(|name| run.program().step(name)) else { return Ok(None) };
        if !step.is_computed() {
            continue;
        }
        let values = match files.in_file(at) {
            Some(values) => Values::InFile(values),
            None => Values::Read(files.entry(at)?.tensor),
        };
        let is_half = matches!(&values, Values::Read(tensor) if is_half(tensor.dtype()));
        let has_shape = files.infos().get(at).is_some_and(|info| info.shape == step.axes.shape());
        let found = Recorded { values, parts: Parts::default() };
        if is_half || !has_shape || recorded.insert(step.name, found).is_some() {
            return Ok(None);
        }
    }
    Ok((!recorded.is_empty()).then_some(recorded))
}

fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16)
}

/// A recorded step, and what has been compared of it.
struct Recorded {
    values: Values,
    parts: Parts,
}

/// Where the values of a recorded step are.
enum Values {
    InFile(InFile),
    Read(Tensor),
}

/// Compares the numbers of a run with recorded ones as they are made, and ends it where they differ.
struct Beside<'a> {
    recorded: HashMap<Name, Recorded>,
    /// The comparisons of steps that have other numbers than those of f32.
    others: Mutex<HashMap<Name, Comparison>>,
    tolerances: &'a Tolerances,
    dtype: DType,
    /// Whether nothing is recorded but what stays in f32 where all else has 16 bits.
    has_softmax_alone: bool,
    /// The types of 16 bits, and whether a number was recorded that is none of theirs.
    narrow: [(Precision, AtomicBool); 2],
}

impl<'a> Beside<'a> {
    fn new(recorded: HashMap<Name, Recorded>, tolerances: &'a Tolerances, dtype: DType) -> Self {
        let has_softmax_alone = recorded.keys().all(|name| is_of_softmax(*name));
        let narrow =
            [Precision::Bf16, Precision::F16].map(|narrow| (narrow, AtomicBool::default()));
        Self { recorded, others: Mutex::default(), tolerances, dtype, has_softmax_alone, narrow }
    }

    /// Whether the file was not computed in 16 bits: such a one is held to more than a tolerance.
    fn is_wide(&self) -> bool {
        self.narrow.iter().all(|(_, has_others)| has_others.load(Ordering::Relaxed))
    }

    /// Learns from recorded numbers of a step whether the file was computed in 16 bits: these tell whether a type holds all
    /// of them.
    fn see(&self, step: Name, are_held: impl Fn(Precision) -> Result<bool>) -> Result<()> {
        if is_of_softmax(step) && !self.has_softmax_alone {
            return Ok(());
        }
        for (narrow, has_others) in &self.narrow {
            if !has_others.load(Ordering::Relaxed) && !are_held(*narrow)? {
                has_others.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Compares numbers of a step, from the one at `first` on.
    fn compare(&self, step: Name, first: usize, recorded: &[f32], numbers: &[f32]) -> Result<()> {
        let is_finite = recorded.iter().fold(true, |all, number| all & number.is_finite());
        let is_odd = |number: &f32| is_amiss(Some(step), (*number).into());
        if !is_finite && recorded.iter().any(is_odd) {
            return Err(unlike());
        }
        self.see(step, |narrow| Ok(recorded.iter().all(|number| narrow.holds((*number).into()))))?;
        // A part is no larger than the whole.
        let largest = numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs()));
        let default = Tolerance::of(DType::F32).of_size(largest.into());
        let tolerance = self.tolerances.of(step.as_str(), default);
        let parts = self.recorded.get(&step).map(|beside| &beside.parts);
        let agree = parts.is_some_and(|parts| parts.add(first, recorded, numbers, tolerance));
        if agree { Ok(()) } else { Err(unlike()) }
    }

    /// The reports of all steps, in order of execution.
    fn reports(mut self, run: &Run) -> Vec<StepReport> {
        let mut others = self.others.into_inner().unwrap_or_else(PoisonError::into_inner);
        let computed = run.program().steps().iter().filter(|step| step.is_computed());
        let reports = computed.filter_map(|step| {
            let parts = self.recorded.remove(&step.name)?.parts;
            let dims = step.axes.shape();
            let compared = others.remove(&step.name).unwrap_or_else(|| parts.whole(&dims));
            let report = StepReport::missing(step.name.as_str()).with(compared);
            Some(StepReport { axes: Some(step.axes.clone()), ..report })
        });
        reports.collect()
    }
}

/// Whether a gradient of the output is so small that less may be off than is known while its run streams by.
fn is_small_loss(step: &Step<()>, value: &Tensor) -> Result<bool> {
    let is_gradient = step.name.is_gradient();
    Ok(is_gradient && first_number(value, |number| number.abs() >= 1.0)?.is_none())
}

/// What ends a run that is not the recorded one. Nobody is told.
fn unlike() -> Error {
    Misread.into()
}

impl Receiver for Beside<'_> {
    fn before(&self, step: &Step<()>) -> Result<()> {
        fits_step(step, self.dtype)
    }

    fn whole(&self, step: &Step<()>, value: &Tensor) -> Result<()> {
        if !step.is_computed() {
            let is_odd = first_of(Some(step.name), value)?.is_some() || is_small_loss(step, value)?;
            return if is_odd { Err(unlike()) } else { Ok(()) };
        }
        let Some(beside) = self.recorded.get(&step.name) else { return Ok(()) };
        let value = value.contiguous()?;
        if let Some(numbers) = Numbers::<f32>::of(&value) {
            let numbers: &[f32] = &numbers;
            let parts = numbers.par_chunks(CHUNK).enumerate();
            return parts.try_for_each(|(at, part)| self.rows(step, at * CHUNK, part));
        }
        let Values::Read(recorded) = &beside.values else { return Err(unlike()) };
        let default = Tolerance::of(recorded.dtype()).looser(Tolerance::of(value.dtype()));
        let found = compare(recorded, &value, self.tolerances.of(step.name.as_str(), default))?;
        if found.mismatched > 0 || first_of(Some(step.name), recorded)?.is_some() {
            return Err(unlike());
        }
        self.see(step.name, |narrow| narrow.holds_all(recorded))?;
        self.others.lock().unwrap_or_else(PoisonError::into_inner).insert(step.name, found);
        Ok(())
    }

    fn rows(&self, step: &Step<()>, first: usize, numbers: &[f32]) -> Result<()> {
        match self.recorded.get(&step.name).map(|beside| &beside.values) {
            None => Ok(()),
            Some(Values::InFile(file)) => {
                let mut bytes = vec![0; size_of_val(numbers)];
                file.read(first, &mut bytes)?;
                let recorded = bytes.as_chunks().0.iter().copied().map(f32::from_le_bytes);
                self.compare(step.name, first, &recorded.collect::<Vec<f32>>(), numbers)
            }
            Some(Values::Read(tensor)) => {
                let all = Numbers::<f32>::of(tensor);
                let end = first.saturating_add(numbers.len());
                let recorded = all.as_ref().and_then(|all| all.get(first..end));
                self.compare(step.name, first, recorded.ok_or_else(unlike)?, numbers)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use tempfile::TempDir;

    use super::*;
    use crate::{check, checked, reports_json};
    use file::{Entry, Output, open_place};
    use foreign::NameMap;
    use run::{Sources, to_record};

    /// A recorded run that was changed, as a file of that name.
    fn recorded(settings: &str, name: &str, change: impl FnOnce(&mut Record)) -> TempDir {
        let settings: Settings = serde_json::from_str(settings).expect("settings");
        let run = Run::new(&settings, Sources::default()).expect("can be run");
        let mut record = to_record(&run.trace().expect("runs"), run.config());
        change(&mut record);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let output = Output::create(&folder.path().join(name)).expect("writable");
        output.write(&record).expect("written");
        folder
    }

    /// Whether the file is found to be the same while its run is made. What is told of it does not depend on that.
    fn is_seen(folder: &TempDir, name: &str) -> bool {
        let (path, flags, map) =
            (folder.path().join(name), Settings::default(), NameMap::default());
        let tolerances = Tolerances::default();
        let told = |report| reports_json(&[report]);
        let streamed = check(&path, &flags, &map, &tolerances).expect("checked");
        let whole = checked(&path, &flags, &map, &tolerances).expect("checked").report;
        assert_eq!(told(streamed), told(whole), "{name}");
        same(&mut open_place(&path).expect("opens"), &flags, &tolerances).expect("read").is_some()
    }

    fn changed(record: &mut Record, name: &str, change: impl Fn(usize, f32) -> f32) {
        let entry = record.entries.iter_mut().find(|entry| entry.name == name).expect("a step");
        let numbers = entry.tensor.flatten_all().and_then(|all| all.to_vec1()).expect("f32");
        let numbers: Vec<f32> =
            numbers.into_iter().enumerate().map(|(at, number)| change(at, number)).collect();
        entry.tensor = Tensor::from_vec(numbers, entry.tensor.dims(), &Device::Cpu).expect("fits");
    }

    #[test]
    fn what_is_the_same_is_seen_while_it_is_made() {
        for settings in [
            "{}",
            r#"{"seq_len": 70, "batch": 3, "window": 9, "kv_heads": 1, "lse": true, "softcap": 5}"#,
            r#"{"dtype": "f64", "tokens": ["a", "b", "c", "d"], "mask_fill": "-inf"}"#,
        ] {
            for name in ["run.safetensors", "run.json", "run.npz"] {
                assert!(is_seen(&recorded(settings, name, |_| ()), name), "{settings} {name}");
            }
        }
        let rounded = recorded("{}", "run.json", |record| {
            changed(record, "output", |_, number| number * (1.0 + 1e-6));
        });
        assert!(is_seen(&rounded, "run.json"));
    }

    #[test]
    fn what_there_is_more_to_say_of_is_checked_as_a_whole() {
        type Change = fn(&mut Record);
        let changes: [(&str, Change); 8] = [
            ("a wrong number", |record| {
                let wrong = |at, number| if at == 5 { number + 1e-3 } else { number };
                changed(record, "output", wrong);
            }),
            ("a wrong mask", |record| {
                let mask =
                    record.entries.iter_mut().find(|entry| entry.name == "mask").expect("it");
                mask.tensor = mask.tensor.zeros_like().expect("as large");
            }),
            ("no numbers", |record| {
                for name in ["x", "q"] {
                    changed(record, name, |at, number| if at < 8 { f32::NAN } else { number });
                }
            }),
            ("another shape", |record| {
                let last = record.entries.last_mut().expect("output");
                last.tensor = last.tensor.narrow(1, 0, 2).expect("long enough");
            }),
            ("a tensor of nobody", |record| {
                let entry = record.entries.last().expect("output").clone();
                record.entries.push(Entry { name: "else".to_owned(), ..entry });
            }),
            ("numbers of 16 bits", |record| {
                record.entries.retain(|entry| ["x", "w_q", "q"].contains(&entry.name.as_str()));
                changed(record, "q", |_, number| f32::from_bits(number.to_bits() & 0xffff_0000));
            }),
            ("no step", |record| record.entries.retain(|entry| entry.name == "x")),
            ("nothing of our own", |record| record.config = None),
        ];
        for (what, change) in changes {
            let folder = recorded("{}", "run.safetensors", change);
            let mut files = open_place(&folder.path().join("run.safetensors")).expect("opens");
            let found = same(&mut files, &Settings::default(), &Tolerances::default());
            assert!(!found.is_ok_and(|found| found.is_some()), "{what}");
        }
    }
}
