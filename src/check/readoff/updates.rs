//! What becomes of what was added up before, and of what comes, in each tile and where splits are merged? A row that was recorded
//! before and after is so many times what it was and so many times what comes: these numbers are read off, and told by what gives
//! them, if that is known.

use std::collections::BTreeSet;

use candle_core::{DType, Tensor};

use super::seen::is_off;
use crate::candidate::{Candidate, cost, places_in_words};
use crate::cells::{cells, solved};
use crate::grammar::numbers::short;
use crate::scope::Scope;
use crate::thresholds::LEAST_CELLS;
use base::error::Result;
use program::{
    Axis, Block, Change, Edit, Kind, Name, Op, PartStage, Parted, Parts, Slip, Step, unravel,
};

/// What is left of a row may be so much of it.
const OFF: f64 = 1e-4;
/// And a number is one of those that are known if it is as near.
const NEAR: f64 = 1e-3;

/// Rounding of a row, as a part of its largest number.
const ROUNDING: f64 = 1e-5;

/// A number that is read off beside the one that is meant, in a tile or split and a row, and what rounding makes it off by.
struct Read {
    part: usize,
    row: usize,
    found: f64,
    meant: f64,
    off: f64,
}

impl Read {
    /// Whether it is not the one that is meant.
    fn differs(&self) -> bool {
        !self.is(self.meant)
    }

    /// Whether it is this number.
    fn is(&self, value: f64) -> bool {
        (value - self.found).abs() <= NEAR * value.abs().max(self.found.abs()) + self.off
    }
}

/// The mistakes in what is added up that recorded states show.
///
/// # Errors
/// If candle fails.
pub fn candidates(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let Some(step) = scope.trace().step(at) else { return Ok(Vec::new()) };
    // Where the maxima are off by themselves, the numbers that follow from them tell no cause.
    if let Some((found, expected)) = scope.pair(Name::TileMax)
        && is_off(&cells(found)?, &cells(expected)?)
    {
        return Ok(Vec::new());
    }
    match (&step.op, at) {
        (Op::Parted(own), Name::TileSum | Name::TileAcc) if own.slip.is_none() => {
            of_tiles(scope, step, own)
        }
        (Op::Parted(Parted { stage: PartStage::Merged, slip: None }), _) => of_merge(scope, step),
        _ => Ok(Vec::new()),
    }
}

/// So many times each of a few rows, by least squares, if that gives a row.
fn shares(row: &[f64], of: &[&[f64]]) -> Option<Vec<f64>> {
    let dot = |one: &[f64], other: &[f64]| {
        one.iter().zip(other).map(|(one, other)| one * other).sum::<f64>()
    };
    let products = of.iter().map(|one| {
        of.iter().map(|other| dot(one, other)).chain([dot(one, row)]).collect::<Vec<f64>>()
    });
    let shares = solved(products.collect())?;
    let rest = row.iter().enumerate().map(|(at, own)| {
        let made: f64 = of.iter().zip(&shares).map(|(one, share)| share * one[at]).sum();
        (own - made).powi(2)
    });
    let size: f64 = of.iter().zip(&shares).map(|(one, share)| share.powi(2) * dot(one, one)).sum();
    let size = size.max(dot(row, row));
    (rest.sum::<f64>() <= OFF * OFF * size).then_some(shares)
}

/// The rows of every part, of so many numbers each.
fn rows_of(x: &Tensor, width: usize, rows: usize) -> Result<Vec<Vec<Vec<f64>>>> {
    let cells = cells(x)?;
    let part = |part: &[f64]| part.chunks(width).map(<[f64]>::to_vec).collect();
    Ok(cells.chunks((rows * width).max(1)).map(part).collect())
}

