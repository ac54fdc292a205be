//! Programs and traces: a trace is a program that has been run.

use std::collections::HashMap;

use candle_core::Tensor;

use super::axis::Axes;
use super::op::Op;
use crate::error::{Error, Result};

/// Tensors by step name: what a program is given from outside.
pub type Given = HashMap<String, Tensor>;

/// One step: an operation, the earlier steps it reads, and (in a trace) its value.
#[derive(Debug, Clone)]
pub struct Step<V = Tensor> {
    /// The name, unique in its program: `scores_raw`.
    pub name: String,
    /// The operation.
    pub op: Op,
    /// The positions of the steps that it reads, all before its own.
    pub inputs: Vec<usize>,
    /// The axes of its value.
    pub axes: Axes,
    /// Its value; nothing in a program that has not been run.
    pub value: V,
}

/// Steps in order of execution, not yet run.
#[derive(Debug, Clone, Default)]
pub struct Program {
    steps: Vec<Step<()>>,
}

impl Program {
    /// Adds a tensor that comes from outside, and returns its position.
    pub fn given(&mut self, name: &str, axes: Axes) -> usize {
        self.push(name, Op::Given, Vec::new(), axes)
    }

    /// Adds an operation on earlier steps, and returns its position.
    ///
    /// # Errors
    /// If the axes of the inputs do not fit the operation.
    pub fn then(&mut self, name: &str, op: Op, inputs: &[usize]) -> Result<usize> {
        let read = inputs.iter().map(|at| self.steps.get(*at).map(|step| &step.axes));
        let unknown =
            || Error::tensor(name, "reads a step that is not there", "add that step first");
        let read: Vec<&Axes> = read.collect::<Option<_>>().ok_or_else(unknown)?;
        let axes = op.axes(&read)?;
        Ok(self.push(name, op, inputs.to_vec(), axes))
    }

    fn push(&mut self, name: &str, op: Op, inputs: Vec<usize>, axes: Axes) -> usize {
        self.steps.push(Step { name: name.to_owned(), op, inputs, axes, value: () });
        self.steps.len() - 1
    }

    /// The steps in order of execution.
    #[must_use]
    pub fn steps(&self) -> &[Step<()>] {
        &self.steps
    }

    /// The steps that `step` reads.
    #[must_use]
    pub fn read_by(&self, step: &Step<()>) -> Vec<&Step<()>> {
        step.inputs.iter().filter_map(|at| self.steps.get(*at)).collect()
    }

    /// The names of the steps that read one of `differing`, directly or through other steps.
    #[must_use]
    pub fn downstream_of(&self, differing: &[String]) -> Vec<String> {
        let mut reached: Vec<bool> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let reads = |at: &usize| {
                reached.get(*at).copied().unwrap_or(false)
                    || self.steps.get(*at).is_some_and(|read| differing.contains(&read.name))
            };
            reached.push(step.inputs.iter().any(reads));
        }
        let steps = self.steps.iter().zip(reached);
        steps.filter(|(_, reached)| *reached).map(|(step, _)| step.name.clone()).collect()
    }

    /// Runs every step.
    ///
    /// # Errors
    /// If a given tensor is missing or has another shape than its axes, or candle fails.
    pub fn run(&self, given: &Given) -> Result<Trace> {
        let mut steps: Vec<Step> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let value = match step.op {
                Op::Given => find(given, step)?,
                op => op.eval(&values(&steps, &step.inputs))?,
            };
            let Step { name, op, inputs, axes, .. } = step.clone();
            steps.push(Step { name, op, inputs, axes, value });
        }
        Ok(Trace { steps })
    }
}

fn find(given: &Given, step: &Step<()>) -> Result<Tensor> {
    let missing = || Error::tensor(&step.name, "is not given", "give a tensor of that name");
    let tensor = given.get(&step.name).ok_or_else(missing)?;
    if tensor.dims() != step.axes.shape() {
        let what = format!("is {:?}, and this run needs {}", tensor.dims(), step.axes);
        return Err(Error::tensor(&step.name, what, "give a tensor of that shape"));
    }
    Ok(tensor.contiguous()?)
}

fn values<'a>(steps: &'a [Step], inputs: &[usize]) -> Vec<&'a Tensor> {
    inputs.iter().filter_map(|at| steps.get(*at)).map(|step| &step.value).collect()
}

/// A program that has been run: every step with its value.
#[derive(Debug, Clone)]
pub struct Trace {
    steps: Vec<Step>,
}

impl Trace {
    /// The steps in order of execution.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The step of that name.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// The steps that `step` reads.
    #[must_use]
    pub fn read_by(&self, step: &Step) -> Vec<&Step> {
        step.inputs.iter().filter_map(|at| self.steps.get(*at)).collect()
    }

    /// The step's formula, with the names of the steps it reads.
    #[must_use]
    pub fn formula(&self, step: &Step) -> String {
        let names: Vec<&str> = self.read_by(step).iter().map(|read| read.name.as_str()).collect();
        step.op.formula(&names)
    }

    /// The step's value, computed again from the values it reads.
    ///
    /// # Errors
    /// If candle fails.
    pub fn replay(&self, step: &Step) -> Result<Tensor> {
        match step.op {
            Op::Given => Ok(step.value.clone()),
            op => op.eval(&values(&self.steps, &step.inputs)),
        }
    }
}
