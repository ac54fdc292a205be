//! Which numbers were left out at random, as dropout does?

use candle_core::{DType, Tensor};

use crate::candidate::{Candidate, cost};
use crate::cells::{cells, ratio};
use crate::grammar::numbers::short;
use crate::scope::Scope;
use crate::thresholds::LEAST_CELLS;
use base::error::Result;
use program::{Change, Edit, KeepSome, Kind, Linear, Name, Op, Weighting};

/// Dropout, if each cell is 0 or the right one times one number.
pub fn after(at: Name, found: &Tensor, right: &Tensor) -> Result<Option<Candidate>> {
    let (cells_found, cells_right) = (cells(found)?, cells(right)?);
    let pairs = || cells_found.iter().zip(&cells_right).filter(|(_, right)| right.abs() > 0.0);
    let kept: Vec<(f64, f64)> =
        pairs().filter(|(found, _)| **found != 0.0).map(|(f, r)| (*f, *r)).collect();
    let (count, all) = (kept.len(), pairs().count());
    if count < LEAST_CELLS.min(all / 4 + 1) || count == all || count * 20 < all {
        return Ok(None);
    }
    let (found_kept, right_kept): (Vec<f64>, Vec<f64>) = kept.into_iter().unzip();
    let factor = plain(ratio(&found_kept, &right_kept));
    // Whole rows that are 0 are no dropout of single numbers, and what falls by its sign is an activation.
    let dropped: Vec<f64> =
        pairs().filter(|(found, _)| **found == 0.0).map(|(_, right)| *right).collect();
    let has_both = cells_right.iter().any(|value| *value < 0.0);
    let is_by_sign =
        dropped.iter().all(|value| *value < 0.0) || dropped.iter().all(|value| *value > 0.0);
    let keep = found.ne(0.0)?;
    if (has_both && is_by_sign)
        || has_empty_slice(&keep, right)?
        || !is_scattered(&cells_found, &cells_right)
    {
        return Ok(None);
    }
    let share = (all - count, all);
    Ok(Some(dropout(at, KeepSome { keep, factor }, share, false)))
}

/// Whether what is left out changes from cell to cell about as often as by chance.
fn is_scattered(found: &[f64], right: &[f64]) -> bool {
    let kept: Vec<bool> = found
        .iter()
        .zip(right)
        .filter(|(_, right)| **right != 0.0)
        .map(|(found, _)| *found != 0.0)
        .collect();
    let changes = kept.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let (count, changes) = (kept.len() as f64, changes as f64);
    let share = kept.iter().filter(|kept| **kept).count() as f64 / count;
    changes > count * share * (1.0 - share)
}

