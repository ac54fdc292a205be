//! Which cells do the recorded values show to be wrong: numbers left out at random, masks, places that are mixed up?

use candle_core::{DType, Tensor};

use super::blocked::in_words;
use crate::candidate::{Candidate, cost};
use crate::cells::{cells, ratio};
use crate::grammar::numbers::short;
use crate::scope::Scope;
use crate::thresholds::LEAST_CELLS;
use base::error::Result;
use program::{Block, Change, Edit, KeepSome, Kind, Name, Slip, Step, Weighting};

/// Mistakes whose cells the recorded values show: numbers left out at random, and masks.
///
/// # Errors
/// If candle fails.
pub fn candidates(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let Some((recorded, expected)) = scope.pair(at) else { return Ok(all) };
    all.extend(dropped(at, recorded, expected)?);
    if let Some(step) = scope.trace().step(at)
        && (at == Name::MaskedScores || at == Name::Weights)
    {
        all.extend(blocked(scope, step, recorded)?);
    }
    Ok(all)
}

/// Dropout, if each cell is 0 or the right one times one number.
fn dropped(at: Name, found: &Tensor, right: &Tensor) -> Result<Option<Candidate>> {
    let (cells_found, cells_right) = (cells(found)?, cells(right)?);
    let pairs = || cells_found.iter().zip(&cells_right).filter(|(_, right)| right.abs() > 0.0);
    let kept: Vec<(f64, f64)> =
        pairs().filter(|(found, _)| **found != 0.0).map(|(f, r)| (*f, *r)).collect();
    let (count, all) = (kept.len(), pairs().count());
    if count < LEAST_CELLS.min(all / 4 + 1) || count == all || count * 20 < all {
        return Ok(None);
    }
    let (found_kept, right_kept): (Vec<f64>, Vec<f64>) = kept.into_iter().unzip();
    let factor = ratio(&found_kept, &right_kept);
    let factor = if (factor - 1.0).abs() < 1e-4 { 1.0 } else { factor };
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
    let change = Change::After(Weighting::KeepSome(KeepSome { keep, factor }).into(), Vec::new());
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53")]
    let share = 1.0 - count as f64 / all as f64;
    let scaled = match factor {
        1.0 => tr!("not scaled up").to_owned(),
        factor => {
            tr!(
                "multiplied by {factor}, as for p = {recip}",
                factor = short(factor),
                recip = format!("{:.3}", 1.0 - factor.recip())
            )
        }
    };
    let summary = tr!(
        "{at}: {share} % of its numbers are 0 and the others are {scaled}: dropout",
        at,
        share = format!("{:.0}", 100.0 * share),
        scaled
    );
    Ok(Some(Candidate::new(Kind::Random, cost::RARE, vec![Edit::new(at, change)], summary)))
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
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53")]
    let (count, changes) = (kept.len() as f64, changes as f64);
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^53")]
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

/// The cells that are really blocked, where they are not those of the mask.
fn blocked(scope: &Scope, step: &Step, found: &Tensor) -> Result<Option<Candidate>> {
    let at = step.name;
    let Some(scores) = scope.trace().read_by(step).first().copied() else { return Ok(None) };
    let Some(right) = scope.known(scores.name) else { return Ok(None) };
    if found.dims() != right.dims() {
        return Ok(None);
    }
    let own = if at == Name::MaskedScores { step.op.operation().facts().fill } else { None };
    let cells_found = cells(found)?;
    let least = cells_found.iter().copied().fold(f64::INFINITY, f64::min);
    let (is_blocked, fill) = if at == Name::MaskedScores {
        let fill = if cells_found.contains(&f64::NEG_INFINITY) { f64::NEG_INFINITY } else { least };
        (found.eq(fill)?, fill)
    } else {
        (found.eq(0.0)?, f64::NEG_INFINITY)
    };
    let count = is_blocked.to_dtype(DType::F32)?.sum_all()?.to_scalar::<f32>()?;
    #[allow(clippy::cast_precision_loss, reason = "exact below 2^24 cells, and near enough beyond")]
    let visible = found.elem_count() as f32 - count;
    #[allow(clippy::cast_precision_loss, reason = "as above")]
    let rows = found.elem_count() as f32 / *found.dims().last().unwrap_or(&1) as f32;
    // A row with one visible key has weight 1 there whatever its scores are, and says nothing.
    if count == 0.0 || visible < 2.0 * rows {
        return Ok(None);
    }
    let told = in_words(scope.trace(), &is_blocked)?;
    let block = Slip::Block(Block { cells: is_blocked, fill });
    let change = if at == Name::MaskedScores {
        Change::Become(block.into(), vec![scores.name])
    } else {
        Change::Before(0, block.into(), Vec::new())
    };
    let by = match own {
        Some(own) if own.total_cmp(&fill).is_ne() => {
            tr!(", and they become {fill}", fill = format!("{fill:e}"))
        }
        _ => String::new(),
    };
    Ok(Some(Candidate::at(at, Kind::Mask, cost::FITTED, change, format!("{told}{by}"))))
}
