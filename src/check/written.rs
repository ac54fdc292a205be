//! Do numbers in few bits stand for what was written in them, where a file has both?

use candle_core::{DType, Tensor};

use super::candidate::ranges;
use super::cells::multiple;
use super::finding::Contradiction;
use base::error::{Result, quoted};
use file::{Entry, Record};
use foreign::{Qkv, Unmatched, meanings, numbers};
use program::{Dequantize, Name, Op, spans, unravel};

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
        let Some((place, largest)) = furthest(&codes, &scales, [&stood, &meant]) else { continue };
        if heads == Name::KHeads && is_smoothed(&codes, &scales, &stood, &in_f64)? {
            if let Some(own) = unmatched.last_mut() {
                let why = tr!(
                    "it was written in few bits without the mean of its tokens (smoothed keys), which softmax does not see"
                );
                why.clone_into(&mut own.why);
            }
            continue;
        }
        #[allow(clippy::cast_possible_truncation, reason = "as many digits as are worth telling")]
        let told = |number: f64| (number as f32).to_string();
        let (stated, recorded) = (told(meant[place]), told(stood[place]));
        let cell = unravel(place, read[0].dims());
        let (name, codes) = (quoted(&entry.name), called(own));
        let summary = if let Some(factor) = factor_of(&stood, &meant) {
            tr!(
                "{codes} stands for {factor} times {name} throughout: another scale was used to write it",
                codes,
                factor = format!("{factor:.4}"),
                name
            )
        } else if let Some(count) = wrapped([place, meant.len()], [&stood, &meant], &scales) {
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
        } else if let Some((tokens, factor)) = older(read[0].dims(), &stood, &meant) {
            tr!(
                "the first {tokens} tokens of {codes} stand for {factor} times {name}, the others for {name}: they stay in the \
                 scale that they were written in",
                tokens,
                codes,
                factor = format!("{factor:.4}"),
                name
            )
        } else if let Some((tokens, token, factor)) = changed(read[0].dims(), &stood, &meant) {
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
        found.push(Contradiction::told(own.as_str(), own, [stated, recorded], summary));
    }
    Ok((unmatched, found))
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
fn is_smoothed(codes: &[f64], scales: &[f64], stood: &[f64], keys: &Tensor) -> Result<bool> {
    let smoothed = numbers(&keys.broadcast_sub(&keys.mean_keepdim(2)?)?)?;
    Ok(furthest(codes, scales, [stood, &smoothed]).is_none())
}

/// Takes the keys and values of the run's own tokens out of a file, where pages are given that these were written to; and
/// which of them do not stand at their slots. Each sequence has so many `news`.
///
/// # Errors
/// If candle fails.
pub fn new_keys(
    record: &mut Record,
    given: &Qkv,
    slots: Option<&[Option<usize>]>,
    news: &[usize],
) -> Result<(Vec<Unmatched>, Vec<Contradiction>)> {
    let (mut unmatched, mut found) = (Vec::new(), Vec::new());
    let scales = Name::FEW_BITS.map(|[_, _, scale, ..]| scale);
    for [heads, own, _] in Name::PAGES {
        let Some((_, pages)) = given.tensors.iter().find(|(name, _)| *name == own) else {
            continue;
        };
        let why = tr!("it was written to the pages, and is compared with these alone");
        let Some(entry) = taken(record, heads, why, &mut unmatched) else { continue };
        // What was written in few bits is another number by its rounding.
        if given.tensors.iter().any(|(name, _)| scales.contains(name)) {
            continue;
        }
        let (_, heads, count, features) = pages.dims4()?;
        let rows = |tensor: &Tensor| -> Result<Vec<Vec<f64>>> {
            Ok(numbers(tensor)?.chunks(heads * features).map(<[f64]>::to_vec).collect())
        };
        let stored = rows(&pages.squeeze(0)?.transpose(0, 1)?.contiguous()?)?;
        let new = rows(&entry.tensor)?;
        let slots = slots.unwrap_or_default();
        if slots.len() != new.len() || entry.tensor.elem_count() != new.len() * heads * features {
            continue;
        }
        let is_at = |slot: usize, row: &[f64]| stored.get(slot).is_some_and(|own| own == row);
        let last = count.saturating_sub(1);
        let mut tokens = slots.iter().zip(&new);
        if let Some(token) = tokens.position(|(slot, row)| slot.is_none() && is_at(last, row)) {
            let (name, stated) = (quoted(&entry.name), "-1".to_owned());
            let recorded = tr!("it stands at slot {other}", other = last);
            let summary = tr!(
                "{name} of token {token} is padding, with slot {stated}, and {recorded} of {own}, the last one",
                name,
                token,
                stated,
                recorded,
                own
            );
            found.push(Contradiction::told(own.as_str(), own, [stated, recorded], summary));
        }
        let pairs = slots.iter().zip(&new).enumerate();
        let pairs = pairs.filter_map(|(token, (slot, row))| Some((token, (*slot)?, row)));
        let missing: Vec<_> = pairs.filter(|(_, slot, row)| !is_at(*slot, row)).collect();
        let Some((token, slot, row)) = missing.first().copied() else { continue };
        let there = stored.get(slot).is_some_and(|own| own.iter().all(|number| *number == 0.0));
        let recorded = match (0..count).find(|slot| is_at(*slot, row)) {
            Some(other) if other == slot + 1 => {
                tr!("it stands one slot further, at {other}", other)
            }
            Some(other) => tr!("it stands at slot {other}", other),
            None if slots.iter().zip(&new).enumerate().any(|(other, (own, row))| {
                other != token && *own == Some(slot) && is_at(slot, row)
            }) =>
            {
                let is_other =
                    |(other, own): &(usize, &Option<usize>)| *other != token && **own == Some(slot);
                let other = slots.iter().enumerate().find(is_other).map_or(token, |own| own.0);
                tr!(
                    "token {other} stands there, which has the same slot: it was written over it",
                    other
                )
            }
            None if there => tr!("zeros stand there: it was not written").to_owned(),
            None => tr!("something else stands there").to_owned(),
        };
        let (name, stated) = (quoted(&entry.name), slot.to_string());
        let summary = tr!(
            "{name} of token {token} should stand at slot {stated} of {own}, and {recorded}",
            name,
            token,
            stated,
            own,
            recorded
        );
        let tokens: Vec<usize> = missing.iter().map(|(token, ..)| *token).collect();
        let summary = match of_each_sequence(&tokens, new.len(), news) {
            Some(which) => format!("{summary}; {which}"),
            None => summary,
        };
        found.push(Contradiction::told(own.as_str(), own, [stated, recorded], summary));
    }
    Ok((unmatched, found))
}

/// Which token of each sequence is missing, where it is the same of all of them, and not all that they have.
fn of_each_sequence(missing: &[usize], tokens: usize, news: &[usize]) -> Option<String> {
    if news.len() < 2 || missing.len() == tokens || news.iter().sum::<usize>() != tokens {
        return None;
    }
    let spans = spans(news);
    let are = |of: &dyn Fn(usize, usize) -> usize| {
        missing.iter().copied().eq(spans.iter().map(|(first, end)| of(*first, *end)))
    };
    let all = ranges(missing);
    if are(&|_, end| end.saturating_sub(1)) {
        return Some(tr!(
            "so it is with the last new token of each sequence, and with no other (tokens {all})",
            all
        ));
    }
    are(&|first, _| first).then(|| {
        tr!(
            "so it is with the first new token of each sequence, and with no other (tokens {all})",
            all
        )
    })
}

/// Takes the tensor of these heads out of a file, and notes that and why it is no step.
fn taken(
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
