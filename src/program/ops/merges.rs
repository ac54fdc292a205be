//! How the splits of the keys are merged: their log-sum-exps and weights, and the same with a mistake.

use candle_core::Tensor;

use super::along::taken;
use super::part_values::{floored, of_heads, stacked};
use super::parts::{PartSlip, PartStage, Parted};
use crate::misread::Misread;
use base::error::Result;

/// Numbers of parts, divided by their sum.
fn normed(parts: &Tensor) -> candle_core::Result<Tensor> {
    parts.broadcast_div(&parts.sum_keepdim(0)?)
}

/// Log-sum-exps with +∞ where they are −∞.
fn with_infinity(all: &Tensor) -> candle_core::Result<Tensor> {
    let infinite = all.zeros_like()?.affine(0.0, f64::INFINITY)?;
    all.eq(f64::NEG_INFINITY)?.where_cond(&infinite, all)
}

/// What splits hold of each row, and behind it what the next row has in memory, up to a power of two; behind the last one, 0.
fn up_to_a_power_of_two(all: &Tensor) -> candle_core::Result<Tensor> {
    let (splits, shape) = (all.dim(0)?, all.dims().to_vec());
    let more = splits.next_power_of_two() - splits;
    let [_, rows @ ..] = shape.as_slice() else { return Ok(all.clone()) };
    let rows: usize = rows.iter().take(3).product();
    let of_rows = all.contiguous()?.reshape((splits, rows, all.elem_count() / (splits * rows)))?;
    let first = of_rows.narrow(0, 0, more)?;
    let none = first.narrow(1, 0, 1)?.zeros_like()?;
    let next = Tensor::cat(&[&first.narrow(1, 1, rows - 1)?, &none], 1)?;
    let mut longer = shape.clone();
    longer[0] = splits + more;
    Tensor::cat(&[&of_rows, &next], 0)?.reshape(longer)
}

/// Outputs of splits, merged by their log-sum-exps, with those of the next row behind the last.
pub(super) fn with_next_row(outputs: &Tensor, lse: &Tensor) -> Result<Tensor> {
    let (outputs, lse) = (up_to_a_power_of_two(outputs)?, up_to_a_power_of_two(lse)?);
    let largest = floored(&lse.max_keepdim(0)?)?;
    let weights = normed(&lse.broadcast_sub(&largest)?.exp()?)?;
    Ok(outputs.broadcast_mul(&weights.unsqueeze(candle_core::D::Minus1)?)?.sum(0)?)
}

impl Parted {
    /// The log-sum-exp of those of all splits.
    pub(super) fn merge(&self, all: &Tensor, sinks: &[&Tensor]) -> Result<Tensor> {
        // All are the largest scores, and the others their sums.
        if let (Some(PartSlip::PlainSum), [sums]) = (self.slip, sinks) {
            return Ok(all.max(0)?.add(&sums.sum(0)?.log()?)?);
        }
        let mut all = (all * self.base())?;
        if let ([sinks], false) = (sinks, self.slip == Some(PartSlip::SinkUnshifted)) {
            let rows = all.narrow(0, 0, 1)?;
            let sinks = of_heads(sinks, 4)?.broadcast_as(rows.shape())?.contiguous()?;
            all = Tensor::cat(&[&all, &sinks], 0)?;
        }
        if self.slip == Some(PartSlip::NextRow) {
            all = up_to_a_power_of_two(&all)?;
        }
        if self.slip == Some(PartSlip::EmptyInfinite) {
            all = with_infinity(&all)?;
        }
        let largest = floored(&all.max_keepdim(0)?)?;
        let largest = match self.slip {
            Some(PartSlip::LargestAlone) => return Ok(all.max(0)?),
            Some(PartSlip::PairLargest) => return Ok(in_pairs(&all)?.0),
            Some(PartSlip::PairFirst) => return Ok(by_firsts(&all)?.0),
            Some(PartSlip::SignExchanged | PartSlip::SignTurned | PartSlip::PartBefore) => {
                return Ok(self.one_by_one(&all)?.0);
            }
            Some(PartSlip::RingSignExchanged | PartSlip::RingSignTurned) => {
                return Ok(self.around_a_ring(&all)?.0);
            }
            Some(PartSlip::Unshifted) => largest.zeros_like()?,
            _ => largest,
        };
        let mut sum = all.broadcast_sub(&largest)?.exp()?.sum_keepdim(0)?;
        if let (Some(PartSlip::SinkUnshifted), [sinks]) = (self.slip, sinks) {
            sum = sum.broadcast_add(&of_heads(sinks, 4)?.exp()?)?;
        }
        let lse = (sum.log()? + largest)?.squeeze(0)?;
        // The result is in the base of the exponentials, or is natural.
        Ok(if self.slip == Some(PartSlip::BinaryMerge) { (lse / self.base())? } else { lse })
    }

    /// What log-sum-exps are multiplied by that are merged in another base.
    fn base(&self) -> f64 {
        match self.slip {
            Some(PartSlip::BaseMixed) => std::f64::consts::LOG2_E,
            Some(PartSlip::BinaryMerge) => std::f64::consts::LN_2,
            _ => 1.0,
        }
    }

