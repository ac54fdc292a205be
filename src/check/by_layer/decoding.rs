//! What is wrong with a pass of a cache of which nothing was recorded but what attention got and gave? Each pass is checked by
//! itself, with the keys and values that the reference's settings and weights make of the port's earlier tokens.

use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::super::check::checked_whole;
use super::super::report::Report;
use super::super::tolerance::Tolerances;
use super::entries::{given, in_one_type};
use super::measure::{apart, tolerance_of};
use super::passes::first_of;
use super::sides::Sides;
use super::verdict::{explains, that_fits};
use base::error::{Result, shown};
use config::{Positions, Settings};
use file::{Entry, Record, open_place};
use foreign::NameMap;
use program::{Name, Role, Trace, wide};

/// So many passes are looked at: what is wrong is so from the first ones on, or where a window ends.
const MOST_PASSES: usize = 64;

/// Keys and values as a cache holds them, the last of it that a run has.
const HELD: [(Name, &[Name]); 2] = [
    (Name::KPast, &[Name::KCached, Name::KRot, Name::KClipped, Name::KNorm, Name::KHeads]),
    (Name::VPast, &[Name::VCached, Name::VRot, Name::VHeads]),
];

/// What the reference says of the passes of a cache.
pub enum Meant<'a> {
    /// A record of all tokens: its settings, and what it is given but for its input.
    Whole(&'a Record),
    /// A record of each pass.
    Passes(&'a [&'a PathBuf]),
}

/// What the passes of a cache do wrong.
#[derive(Default)]
pub struct FirstWrong {
    /// The verdict on the first that differs, by a record of its own.
    pub report: Option<(Report, Record)>,
    /// What the cache holds of earlier tokens in place of what it should, where that alone gives its numbers.
    pub held: Option<String>,
    /// What could not be checked.
    pub left: Option<String>,
}

