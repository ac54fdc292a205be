//! Traces as records, for files.

use crate::config::Config;
use crate::file::{Entry, Record};
use crate::lang::Language;
use crate::program::{Op, Trace};

/// The trace as a file holds it: the config, and every step with its formula and axes. Steps that stand for a part of
/// another are left out, as they follow from the config; what is made of them is given, as far as the file goes.
#[must_use]
pub fn to_record(trace: &Trace, config: &Config) -> Record {
    // Files are the same in every language.
    Language::En.within(|| recorded(trace, config))
}

fn recorded(trace: &Trace, config: &Config) -> Record {
    let entries = trace.outer().map(|step| Entry {
        name: step.name.as_str().to_owned(),
        formula: Some(if step.name.is_given() {
            Op::Given.formula(&[])
        } else {
            trace.formula(step)
        }),
        axes: Some(step.axes.names()),
        tensor: step.value.clone(),
    });
    Record { config: Some(config.into()), entries: entries.collect() }
}
