//! Which cells do the recorded values show to be wrong: numbers left out at random, masks, places that are mixed up?

use candle_core::{DType, Tensor};

use super::blocked::in_words;
use super::dropout;
use crate::candidate::Candidate;
use crate::cells::cells;
use crate::scope::Scope;
use base::error::Result;
use program::{Block, Change, Kind, Name, Slip, Step};

/// Mistakes whose cells the recorded values show: numbers left out at random, and masks.
///
/// # Errors
/// If candle fails.
pub fn candidates(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let Some((recorded, expected)) = scope.pair(at) else { return Ok(all) };
    all.extend(dropout::after(at, recorded, expected)?);
    all.extend(dropout::before_sum(scope, at)?);
    all.extend(masks(scope, at)?);
    Ok(all)
}

/// Masks that recorded scores or weights show.
///
/// # Errors
/// If candle fails.
pub fn masks(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let is_masked = at == Name::MaskedScores || at == Name::Weights;
    let (Some((recorded, _)), Some(step)) = (scope.pair(at), scope.trace().step(at)) else {
        return Ok(Vec::new());
    };
    let found = if is_masked { blocked(scope, step, recorded)? } else { None };
    Ok(found.into_iter().collect())
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
    // A row with one visible key has weight 1 there whatever its scores are, and says nothing.
    let keys = found.dim(3)?;
    let hidden = is_blocked.to_dtype(DType::F32)?.sum(3)?.flatten_all()?.to_vec1::<f32>()?;
    let telling = hidden.iter().filter(|hidden| **hidden + 1.0 < keys as f32).count();
    if hidden.iter().all(|hidden| *hidden == 0.0) || 2 * telling < hidden.len() {
        return Ok(None);
    }
    let (told, cost) = in_words(scope.trace(), &is_blocked)?;
    let block = Slip::Block(Block { cells: is_blocked, fill });
    // What weights show is what becomes of the scores before any mask.
    let unmasked = match at {
        Name::MaskedScores => Some(scores.name),
        _ if scores.name == Name::MaskedScores => {
            scope.trace().read_by(scores).first().map(|scores| scores.name)
        }
        _ => None,
    };
    let (at, change) = match unmasked {
        Some(scores) => (Name::MaskedScores, Change::Become(block.into(), vec![scores])),
        None => (at, Change::before(0, block)),
    };
    let by = match own {
        Some(own) if own.total_cmp(&fill).is_ne() => {
            tr!(", and they become {fill}", fill = format!("{fill:e}"))
        }
        _ => String::new(),
    };
    Ok(Some(Candidate::at(at, Kind::Mask, cost, change, format!("{told}{by}"))))
}
