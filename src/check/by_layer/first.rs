//! The first wrong part: what is wrong with it?

use std::path::Path;

use candle_core::Tensor;

use super::super::cells::cells;
use super::super::report::Report;
use super::super::tolerance::Tolerances;
use super::attention::checked;
use super::clues::{clue, same_as};
use super::embeddings::{at_edges, not_zeroed, other_rows, tied};
use super::exact::Exact;
use super::facts::outputs;
use super::found::{Line, Named};
use super::measure::{Measure, tolerance_of};
use super::mixtures::differences;
use super::parameters::differing;
use super::part::Parameters;
use super::sides::Sides;
use super::slips::{cut_as_one, goes_alone, slip};
use base::error::{Result, shown};
use foreign::{ModelPart, Node};
use program::wide;

/// So many rows tell what ranks did.
const ROWS: usize = 32;
/// So many are looked at for what one rule gives.
const MANY: usize = 256;

/// What can be said of a wrong part: `check`'s verdict on attention, where that is `known` the same, or that on a plain part as
/// a program.
pub fn named(
    sides: &Sides,
    exact: &mut Exact,
    (at, line, known): (usize, &Line, Option<Named>),
    found: Option<Measure>,
    tolerances: &Tolerances,
) -> Result<Option<Named>> {
    let are_equal = line.inherited.is_some_and(|inherited| inherited <= line.tolerance);
    let mut told = explained(sides, exact, (at, known, are_equal), found, tolerances)?;
    // Beside what is wrong a verdict that all is the same says nothing, or that of one step of several.
    if let Some(told) = told.as_mut().filter(|told| !told.facts.is_empty()) {
        told.report.take_if(|report| report.is_same());
    }
    let is_named =
        told.as_ref().is_some_and(|told| told.names_a_mistake() || told.report.is_none());
    let (Some(found), true) = (found, are_equal && !is_named) else { return Ok(told) };
    let rows =
        sides.some_rows(at, found.row, sides.nodes().get(at).map_or(1, Node::rows).min(MANY));
    let fact = match sides.picked(at, &rows)? {
        Some([meant, own]) => clue(&meant, &own, line.tolerance)?,
        None => None,
    };
    let Some(fact) = fact else { return Ok(told) };
    let what = tr!("beside what the reference gives for the same inputs").to_owned();
    let told = told.unwrap_or(Named { what, facts: Vec::new(), report: None });
    Ok(Some(Named { facts: vec![fact], ..told }))
}

/// The part before one that is wrong in its place, and how far: of a sum, on ranks that do not add it up; or a module that is
/// left out before it.
pub fn before_it(
    sides: &Sides,
    exact: &mut Exact,
    (at, found): (usize, Measure),
) -> Result<Option<(usize, f64, Named)>> {
    if sides.right.ranks.count < 2 {
        let what = tr!("beside what the reference does").to_owned();
        return Ok(exact.left_out(at, found)?.map(|(input, fact)| {
            (input, found.error, Named { what, facts: vec![fact], report: None })
        }));
    }
    let (mut terms, rows) = (exact.terms(at)?, sides.some_rows(at, found.row, ROWS));
    // What a part reads of a sum that the port did not record.
    let mut behind = None;
    if terms.is_empty()
        && let Some((input, reading, parameters)) = exact.as_program(at)?
        && sides.partner(input).is_none()
    {
        terms = exact.terms(input)?;
        behind = Some((reading, parameters));
    }
    let told = goes_alone(sides, (at, &terms, behind), &rows)?;
    Ok(told.map(|(term, off, fact)| (term, off, of_slip(fact))))
}

fn of_slip(fact: String) -> Named {
    let what = tr!("the sums and pieces of the ranks").to_owned();
    Named { what, facts: vec![fact], report: None }
}

