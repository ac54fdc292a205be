//! Where do the rows of a port's parameter stand in the parameters of the reference?

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use candle_core::{DType, Tensor};

use base::error::{Result, listed, shown};
use program::wide;

/// A row of a parameter of the reference: which one, and which of its rows.
type Place = (usize, usize);

/// The rows of the parameters of a part of the reference, by their numbers.
pub struct Rows<'a> {
    meant: &'a [(String, Tensor)],
    /// Those that were looked up, by the type in which.
    known: HashMap<DType, HashMap<u64, Vec<Place>>>,
    /// Parameters of the port all of whose rows are rows of the reference, and where these stand.
    found: Vec<(String, Vec<Place>)>,
}

/// More runs of rows than that are no pieces.
const MOST_RUNS: usize = 8;

impl<'a> Rows<'a> {
    pub fn new(meant: &'a [(String, Tensor)]) -> Self {
        Self { meant, known: HashMap::new(), found: Vec::new() }
    }

    /// What a parameter of the port is made of, where all its rows are rows of the reference.
    pub fn told(&mut self, name: &str, own: &Tensor) -> Result<Option<String>> {
        let Some(places) = self.places(name, own)? else { return Ok(None) };
        let source = |at: usize| self.meant.get(at).map_or("", |(name, _)| name.as_str());
        let is_itself = |(at, _): &Place| source(*at) == name;
        let of_itself: Option<Vec<usize>> =
            places.iter().map(|place| is_itself(place).then_some(place.1)).collect();
        let shown_name = shown(name).into_owned();
        let told = match of_itself.filter(|order| is_each_once(order)) {
            Some(order) if own.rank() > 2 => Some(tr!(
                "its parameter {name} has the reference's experts in another order: {order}",
                name = shown_name,
                order = listed(&order.iter().map(usize::to_string).collect::<Vec<_>>())
            )),
            Some(order) => Some(match exchanged(&order).ok_or_else(|| heads_of(&order)) {
                Ok([one, other]) => tr!(
                    "of its parameter {name} the rows {one} and {other} change places",
                    name = shown_name,
                    one,
                    other
                ),
                Err(Some((heads, true))) => tr!(
                    "its parameter {name} has the reference's rows in another order: that of neighbouring pairs for {heads} heads, as llama.cpp's permute makes it",
                    name = shown_name,
                    heads
                ),
                Err(Some((heads, false))) => tr!(
                    "its parameter {name} has the reference's rows in another order: that of halves for {heads} heads, where neighbours were paired",
                    name = shown_name,
                    heads
                ),
                Err(None) => {
                    tr!(
                        "its parameter {name} has the reference's rows in another order",
                        name = shown_name
                    )
                }
            }),
            None => self.in_pieces(&places).map(|pieces| {
                tr!(
                    "its parameter {name} holds {pieces} of the reference",
                    name = shown_name,
                    pieces
                )
            }),
        };
        self.found.push((name.to_owned(), places));
        Ok(told)
    }

    /// Rows one behind the other in words: `rows 0 to 39 of gate_proj.weight`; nothing where there are too many runs.
    fn in_pieces(&self, places: &[Place]) -> Option<String> {
        let runs: Vec<&[Place]> =
            places.chunk_by(|one, next| one.0 == next.0 && one.1 + 1 == next.1).collect();
        if runs.len() > MOST_RUNS {
            return None;
        }
        let told = |run: &&[Place]| {
            let ((source, first), (_, last)) = (*run.first()?, *run.last()?);
            let (name, _) = self.meant.get(source)?;
            Some(tr!("rows {first} to {last} of {name}", first, last, name = shown(name)))
        };
        runs.iter().map(told).collect::<Option<Vec<_>>>().map(|all| listed(&all))
    }

