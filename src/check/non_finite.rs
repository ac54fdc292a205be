//! Where do NaN and infinities start, and why?

use candle_core::{D, DType, IndexOp, Storage, Tensor, WithDType};

use base::error::Result;
use file::Record;
use program::{
    Axes, Axis, BlockedCells, Delta, DeltaStage, Name, Op, Step, Trace, Weighting, unravel,
};

/// The first recorded value that is NaN, or an infinity that does not belong there. The −∞ of a masked score does.
#[derive(Debug, Clone, PartialEq)]
pub struct NonFinite {
    /// Where it is.
    pub place: Place,
    /// The value.
    pub value: f64,
    /// Why it is there.
    pub cause: Cause,
    /// Where it comes from in the recomputed run, if that step was not recorded.
    pub origin: Option<Place>,
}

/// A cell of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The step's name.
    pub step: String,
    /// Its axes, where they are known.
    pub axes: Option<Axes>,
    /// The cell's index.
    pub index: Vec<usize>,
}

/// Why a value is NaN or infinite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was given so.
    Given,
    /// Every key of its query is masked, and softmax of −∞ alone is NaN.
    FullyMasked,
    /// A split or tile has no visible key there, and −∞ − −∞ or 0 / 0 is NaN.
    EmptyPart,
    /// What stands behind the last key in a tile or split that is not full is NaN, and a weight of 0 times it is.
    Tail,
    /// The exponential of a split's log-sum-exp is too large: the merge subtracts no maximum.
    NoMaximum,
    /// In chunks of the delta rule, the exponential of minus what the logarithms of the decay add up to is too large.
    Undecayed,
    /// It is a sum over queries, all of which are finite: others are in it.
    OtherRows,
    /// Finite inputs give a value beyond the largest of this type.
    Overflow(DType),
    /// It is ∞ − ∞ or 0 · ∞.
    FromInfinity,
    /// What it reads has an infinity, which this step should have ended.
    Inherited,
    /// It cannot be told: what was recorded before it gives a finite value.
    Unknown,
}

impl Cause {
    /// The name in reports for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::FullyMasked => "fully-masked",
            Self::EmptyPart => "empty-part",
            Self::Tail => "tail",
            Self::NoMaximum => "no-maximum",
            Self::Undecayed => "undecayed",
            Self::OtherRows => "other-rows",
            Self::Overflow(_) => "overflow",
            Self::FromInfinity => "from-infinity",
            Self::Inherited => "inherited",
            Self::Unknown => "unknown",
        }
    }
}

impl NonFinite {
    /// Finds the first of a record, in order of execution; `trace` is the same run recomputed.
    ///
    /// # Errors
    /// If candle fails.
    pub fn first(record: &Record, trace: &Trace) -> Result<Option<Self>> {
        for step in trace.steps() {
            let Some(values) = record.tensor(step.name.as_str()).or_else(|| outside(step)) else {
                continue;
            };
            let Some((index, value)) = first_of(Some(step.name), values)? else { continue };
            let search = Search { record: Some(record), trace, dtype: values.dtype() };
            let (cause, origin) = if step.axes.shape() == values.dims() {
                search.cause(step, &index, value)?
            } else {
                (Cause::Unknown, None)
            };
            return Ok(Some(Self { place: Place::of(step, index), value, cause, origin }));
        }
        let is_of_trace =
            |name: &str| Name::in_files(name).is_some_and(|name| trace.step(name).is_some());
        for entry in record.entries.iter().filter(|entry| !is_of_trace(&entry.name)) {
            let name = Name::in_files(&entry.name);
            if let Some((index, value)) = first_of(name, &entry.tensor)? {
                let place = Place { step: entry.name.clone(), axes: None, index };
                return Ok(Some(Self { place, value, cause: Cause::Unknown, origin: None }));
            }
        }
        Ok(None)
    }
}

impl Place {
    fn of(step: &Step, index: Vec<usize>) -> Self {
        Self { step: step.name.as_str().to_owned(), axes: Some(step.axes.clone()), index }
    }
}

