//! What is wrong with the attention of a port? `check`'s verdict on what it recorded, with the reference's settings, weights and
//! masks.

use std::path::{Path, PathBuf};

use super::super::check::check;
use super::super::report::Report;
use super::super::thresholds::ALLOWED;
use super::super::tolerance::Tolerances;
use super::cut::with_weights_of_ranks;
use super::decoding::{FirstWrong, Meant, first_wrong_pass};
use super::entries::{given, in_one_type, projections, seen_outside, take_from};
use super::facts::{masks, of_heads, other_memory, other_parameters};
use super::join::Joined;
use super::measure::Measure;
use super::other_layers::with_settings_of_others;
use super::parameters::differing;
use super::positions::{counting_padding, in_its_order, packed, with_other_positions};
use super::sides::Sides;
use super::slots::{caches, written_before};
use super::verdict::{explains, of_a_step, that_fits, verdict};
use base::error::{Result, shown};
use config::Settings;
use file::{Bundle, Entry, Record, open_place};
use foreign::{ModelPart, NameMap, Node};
use program::{Name, Role};

/// What masks are called in records.
const MASK: &str = "attn_mask";

/// What is off by so many times its tolerance is so for a reason that records may show.
const MUCH: f64 = 4.0;

/// The verdict on the port's attention at a node, and which of its parameters are not the reference's. Nothing where the
/// reference has no record of it that states its run.
pub fn checked(
    sides: &Sides,
    (at, found): (usize, Measure),
    tolerances: &Tolerances,
) -> Result<Option<(Option<Report>, Vec<String>)>> {
    let (Some(node), Some((_, partner))) = (sides.nodes().get(at), sides.partner(at)) else {
        return Ok(None);
    };
    // Records of more items than the reference has are not beside its own.
    let has_more = sides.alignment.has_more_items();
    let own = if has_more { Vec::new() } else { sides.right.records(&partner.path) };
    let by_itself = || by_itself(sides, (at, [node, partner]), &own, found, tolerances);
    let meant = sides.left.records(&node.path);
    let [meant] = meant[..] else {
        let passes = pass_by_pass(sides, (at, &node.path), [&meant, &own], found, tolerances)?;
        return passes.map_or_else(by_itself, |found| Ok(Some(found)));
    };
    let reference = open_place(meant)?;
    let Some(mut settings) = reference.config().cloned() else {
        return by_itself();
    };
    let mut entries = given(&reference, |name| name != Name::X)?;
    let path = own.first().map_or(Path::new(&partner.path), |path| path.as_path());
    let (port, mut facts) = of_ranks(sides, &reference, (path, &own))?;
    let mut kept = None;
    // What the reference was given of its tokens stands in its own order.
    let is_of_tokens = |entry: &Entry| {
        let role = Name::in_files(&entry.name).map(Name::role);
        role == Some(Role::Setting) && entry.tensor.rank() > 1
    };
    if let Some(moved) = port.as_ref().and_then(|port| in_its_order(sides, at, &settings, port)) {
        settings = moved;
        entries.retain(|entry| !is_of_tokens(entry));
    } else if let Some((moved, rows)) =
        packed(sides, at, &settings).filter(|_| own.is_empty() || sides.alignment.is_packed)
    {
        // Biases of pairs of tokens are not those of packed ones.
        let is_mask = |entry: &Entry| entry.name == MASK;
        if entries.iter().all(|entry| is_mask(entry) || !is_of_tokens(entry)) {
            entries.retain(|entry| !is_of_tokens(entry));
            (settings, kept) = (moved, Some(rows));
        }
    }
    // The records of a cache's steps are of some tokens each.
    if let Some(port) = port.filter(|_| sides.right.ranks.passes.len() == 1) {
        facts.extend(other_parameters(&reference, &port, sides.right.ranks.count)?);
        facts.extend(other_memory(sides, &reference, &port)?);
        take_from(&port, &reference, &[Name::X, Name::Memory], &mut entries)?;
    }
    for entry in seen_outside(sides, at, &reference, kept.as_deref())? {
        if !entries.iter().any(|own| own.name == entry.name) {
            entries.push(entry);
        }
    }
    if kept.is_none() && !entries.iter().any(|entry| entry.name == Name::X.as_str()) {
        entries.extend(given(&reference, |name| name == Name::X)?);
    }
    let entries = in_one_type(entries)?;
    let record = Record { config: Some(settings), entries };
    let is_cached = sides.right.ranks.passes.len() > 1;
    let of_pass = || first_wrong_pass(sides, at, (path, &Meant::Whole(&record)), tolerances);
    match verdict(path, &record, tolerances) {
        Ok(report) if report.is_same() => {
            // It may be right for a mask that is not the reference's.
            if found.error > MUCH * found.tolerance {
                facts.extend(masks(sides, at, &[meant], &own)?);
            }
            Ok(Some((Some(report), facts)))
        }
        Ok(report) => {
            let alone = Some(&reference).filter(|_| kept.is_none() && own.is_empty());
            let parts = (alone, &record);
            let report = by_parts(sides, (at, partner, path), parts, report, tolerances)?;
            let other = run_otherwise(sides, (at, &node.path), (path, &record), tolerances)?;
            let mut is_explained = other.is_some();
            facts.extend(other);
            if facts.is_empty() && !explains(&report) {
                facts.extend(shown_by_records(sides, at, &[meant], &own)?);
            }
            if facts.is_empty() && !explains(&report) && is_cached {
                let FirstWrong { report, held, left } = of_pass()?;
                let of_pass = report.map(|(report, _)| report).filter(explains);
                let of_step = of_a_step(&own, tolerances).or(of_pass);
                if of_step.is_some() {
                    return Ok(Some((of_step, facts)));
                }
                is_explained |= held.is_some();
                facts.extend(held.or(left));
            }
            Ok(Some((Some(report).filter(|_| !is_explained), facts)))
        }
        // Of passes that the reference has in one, each says itself what it got.
        Err(_) if is_cached && !own.is_empty() => by_itself(),
        Err(_) if is_cached => match of_pass()? {
            FirstWrong { report: None, left: None, .. } => by_itself(),
            FirstWrong { report, held, left } => {
                facts.extend(held.or(left));
                Ok(Some((report.map(|(report, _)| report), facts)))
            }
        },
        // What the port has of it does not fit the reference's run.
        Err(error) => {
            facts.push(tr!(
                "its attention cannot be checked: {error}",
                error = shown(&error.to_string())
            ));
            Ok(Some((None, facts)))
        }
    }
}