    /// That each rank holds rows of one parameter alone, where it should hold some of several: as where these stand one behind
    /// the other in one matrix, and that is cut into as many pieces as there are ranks.
    pub fn of_ranks(&self, ranks: usize) -> Option<String> {
        if ranks < 2 || self.found.len() < 2 {
            return None;
        }
        let mut told = Vec::new();
        for rank in 0..ranks {
            let own = self.found.iter().flat_map(|(_, places)| {
                let each = places.len() / ranks;
                places.iter().skip(rank * each).take(each)
            });
            let mut sources: Vec<usize> = own.map(|(source, _)| *source).collect();
            sources.dedup();
            let [only] = sources[..] else { return None };
            let (name, _) = self.meant.get(only)?;
            told.push(tr!("rank {rank} of {name} alone", rank, name = shown(name)));
        }
        let names: Vec<&str> = self.found.iter().map(|(name, _)| name.as_str()).collect();
        let (names, each) = (shown(&names.join(", ")).into_owned(), listed(&told));
        Some(tr!(
            "of {names} the ranks hold rows of one each, {each}: these stand one behind the other in one matrix, and that is cut, not each of them",
            names,
            each
        ))
    }

    /// Where the rows of a parameter stand in the reference: in that of its name, if there.
    fn places(&mut self, name: &str, own: &Tensor) -> Result<Option<Vec<Place>>> {
        let dtype = own.dtype();
        if !self.known.contains_key(&dtype) {
            let mut known: HashMap<u64, Vec<Place>> = HashMap::new();
            for (source, (_, tensor)) in self.meant.iter().enumerate() {
                // A reference in f32 has these numbers before they were rounded.
                let rounded =
                    if dtype.is_float() { tensor.to_dtype(dtype)? } else { tensor.clone() };
                for (row, hash) in hashes(&rounded)?.into_iter().enumerate() {
                    known.entry(hash).or_default().push((source, row));
                }
            }
            self.known.insert(dtype, known);
        }
        let Some(known) = self.known.get(&dtype) else { return Ok(None) };
        let of = |hash: &u64| {
            let all = known.get(hash)?;
            let is_own = |(source, _): &&Place| {
                self.meant.get(*source).is_some_and(|(other, _)| other == name)
            };
            all.iter().find(is_own).or(all.first()).copied()
        };
        Ok(hashes(own)?.iter().map(of).collect())
    }
}

/// A number for each row, those of its first axis, which equal rows share.
fn hashes(tensor: &Tensor) -> Result<Vec<u64>> {
    let wide = wide(tensor)?;
    let rows = match wide.rank() {
        0 => return Ok(Vec::new()),
        1 => wide.unsqueeze(1)?,
        _ => wide.flatten_from(1)?,
    };
    let rows = rows.to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let hash = |row: &Vec<f32>| {
        let mut hasher = DefaultHasher::new();
        for own in row {
            own.to_bits().hash(&mut hasher);
        }
        hasher.finish()
    };
    Ok(rows.iter().map(hash).collect())
}

fn is_each_once(order: &[usize]) -> bool {
    let mut sorted = order.to_vec();
    sorted.sort_unstable();
    sorted.iter().enumerate().all(|(at, own)| at == *own)
}

/// The two rows that change places, where all others stand where they should.
fn exchanged(order: &[usize]) -> Option<[usize; 2]> {
    let moved = order.iter().enumerate().filter(|(at, own)| at != *own);
    <[usize; 2]>::try_from(moved.map(|(at, _)| at).collect::<Vec<_>>()).ok()
}

/// For how many heads an order is that of neighbouring pairs, of rows whose halves were paired, or the other way round.
fn heads_of(order: &[usize]) -> Option<(usize, bool)> {
    let width = order.len();
    // Heads have some pairs each.
    let fitting = (1..=width / 4).filter(|heads| width.is_multiple_of(2 * heads));
    fitting.into_iter().find_map(|heads| {
        let half = width / heads / 2;
        let place = |at: usize| {
            let (head, within) = (at / (2 * half), at % (2 * half));
            head * 2 * half + within % 2 * half + within / 2
        };
        let pairs = order.iter().enumerate().all(|(at, own)| place(at) == *own);
        let halves = order.iter().enumerate().all(|(at, own)| place(*own) == at);
        (pairs || halves).then_some((heads, pairs))
    })
}
