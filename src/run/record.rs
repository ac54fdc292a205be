//! What does a file hold of a trace?

use candle_core::DType;

use base::lang::Language;
use config::Config;
use file::{Info, Record};
use program::{Program, Step, Trace};

/// The trace as a file holds it: the config, and every step with its formula and axes. Steps that stand for a part of
/// another are left out, as they follow from the config; what is made of them is given, as far as the file goes.
pub fn to_record(trace: &Trace, config: &Config) -> Record {
    let values = trace.outer().map(|step| step.value.clone());
    let entries = to_infos(trace, config).into_iter().zip(values);
    let entries = entries.map(|(info, value)| info.with(value)).collect();
    Record { config: Some(config.into()), entries }
}

/// What is known of the entries of [`to_record`], before the program is run too.
pub fn to_infos<V>(program: &Program<V>, config: &Config) -> Vec<Info> {
    let info = |step: &Step<V>| {
        let is_boolean = step.name.row().is_boolean;
        Info {
            name: step.name.as_str().to_owned(),
            formula: Some(formula(program, step)),
            axes: Some(step.axes.names()),
            dtype: if is_boolean { DType::U8 } else { config.dtype.into() },
            shape: step.axes.shape(),
        }
    };
    // Files are the same in every language.
    Language::En.within(|| program.outer().map(info).collect())
}

fn formula<V>(program: &Program<V>, step: &Step<V>) -> String {
    if step.name.is_given() { "given".to_owned() } else { program.formula(step) }
}
