//! Which known mistake gives the numbers that were found.

use std::collections::HashMap;

use candle_core::{DType, Tensor};

use super::compare::compare;
use super::mutation::{Mutation, Site, catalogue};
use super::tolerance::Tolerance;
use crate::config::Config;
use crate::error::Result;
use crate::file::Record;
use crate::trace::{Op, Step, Trace};

/// A known mistake that gives the numbers found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The mistake's name.
    pub id: &'static str,
    /// The first step that it explains.
    pub step: String,
    /// What the faulty code does.
    pub summary: &'static str,
}

impl Finding {
    /// Whether this is no mistake but the rounding of f32 or of 16-bit arithmetic.
    #[must_use]
    pub fn is_rounding(&self) -> bool {
        matches!(self.id, "noise" | "half-precision")
    }
}

/// The faulty steps that a mistake explains, and whether it fits those that are right.
struct Explanation {
    mutation: &'static Mutation,
    steps: Vec<String>,
    consistent: bool,
}

/// A recorded run beside its recomputed self.
pub struct Evidence<'a> {
    config: &'a Config,
    /// The run, recomputed.
    pub trace: &'a Trace,
    /// Every value that was recorded, given ones included, in the type of the run.
    recorded: &'a HashMap<String, Tensor>,
    /// The 16-bit type that values were recorded in, if one was.
    half: Option<DType>,
    /// How far rounding alone takes each step of this very run, at most.
    noise: HashMap<String, f64>,
}

