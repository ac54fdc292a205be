//! A recorded run beside its recomputed self, and the mistakes that single steps show.

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::compare::compare;
use super::finding::Finding;
use super::mutation::{Mutation, Site, catalogue};
use super::noise::Noise;
use super::tolerance::Tolerance;
use crate::config::Config;
use crate::error::Result;
use crate::file::Record;
use crate::source::Role;
use crate::trace::{Op, Step, Trace};

/// A recorded run beside its recomputed self.
pub struct Evidence<'a> {
    /// The setting of the run.
    pub config: &'a Config,
    /// The run, recomputed.
    pub trace: &'a Trace,
    /// Every value that was recorded, given ones included, in the type of the run.
    pub recorded: &'a HashMap<String, Tensor>,
    /// How far rounding alone takes each step of this very run.
    pub noise: Noise,
    /// The 16-bit type that values were recorded in, if one was.
    half: Option<DType>,
}

/// The faulty steps that a mistake explains, and whether it fits those that are right.
struct Explanation {
    mutation: &'static Mutation,
    steps: Vec<String>,
    consistent: bool,
}

impl Explanation {
    /// Whether another explains all that this one does, and is better: it explains more, or fits what is right.
    fn yields_to(&self, other: &Self) -> bool {
        let covered = self.steps.iter().all(|step| other.steps.contains(step));
        let more = other.steps.len() > self.steps.len() && other.consistent >= self.consistent;
        covered && (more || (other.consistent && !self.consistent))
    }
}

impl<'a> Evidence<'a> {
    /// The evidence of a record, whose values `recorded` has in the type of the run.
    ///
    /// # Errors
    /// If candle fails.
    pub fn new(
        config: &'a Config,
        trace: &'a Trace,
        recorded: &'a HashMap<String, Tensor>,
        record: &Record,
    ) -> Result<Self> {
        let half = half(record)?;
        let noise = Noise::of(trace, half)?;
        Ok(Self { config, trace, recorded, noise, half })
    }

