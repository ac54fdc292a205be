//! What was gathered from pages, where it has more keys or fewer than the lengths of the sequences say.

use candle_core::{DType, Tensor};

use super::axis_order::AxisOrder;
use file::Entry;
use program::{Axes, Axis, Name, Step};

/// Why what was gathered from pages is not its step, where it has more keys or fewer: the lengths are what is wrong then.
pub(super) fn of_other_keys(entry: &Entry, step: &Step) -> Option<String> {
    if !matches!(step.name, Name::KGathered | Name::VGathered) {
        return None;
    }
    let with = |keys: usize| {
        let axes = step
            .axes
            .iter()
            .map(|(axis, size)| (axis, if axis == Axis::Key { keys } else { size }));
        let axes = Axes::new(axes.collect::<Vec<_>>());
        AxisOrder::all(&axes, entry.tensor.dims()).into_iter().next()
    };
    let own = entry.tensor.dims().iter().find_map(|keys| with(*keys)?.apply(&entry.tensor).ok())?;
    let rows = |tensor: &Tensor| -> Option<Vec<Vec<f64>>> {
        let rows = tensor.transpose(1, 2).ok()?.flatten(0, 1).ok()?.flatten_from(1).ok()?;
        rows.to_dtype(DType::F64).ok()?.to_vec2().ok()
    };
    let (own, meant) = (rows(&own)?, rows(&step.value)?);
    let at = own.iter().zip(&meant).position(|(own, meant)| own != meant);
    let at = at.unwrap_or(own.len().min(meant.len()));
    Some(tr!(
        "it has {count} keys, and the sequences have {all} by their lengths: from key {at} on it has others",
        count = own.len(),
        all = meant.len(),
        at
    ))
}
