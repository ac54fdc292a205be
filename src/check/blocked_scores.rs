//! Cells that nothing reads: scores that the mask blocks later.

use candle_core::Tensor;

use base::error::Result;
use program::{Name, Trace};

/// Scores before the mask, with the recomputed ones in the cells that it blocks: nothing reads those. Nothing for other
/// steps.
///
/// # Errors
/// If candle fails.
pub fn where_seen(
    trace: &Trace,
    name: Name,
    recorded: &Tensor,
    value: &Tensor,
) -> Result<Option<Tensor>> {
    let is_before = trace.position(name) < trace.position(Name::MaskedScores);
    let mask = trace.mask_of_scores().filter(|_| name.row().is_of_scores() && is_before);
    match mask {
        Some(mask) if recorded.dims() == value.dims() => {
            let value = value.to_dtype(recorded.dtype())?;
            Ok(Some(mask.value.broadcast_as(value.shape())?.where_cond(&value, recorded)?))
        }
        Some(_) | None => Ok(None),
    }
}