/// What is added up tile by tile.
fn of_tiles(scope: &Scope, step: &Step, own: &Parted) -> Result<Vec<Candidate>> {
    let (Some(found), Some(inputs)) = (scope.recorded(step.name), scope.inputs(step)) else {
        return Ok(Vec::new());
    };
    let Some(slot) = inputs.len().checked_sub(1).filter(|slot| *slot > 1) else {
        return Ok(Vec::new());
    };
    let (factor, largest) = (inputs[slot], inputs[1]);
    // What each tile gives by itself, as nothing is left of what was before.
    let none = factor.zeros_like()?;
    let read: Vec<&Tensor> = inputs.iter().take(slot).copied().chain([&none]).collect();
    let given = step.op.eval(&read)?;
    let rows = factor.elem_count() / factor.dim(0)?.max(1);
    let width = if matches!(own.stage, PartStage::Weighted(_)) { found.dim(4)? } else { 1 };
    if found.dims() != given.dims() || rows == 0 || width == 0 {
        return Ok(Vec::new());
    }
    let [all, given] = [found, &given].map(|x| rows_of(x, width, rows));
    let [of_factor, of_max] = [factor, largest].map(cells);
    let (of_factor, of_max) = (of_factor?, of_max?);
    let tiles = Tiles { rows, factor: &of_factor, largest: &of_max };
    let Some([before, coming]) = tiles.read(&all?, &given?) else { return Ok(Vec::new()) };
    let (mut edits, mut told) = (Vec::new(), Vec::new());
    for (reads, is_before) in [(&before, true), (&coming, false)] {
        // One number for each row is always found.
        if !reads.is_empty() && width == 1 && tiles.name(reads).is_none() {
            return Ok(Vec::new());
        }
        told.extend(tiles.told(step, reads, is_before));
    }
    if !before.is_empty() {
        let change = more(&before, factor, |own| own.found - own.meant)?;
        edits.push(Edit::new(step.name, Change::before(slot, change)));
    }
    if let (false, PartStage::Weighted(parts)) = (coming.is_empty(), &own.stage) {
        let counted = counted(&coming, inputs[0], parts)?;
        edits.push(Edit::new(step.name, Change::before(0, counted)));
    }
    if edits.is_empty() {
        return Ok(Vec::new());
    }
    let summary = format!("{}: {}", step.name, told.join("; "));
    Ok(vec![Candidate::new(Kind::Replaced, cost::FITTED, edits, summary)])
}

/// What is added to scores, (batch, head, query, key), of tiles that give so many times as much.
fn counted(coming: &[Read], scores: &Tensor, parts: &Parts) -> Result<Slip> {
    let keys = scores.dims().last().copied().unwrap_or_default();
    let mut logs = vec![0.0; scores.elem_count()];
    for own in coming {
        for key in parts.keys[own.part].iter().flat_map(|(first, end)| *first..*end) {
            logs[own.row * keys + key] = own.found.ln();
        }
    }
    let cells = Tensor::from_vec(logs, scores.shape(), scores.device())?;
    Ok(Slip::Counted(Block { cells, fill: 0.0 }))
}

/// What splits weigh where they are merged.
fn of_merge(scope: &Scope, step: &Step) -> Result<Vec<Candidate>> {
    let (Some(found), Some(inputs)) = (scope.recorded(step.name), scope.inputs(step)) else {
        return Ok(Vec::new());
    };
    let [outputs, weights] = inputs[..] else { return Ok(Vec::new()) };
    let (count, width) = (outputs.dim(0)?, found.dims().last().copied().unwrap_or_default());
    let rows = found.elem_count() / width.max(1);
    if width <= count || scope.recorded(Name::SplitOutputs).is_none() {
        return Ok(Vec::new());
    }
    let (of_parts, meant) = (rows_of(outputs, width, rows)?, cells(weights)?);
    let found = cells(found)?;
    let mut others = Vec::new();
    for (row, own) in found.chunks(width).enumerate() {
        let is_some = |part: &usize| of_parts[*part][row].iter().any(|own| *own != 0.0);
        let parts: Vec<usize> = (0..count).filter(is_some).collect();
        let of: Vec<&[f64]> = parts.iter().map(|part| of_parts[*part][row].as_slice()).collect();
        let Some(shares) = shares(own, &of) else { return Ok(Vec::new()) };
        let reads = parts.into_iter().zip(shares);
        others.extend(reads.map(|(part, found)| Read {
            part,
            row,
            found,
            meant: meant[part * rows + row],
            off: OFF,
        }));
    }
    let Some(first) = others.iter().find(|own| own.differs()) else { return Ok(Vec::new()) };
    let Some(of_weights) = scope.trace().step(Name::SplitWeights) else { return Ok(Vec::new()) };
    let told = tr!(
        "{step}: split {part} weighs {found}, not {meant}{place}",
        step = step.name,
        part = first.part,
        found = short(round(first.found)),
        meant = short(round(first.meant)),
        place = place(of_weights, first)
    );
    let change = Change::before(1, more(&others, weights, |own| own.found - own.meant)?);
    let edits = vec![Edit::new(step.name, change)];
    Ok(vec![Candidate::new(Kind::Replaced, cost::FITTED, edits, told)])
}

/// Whether a row is another one but for rounding.
fn are_near(own: &[f64], other: &[f64]) -> bool {
    let size = own.iter().chain(other).fold(0.0, |most: f64, own| most.max(own.abs()));
    own.iter().zip(other).all(|(own, other)| (own - other).abs() <= ROUNDING * size)
}

/// Three digits, which is as much as is told of one row.
fn round(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}

