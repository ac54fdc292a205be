//! Files that other code wrote: whose tensor is which step of the run, and in which order its axes are.

use std::collections::HashSet;
use std::path::Path;

use candle_core::{DType, Tensor};

use crate::error::{Error, Result};
use crate::file::{Entry, Record};
use crate::source::{Role, Taken, last_segment, meanings, split_place};
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
            let fix = if names.iter().all(String::is_empty) {
                "its one tensor has no name: leave out the colon and what follows it".to_owned()
            } else {
                format!("it has {}", names.join(", "))
            };
            return Err(Error::file(&path, format!("holds no tensor {asked}"), fix));
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
    let steps = Program::complete()?;
    // A run with a cache has no memory.
    let names = steps.steps().iter().map(|step| step.name.clone());
    Ok(names.chain(["memory".to_owned()]).collect())
}

/// The number of heads that a foreign file's tensors tell, where there are so many items, queries and keys, and `width`
/// features of all heads: from those that have an axis for them, if they agree.
#[must_use]
pub fn heads(record: &Record, [batch, queries, keys]: [usize; 3], width: usize) -> Option<usize> {
    let of = |entry: &Entry| {
        let meanings = meanings(&entry.name);
        let may_be = |steps: &[&str]| steps.iter().any(|step| meanings.contains(step));
        let dims = entry.tensor.dims();
        let heads = if may_be(&["scores_raw", "scores", "masked_scores", "weights"]) {
            let per_head = batch.checked_mul(queries)?.checked_mul(keys)?;
            entry.tensor.elem_count().checked_div(per_head)?
        } else if may_be(&["q_heads", "k_heads", "v_heads", "q_rot", "head_outputs"])
            && dims.len() > 2
        {
            width.checked_div(*dims.last()?)?
        } else {
            return None;
        };
        // One head is what an average over the heads looks like too.
        let has_axis = [heads, heads.checked_mul(batch)?].iter().any(|size| dims.contains(size));
        (heads > 1 && has_axis && width.is_multiple_of(heads)).then_some(heads)
    };
    let told: HashSet<usize> = record.entries.iter().filter_map(of).collect();
    told.iter().next().copied().filter(|_| told.len() == 1)
}

/// How many of the readings that were not taken are named.
const LISTED: usize = 2;

/// What a file's mask wrote into scores, where a file tells it: −∞, or a number so low that it can be nothing else.
#[must_use]
pub fn mask_fill(record: &Record) -> Option<(f64, &str)> {
    record.entries.iter().find_map(|entry| Some((fill_in(entry)?, entry.name.as_str())))
}

/// What a mask wrote into a tensor that may be masked scores.
fn fill_in(entry: &Entry) -> Option<f64> {
    if !meanings(&entry.name).contains(&"masked_scores") {
        return None;
    }
    let lowest = entry.tensor.flatten_all().ok()?.min(0).ok()?;
    let lowest = lowest.to_dtype(DType::F64).ok()?.to_scalar::<f64>().ok()?;
    (lowest <= LOWEST_SCORE || is_lowest_f16(lowest)).then_some(lowest)
}

/// No score of a sane run is below this: −1e9 is the mildest fill that people write for −∞, and bf16 rounds it up.
const LOWEST_SCORE: f64 = -0.99e9;

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
    /// The orders of axes that are known of the file, keys as queries.
    orders: Vec<Vec<Axis>>,
}

