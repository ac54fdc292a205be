//! Does X have its items first, or its tokens?

use candle_core::Tensor;

use super::reading::{Reading, of_cells};
use base::error::Result;
use config::Settings;
use file::{Entry, Record};
use foreign::{Match, meanings};
use program::Name;

/// Readings, and the same with X as (`seq_len`, batch, `d_in`) where nothing says that it is not. What attention does nothing
/// to comes last.
pub fn in_each_order(mut all: Vec<Reading>, settings: &Settings) -> Result<Vec<Reading>> {
    let Some(plain) = all.first_mut() else { return Ok(all) };
    let (record, x) = (&plain.record, plain.sources.tensor(Name::X));
    let says_so = settings.seq_len.is_some()
        || settings.batch.is_some()
        || settings.past.is_some()
        || settings.lengths.as_ref().is_some_and(|lengths| is_long(x, 0, lengths.len()))
        || is_of_one_token(record, x)
        || [Name::Memory, Name::KPast].iter().any(|name| plain.sources.has(*name));
    let may_turn = says_so || !is_long(x, 0, 1);
    let is_trivial = is_long(x, 1, 1) && may_turn && !says_so;
    if plain.sources.tensor(Name::Mask).is_some() {
        let how = tr!("true means blocked; given as attn_mask, it means attend");
        plain.matches.push(Match::as_it_is("mask", "mask").read(how));
    }
    let mut turned = Vec::new();
    // One item's tokens may be items of one token, tokens-first.
    let is_one_item = !says_so && !may_turn && !is_long(x, 1, 1);
    for reading in all.iter().filter(|_| may_turn || is_one_item) {
        let Some((sources, seen)) = reading.sources.with_tokens_first()? else { continue };
        let is_trivial = is_one_item;
        let mut reading = Reading { sources, tokens_first: true, is_trivial, ..reading.clone() };
        reading.matches.push(seen);
        turned.push(reading);
    }
    if let Some(plain) = all.first_mut() {
        plain.is_trivial = is_trivial && !turned.is_empty();
    }
    all.extend(turned);
    all.sort_by_key(|reading| reading.is_trivial);
    Ok(all)
}

/// Whether recorded scores or weights show that X has one token for each item.
fn is_of_one_token(record: &Record, x: Option<&Tensor>) -> bool {
    let Some([1, tokens, _] | [tokens, 1, _]) = x.map(Tensor::dims) else { return false };
    let is_square = |dims: &[usize]| dims.iter().filter(|size| *size == tokens).count() >= 2;
    let is_split = |entry: &Entry| {
        let (dims, meanings) = (entry.tensor.dims(), meanings(&entry.name));
        // Heads and items as two axes or as one, which is longer than that of the items, and then the token.
        let has_one_token = match dims {
            [_, _, 1, _] => true,
            [both, 1, _] => both > tokens,
            _ => false,
        };
        has_one_token && *tokens > 1 && meanings.iter().any(|name| name.row().is_of_heads())
    };
    of_cells(record).any(|entry| !is_square(entry.tensor.dims()))
        || record.entries.iter().any(is_split)
}

/// Whether a tensor is there, and that axis of it has so many places.
fn is_long(tensor: Option<&Tensor>, axis: usize, length: usize) -> bool {
    tensor.is_some_and(|tensor| tensor.dims().get(axis) == Some(&length))
}
