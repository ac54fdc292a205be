//! Refusing a run that the machine cannot hold, before it starts.

use candle_core::DType;

use crate::error::{Error, Result};
use crate::memory::lacking;
use crate::program::Program;

/// Refuses a run that needs more memory than this machine has free.
///
/// Counted are all values, which a trace keeps, and twice more the largest for what an operation needs
/// beside them (dropout, the most: its mask as numbers, and scaled).
///
/// # Errors
/// [`Error::TooLarge`], with both figures.
pub fn fits(program: &Program, dtype: DType) -> Result<()> {
    let largest = program.steps().iter().map(|step| step.bytes(dtype)).max().unwrap_or(0);
    let needed = program.bytes(dtype).saturating_add(largest.saturating_mul(2));
    match lacking(needed) {
        Some(available) => Err(Error::TooLarge { needed, available }),
        None => Ok(()),
    }
}
