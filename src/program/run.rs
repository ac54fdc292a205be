//! How is a program run? Every value is kept, or else no longer than something reads it: what is wanted of it is handed
//! over then as it is made.

use candle_core::Tensor;

use super::graph::{Given, Program, Step, Trace};
use super::misread::Misread;
use super::name::Name;
use super::op::Op;
use super::rows::Chain;
use base::error::{Error, Result};

/// Gets the numbers of a run as they are made, each once, as far as it takes them.
pub trait Receiver: Sync {
    /// Says that a step is about to be computed, whose value is then there as a whole.
    ///
    /// # Errors
    /// If there is no room for its value, which ends the run.
    fn before(&self, _step: &Step<()>) -> Result<()> {
        Ok(())
    }

    /// Takes the value of a step.
    ///
    /// # Errors
    /// If it cannot be taken, which ends the run.
    fn whole(&self, _step: &Step<()>, _value: &Tensor) -> Result<()> {
        Ok(())
    }

    /// Takes some numbers of a step of f32, from the one at `first` on, in row-major order. Several threads call it.
    ///
    /// # Errors
    /// As [`Receiver::whole`].
    fn rows(&self, _step: &Step<()>, _first: usize, _numbers: &[f32]) -> Result<()> {
        Ok(())
    }
}

/// Takes nothing, as the values are kept.
struct Nobody;

impl Receiver for Nobody {}

impl Program {
    /// Runs every step. What follows from the settings can be given in place of that.
    ///
    /// # Errors
    /// If a given tensor is missing or has another shape than its axes, or candle fails.
    pub fn run(&self, given: &Given) -> Result<Trace> {
        let is_kept = vec![usize::MAX; self.steps().len()];
        let values = self.values(|name| given.get(&name).cloned(), &is_kept, &Nobody)?;
        let mut values = values.into_iter().flatten();
        self.run_with(|_, _| values.next().ok_or_else(|| Misread.into()))
    }

    /// Runs every step, to the same bits as [`Program::run`]. A value is dropped behind the last step that reads it; values
    /// of steps that follow from each other row by row are never there as a whole.
    ///
    /// # Errors
    /// If a given tensor is missing or has another shape than its axes, if `receiver` fails, or if candle fails.
    pub fn stream(&self, mut given: Given, receiver: &dyn Receiver) -> Result<()> {
        let last = self.last_readers();
        self.values(|name| given.remove(&name), &last, receiver).map(drop)
    }

    /// The values of all steps that are still there at the end, when each was dropped behind the step at its `last` place.
    fn values(
        &self,
        mut given: impl FnMut(Name) -> Option<Tensor>,
        last: &[usize],
        receiver: &dyn Receiver,
    ) -> Result<Vec<Option<Tensor>>> {
        let mut values: Vec<Option<Tensor>> = Vec::with_capacity(self.steps().len());
        while let Some(step) = self.steps().get(values.len()) {
            let is_given = !step.is_computed() && !step.is_inserted;
            let made = match is_given.then(|| given(step.name)).flatten() {
                Some(own) => {
                    let own = outside(step, &own)?;
                    receiver.whole(step, &own)?;
                    vec![Some(own)]
                }
                None => self.next(step, &values, last, receiver)?,
            };
            values.extend(made);
            let done = values.len();
            let is_over = values.iter_mut().zip(last).filter(|(_, last)| **last < done);
            is_over.for_each(|(value, _)| *value = None);
        }
        Ok(values)
    }

    /// The value of the step behind those that have had one, and of those that follow from it row by row: nothing of what
    /// is not read behind these.
    fn next(
        &self,
        step: &Step<()>,
        values: &[Option<Tensor>],
        last: &[usize],
        receiver: &dyn Receiver,
    ) -> Result<Vec<Option<Tensor>>> {
        let at = values.len();
        let known = |at: usize| values.get(at).and_then(Option::as_ref);
        if let Some(chain) = self.chain(at, known) {
            let end = at + chain.len();
            let is_read = |of: usize| last.get(at + of).is_some_and(|last| *last >= end);
            for (of, step) in self.steps().iter().skip(at).take(chain.len()).enumerate() {
                if is_read(of) {
                    receiver.before(step)?;
                }
            }
            return chain.computed(is_read, &|of, first, numbers| {
                let step = self.steps().get(at + of);
                step.map_or(Ok(()), |step| receiver.rows(step, first, numbers))
            });
        }
        if step.op == Op::Given {
            return Err(Error::tensor(step.name, "is not given", "give a tensor of that name"));
        }
        receiver.before(step)?;
        let read: Vec<&Tensor> = step.inputs.iter().filter_map(|at| known(*at)).collect();
        let value = step.op.eval(&read)?;
        receiver.whole(step, &value)?;
        Ok(vec![Some(value)])
    }

