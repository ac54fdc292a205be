//! Files that other code wrote: whose tensor is which step of the run, and in which order its axes are.

use std::collections::{HashMap, HashSet};

use candle_core::Tensor;

use super::axis_order::AxisOrder;
use super::hints::{fill_in, is_fill, is_unmasked, lowest};
use super::layer::is_parameter;
use super::matched::Match;
use super::names::{last_segment, meanings};
use super::other_keys::of_other_keys;
use base::error::{Error, Result, quoted};
use config::QkvFormat;
use file::{Entry, Record};
use program::{Axis, Name, Op, Step, Trace, of_pairs};

/// How many of the readings that were not taken are named.
const LISTED: usize = 2;

/// A tensor of a file that is no step of its run.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Unmatched {
    /// The tensor's name in its file.
    pub tensor: String,
    /// Why it is none.
    pub why: String,
}

/// A file's tensors under the names of the run's steps.
pub struct Named {
    /// The file, with its computed tensors named and ordered as the run has them.
    pub record: Record,
    /// What was taken as what.
    pub matches: Vec<Match>,
    /// The tensors that are no step, and why.
    pub unmatched: Vec<Unmatched>,
    /// Whether a tensor under the very name of a step, with its lengths, was read in another order of axes.
    pub is_reordered: bool,
    /// Whether any tensor was.
    pub has_turned: bool,
    /// The orders of axes that are known of the file, keys as queries.
    orders: Vec<Vec<Axis>>,
}

/// A tensor, with the steps that it can be and how it is to be read then.
type Open<'a> = (&'a Entry, Vec<(&'a Step, AxisOrder)>);

/// In which order the axes of a tensor under the very name of a step may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Orders {
    /// In any that its lengths allow.
    Any,
    /// In the step's own, where its lengths allow that.
    Plain,
}

/// Finds the step of every computed tensor, and the order of its axes: by its name and its shape where they allow one
/// answer only, otherwise by the numbers. Where no answer gives the run's numbers, as in a faulty dump, the likeliest
/// step is taken, in the order that the file's other tensors have; `tokens_first` says that of X, and `format` that of heads.
///
/// # Errors
/// If two tensors would be the same step.
pub fn name_steps(
    record: &Record,
    trace: &Trace,
    (tokens_first, format): (bool, Option<QkvFormat>),
    orders: Orders,
) -> Result<Named> {
    let given = |entry: &&Entry| {
        let starts = |name: Name| trace.step(name).is_some_and(|step| step.op == Op::Given);
        Name::in_files(&entry.name).is_some_and(|name| name.is_given() || starts(name))
    };
    let (given, computed): (Vec<&Entry>, Vec<&Entry>) = record.entries.iter().partition(given);
    let mut named = Named {
        record: Record { config: None, entries: given.into_iter().cloned().collect() },
        matches: Vec::new(),
        unmatched: Vec::new(),
        is_reordered: false,
        has_turned: false,
        orders: known_orders(tokens_first, format),
    };
    let meanings: Vec<Vec<Name>> =
        computed.iter().map(|entry| meant(last_segment(&entry.name), trace)).collect();
    let mut times = HashMap::new();
    for name in meanings.iter().flatten() {
        *times.entry(*name).or_insert(0) += 1;
    }
    let (mut open, mut rest) = (Vec::new(), Vec::new());
    for (entry, meant) in computed.into_iter().zip(&meanings) {
        let mut options = options(entry, trace, orders);
        let own = |name: Name| meant.iter().filter(|meant| **meant == name).count();
        let is_of_another = |name: Name| times.get(&name).is_some_and(|times| *times > own(name));
        // Where the lengths leave it open, the tokens of what nothing recorded reads are in the order of X: whatever
        // follows a step shows in which order it was meant.
        let is_of_x =
            |reading: &AxisOrder| (reading.order().first() == Some(&Axis::Query)) == tokens_first;
        // What has heads has them in an order of its own.
        let is_like_x = |step: &Step| {
            step.axes.rank() == 3 && step.axes.iter().all(|(axis, _)| axis != Axis::Head)
        };
        let last = options.iter().filter(|(step, reading)| {
            is_like_x(step) && is_of_x(reading) && !is_followed(step, trace, is_of_another)
        });
        let last: Vec<Name> = last.map(|(step, _)| step.name).collect();
        options.retain(|(step, reading)| !last.contains(&step.name) || is_of_x(reading));
        match options.as_slice() {
            [] => rest.push(entry),
            [(step, reading)] => match named.twin(entry, &options)? {
                Some(twin) => named.matches.push(twin),
                None => named.take(entry, step, reading, &[])?,
            },
            _ => open.push((entry, options)),
        }
    }
    named.settle(open)?;
    for entry in rest {
        let step = once_more(&entry.name, trace);
        let readings = step.into_iter().flat_map(|step| {
            AxisOrder::all(&step.axes, entry.tensor.dims()).into_iter().map(move |own| (step, own))
        });
        let readings: Vec<_> = readings.collect();
        match (named.twin(entry, &readings)?, readings.as_slice()) {
            (Some(twin), _) => named.matches.push(twin),
            (None, [(step, reading), ..]) if named.record.tensor(step.name.as_str()).is_none() => {
                named.take(entry, step, reading, &[])?;
            }
            _ => named.leave(entry, trace),
        }
    }
    Ok(named)
}