/// That a norm gives 0 in just the rows whose squares are more than f16 holds.
fn overflows(sides: &Sides, at: usize, rows: &[usize]) -> Result<Option<String>> {
    // The square root of the largest number of f16, 65504.
    const MOST: f64 = 255.94;
    let Some(node) = sides.nodes().get(at).filter(|node| node.part == ModelPart::Norm) else {
        return Ok(None);
    };
    let Some(input) = node.reads.first() else { return Ok(None) };
    let (Some([_, x]), Some([_, own])) =
        (sides.picked_by(*input, at, rows)?, sides.picked(at, rows)?)
    else {
        return Ok(None);
    };
    let largest = |own: &Tensor| cells(&own.abs()?.max(2)?.flatten_all()?);
    let (x, own) = (largest(&x)?, largest(&own)?);
    let zeros = own.iter().filter(|own| **own == 0.0).count();
    let is_it = zeros > 0 && x.iter().zip(&own).all(|(x, own)| (*x > MOST) == (*own == 0.0));
    Ok(is_it.then(|| {
        tr!(
            "{zeros} of {count} rows are 0: those with a number above 255.9, whose square is more than f16 holds",
            zeros,
            count = own.len()
        )
    }))
}

fn explained(
    sides: &Sides,
    exact: &mut Exact,
    (at, known, are_equal): (usize, Option<Named>, bool),
    found: Option<Measure>,
    tolerances: &Tolerances,
) -> Result<Option<Named>> {
    let (Some(node), Some(found)) = (sides.nodes().get(at), found) else { return Ok(None) };
    if let Some(told) = of_ranks(sides, exact, (at, found), tolerances)? {
        return Ok(Some(told));
    }
    if exact.is_sum(at)? {
        return of_sum(sides, exact, (at, found), tolerances);
    }
    if node.part == ModelPart::Attention {
        if known.is_some() {
            return Ok(known);
        }
        return of_attention(sides, exact, (at, found), tolerances);
    }
    if node.part == ModelPart::Logits
        && let Some(fact) = tied(sides, at, found.tolerance)?
    {
        let part = node.part.told();
        let what = tr!("{part}, computed from the port's own inputs", part);
        return Ok(Some(Named { what, facts: vec![fact], report: None }));
    }
    let partner = sides.partner(at).map(|(_, node)| node.path.clone()).unwrap_or_default();
    let own = sides.right.parameters(&partner)?;
    let ranks = sides.right.ranks.count;
    let mut facts = differing(&sides.left.parameters(&node.path)?, &own, ranks)?;
    if !facts.is_empty()
        && let Some(other) = of_another(sides, &node.path, &own)?
    {
        let part = node.part.told();
        let what = tr!("{part}, computed from the port's own inputs", part);
        let mut facts = vec![tr!("its parameters are those of {other}", other = shown(&other))];
        facts.extend(moved_layers(sides, &partner, &other)?);
        return Ok(Some(Named { what, facts, report: None }));
    }
    if facts.is_empty() && node.part == ModelPart::Embedding {
        facts.extend(of_embedding(sides, at, found.tolerance)?);
        if !facts.is_empty() {
            let what = tr!("beside what the reference gives for the same inputs").to_owned();
            return Ok(Some(Named { what, facts, report: None }));
        }
    }
    if facts.is_empty()
        && let rows = sides.some_rows(at, found.row, node.rows().min(MANY))
        && let Some(told) = overflows(sides, at, &rows)?
    {
        let part = node.part.told();
        let what = tr!("{part}, computed from the port's own inputs", part);
        return Ok(Some(Named { what, facts: vec![told], report: None }));
    }
    let mut beside = exact.beside(at, found, false)?;
    let mut report = match &beside {
        Some(beside) => exact.diagnosed(beside, Path::new(&partner))?,
        None => None,
    };
    let is_explained = report.as_ref().is_some_and(|report| {
        report.diagnosis.as_ref().is_some_and(|found| !found.findings.is_empty())
    });
    if facts.is_empty()
        && !is_explained
        && let Some(told) = otherwise(sides, exact, (at, node), found)?
    {
        facts.push(told);
        report = None;
    }
    let is_of_port = beside.is_some();
    if facts.is_empty() && beside.is_none() && are_equal {
        beside = exact.beside(at, found, true)?;
        report = match &beside {
            Some(beside) => exact.diagnosed(beside, Path::new(&partner))?,
            None => None,
        };
    }
    if facts.is_empty() && report.is_none() {
        let (meant, own) = (sides.left.mixture(&node.path)?, sides.right.mixture(&partner)?);
        facts = differing(&meant, &own, ranks)?;
        if facts.is_empty() {
            facts = differences(sides, at, found)?;
        }
    }
    if facts.is_empty() && report.is_none() {
        return Ok(None);
    }
    let part = node.part.told();
    let what = match beside.and_then(|beside| beside.function()) {
        _ if !is_of_port && report.is_some() => {
            tr!("{part}, computed from the reference's inputs, as the port recorded none", part)
        }
        Some(function) => {
            tr!("{part}, computed from the port's own inputs as {function}", part, function)
        }
        None => tr!("{part}, computed from the port's own inputs", part),
    };
    Ok(Some(Named { what, facts, report }))
}