/// What the port recorded of an attention, and what is odd about how its ranks hold that.
fn of_ranks(
    sides: &Sides,
    reference: &Bundle,
    (path, own): (&Path, &[&PathBuf]),
) -> Result<(Option<Bundle>, Vec<String>)> {
    // The records of ranks are parts of one; the steps of a cache are none of each other.
    let are_ranks = sides.right.ranks.count > 1;
    let parts = own.iter().take(if are_ranks { own.len() } else { 1 });
    let mut files = parts.map(|path| open_place(path)).collect::<Result<Vec<_>>>()?;
    if files.len() < 2 {
        return Ok((files.pop(), Vec::new()));
    }
    let mut joined = Joined::default();
    let port = joined.join(reference, path, files)?;
    // Chunks of tokens may stand in any order.
    joined.orders.retain(|_, names| names.iter().all(|name| name != Name::X.as_str()));
    Ok((Some(port), joined.odd()))
}

/// The verdict on the passes of a cache, each with the settings and parameters of the reference's, and with what the port has
/// itself of its tokens and of earlier ones: on the first that differs, or on the first one. Nothing where they do not stand
/// beside those of the reference, or do not say all that they got.
fn pass_by_pass(
    sides: &Sides,
    (at, layer): (usize, &str),
    [meant, own]: [&[&PathBuf]; 2],
    found: Measure,
    tolerances: &Tolerances,
) -> Result<Option<(Option<Report>, Vec<String>)>> {
    const GIVEN: [Name; 4] = [Name::X, Name::Memory, Name::KPast, Name::VPast];
    if own.is_empty() {
        return without_records(sides, (at, layer), meant, tolerances);
    }
    if meant.len() != own.len() || sides.right.ranks.count > 1 {
        return Ok(None);
    }
    let (mut first, mut facts) = (None, Vec::new());
    for (step, (meant, path)) in meant.iter().zip(own).enumerate() {
        let (reference, port) = (open_place(meant)?, open_place(path)?);
        let shape = |file: &Bundle| {
            let x = file.infos().iter().find(|info| info.name == Name::X.as_str());
            x.map(|x| x.shape.clone())
        };
        let (Some(config), Some(_)) = (
            reference.config(),
            shape(&port).filter(|own| shape(&reference).as_ref() == Some(own)),
        ) else {
            return Ok(None);
        };
        let mut entries = given(&reference, |name| !GIVEN.contains(&name))?;
        take_from(&port, &reference, &GIVEN, &mut entries)?;
        let record = Record { config: Some(config.clone()), entries: in_one_type(entries)? };
        if first.is_none() {
            facts = other_parameters(&reference, &port, sides.right.ranks.count)?;
        }
        let Ok(report) = verdict(path, &record, tolerances) else { return Ok(None) };
        if report.is_same() {
            first.get_or_insert(report);
            continue;
        }
        let mut others = with_settings_of_others(sides, layer, &record)?;
        others.extend(counting_padding(&record));
        let other = that_fits(others, path, tolerances);
        let report = told_apart(report, record, (path, &written_before(own, step)?), tolerances);
        first = Some(report).filter(|_| other.is_none());
        facts.extend(other);
        break;
    }
    let is_open = first.as_ref().is_some_and(|first| !explains(first));
    if facts.is_empty() && is_open && found.error > MUCH * found.tolerance {
        facts = shown_by_records(sides, at, meant, own)?;
    }
    Ok(Some((first, facts)))
}