    /// Whether the step's recorded value is what its recorded inputs give; nothing where one of them was not
    /// recorded.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_right(&self, step: &Step) -> Result<Option<bool>> {
        match (self.inputs(step), self.recorded.get(&step.name)) {
            (Some(inputs), Some(found)) => {
                self.noise.agree(&step.name, found, &step.op.eval(&inputs)?).map(Some)
            }
            (_, None) => Ok(Some(false)),
            (None, _) => Ok(None),
        }
    }

    /// What to call differences that no step makes by itself.
    ///
    /// # Errors
    /// If candle fails.
    pub fn rounding(&self) -> Result<Finding> {
        let (id, summary) = match self.half {
            Some(_) => ("half-precision", "no bug: the differences are those of 16-bit arithmetic"),
            None => ("noise", "no bug: the differences are those of rounding, which adds up"),
        };
        let mut furthest: Option<(f64, &str)> = None;
        for step in self.trace.steps().iter().filter(|step| step.op != Op::Given) {
            let Some(found) = self.recorded.get(&step.name) else { continue };
            // As in the judgement of the step: by what was recorded before it, where that is all there.
            let value = match self.inputs(step) {
                Some(inputs) => &step.op.eval(&inputs)?,
                None => &step.value,
            };
            if let Some(factor) = self.noise.multiple(&step.name, found, value)?
                && furthest.is_none_or(|(most, _)| factor > most)
            {
                furthest = Some((factor, &step.name));
            }
        }
        let step = furthest.map_or("output", |(_, step)| step).to_owned();
        let factor = furthest.map(|(factor, _)| factor);
        Ok(Finding { factor, ..Finding::mistake(id, step, summary) })
    }

    /// The mistakes that explain steps which are wrong though what they read is right, and the steps that none
    /// explains. A mistake that explains fewer of them than another, or that would show at a step that is right,
    /// gives way.
    ///
    /// # Errors
    /// If candle fails.
    pub fn explain(&self, faulty: &[&Step]) -> Result<(Vec<Finding>, Vec<String>)> {
        let mut explained = Vec::new();
        for mutation in catalogue() {
            let explanation = self.explanation(mutation, faulty)?;
            if !explanation.steps.is_empty() {
                explained.push(explanation);
            }
        }
        let mut findings: Vec<Finding> = Vec::new();
        for explanation in &explained {
            if explained.iter().any(|other| explanation.yields_to(other)) {
                continue;
            }
            let Explanation { mutation: Mutation { id, summary, .. }, steps, .. } = explanation;
            let step = steps.first().cloned().unwrap_or_default();
            // Two ways of one mistake can give the same numbers.
            if !findings.iter().any(|found| found.id == *id && found.step == step) {
                findings.push(Finding::mistake(id, step, summary));
            }
        }
        let is_explained =
            |name: &String| explained.iter().any(|explanation| explanation.steps.contains(name));
        let unexplained = faulty.iter().map(|step| step.name.clone());
        Ok((findings, unexplained.filter(|name| !is_explained(name)).collect()))
    }

    /// What a mistake explains of the faulty steps.
    fn explanation(&self, mutation: &'static Mutation, faulty: &[&Step]) -> Result<Explanation> {
        let mut explanation = Explanation { mutation, steps: Vec::new(), consistent: true };
        for step in faulty.iter().filter(|step| mutation.is_at(step)) {
            match self.gives(mutation, step)? {
                Some(true) => explanation.steps.push(step.name.clone()),
                Some(false) => explanation.consistent = false,
                None => {}
            }
        }
        // Most mistakes explain nothing, and need no comparison with what is right.
        let steps = self.trace.steps().iter().filter(|_| !explanation.steps.is_empty());
        for step in steps.filter(|step| mutation.is_at(step)) {
            if !faulty.iter().any(|other| other.name == step.name) {
                explanation.consistent &= self.gives(mutation, step)?.unwrap_or(true);
            }
        }
        Ok(explanation)
    }

    /// Whether the mistake, made at this step on the recorded inputs, gives what was recorded; nothing where that
    /// cannot be told.
    fn gives(&self, mutation: &Mutation, step: &Step) -> Result<Option<bool>> {
        let (Some(found), Some(inputs)) = (self.recorded.get(&step.name), self.inputs(step)) else {
            return Ok(None);
        };
        let site =
            Site { config: self.config, step, inputs, found: Some(found), values: self.recorded };
        for value in mutation.values(&site)? {
            if self.noise.agree(&step.name, found, &value)? {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    fn inputs(&self, step: &Step) -> Option<Vec<&Tensor>> {
        self.trace.read_by(step).iter().map(|read| self.recorded.get(&read.name)).collect()
    }
}

/// The 16-bit type that a file's values were computed in: that of a tensor, or the one that all its computed values
/// are numbers of, as `NumPy` has no bf16 and people widen what they record.
fn half(record: &Record) -> Result<Option<DType>> {
    let is_half = |dtype: &DType| matches!(dtype, DType::F16 | DType::BF16);
    let mut dtypes = record.entries.iter().map(|entry| entry.tensor.dtype());
    if let Some(dtype) = dtypes.find(is_half) {
        return Ok(Some(dtype));
    }
    let computed = record.entries.iter().filter(|entry| Role::of(&entry.name).is_none());
    let computed: Vec<&Tensor> = computed.map(|entry| &entry.tensor).collect();
    for dtype in [DType::BF16, DType::F16] {
        let mut fit = !computed.is_empty();
        for values in &computed {
            fit = fit && is_exact_in(values, dtype)?;
        }
        if fit {
            return Ok(Some(dtype));
        }
    }
    Ok(None)
}

/// Whether a type holds every value of a tensor exactly.
fn is_exact_in(values: &Tensor, dtype: DType) -> Result<bool> {
    let exact = Tolerance { rtol: 0.0, atol: 0.0 };
    let rounded = values.to_dtype(DType::F32)?.to_dtype(dtype)?.to_dtype(values.dtype())?;
    Ok(compare(values, &rounded, exact)?.mismatched == 0)
}
