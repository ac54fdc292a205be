//! What is wrong with a pass of a cache of which nothing was recorded but what attention got and gave? Each pass is checked by
//! itself, with the keys and values that the reference's settings and weights make of the port's earlier tokens.

use std::path::Path;

use candle_core::Tensor;

use super::super::check::checked_whole;
use super::super::report::Report;
use super::super::tolerance::Tolerances;
use super::entries::in_one_type;
use super::sides::Sides;
use base::error::{Result, shown};
use config::{Positions, Settings};
use file::{Entry, Record};
use foreign::NameMap;
use program::{Name, Role, Trace};

/// So many passes are looked at: what is wrong is so from the first ones on, or where a window ends.
const MOST_PASSES: usize = 64;

/// Keys and values as a cache holds them, the last of it that a run has.
const HELD: [(Name, &[Name]); 2] = [
    (Name::KPast, &[Name::KCached, Name::KRot, Name::KClipped, Name::KNorm, Name::KHeads]),
    (Name::VPast, &[Name::VCached, Name::VRot, Name::VHeads]),
];

/// The verdict on the first pass of a cache that differs, by a record of the whole: its settings, and what it is given but for
/// its input; and which passes could not be checked, or were not. Nothing where the passes do not hold the reference's tokens
/// in their order, each pass those behind the last.
pub fn first_wrong_pass(
    sides: &Sides,
    at: usize,
    (path, record): (&Path, &Record),
    tolerances: &Tolerances,
) -> Result<(Option<Report>, Option<String>)> {
    const NONE: (Option<Report>, Option<String>) = (None, None);
    let Some(settings) = &record.config else { return Ok(NONE) };
    let Some(read) = sides.nodes().get(at).and_then(|node| node.reads.first().copied()) else {
        return Ok(NONE);
    };
    let (Some(items), Some(length)) = (settings.batch, settings.seq_len) else { return Ok(NONE) };
    // Where the output projection is a module of its own, attention gives what stands before it.
    let has_concat = record.entries.iter().any(|entry| entry.name == Name::Concat.as_str());
    let output = if has_concat { Name::Concat } else { Name::Output };
    // What the queries of padding give says nothing.
    let tolerances = &Tolerances { ignores_padding: true, ..tolerances.clone() };
    let mut before: Option<(usize, Trace)> = None;
    let all = sides.right.nodes.len();
    for pass in 0..all.min(MOST_PASSES) {
        let first = before.as_ref().map_or(0, |(count, _)| *count);
        let (Some(x), Some(own)) =
            (of_pass(sides, read, (pass, items))?, of_pass(sides, at, (pass, items))?)
        else {
            return Ok(NONE);
        };
        let count = x.dim(1)?;
        if own.dim(1)? != count
            || first + count > length
            || !stands(sides, at, pass, [first, length])
        {
            return Ok(NONE);
        }
        let Some(mut cut) = cut(record, first, count)? else { return Ok(NONE) };
        cut.entries.extend([Entry::of(Name::X.as_str(), x), Entry::of(output.as_str(), own)]);
        if let Some((_, trace)) = &before {
            for (name, held) in HELD {
                let Some(held) = held.iter().find_map(|held| trace.step(*held)) else {
                    return Ok(NONE);
                };
                cut.entries.push(Entry::of(name.as_str(), held.value.clone()));
            }
        }
        let cut = Record { entries: in_one_type(cut.entries)?, ..cut };
        let told = tr!("{path}, pass {pass} of its cache", path = path.display(), pass);
        let (flags, map) = (Settings::default(), NameMap::default());
        let found = match checked_whole(Path::new(&told), cut, &flags, &map, tolerances) {
            Ok(found) => found,
            Err(error) => {
                let error = shown(&error.to_string()).into_owned();
                let told = tr!("pass {pass} of its cache cannot be checked: {error}", pass, error);
                return Ok((None, Some(told)));
            }
        };
        if !found.report.is_same() {
            return Ok((Some(found.report), None));
        }
        before = Some((first + count, found.trace));
    }
    let told = || {
        tr!(
            "of {all} passes of its cache the first {MOST_PASSES} are right, and the others were not checked",
            all,
            MOST_PASSES
        )
    };
    Ok((None, (all > MOST_PASSES).then(told)))
}

