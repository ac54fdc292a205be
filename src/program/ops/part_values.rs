//! The numbers of attention over parts of the keys: maxima, sums, how they are merged, and the same with a mistake.

use candle_core::{D, Tensor};

use super::Precision;
use super::part_loops::restarted;
use super::parts::{PartSlip, PartStage, Parted, Parts};
use crate::misread::Misread;
use base::error::Result;

/// The least number that is subtracted, so that −∞ − −∞ does not come about.
pub(super) fn floored(x: &Tensor) -> candle_core::Result<Tensor> {
    x.maximum(f64::from(f32::MIN))
}

/// As many places of an axis as there are parts, put together in front.
pub(super) fn stacked(parts: &[Tensor]) -> Result<Tensor> {
    Ok(Tensor::stack(parts, 0)?)
}

impl Parted {
    /// What is subtracted before the exponential.
    pub(super) fn subtracted(&self, largest: &Tensor) -> candle_core::Result<Tensor> {
        let is_plain = self.slip == Some(PartSlip::EmptyNan);
        if is_plain { Ok(largest.clone()) } else { floored(largest) }
    }

    /// Whether a sink is counted in a part: in the first alone.
    pub(super) fn counts_sink(&self, at: usize) -> bool {
        at == 0 || self.slip == Some(PartSlip::SinkEach)
    }

    pub(super) fn exp(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        if let Some(power) = self.power_of_parts(x) {
            return power;
        }
        let is_binary = matches!(self.slip, Some(PartSlip::BaseTwo | PartSlip::BinaryExp));
        let by = if is_binary { std::f64::consts::LN_2 } else { 1.0 };
        (x * by)?.exp()
    }

