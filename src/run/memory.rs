//! Refusing a run that the machine cannot hold, before it starts.

use candle_core::DType;

use base::error::{Error, Result};
use base::memory::lacking;
use program::{Op, Program, Step};

/// Refuses a run that needs more memory than this machine has free.
///
/// Counted are all values, which a trace keeps, and twice more the largest for what an operation needs
/// beside them (dropout, the most: its mask as numbers, and scaled).
///
/// # Errors
/// [`Error::TooLarge`], with both figures.
pub fn fits(program: &Program, dtype: DType) -> Result<()> {
    let largest = program.steps().iter().map(|step| step.bytes(dtype)).max().unwrap_or(0);
    has_room(program.bytes(dtype).saturating_add(largest.saturating_mul(2)))
}

/// Refuses a step whose value, with twice more for what an operation needs beside it, this machine cannot hold.
///
/// # Errors
/// If the step alone would not fit.
pub fn fits_step(step: &Step<()>, dtype: DType) -> Result<()> {
    has_room(step.bytes(dtype).saturating_mul(3))
}

/// Refuses a run whose given tensors this machine cannot hold.
///
/// # Errors
/// If the step alone would not fit.
pub fn fits_given(program: &Program, dtype: DType) -> Result<()> {
    let given = program.steps().iter().filter(|step| step.op == Op::Given);
    has_room(given.fold(0, |sum: u128, step| sum.saturating_add(step.bytes(dtype))))
}

fn has_room(needed: u128) -> Result<()> {
    match lacking(needed) {
        Some(available) => Err(Error::TooLarge { needed, available }),
        None => Ok(()),
    }
}
