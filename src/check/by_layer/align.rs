//! Which token of the port is which of the reference? Where the rows do not stand in the same places, the ids of the tokens,
//! the masks of padding and the positions say it.

use std::collections::HashSet;

use super::measure::Beside;
use base::error::Result;
use file::Bundle;

/// Which rows of tokens stand beside each other.
#[derive(Debug, Default)]
pub struct Alignment {
    /// Of the reference: the rows of tokens that are no padding.
    found: Option<Vec<Beside>>,
    /// How many rows the reference has, and each pass of the port.
    counts: (usize, Vec<usize>),
    /// How many items the reference has, and the port, where that is said; documents of packed ones count as items.
    items: (usize, usize),
    /// What was aligned, in words.
    pub told: Option<String>,
    /// What is to be said where the tokens are not the same.
    pub warning: Option<String>,
    /// How many tokens are padding by the reference's mask alone, where the port states none.
    pub maskless: usize,
    /// Whether the port has the items one behind the other, as packed documents.
    pub is_packed: bool,
}

impl Alignment {
    /// Whether both sides say which tokens they were called with, and these are the same.
    pub fn has_tokens(&self) -> bool {
        self.counts.0 > 0 && self.warning.is_none()
    }

    /// Whether the port has items that the reference lacks.
    pub fn has_more_items(&self) -> bool {
        self.items.1 > self.items.0
    }

    /// The place in its item of a row of the port, over all passes.
    pub fn place(&self, pass: usize, row: usize) -> usize {
        let length = |count: &usize| count / self.items.1.max(1);
        let before: usize = self.counts.1.iter().take(pass).map(length).sum();
        let own = self.counts.1.get(pass).map_or(0, length);
        before + if own > 0 { row % own } else { row }
    }

    /// The rows of a tensor of so many rows beside those of the port's passes; nothing where nothing says which is which.
    pub fn rows(&self, left: usize, right: &[Option<usize>]) -> Option<Vec<Beside>> {
        // Rows of tokens, or of positions alone, which all items share.
        let items = |rows: usize, (tokens, items): (usize, usize)| {
            let is_it = |items: &usize| rows * items == tokens;
            [1, items].into_iter().find(is_it).filter(|_| rows > 0)
        };
        let of_passes = right.iter().zip(&self.counts.1);
        let of_passes: Option<Vec<usize>> = of_passes
            .map(|(own, count)| own.map_or(Some(1), |own| items(own, (*count, self.items.1))))
            .collect();
        if let (Some(found), Some(own), Some(others)) =
            (&self.found, items(left, (self.counts.0, self.items.0)), of_passes)
        {
            if own == 1 && others.iter().all(|items| *items == 1) {
                return Some(found.clone());
            }
            let each = found.iter().flat_map(|own| {
                (0..own.count).map(|at| Beside {
                    left: (own.left + at) % left,
                    right: (own.right + at) % right.get(own.pass).copied().flatten().unwrap_or(1),
                    count: 1,
                    ..*own
                })
            });
            let mut known = HashSet::new();
            return Some(each.filter(|own| known.insert(*own)).collect());
        }
        let pass = right.iter().position(Option::is_some)?;
        let other = right.get(pass).copied().flatten().filter(|_| right.len() == 1)?;
        // What is the same for all items, as positions are, may be there once.
        let (fewer, more) = (left.min(other), left.max(other));
        let is_whole = fewer > 0 && more.is_multiple_of(fewer);
        let is_it = left == other || is_whole && more / fewer == self.items.0;
        let rows = |at: usize, all: usize| if all == more { at * fewer } else { 0 };
        let each = (0..more / fewer.max(1)).map(|at| Beside {
            left: rows(at, left),
            pass,
            right: rows(at, other),
            count: fewer,
        });
        is_it.then(|| each.collect())
    }
}

