//! Softmax and the weighted sum over parts of the keys: in splits that are computed apart and merged, or tile by tile with a
//! running maximum, and what goes wrong there.

use candle_core::{D, DType, Tensor};

use crate::adjoint::Adjoint;
use crate::axis::{Axes, Axis, Dim};
use crate::misread::{Misread, read};
use crate::operation::Operation;
use crate::part::Part;
use crate::pattern::{Pattern, Place, Products, Read};
use crate::terms::{Factor, Term, Value, factor};
use base::error::Result;

/// Which keys each part has: from the first to before the last, in one run or several, or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parts {
    /// The axis that the parts are on: [`Axis::Split`] or [`Axis::Tile`].
    pub axis: Axis,
    /// The keys of each.
    pub keys: Vec<Vec<(usize, usize)>>,
    /// How many queries a tile has, where that is said.
    pub queries: Option<usize>,
}

impl Parts {
    /// Parts that begin at these keys, the last of them ending with the last key. Those that begin behind it have none.
    pub fn starting(axis: Axis, starts: &[usize], keys: usize) -> Self {
        let end = |at: usize| starts.get(at + 1).copied().unwrap_or(keys).min(keys);
        let span = |(at, start): (usize, &usize)| vec![((*start).min(keys), end(at))];
        Self { axis, keys: starts.iter().enumerate().map(span).collect(), queries: None }
    }

    /// How many keys a part has in all.
    fn count(&self, at: usize) -> usize {
        let spans = self.keys.get(at).map(Vec::as_slice).unwrap_or_default();
        spans.iter().map(|(first, end)| end.saturating_sub(*first)).sum()
    }

    /// How many keys a part lacks beside the first.
    fn missing(&self, at: usize) -> usize {
        self.count(0).saturating_sub(self.count(at))
    }

    /// The keys of a part.
    fn places(&self, at: usize) -> impl Iterator<Item = usize> {
        self.keys.get(at).into_iter().flatten().flat_map(|(first, end)| *first..*end)
    }

    /// Whether a part goes on from the one before it.
    fn is_running(&self) -> bool {
        self.axis == Axis::Tile
    }

    /// The columns of each part, side by side; nothing of one that has none.
    fn columns(&self, x: &Tensor, axis: usize) -> Result<Vec<Option<Tensor>>> {
        let taken = |spans: &Vec<(usize, usize)>| {
            let spans = spans.iter().filter(|(start, end)| start < end);
            let parts = spans.map(|(start, end)| x.narrow(axis, *start, end - start));
            let parts = parts.collect::<candle_core::Result<Vec<_>>>()?;
            Ok(if parts.is_empty() { None } else { Some(Tensor::cat(&parts, axis)?) })
        };
        self.keys.iter().map(taken).collect()
    }
}

/// A step of attention over parts of the keys ("`FlashAttention`-2", Dao, 2023, algorithm 1, and "Flash-Decoding", 2023). Scores
/// are (batch, head, query, key); what each part has, has an axis for the parts before these.
#[derive(Debug, Clone, PartialEq)]
pub struct Parted {
    /// What is computed.
    pub stage: PartStage,
    /// What goes wrong, if anything does.
    pub slip: Option<PartSlip>,
}

/// What is computed of parts of the keys.
#[derive(Debug, Clone, PartialEq)]
pub enum PartStage {
    /// m: the largest score of a split's keys; of tiles, of all keys so far. Reads scores. Of splits, the
    /// first also has the sink of each head, if there is one, which is read last.
    Largest(Parts),
    /// exp(m of the tile before − m), by which what is summed so far is multiplied; 0 in the first. Reads m.
    Factor,
    /// ℓ: Σ exp(s − m) over the keys; of tiles, plus the one before times the factor. Reads scores and m; of tiles, the
    /// factor; of splits, sinks, if there are any.
    Sum(Parts),
    /// acc: Σ exp(s − m) · v, likewise. Reads scores, m and values; of tiles, the factor.
    Weighted(Parts),
    /// acc / ℓ, and 0 where ℓ is. Reads both.
    Quotient,
    /// m + log ℓ, −∞ where ℓ is 0. Reads both.
    LogSum,
    /// log Σ exp(L) over the splits. Reads L.
    Merge,
    /// exp(L − the merged one): how much each split weighs. Reads both.
    Share,
    /// Σ weight · output over the splits. Reads outputs and weights.
    Merged,
    /// m + log ℓ of the last tile, with a sink of each head, if there is one. Reads m, ℓ and, it may be, sinks.
    LastLogSum,
    /// acc / ℓ of the last tile; exp(sink − m) is part of ℓ, if there are sinks. Reads acc, ℓ and, it may be, m and sinks.
    Last,
}

