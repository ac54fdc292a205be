//! The mistakes that people really ship in attention code: each documented, each able to make its numbers.
//!
//! All of them keep every shape valid, so nothing but the numbers tells. A [`Mutation`] computes what the faulty
//! code gives at the steps where the mistake sits; every other step follows from those.

mod heads;
mod mask;
mod modern;
mod projection;
mod rope;
mod scale;
mod softmax;

use std::collections::HashMap;

use candle_core::Tensor;

use crate::config::Config;
use crate::error::{Error, Result, near_miss};
use crate::trace::Step;

/// A known mistake.
pub struct Mutation {
    /// The name in reports.
    pub id: &'static str,
    /// What the faulty code does.
    pub summary: &'static str,
    /// Why nothing fails.
    pub silent: &'static str,
    /// The faulty line, in PyTorch.
    pub example: &'static str,
    /// The line as it should be.
    pub fix: &'static str,
    /// The steps whose value is wrong, their inputs being right.
    pub(super) steps: &'static [&'static str],
    /// What the faulty code gives there: nothing if it makes no difference in this run, several values where the
    /// mistake has variants.
    faulty: fn(&Site) -> Result<Vec<Tensor>>,
}

impl Mutation {
    /// Whether the step is one whose value is wrong.
    pub(super) fn is_at(&self, step: &Step) -> bool {
        self.steps.contains(&step.name.as_str())
    }

    /// What the faulty code gives at a site. What has another shape than the step would have failed, and is no mistake
    /// that is shipped.
    pub(super) fn values(&self, site: &Site) -> Result<Vec<Tensor>> {
        let shape = site.step.axes.shape();
        let values = (self.faulty)(site)?.into_iter();
        Ok(values.filter(|value| value.dims() == shape).collect())
    }

    /// Whether two mistakes have a step in common, at which only one of them could be made.
    pub(super) fn shares_a_step(&self, other: &Self) -> bool {
        self.steps.iter().any(|step| other.steps.contains(step))
    }

    /// Whether what the faulty code gives for one item of the batch depends on the others.
    pub(super) fn mixes_items(&self) -> bool {
        self.id == "mask-batch-head-mixed"
    }
}

/// A step of a run, as a mutation sees it.
pub struct Site<'a> {
    /// The setting of the run.
    pub(super) config: &'a Config,
    /// The step.
    pub(super) step: &'a Step,
    /// The values that the step reads.
    pub(super) inputs: Vec<&'a Tensor>,
    /// The value that is to be explained, where the step itself was recorded.
    pub(super) found: Option<&'a Tensor>,
    /// The values of all steps before this one, by name.
    pub(super) values: &'a HashMap<String, Tensor>,
}

impl Site<'_> {
    /// The step's value without a mistake.
    pub(super) fn correct(&self) -> Result<Tensor> {
        self.step.op.eval(&self.inputs)
    }

    /// The step's first input: what it works on.
    fn input(&self) -> Option<&Tensor> {
        self.inputs.first().copied()
    }

    fn value(&self, name: &str) -> Option<&Tensor> {
        self.values.get(name)
    }
}

/// One value, or none where it could not be made for this run.
#[allow(clippy::unnecessary_wraps, reason = "it ends what computes a mistake's values")]
fn one(value: Option<Tensor>) -> Result<Vec<Tensor>> {
    Ok(value.into_iter().collect())
}

/// The ways in which the known mistake of that name is made.
///
/// # Errors
/// If there is none; a near miss is suggested.
pub fn find(id: &str) -> Result<Vec<&'static Mutation>> {
    let found: Vec<_> = catalogue().into_iter().filter(|mutation| mutation.id == id).collect();
    if found.is_empty() {
        let ids: Vec<&str> = catalogue().iter().map(|mutation| mutation.id).collect();
        let fix = match near_miss(id, &ids) {
            Some(near) => format!("did you mean {near}?"),
            None => "mha-trace bugs lists them".to_owned(),
        };
        return Err(Error::config(format!("no known mistake is called {id}"), fix));
    }
    Ok(found)
}

/// Every known mistake, the simplest first.
#[must_use]
pub fn catalogue() -> Vec<&'static Mutation> {
    let groups = [
        scale::ALL,
        mask::ALL,
        softmax::ALL,
        modern::ALL,
        rope::ALL,
        heads::ALL,
        projection::QUERY,
        projection::KEY,
        projection::VALUE,
        projection::OUTPUT,
        projection::ALL,
    ];
    groups.into_iter().flatten().collect()
}