/// The tokens of a pass: their ids, and which are no padding.
#[derive(Default)]
struct Tokens {
    items: usize,
    length: usize,
    ids: Vec<i64>,
    seen: Vec<bool>,
    /// Whether a mask says which are no padding.
    is_stated: bool,
}

/// What the ids of tokens are called, and the masks of their padding.
type Called = (&'static [&'static str], &'static [&'static str]);

const OF_INPUT: Called = (
    &["input_ids", "tokens", "ids", "encoder.embed_tokens.in", "model.encoder.embed_tokens.in"],
    &["attention_mask", "padding_mask"],
);
const OF_DECODER: Called = (
    &["decoder_input_ids", "decoder.embed_tokens.in", "model.decoder.embed_tokens.in"],
    &["decoder_attention_mask"],
);

/// Finds which tokens of the port are which of the reference: those of the input, and where a decoder has others, those.
pub fn align(left: &[Bundle], right: &[Bundle]) -> Result<(Alignment, Option<Alignment>)> {
    // OPT and others call all of their layers a decoder, and have no encoder.
    let is_of = |file: &Bundle, part: &str| {
        file.infos().iter().any(|info| info.name.split(['.', '/']).any(|own| own == part))
    };
    let has_decoder =
        left.first().is_some_and(|file| is_of(file, "encoder") && is_of(file, "decoder"));
    let input = align_by(left, right, OF_INPUT, has_decoder)?;
    let decoder = has_decoder.then(|| align_by(left, right, OF_DECODER, true)).transpose()?;
    Ok((input, decoder.filter(|own| own.counts.0 > 0)))
}

/// The same by tokens that are called so; of which some passes `may_lack` all.
fn align_by(
    left: &[Bundle],
    right: &[Bundle],
    called: Called,
    may_lack: bool,
) -> Result<Alignment> {
    let of = |passes: &[Bundle]| {
        passes.iter().map(|file| tokens(file, called)).collect::<Result<Vec<_>>>()
    };
    let (left, mut right) = (of(left)?, of(right)?);
    if let Some(Some(own)) = left.first().filter(|_| may_lack && right.iter().any(Option::is_some))
    {
        let none = || Tokens { items: own.items, ..Tokens::default() };
        for pass in &mut right {
            pass.get_or_insert_with(none);
        }
    }
    let (Some(Some(own)), Some(mut others)) =
        (left.first(), right.into_iter().collect::<Option<Vec<_>>>())
    else {
        return Ok(Alignment::default());
    };
    let maskless = without_mask(own, &mut others);
    let counts = (own.ids.len(), others.iter().map(|other| other.ids.len()).collect());
    let items = (own.items, own.items);
    if let [only] = others.as_slice()
        && (only.items, only.length) == (own.items, own.length)
        && own.seen.iter().chain(&only.seen).all(|seen| *seen)
    {
        let first = own.ids.iter().zip(&only.ids).position(|(left, right)| left != right);
        let warning = first.map(|at| {
            let (item, token) = (at / own.length.max(1), at % own.length.max(1));
            tr!("the two were not called with the same tokens: they differ first in item {item}, at token {token}", item, token)
        });
        return Ok(Alignment { counts, items, warning, ..Alignment::default() });
    }
    Ok(Alignment { maskless, ..in_order(own, &others, counts) })
}