clauses! {
    /// What goes wrong in attention over parts of the keys, with a clause that tells it.
    PartSlip {
        /// What was summed before is not multiplied.
        NotRescaled => "what was added up before is not rescaled when the maximum grows",
        /// It is divided.
        Inverse => "what was added up before is rescaled by exp(new − old), not exp(old − new)",
        /// The exponential is of base 2, of scores that were not multiplied by log2(e).
        BaseTwo => "exp2 is taken of scores that were not multiplied by log2(e)",
        /// m begins at 0, and ℓ at 1.
        FromOne => "the maximum starts at 0 and the sum at 1, so that a score of 0 is counted that no key has",
        /// What is subtracted from −∞ is −∞.
        EmptyNan => "what has no visible key (empty, or all masked) gives NaN: −inf − −inf, or 0/0",
        /// The exponentials are rounded.
        InBf16 => "the exponentials are rounded to bf16 before they are added up",
        /// ℓ of all parts is added up as it is.
        PlainSum => "the sums of the parts are added up as they are, not rescaled by exp(maximum − largest)",
        /// Only what comes is rescaled when the maximum grows.
        RunningMax => "what was merged before is not rescaled when the maximum grows",
        /// Zeros fill up the last part, and count.
        PaddedTail => "the zeros that fill up the last tile are counted in the sum (its tail)",
        /// A sink is counted in every part.
        SinkEach => "the sink is counted in every split, not once",
        /// The largest stands for the sum.
        LargestAlone => "the largest log-sum-exp stands for that of all",
        /// Without the maximum.
        Unshifted => "the maximum is not subtracted first, and large numbers overflow",
        /// All parts weigh the same.
        Mean => "the parts are averaged, whatever they weigh",
        /// The weights do not add up to 1.
        ByLargest => "the weights of the parts are exp(lse − largest), and are not divided by their sum",
        /// They are those of other parts.
        OfOther => "the parts exchange their weights: each has that of the other",
        /// They are made in another base than the log-sum-exps.
        BaseMixed => "log-sum-exps in base 2 are merged by exp",
        /// The maximum is left out.
        SumAlone => "the maximum is left out of the log-sum-exp",
        /// The one before is taken.
        OldMaximum => "the maximum of the tile before is taken for the log-sum-exp",
        /// Nothing is divided.
        Undivided => "the result is not divided by the sum",
    }
}

/// The least number that is subtracted, so that −∞ − −∞ does not come about.
fn floored(x: &Tensor) -> candle_core::Result<Tensor> {
    x.maximum(f64::from(f32::MIN))
}

/// As many places of an axis as there are parts, put together in front.
fn stacked(parts: &[Tensor]) -> Result<Tensor> {
    Ok(Tensor::stack(parts, 0)?)
}

impl PartStage {
    /// The step without a mistake.
    pub fn right(self) -> Parted {
        Parted { stage: self, slip: None }
    }

