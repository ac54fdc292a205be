//! A recorded run beside its recomputed self, and the mistakes that single steps show.

use std::collections::HashMap;
use std::sync::Arc;

use candle_core::{DType, Tensor};

use super::blocked_scores::where_seen;
use super::compare::is_exact_in;
use super::finding::Finding;
use super::fit::cells;
use super::noise::{ALLOWED, Noise, USUAL};
use super::products::{Lowered, is_off_alike};
use super::tolerance::Tolerance;
use base::error::{Error, Result};
use config::Config;
use file::{Entry, Record};
use foreign::distance;
use program::{Name, Op, Precision, Program, Role, Step, Trace};

/// A recorded run beside its recomputed self.
pub struct Evidence<'a> {
    /// The setting of the run.
    pub config: &'a Config,
    /// The run, recomputed.
    pub trace: &'a Trace,
    /// Every value that was recorded, given ones included, in the type of the run.
    pub recorded: &'a HashMap<Name, Tensor>,
    /// How far rounding alone takes each step of this very run.
    pub noise: Arc<Noise>,
    /// How far it takes each step that is computed from what was recorded.
    pub alone: Arc<Noise>,
    /// The 16-bit type that values were recorded in, if one was.
    half: Option<DType>,
}

/// So many numbers that are off tell why, or all where there are fewer.
const LEAST_TOLD: usize = 4;

impl<'a> Evidence<'a> {
    /// The evidence of a record, whose values `recorded` has in the type of the run.
    ///
    /// # Errors
    /// If candle fails.
    pub fn new(
        config: &'a Config,
        trace: &'a Trace,
        recorded: &'a HashMap<Name, Tensor>,
        record: &Record,
    ) -> Result<Self> {
        let half = half(record, trace)?;
        let noise = Arc::new(Noise::of(trace, half)?);
        let alone = Arc::new(noise.alone(trace, recorded)?);
        Ok(Self { config, trace, recorded, noise, alone, half })
    }

    /// The 16-bit type of the run, if it has one.
    pub fn precision(&self) -> Option<Precision> {
        self.half.and_then(Precision::of_tensors)
    }

    /// The same where NaN among the recorded values stands for what was not recorded.
    pub fn with_gaps(self) -> Self {
        let noise = Arc::new(self.noise.with_gaps());
        let alone = Arc::new(self.alone.with_gaps());
        Self { noise, alone, ..self }
    }