/// Takes as padding of passes that state no mask what stands around the tokens of the reference, where these stand one behind
/// the other in the port: what is padding there is so whether the port has a mask or not. How many tokens that are.
fn without_mask(own: &Tokens, others: &mut [Tokens]) -> usize {
    if own.seen.iter().all(|seen| *seen) {
        return 0;
    }
    let mut hidden = Vec::new();
    for (item, (ids, seen)) in own.in_items().enumerate() {
        let real = ids.iter().zip(seen).filter(|(_, seen)| **seen);
        let real: Vec<i64> = real.map(|(id, _)| *id).collect();
        let start = seen.iter().position(|seen| *seen).unwrap_or(0);
        let mut places: Vec<(usize, usize, i64)> = Vec::new();
        for (pass, other) in others.iter().enumerate() {
            if other.items != own.items {
                return 0;
            }
            let first = item * other.length;
            let all =
                (first..first + other.length).filter_map(|at| Some((at, *other.ids.get(at)?)));
            places.extend(all.map(|(at, id)| (pass, at, id)));
        }
        let Some(more) = places.len().checked_sub(real.len()) else { return 0 };
        let is_there = |first: &usize| {
            let rest = places.iter().skip(*first).map(|(.., id)| id);
            *first <= more && rest.take(real.len()).eq(real.iter())
        };
        let Some(first) = [start, more, 0].into_iter().find(is_there) else { return 0 };
        let around = |(at, own): (usize, (usize, usize, i64))| {
            (!(first..first + real.len()).contains(&at)).then_some((own.0, own.1))
        };
        hidden.extend(places.into_iter().enumerate().filter_map(around));
    }
    let mut count = 0;
    for (pass, at) in hidden {
        let other = others.get_mut(pass).filter(|other| !other.is_stated);
        if let Some(seen) = other.and_then(|other| other.seen.get_mut(at)) {
            *seen = false;
            count += 1;
        }
    }
    count
}

impl Tokens {
    /// The ids of each item, and which are no padding.
    fn in_items(&self) -> impl Iterator<Item = (&[i64], &[bool])> {
        let length = self.length.max(1);
        self.ids.chunks(length).zip(self.seen.chunks(length))
    }
}

/// The tokens of each item of the port that are no padding, in order: their passes, and their places there.
fn streams(own: &Tokens, others: &[Tokens]) -> Vec<Vec<(usize, usize)>> {
    let items = others.iter().map(|other| other.items).max().unwrap_or(own.items);
    let mut streams: Vec<Vec<(usize, usize)>> = vec![Vec::new(); items];
    for (pass, other) in others.iter().enumerate() {
        for at in (0..other.ids.len()).filter(|at| other.seen.get(*at) == Some(&true)) {
            if let Some(stream) = streams.get_mut(at / other.length.max(1)) {
                stream.push((pass, at));
            }
        }
    }
    streams
}

/// Which item of the port each of the reference is, by all of its tokens, where one side has items that the other lacks.
fn by_tokens(
    own: &Tokens,
    others: &[Tokens],
    streams: &[Vec<(usize, usize)>],
) -> Option<Vec<Option<usize>>> {
    let id = |(pass, at): &(usize, usize)| others.get(*pass)?.ids.get(*at).copied();
    let mut open: Vec<Option<Vec<i64>>> =
        streams.iter().map(|stream| stream.iter().map(id).collect()).collect();
    let mut found = Vec::new();
    for (ids, seen) in own.in_items() {
        let real = ids.iter().zip(seen).filter(|(_, seen)| **seen);
        let real: Vec<i64> = real.map(|(id, _)| *id).collect();
        let at = open.iter().position(|own| own.as_ref() == Some(&real));
        if let Some(taken) = at.and_then(|at| open.get_mut(at)) {
            *taken = None;
        }
        found.push(at);
    }
    let fewer = own.items.min(streams.len());
    (own.items != streams.len() && found.iter().flatten().count() == fewer).then_some(found)
}