/// What is added to a tensor of (part, item, head, query) where numbers are others.
fn more(reads: &[Read], x: &Tensor, of: impl Fn(&Read) -> f64) -> Result<Slip> {
    let rows = x.elem_count() / x.dim(0)?.max(1);
    let mut cells = vec![0.0; x.elem_count()];
    for own in reads {
        cells[own.part * rows + own.row] = of(own);
    }
    let cells = Tensor::from_vec(cells, x.shape(), x.device())?.to_dtype(DType::F64)?;
    Ok(Slip::Counted(Block { cells, fill: 0.0 }))
}

/// Where the first number is another one.
fn place(step: &Step, read: &Read) -> String {
    let shape = step.axes.shape();
    let rows: Vec<usize> = shape.iter().skip(1).take(3).copied().collect();
    match (unravel(read.row, &rows).as_slice(), step.axes.iter().next()) {
        ([item, head, query], Some((axis, _))) => tr!(
            " ({part_name} {part}, batch {item}, head {head}, query {query})",
            part_name = axis.told(),
            part = read.part,
            item,
            head,
            query
        ),
        _ => String::new(),
    }
}

/// The factors and maxima of tiles, each of (tile, row).
struct Tiles<'t> {
    rows: usize,
    factor: &'t [f64],
    largest: &'t [f64],
}

/// What gives a number, in words, and what it is in all tiles and rows.
type Known = (String, Vec<f64>);

