//! What goes wrong between the loops of a tile of queries: one over tiles that need no mask, and one over those that it blocks
//! a part of. And exponentials that kernels put together from a whole part and a fraction.

use candle_core::{D, Tensor};

use super::parts::{PartSlip, Parted, Parts};
use base::error::Result;

/// Scores as low as this are blocked: fills are from here on down.
const BLOCKED: f64 = -1e4;
/// Below this a power of two is 0 in every type.
const LEAST_POWER: f64 = -1100.0;
/// What is left of 0 in f32 where scores of a usual size are subtracted.
const ROUNDING: f64 = 1e-5;
/// What kernels take for 2^f where f is from 0 to 1 ("`FlashAttention`-4": the coefficients of f, f² and f³).
const CUBIC: [f64; 3] =
    [0.695_146_143_436_431_9, 0.227_564_394_474_029_54, 0.077_119_089_663_028_72];

/// What the first, or the largest, number of each tile of so many rows is, for all of its rows: (batch, head, query, 1).
fn of_tiles(x: &Tensor, rows: usize, is_first: bool) -> Result<Tensor> {
    let count = x.dim(2)?;
    let mut all = Vec::new();
    for first in (0..count).step_by(rows.max(1)) {
        let own = x.narrow(2, first, rows.max(1).min(count - first))?;
        let one = if is_first { own.narrow(2, 0, 1)? } else { own.max_keepdim(2)? };
        all.push(one.broadcast_as(own.shape())?);
    }
    Ok(Tensor::cat(&all, 2)?)
}

/// What was summed before, in whose place nothing is left where a loop of its own begins; or what it is divided by these sums.
pub(super) fn restarted(
    cells: &Tensor,
    at: usize,
    before: &Tensor,
    sums: Option<&Tensor>,
) -> Result<Tensor> {
    let left = match sums {
        Some(sums) => {
            let sum = sums.get(at.saturating_sub(1))?;
            let sum = sum.eq(0.0)?.where_cond(&sum.ones_like()?, &sum)?;
            before.broadcast_div(&sum.unsqueeze(D::Minus1)?)?
        }
        None => before.zeros_like()?,
    };
    Ok(cells.get(at)?.broadcast_as(before.shape())?.where_cond(&left, before)?)
}

impl Parted {
    /// Whether what goes wrong depends on the mask, which tells where loops begin and end.
    pub(super) fn goes_by_loops(&self) -> bool {
        use PartSlip::{DividedBetween, LastValues, MaxRestarted, SumsRestarted};
        matches!(self.slip, Some(MaxRestarted | SumsRestarted | DividedBetween | LastValues))
    }

    /// Whether a query's tile sees anything of each part: a tensor (batch, head, query, 1) each.
    fn reached(parts: &Parts, scores: &Tensor, rows: usize) -> Result<Vec<Tensor>> {
        let none = scores.narrow(3, 0, 1)?.gt(f64::INFINITY)?;
        let of = |columns: Option<Tensor>| match columns {
            Some(own) => of_tiles(&own.max_keepdim(D::Minus1)?.gt(BLOCKED)?, rows, false),
            None => Ok(none.clone()),
        };
        parts.columns(scores, 3)?.into_iter().map(of).collect()
    }

    /// Where a loop over tiles begins that the mask blocks a part of: where the last key of a tile is blocked for the first
    /// query of its tile, and was not before.
    pub(super) fn restarts(&self, parts: &Parts, scores: &Tensor) -> Result<Option<Tensor>> {
        if !self.goes_by_loops() || self.slip == Some(PartSlip::LastValues) {
            return Ok(None);
        }
        let rows = parts.queries.unwrap_or_else(|| parts.count(0));
        let mut begun = scores.narrow(3, 0, 1)?.gt(f64::INFINITY)?;
        let mut all = Vec::new();
        for (at, reached) in Self::reached(parts, scores, rows)?.into_iter().enumerate() {
            let Some(last) = parts.places(at).last() else {
                all.push(begun.zeros_like()?);
                continue;
            };
            let is_cut = of_tiles(&scores.narrow(3, last, 1)?.le(BLOCKED)?, rows, true)?;
            let own = (is_cut * reached)?;
            all.push(own.gt(&begun)?);
            begun = own.maximum(&begun)?;
        }
        Ok(Some(Tensor::stack(&all, 0)?))
    }