/// The verdict on the passes of a cache of which the port recorded no more than what its attention got and gave, where the
/// reference has a record of each.
fn without_records(
    sides: &Sides,
    (at, layer): (usize, &str),
    meant: &[&PathBuf],
    tolerances: &Tolerances,
) -> Result<Option<(Option<Report>, Vec<String>)>> {
    let Some((_, partner)) = sides.partner(at).filter(|_| sides.right.ranks.count == 1) else {
        return Ok(None);
    };
    let path = Path::new(&partner.path);
    let found = first_wrong_pass(sides, at, (path, &Meant::Passes(meant)), tolerances)?;
    // Where it cannot be checked pass by pass, it is as a whole.
    let Some((report, record)) = found.report else { return Ok(None) };
    if explains(&report) {
        return Ok(Some((Some(report), Vec::new())));
    }
    if found.held.is_some() {
        return Ok(Some((None, found.held.into_iter().collect())));
    }
    let mut others = with_settings_of_others(sides, layer, &record)?;
    others.extend(counting_padding(&record));
    let told = that_fits(others, path, tolerances);
    Ok(Some((Some(report).filter(|_| told.is_none()), told.into_iter().collect())))
}

/// A verdict that names several mistakes, or the one among them that is left where the record holds what earlier passes wrote to
/// the cache: a pass may have recorded the cache after it wrote to that.
fn told_apart(
    report: Report,
    mut record: Record,
    (path, written): (&Path, &[Entry]),
    tolerances: &Tolerances,
) -> Report {
    let all = |report: &Report| -> Vec<String> {
        let found = report.diagnosis.iter().flat_map(|own| &own.findings);
        let found = found.flat_map(|own| std::iter::once(own).chain(&own.also));
        found.map(|own| own.summary.clone()).collect()
    };
    let known = all(&report);
    if known.len() < 2 || written.is_empty() {
        return report;
    }
    for entry in &mut record.entries {
        if let Some(own) = written.iter().find(|own| own.name == entry.name) {
            entry.tensor = own.tensor.clone();
        }
    }
    let other = verdict(path, &record, tolerances).ok();
    let fits = |other: &Report| {
        let told = all(other);
        !told.is_empty() && told.len() < known.len() && told.iter().all(|own| known.contains(own))
    };
    other.filter(fits).unwrap_or(report)
}