/// The orders of axes that are stated.
fn known_orders(tokens_first: bool, format: Option<QkvFormat>) -> Vec<Vec<Axis>> {
    let (batch, heads, tokens) = (Axis::Batch, Axis::Head, Axis::Query);
    let of_x = tokens_first.then(|| vec![tokens, batch, Axis::Model]);
    let of_heads = format.map(|format| match format {
        QkvFormat::Bhsd => vec![batch, heads, tokens, Axis::HeadDim],
        QkvFormat::Bshd => vec![batch, tokens, heads, Axis::HeadDim],
        QkvFormat::Sbhd => vec![tokens, batch, heads, Axis::HeadDim],
        QkvFormat::Thd => vec![tokens, heads, Axis::HeadDim],
    });
    of_x.into_iter().chain(of_heads).collect()
}

/// Which of these readings of a tensor gives the value beside it best, if one gives it but for rounding.
///
/// # Errors
/// If candle fails.
pub fn fitting<'a>(
    tensor: &Tensor,
    readings: impl Iterator<Item = (&'a AxisOrder, &'a Tensor)>,
) -> Result<Option<usize>> {
    let apart = readings.map(|(reading, value)| distance(&reading.apply(tensor)?, value));
    let apart: Vec<f64> = apart.collect::<Result<_>>()?;
    let mut sorted: Vec<usize> = (0..apart.len()).collect();
    sorted.sort_by(|left, right| apart[*left].total_cmp(&apart[*right]));
    let Some(nearest) = sorted.first() else { return Ok(None) };
    let is_far = |other: &usize| apart[*other] >= FAR * apart[*nearest];
    let stands_out = apart[*nearest] <= NEAR && sorted.get(1).is_some_and(is_far);
    Ok(Some(*nearest).filter(|nearest| stands_out || apart[*nearest] <= FITS))
}

/// What is nearer than this, and by so many times nearer than any other, is meant, wrong as it may be.
const NEAR: f64 = 0.1;
const FAR: f64 = 5.0;

/// The smallest number above 0 of f16, 2^−24.
const SMALLEST: f64 = 5.960_464_5e-8;

/// The [`distance`] of tensors that are the same but for the rounding of bf16, with room: a mistake gives more.
pub const FITS: f64 = 0.02;

/// Whether one of the recorded steps is computed from a step.
fn is_followed(step: &Step, trace: &Trace, is_recorded: impl Fn(Name) -> bool) -> bool {
    let after = trace.descendants(|own| own.name == step.name);
    let mut steps = trace.steps().iter().zip(after);
    steps.any(|(own, is_after)| {
        is_after && own.name != step.name && own.is_computed() && is_recorded(own.name)
    })
}