    /// The step at a place, and those behind it that follow from it row by row; `value` gives what was computed before.
    /// Nothing where its own rows do not follow from those of what it reads first.
    pub(super) fn chain<'a>(
        &'a self,
        at: usize,
        value: impl Fn(usize) -> Option<&'a Tensor>,
    ) -> Option<Chain<'a>> {
        let steps = self.steps().get(at..)?;
        let mut chain = Chain::of(value(*steps.first()?.inputs.first()?)?)?;
        for step in steps {
            let [first, others @ ..] = step.inputs.as_slice() else { break };
            let follows = chain.len() == 0 || *first + 1 == at + chain.len();
            let others: Option<Vec<&Tensor>> = others.iter().map(|at| value(*at)).collect();
            let others = others.filter(|_| follows && step.is_computed());
            let rows = others.and_then(|others| step.op.operation().rows(chain.shape(), &others));
            let Some(rows) = rows else { break };
            chain.add(rows);
        }
        (chain.len() > 0).then_some(chain)
    }

    /// For every step the last one that reads it; itself where none does.
    fn last_readers(&self) -> Vec<usize> {
        let mut last: Vec<usize> = (0..self.steps().len()).collect();
        for (at, step) in self.steps().iter().enumerate() {
            for read in &step.inputs {
                if let Some(last) = last.get_mut(*read) {
                    *last = at;
                }
            }
        }
        last
    }
}

impl Trace {
    /// The step's value, computed again from the values it reads; of what comes from outside, that.
    ///
    /// # Errors
    /// If candle fails.
    pub fn replay(&self, step: &Step) -> Result<Tensor> {
        let inputs: Vec<&Tensor> = self.read_by(step).iter().map(|read| &read.value).collect();
        if step.op == Op::Given { Ok(step.value.clone()) } else { step.op.eval(&inputs) }
    }
}