    pub(super) fn largest(&self, parts: &Parts, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores, sinks @ ..] = inputs else { return Err(Misread.into()) };
        let none = scores.narrow(3, 0, 1)?.squeeze(3)?.zeros_like()?;
        let is_from_zero = self.slip == Some(PartSlip::FromOne);
        let first = if is_from_zero { 0.0 } else { f64::NEG_INFINITY };
        let kept = self.kept_group().or_else(|| self.groups().map(|groups| (groups, 0)));
        if let Some((groups, which)) = kept {
            let own = parts.group(which, groups);
            return PartStage::Largest(own.clone()).right().largest(&own, inputs);
        }
        let mut before = match self.carried(parts, scores, None)? {
            Some((largest, _)) => largest.squeeze(3)?,
            None => none.affine(0.0, first)?,
        };
        let restarts = self.restarts(parts, scores)?;
        let mut all = Vec::new();
        for (at, columns) in parts.columns(scores, 3)?.into_iter().enumerate() {
            if let Some(restarts) = &restarts {
                let lowest = before.affine(0.0, f64::NEG_INFINITY)?;
                before = restarts.get(at)?.squeeze(D::Minus1)?.where_cond(&lowest, &before)?;
            }
            let is_padded = self.zeros_of(parts, at) > 0;
            let own = match columns {
                Some(own) if is_padded => own.max(D::Minus1)?.maximum(0.0)?,
                Some(own) => own.max(D::Minus1)?,
                None => none.affine(0.0, f64::NEG_INFINITY)?,
            };
            let own = match sinks {
                [sinks] if self.counts_sink(at) => own.broadcast_maximum(&of_heads(sinks, 3)?)?,
                _ if parts.is_running() => own.maximum(&before)?,
                _ => own,
            };
            let own = self.kept(&own)?;
            all.push(own.clone());
            before = own;
        }
        stacked(&all)
    }

    /// ℓ, or with values acc.
    pub(super) fn sums(&self, parts: &Parts, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores, largest, others @ ..] = inputs else { return Err(Misread.into()) };
        let is_weighted = matches!(self.stage, PartStage::Weighted(_));
        if let Some(groups) = self.groups() {
            return self.apart(groups, parts, inputs);
        }
        let carried =
            self.carried(parts, scores, others.first().filter(|_| is_weighted).copied())?;
        let (values, rest) = match others {
            [values, rest @ ..] if is_weighted => (Some(parts.columns(values, 2)?), rest),
            rest => (None, rest),
        };
        let (batch, heads, queries, _) = scores.dims4()?;
        let width = others.first().filter(|_| is_weighted).map_or(Ok(1), |own| own.dim(3))?;
        let zero = Tensor::zeros((batch, heads, queries, width), scores.dtype(), scores.device())?;
        let mut before =
            if self.slip == Some(PartSlip::FromOne) { zero.ones_like()? } else { zero.clone() };
        let mut all = Vec::new();
        let restarts = self.restarts(parts, scores)?;
        let is_last = self.last_of_loops(parts, scores)?;
        let is_divided = self.slip == Some(PartSlip::DividedEach);
        let sums = if is_divided || self.slip == Some(PartSlip::DividedBetween) {
            let of_sum = Self { stage: PartStage::Sum(parts.clone()), slip: None };
            let read = [&[*scores, *largest], rest].concat();
            Some(of_sum.sums(parts, &read)?)
        } else {
            None
        };
        let mut waiting = zero.clone();
        for (at, columns) in parts.columns(scores, 3)?.into_iter().enumerate() {
            let m = self.subtracted_in(at, columns.as_ref(), largest)?;
            let mut own = match &columns {
                None => zero.clone(),
                Some(columns) => {
                    let p = self.exp(&columns.broadcast_sub(&m)?)?.contiguous()?;
                    let p = self.rounded(p)?;
                    Self::of_keys(&p, values.as_deref(), at, is_last.as_ref())?
                }
            };
            own = self.added(own, &mut waiting, at + 1 == parts.keys.len())?;
            if let Some(restarts) = restarts.as_ref().filter(|_| at > 0) {
                before = restarted(restarts, at, &before, sums.as_ref())?;
            }
            if let ([factor], true) = (rest, parts.is_running()) {
                let factor = if self.keeps_less() && at > 0 {
                    (largest.get(at - 1)?.unsqueeze(3)? - &m)?.exp()?
                } else {
                    factor.get(at)?.unsqueeze(3)?
                };
                let kept = self.kept_of(before, &factor, at)?;
                // The first tile has nothing before it to be rescaled.
                if self.slip == Some(PartSlip::AllRescaled) && at > 0 {
                    own = own.broadcast_mul(&factor)?;
                }
                own = (own + kept)?;
            } else if let ([sinks], true) = (rest, self.counts_sink(at)) {
                let sink = of_heads(sinks, 3)?.unsqueeze(3)?.broadcast_sub(&m)?.exp()?;
                own = own.broadcast_add(&sink)?;
            }
            let missing = parts.missing(at);
            let zeros = self.zeros_of(parts, at);
            if zeros > 0 && values.is_none() {
                own = own.broadcast_add(&(m.neg()?.exp()? * zeros as f64)?)?;
            }
            if let (Some(PartSlip::ClampedTail), Some(columns)) = (self.slip, &columns)
                && missing > 0
            {
                let last = columns.narrow(3, columns.dim(3)? - 1, 1)?;
                let again = (self.exp(&last.broadcast_sub(&m)?)? * missing as f64)?;
                let of_values =
                    values.as_ref().and_then(|all| all.get(at)).and_then(Option::as_ref);
                let again = match of_values {
                    Some(values) => {
                        again.broadcast_mul(&values.narrow(2, values.dim(2)? - 1, 1)?)?
                    }
                    None => again,
                };
                own = own.broadcast_add(&again)?;
            }
            if let Some(sums) = sums.as_ref().filter(|_| is_divided) {
                own = divided(&own, &sums.get(at)?)?;
            }
            if self.slip == Some(PartSlip::KeptInBf16) {
                own = Precision::Bf16.round(&own)?;
            }
            before = own.clone();
            if let Some((maximum, left)) = &carried {
                own = (own + left.broadcast_mul(&(maximum - &m)?.exp()?)?)?;
            }
            all.push(if is_weighted { own } else { own.squeeze(3)? });
        }
        stacked(&all)
    }

    /// What is left of what was summed before, by the factor of a tile.
    fn kept_of(&self, before: Tensor, factor: &Tensor, at: usize) -> Result<Tensor> {
        Ok(match self.slip {
            Some(PartSlip::NotRescaled) => before,
            Some(PartSlip::Overwritten) => before.zeros_like()?,
            Some(PartSlip::Inverse) if at > 0 => before.broadcast_div(factor)?,
            Some(PartSlip::BaseTwo | PartSlip::BinaryFactor) => {
                before.broadcast_mul(&factor.powf(std::f64::consts::LN_2)?)?
            }
            Some(PartSlip::Squared) => before.broadcast_mul(&factor.sqr()?)?,
            Some(PartSlip::AlongFeatures) => {
                before.mul(&along_features(factor, before.dim(D::Minus1)?)?)?
            }
            _ => before.broadcast_mul(factor)?,
        })
    }

    /// How many zeros behind the keys of a part are counted.
    fn zeros_of(&self, parts: &Parts, at: usize) -> usize {
        let missing = parts.missing(at);
        match self.slip {
            Some(PartSlip::PaddedTail) => missing,
            Some(PartSlip::TailReversed) if missing > 0 => {
                let spans = parts.keys.get(at).into_iter().flatten();
                missing.saturating_sub(spans.map(|(first, end)| end - first).sum())
            }
            _ => 0,
        }
    }

    /// The logarithm of sums.
    pub(super) fn log(&self, sum: &Tensor) -> candle_core::Result<Tensor> {
        let by = if self.slip == Some(PartSlip::Log2) { std::f64::consts::LOG2_E } else { 1.0 };
        sum.log()? * by
    }

    /// Exponentials, in fewer bits if they are rounded.
    fn rounded(&self, p: Tensor) -> candle_core::Result<Tensor> {
        const MOST: f64 = 127.0;
        Ok(match self.slip {
            Some(PartSlip::InBf16) => Precision::Bf16.round(&p)?,
            Some(PartSlip::CutInt8) => ((p * MOST)?.floor()? / MOST)?,
            Some(PartSlip::WholeInt8) => (p * MOST)?.round()?,
            _ => p,
        })
    }

    /// exp(m of the tile before − m).
    pub(super) fn factors(&self, largest: &Tensor) -> Result<Tensor> {
        let count = largest.dim(0)?;
        let none = if self.slip == Some(PartSlip::FromOne) { 0.0 } else { f64::NEG_INFINITY };
        let first = largest.narrow(0, 0, 1)?.zeros_like()?.affine(0.0, none)?;
        let before = Tensor::cat(&[&first, &largest.narrow(0, 0, count - 1)?], 0)?;
        let factor = (before - self.subtracted(largest)?)?.exp()?;
        match self.slip {
            Some(PartSlip::NaturalFactor) => return Ok(factor.powf(std::f64::consts::LOG2_E)?),
            Some(PartSlip::BinaryFactor) => return Ok(factor.powf(std::f64::consts::LN_2)?),
            Some(PartSlip::Squared) => return Ok(factor.sqr()?),
            _ => {}
        }
        let is_inverse = self.slip == Some(PartSlip::Inverse) && count > 1;
        if !is_inverse {
            return Ok(factor);
        }
        let rest = factor.narrow(0, 1, count - 1)?.recip()?;
        Ok(Tensor::cat(&[&factor.narrow(0, 0, 1)?, &rest], 0)?)
    }

    pub(super) fn last(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [acc, sum, others @ ..] = inputs else { return Err(Misread.into()) };
        let at = |x: &Tensor| x.get(x.dim(0)?.saturating_sub(1));
        let is_old = self.slip == Some(PartSlip::OldSum);
        let mut sum = if is_old { sum.get(sum.dim(0)?.saturating_sub(2))? } else { at(sum)? };
        if let [largest, sinks] = others {
            let sink = of_heads(sinks, 3)?;
            let is_plain = self.slip == Some(PartSlip::SinkUnshifted);
            let largest =
                if is_plain { at(largest)?.zeros_like()? } else { floored(&at(largest)?)? };
            let own = sink.broadcast_sub(&largest)?.exp()?;
            sum = (sum + (own * self.sinks_of(acc.dim(0)?))?)?;
        }
        if self.slip == Some(PartSlip::Undivided) {
            return Ok(at(acc)?);
        }
        if self.slip == Some(PartSlip::EmptyNan) {
            return Ok(at(acc)?.broadcast_div(&sum.unsqueeze(D::Minus1)?)?);
        }
        divided(&at(acc)?, &sum)
    }

    pub(super) fn last_log_sum(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [largest, sum, sinks @ ..] = inputs else { return Err(Misread.into()) };
        let last = largest.dim(0)?.saturating_sub(1);
        let at =
            if self.slip == Some(PartSlip::OldMaximum) { last.saturating_sub(1) } else { last };
        let of_sum =
            if self.slip == Some(PartSlip::OldSum) { last.saturating_sub(1) } else { last };
        if let (Some(PartSlip::SinkUnshifted), [sinks]) = (self.slip, sinks) {
            let sum = sum.get(last)?.broadcast_add(&of_heads(sinks, 3)?.exp()?)?;
            return Ok((self.log(&sum)? + largest.get(last)?)?);
        }
        let log = self.log(&sum.get(of_sum)?)?;
        if self.slip == Some(PartSlip::SumAlone) {
            return Ok(log);
        }
        let more = self.sinks_of(last + 1).ln();
        let sinks =
            sinks.iter().map(|sinks| *sinks + more).collect::<candle_core::Result<Vec<_>>>()?;
        let sinks: Vec<&Tensor> = sinks.iter().collect();
        PartStage::Merge.right().merge(&(largest.get(at)? + log)?.unsqueeze(0)?, &sinks)
    }

    /// How often a sink is counted where there are so many tiles.
    fn sinks_of(&self, tiles: usize) -> f64 {
        if self.slip == Some(PartSlip::SinkEach) { tiles as f64 } else { 1.0 }
    }
}

