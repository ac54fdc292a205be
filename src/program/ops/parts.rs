//! Parts of the keys that are attended to apart: which they are, what is computed of them, and what goes wrong there.

use candle_core::Tensor;

use crate::axis::Axis;
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
    /// Parts that begin at these keys of each sequence, the last of them ending with its last key. A sequence has none of
    /// those that begin behind it. The sequences are given by their first keys and where they end.
    pub fn starting(axis: Axis, starts: &[usize], sequences: &[(usize, usize)]) -> Self {
        let span = |(at, start): (usize, &usize)| {
            let own = |(first, end): &(usize, usize)| {
                let place = |from: usize| first.saturating_add(from).min(*end);
                (place(*start), starts.get(at + 1).map_or(*end, |next| place(*next)))
            };
            sequences.iter().map(own).collect()
        };
        Self { axis, keys: starts.iter().enumerate().map(span).collect(), queries: None }
    }

    /// One of so many equal groups of each part's keys.
    pub(super) fn group(&self, at: usize, groups: usize) -> Self {
        let size = self.keys.first().and_then(|spans| spans.first()).map_or(0, |own| own.1 - own.0);
        let cut = |(first, end): &(usize, usize)| {
            let place = |at: usize| (first + size * at / groups.max(1)).min(*end);
            (place(at), place(at + 1))
        };
        let keys = self.keys.iter().map(|spans| spans.iter().map(cut).collect()).collect();
        Self { keys, ..self.clone() }
    }

    /// How many keys a part has in all.
    pub(super) fn count(&self, at: usize) -> usize {
        let spans = self.keys.get(at).map(Vec::as_slice).unwrap_or_default();
        spans.iter().map(|(first, end)| end.saturating_sub(*first)).sum()
    }

    /// How many keys a part lacks beside the first.
    pub(super) fn missing(&self, at: usize) -> usize {
        self.count(0).saturating_sub(self.count(at))
    }

    /// The keys of a part.
    pub(super) fn places(&self, at: usize) -> impl Iterator<Item = usize> {
        self.keys.get(at).into_iter().flatten().flat_map(|(first, end)| *first..*end)
    }

    /// Whether a part goes on from the one before it.
    pub(super) fn is_running(&self) -> bool {
        self.axis == Axis::Tile
    }

    /// The columns of each part, side by side; nothing of one that has none.
    pub(super) fn columns(&self, x: &Tensor, axis: usize) -> Result<Vec<Option<Tensor>>> {
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
        /// The same, and the factor is of base e.
        BinaryExp => "exp2 is taken of scores that were not multiplied by log2(e), and the rescaling is exp(old − new)",
        /// The maxima are of base 2.
        NaturalFactor => "what was added up before is rescaled by exp of maxima in base 2, where exp2 is taken of the scores",
        /// The maximum before is subtracted.
        OldMax => "the exponentials of a tile subtract the maximum of the tile before, not the new one",
        /// What a tile adds is rescaled too.
        AllRescaled => "what a tile adds is multiplied by the factor too: it is added before the rescaling, not after it",
        /// The factor is of base 2, of scores that were not multiplied by log2(e).
        BinaryFactor => "what was added up before is rescaled by exp2 of the maxima, where exp is taken of the scores",
        /// It is multiplied twice.
        Squared => "what was added up before is rescaled twice when the maximum grows",
        /// The factors of a tile's queries are those of its features.
        AlongFeatures => "what was added up before is rescaled along the features, not the rows: feature j by the factor of the tile's query j",
        /// m begins at 0, and ℓ at 1.
        FromOne => "the maximum starts at 0 and the sum at 1, so that a score of 0 is counted that no key has",
        /// What is subtracted from −∞ is −∞.
        EmptyNan => "what has no visible key (empty, or all masked) gives NaN: −inf − −inf, or 0/0",
        /// The exponentials are whole numbers of 127ths, the next lower ones.
        CutInt8 => "the exponentials are cut to int8, as exp · 127, not rounded, before they multiply the values: all are too small",
        /// The same, rounded, and not scaled back.
        WholeInt8 => "the exponentials are rounded to int8, as exp · 127, and the result is not divided by 127",
        /// The exponentials are rounded.
        InBf16 => "the exponentials are rounded to bf16 before they are added up",
        /// ℓ of all parts is added up as it is.
        PlainSum => "the sums of the parts are added up as they are, not rescaled by exp(maximum − largest)",
        /// Only what comes is rescaled when the maximum grows.
        RunningMax => "what was merged before is not rescaled when the maximum grows",
        /// It is lost.
        Overwritten => "each tile overwrites what was added up before: only the last one is there",
        /// The last key fills up the last part, and counts.
        ClampedTail => "the last key is read again for every place behind it in the last tile",
        /// ℓ of the tile before is taken.
        OldSum => "the sum of the tile before the last is taken",
        /// exp(sink) is added to ℓ.
        SinkUnshifted => "the sink is counted as exp(sink): the maximum is not subtracted from it",
        /// Zeros fill up the last part, and count.
        PaddedTail => "the zeros that fill up the last tile are counted in the sum (its tail)",
        /// As many places as are missing count, not as there are.
        TailReversed => "in the last tile the keys that it lacks are taken for those that it has: tile − keys % tile in place of keys % tile, and zeros are counted",
        /// A sink is counted in every part.
        SinkEach => "the sink is counted in every split or tile, not once",
        /// The largest stands for the sum.
        LargestAlone => "the largest log-sum-exp stands for that of all",
        /// Without the maximum.
        Unshifted => "the maximum is not subtracted first, and large numbers overflow",
        /// All parts weigh the same.
        Mean => "the parts are averaged, whatever they weigh",
        /// The lse is updated with the difference the wrong way round.
        SignExchanged => "at every step of the merge the log-sum-exp becomes lse − logsigmoid(new − lse), for lse − logsigmoid(lse − new)",
        /// The lse is updated with the other sign.
        SignTurned => "at every step of the merge the log-sum-exp becomes lse + logsigmoid(lse − new), for lse − logsigmoid(lse − new)",
        /// Pairs are merged first, and then by the first of each.
        PairFirst => "pairs of splits are merged first, and then by the log-sum-exp of the first of each pair",
        /// The first has the merged log-sum-exp.
        FinalFirst => "the merged log-sum-exp is written over that of split 0 before others read it",
        /// The outputs are not weighed.
        DenominatorAlone => "the outputs of the parts are added up as they are, and divided by the sums, which are rescaled by exp(lse − largest)",
        /// What was merged before is that of one part.
        PartBefore => "each step of the merge reads the log-sum-exp of the part before alone, not of all that was merged so far",
        /// All that see a key do.
        MeanSeen => "the parts that see a key are averaged, whatever they weigh",
        /// Each weighs 1.
        Added => "the outputs of the parts are added up, whatever they weigh",
        /// The weights do not add up to 1.
        ByLargest => "the weights of the parts are exp(lse − largest), and are not divided by their sum",
        /// They are those of other parts.
        OfOther => "the parts exchange their weights: each has that of the other",
        /// They are made in another base than the log-sum-exps.
        BaseMixed => "log-sum-exps in base 2 are merged by exp",
        /// Likewise.
        BinaryMerge => "natural log-sum-exps are merged by exp2",
        /// What comes is weighed by the sum that it is part of already.
        LateSum => "at every step of the merge what comes is weighed by sigmoid(new − lse) with an lse that it is part of already",
        /// The first one's stands for all before.
        StaleSum => "at every step of the merge the log-sum-exp is still that of the first: it is not updated",
        /// The first is not weighed.
        FirstWhole => "what was merged first keeps the weight 1: it is not rescaled",
        /// The factor of what was merged before is 1.
        NewSum => "at every step of the merge the log-sum-exp is updated before what was merged before is rescaled by it: that factor is 1",
        /// The sigmoid that weighs what comes has the other sign.
        Swapped => "at every step of the merge what was merged before and what comes exchange their weights: sigmoid(lse − new) for sigmoid(new − lse)",
        /// It is 0 where there is no key.
        EmptyZero => "the log-sum-exp of what has no visible key is 0, not −inf, and it is merged as exp(0)",
        /// It is +∞ there, and −∞ is meant.
        EmptyInfinite => "the log-sum-exp of what has no visible key is +inf, and is merged as it is: inf − inf is NaN",
        /// The logarithm is of base 2, and the maximum is not.
        Log2 => "the log-sum-exp is the maximum + log2 of the sum, not its natural logarithm",
        /// The maximum is left out.
        SumAlone => "the maximum is left out of the log-sum-exp",
        /// The one before is taken.
        OldMaximum => "the maximum of the tile before is taken for the log-sum-exp",
        /// Nothing is divided.
        Undivided => "the result is not divided by the sum",
        /// acc is divided by ℓ in every tile.
        DividedEach => "what was added up is divided by the sum after every tile, not once at the end",
        /// The splits are merged two by two.
        PairLargest => "the splits are merged in pairs, and the log-sum-exp of a pair is the larger one of its two",
        /// The weights are ℓ over what is right.
        PlainNumerator => "the outputs of the parts are weighed by sums that are not rescaled, and divided by the sum of rescaled ones",
        /// m and ℓ are those of the tile of queries before.
        RowsCarried => "the maximum and the sum are not reset between tiles of queries: each row begins with those of the row in its place in the tile before",
        /// And acc as well.
        AllCarried => "nothing is reset between tiles of queries: each row begins with what the row in its place in the tile before left",
        /// m begins at −∞ once more, and wipes what was summed.
        MaxRestarted => "the maximum starts anew in the loop over tiles that the mask blocks a part of, and what the loop before it added up is lost",
        /// What was summed begins at 0 once more, under the maximum that was.
        SumsRestarted => "what the loop over whole tiles added up is set to 0 before the loop over tiles that the mask blocks a part of",
        /// acc is divided by ℓ between two loops.
        DividedBetween => "what was added up is divided by the sum between the loop over whole tiles and that over tiles that the mask blocks a part of, and again at the end",
        /// The values of the last tile that a tile of queries reaches are not loaded.
        LastValues => "in the last tile that a tile of queries reaches, the values are still those of the tile before",
        /// The polynomial is made for what is from 0 to 1.
        PolynomialOfTrunc => "exp2 is a polynomial of x − trunc(x), which is below 0, not of x − floor(x)",
        /// 1 + f for 2^f.
        LinearFraction => "exp2 of the fraction of x is taken for 1 + fraction",
        /// 2^⌊x⌋.
        WholeAlone => "exp2 is taken of the whole part of x alone: its fraction is lost",
        /// 2^(x − ⌊x⌋).
        FractionAlone => "exp2 is taken of the fraction of x alone: its whole part is not put into the exponent",
        /// Each half of a tile has its own m.
        HalvesApart => "each half of a tile has a maximum of its own, and their sums are added up as they are, not rescaled to the larger one",
        /// Each quarter has.
        QuartersApart => "each quarter of a tile has a maximum of its own, and their sums are added up as they are, not rescaled to the largest one",
        /// Each half has, and that of the first is kept.
        FirstHalfKept => "each half of a tile has a maximum of its own, and that of the first half alone is kept",
        /// That of the last is.
        LastHalfKept => "each half of a tile has a maximum of its own, and that of the last half alone is kept",
        /// The same of quarters.
        FirstQuarterKept => "each quarter of a tile has a maximum of its own, and that of the first quarter alone is kept",
        /// Likewise.
        LastQuarterKept => "each quarter of a tile has a maximum of its own, and that of the last quarter alone is kept",
        /// What a tile gives misses the factor of the next one.
        AddedLate => "what a tile gives is added one tile later, after the rescaling by that tile's factor",
        /// The same, where what the last tile gives is added at the end.
        LateToEnd => "what a tile gives is added one tile later, and what the last one gives at the end",
        /// What is kept is not what was subtracted.
        MaxInBf16 => "the running maximum is kept in bf16, and the exponentials were made with the one in f32",
        /// The same of scores in base 2.
        BinaryMaxInBf16 => "the running maximum, in base 2, is kept in bf16, and the exponentials were made with the one in f32",
        /// What is added up is rounded after every tile.
        KeptInBf16 => "what is added up is kept in bf16, and rounded after every tile",
        /// The splits are loaded up to a power of two.
        NextRow => "the splits are loaded in a power of two, and are not masked behind the last: the first ones of the next row come in",
        /// Each rank of a ring merges its own part first.
        RingLate => "at every step of a ring's merge what comes is weighed by sigmoid(new − lse) with an lse that it is part of already",
        /// The same with another mistake.
        RingNew => "at every step of a ring's merge the log-sum-exp is updated before what was merged before is rescaled by it: that factor is 1",
        /// Likewise.
        RingStale => "at every step of a ring's merge the log-sum-exp is still that of the rank's own block: it is not updated",
        /// Likewise.
        RingSignExchanged => "at every step of a ring's merge the log-sum-exp becomes lse − logsigmoid(new − lse), for lse − logsigmoid(lse − new)",
        /// Likewise.
        RingSignTurned => "at every step of a ring's merge the log-sum-exp becomes lse + logsigmoid(lse − new), for lse − logsigmoid(lse − new)",
    }
}

