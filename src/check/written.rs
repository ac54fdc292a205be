//! Do numbers in few bits stand for what was written in them, where a file has both?

use candle_core::{DType, Tensor};

use super::cells::multiple;
use super::finding::Contradiction;
use super::non_finite::{Cause, NonFinite};
use base::error::{Result, quoted};
use file::{Entry, Record};
use foreign::{Qkv, Unmatched, meanings, numbers};
use program::{Along, Dequantize, Name, Op, Slip, first_number, unravel};

/// That a cache in few bits holds NaN which the recorded results take in: no number that was written in it is one.
///
/// # Errors
/// If candle fails.
pub fn holds_nan(found: Option<&NonFinite>, record: &Record) -> Result<Option<Contradiction>> {
    let Some(found) = found.filter(|own| own.cause == Cause::Given && own.value.is_nan()) else {
        return Ok(None);
    };
    let codes = Name::FEW_BITS.map(|[_, codes, ..]| codes);
    let codes = codes.into_iter().find(|codes| codes.as_str() == found.place.step);
    let results = [Name::Lse, Name::HeadOutputs];
    let results = results.into_iter().filter_map(|name| record.tensor(name.as_str()));
    let Some(codes) = codes else { return Ok(None) };
    for result in results {
        if first_number(result, f64::is_nan)?.is_some() {
            let summary = tr!(
                "{codes} holds NaN, and the results read it: no number becomes NaN in few bits but one that is too large, cast without saturating",
                codes
            );
            let setting = codes.as_str();
            let both = [tr!("numbers").to_owned(), "NaN".to_owned()];
            return Ok(Some(Contradiction::told(setting, codes, both, summary)));
        }
    }
    Ok(None)
}

/// Takes out of a file the queries, keys and values that were written in few bits, where those are given too; and what
/// those stand for that is further from them than rounding takes it.
///
/// # Errors
/// If candle fails.
pub fn written(record: &mut Record, given: &Qkv) -> Result<(Vec<Unmatched>, Vec<Contradiction>)> {
    let (mut unmatched, mut found) = (Vec::new(), Vec::new());
    let tensor =
        |step: Name| given.tensors.iter().find(|(name, _)| *name == step).map(|(_, own)| own);
    let called = |step: Name| {
        let found = given.matches.iter().find(|found| step == found.step.as_str());
        quoted(found.map_or(step.as_str(), |found| &found.tensor))
    };
    for [heads, own, scale, zero, back] in Name::FEW_BITS {
        if let Some(plain) = tensor(heads) {
            let why = tr!("nothing scales back what is given, and it is compared with that alone");
            if let Some(entry) = taken(record, back, why, &mut unmatched) {
                found.extend(unlike(&entry, plain, (heads, called(heads)))?);
            }
        }
        let (Some(codes), Some(scale)) = (tensor(own), tensor(scale)) else { continue };
        let why = tr!("it was written in few bits, and is compared with these alone");
        let Some(entry) = taken(record, heads, why, &mut unmatched) else { continue };
        let Some(meant) = in_order_of(codes, &entry.tensor) else { continue };
        let wide = |tensor: &Tensor| tensor.to_dtype(DType::F64);
        let mut read = vec![wide(codes)?, wide(scale)?];
        read.extend(tensor(zero).map(wide).transpose()?);
        let stood = Op::from(Dequantize::RIGHT).eval(&read.iter().collect::<Vec<_>>())?;
        let scales = numbers(&read[1].broadcast_as(codes.shape())?)?;
        let in_f64 = wide(&meant)?;
        let (codes, stood, meant) = (numbers(codes)?, numbers(&stood)?, numbers(&meant)?);
        let apart = Apart {
            dims: read[0].dims(),
            codes: &codes,
            scales: &scales,
            stood: &stood,
            meant: &meant,
        };
        let names = (quoted(&entry.name), called(own));
        let Some((place, largest)) = apart.furthest() else {
            if let Some(summary) = apart.cut(&names) {
                let pair = [tr!("rounded"), tr!("cut")].map(str::to_owned);
                found.push(Contradiction::told(own.as_str(), own, pair, summary));
            }
            continue;
        };
        if heads == Name::KHeads && is_smoothed(&apart, &in_f64)? {
            if let Some(own) = unmatched.last_mut() {
                let why = tr!(
                    "it was written in few bits without the mean of its tokens (smoothed keys), which softmax does not see"
                );
                why.clone_into(&mut own.why);
            }
            continue;
        }
        let smoothed =
            if heads == Name::KHeads { smoothed_apart(&apart, &in_f64, &names)? } else { None };
        let (pair, mut summary) = apart.told((place, largest), &names);
        summary = smoothed.unwrap_or(summary);
        found.push(Contradiction::told(own.as_str(), own, pair, summary));
    }
    Ok((unmatched, found))
}