/// The steps that a tensor can be, and how it is to be read then: the step of its very name if its shape fits.
fn options<'a>(entry: &Entry, trace: &'a Trace, orders: Orders) -> Vec<(&'a Step, AxisOrder)> {
    let name = last_segment(&entry.name);
    let dims = entry.tensor.dims();
    let in_orders = |step: &'a Step| {
        let mut orders = AxisOrder::all(&step.axes, dims);
        // Axes that the file names are not to be guessed.
        if let Some(named) = &entry.axes
            && orders.iter().any(|order| order.names() == *named)
        {
            orders.retain(|order| order.names() == *named);
        }
        orders.into_iter().map(move |order| (step, order))
    };
    // What the run is given is there already.
    let computed = |name: Name| trace.step(name).filter(|step| step.is_computed());
    // What a mask has filled are masked scores, or those with a bias that blocks.
    let is_masked = fill_in(entry).is_some() && trace.step(Name::MaskedScores).is_some();
    let can_be_filled =
        |step: &Step| step.name == Name::MaskedScores || lowest(&step.value).is_some_and(is_fill);
    let exact = Name::in_files(name).and_then(computed);
    let mut exact: Vec<_> = exact.into_iter().flat_map(in_orders).collect();
    if orders == Orders::Plain && exact.iter().any(|(_, order)| order.is_plain()) {
        exact.retain(|(_, order)| order.is_plain());
    }
    if !exact.is_empty() {
        return exact;
    }
    let steps = meant(name, trace).into_iter();
    let steps = steps.filter_map(computed).filter(|step| !is_masked || can_be_filled(step));
    let mut all: Vec<_> = steps.flat_map(in_orders).collect();
    let is_open = |(step, order): &(&Step, AxisOrder)| {
        step.name != Name::MaskedScores
            || order.apply(&entry.tensor).is_ok_and(|found| !is_unmasked(&found, &step.value))
    };
    if all.iter().any(|(step, _)| step.name != Name::MaskedScores) {
        all.retain(is_open);
    }
    all
}

/// The steps that a name may mean in a run: of one that ends before the output projection, what it ends at is the output.
fn meant(name: &str, trace: &Trace) -> Vec<Name> {
    let mut steps = meanings(name);
    if steps.contains(&Name::Output) && trace.step(Name::Output).is_none() {
        let ends = [Name::HeadOutputs, Name::Concat].into_iter();
        steps.extend(ends.filter(|end| !meanings(name).contains(end)));
    }
    steps
}

/// What keys or values are that are repeated for the query heads, in a run where there is one of each for each of these.
fn once_more<'a>(name: &str, trace: &'a Trace) -> Option<&'a Step> {
    let readers: &[Name] = match Name::in_files(last_segment(name))? {
        Name::KRepeated => &[Name::ScoresRaw, Name::Scores],
        Name::VRepeated => &[Name::HeadOutputs],
        _ => return None,
    };
    let reader = readers.iter().find_map(|reader| trace.step(*reader))?;
    trace.read_by(reader).into_iter().nth(1)
}

/// The mean over the elements of |left − right| / (|left| + |right|): 0 where they agree, at most 1. So neither large
/// numbers nor a mask's fill outweigh the rest.
///
/// # Errors
/// If candle fails.
pub fn distance(left: &Tensor, right: &Tensor) -> Result<f64> {
    if left.elem_count() != right.elem_count() {
        return Ok(1.0);
    }
    let apart = |(left, right): (&f64, &f64)| {
        #[allow(clippy::float_cmp, reason = "equal infinities, and zeros")]
        if left == right || (left.is_nan() && right.is_nan()) {
            return 0.0;
        }
        // What f16 cannot tell from 0 is no difference.
        if (left - right).abs() < SMALLEST {
            return 0.0;
        }
        let apart = (left - right).abs() / (left.abs() + right.abs());
        if apart.is_nan() { 1.0 } else { apart }
    };
    let sums = of_pairs(left, right, |left, right| left.iter().zip(right).map(apart).sum::<f64>())?;
    Ok(sums.into_iter().sum::<f64>() / left.elem_count().max(1) as f64)
}

impl Unmatched {
    /// A parameter that the file holds in vain.
    pub fn unread(tensor: String) -> Self {
        Self { tensor, why: tr!("no step of this run reads it").to_owned() }
    }

    /// Whether its name is one that people give to that step.
    pub fn may_be(&self, step: Name) -> bool {
        meanings(&self.tensor).contains(&step)
    }
}

impl Named {
    /// A file of ours, which says itself what its tensors are.
    pub fn as_it_is(record: Record) -> Self {
        let (matches, unmatched, orders) = (Vec::new(), Vec::new(), Vec::new());
        Self { record, matches, unmatched, is_reordered: false, has_turned: false, orders }
    }

