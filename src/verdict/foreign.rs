//! Files that other code wrote: whose tensor is which step of the run, and in which order its axes are.

use std::path::Path;

use candle_core::{DType, Tensor};

use crate::error::{Error, Result};
use crate::file::{Entry, Record};
use crate::source::{Role, Taken, meanings, split_place};
use crate::trace::{Axis, Program, Reading, Step, Trace};

/// Reads what is to be checked: a file, one tensor of it as `FILE:TENSOR`, or a folder of `.npy` files, each a step of
/// its file's name.
///
/// # Errors
/// If it cannot be read, or has no such tensor.
pub fn read(place: &Path) -> Result<Record> {
    if place.is_dir() {
        return read_folder(place);
    }
    let (path, asked) = split_place(&place.to_string_lossy());
    let mut record = Record::read(&path)?;
    if let Some(asked) = asked {
        let names: Vec<String> = record.entries.iter().map(|entry| entry.name.clone()).collect();
        record.entries.retain(|entry| entry.name == asked);
        if record.entries.is_empty() {
            let what = format!("holds no tensor {asked}");
            return Err(Error::file(&path, what, format!("it has {}", names.join(", "))));
        }
    }
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    for entry in record.entries.iter_mut().filter(|entry| entry.name.is_empty()) {
        entry.name = stem.clone().unwrap_or_default();
    }
    Ok(record)
}

fn read_folder(folder: &Path) -> Result<Record> {
    let mut record = Record::default();
    for path in crate::file::arrays_in(folder)? {
        record.entries.extend(read(&path)?.entries);
    }
    Ok(record)
}

/// The names of all steps that a run can have.
///
/// # Errors
/// Never, as the sizes of a complete program fit each other.
pub fn step_names() -> Result<Vec<String>> {
    Ok(Program::complete()?.steps().iter().map(|step| step.name.clone()).collect())
}

/// The number of heads that a foreign file's tensors tell, where `x` is (batch, `seq_len`, …): from those that have
/// an axis for them.
#[must_use]
pub fn heads(record: &Record, batch: usize, seq_len: usize, d_model: usize) -> Option<usize> {
    let of = |entry: &Entry| {
        let meanings = meanings(step_name(&entry.name));
        let may_be = |steps: &[&str]| steps.iter().any(|step| meanings.contains(step));
        let dims = entry.tensor.dims();
        let per_head = batch.checked_mul(seq_len)?.checked_mul(seq_len)?;
        let count = entry.tensor.elem_count();
        let heads = if may_be(&["scores_raw", "scores", "masked_scores", "weights"]) {
            (per_head > 0 && count.is_multiple_of(per_head)).then(|| count / per_head)
        } else if may_be(&["q_heads", "k_heads", "v_heads", "head_outputs"]) && dims.len() > 2 {
            let head_dim = dims.last().copied().filter(|size| *size > 0)?;
            d_model.is_multiple_of(head_dim).then(|| d_model / head_dim)
        } else {
            None
        };
        // One head is what an average over the heads looks like too.
        heads.filter(|heads| *heads > 1 && d_model.is_multiple_of(*heads))
    };
    record.entries.iter().find_map(of)
}

/// What stands behind a name's last dot.
fn step_name(name: &str) -> &str {
    name.rsplit(['.', '/']).next().unwrap_or(name)
}

/// What a file's mask wrote into scores, where a file tells it: −∞, or a number so low that it can be nothing else.
#[must_use]
pub fn mask_fill(record: &Record) -> Option<(f64, &str)> {
    let may_be = |entry: &&Entry| meanings(&entry.name).contains(&"masked_scores");
    record.entries.iter().filter(may_be).find_map(|entry| {
        let lowest = entry.tensor.flatten_all().ok()?.min(0).ok()?;
        let lowest = lowest.to_dtype(DType::F64).ok()?.to_scalar::<f64>().ok()?;
        (lowest <= LOWEST_SCORE || is_lowest_f16(lowest)).then_some((lowest, entry.name.as_str()))
    })
}