/// Numbers in few bits, and what was written in them.
pub struct Apart<'a> {
    /// (item, head, token, feature).
    pub dims: &'a [usize],
    /// As they are kept.
    pub codes: &'a [f64],
    /// What each is multiplied by.
    pub scales: &'a [f64],
    /// What the codes stand for.
    pub stood: &'a [f64],
    /// What was written.
    pub meant: &'a [f64],
}

impl Apart<'_> {
    /// The cell in which what was written and what stands there are further apart than rounding takes them, if one is, and
    /// whether the code there is the largest of all.
    pub fn furthest(&self) -> Option<(usize, bool)> {
        furthest(self.codes, self.scales, [self.stood, self.meant])
    }

    /// That whole numbers were cut and not rounded, if all lie on one side of what was written, and a quarter of them by more than
    /// half a step.
    fn cut(&self, (name, codes): &(String, String)) -> Option<String> {
        // f32 and the scale's own rounding leave so much of a step open.
        const OPEN: f64 = 0.02;
        // Of numbers so small those of fp8 have fractions.
        const SMALL: f64 = 8.0;
        const LEAST: usize = 8;
        let Self { stood, meant, scales, .. } = self;
        let small = self.codes.iter().filter(|code| **code != 0.0 && code.abs() < SMALL).count();
        if small < LEAST || self.codes.iter().any(|code| code.fract() != 0.0) {
            return None;
        }
        let off = |at: usize| (meant[at] - stood[at]) / scales[at].abs();
        let all = || (0..meant.len()).filter(|at| off(*at).is_finite());
        let far = all().filter(|at| off(*at).abs() > 0.5 + OPEN).count();
        let side =
            |is_on: &dyn Fn(usize) -> bool| all().all(|at| off(at).abs() < OPEN || is_on(at));
        let how = if far == 0 || 4 * far < all().count() {
            return None;
        } else if side(&|at| off(at) * meant[at] > 0.0) {
            tr!("towards 0")
        } else if side(&|at| off(at) > 0.0) {
            tr!("downwards")
        } else {
            return None;
        };
        Some(tr!(
            "{codes} are whole numbers that were cut {how}, not rounded: they are up to a whole step from {name}, and on one side of it",
            codes,
            how,
            name
        ))
    }

    /// The number there and what stands for it, and how these came to be apart.
    pub fn told(
        &self,
        (place, largest): (usize, bool),
        (name, codes): &(String, String),
    ) -> ([String; 2], String) {
        let (stood, meant) = (self.stood, self.meant);
        #[allow(clippy::cast_possible_truncation, reason = "as many digits as are worth telling")]
        let told = |number: f64| (number as f32).to_string();
        let (stated, recorded) = (told(meant[place]), told(stood[place]));
        let cell = unravel(place, self.dims);
        let scaled = meant[place] / self.scales[place];
        let largest_code = self
            .codes
            .iter()
            .filter(|code| code.is_finite())
            .fold(0.0, |most: f64, own| most.max(own.abs()));
        let is_beyond = !stood[place].is_finite() && scaled.abs() > largest_code;
        let summary = if is_beyond {
            tr!(
                "{name} is {stated} at {cell}, {scaled} times the scale, and {codes} stands for {recorded} there: the cast does not \
                 saturate, and what is beyond the largest number of the type is not cut off",
                name,
                stated,
                cell = format!("{cell:?}"),
                scaled = told(scaled),
                codes,
                recorded
            )
        } else if let Some(factor) = factor_of(stood, meant) {
            tr!(
                "{codes} stands for {factor} times {name} throughout: another scale was used to write it",
                codes,
                factor = format!("{factor:.4}"),
                name
            )
        } else if let Some(count) = wrapped([place, meant.len()], [stood, meant], self.scales) {
            tr!(
                "{name} is {stated} at {cell}, and {codes} stands for {recorded} there: what is beyond the range of {count} whole \
                 numbers was not cut off, and wraps round",
                name,
                stated,
                cell = format!("{cell:?}"),
                codes,
                recorded,
                count
            )
        } else if let Some((tokens, factor)) = older(self.dims, stood, meant) {
            tr!(
                "the first {tokens} tokens of {codes} stand for {factor} times {name}, the others for {name}: they stay in the \
                 scale that they were written in",
                tokens,
                codes,
                factor = format!("{factor:.4}"),
                name
            )
        } else if let Some((tokens, token, factor)) = changed(self.dims, stood, meant) {
            tr!(
                "{tokens} of the tokens of {codes}, the first one token {token}, stand for another multiple of {name} each, up to \
                 {factor} times: their scale has changed since they were written, and they were not written anew",
                tokens,
                codes,
                token,
                name,
                factor = format!("{factor:.4}")
            )
        } else if largest {
            tr!(
                "{name} is {stated} at {cell}, and {codes} stands for {recorded} there, the largest number that it has: what \
                 is beyond was cut off, and not scaled",
                name,
                stated,
                cell = format!("{cell:?}"),
                codes,
                recorded
            )
        } else {
            tr!(
                "{name} is {stated} at {cell}, and {codes} stands for {recorded} there, which is further off than rounding is",
                name,
                stated,
                cell = format!("{cell:?}"),
                codes,
                recorded
            )
        };
        ([stated, recorded], summary)
    }
}

