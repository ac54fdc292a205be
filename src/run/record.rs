//! Traces as records, for files.

use candle_core::DType;

use base::lang::Language;
use config::Config;
use file::{Entry, Info, Record};
use program::{Program, Step, Trace};

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
        formula: Some(formula(trace, step)),
        axes: Some(step.axes.names()),
        tensor: step.value.clone(),
    });
    Record { config: Some(config.into()), entries: entries.collect() }
}

/// What is known of the entries of [`to_record`] before the program is run.
pub fn to_infos(program: &Program, config: &Config) -> Vec<Info> {
    let dtype = |step: &Step<()>| {
        if step.name.row().is_boolean { DType::U8 } else { config.dtype.into() }
    };
    let info = |step: &Step<()>| Info {
        name: step.name.as_str().to_owned(),
        formula: Some(formula(program, step)),
        axes: Some(step.axes.names()),
        dtype: dtype(step),
        shape: step.axes.shape(),
    };
    Language::En.within(|| program.outer().map(info).collect())
}

fn formula<V>(program: &Program<V>, step: &Step<V>) -> String {
    if step.name.is_given() { "given".to_owned() } else { program.formula(step) }
}
