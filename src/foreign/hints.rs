//! What the tensors of a foreign file tell of its run beside their numbers.

use candle_core::{DType, Tensor};

use super::names::meanings;
use file::{Entry, Record};
use program::{Name, of_pairs};

/// The number of heads that a foreign file's tensors tell, where there are so many items, queries and keys, and `width`
/// features of all heads: from those that have an axis for them, if they agree; with the name of the first.
pub fn heads(
    record: &Record,
    [batch, queries, keys]: [usize; 3],
    width: usize,
) -> Option<(usize, &str)> {
    let of = |entry: &Entry| {
        let meanings = meanings(&entry.name);
        let may_be = |is: fn(Name) -> bool| meanings.iter().copied().any(is);
        let dims = entry.tensor.dims();
        let heads = if may_be(|name| name.row().is_of_scores()) {
            let per_head = batch.checked_mul(queries)?.checked_mul(keys)?;
            entry.tensor.elem_count().checked_div(per_head)?
        } else if may_be(|name| name == Name::Lse) {
            entry.tensor.elem_count().checked_div(batch.checked_mul(queries)?)?
        } else if may_be(|name| name.row().is_of_heads()) && dims.len() > 2 {
            width.checked_div(*dims.last()?)?
        } else {
            return None;
        };
        // One head is what an average over the heads looks like too.
        let has_axis = [heads, heads.checked_mul(batch)?].iter().any(|size| dims.contains(size));
        (heads > 1 && has_axis && width.is_multiple_of(heads)).then_some(heads)
    };
    let of = |entry| of(entry).map(|heads| (heads, entry.name.as_str()));
    let told: Vec<(usize, &str)> = record.entries.iter().filter_map(of).collect();
    let (first, rest) = told.split_first()?;
    rest.iter().all(|(heads, _)| *heads == first.0).then_some(*first)
}

/// What a file's mask wrote into scores, where a file tells it: −∞, or a number so low that it can be nothing else.
pub fn mask_fill(record: &Record) -> Option<(f64, &str)> {
    record.entries.iter().find_map(|entry| Some((fill_in(entry)?, entry.name.as_str())))
}

/// What a mask wrote into a tensor that may be masked scores.
pub fn fill_in(entry: &Entry) -> Option<f64> {
    if !meanings(&entry.name).contains(&Name::MaskedScores) {
        return None;
    }
    let own = lowest(&entry.tensor).filter(|lowest| is_fill(*lowest))?;
    // A mask writes one number: beside a finite one, −∞ is a score that has overflowed.
    let finite = if own.is_finite() { None } else { lowest_finite(&entry.tensor) };
    Some(finite.filter(|finite| *finite <= LOWEST_SCORE).unwrap_or(own))
}

/// The lowest number of a tensor that is no infinity.
fn lowest_finite(tensor: &Tensor) -> Option<f64> {
    let is_finite = tensor.gt(f64::NEG_INFINITY).ok()?;
    let others = (tensor.zeros_like().ok()? + f64::INFINITY).ok()?;
    lowest(&is_finite.where_cond(tensor, &others).ok()?)
}

/// The lowest number of a tensor, if it has any.
pub fn lowest(tensor: &Tensor) -> Option<f64> {
    let lowest = tensor.flatten_all().ok()?.min(0).ok()?;
    lowest.to_dtype(DType::F64).ok()?.to_scalar().ok()
}

/// Whether a number is what masks fill with.
pub fn is_fill(value: f64) -> bool {
    value <= LOWEST_SCORE || is_lowest_f16(value)
}

/// Whether what a mask should have filled is like the other scores: on an average it is no further from theirs than they are.
pub(super) fn is_unmasked(found: &Tensor, masked: &Tensor) -> bool {
    let sums = |found: &[f64], masked: &[f64]| {
        let mut sums = [[0.0; 3]; 2];
        for (own, right) in found.iter().zip(masked) {
            let of = &mut sums[usize::from(is_fill(*right))];
            for (sum, more) in of.iter_mut().zip([1.0, *own, own * own]) {
                *sum += more;
            }
        }
        sums
    };
    let Ok(parts) = of_pairs(found, masked, sums) else { return false };
    let total = |fills: usize, at: usize| parts.iter().map(|part| part[fills][at]).sum::<f64>();
    let mean = |fills: usize| total(fills, 1) / total(fills, 0);
    let spread = (total(0, 2) / total(0, 0) - mean(0).powi(2)).sqrt();
    (mean(1) - mean(0)).abs() < spread
}

/// No score of a sane run is below this: −1e9 is the mildest fill that people write for −∞, and bf16 rounds it up.
pub(super) const LOWEST_SCORE: f64 = -0.99e9;

#[allow(clippy::float_cmp, reason = "exactly that number")]
fn is_lowest_f16(value: f64) -> bool {
    value == -65504.0
}