/// No score of a sane run is below this, the mildest fill that people write for −∞.
const LOWEST_SCORE: f64 = -1e9;

#[allow(clippy::float_cmp, reason = "exactly that number")]
fn is_lowest_f16(value: f64) -> bool {
    value == -65504.0
}

/// A file's tensors under the names of the run's steps.
pub struct Adopted {
    /// The file, with its computed tensors named and ordered as the run has them.
    pub record: Record,
    /// What was taken as what.
    pub taken: Vec<Taken>,
    /// The tensors that are no step, and why.
    pub left: Vec<(String, String)>,
}

/// A tensor, and what it may be.
struct Candidate<'a> {
    entry: &'a Entry,
    options: Vec<(&'a Step, Reading)>,
}

/// Finds the step of every computed tensor, and the order of its axes: by its name and its shape where they allow one
/// answer only, otherwise by the numbers.
///
/// # Errors
/// If two tensors would be the same step.
pub fn adopt(record: &Record, trace: &Trace) -> Result<Adopted> {
    let given = |entry: &&Entry| Role::of(&entry.name).is_some();
    let (given, computed): (Vec<&Entry>, Vec<&Entry>) = record.entries.iter().partition(given);
    let mut adopted = Adopted {
        record: Record { config: None, entries: given.into_iter().cloned().collect() },
        taken: Vec::new(),
        left: Vec::new(),
    };
    let mut open = Vec::new();
    for entry in computed {
        let options = options(entry, trace);
        match options.as_slice() {
            [] => adopted.leave(entry, trace)?,
            [(step, reading)] => adopted.take(entry, step, reading, &[])?,
            _ => open.push(Candidate { entry, options }),
        }
    }
    for Candidate { entry, mut options } in open {
        options.retain(|(step, _)| adopted.record.tensor(&step.name).is_none());
        match best(entry, &options)? {
            Some((step, reading)) => adopted.take(entry, step, reading, &options)?,
            None => adopted.left.push((entry.name.clone(), "its step is there already".to_owned())),
        }
    }
    Ok(adopted)
}

/// The steps that a tensor can be, and how it is to be read then: the step of its very name if its shape fits.
fn options<'a>(entry: &Entry, trace: &'a Trace) -> Vec<(&'a Step, Reading)> {
    let name = step_name(&entry.name);
    let dims = entry.tensor.dims();
    let readings = |step: &'a Step| {
        let mut readings = step.axes.readings(dims);
        // Axes that the file names are not to be guessed.
        if let Some(named) = &entry.axes
            && readings.iter().any(|reading| reading.names() == *named)
        {
            readings.retain(|reading| reading.names() == *named);
        }
        readings.into_iter().map(move |reading| (step, reading))
    };
    let exact: Vec<_> = trace.step(name).into_iter().flat_map(readings).collect();
    if !exact.is_empty() {
        return exact;
    }
    let steps = meanings(name).iter().filter_map(|name| trace.step(name));
    steps.flat_map(readings).collect()
}

/// The option whose numbers are nearest to the run's; the first of equally near ones.
fn best<'o, 'a>(
    entry: &Entry,
    options: &'o [(&'a Step, Reading)],
) -> Result<Option<&'o (&'a Step, Reading)>> {
    let mut best: Option<(f64, &(&Step, Reading))> = None;
    for option in options {
        let (step, reading) = option;
        let distance = distance(&reading.apply(&entry.tensor)?, &step.value)?;
        if best.is_none_or(|(least, _)| distance < least) {
            best = Some((distance, option));
        }
    }
    Ok(best.map(|(_, option)| option))
}