/// The factors (batch, head, query, 1) of as many queries as there are features, in tiles, each for the feature at its query's
/// place: (batch, head, query, feature). What no query has a factor for is not rescaled.
pub(super) fn along_features(factor: &Tensor, features: usize) -> candle_core::Result<Tensor> {
    let (batch, heads, queries, _) = factor.dims4()?;
    let mut tiles = Vec::new();
    for first in (0..queries).step_by(features.max(1)) {
        let count = features.min(queries - first);
        let own = factor.narrow(2, first, count)?.transpose(2, 3)?.contiguous()?;
        let shape = (batch, heads, 1, features - count);
        let rest = Tensor::ones(shape, factor.dtype(), factor.device())?;
        let own = if count < features { Tensor::cat(&[own, rest], 3)? } else { own };
        tiles.push(own.broadcast_as((batch, heads, count, features))?.contiguous()?);
    }
    Tensor::cat(&tiles, 2)
}

/// Numbers of heads, for (batch, head, query) and, in four axes, (part, batch, head, query).
pub(super) fn of_heads(sinks: &Tensor, rank: usize) -> candle_core::Result<Tensor> {
    let mut shape = vec![1; rank];
    if let Some(heads) = shape.iter_mut().rev().nth(1) {
        *heads = sinks.elem_count();
    }
    sinks.reshape(shape)
}

/// acc / ℓ, and 0 where ℓ is.
pub(super) fn divided(acc: &Tensor, sum: &Tensor) -> Result<Tensor> {
    let is_none = sum.eq(0.0)?;
    let sum = is_none.where_cond(&sum.ones_like()?, sum)?;
    Ok(acc.broadcast_div(&sum.unsqueeze(D::Minus1)?)?)
}