    /// What can go wrong in it.
    pub fn slips(&self) -> &'static [PartSlip] {
        use PartSlip::{
            BaseMixed, BaseTwo, ByLargest, EmptyNan, Inverse, LargestAlone, Mean, NotRescaled,
            OfOther, OldMaximum, RunningMax, SumAlone, Undivided, Unshifted,
        };
        match self {
            Self::Factor => &[Inverse],
            Self::Sum(parts) if parts.is_running() => &[NotRescaled, Inverse, BaseTwo, EmptyNan],
            Self::Weighted(parts) if parts.is_running() => {
                &[NotRescaled, Inverse, BaseTwo, EmptyNan]
            }
            Self::Sum(_) | Self::Weighted(_) => &[BaseTwo, EmptyNan],
            Self::Quotient => &[EmptyNan, Undivided],
            Self::LogSum => &[SumAlone],
            Self::Merge => &[LargestAlone, Unshifted, BaseMixed],
            Self::Share => &[Mean, ByLargest, OfOther, Unshifted, BaseMixed, RunningMax],
            Self::LastLogSum => &[SumAlone, OldMaximum],
            Self::Last => &[Undivided],
            Self::Largest(_) | Self::Merged => &[],
        }
    }
}

impl Parted {
    /// What is subtracted before the exponential.
    fn subtracted(&self, largest: &Tensor) -> candle_core::Result<Tensor> {
        let is_plain = self.slip == Some(PartSlip::EmptyNan);
        if is_plain { Ok(largest.clone()) } else { floored(largest) }
    }

    /// Whether a sink is counted in a part: in the first alone.
    fn counts_sink(&self, at: usize) -> bool {
        at == 0 || self.slip == Some(PartSlip::SinkEach)
    }

    fn exp(&self, x: &Tensor) -> candle_core::Result<Tensor> {
        let by = if self.slip == Some(PartSlip::BaseTwo) { std::f64::consts::LN_2 } else { 1.0 };
        (x * by)?.exp()
    }

