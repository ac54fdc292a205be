//! How much memory a run needs; one that this process cannot hold is refused before it starts.

use candle_core::DType;

use base::error::{Result, refuse_too_large};
use program::{Biasing, EmptyRow, Op, Program, Step, Weighting};

/// Refuses a run that needs more memory than this process can take.
///
/// # Errors
/// [`TooLarge`](base::Error::TooLarge), with both figures.
pub fn fits(program: &Program, dtype: DType) -> Result<()> {
    refuse_too_large(needed(program, dtype))
}

/// The bytes that a trace takes at most: those of all values, which it keeps, of the largest once more, as drawing and
/// most operations need it, and of what some operations need beside that.
fn needed(program: &Program, dtype: DType) -> u128 {
    let largest = program.steps().iter().map(|step| step.bytes(dtype)).max().unwrap_or(0);
    let beside = program.steps().iter().map(|step| beside(program, step, dtype));
    beside.fold(program.bytes(dtype).saturating_add(largest), u128::saturating_add)
}

/// What an operation needs beside its value, in copies of that or of what it reads. The allocator keeps them for later.
fn beside(program: &Program, step: &Step<()>, dtype: DType) -> u128 {
    let read = step.inputs.iter().filter_map(|at| program.steps().get(*at));
    let read = read.map(|step| step.bytes(dtype)).max().unwrap_or(0);
    let (copies, of) = match &step.op {
        // The exponentials of all scores; the mask as numbers, and scaled.
        Op::Weighting(Weighting::LogSumExp | Weighting::Dropout { .. }) => (2, read),
        // The scores beside one that is no key's.
        Op::Weighting(Weighting::Softmax { .. }) if step.inputs.len() > 1 => (2, read),
        Op::Weighting(Weighting::Softmax { empty_row: EmptyRow::Zero, .. }) => (1, read),
        // They are of f64.
        Op::Biasing(Biasing::Distances(_)) => (2, step.bytes(dtype)),
        Op::Biasing(Biasing::Relative(_) | Biasing::Picked(_)) => (1, step.bytes(dtype)),
        _ => (0, 0),
    };
    of.saturating_mul(copies)
}

/// Refuses a step whose value, with twice more for what an operation needs beside it, this process cannot hold.
///
/// # Errors
/// If the step alone would not fit.
pub fn fits_step(step: &Step<()>, dtype: DType) -> Result<()> {
    refuse_too_large(step.bytes(dtype).saturating_mul(3))
}

/// Refuses a run whose given tensors this process cannot hold.
///
/// # Errors
/// If the step alone would not fit.
pub fn fits_given(program: &Program, dtype: DType) -> Result<()> {
    let given = program.steps().iter().filter(|step| step.op == Op::Given);
    refuse_too_large(given.fold(0, |sum: u128, step| sum.saturating_add(step.bytes(dtype))))
}

#[cfg(test)]
mod tests {
    use config::{Setting, Settings};

    use super::*;
    use crate::{Run, Sources};

    /// What a trace of 1024 tokens and four heads took of a process when it was measured, without the 12.6 MiB that the
    /// process takes anyway: as little more is asked for.
    #[test]
    fn what_a_run_is_said_to_need_is_what_it_takes() {
        let cases: [(&[(&str, &str)], f64); 9] = [
            (&[], 68.0),
            (&[("dtype", "f64")], 134.9),
            (&[("softcap", "30")], 86.2),
            (&[("dropout", "0.1")], 119.9),
            (&[("sinks", "true")], 100.6),
            (&[("lse", "true"), ("mean_weights", "true")], 108.1),
            (&[("empty_rows", "zero"), ("mask_fill", "-inf")], 88.5),
            (&[("alibi", "true")], 141.4),
            (&[("relative_bias", "bidirectional")], 119.0),
        ];
        for (stated, measured) in cases {
            let mut settings = Settings::default();
            for (key, text) in stated {
                let setting = Setting::named(key).expect(key);
                setting.set(&mut settings, text).expect(key);
            }
            let (seq_len, d_model, heads) = (Some(1024), Some(64), Some(4));
            let settings = Settings { seq_len, d_model, heads, ..settings };
            let run = Run::new(&settings, Sources::default()).expect("valid");
            let needed = needed(run.program(), run.config().dtype.into());
            let share = needed as f64 / (measured * 1024.0 * 1024.0);
            assert!((1.0..1.3).contains(&share), "{stated:?}: {share}");
        }
    }
}
