//! What is wrong with the attention of a port? `check`'s verdict on what it recorded, with the reference's settings, weights and
//! masks.

use std::path::Path;

use candle_core::{DType, Tensor};

use super::super::check::{check, checked_whole};
use super::super::report::Report;
use super::super::tolerance::Tolerances;
use super::join::Joined;
use super::measure::{apart, tolerance_of};
use super::sides::Sides;
use base::error::{Result, shown};
use config::{Positions, Settings};
use file::{Bundle, Entry, Record, open_place};
use foreign::NameMap;
use program::{Name, Role, wide};

/// The verdict on the port's attention at a node, and which of its parameters are not the reference's. Nothing where the
/// reference has no record of it that states its run.
pub fn checked(
    sides: &Sides,
    at: usize,
    tolerances: &Tolerances,
) -> Result<Option<(Option<Report>, Vec<String>)>> {
    let (Some(node), Some((_, partner))) = (sides.nodes().get(at), sides.partner(at)) else {
        return Ok(None);
    };
    let own = sides.right.records(&partner.path);
    let by_itself = || {
        // A core says itself what it was given.
        let [path] = own.as_slice() else { return Ok(None) };
        let report = check(path, &Settings::default(), &NameMap::default(), tolerances)?;
        Ok(Some((Some(report), Vec::new())))
    };
    let [meant] = sides.left.records(&node.path)[..] else { return by_itself() };
    let reference = open_place(meant)?;
    let Some(settings) = reference.config().cloned() else {
        return by_itself();
    };
    let mut entries = given(&reference, |name| name != Name::X)?;
    let mut facts = Vec::new();
    let path = own.first().map_or(Path::new(&partner.path), |path| path.as_path());
    let mut files = own.iter().map(|path| open_place(path)).collect::<Result<Vec<_>>>()?;
    let port = if files.len() > 1 {
        let mut joined = Joined::default();
        let port = joined.join(&reference, path, files)?;
        facts = joined.odd();
        Some(port)
    } else {
        files.pop()
    };
    // The records of a cache's steps are of some tokens each.
    if let Some(port) = port.filter(|_| sides.right.ranks.passes.len() == 1) {
        facts.extend(other_parameters(&reference, &port)?);
        let seen = given(&port, |name| name == Name::X)?;
        entries.extend(seen.into_iter().chain(as_handed_over(&reference, &port)?));
    }
    for entry in seen_outside(sides, at, &reference)? {
        if !entries.iter().any(|own| own.name == entry.name) {
            entries.push(entry);
        }
    }
    if !entries.iter().any(|entry| entry.name == Name::X.as_str()) {
        entries.extend(given(&reference, |name| name == Name::X)?);
    }
    let entries = in_one_type(entries)?;
    let again = with_positions_anew(sides, &settings, &entries);
    let record = Record { config: Some(settings), entries };
    let (flags, map) = (Settings::default(), NameMap::default());
    let report =
        checked_whole(path, record, &flags, &map, tolerances).map(|checked| checked.report);
    match report {
        Ok(report) => {
            let is_anew = !report.is_same()
                && again.is_some_and(|again| {
                    checked_whole(path, again, &flags, &map, tolerances)
                        .is_ok_and(|checked| checked.report.is_same())
                });
            if is_anew {
                facts.push(tr!("each rank counts the positions of its tokens from 0").to_owned());
            }
            Ok(Some((Some(report), facts)))
        }
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

/// The record with positions that start anew on each rank, where these split tokens.
fn with_positions_anew(sides: &Sides, settings: &Settings, entries: &[Entry]) -> Option<Record> {
    let (count, x) =
        (sides.right.ranks.count, entries.iter().find(|entry| entry.name == Name::X.as_str())?);
    let tokens = x.tensor.dims().get(1).copied().filter(|tokens| tokens.is_multiple_of(count))?;
    settings.rope.as_ref().filter(|_| count > 1 && settings.positions.is_none())?;
    let positions = (0..tokens).map(|at| at % (tokens / count)).collect();
    let positions = Some(Positions::new(vec![vec![positions]]));
    Some(Record {
        config: Some(Settings { positions, ..settings.clone() }),
        entries: entries.to_vec(),
    })
}

/// The steps of a record that are given, of those that are asked for.
fn given(file: &Bundle, is_asked: impl Fn(Name) -> bool) -> Result<Vec<Entry>> {
    steps(file, |name| name.is_given() && is_asked(name))
}

/// Those that are computed.
fn computed(file: &Bundle) -> Result<Vec<Entry>> {
    steps(file, |name| !name.is_given())
}

fn steps(file: &Bundle, is_asked: impl Fn(Name) -> bool) -> Result<Vec<Entry>> {
    let infos = file.infos().iter().enumerate();
    let asked = infos.filter(|(_, info)| Name::in_files(&info.name).is_some_and(&is_asked));
    asked.map(|(at, info)| Ok(info.clone().with(file.tensor_at(at)?))).collect()
}

/// The steps that a port computed. Queries and keys that a function of attention got are those behind all that the reference
/// does to them: its norms and rotations.
fn as_handed_over(reference: &Bundle, port: &Bundle) -> Result<Vec<Entry>> {
    let mut entries = computed(port)?;
    let has =
        |file: &Bundle, name: Name| file.infos().iter().any(|info| info.name == name.as_str());
    let is_function = port.config().is_none() && !has(port, Name::Q) && !has(port, Name::K);
    for (heads, behind) in [
        (Name::QHeads, [Name::QRot, Name::QClipped, Name::QNorm]),
        (Name::KHeads, [Name::KRot, Name::KClipped, Name::KNorm]),
    ] {
        let last = behind.into_iter().find(|name| has(reference, *name));
        let is_last = |name: Name| behind.contains(&name) && has(port, name);
        let (Some(last), false) = (last.filter(|_| is_function), behind.into_iter().any(is_last))
        else {
            continue;
        };
        for entry in entries.iter_mut().filter(|entry| entry.name == heads.as_str()) {
            last.as_str().clone_into(&mut entry.name);
        }
    }
    Ok(entries)
}

/// What the port's attention got and gave, as its modules have it.
fn seen_outside(sides: &Sides, at: usize, reference: &Bundle) -> Result<Vec<Entry>> {
    let Some(node) = sides.nodes().get(at) else { return Ok(Vec::new()) };
    let rows: Vec<usize> = (0..node.rows()).collect();
    let mut entries = Vec::new();
    let mut places = vec![(Name::X, node.reads.first().copied())];
    // Where the output projection is a module of its own, attention gives what stands before it.
    for name in [Name::Output, Name::Concat] {
        let meant = reference.tensor(name.as_str())?.filter(|own| own.dims() == node.shape);
        if let (Some(meant), Some([own, _])) = (meant, sides.picked(at, &rows)?) {
            let meant = wide(&meant)?.reshape(own.dims())?.to_dtype(own.dtype())?;
            if apart(&meant, &own)? <= tolerance_of(&own)? {
                places.push((name, Some(at)));
                break;
            }
        }
    }
    for (name, place) in places {
        let Some(place) = place else { continue };
        if let (Some([_, own]), Some(node)) =
            (sides.picked(place, &rows)?, sides.nodes().get(place))
        {
            entries.push(Entry::of(name.as_str(), own.reshape(node.shape.as_slice())?));
        }
    }
    Ok(entries)
}

/// Which parameters of the port are not the reference's: another one of these, one transposed, or other numbers.
fn other_parameters(reference: &Bundle, port: &Bundle) -> Result<Vec<String>> {
    let is_parameter = |name: Name| name.role() == Role::Parameter;
    let (meant, own) = (given(reference, is_parameter)?, given(port, is_parameter)?);
    let named = |entries: Vec<Entry>| -> Vec<(String, Tensor)> {
        entries.into_iter().map(|entry| (entry.name, entry.tensor)).collect()
    };
    differing(&named(meant), &named(own))
}

/// The facts on parameters of the port that are not those of the reference.
pub fn differing(meant: &[(String, Tensor)], own: &[(String, Tensor)]) -> Result<Vec<String>> {
    let mut facts = Vec::new();
    for (name, other) in own {
        let Some((_, right)) = meant.iter().find(|(known, _)| known == name) else { continue };
        let is = |right: &Tensor| -> Result<bool> {
            let (right, other) = (wide(right)?, wide(other)?.contiguous()?);
            Ok(right.dims() == other.dims()
                && apart(&right, &other)? <= tolerance_of(&other)?.max(tolerance_of(&right)?))
        };
        if is(right)? {
            continue;
        }
        let mut another = None;
        for (known, tensor) in meant.iter().filter(|(known, _)| known != name) {
            if is(tensor)? {
                another = Some(known);
                break;
            }
        }
        facts.push(match another {
            Some(known) => tr!(
                "its parameter {name} holds the numbers of the reference's {known}",
                name = shown(name),
                known = shown(known)
            ),
            None if right.rank() == 2 && is(&right.t()?.contiguous()?)? => {
                tr!("its parameter {name} is the reference's, transposed", name = shown(name))
            }
            None if right.dims() != other.dims() => tr!(
                "its parameter {name} has the shape {own}, and the reference's {meant}",
                name = shown(name),
                own = format!("{:?}", other.dims()),
                meant = format!("{:?}", right.dims())
            ),
            None => tr!(
                "its parameter {name} has other numbers than the reference's",
                name = shown(name)
            ),
        });
    }
    Ok(facts)
}

/// The tensors of a record in one type: what the port has in 16 bits stays so, and parameters meet it in f32.
fn in_one_type(entries: Vec<Entry>) -> Result<Vec<Entry>> {
    let is_parameter = |entry: &Entry| {
        Name::in_files(&entry.name).is_some_and(|name| name.role() == Role::Parameter)
    };
    let wide_one = |entry: Entry| {
        let is_narrow = matches!(entry.tensor.dtype(), DType::F16 | DType::BF16);
        let tensor = if is_parameter(&entry) && is_narrow {
            entry.tensor.to_dtype(DType::F32)?
        } else {
            entry.tensor.clone()
        };
        Ok(Entry { tensor, ..entry })
    };
    entries.into_iter().map(wide_one).collect()
}
