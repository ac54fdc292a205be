//! Refusing a run that the machine cannot hold, before it starts.

use candle_core::DType;

use crate::error::{Error, Result};
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
    // Below this no machine is in doubt, and asking it costs more than the run.
    if needed < 64 << 20 {
        return Ok(());
    }
    let available = available_memory();
    if needed > u128::from(available) {
        return Err(Error::TooLarge { needed, available });
    }
    Ok(())
}

/// Bytes that a process can still take: of the machine, or of its control group where that is less. A machine
/// that does not tell refuses nothing.
fn available_memory() -> u64 {
    let Ok(mut system) = sysinfo::System::new() else { return u64::MAX };
    system.refresh_memory();
    let group = system.cgroup_limits().map_or(u64::MAX, |limits| limits.free_memory);
    system.available_memory().min(group)
}