/// Finds the step of every computed tensor, and the order of its axes: by its name and its shape where they allow one
/// answer only, otherwise by the numbers. Where no answer gives the run's numbers, as in a faulty dump, the likeliest
/// step is taken, in the order that the file's other tensors have; `tokens_first` says that of X.
///
/// # Errors
/// If two tensors would be the same step.
pub fn adopt(record: &Record, trace: &Trace, tokens_first: bool) -> Result<Adopted> {
    let given = |entry: &&Entry| Role::of(&entry.name).is_some();
    let (given, computed): (Vec<&Entry>, Vec<&Entry>) = record.entries.iter().partition(given);
    let mut adopted = Adopted {
        record: Record { config: None, entries: given.into_iter().cloned().collect() },
        taken: Vec::new(),
        left: Vec::new(),
        orders: if tokens_first {
            vec![vec![Axis::Query, Axis::Batch, Axis::Model]]
        } else {
            vec![]
        },
    };
    let mut open = Vec::new();
    for entry in computed {
        let options = options(entry, trace);
        match options.as_slice() {
            [] => adopted.leave(entry, trace)?,
            [(step, reading)] => adopted.take(entry, step, reading, &[])?,
            _ => open.push((entry, options)),
        }
    }
    let mut unclear = Vec::new();
    for (entry, mut options) in open {
        options.retain(|(step, _)| adopted.record.tensor(&step.name).is_none());
        let distances: Result<Vec<f64>> = options
            .iter()
            .map(|(step, reading)| distance(&reading.apply(&entry.tensor)?, &step.value))
            .collect();
        let distances = distances?;
        let nearest = (0..options.len()).min_by(|a, b| distances[*a].total_cmp(&distances[*b]));
        match nearest.filter(|at| distances[*at] <= FITS).and_then(|at| options.get(at)) {
            Some((step, reading)) => adopted.take(entry, step, reading, &options)?,
            None => unclear.push((entry, options)),
        }
    }
    for (entry, mut options) in unclear {
        options.retain(|(step, _)| adopted.record.tensor(&step.name).is_none());
        let likeliest = options.first().map(|(step, _)| step.name.clone());
        let same_step = options.iter().filter(|(step, _)| Some(&step.name) == likeliest.as_ref());
        // The first of equal ones, which is the plain order.
        match same_step.min_by_key(|(_, reading)| adopted.strangeness(&entry.name, reading)) {
            Some((step, reading)) => adopted.take(entry, step, reading, &options)?,
            None => adopted.left.push((entry.name.clone(), "its step is there already".to_owned())),
        }
    }
    Ok(adopted)
}

/// The [`distance`] of tensors that are the same but for the rounding of bf16, with room: a mistake gives more.
const FITS: f64 = 0.02;

/// The steps that a tensor can be, and how it is to be read then: the step of its very name if its shape fits.
fn options<'a>(entry: &Entry, trace: &'a Trace) -> Vec<(&'a Step, Reading)> {
    let name = last_segment(&entry.name);
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
    let is_masked = fill_in(entry).is_some() && trace.step("masked_scores").is_some();
    let exact: Vec<_> = trace.step(name).into_iter().flat_map(readings).collect();
    if !exact.is_empty() {
        return exact;
    }
    let steps = meanings(name).iter().filter(|name| !is_masked || **name == "masked_scores");
    steps.filter_map(|name| trace.step(name)).flat_map(readings).collect()
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
    /// A file of ours, which says itself what its tensors are.
    #[must_use]
    pub fn as_it_is(record: Record) -> Self {
        Self { record, taken: Vec::new(), left: Vec::new(), orders: Vec::new() }
    }

    /// How unlikely an order is: 0 if it is that of another tensor with those axes, or that of `TransformerLens`.
    fn strangeness(&self, name: &str, reading: &Reading) -> u8 {
        let order = reading.order();
        let hooked = [Axis::Batch, Axis::Query, Axis::Head, Axis::HeadDim];
        let is_hook = last_segment(name).to_ascii_lowercase().starts_with("hook_");
        let is_known = self.orders.contains(&order) || (is_hook && order == hooked);
        u8::from(!is_known)
    }

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
        self.orders.push(reading.order());
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
            let more = match others.len().saturating_sub(LISTED) {
                0 => String::new(),
                more => format!(" or {more} more"),
            };
            let shown = others.into_iter().take(LISTED).collect::<Vec<_>>().join(" or ");
            let how = format!("axes {reading}, which fits better than {shown}{more}");
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
        let name = last_segment(&entry.name);
        let is_average = |step: &&Step| {
            let rest = step.axes.iter().filter(|(axis, size)| *axis != Axis::Head && *size > 1);
            let dims = entry.tensor.dims().iter().copied().filter(|size| *size > 1);
            step.axes.iter().any(|(axis, size)| axis == Axis::Head && size > 1)
                && rest.map(|(_, size)| size).eq(dims)
        };
        let meant: Vec<&Step> = meanings(name).iter().filter_map(|name| trace.step(name)).collect();
        if meant.iter().any(is_average) {
            let why = "it has no axis for the heads; an average over them is no step".to_owned();
            self.left.push((entry.name.clone(), why));
            return Ok(());
        }
        let known = Program::complete()?;
        if known.steps().iter().any(|step| step.name == name) {
            self.record.entries.push(Entry { name: name.to_owned(), ..entry.clone() });
            return Ok(());
        }
        // Parameters of other layers are no steps.
        if matches!(name, "weight" | "bias") {
            return Ok(());
        }
        let why = match meant.as_slice() {
            [] if name.contains("mask") => {
                "a mask is given by --attn-mask FILE:NAME, where 1 means attend".to_owned()
            }
            [] => "no step is called so; --map NAME=STEP says which it is".to_owned(),
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