    fn largest(&self, parts: &Parts, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores, sinks @ ..] = inputs else { return Err(Misread.into()) };
        let none = scores.narrow(3, 0, 1)?.squeeze(3)?.zeros_like()?;
        let is_from_zero = self.slip == Some(PartSlip::FromOne);
        let first = if is_from_zero { 0.0 } else { f64::NEG_INFINITY };
        let mut before = none.affine(0.0, first)?;
        let mut all = Vec::new();
        for (at, columns) in parts.columns(scores, 3)?.into_iter().enumerate() {
            let is_padded = self.slip == Some(PartSlip::PaddedTail) && parts.missing(at) > 0;
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
            all.push(own.clone());
            before = own;
        }
        stacked(&all)
    }

    /// ℓ, or with values acc.
    fn sums(&self, parts: &Parts, inputs: &[&Tensor]) -> Result<Tensor> {
        let [scores, largest, others @ ..] = inputs else { return Err(Misread.into()) };
        let is_weighted = matches!(self.stage, PartStage::Weighted(_));
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
        for (at, columns) in parts.columns(scores, 3)?.into_iter().enumerate() {
            let m = self.subtracted(&largest.get(at)?)?.unsqueeze(3)?;
            let mut own = match &columns {
                None => zero.clone(),
                Some(columns) => {
                    let p = self.exp(&columns.broadcast_sub(&m)?)?.contiguous()?;
                    let p = self.rounded(p)?;
                    match values.as_ref().and_then(|all| all.get(at)).and_then(Option::as_ref) {
                        Some(values) => p.matmul(&values.contiguous()?)?,
                        None => p.sum_keepdim(D::Minus1)?,
                    }
                }
            };
            if let ([factor], true) = (rest, parts.is_running()) {
                let factor = factor.get(at)?.unsqueeze(3)?;
                let kept = match self.slip {
                    Some(PartSlip::NotRescaled) => before,
                    Some(PartSlip::Inverse) if at > 0 => before.broadcast_div(&factor)?,
                    Some(PartSlip::BaseTwo) => {
                        let two = factor.powf(std::f64::consts::LN_2)?;
                        before.broadcast_mul(&two)?
                    }
                    _ => before.broadcast_mul(&factor)?,
                };
                own = (own + kept)?;
            } else if let ([sinks], true) = (rest, self.counts_sink(at)) {
                let sink = of_heads(sinks, 3)?.unsqueeze(3)?.broadcast_sub(&m)?.exp()?;
                own = own.broadcast_add(&sink)?;
            }
            let missing = parts.missing(at);
            if self.slip == Some(PartSlip::PaddedTail) && missing > 0 {
                #[allow(clippy::cast_precision_loss, reason = "keys are few")]
                let zeros = (m.neg()?.exp()? * missing as f64)?;
                own = own.broadcast_add(&zeros)?;
            }
            before = own.clone();
            all.push(if is_weighted { own } else { own.squeeze(3)? });
        }
        stacked(&all)
    }

    /// Exponentials, in bf16 if they are rounded.
    fn rounded(&self, p: Tensor) -> candle_core::Result<Tensor> {
        match self.slip {
            Some(PartSlip::InBf16) => p.to_dtype(DType::BF16)?.to_dtype(p.dtype()),
            _ => Ok(p),
        }
    }

    /// exp(m of the tile before − m).
    fn factors(&self, largest: &Tensor) -> Result<Tensor> {
        let count = largest.dim(0)?;
        let none = if self.slip == Some(PartSlip::FromOne) { 0.0 } else { f64::NEG_INFINITY };
        let first = largest.narrow(0, 0, 1)?.zeros_like()?.affine(0.0, none)?;
        let before = Tensor::cat(&[&first, &largest.narrow(0, 0, count - 1)?], 0)?;
        let factor = (before - self.subtracted(largest)?)?.exp()?;
        let is_inverse = self.slip == Some(PartSlip::Inverse) && count > 1;
        if !is_inverse {
            return Ok(factor);
        }
        let rest = factor.narrow(0, 1, count - 1)?.recip()?;
        Ok(Tensor::cat(&[&factor.narrow(0, 0, 1)?, &rest], 0)?)
    }

    /// The log-sum-exp of those of all splits.
    fn merge(&self, all: &Tensor, sinks: &[&Tensor]) -> Result<Tensor> {
        // All are the largest scores, and the others their sums.
        if let (Some(PartSlip::PlainSum), [sums]) = (self.slip, sinks) {
            return Ok(all.max(0)?.add(&sums.sum(0)?.log()?)?);
        }
        let base =
            if self.slip == Some(PartSlip::BaseMixed) { std::f64::consts::LOG2_E } else { 1.0 };
        let mut all = (all * base)?;
        if let [sinks] = sinks {
            let rows = all.narrow(0, 0, 1)?;
            let sinks = of_heads(sinks, 4)?.broadcast_as(rows.shape())?.contiguous()?;
            all = Tensor::cat(&[&all, &sinks], 0)?;
        }
        let largest = floored(&all.max_keepdim(0)?)?;
        let largest = match self.slip {
            Some(PartSlip::LargestAlone) => return Ok(all.max(0)?),
            Some(PartSlip::Unshifted) => largest.zeros_like()?,
            _ => largest,
        };
        let sum = all.broadcast_sub(&largest)?.exp()?.sum_keepdim(0)?;
        Ok((sum.log()? + largest)?.squeeze(0)?)
    }

    fn share(&self, own: &Tensor, merged: &Tensor) -> Result<Tensor> {
        let of = |merged: &Tensor| own.broadcast_sub(&floored(merged)?)?.exp();
        let count = own.dim(0)?;
        Ok(match self.slip {
            #[allow(clippy::cast_precision_loss, reason = "splits are few")]
            Some(PartSlip::Mean) => own.ones_like()?.affine(1.0 / count as f64, 0.0)?,
            Some(PartSlip::ByLargest) => of(&own.max(0)?)?,
            Some(PartSlip::PlainSum) => merged.broadcast_div(&merged.sum_keepdim(0)?)?,
            Some(PartSlip::RunningMax) => {
                let (mut running, mut all) = (own.get(0)?, Vec::new());
                for at in 0..count {
                    running = running.maximum(&own.get(at)?)?;
                    all.push((own.get(at)? - floored(&running)?)?.exp()?);
                }
                let norm = own.broadcast_sub(&floored(&own.max(0)?)?)?.exp()?.sum(0)?;
                return Ok(stacked(&all)?.broadcast_div(&norm)?);
            }
            Some(PartSlip::OfOther) => {
                let parts = (0..count).rev().map(|at| of(merged)?.get(at));
                return stacked(&parts.collect::<candle_core::Result<Vec<_>>>()?);
            }
            Some(PartSlip::Unshifted) => own.exp()?.broadcast_div(&own.exp()?.sum_keepdim(0)?)?,
            Some(PartSlip::BaseMixed) => {
                let own = (own * std::f64::consts::LOG2_E)?;
                let largest = floored(&own.max_keepdim(0)?)?;
                let all = own.broadcast_sub(&largest)?.exp()?;
                all.broadcast_div(&all.sum_keepdim(0)?)?
            }
            _ => of(merged)?,
        })
    }

    fn last(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [acc, sum, others @ ..] = inputs else { return Err(Misread.into()) };
        let at = |x: &Tensor| x.get(x.dim(0)?.saturating_sub(1));
        let mut sum = at(sum)?;
        if let [largest, sinks] = others {
            let sink = of_heads(sinks, 3)?.broadcast_sub(&floored(&at(largest)?)?)?.exp()?;
            sum = (sum + sink)?;
        }
        if self.slip == Some(PartSlip::Undivided) {
            return Ok(at(acc)?);
        }
        divided(&at(acc)?, &sum)
    }

    fn last_log_sum(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        let [largest, sum, sinks @ ..] = inputs else { return Err(Misread.into()) };
        let last = largest.dim(0)?.saturating_sub(1);
        let at =
            if self.slip == Some(PartSlip::OldMaximum) { last.saturating_sub(1) } else { last };
        let log = sum.get(last)?.log()?;
        if self.slip == Some(PartSlip::SumAlone) {
            return Ok(log);
        }
        PartStage::Merge.right().merge(&(largest.get(at)? + log)?.unsqueeze(0)?, sinks)
    }
}