/// What the noise of one run is multiplied by: another order of additions and other instructions give other noise of
/// the same size. With it none of 500 correct runs by PyTorch, in f64, f32, f16 and bf16 and with the products added
/// in random order, is called different (`benches/pytorch.py noise`).
const NOISE_FACTOR: f64 = 8.0;

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
        let mut dtypes = record.entries.iter().map(|entry| entry.tensor.dtype());
        let half = dtypes.find(|dtype| matches!(dtype, DType::F16 | DType::BF16));
        let noise = noise(trace, half)?;
        Ok(Self { config, trace, recorded, half, noise })
    }

    /// Whether the step's recorded value is what its recorded inputs give; nothing where one of them was not
    /// recorded.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_right(&self, step: &Step) -> Result<Option<bool>> {
        let inputs = self.inputs(step, self.recorded);
        match (inputs, self.recorded.get(&step.name)) {
            (Some(inputs), Some(found)) => {
                self.agree(&step.name, found, &step.op.eval(&inputs)?).map(Some)
            }
            (_, None) => Ok(Some(false)),
            (None, _) => Ok(None),
        }
    }

    /// What to call differences that no step makes by itself.
    pub fn rounding(&self) -> Finding {
        let (id, summary) = match self.half {
            Some(_) => ("half-precision", "no bug: the differences are those of 16-bit arithmetic"),
            None => ("noise", "no bug: the differences are those of rounding, which adds up"),
        };
        Finding { id, step: "output".to_owned(), summary }
    }

    /// Whether the recorded steps are those of the right run, but for rounding.
    ///
    /// # Errors
    /// If candle fails.
    pub fn is_right_throughout(&self) -> Result<bool> {
        let steps = self.trace.steps().iter();
        let right = steps.map(|step| (step.name.clone(), step.value.clone())).collect();
        self.agrees_throughout(&right)
    }

    fn agree(&self, step: &str, left: &Tensor, right: &Tensor) -> Result<bool> {
        let noise = self.noise.get(step).copied().unwrap_or(0.0);
        let rounding = Tolerance { rtol: 0.0, atol: NOISE_FACTOR * noise };
        // What the user allows says what differs, not what explains it.
        let tolerance = Tolerance::of(left.dtype()).looser(rounding);
        Ok(left.dims() == right.dims() && compare(left, right, tolerance)?.mismatched == 0)
    }

    /// The mistakes that explain these steps, each wrong though what it reads is right: those that explain all of
    /// them, or else, step by step, those that explain one. Those that would show at a step that is right give way
    /// to those that would not.
    ///
    /// # Errors
    /// If candle fails.
    pub fn explain(&self, faulty: &[&Step]) -> Result<Vec<Finding>> {
        let mut explained = Vec::new();
        for mutation in catalogue() {
            let explanation = self.explanation(mutation, faulty)?;
            if !explanation.steps.is_empty() {
                explained.push(explanation);
            }
        }
        if explained.iter().any(|explanation| explanation.steps.len() == faulty.len()) {
            explained.retain(|explanation| explanation.steps.len() == faulty.len());
        }
        if explained.iter().any(|explanation| explanation.consistent) {
            explained.retain(|explanation| explanation.consistent);
        }
        let finding = |Explanation { mutation, steps, .. }: Explanation| Finding {
            id: mutation.id,
            step: steps.into_iter().next().unwrap_or_default(),
            summary: mutation.summary,
        };
        let mut findings: Vec<Finding> = explained.into_iter().map(finding).collect();
        findings.dedup();
        Ok(findings)
    }

    /// What a mistake explains of the faulty steps.
    fn explanation(&self, mutation: &'static Mutation, faulty: &[&Step]) -> Result<Explanation> {
        let mut explanation = Explanation { mutation, steps: Vec::new(), consistent: true };
        let sites = self.trace.steps().iter();
        for step in sites.filter(|step| mutation.steps.contains(&step.name.as_str())) {
            let is_faulty = faulty.iter().any(|other| other.name == step.name);
            match self.gives(mutation, step)? {
                Some(true) if is_faulty => explanation.steps.push(step.name.clone()),
                Some(given) => explanation.consistent &= given,
                None => {}
            }
        }
        Ok(explanation)
    }

    /// Whether the mistake, made at this step on the recorded inputs, gives what was recorded; nothing where that
    /// cannot be told.
    fn gives(&self, mutation: &Mutation, step: &Step) -> Result<Option<bool>> {
        let (Some(found), Some(inputs)) =
            (self.recorded.get(&step.name), self.inputs(step, self.recorded))
        else {
            return Ok(None);
        };
        let site =
            Site { config: self.config, step, inputs, found: Some(found), values: self.recorded };
        for value in (mutation.faulty)(&site)? {
            if self.agree(&step.name, found, &value)? {
                return Ok(Some(true));
            }
        }
        Ok(Some(false))
    }

    /// The mistakes that, made in a whole run, give every step that was recorded.
    ///
    /// # Errors
    /// If candle fails.
    pub fn explain_by_whole_runs(&self) -> Result<Vec<Finding>> {
        let mut findings: Vec<Finding> = Vec::new();
        for mutation in catalogue() {
            for variant in 0.. {
                let Some(run) = self.run_with(mutation, variant)? else { break };
                if self.agrees_throughout(&run)? && self.shows(&run)? {
                    let step = mutation.steps.first().copied().unwrap_or_default().to_owned();
                    findings.push(Finding { id: mutation.id, step, summary: mutation.summary });
                    break;
                }
            }
        }
        findings.dedup_by(|left, right| left.id == right.id);
        Ok(findings)
    }

    /// Whether a recorded step of the run differs from the right one's.
    fn shows(&self, run: &HashMap<String, Tensor>) -> Result<bool> {
        let recorded =
            self.trace.steps().iter().filter(|step| self.recorded.contains_key(&step.name));
        for step in recorded {
            if let Some(value) = run.get(&step.name)
                && !self.agree(&step.name, value, &step.value)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All values of a run in which the mistake is made; nothing where it has no such variant in this run.
    fn run_with(
        &self,
        mutation: &Mutation,
        variant: usize,
    ) -> Result<Option<HashMap<String, Tensor>>> {
        let mut values: HashMap<String, Tensor> = HashMap::new();
        let mut made = false;
        for step in self.trace.steps() {
            let value = if step.op == Op::Given {
                step.value.clone()
            } else {
                let Some(inputs) = self.inputs(step, &values) else { return Ok(None) };
                let site = Site { config: self.config, step, inputs, found: None, values: &values };
                let wrong = if mutation.steps.contains(&step.name.as_str()) {
                    (mutation.faulty)(&site)?.into_iter().nth(variant)
                } else {
                    None
                };
                made |= wrong.is_some();
                match wrong {
                    Some(value) => value,
                    None => site.correct()?,
                }
            };
            values.insert(step.name.clone(), value);
        }
        Ok(made.then_some(values))
    }

    fn agrees_throughout(&self, run: &HashMap<String, Tensor>) -> Result<bool> {
        for (name, recorded) in self.recorded {
            if let Some(value) = run.get(name)
                && !self.agree(name, recorded, value)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn inputs<'v>(
        &self,
        step: &Step,
        values: &'v HashMap<String, Tensor>,
    ) -> Option<Vec<&'v Tensor>> {
        self.trace.read_by(step).iter().map(|read| values.get(&read.name)).collect()
    }
}

/// The largest difference of every step's value from what it is in f64, when it is computed as it was recorded: in
/// the type of the run, or with every value rounded to `half`.
fn noise(trace: &Trace, half: Option<DType>) -> Result<HashMap<String, f64>> {
    let exact = rerun(trace, |value| value.to_dtype(DType::F64))?;
    let rounded = match half {
        Some(half) => rerun(trace, |value| value.to_dtype(half)?.to_dtype(DType::F32))?,
        None => rerun(trace, |value| Ok(value.clone()))?,
    };
    let mut noise = HashMap::new();
    for (name, exact) in &exact {
        let Some(rounded) = rounded.get(name) else { continue };
        let difference = rounded.to_dtype(DType::F64)?.sub(exact)?.abs()?.flatten_all()?;
        let differences =
            difference.to_vec1::<f64>()?.into_iter().filter(|value| value.is_finite());
        noise.insert(name.clone(), differences.fold(0.0, f64::max));
    }
    Ok(noise)
}

/// The computed values of the run, each number rounded as it is made; booleans stay.
fn rerun(
    trace: &Trace,
    round: impl Fn(&Tensor) -> candle_core::Result<Tensor>,
) -> Result<HashMap<String, Tensor>> {
    let mut values: Vec<Tensor> = Vec::new();
    for step in trace.steps() {
        let value = if step.op == Op::Given {
            step.value.clone()
        } else {
            let inputs: Vec<&Tensor> =
                step.inputs.iter().filter_map(|at| values.get(*at)).collect();
            step.op.eval(&inputs)?
        };
        values.push(if value.dtype().is_float() { round(&value)? } else { value });
    }
    let computed = trace.steps().iter().zip(values).filter(|(step, _)| step.op != Op::Given);
    Ok(computed.map(|(step, value)| (step.name.clone(), value)).collect())
}