/// The tensor, or with its tokens and heads exchanged, where it has the axes of the other one so.
fn in_order_of(other: &Tensor, tensor: &Tensor) -> Option<Tensor> {
    let is_like = |tensor: &Tensor| tensor.dims() == other.dims();
    let turned = || tensor.transpose(1, 2).ok().filter(is_like);
    Some(tensor.clone()).filter(is_like).or_else(turned)
}

/// What contradicts numbers that are said to be scaled back from few bits, where these are given without a scale, and so are the
/// numbers themselves, but for the rounding of 16 bits.
fn unlike(
    entry: &Entry,
    plain: &Tensor,
    (heads, own): (Name, String),
) -> Result<Option<Contradiction>> {
    let Some(recorded) = in_order_of(plain, &entry.tensor) else { return Ok(None) };
    let (recorded, given) = (numbers(&recorded)?, numbers(plain)?);
    let mut pairs = recorded.iter().zip(&given);
    let is_off = |(recorded, given): (&f64, &f64)| (recorded - given).abs() > given.abs() / 128.0;
    let Some(place) = pairs.position(is_off) else { return Ok(None) };
    let [stated, recorded] = [given[place], recorded[place]].map(|number| number.to_string());
    let (name, cell) = (quoted(&entry.name), format!("{:?}", unravel(place, plain.dims())));
    let summary = tr!(
        "{own} is {stated} at {cell}, and {name} is {recorded} there: nothing says by what it is scaled",
        own,
        stated,
        cell,
        name,
        recorded
    );
    Ok(Some(Contradiction::told(heads.as_str(), heads, [stated, recorded], summary)))
}

/// Whether codes stand for keys without the mean of their tokens.
fn is_smoothed(apart: &Apart, keys: &Tensor) -> Result<bool> {
    let smoothed = numbers(&keys.broadcast_sub(&keys.mean_keepdim(2)?)?)?;
    Ok(Apart { meant: &smoothed, ..*apart }.furthest().is_none())
}

/// That codes stand for keys without the mean of each block of so many tokens, not of all: softmax sees that.
fn smoothed_apart(
    apart: &Apart,
    keys: &Tensor,
    (name, codes): &(String, String),
) -> Result<Option<String>> {
    let tokens = keys.dim(2)?;
    for size in 2..tokens {
        let smoothed = Op::from(Slip::Along(2, Along::LessMean(size))).eval(&[keys])?;
        if (Apart { meant: &numbers(&smoothed)?, ..*apart }).furthest().is_none() {
            return Ok(Some(tr!(
                "{codes} stands for {name} less the mean of every {size} tokens by themselves, not of all: the scores of each {size} keys \
                 are shifted against those of others, which softmax sees",
                codes,
                name,
                size
            )));
        }
    }
    Ok(None)
}

/// Takes the tensor of these heads out of a file, and notes that and why it is no step.
pub fn taken(
    record: &mut Record,
    heads: Name,
    why: &str,
    unmatched: &mut Vec<Unmatched>,
) -> Option<Entry> {
    let is_it = |entry: &Entry| meanings(&entry.name).contains(&heads);
    let entry = record.entries.remove(record.entries.iter().position(is_it)?);
    unmatched.push(Unmatched { tensor: entry.name.clone(), why: why.to_owned() });
    Some(entry)
}