/// What goes wrong in what is added up tile by tile; the last in the values alone.
const RUNNING: [PartSlip; 12] = [
    PartSlip::KeptInBf16,
    PartSlip::NotRescaled,
    PartSlip::Inverse,
    PartSlip::BaseTwo,
    PartSlip::BinaryExp,
    PartSlip::BinaryFactor,
    PartSlip::Squared,
    PartSlip::EmptyNan,
    PartSlip::Overwritten,
    PartSlip::OldMax,
    PartSlip::AllRescaled,
    PartSlip::DividedEach,
];

impl PartStage {
    /// The step without a mistake.
    pub fn right(self) -> Parted {
        Parted { stage: self, slip: None }
    }

    /// What can go wrong in it.
    pub fn slips(&self) -> &'static [PartSlip] {
        use PartSlip::{
            Added, BaseMixed, BaseTwo, BinaryFactor, BinaryMerge, ByLargest, DenominatorAlone,
            EmptyNan, EmptyZero, FirstWhole, Inverse, LargestAlone, LateSum, Log2, Mean, MeanSeen,
            NaturalFactor, NewSum, OfOther, OldMaximum, OldSum, RingLate, RingNew, RingStale,
            RunningMax, SinkUnshifted, Squared, StaleSum, SumAlone, Swapped, Undivided, Unshifted,
        };
        match self {
            Self::Factor => &[Inverse, NaturalFactor, BinaryFactor, Squared],
            Self::Weighted(parts) if parts.is_running() => &RUNNING,
            // The sum is what others are divided by.
            Self::Sum(parts) if parts.is_running() => &RUNNING[..RUNNING.len() - 1],
            Self::Sum(_) | Self::Weighted(_) => &[BaseTwo, EmptyNan],
            Self::Quotient => &[EmptyNan, Undivided],
            Self::LogSum => &[SumAlone, EmptyZero, Log2],
            Self::Merge => &[LargestAlone, Unshifted, BaseMixed, BinaryMerge],
            Self::Share => &[
                Mean,
                MeanSeen,
                Added,
                ByLargest,
                DenominatorAlone,
                OfOther,
                Unshifted,
                BaseMixed,
                BinaryMerge,
                RunningMax,
                Swapped,
                NewSum,
                LateSum,
                StaleSum,
                FirstWhole,
                RingLate,
                RingNew,
                RingStale,
            ],
            Self::LastLogSum => &[SumAlone, OldMaximum, Log2, OldSum, SinkUnshifted],
            Self::Last => &[Undivided, OldSum, SinkUnshifted, EmptyNan],
            Self::Largest(_) | Self::Merged => &[],
        }
    }
}