/// The mean over the elements of |left − right| / (|left| + |right|): 0 where they agree, at most 1. So neither large
/// numbers nor a mask's fill outweigh the rest.
#[allow(clippy::cast_precision_loss, reason = "a mean")]
fn distance(left: &Tensor, right: &Tensor) -> Result<f64> {
    let values = |tensor: &Tensor| tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>();
    let (left, right) = (values(left)?, values(right)?);
    let apart = |(left, right): (&f64, &f64)| {
        #[allow(clippy::float_cmp, reason = "equal infinities, and zeros")]
        if left == right || (left.is_nan() && right.is_nan()) {
            return 0.0;
        }
        let apart = (left - right).abs() / (left.abs() + right.abs());
        if apart.is_nan() { 1.0 } else { apart }
    };
    Ok(left.iter().zip(&right).map(apart).sum::<f64>() / left.len().max(1) as f64)
}

impl Adopted {
    /// Takes a tensor as a step; `options` are those that it was chosen among.
    fn take(
        &mut self,
        entry: &Entry,
        step: &Step,
        reading: &Reading,
        options: &[(&Step, Reading)],
    ) -> Result<()> {
        if self.record.tensor(&step.name).is_some() {
            let other = self.taken.iter().find(|taken| taken.step == step.name);
            let other = other.map_or(step.name.as_str(), |taken| taken.tensor.as_str());
            let what = format!("both {other} and {} may be {}", entry.name, step.name);
            let fix =
                "say which step the other is, as --map THEIRS=OURS, or pick a layer with --prefix";
            return Err(Error::config(what, fix));
        }
        let tensor = reading.apply(&entry.tensor)?;
        let (name, axes) = (step.name.clone(), Some(step.axes.names()));
        self.record.entries.push(Entry { name, formula: None, axes, tensor });
        let others: Vec<String> = options
            .iter()
            .filter(|(other, way)| (&other.name, way) != (&step.name, reading))
            .map(|(other, way)| {
                let other = if other.name == step.name { "" } else { &other.name };
                format!("{other} {way}").trim_start().to_owned()
            })
            .collect();
        let mut taken = Taken::as_it_is(&step.name, &entry.name);
        if !others.is_empty() {
            let how = format!("axes {reading}, which fits better than {}", others.join(" or "));
            taken = taken.read(how);
        } else if !reading.is_plain() {
            taken = taken.read(format!("axes {reading}"));
        } else if step.name == entry.name {
            return Ok(());
        }
        self.taken.push(taken);
        Ok(())
    }

    /// Leaves a tensor aside, unless its name is that of a step: then it is wrong that it does not fit.
    fn leave(&mut self, entry: &Entry, trace: &Trace) -> Result<()> {
        let name = step_name(&entry.name);
        let known = Program::complete()?;
        if known.steps().iter().any(|step| step.name == name) {
            self.record.entries.push(Entry { name: name.to_owned(), ..entry.clone() });
            return Ok(());
        }
        // Parameters of other layers are no steps.
        if matches!(name, "weight" | "bias") {
            return Ok(());
        }
        let meant: Vec<&Step> = meanings(name).iter().filter_map(|name| trace.step(name)).collect();
        let is_average = |step: &&Step| {
            let without_heads = step.axes.iter().filter(|(axis, _)| *axis != Axis::Head);
            without_heads.map(|(_, size)| size).eq(entry.tensor.dims().iter().copied())
        };
        let why = match meant.as_slice() {
            [] if name.contains("mask") => {
                "a mask is given by --attn-mask FILE:NAME, where 1 means attend".to_owned()
            }
            [] => "no step is called so; --map NAME=STEP says which it is".to_owned(),
            steps if steps.iter().any(is_average) => {
                "it has no axis for the heads; an average over them is no step".to_owned()
            }
            steps => {
                let steps: Vec<String> =
                    steps.iter().map(|step| format!("{} {}", step.name, step.axes)).collect();
                format!("its shape {:?} is not that of {}", entry.tensor.dims(), steps.join(" or "))
            }
        };
        self.left.push((entry.name.clone(), why));
        Ok(())
    }
}
