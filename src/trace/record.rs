//! Traces as records, for files.

use super::program::Trace;
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