/// Numbers of heads, for (batch, head, query) and, in four axes, (part, batch, head, query).
fn of_heads(sinks: &Tensor, rank: usize) -> candle_core::Result<Tensor> {
    let mut shape = vec![1; rank];
    if let Some(heads) = shape.iter_mut().rev().nth(1) {
        *heads = sinks.elem_count();
    }
    sinks.reshape(shape)
}

/// acc / ℓ, and 0 where ℓ is.
fn divided(acc: &Tensor, sum: &Tensor) -> Result<Tensor> {
    let is_none = sum.eq(0.0)?;
    let sum = is_none.where_cond(&sum.ones_like()?, sum)?;
    Ok(acc.broadcast_div(&sum.unsqueeze(D::Minus1)?)?)
}

impl Operation for Parted {
    fn value(&self, inputs: &[&Tensor]) -> Result<Tensor> {
        match &self.stage {
            PartStage::Largest(parts) => self.largest(parts, inputs),
            PartStage::Factor => self.factors(read::<1, _>(inputs)?[0]),
            PartStage::Sum(parts) | PartStage::Weighted(parts) => self.sums(parts, inputs),
            PartStage::Quotient => {
                let [acc, sum] = read(inputs)?;
                match self.slip {
                    Some(PartSlip::EmptyNan) => Ok(acc.broadcast_div(&sum.unsqueeze(D::Minus1)?)?),
                    Some(PartSlip::Undivided) => Ok(acc.clone()),
                    _ => divided(acc, sum),
                }
            }
            PartStage::LogSum => {
                let [largest, sum] = read(inputs)?;
                let log = sum.log()?;
                if self.slip == Some(PartSlip::SumAlone) {
                    return Ok(log);
                }
                Ok(largest.add(&log)?)
            }
            PartStage::Merge => {
                let [all, others @ ..] = inputs else { return Err(Misread.into()) };
                self.merge(all, others)
            }
            PartStage::Share => {
                let [own, merged] = read(inputs)?;
                self.share(own, merged)
            }
            PartStage::Merged => {
                let [outputs, weights] = read(inputs)?;
                Ok(outputs.broadcast_mul(&weights.unsqueeze(D::Minus1)?)?.sum(0)?)
            }
            PartStage::LastLogSum => self.last_log_sum(inputs),
            PartStage::Last => self.last(inputs),
        }
    }