/// The verdict on the first pass of a cache that differs, and what it is about: the record of that pass, with what the port's
/// earlier tokens make of the cache. Nothing where the passes do not hold the reference's tokens in their order, each pass those
/// behind the last.
pub fn first_wrong_pass(
    sides: &Sides,
    at: usize,
    (path, meant): (&Path, &Meant),
    tolerances: &Tolerances,
) -> Result<FirstWrong> {
    let Some(read) = sides.nodes().get(at).and_then(|node| node.reads.first().copied()) else {
        return Ok(FirstWrong::default());
    };
    let Some((items, length, output)) = meant.sizes(sides, at)? else {
        return Ok(FirstWrong::default());
    };
    // What the queries of padding give says nothing.
    let tolerances = &Tolerances { ignores_padding: true, ..tolerances.clone() };
    let mut before: Option<(usize, Trace)> = None;
    let all = meant.passes(sides);
    for pass in 0..all.min(MOST_PASSES) {
        let first = before.as_ref().map_or(0, |(count, _)| *count);
        let stated = meant.tokens(pass)?;
        let seen = |place: usize| of_pass(sides, place, (pass, items), (first, stated));
        let x = if sides.partner(read).is_some() { seen(read)? } else { meant.read(pass)? };
        let (Some(x), Some(own)) = (x, seen(at)?) else { return Ok(FirstWrong::default()) };
        let count = x.dim(1)?;
        if own.dim(1)? != count
            || first + count > length
            || !stands(sides, at, pass, [first, length])
        {
            return Ok(FirstWrong::default());
        }
        let Some((mut cut, held)) = meant.cut(pass, first, count)? else {
            return Ok(FirstWrong::default());
        };
        cut.entries.extend([Entry::of(Name::X.as_str(), x), Entry::of(output.as_str(), own)]);
        if let Some((_, trace)) = &before {
            for (name, steps) in HELD {
                let found = steps.iter().find_map(|step| trace.step(*step));
                let Some(past) = found.and_then(|step| last(&step.value, held)) else {
                    return Ok(FirstWrong::default());
                };
                cut.entries.push(Entry::of(name.as_str(), past));
            }
        }
        let cut = Record { entries: in_one_type(cut.entries)?, ..cut };
        let told = tr!("{path}, pass {pass} of its cache", path = path.display(), pass);
        let (flags, map) = (Settings::default(), NameMap::default());
        let found = match checked_whole(Path::new(&told), cut.clone(), &flags, &map, tolerances) {
            Ok(found) => found,
            Err(error) => {
                let error = shown(&error.to_string()).into_owned();
                let told = tr!("pass {pass} of its cache cannot be checked: {error}", pass, error);
                return Ok(FirstWrong { left: Some(told), ..FirstWrong::default() });
            }
        };
        if !found.report.is_same() {
            let held = match &before {
                Some((_, trace)) if !explains(&found.report) => {
                    let own = sides.nodes().get(at).map_or("", |node| node.path.as_str());
                    let mut others = held_instead(&cut, (trace, held, pass))?;
                    others.extend(held_of_others(&cut, (sides, own), pass)?);
                    that_fits(others, path, tolerances)
                }
                _ => None,
            };
            return Ok(FirstWrong { report: Some((found.report, cut)), held, left: None });
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
    Ok(FirstWrong { left: (all > MOST_PASSES).then(told), ..FirstWrong::default() })
}

/// The record of a pass with other keys or values of the tokens before it in its cache, and what is to be told of it.
type Other = (Record, String);

/// The record of a pass whose cache holds these.
fn with_held(cut: &Record, held: &[(Name, Tensor)]) -> Result<Record> {
    let mut record = cut.clone();
    for (name, cached) in held {
        record.entries.retain(|entry| entry.name != name.as_str());
        record.entries.push(Entry::of(name.as_str(), cached.clone()));
    }
    Ok(Record { entries: in_one_type(record.entries)?, ..record })
}

/// A pass whose cache holds an earlier step of the keys or values of the tokens before it in place of what it should, as keys
/// that are not rotated.
fn held_instead(
    cut: &Record,
    (trace, count, pass): (&Trace, Option<usize>, usize),
) -> Result<Vec<Other>> {
    let mut others = Vec::new();
    for (name, steps) in HELD {
        let mut found = steps.iter().filter_map(|step| trace.step(*step));
        let Some(meant) = found.next() else { continue };
        for other in found {
            let Some(cached) = last(&other.value, count) else { continue };
            let told = tr!(
                "pass {pass} of its cache reads {other} of the tokens before it, not {meant}",
                pass,
                other = other.name,
                meant = meant.name
            );
            others.push((with_held(cut, &[(name, cached)])?, told));
        }
    }
    Ok(others)
}

/// A pass whose cache holds the keys and values that another layer of the reference has of the tokens before it.
fn held_of_others(cut: &Record, (sides, own): (&Sides, &str), pass: usize) -> Result<Vec<Other>> {
    let mut others = Vec::new();
    for (stem, path) in sides.left.ranks.records.iter().filter(|(stem, _)| stem != own) {
        let file = open_place(path)?;
        let mut held = Vec::new();
        for (name, steps) in HELD {
            let meant = cut.entries.iter().find(|entry| entry.name == name.as_str());
            let (Some(meant), Some(all)) = (meant, first_of(&file, steps)?) else { continue };
            let count = meant.tensor.dim(2)?;
            if !all.dim(2).is_ok_and(|own| own >= count) {
                continue;
            }
            let cached = all.narrow(2, 0, count)?.contiguous()?;
            if cached.dims() == meant.tensor.dims() {
                held.push((name, cached));
            }
        }
        if held.len() == HELD.len() {
            let told = tr!(
                "pass {pass} of its cache reads the keys and values of {other}, another layer",
                pass,
                other = shown(stem)
            );
            others.push((with_held(cut, &held)?, told));
        }
    }
    Ok(others)
}

/// The last of the slots that a cache holds, of which the next pass may keep so many.
fn last(held: &Tensor, count: Option<usize>) -> Option<Tensor> {
    let all = held.dim(2).ok()?;
    let count = count.unwrap_or(all);
    held.narrow(2, all.checked_sub(count)?, count).ok()?.contiguous().ok()
}

impl Meant<'_> {
    /// How many items and tokens there are, and what attention gives: where the output projection is a module of its own, what
    /// stands before it.
    fn sizes(&self, sides: &Sides, at: usize) -> Result<Option<(usize, usize, Name)>> {
        match self {
            Self::Whole(record) => {
                let has_concat =
                    record.entries.iter().any(|entry| entry.name == Name::Concat.as_str());
                let output = if has_concat { Name::Concat } else { Name::Output };
                let settings = record.config.as_ref();
                let of_both = settings.and_then(|own| Some((own.batch?, own.seq_len?, output)));
                Ok(of_both)
            }
            Self::Passes(records) => {
                let (mut items, mut length, mut first) = (None, 0, None);
                for path in *records {
                    let file = open_place(path)?;
                    let stated = file.config().and_then(|own| Some((own.batch?, own.seq_len?)));
                    let Some((own, count)) = stated else { return Ok(None) };
                    if *items.get_or_insert(own) != own {
                        return Ok(None);
                    }
                    length += count;
                    first.get_or_insert((file, count));
                }
                let (Some(items), Some((file, count))) = (items, first) else { return Ok(None) };
                let rows = (0..items).flat_map(|item| (0..count).map(move |at| item * length + at));
                let Some(given) = sides.picked_left(at, &rows.collect::<Vec<_>>())? else {
                    return Ok(None);
                };
                for name in [Name::Output, Name::Concat] {
                    if let Some(own) = file.tensor(name.as_str())?
                        && own.elem_count() == given.elem_count()
                        && let own = wide(&own)?.reshape(given.shape())?
                        && apart(&own, &given)? <= tolerance_of(&own)?
                    {
                        return Ok(Some((items, length, name)));
                    }
                }
                Ok(None)
            }
        }
    }

    /// How many passes there are: those of the reference stand behind each other in one of the port, as in its own.
    fn passes(&self, sides: &Sides) -> usize {
        match self {
            Self::Whole(_) => sides.right.nodes.len(),
            Self::Passes(records) => records.len(),
        }
    }

    /// What attention reads in the record of a pass.
    fn read(&self, pass: usize) -> Result<Option<Tensor>> {
        let Self::Passes(records) = self else { return Ok(None) };
        let Some(path) = records.get(pass) else { return Ok(None) };
        open_place(path)?.tensor(Name::X.as_str())
    }

    /// How many tokens the record of a pass says that this has.
    fn tokens(&self, pass: usize) -> Result<Option<usize>> {
        let Self::Passes(records) = self else { return Ok(None) };
        let Some(path) = records.get(pass) else { return Ok(None) };
        Ok(open_place(path)?.config().and_then(|own| own.seq_len))
    }

    /// The record of a pass without what it reads, and how many slots of the cache it is given, where that is said.
    fn cut(
        &self,
        pass: usize,
        first: usize,
        count: usize,
    ) -> Result<Option<(Record, Option<usize>)>> {
        const READ: [Name; 4] = [Name::X, Name::Memory, Name::KPast, Name::VPast];
        match self {
            Self::Whole(record) => Ok(cut(record, first, count)?.map(|cut| (cut, None))),
            Self::Passes(records) => {
                let Some(path) = records.get(pass) else { return Ok(None) };
                let file = open_place(path)?;
                let of = |name: Name| file.infos().iter().find(|info| info.name == name.as_str());
                let held = of(Name::KPast).and_then(|info| info.shape.get(2).copied());
                let config = file.config().filter(|own| own.seq_len == Some(count)).cloned();
                if config.is_none() || of(Name::Memory).is_some() || held.is_some() != (first > 0) {
                    return Ok(None);
                }
                let entries = given(&file, |name| !READ.contains(&name))?;
                Ok(Some((Record { config, entries }, held)))
            }
        }
    }
}

/// What a node is in a pass of the port, as (item, token, feature): in one of its passes, or in the tokens from one on that are
/// a pass of the reference, where these stand behind each other.
fn of_pass(
    sides: &Sides,
    at: usize,
    (pass, items): (usize, usize),
    (first, count): (usize, Option<usize>),
) -> Result<Option<Tensor>> {
    let is_joined = sides.right.nodes.len() == 1 && count.is_some();
    let pass = if is_joined { 0 } else { pass };
    let place = sides.beside.get(at).and_then(|own| own.get(pass).copied().flatten());
    let node = place.and_then(|place| sides.right.nodes.get(pass)?.get(place));
    let Some(node) = node.filter(|node| items > 0 && node.rows().is_multiple_of(items)) else {
        return Ok(None);
    };
    let Some(source) = sides.right.source(pass, node) else { return Ok(None) };
    let all = source.rows(0, node.rows())?.reshape((items, node.rows() / items, node.width()))?;
    let count = count.filter(|_| is_joined);
    Ok(match count {
        Some(count) if first + count > all.dim(1)? => None,
        Some(count) => Some(all.narrow(1, first, count)?.contiguous()?),
        None => Some(all),
    })
}

/// Whether the rows of a pass stand beside the tokens of the reference from the first one on.
fn stands(sides: &Sides, at: usize, pass: usize, [first, length]: [usize; 2]) -> bool {
    if sides.right.nodes.len() == 1 {
        return sides.aligned(at).is_none();
    }
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
