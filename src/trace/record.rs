//! Traces as records, for files.

use super::program::{Program, Trace};
use crate::config::Config;
use crate::file::{Entry, Record};

impl Trace {
    /// The trace as a file holds it: the config, and every step with its formula and axes.
    #[must_use]
    pub fn to_record(&self, config: &Config) -> Record {
        let entries = self.steps().iter().map(|step| Entry {
            name: step.name.clone(),
            formula: Some(self.formula(step)),
            axes: Some(step.axes.names()),
            tensor: step.value.clone(),
        });
        Record { config: Some(config.into()), entries: entries.collect() }
    }
}

impl Program {
    /// The names of the steps that differ only because an earlier one of `differing` does: those that read one
    /// of them, directly or through other steps.
    #[must_use]
    pub fn downstream_of(&self, differing: &[String]) -> Vec<String> {
        let mut reached: Vec<bool> = Vec::with_capacity(self.steps().len());
        for step in self.steps() {
            let reads = |at: &usize| {
                reached.get(*at).copied().unwrap_or(false)
                    || self.steps().get(*at).is_some_and(|read| differing.contains(&read.name))
            };
            reached.push(step.inputs.iter().any(reads));
        }
        let steps = self.steps().iter().zip(reached);
        steps.filter(|(_, reached)| *reached).map(|(step, _)| step.name.clone()).collect()
    }
}