/// The search for the cause of a value of one type.
struct Search<'a> {
    /// What was recorded; without it, all values are the trace's.
    record: Option<&'a Record>,
    trace: &'a Trace,
    dtype: DType,
}

impl Search<'_> {
    fn cause(&self, step: &Step, index: &[usize], value: f64) -> Result<(Cause, Option<Place>)> {
        if !step.is_computed() {
            return Ok((Cause::Given, None));
        }
        if value.is_nan() && self.is_of_empty_part(step, index)? {
            return Ok((Cause::EmptyPart, None));
        }
        if value.is_nan() && self.is_of_tail(step)? {
            return Ok((Cause::Tail, None));
        }
        if self.is_without_maximum(step, index)? {
            return Ok((Cause::NoMaximum, None));
        }
        if value.is_nan() && self.is_of_undecayed(step)? {
            return Ok((Cause::Undecayed, None));
        }
        if self.is_of_other_rows(step)? {
            return Ok((Cause::OtherRows, None));
        }
        let inputs: Option<Vec<&Tensor>> =
            self.trace.read_by(step).into_iter().map(|read| self.value(read)).collect();
        match inputs {
            Some(inputs) => Ok((self.cause_in_inputs(step, index, value, &inputs)?, None)),
            None => self.cause_upstream(step, index, value),
        }
    }

    /// The step's value as it was recorded, or is given.
    fn value<'v>(&'v self, step: &'v Step) -> Option<&'v Tensor> {
        match self.record {
            Some(record) => record
                .tensor(step.name.as_str())
                .or_else(|| outside(step))
                .filter(|value| value.dims() == step.axes.shape()),
            None => Some(&step.value),
        }
    }

    /// The cause where all that the step reads is there.
    fn cause_in_inputs(
        &self,
        step: &Step,
        index: &[usize],
        value: f64,
        inputs: &[&Tensor],
    ) -> Result<Cause> {
        if let (Op::Weighting(Weighting::Softmax { .. }), [scores, ..], [row @ .., _]) =
            (&step.op, inputs, index)
        {
            let scores = row.iter().try_fold((*scores).clone(), |scores, at| scores.get(*at))?;
            if position(&scores, |score| score != f64::NEG_INFINITY)?.is_none() {
                return Ok(Cause::FullyMasked);
            }
        }
        let eval = |dtype: DType| -> Result<f64> {
            let cast = |input: &&Tensor| {
                input.to_dtype(if input.dtype().is_float() { dtype } else { input.dtype() })
            };
            let inputs: Vec<Tensor> = inputs.iter().map(cast).collect::<Result<_, _>>()?;
            cell(&step.op.eval(&inputs.iter().collect::<Vec<_>>())?, index)
        };
        let (exact, rounded) = (eval(DType::F64)?, eval(step.value.dtype())?);
        let mut read_infinity = false;
        for input in inputs.iter().filter(|input| input.dtype().is_float()) {
            read_infinity |= position(input, |value| !value.is_finite())?.is_some();
        }
        Ok(match (exact.is_finite(), read_infinity) {
            (false, true) => Cause::FromInfinity,
            (false, false) => Cause::Overflow(self.dtype),
            _ if exact.abs() > largest(self.dtype) => Cause::Overflow(self.dtype),
            (true, true) => Cause::Inherited,
            _ if !rounded.is_finite() => Cause::Overflow(step.value.dtype()),
            // The step may have been computed in f16 and kept in a wider type.
            _ if value.is_infinite() && exact.abs() > largest(DType::F16) => {
                Cause::Overflow(DType::F16)
            }
            (true, false) => Cause::Unknown,
        })
    }

    /// The cause where some of what the step reads was not recorded: what the recomputed run has before it.
    fn cause_upstream(
        &self,
        step: &Step,
        index: &[usize],
        value: f64,
    ) -> Result<(Cause, Option<Place>)> {
        let before = self.read_by_way_of(step);
        let recomputed = Search { record: None, trace: self.trace, dtype: step.value.dtype() };
        let target = step;
        if !cell(&step.value, index)?.is_finite() {
            for step in before.iter().copied().chain([step]) {
                let found = in_item(step, index, |value| is_amiss(Some(step.name), value))?;
                if let Some((at, value)) = found {
                    let (cause, _) = recomputed.cause(step, &at, value)?;
                    let is_itself = step.name == target.name && at == index;
                    return Ok((cause, Some(Place::of(step, at)).filter(|_| !is_itself)));
                }
            }
        }
        if value.is_nan() && self.is_fully_masked(step, index)? {
            return Ok((Cause::FullyMasked, None));
        }
        // What was given in f16 may have been multiplied in f16.
        let is_f16 = |name: Name| {
            let given = self.record.and_then(|record| record.tensor(name.as_str()));
            given.is_some_and(|given| given.dtype() == DType::F16)
        };
        let is_given = before.iter().any(|step| !step.is_computed() && is_f16(step.name));
        let dtype = if is_given { DType::F16 } else { self.dtype };
        let limit = largest(dtype);
        for step in before.iter().copied().chain([step]).filter(|step| step.is_computed()) {
            // A fill below the smallest number means −∞.
            let is_masked = step.name.row().blocked == BlockedCells::Low;
            let beyond = |value: f64| value > limit || (value < -limit && !is_masked);
            if let Some((at, _)) = in_item(step, index, beyond)? {
                return Ok((Cause::Overflow(dtype), Some(Place::of(step, at))));
            }
        }
        Ok((Cause::Unknown, None))
    }

    /// The steps that `step` reads, directly or through others, in order of execution.
    fn read_by_way_of(&self, step: &Step) -> Vec<&Step> {
        let at = self.trace.position(step.name).unwrap_or_default();
        let steps = self.trace.steps().iter().zip(self.trace.ancestors(at));
        steps.filter(|(_, reached)| *reached).map(|(step, _)| step).collect()
    }

    /// Whether the step reads weights, and every key of the cell's query is masked, in its head or in one of all.
    fn is_fully_masked(&self, step: &Step, index: &[usize]) -> Result<bool> {
        let reads_weights = step.name == Name::Weights
            || self.read_by_way_of(step).iter().any(|read| read.name == Name::Weights);
        let Some(blocked) = self.trace.blocked()?.filter(|_| reads_weights) else {
            return Ok(false);
        };
        holds_in(blocked.min(D::Minus1)?, step, index)
    }

    /// Whether the step merges splits, of which one has a log-sum-exp in the cell's row whose exponential f32 does not hold.
    fn is_without_maximum(&self, step: &Step, index: &[usize]) -> Result<bool> {
        let is_merged = matches!(step.name, Name::Lse | Name::SplitWeights | Name::HeadOutputs);
        let splits = self.trace.step(Name::SplitLse).filter(|_| is_merged);
        let Some(splits) = splits.and_then(|own| self.value(own).or(Some(&own.value))) else {
            return Ok(false);
        };
        let largest = splits.max(0)?;
        holds_in(largest.gt(largest_exponent())?, step, index)
    }

    /// Whether the step is of the delta rule, and NaN in no head but such as decay by so much within a chunk that the inverse
    /// of that is beyond f32: where exp(G − G′) is computed as exp(G) · exp(−G′).
    fn is_of_undecayed(&self, step: &Step) -> Result<bool> {
        let (Op::Delta(_), Some(decay)) = (&step.op, self.trace.step(Name::Decay)) else {
            return Ok(false);
        };
        let chunk = self.trace.steps().iter().find_map(|step| match &step.op {
            Op::Delta(Delta { stage: DeltaStage::Chunks(size), .. }) => Some(*size),
            _ => None,
        });
        let size = chunk.unwrap_or(USUAL_CHUNK).max(1);
        let logs = decay.value.to_dtype(DType::F64)?.log()?;
        let (heads, tokens) = (logs.dim(1)?, logs.dim(2)?);
        let mut least = vec![0.0_f64; heads];
        for start in (0..tokens).step_by(size) {
            let sums = logs.narrow(2, start, size.min(tokens - start))?.sum(2)?;
            for (head, least) in least.iter_mut().enumerate() {
                let own = sums.narrow(1, head, 1)?.flatten_all()?.to_vec1::<f64>()?;
                *least = own.into_iter().fold(*least, f64::min);
            }
        }
        let Some(own) = self.value(step).filter(|own| own.dim(1).ok() == Some(heads)) else {
            return Ok(false);
        };
        let is_nan = |head: usize| -> Result<bool> {
            Ok(position(&own.narrow(1, head, 1)?, f64::is_nan)?.is_some())
        };
        for (head, least) in least.iter().enumerate() {
            if -least <= largest_exponent() && is_nan(head)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether the step is the gradient of keys or values, of which the queries' own gradient, made of the same numbers, was
    /// recorded and is finite, as is all that was given.
    fn is_of_other_rows(&self, step: &Step) -> Result<bool> {
        let of_keys = [Name::KHeads, Name::VHeads, Name::KRot, Name::KRepeated, Name::VRepeated];
        if !of_keys.iter().any(|name| step.name == name.gradient()) {
            return Ok(false);
        }
        let of_queries = [Name::QHeads, Name::QRot].map(Name::gradient);
        let recorded = |name: Name| self.record?.tensor(name.as_str());
        let Some(of_queries) = of_queries.into_iter().find_map(recorded) else { return Ok(false) };
        let is_amiss = |value: f64| !value.is_finite();
        let mut given = self.trace.steps().iter().filter(|own| own.name.is_given());
        let is_finite = position(of_queries, is_amiss)?.is_none();
        Ok(is_finite
            && given.all(|own| {
                !own.value.dtype().is_float() || matches!(position(&own.value, is_amiss), Ok(None))
            }))
    }

    /// Whether the last tile or split is not full, and of the weighted values some features are NaN for every query, and the
    /// others for none, where the run has numbers: the values have it, and these have it nowhere.
    fn is_of_tail(&self, step: &Step) -> Result<bool> {
        let names = [Name::TileAcc, Name::SplitAcc, Name::SplitOutputs, Name::HeadOutputs];
        let Some(parts) = self.trace.parts().filter(|_| names.contains(&step.name)) else {
            return Ok(false);
        };
        let size = |at: usize| {
            let spans = parts.keys.get(at).into_iter().flatten();
            spans.map(|(first, end)| end.saturating_sub(*first)).sum::<usize>()
        };
        let last = size(parts.keys.len().saturating_sub(1));
        if last == 0 || last >= size(0) || position(&step.value, f64::is_nan)?.is_some() {
            return Ok(false);
        }
        let Some(own) = self.value(step) else { return Ok(false) };
        let is_nan = own.ne(own)?.to_dtype(DType::F32)?;
        let queries = is_nan.dim(D::Minus2)? as f64;
        let counts = is_nan.sum(D::Minus2)?;
        let whole = counts.eq(queries)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
        let none = counts.eq(0.0)?.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
        let all = counts.elem_count() as f64;
        Ok(whole > 0.0 && none > 0.0 && (f64::from(whole) + f64::from(none) - all).abs() < 0.5)
    }

    /// Whether the step follows from splits or tiles, and one of these has no visible key for the cell's query.
    fn is_of_empty_part(&self, step: &Step, index: &[usize]) -> Result<bool> {
        let is_sum = |step: &&Step| matches!(step.name, Name::SplitSum | Name::TileSum);
        let Some(sum) = self.trace.steps().iter().find(is_sum) else { return Ok(false) };
        let follows = step.name == sum.name
            || matches!(step.op, Op::Parted(_))
            || self.read_by_way_of(step).iter().any(|read| read.name == sum.name);
        if !follows {
            return Ok(false);
        }
        holds_in(sum.value.eq(0.0)?.max(0)?, step, index)
    }
}

/// The tokens of a chunk where nothing says how many it has.
const USUAL_CHUNK: usize = 64;

/// The largest number whose exponential f32 holds.
fn largest_exponent() -> f64 {
    f64::from(f32::MAX).ln()
}

/// Whether that is 1 in a row of the cell: (batch, head, query), of which some axes may be missing.
fn holds_in(mut rows: Tensor, step: &Step, index: &[usize]) -> Result<bool> {
    while rows.rank() < 3 {
        rows = rows.unsqueeze(0)?;
    }
    for (axis, wanted) in [Axis::Batch, Axis::Head, Axis::Query].into_iter().enumerate() {
        let at = step.axes.iter().zip(index).find(|((named, _), _)| *named == wanted);
        if let Some((_, at)) = at
            && rows.dim(axis)? > 1
        {
            rows = rows.narrow(axis, *at, 1)?;
        }
    }
    Ok(rows.max_all()?.to_scalar::<u8>()? == 1)
}

/// The value of a step that is not recorded because it comes from outside.
fn outside(step: &Step) -> Option<&Tensor> {
    Some(&step.value).filter(|_| !step.is_computed())
}

/// Whether a value of a step is NaN, or infinite where it should not be.
pub fn is_amiss(step: Option<Name>, value: f64) -> bool {
    let is_masked = step.is_some_and(|step| step.row().blocked == BlockedCells::Low);
    value.is_nan() || value == f64::INFINITY || (value == f64::NEG_INFINITY && !is_masked)
}

/// The largest finite number of a type.
fn largest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        DType::F32 => f32::MAX.into(),
        _ => f64::MAX,
    }
}