/// The tokens of each item that are no padding, in order, beside those of the port: all in one pass, or in one after the other,
/// as the steps of a cache are; packed documents are items one behind the other, and a side may have some of the items alone.
fn in_order(own: &Tokens, others: &[Tokens], counts: (usize, Vec<usize>)) -> Alignment {
    let mut found: Vec<Beside> = Vec::new();
    let mut add = |row: usize, pass: usize, place: usize| match found.last_mut() {
        Some(last)
            if last.pass == pass
                && last.left + last.count == row
                && last.right + last.count == place =>
        {
            last.count += 1;
        }
        _ => found.push(Beside { left: row, pass, right: place, count: 1 }),
    };
    let is_packed = others.iter().all(|other| other.items == 1) && own.items > 1;
    let streams = streams(own, others);
    let some = by_tokens(own, others, &streams);
    let (mut places, mut wrong, mut missing) = (vec![0; streams.len()], 0, 0);
    for row in (0..own.ids.len()).filter(|row| own.seen.get(*row) == Some(&true)) {
        let item = row / own.length.max(1);
        let item = match &some {
            Some(some) => some.get(item).copied().flatten(),
            None => Some(if is_packed { 0 } else { item }),
        };
        let Some((stream, next)) =
            item.and_then(|item| streams.get(item).zip(places.get_mut(item)))
        else {
            continue;
        };
        let Some((pass, place)) = stream.get(*next).copied() else {
            missing += 1;
            continue;
        };
        *next += 1;
        let id = others.get(pass).and_then(|other| other.ids.get(place));
        if id == own.ids.get(row) { add(row, pass, place) } else { wrong += 1 }
    }
    let aligned: usize = found.iter().map(|own| own.count).sum();
    let how = match others.len() {
        1 if others.iter().all(|other| other.seen == own.seen) => {
            tr!("rows of padding are left out").to_owned()
        }
        1 if some.is_some() => tr!("items that both sides have").to_owned(),
        1 if is_packed => tr!("packed documents beside items").to_owned(),
        1 => tr!("padding stands elsewhere").to_owned(),
        passes => tr!("{passes} passes beside one", passes),
    };
    let total = own.seen.iter().filter(|seen| **seen).count();
    let told = Some(tr!(
        "tokens aligned by their ids, {how}: {aligned} of {total} tokens are compared",
        how,
        aligned,
        total
    ));
    let warning = (wrong > 0).then(|| tr!("{wrong} tokens of the two are not the same", wrong));
    let warning = warning.or((missing > 0 && aligned == 0)
        .then(|| tr!("no token of the two could be aligned").to_owned()));
    let items = (own.items, if some.is_some() { streams.len() } else { own.items });
    Alignment { found: Some(found), counts, items, told, warning, maskless: 0, is_packed }
}

/// The tokens that a pass was called with, where that was recorded.
fn tokens(file: &Bundle, (ids, masks): Called) -> Result<Option<Tokens>> {
    let at = |names: &[&str]| {
        let place = |name: &&str| file.infos().iter().position(|info| info.name == **name);
        names.iter().find_map(place)
    };
    let Some((place, info)) = at(ids).and_then(|at| Some((at, file.infos().get(at)?))) else {
        return Ok(None);
    };
    let (items, length) = match *info.shape.as_slice() {
        [length] => (1, length),
        [items, length] => (items, length),
        _ => return Ok(None),
    };
    let numbers = |at: usize, count: usize| -> Result<Vec<i64>> {
        Ok(file.some_of(at, 0, count)?.to_dtype(candle_core::DType::I64)?.to_vec1()?)
    };
    let ids = numbers(place, items * length)?;
    let mask = at(masks).and_then(|at| Some((at, file.infos().get(at)?)));
    let mask = mask.filter(|(_, info)| info.shape.len() == 2 && info.shape.first() == Some(&items));
    let is_stated = mask.is_some();
    let seen = match mask {
        // That of a step with a cache covers the keys before it, too.
        Some((at, info)) => {
            let keys = info.shape.last().copied().unwrap_or(length);
            let all = numbers(at, items * keys)?;
            let first = keys.saturating_sub(length);
            let rows = all
                .chunks(keys.max(1))
                .flat_map(|row| row.iter().skip(first).map(|seen| *seen != 0));
            rows.collect()
        }
        None => vec![true; ids.len()],
    };
    Ok(Some(Tokens { items, length, ids, seen, is_stated }))
}
