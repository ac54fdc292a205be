//! Queries, keys and values that a run starts at: which tensors of a file they are, and in which order their axes stand.

use super::arranged::{Qkv, arranged};
use super::few_bits::in_few_bits;
use super::hints;
use super::matched::Match;
use super::names::{TOGETHER, gradient_of, is_called, last_segment, meanings, unknown};
use super::smoothed::with_shifts;
use base::error::{Error, Result, quoted};
use config::{QkvFormat, Setting, Settings, Start};
use file::{Entry, Record};
use program::Name;

/// The ways to read the queries, keys and values of a file, the likeliest first; none where it has no three of them.
/// `flags` say what was meant.
///
/// # Errors
/// If several tensors may be one of them, or they have other numbers of axes than such tensors have.
pub fn find_qkv(record: &Record, flags: &Settings) -> Result<Vec<Qkv>> {
    let [queries, keys, values] = match chosen(record, flags)? {
        [Some(queries), Some(keys), Some(values)] => [queries, keys, values],
        [None, None, None] => return Ok(Vec::new()),
        // What is there tells that the rest is missing.
        found => match found.iter().filter(|entry| entry.is_some()).count() {
            _ if flags.start.is_none_or(|start| start == Start::Inputs) && has_inputs(record) => {
                return Ok(Vec::new());
            }
            _ => return Err(missing(&found, &unknown(record))),
        },
    };
    let mut readings = Vec::new();
    let mut refused = None;
    for (format, start, heads) in ways(record, flags, [queries, keys, values]) {
        let one_token = one_token_each(queries, keys, format)?;
        let entries = [one_token.as_ref().unwrap_or(queries), keys, values];
        let scaled = match start {
            None | Some(Start::Heads) => in_few_bits(record, entries, format),
            Some(_) => Ok(Vec::new()),
        };
        let all = match scaled {
            Ok(none) if none.is_empty() => read(entries, format, start, heads)
                .and_then(|plain| with_shifts(record, entries, plain)),
            other => other,
        };
        match all {
            Ok(all) => readings.extend(all),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    match refused {
        Some(error) if readings.is_empty() => Err(error),
        _ => Ok(readings),
    }
}

/// The file with queries, keys and values apart that kernels take together, and their gradients: (batch, token, 3, head,
/// `head_dim`), (token, 3, head, `head_dim`), or one behind the other in the features.
///
/// # Errors
/// If candle fails.
pub fn unpacked(record: Record) -> Result<Record> {
    let entries = Vec::with_capacity(record.entries.len());
    let mut all = Record { config: record.config, entries };
    for entry in record.entries {
        let gradient = gradient_of(&entry.name);
        let name = gradient.as_deref().unwrap_or(&entry.name);
        let parts = TOGETHER.iter().find(|(names, _)| is_called(name, names));
        let axis = parts.and_then(|(_, parts)| {
            let dims = entry.tensor.dims();
            match dims.len() {
                rank @ (4 | 5) => Some(rank - 3).filter(|axis| dims[*axis] == parts.len()),
                3 => Some(2).filter(|axis| dims[*axis].is_multiple_of(parts.len())),
                _ => None,
            }
        });
        let (Some((_, parts)), Some(axis)) = (parts, axis) else {
            all.entries.push(entry);
            continue;
        };
        for (part, tensor) in parts.iter().zip(entry.tensor.chunk(parts.len(), axis)?) {
            let tensor = if tensor.rank() > 3 { tensor.squeeze(axis)? } else { tensor };
            let name = if gradient.is_some() { format!("d{part}") } else { (*part).to_owned() };
            all.entries.push(Entry {
                tensor: tensor.contiguous()?,
                axes: None,
                ..entry.clone().renamed(name)
            });
        }
    }
    Ok(all)
}

/// Whether a file has tokens that projections could read.
fn has_inputs(record: &Record) -> bool {
    record.tensor(Name::X.as_str()).is_some()
}

fn missing(found: &[Option<&Entry>; 3], unknown: &str) -> Error {
    let names = |is_there: bool| {
        let slots = ["q", "k", "v"].into_iter().zip(found);
        let names = slots.filter(|(_, entry)| entry.is_some() == is_there).map(|(name, _)| name);
        names.collect::<Vec<_>>()
    };
    let (there, lacking) = (names(true), names(false));
    let verb = if there.len() == 1 { tr!("is") } else { tr!("are") };
    let there = there.join(tr!(" and "));
    let what = if unknown.is_empty() {
        tr!("not recorded, though {there} {verb}", there, verb)
    } else {
        tr!(
            "not recorded, though {there} {verb}; no step has the name {unknown}",
            there,
            verb,
            unknown
        )
    };
    let fix = tr!("record all three: q, k and v; or x and the weights");
    Error::tensor(lacking.join(tr!(" and ")), what, fix)
}

/// The tensors that are queries, keys and values.
fn chosen<'r>(record: &'r Record, flags: &Settings) -> Result<[Option<&'r Entry>; 3]> {
    let rotated = [one(record, &[Name::QRot])?, one(record, &[Name::KRot])?];
    let values = one(record, &[Name::V, Name::VHeads])?;
    let has = |steps: &[Name]| one(record, steps).is_ok_and(|found| found.is_some());
    // Rotation that nobody speaks of has been done before. Where it is left out, it is none of what stands before it.
    let is_denied = Setting::named("rope").is_some_and(|rope| rope.is_left_out(flags))
        && has(&[Name::Q, Name::QHeads])
        && has(&[Name::K, Name::KHeads]);
    if let ([Some(queries), Some(keys)], None, false) = (rotated, flags.rope, is_denied) {
        return Ok([Some(queries), Some(keys), values]);
    }
    let or = |found: Option<&'r Entry>, others: &[Name]| match found {
        None => one(record, others),
        found => Ok(found),
    };
    let in_few_bits = |slot: usize| one(record, &Name::FEW_BITS[slot][1..2]);
    let queries = or(in_few_bits(0)?, &[Name::Q, Name::QHeads])?;
    // A kernel that decodes reads all its keys from the cache.
    let or_cache = |found: Option<&'r Entry>, cache: Name| match found {
        None if queries.is_some() => one(record, &[cache]),
        found => Ok(found),
    };
    // A cache that has scales is what was read, and what was written to it may be beside it.
    let scale = |slot: usize| {
        let is_it = |entry: &&Entry| meanings(&entry.name).contains(&Name::FEW_BITS[slot][2]);
        record.entries.iter().find(is_it)
    };
    // Scales may have the name of what they scale: keys_scales of keys.
    let called_so = |scale: &Entry| {
        let is_it = |entry: &&Entry| {
            let rest = scale.name.strip_prefix(entry.name.as_str());
            rest.is_some_and(|rest| rest.starts_with('_')) && !entry.tensor.dtype().is_float()
        };
        record.entries.iter().find(is_it)
    };
    let read = |slot: usize, own: [Name; 2], cache: Name| {
        let scaled = match (in_few_bits(slot)?, scale(slot)) {
            (None, Some(scale)) => one(record, &[cache])?.or_else(|| called_so(scale)),
            (found, _) => found,
        };
        or_cache(or(scaled, &own)?, cache)
    };
    let keys = read(1, [Name::K, Name::KHeads], Name::KPast)?;
    let values = read(2, [Name::V, Name::VHeads], Name::VPast)?;
    Ok([queries, keys, values])
}