fn cell(values: &Tensor, index: &[usize]) -> Result<f64> {
    let cell = index.iter().try_fold(values.clone(), |values, at| values.get(*at))?;
    Ok(cell.to_dtype(DType::F64)?.to_scalar::<f64>()?)
}

/// The first value of a step that is NaN, or infinite where it should not be.
pub fn first_of(step: Option<Name>, values: &Tensor) -> Result<Option<(Vec<usize>, f64)>> {
    let found = position(values, |value| is_amiss(step, value))?;
    Ok(found.map(|(at, value)| (unravel(at, values.dims()), value)))
}

/// The first value of the batch item that a cell belongs to of which this is true, in another step.
fn in_item(
    step: &Step,
    cell: &[usize],
    is_it: impl Fn(f64) -> bool,
) -> Result<Option<(Vec<usize>, f64)>> {
    let mut item = 0;
    let values = match (step.axes.iter().next(), cell.first()) {
        (Some((Axis::Batch, size)), Some(at)) if size > 1 && *at < size => {
            item = *at;
            step.value.i(*at..=*at)?
        }
        _ => step.value.clone(),
    };
    let found = position(&values, is_it)?;
    Ok(found.map(|(at, value)| {
        let mut index = unravel(at, values.dims());
        if let Some(first) = index.first_mut() {
            *first += item;
        }
        (index, value)
    }))
}

/// The position and value of the first element of which this is true; booleans and integers have none.
fn position(values: &Tensor, is_it: impl Fn(f64) -> bool) -> Result<Option<(usize, f64)>> {
    if !values.dtype().is_float() {
        return Ok(None);
    }
    // Read where it lies: a copy would cost more than the search. 16-bit numbers are few.
    let values = match values.dtype() {
        DType::F64 | DType::F32 => values.contiguous()?,
        _ => values.to_dtype(DType::F32)?,
    };
    let (storage, layout) = values.storage_and_layout();
    let (Storage::Cpu(storage), Some((start, end))) = (&*storage, layout.contiguous_offsets())
    else {
        return Ok(None);
    };
    Ok(match values.dtype() {
        DType::F64 => search(storage.as_slice::<f64>()?.get(start..end), is_it),
        _ => search(storage.as_slice::<f32>()?.get(start..end), is_it),
    })
}

fn search<T: WithDType>(values: Option<&[T]>, is_it: impl Fn(f64) -> bool) -> Option<(usize, f64)> {
    let mut values = values?.iter().map(|value| value.to_f64()).enumerate();
    values.find(|(_, value)| is_it(*value))
}