    /// The last part that a query's tile reaches.
    pub(super) fn last_of_loops(&self, parts: &Parts, scores: &Tensor) -> Result<Option<Tensor>> {
        if self.slip != Some(PartSlip::LastValues) {
            return Ok(None);
        }
        let rows = parts.queries.unwrap_or_else(|| parts.count(0));
        let mut all = Self::reached(parts, scores, rows)?;
        let mut later = scores.narrow(3, 0, 1)?.gt(f64::INFINITY)?;
        for own in all.iter_mut().rev() {
            let is_last = own.gt(&later)?;
            later = later.maximum(&*own)?;
            *own = is_last;
        }
        Ok(Some(Tensor::stack(&all, 0)?))
    }

    /// Σ p over the keys of a part, or Σ p · v with values: those of the part before where these are still there.
    pub(super) fn of_keys(
        p: &Tensor,
        values: Option<&[Option<Tensor>]>,
        at: usize,
        is_stale: Option<&Tensor>,
    ) -> Result<Tensor> {
        let of = |at: usize| values.and_then(|all| all.get(at)).and_then(Option::as_ref);
        let Some(own) = of(at) else { return Ok(p.sum_keepdim(D::Minus1)?) };
        let own = p.matmul(&own.contiguous()?)?;
        let before = at.checked_sub(1).and_then(of);
        let (Some(cells), Some(values)) = (is_stale, before) else { return Ok(own) };
        let count = p.dim(3)?.min(values.dim(2)?);
        let stale = p.narrow(3, 0, count)?.contiguous()?;
        let stale = stale.matmul(&values.narrow(2, 0, count)?.contiguous()?)?;
        Ok(cells.get(at)?.broadcast_as(own.shape())?.where_cond(&stale, &own)?)
    }

    /// eˣ, put together from the whole part and the fraction of x in base 2, if that goes wrong.
    pub(super) fn power_of_parts(&self, x: &Tensor) -> Option<candle_core::Result<Tensor>> {
        use PartSlip::{FractionAlone, LinearFraction, PolynomialOfTrunc, WholeAlone};
        let slip = self.slip?;
        matches!(slip, PolynomialOfTrunc | LinearFraction | WholeAlone | FractionAlone).then(|| {
            let blocked = x.le(f64::from(f32::MIN) / 2.0)?;
            let x = (x * std::f64::consts::LOG2_E)?.maximum(LEAST_POWER)?;
            // The largest score less itself is 0, whatever rounding leaves of it: both sides of it are far apart here.
            let x = x.ge(-ROUNDING)?.where_cond(&x.zeros_like()?, &x)?;
            let whole = if slip == PolynomialOfTrunc { x.ceil()? } else { x.floor()? };
            let fraction = (&x - &whole)?;
            let power = (&whole * std::f64::consts::LN_2)?.exp()?;
            let all = match slip {
                PolynomialOfTrunc => {
                    let [first, second, third] = CUBIC;
                    let sum = fraction.affine(third, second)?.mul(&fraction)?;
                    let sum = (sum + first)?.mul(&fraction)?;
                    (sum + 1.0)?.mul(&power)?
                }
                LinearFraction => (fraction + 1.0)?.mul(&power)?,
                WholeAlone => power,
                _ => (fraction * std::f64::consts::LN_2)?.exp()?,
            };
            blocked.where_cond(&all.zeros_like()?, &all)
        })
    }
}