/// The cell in which what was written and what stands there are further apart than rounding takes them, if one is, and
/// whether the code there is the largest of all.
fn furthest(codes: &[f64], scales: &[f64], [stood, meant]: [&[f64]; 2]) -> Option<(usize, bool)> {
    let are_whole = codes.iter().all(|code| code.fract() == 0.0);
    let most = codes.iter().fold(0.0, |most: f64, code| most.max(code.abs()));
    let excess = |at: usize| {
        // Whole numbers are at most one step off, where they are cut and not rounded; the significand of e5m2 has a step of
        // a quarter, and the smallest numbers of e4m3 one of 2⁻⁹.
        let step = if are_whole { 1.01 } else { codes[at].abs() / 4.0 + 0.002 };
        let excess = (stood[at] - meant[at]).abs() / (step * scales[at].abs());
        match (stood[at].is_finite(), meant[at].is_finite()) {
            (false, true) => f64::INFINITY,
            (false, false) => 0.0,
            _ => excess,
        }
    };
    let at = (0..codes.len()).max_by(|left, right| excess(*left).total_cmp(&excess(*right)))?;
    #[allow(clippy::float_cmp, reason = "the largest itself")]
    let is_cut_off = |at: usize| codes[at].abs() == most && meant[at].abs() > stood[at].abs();
    // What is cut off becomes the largest number again and again.
    let is_cut_off = is_cut_off(at) && (0..codes.len()).filter(|at| is_cut_off(*at)).count() > 1;
    (excess(at) > 1.0).then_some((at, is_cut_off))
}

/// How many whole numbers there are, where one is off by as many of their steps.
fn wrapped([place, count]: [usize; 2], [stood, meant]: [&[f64]; 2], scales: &[f64]) -> Option<u32> {
    let off = |at: usize| (meant[at] - stood[at]) / scales[at];
    let is_turned = |at: usize, all: f64| {
        let turns = (off(at) / all).round();
        turns.abs() >= 1.0 && (off(at) - turns * all).abs() < 1.01
    };
    let fits = |all: &u32| {
        let all = f64::from(*all);
        is_turned(place, all) && (0..count).all(|at| off(at).abs() < 1.01 || is_turned(at, all))
    };
    [256, 16].into_iter().find(fits)
}

/// How many tokens at the start of (item, head, token, feature) stand for a multiple of what was meant, and by which factor.
fn older(shape: &[usize], stood: &[f64], meant: &[f64]) -> Option<(usize, f64)> {
    let &[_, _, tokens, features] = shape else { return None };
    let of = |all: &[f64], is_in: &dyn Fn(usize) -> bool| -> Vec<f64> {
        let own = all.iter().enumerate().filter(|(at, _)| is_in(at / features % tokens));
        own.map(|(_, number)| *number).collect()
    };
    let factor =
        |is_in: &dyn Fn(usize) -> bool| multiple(&of(stood, is_in), &of(meant, is_in), ROUNDED);
    let is_plain = |factor: f64| (factor - 1.0).abs() <= ROUNDED;
    let is_right = |token: usize| factor(&|own| own == token).is_some_and(is_plain);
    let count = (0..tokens).rev().find(|token| !is_right(*token))? + 1;
    let found = factor(&|own| own < count).filter(|found| count < tokens && !is_plain(*found))?;
    Some((count, found))
}

/// How many tokens of (item, head, token, feature) stand for a multiple of their own of what was meant, with the first of them,
/// and the factor that is furthest from 1; nothing where any token stands for no multiple.
fn changed(shape: &[usize], stood: &[f64], meant: &[f64]) -> Option<(usize, usize, f64)> {
    let &[_, _, tokens, features] = shape else { return None };
    let rows = stood.chunks(features.max(1)).zip(meant.chunks(features.max(1)));
    let factors = rows.map(|(stood, meant)| multiple(stood, meant, ROUNDED));
    let factors: Vec<f64> = factors.collect::<Option<_>>()?;
    let far = |factor: f64| factor.abs().max(f64::MIN_POSITIVE).ln().abs();
    let is_other = |factor: f64| (factor - 1.0).abs() > 2.0 * ROUNDED;
    let of_token = |token: usize| factors.iter().skip(token).step_by(tokens.max(1)).copied();
    let all: Vec<usize> = (0..tokens).filter(|token| of_token(*token).any(is_other)).collect();
    let furthest = factors.iter().copied().max_by(|left, right| far(*left).total_cmp(&far(*right)));
    let first = all.first().copied().filter(|_| all.len() > 1 && features >= LEAST_FEATURES)?;
    Some((all.len(), first, furthest?))
}

/// Of fewer features any few numbers are nearly a multiple of others.
const LEAST_FEATURES: usize = 8;

/// By which factor numbers are those that were meant, all of them but for rounding, where it is neither 0 nor 1.
fn factor_of(stood: &[f64], meant: &[f64]) -> Option<f64> {
    let is_another = |factor: &f64| factor.abs() > 0.0 && (factor - 1.0).abs() > ROUNDED;
    multiple(stood, meant, ROUNDED).filter(is_another)
}

/// Numbers in few bits are off by less than that, relative to their root mean square.
const ROUNDED: f64 = 0.05;