/// Whether all cells at a place of some axis are left out, of those that are not 0 anyway.
fn has_empty_slice(keep: &Tensor, right: &Tensor) -> Result<bool> {
    let there = right.ne(0.0)?;
    let kept = (keep * &there)?;
    for (axis, size) in keep.dims().iter().enumerate().filter(|(_, size)| **size > 1) {
        for place in 0..*size {
            let count = |mask: &Tensor| -> Result<f32> {
                let part = mask.narrow(axis, place, 1)?.to_dtype(DType::F32)?;
                Ok(part.sum_all()?.to_scalar::<f32>()?)
            };
            if count(&there)? >= 8.0 && count(&kept)? == 0.0 {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// A factor, or 1 where it is as good as that.
fn plain(factor: f64) -> f64 {
    if (factor - 1.0).abs() < 1e-4 { 1.0 } else { factor }
}

/// Dropout of a step's numbers, or of the weights before it, of which so many of so many are left out.
fn dropout(at: Name, kept: KeepSome, (left, all): (usize, usize), is_before: bool) -> Candidate {
    let factor = kept.factor;
    #[allow(clippy::float_cmp, reason = "1 exactly is no factor")]
    let scaled = if factor == 1.0 {
        tr!("not scaled up").to_owned()
    } else {
        let recip = format!("{:.3}", 1.0 - factor.recip());
        tr!("multiplied by {factor}, as for p = {recip}", factor = short(factor), recip)
    };
    let share = format!("{:.0}", 100.0 * left as f64 / all as f64);
    let op = Weighting::KeepSome(kept).into();
    let (change, told) = if is_before {
        let told = tr!(
            "{at}: {share} % of the weights that it reads are 0 and the others are {scaled}: dropout",
            at,
            share,
            scaled
        );
        (Change::Before(0, op, Vec::new()), told)
    } else {
        let told = tr!(
            "{at}: {share} % of its numbers are 0 and the others are {scaled}: dropout",
            at,
            share,
            scaled
        );
        (Change::After(op, Vec::new()), told)
    };
    // Dropout that does not scale is left out by a loop sooner.
    let cost = if factor > 1.0 { cost::RARE } else { cost::ODD + 1 };
    Candidate::new(Kind::Random, cost, vec![Edit::new(at, change)], told)
}

/// So many keys of a row are tried in all ways to leave some of them out.
const MOST_KEYS: usize = 12;

/// So many sums are tried in all.
const MOST_SUMS: usize = 1 << 22;

/// Dropout of the weights before the weighted sum, where these were recorded without it: of each row the keys that are left
/// out are those without which the sum is what was recorded.
///
/// # Errors
/// If candle fails.
pub fn before_sum(scope: &Scope, at: Name) -> Result<Option<Candidate>> {
    let Some(step) = scope.trace().step(at) else { return Ok(None) };
    let (Op::Linear(Linear::WeightedSum), Some(found)) = (&step.op, scope.recorded(at)) else {
        return Ok(None);
    };
    let Some(&[weights, values]) = scope.inputs(step).as_deref() else { return Ok(None) };
    Ok(kept_of_sum(found, weights, values)?.map(|(kept, share)| dropout(at, kept, share, true)))
}

/// Of weights (batch, head, row, place) those with which the weighted sum of values (batch, head, place, `head_dim`) is what was
/// found, and how many of how many are left out; nothing where there are too many places to try, or none is left out.
///
/// # Errors
/// If candle fails.
pub fn kept_of_sum(
    found: &Tensor,
    weights: &Tensor,
    values: &Tensor,
) -> Result<Option<(KeepSome, (usize, usize))>> {
    let (keys, width) = (weights.dim(3)?, values.dim(3)?);
    let rows_of_head = weights.dim(2)?;
    if keys > MOST_KEYS
        || keys == 0
        || width < 2
        || (weights.elem_count() / keys) << keys > MOST_SUMS
    {
        return Ok(None);
    }
    let (found, weights_in, values) = (cells(found)?, cells(weights)?, cells(values)?);
    let rows = found.chunks(width).zip(weights_in.chunks(keys)).enumerate();
    let rows: Vec<Row> = rows
        .map(|(row, (found, weights))| {
            let head = row / rows_of_head;
            Row::new(found, weights, &values[head * keys * width..(head + 1) * keys * width])
        })
        .collect();
    let mut factors: Vec<f64> =
        rows.iter().filter_map(|row| row.nearest(None)).map(|(_, by)| by).collect();
    if factors.len() < LEAST_CELLS {
        return Ok(None);
    }
    factors.sort_by(f64::total_cmp);
    let factor = plain(factors[factors.len() / 2]);
    let mut keep = Vec::with_capacity(weights_in.len());
    for row in &rows {
        let kept = row.nearest(Some(factor)).map_or(0, |(kept, _)| kept);
        keep.extend((0..keys).map(|key| u8::from(kept >> key & 1 == 1)));
    }
    let seen = || keep.iter().zip(&weights_in).filter(|(_, weight)| **weight != 0.0);
    let (left, all) = (seen().filter(|(kept, _)| **kept == 0).count(), seen().count());
    let keep = Tensor::from_vec(keep, weights.shape(), weights.device())?;
    if left == 0 || left == all || has_empty_slice(&keep, weights)? {
        return Ok(None);
    }
    Ok(Some((KeepSome { keep, factor }, (left, all))))
}

/// A row of a weighted sum.
struct Row<'v> {
    found: &'v [f64],
    /// Of each key what it adds to the sum.
    parts: Vec<Vec<f64>>,
}

impl<'v> Row<'v> {
    fn new(found: &'v [f64], weights: &[f64], values: &[f64]) -> Self {
        let part =
            |(weight, value): (&f64, &[f64])| value.iter().map(|value| weight * value).collect();
        Self { found, parts: weights.iter().zip(values.chunks(found.len())).map(part).collect() }
    }

    /// The keys, as bits, whose sum times a factor comes nearest to what was recorded, and that factor: the stated one, or the
    /// one that fits best. Nothing where no key is kept.
    fn nearest(&self, stated: Option<f64>) -> Option<(u32, f64)> {
        let seen: Vec<usize> = (0..self.parts.len())
            .filter(|key| self.parts[*key].iter().any(|part| *part != 0.0))
            .collect();
        let size: f64 = self.found.iter().map(|value| value * value).sum();
        let mut sum = vec![0.0; self.found.len()];
        let (mut kept, mut best) = (0_u32, (size * (1.0 - 1e-9), None));
        // From one to the next of a Gray code a single key comes or goes.
        for count in 1_u32..1 << seen.len() {
            let key = seen[count.trailing_zeros() as usize];
            kept ^= 1 << key;
            let sign = if kept >> key & 1 == 1 { 1.0 } else { -1.0 };
            sum.iter_mut().zip(&self.parts[key]).for_each(|(sum, part)| *sum += sign * part);
            let factor = stated.unwrap_or_else(|| ratio(self.found, &sum));
            let left =
                self.found.iter().zip(&sum).map(|(found, sum)| (found - factor * sum).powi(2));
            let left: f64 = left.sum();
            if factor.is_finite() && left < best.0 {
                best = (left, Some((kept, factor)));
            }
        }
        best.1
    }
}