    /// The same evidence of a part of the run.
    pub fn part<'p>(
        &'p self,
        trace: &'p Trace,
        recorded: &'p HashMap<Name, Tensor>,
    ) -> Evidence<'p> {
        Evidence {
            config: self.config,
            trace,
            recorded,
            noise: Arc::clone(&self.noise),
            alone: Arc::clone(&self.alone),
            half: self.half,
        }
    }

    /// Whether the step's recorded value is what its recorded inputs give; nothing where one of them was not
    /// recorded.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_right(&self, step: &Step) -> Result<Option<bool>> {
        match (self.inputs(step), self.recorded.get(&step.name)) {
            (Some(inputs), Some(found)) => {
                let value = step.op.eval(&inputs)?;
                let seen = where_seen(self.trace, step.name, found, &value)?;
                self.alone.is_right(step.name, seen.as_ref().unwrap_or(found), &value).map(Some)
            }
            (_, None) => Ok(Some(false)),
            (None, _) => Ok(None),
        }
    }

    /// The recorded step that is furthest off, in multiples of what rounding alone made of it in this run.
    fn furthest(&self) -> Result<Option<(f64, Name)>> {
        let mut furthest: Option<(f64, Name)> = None;
        for step in self.trace.steps().iter().filter(|step| step.is_computed()) {
            let Some(found) = self.recorded.get(&step.name) else { continue };
            // As in the judgement of the step: by what was recorded before it, where that is all there.
            let value = self.expected(step)?;
            if let Some(factor) = self.noise.multiple(step.name, found, &value)?
                && furthest.is_none_or(|(most, _)| factor > most)
            {
                furthest = Some((factor, step.name));
            }
        }
        Ok(furthest)
    }

    /// Whether every recorded step can be computed from what was recorded.
    fn is_told(&self) -> bool {
        let computed = self.trace.steps().iter().filter(|step| step.is_computed());
        let mut recorded = computed.filter(|step| self.recorded.contains_key(&step.name));
        recorded.all(|step| self.inputs(step).is_some())
    }

    /// What to call differences that no step makes by itself. There is no mistake where every step is told. Where some are
    /// not, a small one may hide in what rounding is allowed.
    ///
    /// # Errors
    /// If candle fails.
    pub fn rounding(&self) -> Result<Finding> {
        let (furthest, is_told) = (self.furthest()?, self.is_told());
        let is_usual = furthest.is_none_or(|(factor, _)| factor <= USUAL);
        let precision = self.precision();
        let summary = match precision.map(Precision::name) {
            Some(_) if is_told => {
                tr!("no bug: the differences are those of 16-bit arithmetic").to_owned()
            }
            Some(_) if is_usual => {
                tr!("the differences are no larger than those of 16-bit arithmetic").to_owned()
            }
            Some(name) => tr!(
                "the differences are larger than this run's own rounding, and too small to tell a mistake from rounding in {name}: record more steps",
                name
            ),
            None if is_told => {
                tr!("no bug: the differences are those of rounding, which adds up").to_owned()
            }
            None if is_usual => {
                tr!("the differences are no larger than those of rounding, which adds up").to_owned()
            }
            None => tr!(
                "the differences are larger than this run's own rounding, and too small to tell a mistake from it: record more steps"
            )
            .to_owned(),
        };
        let id = if precision.is_some() { "half-precision" } else { "noise" };
        let step = furthest.map_or(Name::Output, |(_, step)| step);
        // More than that is within what the type's numbers may differ by, and says nothing.
        let factor = furthest.map(|(factor, _)| factor).filter(|factor| *factor <= ALLOWED);
        Ok(Finding { factor, ..Finding::rounding(id, step, &summary) })
    }

    /// What of the run was computed in fewer bits, if that alone accounts for every recorded step: what each is off by is
    /// as large as such rounding makes it, and goes the same way cell by cell.
    ///
    /// # Errors
    /// If candle fails.
    pub fn lowered(&self) -> Result<Option<Lowered>> {
        let mut off = HashMap::new();
        for step in self.trace.steps().iter().filter(|step| step.is_computed()) {
            let Some(found) = self.recorded.get(&step.name) else { continue };
            let value = self.expected(step)?;
            if !self.alone.agree(step.name, found, &value)? {
                off.insert(step.name, (found, value));
            }
        }
        // The lowest number of 16 bits swallows the scores that it is added to.
        if let Some(whole) = self.half.map(Lowered::every_step)
            && self.is_computed_with(whole, &off)?
        {
            return Ok(Some(whole));
        }
        for (found, value) in off.values() {
            if distance(found, value)? > MOST_ROUNDING {
                return Ok(None);
            }
        }
        let numbers: usize = self.trace.steps().iter().map(|step| step.value.elem_count()).sum();
        for lowered in Lowered::all(numbers < TYPES_ALONE) {
            if self.is_computed_with(lowered, &off)? {
                return Ok(Some(lowered));
            }
        }
        Ok(None)
    }

    /// Whether the recorded steps that are `off`, beside what they should be, are off by what this is off by.
    fn is_computed_with(
        &self,
        lowered: Lowered,
        off: &HashMap<Name, (&Tensor, Tensor)>,
    ) -> Result<bool> {
        let mut told = 0;
        let run = self.trace.run_with(|step, inputs| {
            if !step.is_computed() {
                return Ok(step.value.clone());
            }
            let made = lowered.eval(step, inputs).map_err(Some)?;
            let Some((found, value)) = off.get(&step.name) else { return Ok(made) };
            let rounded = match self.inputs(step) {
                Some(inputs) => lowered.eval(step, &inputs).map_err(Some)?,
                None => made.clone(),
            };
            told += found.elem_count();
            // Noise of 16 bits would excuse what such a run is off by for another reason.
            let agrees = self.half.is_none()
                && self.noise.agree(step.name, found, &rounded).map_err(Some)?;
            let is_it = agrees || is_off_alike(found, value, &rounded).map_err(Some)?;
            // What fails at one step need not be run to its end.
            if is_it { Ok(made) } else { Err(None) }
        });
        match run {
            Ok(_) => Ok(told >= LEAST_TOLD),
            Err(None) => Ok(false),
            Err(Some(error)) => Err(error),
        }
    }

    /// The value of a step of a faulty program, computed from what was recorded; nothing where too little was.
    ///
    /// # Errors
    /// If candle fails.
    pub fn of(&self, program: &Program, step: Name) -> Result<Option<Tensor>> {
        match program.position(step) {
            Some(at) if self.recorded.contains_key(&step) => match self.local(program, at, step) {
                // Code that fails is no mistake that is shipped.
                Err(Error::Compute(_) | Error::Tensor { .. }) => Ok(None),
                value => value,
            },
            Some(_) | None => Ok(None),
        }
    }

    /// The value of a step that belongs to `of`, from the recorded values of all others.
    fn local(&self, program: &Program, at: usize, of: Name) -> Result<Option<Tensor>> {
        let step = &program.steps()[at];
        let right = self.trace.step(step.name);
        let is_as_it_was = right.is_some_and(|right| right.op == step.op) && !step.is_inserted;
        let is_made = matches!(step.name.role(), Role::Setting | Role::Random);
        if step.name != of && (!is_made || (is_as_it_was && step.inputs.is_empty())) {
            return Ok(self.recorded.get(&step.name).cloned());
        }
        let mut inputs = Vec::new();
        for input in &step.inputs {
            match self.local(program, *input, of)? {
                Some(input) => inputs.push(input),
                None => return Ok(None),
            }
        }
        match &step.op {
            Op::Given => Ok(self.recorded.get(&step.name).cloned()),
            op => op.eval(&inputs.iter().collect::<Vec<_>>()).map(Some),
        }
    }

    /// The step's value as its recorded inputs give it; nothing where one of them was not recorded.
    ///
    /// # Errors
    /// If candle fails.
    pub fn right(&self, step: &Step) -> Result<Option<Tensor>> {
        match self.inputs(step) {
            Some(inputs) if step.op != Op::Given => step.op.eval(&inputs).map(Some),
            Some(_) | None => Ok(None),
        }
    }

    /// The same, or the recomputed value where that cannot be told.
    ///
    /// # Errors
    /// If candle fails.
    pub fn expected(&self, step: &Step) -> Result<Tensor> {
        Ok(self.right(step)?.unwrap_or_else(|| step.value.clone()))
    }

    /// Whether a step is off in enough numbers to tell why: NaN agrees with whatever becomes NaN.
    ///
    /// # Errors
    /// If candle fails.
    pub fn tells(&self, step: Name) -> Result<bool> {
        let (Some(own), Some(found)) = (self.trace.step(step), self.recorded.get(&step)) else {
            return Ok(false);
        };
        let value = self.expected(own)?;
        if found.dims() != value.dims() {
            return Ok(false);
        }
        let tolerance = Tolerance::of(found.dtype());
        let (found, value) = (cells(found, None)?, cells(&value, None)?);
        let off = found.iter().zip(&value).filter(|(found, value)| {
            let are_numbers = !found.is_nan() && !value.is_nan();
            are_numbers && tolerance.excess(**found, **value) > 1.0
        });
        Ok(off.count() >= LEAST_TOLD.min(found.len()))
    }

    /// What a step reads, as it was recorded; nothing where some of it was not.
    pub fn inputs(&self, step: &Step) -> Option<Vec<&Tensor>> {
        self.trace.read_by(step).iter().map(|read| self.recorded.get(&read.name)).collect()
    }
}