    fn axes(&self, inputs: &[&[Dim]]) -> Result<Vec<Dim>, Misread> {
        let (Some(first), count) = (inputs.first(), inputs.len()) else { return Err(Misread) };
        let fits = |counts: &[usize]| if counts.contains(&count) { Ok(()) } else { Err(Misread) };
        let parted = |parts: &Parts, width: &[Dim]| match first {
            [rows @ .., (Axis::Key, _)] if rows.len() == 3 => {
                Ok([&[(parts.axis, parts.keys.len())], rows, width].concat())
            }
            _ => Err(Misread),
        };
        let behind = first.get(1..).map(<[Dim]>::to_vec).ok_or(Misread);
        match &self.stage {
            PartStage::Largest(parts) => fits(&[1, 2]).and_then(|()| parted(parts, &[])),
            PartStage::Sum(parts) => fits(&[2, 3]).and_then(|()| parted(parts, &[])),
            PartStage::Weighted(parts) => {
                fits(&[3, 4])?;
                parted(parts, inputs.get(2).and_then(|values| values.get(3..)).ok_or(Misread)?)
            }
            PartStage::Factor => fits(&[1]).map(|()| first.to_vec()),
            PartStage::Quotient | PartStage::LogSum | PartStage::Share => {
                fits(&[2]).map(|()| first.to_vec())
            }
            PartStage::Merge => fits(&[1, 2]).and(behind),
            PartStage::Merged => fits(&[2]).and(behind),
            PartStage::LastLogSum => fits(&[2, 3]).and(behind),
            PartStage::Last => fits(&[2, 4]).and(behind),
        }
    }

    fn formula(&self, names: &[&str]) -> Result<String, Misread> {
        let [first, second, third, fourth] =
            [0, 1, 2, 3].map(|at| names.get(at).copied().unwrap_or_default());
        let first_sinks = |of: usize| {
            let sinks = names.get(of).map(|sinks| tr!("; in the first, also {sinks}", sinks));
            sinks.unwrap_or_default()
        };
        Ok(match &self.stage {
            PartStage::Largest(parts) if parts.is_running() => {
                tr!("largest of {first} over the keys so far", first)
            }
            PartStage::Largest(_) => {
                tr!(
                    "largest of {first} over the split's keys{sinks}",
                    first,
                    sinks = first_sinks(1)
                )
            }
            PartStage::Factor => tr!("exp({first} of the tile before − {first})", first),
            PartStage::Sum(parts) if parts.is_running() => {
                tr!(
                    "before · {third} + Σ exp({first} − {second}) over the tile's keys",
                    first,
                    second,
                    third
                )
            }
            PartStage::Sum(_) => tr!(
                "Σ exp({first} − {second}) over the split's keys{sinks}",
                first,
                second,
                sinks = first_sinks(2)
            ),
            PartStage::Weighted(parts) if parts.is_running() => tr!(
                "before · {fourth} + Σ exp({first} − {second}) · {third} over the tile's keys",
                first,
                second,
                third,
                fourth
            ),
            PartStage::Weighted(_) => {
                tr!(
                    "Σ exp({first} − {second}) · {third} over the split's keys",
                    first,
                    second,
                    third
                )
            }
            PartStage::Quotient => format!("{first} / {second}"),
            PartStage::LogSum => format!("{first} + log {second}"),
            PartStage::Merge => tr!("log Σ exp({first}) over splits", first),
            PartStage::Share => format!("exp({first} − {second})"),
            PartStage::Merged => tr!("Σ {first} · {second} over splits", first, second),
            PartStage::LastLogSum if names.len() > 2 => {
                tr!(
                    "log(exp({first} + log {second}) + exp({third})) of the last tile",
                    first,
                    second,
                    third
                )
            }
            PartStage::LastLogSum => tr!("{first} + log {second} of the last tile", first, second),
            PartStage::Last if names.len() > 2 => tr!(
                "{first} / ({second} + exp({fourth} − {third})) of the last tile",
                first,
                second,
                third,
                fourth
            ),
            PartStage::Last => tr!("{first} / {second} of the last tile", first, second),
        })
    }

