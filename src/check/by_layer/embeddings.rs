//! Which rows of its matrix did an embedding of the port read, where these are not those that the reference read?

use std::collections::BTreeSet;

use candle_core::{DType, Tensor};

use super::measure::apart;
use super::sides::{Row, Side, Sides};
use base::error::{Result, shown};
use file::Bundle;
use foreign::{ModelPart, Node};
use program::wide;

/// So many rows are looked at.
const MANY: usize = 256;
/// So many are told.
const MOST_TOLD: usize = 8;

/// Which rows an embedding of the port read in place of others, by what went into it, or by the matrix itself.
pub fn other_rows(sides: &Sides, at: usize, tolerance: f64) -> Result<Option<String>> {
    let (Some(node), Some(rows)) = (sides.nodes().get(at), sides.pairs(at, MANY)) else {
        return Ok(None);
    };
    let Some([meant, own]) = read(sides, at, &rows, tolerance)? else { return Ok(None) };
    let differing: Vec<usize> =
        (0..rows.len()).filter(|at| meant.get(*at) != own.get(*at)).collect();
    if differing.is_empty() {
        return Ok(None);
    }
    let told = |all: &[i64]| {
        let few = differing.iter().take(MOST_TOLD).filter_map(|at| all.get(*at));
        let mut few: Vec<String> = few.map(i64::to_string).collect();
        few.extend((differing.len() > MOST_TOLD).then(|| "…".to_owned()));
        few.join(", ")
    };
    let (name, read) = (shown(&node.path), told(&own));
    // Whether rows go on as the places of tokens do, with the padding among them.
    let follows = |all: &[i64]| {
        let place = |row: &Row| i64::try_from(sides.alignment.place(row.pass, row.right)).ok();
        let starts = all.iter().zip(&rows).map(|(own, row)| Some(own - place(row)?));
        let starts: Option<Vec<i64>> = starts.collect();
        starts.is_some_and(|starts| starts.windows(2).all(|pair| pair[0] == pair[1]))
    };
    let counts_padding = follows(&own) && !follows(&meant);
    let meant = told(&meant);
    Ok(Some(if counts_padding {
        tr!(
            "it reads rows {read} of {name} where {meant} are meant: the padding before the tokens is counted among their positions",
            read,
            name,
            meant
        )
    } else {
        tr!("it reads rows {read} of {name} where {meant} are meant", read, name, meant)
    }))
}

/// The rows of its matrix that an embedding read for some of its rows, in the reference and in the port.
fn read(sides: &Sides, at: usize, rows: &[Row], tolerance: f64) -> Result<Option<[Vec<i64>; 2]>> {
    let Some(node) = sides.nodes().get(at) else { return Ok(None) };
    let of_left = went_in(&sides.left, 0, node)?;
    let meant: Option<Option<Vec<i64>>> =
        of_left.map(|all| rows.iter().map(|row| all.get(row.left).copied()).collect());
    let mut of_right = Vec::new();
    for (pass, place) in sides.beside.get(at).into_iter().flatten().enumerate() {
        let other = place.and_then(|place| sides.right.nodes.get(pass)?.get(place));
        of_right.push(other.map(|other| went_in(&sides.right, pass, other)).transpose()?.flatten());
    }
    let own: Option<Vec<i64>> =
        rows.iter().map(|row| of_right.get(row.pass)?.as_ref()?.get(row.right).copied()).collect();
    let numbers = sides.of_pairs(at, rows)?;
    if let (Some(Some(meant)), Some(own), Some(numbers)) = (meant, own, &numbers)
        && say_which(&meant, &own, numbers, tolerance)?
    {
        return Ok(Some([meant, own]));
    }
    let parameters = sides.left.parameters(&node.path)?;
    let matrix = parameters
        .iter()
        .find(|(_, own)| own.rank() == 2 && own.dims().last() == Some(&node.width()));
    let (Some((_, matrix)), Some([meant, own])) = (matrix, numbers) else {
        return Ok(None);
    };
    let matrix = wide(matrix)?.to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let near = |own: &[f32], row: &[f32]| {
        let size = row.iter().fold(0.0, |most, own| f32::max(most, own.abs()));
        own.iter().zip(row).all(|(l, r)| f64::from((l - r).abs()) <= tolerance * f64::from(size))
    };
    let found = |own: &Vec<f32>| {
        let place = matrix.iter().position(|row| near(own, row))?;
        i64::try_from(place).ok()
    };
    let of = |own: &Tensor| -> Result<Option<Vec<i64>>> {
        let rows = own.to_dtype(DType::F32)?.flatten_to(1)?.to_vec2::<f32>()?;
        Ok(rows.iter().map(found).collect())
    };
    Ok(of(&meant)?.zip(of(&own)?).map(|(meant, own)| [meant, own]))
}