    pub(super) fn share(&self, own: &Tensor, merged: &Tensor) -> Result<Tensor> {
        let of = |merged: &Tensor| own.broadcast_sub(&floored(merged)?)?.exp();
        let count = own.dim(0)?;
        Ok(match self.slip {
            Some(PartSlip::Mean) => own.ones_like()?.affine(1.0 / count as f64, 0.0)?,
            Some(PartSlip::MeanSeen) => normed(&own.gt(f64::NEG_INFINITY)?.to_dtype(own.dtype())?)?,
            Some(PartSlip::Added) => own.ones_like()?,
            Some(PartSlip::ByLargest) => of(&own.max(0)?)?,
            Some(PartSlip::DenominatorAlone) => {
                let sum = (merged - floored(&own.max(0)?)?)?.exp()?;
                own.zeros_like()?.broadcast_add(&sum.recip()?)?
            }
            Some(PartSlip::PlainSum) => normed(merged)?,
            // Reads the largest scores, and their sums.
            Some(PartSlip::PlainNumerator) => {
                let rescaled = merged.mul(&of(&own.max(0)?)?)?;
                merged.broadcast_div(&rescaled.sum_keepdim(0)?)?
            }
            Some(PartSlip::PairLargest) => return Ok(in_pairs(own)?.1),
            Some(PartSlip::PairFirst) => return Ok(by_firsts(own)?.1),
            // Reads what is merged, in place of the first.
            Some(PartSlip::FinalFirst) => {
                let rest = own.narrow(0, 1, count - 1)?;
                let all = Tensor::cat(&[&merged.unsqueeze(0)?, &rest], 0)?;
                let largest = floored(&all.max_keepdim(0)?)?;
                normed(&all.broadcast_sub(&largest)?.exp()?)?
            }
            // Reads the sinks in place of what is merged.
            Some(PartSlip::SinkUnshifted) => {
                let exps = of(&own.max(0)?)?;
                let sum = exps.sum_keepdim(0)?.broadcast_add(&of_heads(merged, 4)?.exp()?)?;
                exps.broadcast_div(&sum)?
            }
            _ if self.goes_around() => return Ok(self.around_a_ring(own)?.1),
            Some(PartSlip::RunningMax) => {
                let (mut running, mut all) = (own.get(0)?, Vec::new());
                for at in 0..count {
                    running = running.maximum(&own.get(at)?)?;
                    all.push((own.get(at)? - floored(&running)?)?.exp()?);
                }
                let norm = own.broadcast_sub(&floored(&own.max(0)?)?)?.exp()?.sum(0)?;
                return Ok(stacked(&all)?.broadcast_div(&norm)?);
            }
            Some(
                PartSlip::Swapped
                | PartSlip::NewSum
                | PartSlip::LateSum
                | PartSlip::StaleSum
                | PartSlip::SignExchanged
                | PartSlip::SignTurned
                | PartSlip::PartBefore,
            ) => {
                return Ok(self.one_by_one(own)?.1);
            }
            Some(PartSlip::FirstWhole) => {
                let all = of(merged)?;
                let rest = all.narrow(0, 1, count - 1)?;
                Tensor::cat(&[&all.narrow(0, 0, 1)?.ones_like()?, &rest], 0)?
            }
            Some(PartSlip::OfOther) => {
                let parts = (0..count).rev().map(|at| of(merged)?.get(at));
                return stacked(&parts.collect::<candle_core::Result<Vec<_>>>()?);
            }
            Some(PartSlip::Unshifted) => normed(&own.exp()?)?,
            Some(PartSlip::EmptyInfinite) => {
                let own = with_infinity(own)?;
                normed(&own.broadcast_sub(&own.max_keepdim(0)?)?.exp()?)?
            }
            Some(PartSlip::BaseMixed | PartSlip::BinaryMerge) => {
                let own = (own * self.base())?;
                let largest = floored(&own.max_keepdim(0)?)?;
                normed(&own.broadcast_sub(&largest)?.exp()?)?
            }
            _ => of(merged)?,
        })
    }

