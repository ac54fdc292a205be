//! Do keys and values stand in the pages that they were written to?

use candle_core::Tensor;

use super::candidate::ranges;
use super::finding::Contradiction;
use super::written::{Apart, taken};
use base::error::{Result, quoted};
use file::{Entry, Record};
use foreign::{Qkv, Unmatched, numbers};
use program::{Name, spans};

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
    for ([heads, own, _], (_, scale_pages)) in Name::PAGES.into_iter().zip(Name::SCALE_PAGES) {
        let Some((_, pages)) = given.tensors.iter().find(|(name, _)| *name == own) else {
            continue;
        };
        let why = tr!("it was written to the pages, and is compared with these alone");
        let Some(entry) = taken(record, heads, why, &mut unmatched) else { continue };
        // What was written in few bits is another number by its rounding.
        let scale = given.tensors.iter().find(|(name, _)| *name == scale_pages);
        if let Some((_, scale)) = scale {
            found.extend(scaled_apart((pages, scale), &entry, slots.unwrap_or_default(), own)?);
            continue;
        }
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

/// What was written in few bits to pages whose slots have scales, where it stands for something else.
fn scaled_apart(
    (pages, scale): (&Tensor, &Tensor),
    entry: &Entry,
    slots: &[Option<usize>],
    own: Name,
) -> Result<Option<Contradiction>> {
    let (_, heads, count, features) = pages.dims4()?;
    let tokens = slots.len();
    let (codes, scales) = (numbers(pages)?, numbers(&scale.broadcast_as(pages.shape())?)?);
    let new = numbers(&entry.tensor)?;
    if new.len() != tokens * heads * features {
        return Ok(None);
    }
    let written: Vec<(usize, usize)> = slots
        .iter()
        .enumerate()
        .filter_map(|(token, slot)| Some((token, slot.filter(|slot| *slot < count)?)))
        .collect();
    // As (head, token, feature).
    let cells = || {
        let pairs = (0..heads).flat_map(|head| written.iter().map(move |own| (head, *own)));
        pairs.flat_map(move |(head, own)| (0..features).map(move |feature| (head, own, feature)))
    };
    let of = |all: &[f64]| -> Vec<f64> {
        cells()
            .map(|(head, (_, slot), feature)| all[(head * count + slot) * features + feature])
            .collect()
    };
    let (codes, scales) = (of(&codes), of(&scales));
    let meant: Vec<f64> = cells()
        .map(|(head, (token, _), feature)| new[(token * heads + head) * features + feature])
        .collect();
    let stood: Vec<f64> = codes.iter().zip(&scales).map(|(code, scale)| code * scale).collect();
    let dims = [1, heads, written.len(), features];
    let apart = Apart { dims: &dims, codes: &codes, scales: &scales, stood: &stood, meant: &meant };
    let Some(furthest) = apart.furthest() else { return Ok(None) };
    let (pair, summary) = apart.told(furthest, &(quoted(&entry.name), own.to_string()));
    Ok(Some(Contradiction::told(own.as_str(), own, pair, summary)))
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