/// Whether whole numbers say which rows were read: rows are the same where these are, and no others are.
fn say_which(
    meant: &[i64],
    own: &[i64],
    [left, right]: &[Tensor; 2],
    tolerance: f64,
) -> Result<bool> {
    for (at, (meant, own)) in meant.iter().zip(own).enumerate() {
        let row = |of: &Tensor| of.narrow(1, at, 1)?.contiguous();
        if (apart(&row(left)?, &row(right)?)? <= tolerance) != (meant == own) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The whole numbers that went into an embedding, where they were recorded: one for each of its rows.
fn went_in(side: &Side, pass: usize, node: &Node) -> Result<Option<Vec<i64>>> {
    let Some(file) = side.ranks.passes.get(pass) else { return Ok(None) };
    let mut names: Vec<String> =
        [".in", "/in", ".input"].map(|end| format!("{}{end}", node.path)).into();
    // A recording says what each module was called with: `Embedding(position_ids)`.
    let call = file.infos().get(node.at).and_then(|info| info.formula.as_deref());
    let read = call.and_then(|call| call.split_once('(')?.1.split([',', ')']).next());
    names.extend(read.map(str::to_owned));
    numbers(file, &names, node.rows())
}

/// So many whole numbers of the first tensor of these names.
fn numbers(file: &Bundle, names: &[String], count: usize) -> Result<Option<Vec<i64>>> {
    let is_it = |name: &String| {
        let mut infos = file.infos().iter();
        infos.position(|info| {
            info.name == *name
                && !info.dtype.is_float()
                && info.shape.iter().product::<usize>() == count
        })
    };
    let Some(at) = names.iter().find_map(is_it) else { return Ok(None) };
    Ok(Some(file.some_of(at, 0, count)?.to_dtype(DType::I64)?.to_vec1()?))
}

/// The words of some rows of an embedding, and these rows on both sides; nothing where words of some are not known.
fn of_words(sides: &Sides, at: usize) -> Result<Option<(Vec<i64>, [Tensor; 2])>> {
    let (Some(node), Some(rows)) = (sides.nodes().get(at), sides.pairs(at, MANY)) else {
        return Ok(None);
    };
    let Some(file) = sides.left.ranks.passes.first() else { return Ok(None) };
    let words = numbers(file, &["input_ids".to_owned()], node.rows())?;
    let Some(all) = went_in(&sides.left, 0, node)?.or(words) else { return Ok(None) };
    let ids: Option<Vec<i64>> = rows.iter().map(|row| all.get(row.left).copied()).collect();
    Ok(ids.zip(sides.of_pairs(at, &rows)?))
}

/// That ranks which hold a part of the words each add a row of theirs for words of other ranks, too: what is added is one row
/// for all words of a rank, as that is the row of the nearest word, or of the first, of each other rank.
pub fn not_zeroed(sides: &Sides, at: usize, tolerance: f64) -> Result<Option<String>> {
    let Some((ids, [meant, own])) = of_words(sides, at)? else { return Ok(None) };
    let mut order: Vec<(i64, usize)> = ids.into_iter().zip(0..).collect();
    order.sort_unstable();
    let added = own.sub(&meant)?;
    let row = |of: &Tensor, at: usize| of.narrow(1, at, 1);
    // The first words of the ranks, but for the first one, and how many words were seen.
    let (mut starts, mut words) = (Vec::new(), 1);
    for pair in order.windows(2) {
        let [(before, one), (id, other)] = *pair else { continue };
        words += usize::from(before != id);
        let shift = row(&added, other)?.sub(&row(&added, one)?)?;
        // As large as the rows themselves are what was subtracted is exact to.
        let (expected, found) = (row(&own, other)?.sub(&shift)?, row(&own, other)?);
        if apart(&expected, &found)? > 4.0 * tolerance {
            starts.push((before, id));
        }
    }
    let count = sides.right.ranks.count;
    let [(last, first), ..] = starts[..] else { return Ok(None) };
    if starts.len() >= count || words < 2 * (starts.len() + 1) || apart(&meant, &own)? <= tolerance
    {
        return Ok(None);
    }
    Ok(Some(tr!(
        "each of the {count} ranks adds a row of its own for the words of other ranks, too, where it should add 0: to all words up to {last} one row is added, and another one to those from {first} on",
        count,
        last,
        first
    )))
}

/// That just the words are off which are the first ones of their ranks: another rank has them, too.
pub fn at_edges(sides: &Sides, at: usize, tolerance: f64) -> Result<Option<String>> {
    let Some((ids, [meant, own])) = of_words(sides, at)? else { return Ok(None) };
    let logits = sides.nodes().iter().rfind(|node| node.part == ModelPart::Logits);
    let share = logits.map_or(0, Node::width) / sides.right.ranks.count;
    let Some(share) = i64::try_from(share).ok().filter(|share| *share > 1) else {
        return Ok(None);
    };
    let mut off = BTreeSet::new();
    for (place, id) in ids.into_iter().enumerate() {
        let row = |of: &Tensor| of.narrow(1, place, 1);
        let is_off = apart(&row(&meant)?, &row(&own)?)? > tolerance;
        if is_off != (id > 0 && id % share == 0) {
            return Ok(None);
        }
        off.extend(is_off.then(|| id.to_string()));
    }
    let words = off.into_iter().collect::<Vec<_>>().join(", ");
    Ok((!words.is_empty()).then(|| {
        tr!("just the rows of words {words} are off, the first of those that a rank has: the rank before adds a row of its own for them", words)
    }))
}

/// That the port's logits are what its own input gives with the rows of the embedding for the words that were read, and the
/// reference's are not: the matrix of the logits is that of the embedding.
pub fn tied(sides: &Sides, at: usize, tolerance: f64) -> Result<Option<String>> {
    let nodes = sides.nodes();
    let (Some(node), Some(place)) =
        (nodes.get(at), nodes.iter().position(|node| node.part == ModelPart::Embedding))
    else {
        return Ok(None);
    };
    let [input] = node.reads[..] else { return Ok(None) };
    let rows = sides.some_rows(at, 0, MANY);
    let (Some((ids, [_, words])), Some([meant_x, x]), Some([meant, own])) =
        (of_words(sides, place)?, sides.picked_by(input, at, &rows)?, sides.picked(at, &rows)?)
    else {
        return Ok(None);
    };
    let ids: Vec<u32> = ids.into_iter().filter_map(|id| u32::try_from(id).ok()).collect();
    let width = u32::try_from(node.width()).unwrap_or(u32::MAX);
    let are_few = ids.iter().collect::<BTreeSet<_>>().len() < LEAST_WORDS;
    if ids.len() != words.dim(1)?
        || are_few
        || ids.iter().any(|id| *id >= width)
        || words.dim(2)? != x.dim(2)?
    {
        return Ok(None);
    }
    let ids = Tensor::from_vec(ids, words.dim(1)?, words.device())?;
    let off = |x: &Tensor, logits: &Tensor| -> Result<f64> {
        let given = x.squeeze(0)?.matmul(&words.squeeze(0)?.t()?)?.unsqueeze(0)?;
        apart(&logits.contiguous()?.index_select(&ids, 2)?, &given)
    };
    let is_it = off(&x, &own)? <= 4.0 * tolerance && off(&meant_x, &meant)? > 4.0 * tolerance;
    let name = nodes.get(place).map_or("", |node| node.path.as_str());
    Ok(is_it.then(|| {
        tr!(
            "its matrix is that of {name}, as where the two are tied: the reference's is one of its own, which was not loaded",
            name = shown(name)
        )
    }))
}

/// Fewer words than these say nothing of a matrix.
const LEAST_WORDS: usize = 3;