    /// The log-sum-exp and the weights of parts that are merged one after the other, as code does that gets a step of it wrong.
    fn one_by_one(&self, own: &Tensor) -> Result<(Tensor, Tensor)> {
        let mut merged = own.get(0)?;
        let mut weights = vec![merged.ones_like()?];
        for at in 1..own.dim(0)? {
            let new = own.get(at)?;
            if self.slip == Some(PartSlip::PartBefore) {
                merged = own.get(at - 1)?;
            }
            let both = PartStage::Merge.right().merge(&Tensor::stack(&[&merged, &new], 0)?, &[])?;
            let share = match self.slip {
                Some(PartSlip::Swapped) => (&merged - &floored(&both)?)?.exp()?,
                // sigmoid(new − both)
                Some(PartSlip::LateSum | PartSlip::RingLate) => {
                    ((&floored(&both)? - &new)?.exp()? + 1.0)?.recip()?
                }
                _ => (&new - &floored(&both)?)?.exp()?,
            };
            let share = new.eq(f64::NEG_INFINITY)?.where_cond(&share.zeros_like()?, &share)?;
            if !matches!(self.slip, Some(PartSlip::NewSum | PartSlip::RingNew)) {
                let kept = share.affine(-1.0, 1.0)?;
                let before = weights.iter().map(|weight| weight.mul(&kept));
                weights = before.collect::<candle_core::Result<Vec<_>>>()?;
            }
            weights.push(share);
            merged = match self.slip {
                Some(PartSlip::StaleSum | PartSlip::RingStale) => merged,
                Some(PartSlip::SignExchanged | PartSlip::RingSignExchanged) => {
                    let added = ((floored(&merged)? - &new)?.exp()? + 1.0)?.log()?;
                    let other = (&merged + added)?;
                    new.eq(f64::NEG_INFINITY)?.where_cond(&merged, &other)?
                }
                // lse − log(1 + exp(new − lse)), where the two add up to twice the old one.
                Some(PartSlip::SignTurned | PartSlip::RingSignTurned) => ((&merged * 2.0)? - both)?,
                _ => both,
            };
        }
        Ok((merged, stacked(&weights)?))
    }

    /// Whether parts are merged in the order of a ring.
    pub(super) fn goes_around(&self) -> bool {
        use PartSlip::{RingLate, RingNew, RingSignExchanged, RingSignTurned, RingStale};
        matches!(
            self.slip,
            Some(RingLate | RingNew | RingStale | RingSignExchanged | RingSignTurned)
        )
    }

    /// The log-sum-exp and the weights of parts that go around a ring: each rank of queries merges its own part first, and then
    /// those before it.
    fn around_a_ring(&self, own: &Tensor) -> Result<(Tensor, Tensor)> {
        let (count, rows) = (own.dim(0)?, own.dim(3)?);
        if !rows.is_multiple_of(count) {
            return Err(Misread.into());
        }
        let size = rows / count;
        let (mut merged, mut weights) = (Vec::new(), Vec::new());
        for rank in 0..count {
            let order: Vec<usize> = (0..count).map(|step| (rank + count - step) % count).collect();
            let of_rank = own.narrow(3, rank * size, size)?;
            // Rank r has part p at step r − p, and step s is of part r − s: each order undoes itself.
            let (lse, own) = self.one_by_one(&taken(&of_rank, 0, &order)?)?;
            merged.push(lse);
            weights.push(taken(&own, 0, &order)?);
        }
        Ok((Tensor::cat(&merged, 2)?, Tensor::cat(&weights, 3)?))
    }
}

/// The log-sum-exp of splits that are merged in pairs, and then by that of the first of each pair; and how much each split weighs.
fn by_firsts(own: &Tensor) -> Result<(Tensor, Tensor)> {
    let merge = PartStage::Merge.right();
    let count = own.dim(0)?;
    let (mut firsts, mut within) = (Vec::new(), Vec::new());
    for at in (0..count).step_by(2) {
        let pair = own.narrow(0, at, 2.min(count - at))?;
        let both = merge.merge(&pair, &[])?;
        let shares = merge.share(&pair, &both)?;
        for place in 0..shares.dim(0)? {
            within.push(shares.get(place)?);
        }
        firsts.push(own.get(at)?);
    }
    let firsts = stacked(&firsts)?;
    let lse = merge.merge(&firsts, &[])?;
    let shares = merge.share(&firsts, &lse)?;
    let weights = within.into_iter().enumerate().map(|(at, own)| own.mul(&shares.get(at / 2)?));
    Ok((lse, stacked(&weights.collect::<candle_core::Result<Vec<_>>>()?)?))
}

/// The log-sum-exp of splits that are merged in pairs, pairs of pairs and so on, where that of all but the last pair is the
/// larger one of the two; and how much each split weighs.
fn in_pairs(own: &Tensor) -> Result<(Tensor, Tensor)> {
    let mut nodes = Vec::new();
    for at in 0..own.dim(0)? {
        let lse = own.get(at)?;
        nodes.push((lse.clone(), vec![lse.ones_like()?]));
    }
    while nodes.len() > 1 {
        let is_last = nodes.len() == 2;
        let mut merged = Vec::new();
        for pair in nodes.chunks(2) {
            let [(left, of_left), (right, of_right)] = pair else {
                merged.extend_from_slice(pair);
                continue;
            };
            let both = PartStage::Merge.right().merge(&Tensor::stack(&[left, right], 0)?, &[])?;
            let mut weights = Vec::new();
            for (lse, all) in [(left, of_left), (right, of_right)] {
                let share = (lse - &floored(&both)?)?.exp()?;
                for weight in all {
                    weights.push(weight.mul(&share)?);
                }
            }
            merged.push((if is_last { both } else { left.maximum(right)? }, weights));
        }
        nodes = merged;
    }
    let (lse, weights) = nodes.pop().ok_or(Misread)?;
    Ok((lse, stacked(&weights)?))
}