/// What is given for a step, if it has the step's shape.
fn outside(step: &Step<()>, tensor: &Tensor) -> Result<Tensor> {
    if tensor.dims() != step.axes.shape() {
        let what = tr!(
            "is {dims}, and this run needs {axes}",
            dims = format!("{:?}", tensor.dims()),
            axes = step.axes
        );
        return Err(Error::tensor(step.name, what, "give a tensor of that shape"));
    }
    Ok(tensor.contiguous()?)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use candle_core::{DType, Device};

    use super::*;
    use crate::{Axes, Axis, Fill, Linear, Masking, Name, Scaling};

    /// Numbers that were handed over, and the place of the first.
    type Part = (usize, Vec<f32>);

    /// What was handed over of each step.
    #[derive(Default)]
    struct Kept {
        parts: Mutex<HashMap<Name, Vec<Part>>>,
        in_rows: Mutex<Vec<Name>>,
    }

    impl Kept {
        fn keep(&self, step: &Step<()>, first: usize, numbers: Vec<f32>) {
            let mut parts = self.parts.lock().expect("no thread has failed");
            parts.entry(step.name).or_default().push((first, numbers));
        }
    }

    impl Receiver for Kept {
        fn whole(&self, step: &Step<()>, value: &Tensor) -> Result<()> {
            let numbers = value.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
            self.keep(step, 0, numbers);
            Ok(())
        }

        fn rows(&self, step: &Step<()>, first: usize, numbers: &[f32]) -> Result<()> {
            self.in_rows.lock().expect("no thread has failed").push(step.name);
            self.keep(step, first, numbers.to_vec());
            Ok(())
        }
    }

    /// Scores of which the masked ones are read again behind the steps that follow row by row.
    fn program() -> (Program, Given) {
        let axes = |last: (Axis, usize)| {
            Axes::new(vec![(Axis::Batch, 2), (Axis::Head, 3), (Axis::Query, 301), last])
        };
        let mut program = Program::default();
        let heads = |of: Axis, count: usize| {
            let dims = [(Axis::Batch, 2), (Axis::Head, 3), (of, count), (Axis::HeadDim, 20)];
            Axes::new(dims.to_vec())
        };
        let q = program.given(Name::QHeads, axes((Axis::HeadDim, 20)));
        let k = program.given(Name::KHeads, heads(Axis::Key, 500));
        let mask = program.given(Name::Mask, Axes::new(vec![(Axis::Query, 301), (Axis::Key, 500)]));
        let mut then =
            |name, op: Op, inputs: &[usize]| program.then(name, op, inputs).expect("fits");
        let raw = then(Name::ScoresRaw, Linear::DotProduct.into(), &[q, k]);
        let scores = then(Name::Scores, Scaling::Root { head_dim: 20, terms: 1 }.into(), &[raw]);
        let fill = Masking::Fill { fill: Fill(-1e9) };
        let masked = then(Name::MaskedScores, fill.into(), &[scores, mask]);
        then(Name::Weights, Scaling::SoftCap { cap: 3.0 }.into(), &[masked]);
        let numbers = |axes: &Axes| {
            let count = i64::try_from(axes.shape().iter().product::<usize>()).expect("few");
            let numbers = Tensor::arange(0, count, &Device::Cpu).and_then(|all| {
                let numbers = (all.to_dtype(DType::F64)? * 0.37)?.sin()?.to_dtype(DType::F32)?;
                numbers.reshape(axes.shape())
            });
            numbers.expect("fits")
        };
        let given = program.steps().iter().filter(|step| step.inputs.is_empty()).map(|step| {
            let own = numbers(&step.axes);
            let is_mask = step.name == Name::Mask;
            (step.name, if is_mask { own.gt(0.5).expect("booleans") } else { own })
        });
        let given = given.collect();
        (program, given)
    }

    #[test]
    fn every_number_is_handed_over_once_with_the_bits_of_a_kept_run() {
        let (program, given) = program();
        let trace = program.run(&given).expect("runs");
        let kept = Kept::default();
        program.stream(given, &kept).expect("runs");
        let in_rows = kept.in_rows.into_inner().expect("no thread has failed");
        assert!(in_rows.contains(&Name::ScoresRaw) && in_rows.contains(&Name::MaskedScores));
        let mut parts = kept.parts.into_inner().expect("no thread has failed");
        for step in trace.steps() {
            let mut own = parts.remove(&step.name).expect("handed over");
            own.sort_by_key(|(first, _)| *first);
            let mut numbers = Vec::new();
            for (first, part) in own {
                assert_eq!(first, numbers.len(), "{}", step.name);
                numbers.extend(part.into_iter().map(f32::to_bits));
            }
            let value = step.value.to_dtype(DType::F32).and_then(|value| value.flatten_all());
            let value = value.and_then(|value| value.to_vec1::<f32>()).expect("f32");
            let bits: Vec<u32> = value.into_iter().map(f32::to_bits).collect();
            assert!(numbers == bits, "{}", step.name);
        }
        assert!(parts.is_empty());
    }

    #[test]
    fn a_step_is_needed_until_its_last_reader() {
        let (program, _) = program();
        // q, k, mask, scores_raw, scores, masked_scores, weights.
        assert_eq!(program.last_readers(), [3, 3, 5, 4, 5, 6, 6]);
    }

    #[test]
    fn what_fails_to_be_taken_ends_the_run() {
        struct Full;
        impl Receiver for Full {
            fn rows(&self, step: &Step<()>, _: usize, _: &[f32]) -> Result<()> {
                Err(Error::tensor(step.name, "is not taken", "make room"))
            }
        }
        let (program, given) = program();
        assert!(program.stream(given.clone(), &Full).is_err());
        let without_keys = given.into_iter().filter(|(name, _)| *name != Name::KHeads).collect();
        assert!(program.stream(without_keys, &Kept::default()).is_err());
    }
}