/// What ranks did wrong with the sums and pieces of a part, or stages with what they hand over, which may be a norm of it.
fn of_ranks(
    sides: &Sides,
    exact: &mut Exact,
    (at, found): (usize, Measure),
    tolerances: &Tolerances,
) -> Result<Option<Named>> {
    if sides.right.ranks.count < 2 {
        return Ok(None);
    }
    let rows = sides.some_rows(at, found.row, ROWS);
    let Some(fact) = slip(sides, at, &rows)? else { return Ok(None) };
    let are_stages = sides.right.ranks.are_stages && exact.is_sum(at)?;
    let told = are_stages.then(|| of_sum(sides, exact, (at, found), tolerances)).transpose()?;
    let told = told.flatten().filter(|told| told.report.is_none() && told.facts.is_empty());
    Ok(Some(match told {
        Some(told) => Named { facts: vec![fact], ..told },
        None => of_slip(fact),
    }))
}

/// From which other input, parameters or pieces of these a part would give what it gave.
fn otherwise(
    sides: &Sides,
    exact: &mut Exact,
    (at, node): (usize, &Node),
    found: Measure,
) -> Result<Option<String>> {
    let rows = sides.some_rows(at, found.row, ROWS);
    if sides.right.ranks.count > 1
        && let Some(told) = cut_as_one(sides, exact, (at, found), &rows)?
    {
        return Ok(Some(told));
    }
    if let Some(told) = exact.in_turns(at, found)? {
        return Ok(Some(told));
    }
    if node.part == ModelPart::Norm
        && let Some(told) = exact.normed_alone(at, found)?
    {
        return Ok(Some(told));
    }
    let Some(other) = exact.another_input(at, found)? else {
        return exact.parameters_of_another(at, found);
    };
    let meant = node.reads.first().and_then(|at| sides.nodes().get(*at));
    let meant = meant.map_or("", |meant| meant.name.as_str());
    let (other, meant) = (shown(&other), shown(meant));
    Ok(Some(tr!("it reads {other}, not {meant}", other, meant)))
}

/// What a sum is made of in the reference, and what in the port.
fn of_sum(
    sides: &Sides,
    exact: &mut Exact,
    (at, found): (usize, Measure),
    tolerances: &Tolerances,
) -> Result<Option<Named>> {
    let both = exact.both_terms(at, found)?;
    let both = both.map_or_else(|| exact.normed_terms(at, found), |both| Ok(Some(both)))?;
    if let Some(both) = both {
        let [meant, made] = both.map(|told| shown(&told).into_owned());
        let what = tr!("in the reference it is {meant}, and in the port {made}", meant, made);
        return Ok(Some(Named { what, facts: Vec::new(), report: None }));
    }
    if let Some(fact) = exact.within_layer(at, found)? {
        let what = tr!("beside what the reference does").to_owned();
        return Ok(Some(Named { what, facts: vec![fact], report: None }));
    }
    // What goes into the last projection of an attention is what that computes.
    let is_inner =
        sides.nodes().get(at).is_some_and(|node| sides.left.is_within_record(&node.path));
    let told = is_inner.then(|| of_attention(sides, exact, (at, found), tolerances));
    let is_right =
        |told: &Named| told.facts.is_empty() && told.report.as_ref().is_some_and(Report::is_same);
    Ok(told.transpose()?.flatten().filter(|told| !is_right(told)))
}