/// What a node is in a pass of the port, as (item, token, feature).
fn of_pass(sides: &Sides, at: usize, (pass, items): (usize, usize)) -> Result<Option<Tensor>> {
    let place = sides.beside.get(at).and_then(|own| own.get(pass).copied().flatten());
    let node = place.and_then(|place| sides.right.nodes.get(pass)?.get(place));
    let Some(node) = node.filter(|node| items > 0 && node.rows().is_multiple_of(items)) else {
        return Ok(None);
    };
    let Some(source) = sides.right.source(pass, node) else { return Ok(None) };
    let all = source.rows(0, node.rows())?;
    Ok(Some(all.reshape((items, node.rows() / items, node.width()))?))
}

/// Whether the rows of a pass stand beside the tokens of the reference from the first one on.
fn stands(sides: &Sides, at: usize, pass: usize, [first, length]: [usize; 2]) -> bool {
    let items = sides.nodes().get(at).map_or(0, |node| node.rows() / length.max(1));
    let own = sides.passes(at, length).get(pass).copied().unwrap_or(0);
    let mut rows = sides.rows(at).into_iter().flatten().filter(|own| own.pass == pass);
    items > 0
        && own > 0
        && rows.all(|rows| {
            (0..rows.count).all(|at| {
                let (left, right) = (rows.left + at, rows.right + at);
                (left / length, left % length) == (right / own, first + right % own)
            })
        })
}

/// What a record of all tokens says of so many of them, which see those before.
fn cut(record: &Record, first: usize, count: usize) -> Result<Option<Record>> {
    let Some(settings) = &record.config else { return Ok(None) };
    let (end, length) = (first + count, settings.seq_len.unwrap_or(0));
    let has = |name: Name| record.entries.iter().any(|entry| entry.name == name.as_str());
    if settings.segments.is_some() || has(Name::Memory) || has(Name::KPast) {
        return Ok(None);
    }
    let mut entries = Vec::new();
    for entry in &record.entries {
        let role = Name::in_files(&entry.name).map(Name::role);
        if role == Some(Role::Setting) && entry.tensor.rank() > 1 {
            let [.., queries, keys] = *entry.tensor.dims() else { return Ok(None) };
            if keys != length || ![1, length].contains(&queries) {
                return Ok(None);
            }
            let axis = entry.tensor.rank() - 1;
            let mut tensor = entry.tensor.narrow(axis, 0, end)?;
            if queries == length {
                tensor = tensor.narrow(axis - 1, first, count)?;
            }
            entries.push(Entry::of(&entry.name, tensor.contiguous()?));
        } else if matches!(role, Some(Role::Setting | Role::Parameter)) {
            entries.push(entry.clone());
        }
    }
    let of_tokens = |plane: &Vec<Vec<usize>>| -> Vec<Vec<usize>> {
        plane.iter().map(|own| own.iter().skip(first).take(count).copied().collect()).collect()
    };
    let positions = settings.positions.as_ref();
    let is_counted = settings.rope.is_some() && positions.is_none();
    let offset = settings.rope_offset.unwrap_or(0);
    let key_mask = settings.key_mask.as_ref();
    let config = Settings {
        seq_len: Some(count),
        positions: positions.map(|own| Positions::new(own.0.iter().map(of_tokens).collect())),
        rope_offset: if is_counted { Some(offset + first) } else { settings.rope_offset },
        key_mask: key_mask
            .map(|own| own.iter().map(|item| item.chars().take(end).collect()).collect()),
        ..settings.clone()
    };
    Ok(Some(Record { config: Some(config), entries }))
}