/// The one tensor that may be one of these steps, the one of a step's very name before all others.
pub(super) fn one<'r>(record: &'r Record, steps: &[Name]) -> Result<Option<&'r Entry>> {
    let exact = |step: &Name| record.entries.iter().find(|entry| entry.name == step.as_str());
    if let Some(entry) = steps.iter().find_map(exact) {
        return Ok(Some(entry));
    }
    let may_be =
        |entry: &&Entry| meanings(&entry.name).first().is_some_and(|step| steps.contains(step));
    let found: Vec<&Entry> = record.entries.iter().filter(may_be).collect();
    match (found.as_slice(), steps.first()) {
        ([], _) => Ok(None),
        ([one], _) => Ok(Some(one)),
        (several, step) => {
            let names: Vec<&str> = several.iter().map(|entry| entry.name.as_str()).collect();
            let step = step.copied().unwrap_or(Name::Q);
            let first = quoted(names.first().copied().unwrap_or_default());
            let what = tr!("may be {names}", names = quoted(&names.join(tr!(" or "))));
            let fix = tr!(
                "say which one, for example `map={first}={step}`, or choose a layer with `prefix`",
                first,
                step
            );
            Err(Error::tensor(step, what, fix))
        }
    }
}

/// Queries (batch, head, `head_dim`) beside a cache of four axes: one token for each item, with an axis for it.
fn one_token_each(queries: &Entry, keys: &Entry, format: QkvFormat) -> Result<Option<Entry>> {
    let axis = match format {
        QkvFormat::Bhsd => 2,
        QkvFormat::Bshd => 1,
        _ => return Ok(None),
    };
    Ok(if has_one_token_each(queries, keys) {
        Some(Entry::of(queries.name.as_str(), queries.tensor.unsqueeze(axis)?))
    } else {
        None
    })
}