    fn pattern(&self, inputs: &[&Axes]) -> Pattern {
        let (PartStage::Merged, Some(count)) =
            (&self.stage, inputs.first().and_then(|axes| axes.shape().first().copied()))
        else {
            return Pattern::ByCell;
        };
        let outputs = Read::of(0, [4, 0, 1, 2, 3].map(Place::on));
        let weights = Read::of(1, [4, 0, 1, 2].map(Place::on));
        Pattern::Sum(vec![Products::many(count, outputs, weights)])
    }

    fn terms(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        let (PartStage::Sum(parts) | PartStage::Weighted(parts)) = &self.stage else {
            return Ok(Vec::new());
        };
        let ([scores, largest, others @ ..], [part, row @ ..]) = (inputs, cell) else {
            return Err(Misread.into());
        };
        let [batch, head, query, feature @ ..] = row else { return Err(Misread.into()) };
        let rows = [*part, *batch, *head, *query];
        let m = largest.at(&rows)?;
        let exponential = |score: Factor| {
            let name = format!("exp({} − {})", score.name, m.name);
            factor(name, (score.value - m.value.max(f64::from(f32::MIN))).exp()).made_of(&score)
        };
        let (values, rest) = match (feature, others) {
            ([feature], [values, rest @ ..]) => (Some((values, *feature)), rest),
            _ => (None, others),
        };
        let mut terms = Vec::new();
        if let (true, [of_before, ..]) = (parts.is_running() && *part > 0, rest) {
            let tensors: Vec<&Tensor> = inputs.iter().map(|input| input.tensor).collect();
            let mut before = self.sums(parts, &tensors)?.get(*part - 1)?;
            for at in row {
                before = before.get(*at)?;
            }
            let before = before.to_dtype(DType::F64)?.to_scalar::<f64>()?;
            let name = tr!("the same after tile {part}", part = *part - 1);
            terms.push(Term(vec![factor(name, before), of_before.at(&rows)?]));
        }
        for key in parts.places(*part) {
            let mut factors = vec![exponential(scores.at(&[*batch, *head, *query, key])?)];
            if let Some((values, feature)) = values {
                factors.push(values.at(&[*batch, *head, key, feature])?);
            }
            terms.push(Term(factors));
        }
        if let ([sinks], true) = (rest, !parts.is_running() && self.counts_sink(*part)) {
            terms.push(Term(vec![exponential(sinks.at(&[*head])?)]));
        }
        Ok(terms)
    }

    fn flops(&self, inputs: &[&Axes], output: &Axes) -> u128 {
        let scores = inputs.first().map_or(0, |axes| axes.count());
        match &self.stage {
            PartStage::Largest(_) => scores,
            PartStage::Sum(_) => scores.saturating_mul(3),
            PartStage::Weighted(_) => scores.saturating_mul(2).saturating_mul(output.last_size()),
            PartStage::Factor | PartStage::LogSum | PartStage::Share => {
                output.count().saturating_mul(2)
            }
            PartStage::Quotient | PartStage::Last => output.count(),
            PartStage::Merge | PartStage::LastLogSum => scores.saturating_mul(4),
            PartStage::Merged => scores.saturating_mul(2),
        }
    }

    /// Of the first keys alone each part has those that are among them.
    fn narrowed(&self, part: Part, _: &[&Axes], _: &Axes) -> Option<Self> {
        let mut own = self.clone();
        if let (
            PartStage::Largest(parts) | PartStage::Sum(parts) | PartStage::Weighted(parts),
            Part::Keys(count),
        ) = (&mut own.stage, part)
        {
            for (start, end) in parts.keys.iter_mut().flatten() {
                (*start, *end) = ((*start).min(count), (*end).min(count));
            }
        }
        Some(own)
    }

    fn adjoint(&self, _: usize, _: &[&Axes], _: &Axes) -> Adjoint {
        Adjoint::Unknown
    }
}