    /// How unlikely an order is: 0 if it is that of another tensor with those axes, or that of `TransformerLens`.
    fn strangeness(&self, name: &str, reading: &AxisOrder) -> u8 {
        let order = reading.order();
        let hooked = [Axis::Batch, Axis::Query, Axis::Head, Axis::HeadDim];
        let is_hook = last_segment(name).to_ascii_lowercase().starts_with("hook_");
        // Axes of one place stand anywhere, or nowhere. A state has one more.
        let long = reading.long();
        let is_like = |known: &Vec<Axis>| {
            let has = |axis: &&Axis| known.contains(axis) || **axis != Axis::ValueDim;
            let known_of_it = known.iter().filter(|axis| long.contains(axis));
            long.contains(&Axis::HeadDim) && long.iter().filter(has).eq(known_of_it)
        };
        let is_known = self.orders.contains(&order)
            || self.orders.iter().any(is_like)
            || (is_hook && order == hooked);
        u8::from(!is_known)
    }

    /// Takes the tensors that can be more than one step, or be read in more than one order.
    fn settle(&mut self, mut open: Vec<Open>) -> Result<()> {
        // What can be one step alone comes before what can be others too.
        open.sort_by_key(|(_, options)| {
            options.iter().map(|(step, _)| step.name).collect::<HashSet<Name>>().len()
        });
        let mut unclear = Vec::new();
        for (entry, all) in open {
            let mut options = all.clone();
            options.retain(|(step, _)| self.record.tensor(step.name.as_str()).is_none());
            let read = options.iter().map(|(step, reading)| (reading, &step.value));
            match fitting(&entry.tensor, read)?.and_then(|at| options.get(at)) {
                Some((step, reading)) => self.take(entry, step, reading, &options)?,
                None => unclear.push((entry, all)),
            }
        }
        for (entry, all) in unclear {
            let mut options = all.clone();
            options.retain(|(step, _)| self.record.tensor(step.name.as_str()).is_none());
            let mut may_be_other = false;
            for (step, reading) in &options {
                may_be_other |= distance(&reading.apply(&entry.tensor)?, &step.value)? < FITS;
            }
            if !may_be_other && let Some(twin) = self.twin(entry, &all)? {
                self.matches.push(twin);
                continue;
            }
            let likeliest = options.first().map(|(step, _)| step.name);
            let same_step = options.iter().filter(|(step, _)| Some(step.name) == likeliest);
            // The first of equal ones, which is the plain order.
            match same_step.min_by_key(|(_, reading)| self.strangeness(&entry.name, reading)) {
                Some((step, reading)) => self.take(entry, step, reading, &options)?,
                None => self.leave_out(entry, tr!("its step is already in the file")),
            }
        }
        Ok(())
    }

    /// A tensor that is a step once more, with the same numbers: what nothing is done to may have two names.
    fn twin(&self, entry: &Entry, options: &[(&Step, AxisOrder)]) -> Result<Option<Match>> {
        for (step, reading) in options {
            let Some(taken) = self.record.tensor(step.name.as_str()) else { continue };
            let own = reading.apply(&entry.tensor)?;
            let is_same = |left: &[f64], right: &[f64]| left == right;
            if taken.dims() == own.dims()
                && of_pairs(taken, &own, is_same)?.into_iter().all(|same| same)
            {
                let twin = Match::as_it_is(step.name.as_str(), entry.in_file());
                return Ok(Some(twin.read(tr!("the same numbers once more"))));
            }
        }
        Ok(None)
    }