impl Tiles<'_> {
    /// How many times what was there before, and what comes, give each row of a tile, where these are others than they should be;
    /// nothing where no such number gives a row.
    fn read(&self, all: &[Vec<Vec<f64>>], given: &[Vec<Vec<f64>>]) -> Option<[Vec<Read>; 2]> {
        let (mut before, mut coming) = (Vec::new(), Vec::new());
        let cells = (0..all.len()).flat_map(|part| (0..self.rows).map(move |row| (part, row)));
        let is_some = |row: &[f64]| row.iter().any(|own| *own != 0.0);
        for (part, row) in cells {
            let (own, given) = (&all[part][row], &given[part][row]);
            let meant = self.factor[part * self.rows + row];
            let old: &[f64] = if part > 0 { &all[part - 1][row] } else { &[] };
            let kept = |at: usize| meant * old.get(at).copied().unwrap_or_default();
            let right: Vec<f64> =
                given.iter().enumerate().map(|(at, own)| own + kept(at)).collect();
            if are_near(own, &right) {
                continue;
            }
            let rest: Vec<f64> = own.iter().zip(given).map(|(own, given)| own - given).collect();
            // Of one number it is not told from which of both it comes.
            let (kept, added) = if let Some(kept) =
                Some(old).filter(|old| is_some(old)).and_then(|old| shares(&rest, &[old]))
            {
                (kept[0], 1.0)
            } else if own.len() > 2 && is_some(old) && is_some(given) {
                let both = shares(own, &[old, given])?;
                (both[0], both[1])
            } else if own.len() > 1 && !is_some(old) && is_some(given) {
                (meant, shares(own, &[given])?[0])
            } else {
                return None;
            };
            let most = |row: &[f64]| row.iter().fold(0.0, |most: f64, own| most.max(own.abs()));
            let off = ROUNDING * most(own).max(most(given));
            let [of_old, of_given] = [old, given].map(|row| off / most(row).max(f64::MIN_POSITIVE));
            before.push(Read { part, row, found: kept, meant, off: of_old });
            coming.push(Read { part, row, found: added, meant: 1.0, off: of_given });
        }
        if before.iter().all(|own| !own.differs()) {
            before.clear();
        }
        if coming.iter().all(|own| !own.differs()) || coming.iter().any(|own| own.found <= 0.0) {
            coming.clear();
        }
        Some([before, coming])
    }

    /// What is told of such numbers of what was there before, or of what comes.
    fn told(&self, step: &Step, reads: &[Read], is_before: bool) -> Option<String> {
        let first = reads.iter().find(|own| own.differs())?;
        let name = self.name(reads);
        let (found, place) = match &name {
            Some((name, of)) => (name.clone(), self.places(step, reads, of)),
            None => (short(round(first.found)), place(step, first)),
        };
        let meant = short(round(first.meant));
        Some(match (is_before, name.is_some()) {
            (true, true) => tr!(
                "what was added up before is multiplied by {found}, not by exp(old maximum − new){place}",
                found,
                place
            ),
            (true, false) => tr!(
                "what was added up before is multiplied by {found}, not by exp(old maximum − new), {meant}{place}",
                found,
                meant,
                place
            ),
            (false, _) => tr!("what a tile gives is multiplied by {found}{place}", found, place),
        })
    }

    /// What gives the numbers that are read off, in all tiles and rows.
    fn name(&self, reads: &[Read]) -> Option<Known> {
        let factor = |at: usize| self.factor.get(at).copied().unwrap_or(f64::NAN);
        let before = |of: &[f64], at: usize| {
            at.checked_sub(self.rows).and_then(|at| of.get(at)).copied().unwrap_or(f64::NAN)
        };
        let new = |at: usize| self.largest.get(at).copied().unwrap_or(f64::NAN);
        let old = |at: usize| before(self.largest, at);
        let (ln_2, log2_e) = (std::f64::consts::LN_2, std::f64::consts::LOG2_E);
        let all: [(&str, &dyn Fn(usize) -> f64); 18] = [
            ("0", &|_| 0.0),
            ("1", &|_| 1.0),
            ("2", &|_| 2.0),
            ("1/2", &|_| 0.5),
            (tr!("exp(old maximum − new) squared"), &|at| factor(at).powi(2)),
            (tr!("the root of exp(old maximum − new)"), &|at| factor(at).sqrt()),
            (tr!("exp(new maximum − old)"), &|at| factor(at).recip()),
            (tr!("exp2(old maximum − new)"), &|at| factor(at).powf(ln_2)),
            (tr!("exp((old maximum − new) · log2 e)"), &|at| factor(at).powf(log2_e)),
            (tr!("exp(old maximum)"), &|at| old(at).exp()),
            (tr!("exp(new maximum)"), &|at| new(at).exp()),
            (tr!("exp(−old maximum)"), &|at| (-old(at)).exp()),
            (tr!("exp(−new maximum)"), &|at| (-new(at)).exp()),
            (tr!("exp(old maximum − new) of the tile before"), &|at| before(self.factor, at)),
            (tr!("exp(old maximum − new) of the next tile"), &|at| factor(at + self.rows)),
            (tr!("old maximum − new"), &|at| old(at) - new(at)),
            (tr!("1 + exp(old maximum − new)"), &|at| 1.0 + factor(at)),
            (tr!("1 − exp(old maximum − new)"), &|at| 1.0 - factor(at)),
        ];
        let is = |of: &dyn Fn(usize) -> f64| {
            reads.iter().all(|own| own.is(of(own.part * self.rows + own.row)))
        };
        let at_all = |of: &dyn Fn(usize) -> f64| (0..self.factor.len()).map(of).collect();
        if let Some((name, of)) = all.into_iter().find(|(_, of)| is(of)) {
            return Some((name.to_owned(), at_all(of)));
        }
        let sure = |own: &&Read| own.off < NEAR * own.found.abs();
        let first = reads.iter().find(sure).filter(|_| reads.len() >= LEAST_CELLS)?;
        let times = first.found / first.meant;
        let own = |at: usize| times * factor(at);
        let number = short(round(times));
        let name = tr!("{number} · exp(old maximum − new)", number);
        (times.is_finite() && is(&own)).then(|| (name, at_all(&own)))
    }

    /// In which tiles numbers are others, and in which of their rows, where others would show it too.
    fn places(&self, step: &Step, reads: &[Read], of: &[f64]) -> String {
        let shape = step.axes.shape();
        let queries = shape.get(3).copied().unwrap_or(1).max(1);
        let tiles: BTreeSet<usize> = reads.iter().map(|own| own.part).collect();
        let cells = || reads.iter().map(|own| (own.part, own.row)).collect::<BTreeSet<_>>();
        let shows = |part: usize, row: usize| {
            let at = part * self.rows + row;
            differ(
                of.get(at).copied().unwrap_or(f64::NAN),
                self.factor.get(at).copied().unwrap_or_default(),
            )
        };
        let of_tile = |part: usize| {
            (0..self.rows).filter(move |row| shows(part, *row)).map(move |row| (part, row))
        };
        let known = cells();
        let mut told = Vec::new();
        let all =
            (1..shape.first().copied().unwrap_or(1)).filter(|part| of_tile(*part).next().is_some());
        if all.clone().any(|part| !tiles.contains(&part)) {
            let tiles: Vec<usize> = tiles.iter().copied().collect();
            told.push(format!(", {}", places_in_words(Axis::Tile, &tiles)));
        }
        if tiles.iter().flat_map(|part| of_tile(*part)).any(|cell| !known.contains(&cell)) {
            let rows: BTreeSet<usize> = reads.iter().map(|own| own.row % queries).collect();
            let rows: Vec<usize> = rows.into_iter().collect();
            told.push(format!(", {}", places_in_words(Axis::Query, &rows)));
        }
        told.concat()
    }
}

/// Whether two factors are not the same.
fn differ(one: f64, other: f64) -> bool {
    let are_near = (one - other).abs() <= NEAR * one.abs().max(other.abs()).max(OFF);
    !are_near
}