/// Which rows an embedding read or added in place of others.
fn of_embedding(sides: &Sides, at: usize, tolerance: f64) -> Result<Option<String>> {
    let told = other_rows(sides, at, tolerance)?;
    if told.is_some() || sides.right.ranks.count < 2 {
        return Ok(told);
    }
    Ok(not_zeroed(sides, at, tolerance)?.or(at_edges(sides, at, tolerance)?))
}

/// What a check says of the port's attention, and of what its module does with that.
pub fn of_attention(
    sides: &Sides,
    exact: &Exact,
    (at, found): (usize, Measure),
    tolerances: &Tolerances,
) -> Result<Option<Named>> {
    let Some((report, mut facts)) = checked(sides, (at, found), tolerances)? else {
        return Ok(None);
    };
    if facts.is_empty()
        && report.as_ref().is_some_and(Report::is_same)
        && let Some(computed) = outputs(sides, at)?
        && let Some(both) = exact.added_to(at, found, &computed)?
    {
        let [meant, made] = both.map(|told| shown(&told).into_owned());
        facts.push(tr!(
            "it is right, and its module adds it to {made}, where the reference's adds it to {meant}",
            made,
            meant
        ));
    }
    let what = tr!("its attention, with the reference's settings and weights").to_owned();
    Ok(Some(Named { what, facts, report }))
}

/// The part of the reference whose parameters the port has in another place.
fn of_another(sides: &Sides, path: &str, own: &Parameters) -> Result<Option<String>> {
    let Some((name, tensor)) = own.iter().max_by_key(|(_, own)| own.elem_count()) else {
        return Ok(None);
    };
    let tensor = wide(tensor)?;
    for file in &sides.left.ranks.passes {
        let alike = file.infos().iter().enumerate().filter(|(_, info)| {
            let other = info
                .name
                .strip_suffix(name.as_str())
                .and_then(|other| other.strip_suffix(['.', '/']));
            other.is_some_and(|other| other != path) && info.shape == tensor.dims()
        });
        let others = alike.map(|(at, info)| (info.name.as_str(), file.tensor_at(at)));
        if let Some(found) = same_as(&tensor, others, tolerance_of(&tensor)?)? {
            return Ok(found
                .strip_suffix(name.as_str())
                .map(|path| path.trim_end_matches(['.', '/']).to_owned()));
        }
    }
    Ok(None)
}

/// That all parameters of some layers of the port, from the one of a module on, are those of other layers of the reference, as
/// `other` is that module in one of them.
fn moved_layers(sides: &Sides, path: &str, other: &str) -> Result<Option<String>> {
    let (Some((number, _)), Some((source, _))) = (numbered(path), numbered(other)) else {
        return Ok(None);
    };
    let of = |path: &str, layer: usize| Some(format!("{}{layer}", path.get(..numbered(path)?.1)?));
    let ranks = sides.right.ranks.count;
    let mut count = 0;
    while let (Some(own), Some(meant)) = (of(path, number + count), of(other, source + count)) {
        let (own, meant) = (sides.right.parameters(&own)?, sides.left.parameters(&meant)?);
        let is_there = |name: &String| meant.iter().any(|(known, _)| known == name);
        let is_it = own.len() > 1 && own.iter().all(|(name, _)| is_there(name));
        if !is_it || !differing(&meant, &own, ranks)?.is_empty() {
            break;
        }
        count += 1;
    }
    let (last, end) = (number + count.saturating_sub(1), source + count.saturating_sub(1));
    Ok(match count {
        0 => None,
        1 => Some(tr!(
            "all parameters of layer {number} are those of the reference's layer {source}",
            number,
            source
        )),
        _ => Some(tr!(
            "all parameters of the layers {number} to {last} are those of the reference's layers {source} to {end}",
            number,
            last,
            source,
            end
        )),
    })
}

/// The number of the layer in a path, and where it stands there.
fn numbered(path: &str) -> Option<(usize, usize)> {
    let start = path.find(|c: char| c.is_ascii_digit())?;
    let number = path.get(start..)?.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((number.parse().ok()?, start))
}