/// The verdict on what a port recorded of its attention, by what it says itself of what it was given: a core does, and each
/// step of a cache.
fn by_itself(
    sides: &Sides,
    (at, [node, partner]): (usize, [&Node; 2]),
    own: &[&PathBuf],
    found: Measure,
    tolerances: &Tolerances,
) -> Result<Option<(Option<Report>, Vec<String>)>> {
    let mut first = None;
    for path in own {
        let report = check(path, &Settings::default(), &NameMap::default(), tolerances)?;
        let is_same = report.is_same();
        if first.is_none() || !is_same {
            first = Some(report);
        }
        if !is_same {
            break;
        }
    }
    let meant = sides.left.parameters(&node.path)?;
    let ranks = sides.right.ranks.count;
    let mut facts = differing(&meant, &sides.right.parameters(&partner.path)?, ranks)?;
    // More than rounding makes of equal inputs.
    let is_more =
        (own.len() > 1 || found.half.is_none()) && found.error > ALLOWED * found.tolerance;
    let agrees = |read: usize| -> Result<bool> {
        Ok(sides.measured(read)?.is_some_and(|found| found.error <= found.tolerance))
    };
    let mut is_wrong = is_more;
    for read in &node.reads {
        is_wrong = is_wrong && agrees(*read)?;
    }
    let is_same = first.as_ref().is_some_and(Report::is_same);
    let is_open = first.as_ref().is_some_and(|report| !explains(report));
    if facts.is_empty()
        && is_open
        && !is_same
        && let Some(path) = own.first()
    {
        let others = with_settings_of_others(sides, &node.path, &open_place(path)?.read()?)?;
        if let Some(told) = that_fits(others, path, tolerances) {
            return Ok(Some((None, vec![told])));
        }
    }
    if facts.is_empty() && is_open && found.error > MUCH * found.tolerance {
        facts.extend(shown_by_records(sides, at, &sides.left.records(&node.path), own)?);
    }
    if facts.is_empty()
        && is_wrong
        && is_same
        && let ([left], [right]) = (&sides.left.records(&node.path)[..], own)
    {
        facts.extend(of_heads(left, right, found.tolerance)?);
    }
    if facts.is_empty() && is_wrong && is_same {
        let told = tr!(
            "it is right for the queries, keys and values that it got: what makes these is wrong"
        );
        facts.push(told.to_owned());
    }
    Ok(first.map(|first| (Some(first), facts)))
}

/// What a port's records show by themselves, beside those of the reference.
fn shown_by_records(
    sides: &Sides,
    at: usize,
    left: &[&PathBuf],
    right: &[&PathBuf],
) -> Result<Vec<String>> {
    let nodes = sides.nodes().iter().enumerate();
    let is_other = |(place, node): &(usize, &Node)| {
        *place != at && node.part == ModelPart::Attention && !node.is_input
    };
    let others = nodes.filter(is_other).filter_map(|(place, node)| {
        let (_, partner) = sides.partner(place)?;
        Some((node.path.as_str(), sides.right.records(&partner.path)))
    });
    let others: Vec<(&str, Vec<&PathBuf>)> = others.collect();
    Ok(masks(sides, at, left, right)?.into_iter().chain(caches(left, right, &others)?).collect())
}

/// The `report`; where it explains nothing, one that does: by chunks of ranks, or with the queries, keys and values that modules
/// within the port's attention gave in the shapes of the `reference`. Of right ports these may stand in another order.
fn by_parts(
    sides: &Sides,
    (at, partner, path): (usize, &Node, &Path),
    (reference, record): (Option<&Bundle>, &Record),
    report: Report,
    tolerances: &Tolerances,
) -> Result<Report> {
    if explains(&report) {
        return Ok(report);
    }
    if let Some(of_chunks) = in_chunks(sides, path, record, tolerances) {
        return Ok(of_chunks);
    }
    let Some(reference) = reference.filter(|_| sides.aligned(at).is_none()) else {
        return Ok(report);
    };
    let more = projections(sides, partner, reference)?;
    if more.is_empty() {
        return Ok(report);
    }
    let entries = in_one_type(record.entries.iter().cloned().chain(more).collect())?;
    let record = Record { entries, ..record.clone() };
    Ok(verdict(path, &record, tolerances).ok().filter(explains).unwrap_or(report))
}

/// What is wrong where the port's record is as it should be with other positions, or with the settings of another layer.
fn run_otherwise(
    sides: &Sides,
    (at, layer): (usize, &str),
    (path, record): (&Path, &Record),
    tolerances: &Tolerances,
) -> Result<Option<String>> {
    let mut others = with_other_positions(sides, at, record);
    others.extend(with_settings_of_others(sides, layer, record)?);
    others.extend(with_weights_of_ranks(record, sides.right.ranks.count)?);
    Ok(that_fits(others, path, tolerances))
}

/// The verdict where each rank that has a chunk of the tokens merges what it gets of each chunk of keys, if that explains it.
fn in_chunks(
    sides: &Sides,
    path: &Path,
    record: &Record,
    tolerances: &Tolerances,
) -> Option<Report> {
    let count = sides.right.ranks.count;
    let config = record.config.as_ref().filter(|_| count > 1)?;
    let config = Settings { splits: Some(vec![count]), ..config.clone() };
    let record = Record { config: Some(config), ..record.clone() };
    let report = verdict(path, &record, tolerances).ok()?;
    explains(&report).then_some(report)
}