/// With so many numbers, products in fewer bits are looked for alone, and not together with a cache in another type.
const TYPES_ALONE: usize = 1 << 21;

/// Numbers that are off by more of themselves in the mean, as [`distance`] has it, are not off by rounding: bf16 has
/// 2^−9, which sums of numbers that cancel out make tens of times as large.
const MOST_ROUNDING: f64 = 0.2;

/// Whether a step stays in f32 where softmax is computed in it and all else has 16 bits.
pub fn is_of_softmax(step: Name) -> bool {
    step.row().is_of_scores() || step == Name::Weights
}

/// The 16-bit type that a file's values were computed in: that of a tensor, or the one that all its computed values
/// are numbers of, as `NumPy` has no bf16 and people widen what they record.
///
/// # Errors
/// If candle fails.
pub fn half(record: &Record, trace: &Trace) -> Result<Option<DType>> {
    let is_half = |dtype: &DType| matches!(dtype, DType::F16 | DType::BF16);
    let mut dtypes = record.entries.iter().map(|entry| entry.tensor.dtype());
    if let Some(dtype) = dtypes.find(is_half) {
        return Ok(Some(dtype));
    }
    let computed = record.entries.iter().filter(|entry| {
        Name::in_files(&entry.name).is_none_or(|name| {
            trace.step(name).map_or(name.role() == Role::Computed, Step::is_computed)
        })
    });
    let (of_softmax, others): (Vec<&Entry>, Vec<&Entry>) =
        computed.partition(|entry| Name::in_files(&entry.name).is_some_and(is_of_softmax));
    let telling = if others.is_empty() { of_softmax } else { others };
    let computed: Vec<&Tensor> = telling.into_iter().map(|entry| &entry.tensor).collect();
    for precision in [Precision::Bf16, Precision::F16] {
        let mut fit = !computed.is_empty();
        for values in &computed {
            fit = fit && is_exact_in(values, precision)?;
        }
        if fit {
            return Ok(precision.dtype());
        }
    }
    Ok(None)
}