    /// Takes a tensor as a step; `options` are those that it was chosen among.
    fn take(
        &mut self,
        entry: &Entry,
        step: &Step,
        reading: &AxisOrder,
        options: &[(&Step, AxisOrder)],
    ) -> Result<()> {
        let mut taken = self.record.entries.iter();
        if let Some(other) = taken.find(|other| other.name == step.name.as_str()) {
            let (other, name) = (quoted(other.in_file()), quoted(entry.in_file()));
            let what = tr!("both {other} and {name} may be {step}", other, name, step = step.name);
            let fix = tr!(
                "say which step the other one is, with `map=THEIRS=OURS`, or choose a layer with `prefix`"
            );
            return Err(Error::config(what, fix));
        }
        let may_be_plain =
            options.iter().any(|(other, way)| other.name == step.name && way.is_plain());
        let is_named = Name::in_files(last_segment(&entry.name)) == Some(step.name);
        self.has_turned |= !reading.is_plain();
        self.is_reordered |= is_named && may_be_plain && !reading.is_plain();
        self.orders.push(reading.order());
        let tensor = reading.apply(&entry.tensor)?;
        let axes = Some(step.axes.names());
        let named = entry.clone().renamed(step.name.as_str());
        self.record.entries.push(Entry { axes, formula: None, tensor, ..named });
        let others: Vec<String> = options
            .iter()
            .filter(|(other, way)| (other.name, way) != (step.name, reading))
            // Of a step in the plain order, other orders are no news.
            .filter(|(other, _)| other.name != step.name || !reading.is_plain())
            .map(|(other, way)| {
                let other = if other.name == step.name { "" } else { other.name.as_str() };
                format!("{other} {way}").trim_start().to_owned()
            })
            .collect();
        let mut taken = Match::as_it_is(step.name.as_str(), entry.in_file());
        if !others.is_empty() {
            let more = match others.len().saturating_sub(LISTED) {
                0 => String::new(),
                more => tr!(" or {more} more", more),
            };
            let shown = others.into_iter().take(LISTED).collect::<Vec<_>>().join(tr!(" or "));
            let how =
                tr!("axes {reading}, which fits better than {shown}{more}", reading, shown, more);
            taken = taken.read(how);
        } else if !reading.is_plain() {
            taken = taken.read(tr!("axes {reading}", reading));
        } else if step.name.as_str() == entry.name {
            return Ok(());
        }
        self.matches.push(taken);
        Ok(())
    }

    /// Leaves a tensor aside, unless its name is that of a step: then it is wrong that it does not fit.
    fn leave(&mut self, entry: &Entry, trace: &Trace) {
        let name = last_segment(&entry.name);
        let is_average = |step: &&Step| {
            let rest = step.axes.iter().filter(|(axis, size)| *axis != Axis::Head && *size > 1);
            let dims = entry.tensor.dims().iter().copied().filter(|size| *size > 1);
            entry.tensor.rank() < step.axes.rank()
                && step.axes.iter().any(|(axis, size)| axis == Axis::Head && size > 1)
                && rest.map(|(_, size)| size).eq(dims)
        };
        let meant = meant(name, trace);
        let meant: Vec<&Step> = meant.iter().filter_map(|name| trace.step(*name)).collect();
        if !meant.is_empty() && meant.iter().all(|step| !step.is_computed()) {
            self.leave_out(
                entry,
                tr!("it is no step of a run that starts at queries, keys and values"),
            );
            return;
        }
        if meant.iter().any(is_average) {
            self.leave_out(
                entry,
                tr!("it has no axis for the heads; an average over them is no step"),
            );
            return;
        }
        if Name::in_files(name).is_some() {
            if let Some(why) = meant.iter().find_map(|step| of_other_keys(entry, step)) {
                self.leave_out(entry, why);
                return;
            }
            if !meant.is_empty() {
                self.leave_out(entry, of_other_shape(entry, &meant));
            }
            self.record.entries.push(Entry { name: name.to_owned(), ..entry.clone() });
            return;
        }
        // Parameters of other layers are no steps.
        if is_parameter(name) {
            return;
        }
        let why = match meant.as_slice() {
            [] if name.contains("mask") => {
                tr!("a mask is given by `attn_mask=FILE:NAME`, where 1 means attend").to_owned()
            }
            [] => tr!("no step has this name; `map=NAME=STEP` says which one it is").to_owned(),
            steps => of_other_shape(entry, steps),
        };
        self.leave_out(entry, why);
    }

    fn leave_out(&mut self, entry: &Entry, why: impl Into<String>) {
        self.unmatched.push(Unmatched { tensor: entry.in_file().to_owned(), why: why.into() });
    }
}

/// Why a tensor is none of these steps.
pub fn of_other_shape<T>(entry: &Entry, steps: &[&Step<T>]) -> String {
    let steps: Vec<String> =
        steps.iter().map(|step| format!("{} {}", step.name, step.axes)).collect();
    tr!(
        "its shape {dims} is not that of {steps}",
        dims = format!("{:?}", entry.tensor.dims()),
        steps = steps.join(tr!(" or "))
    )
}