fn has_one_token_each(queries: &Entry, keys: &Entry) -> bool {
    let (queries, keys) = (queries.tensor.dims(), keys.tensor.dims());
    queries.len() == 3 && keys.len() == 4 && queries.first() == keys.first()
}

/// In which order the axes may stand, what the tensors are then, and how many heads there are.
type Way = (QkvFormat, Option<Start>, Option<usize>);

fn ways(record: &Record, flags: &Settings, [queries, keys, _]: [&Entry; 3]) -> Vec<Way> {
    let start = flags.start.filter(|start| *start != Start::Inputs);
    let rank = if has_one_token_each(queries, keys) { 4 } else { queries.tensor.rank() };
    let both = |first: QkvFormat, second: QkvFormat| vec![(first, start), (second, start)];
    let packed = flags.segments.is_some();
    if let Some(format) = flags.qkv_format {
        return vec![(format, start, None)];
    }
    if let Some(format) = queries.axes.as_deref().and_then(named_format) {
        return vec![(format, start, None)];
    }
    let dims = |entry: &Entry| <[usize; 3]>::try_from(entry.tensor.dims()).ok();
    if let (Some([batch, tokens, width]), Some([_, own, _]), false) =
        (dims(queries), dims(keys), packed || start == Some(Start::Heads))
    {
        let told = hints::heads(record, [batch, tokens, own], width).map(|(heads, _)| heads);
        let heads = told.filter(|_| flags.heads.is_none() && flags.head_dim.is_none());
        if told.is_some() || flags.heads.is_some() || flags.head_dim.is_some() || start.is_some() {
            return vec![(QkvFormat::Bhsd, Some(Start::Projections), heads)];
        }
    }
    let is_hook = last_segment(&queries.name).to_ascii_lowercase().starts_with("hook_");
    let ways = match rank {
        3 if packed => vec![(QkvFormat::Thd, start)],
        3 => vec![(QkvFormat::Bhsd, Some(Start::Heads)), (QkvFormat::Thd, Some(Start::Heads))],
        4 if is_hook => both(QkvFormat::Bshd, QkvFormat::Bhsd),
        4 => [QkvFormat::Bhsd, QkvFormat::Bshd, QkvFormat::Sbhd].map(|own| (own, start)).into(),
        _ => vec![(QkvFormat::Bhsd, start)],
    };
    ways.into_iter().map(|(format, start)| (format, start, None)).collect()
}

/// The order that a file names.
fn named_format(axes: &[String]) -> Option<QkvFormat> {
    let axes: Vec<&str> = axes.iter().map(String::as_str).collect();
    match axes.as_slice() {
        ["batch", "head", _, "head_dim"] => Some(QkvFormat::Bhsd),
        ["batch", _, "head", "head_dim"] => Some(QkvFormat::Bshd),
        [_, "batch", "head", "head_dim"] => Some(QkvFormat::Sbhd),
        _ => None,
    }
}

fn read(
    entries: [&Entry; 3],
    format: QkvFormat,
    start: Option<Start>,
    heads: Option<usize>,
) -> Result<Qkv> {
    let mut start = start;
    let (mut tensors, mut matches) = (Vec::new(), Vec::new());
    for (slot, entry) in entries.into_iter().enumerate() {
        let (found, tensor) = arranged(&quoted(&entry.name), &entry.tensor, format, start)?;
        start = Some(found);
        let step = found.given().get(slot).copied().unwrap_or(Name::Q);
        let taken = Match::as_it_is(step.as_str(), &entry.name);
        let told = match (entry.tensor.rank(), format) {
            (4, QkvFormat::Bshd) => tr!("axes (batch, token, head, head_dim)"),
            (4, QkvFormat::Sbhd) => tr!("axes (token, batch, head, head_dim)"),
            (3, QkvFormat::Sbhd) if found == Start::Projections => {
                tr!("axes (token, batch, model)")
            }
            (3, QkvFormat::Bhsd) if found == Start::Heads => tr!("axes (head, token, head_dim)"),
            (3, _) if found == Start::Heads => tr!("axes (token, head, head_dim)"),
            (2, _) => tr!("one head of one item"),
            _ => "",
        };
        matches.push(if told.is_empty() { taken } else { taken.read(told) });
        tensors.push((step, tensor));
    }
    Ok(Qkv { tensors, matches, ..Qkv::of(format, start.unwrap_or_default(), heads) })
}
