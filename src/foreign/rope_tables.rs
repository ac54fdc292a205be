//! Which rotary frequencies were the tables of cosines and sines made of that a file holds?

use candle_core::Tensor;

use super::names::is_called;
use super::numbers::{numbers, written};
use base::error::Result;
use file::{Entry, Record};
use program::Pairing;

/// What people call the two tables, in lower case.
const TABLES: &[[&str; 2]] =
    &[["cos", "sin"], ["rope_cos", "rope_sin"], ["cos_cached", "sin_cached"]];

/// How far cosine and sine are from those of an angle.
const EXACT: f64 = 1e-4;

/// What tables of cosines and sines tell.
#[derive(Clone)]
pub struct Tables {
    /// Their frequencies, named as the tables.
    pub freqs: Entry,
    /// Which features are a pair, where they have a column for both.
    pub pairing: Option<Pairing>,
    /// What they are multiplied by, unless that is 1.
    pub factor: Option<f64>,
    /// The cosines and sines, where their rows are not those of positions 0, 1, 2, …, which alone tell the frequencies.
    pub elsewhere: Option<[Tensor; 2]>,
}

impl Tables {
    /// The same frequencies as a module has them.
    pub fn of_module(mut freqs: Entry) -> Self {
        // Axes of one place say nothing.
        let is_row = freqs.tensor.dims().iter().max() == Some(&freqs.tensor.elem_count());
        if let Ok(flat) = freqs.tensor.flatten_all()
            && is_row
        {
            freqs.tensor = flat;
        }
        Self { freqs, pairing: None, factor: None, elsewhere: None }
    }

    /// The positions (item, token) that the rows of the tables are of, where these are their frequencies.
    ///
    /// # Errors
    /// If candle fails.
    pub fn positions(&self, freqs: &[f64]) -> Result<Option<Tensor>> {
        let Some([cos, sin]) = &self.elsewhere else { return Ok(None) };
        let (&[.., rows, width], Some(slowest)) =
            (cos.dims(), (0..freqs.len()).min_by(|l, r| freqs[*l].total_cmp(&freqs[*r])))
        else {
            return Ok(None);
        };
        let pairs = freqs.len();
        let pair = |column: usize| match self.pairing {
            _ if width == pairs => column,
            Some(Pairing::Interleaved) => column / 2,
            _ => column % pairs,
        };
        if width != pairs && width != 2 * pairs {
            return Ok(None);
        }
        let [cosines, sines] = [numbers(cos)?, numbers(sin)?];
        let factor = self.factor.unwrap_or(1.0);
        let turn = std::f64::consts::TAU;
        let mut positions = Vec::new();
        for (cosines, sines) in cosines.chunks(width).zip(sines.chunks(width)) {
            let Some(at) = (0..width).find(|column| pair(*column) == slowest) else { break };
            let angle = sines[at].atan2(cosines[at]).rem_euclid(turn);
            // An angle just below a whole turn is that of position 0.
            let position = (angle / freqs[slowest]).round();
            let is_of = |position: &f64| {
                (0..width).all(|column| {
                    let (sine, cosine) = (position * freqs[pair(column)]).sin_cos();
                    let is_near = |own: f64, angle: f64| (own - factor * angle).abs() < EXACT;
                    is_near(sines[column], sine) && is_near(cosines[column], cosine)
                })
            };
            let Some(position) = [position, 0.0].into_iter().find(is_of) else { return Ok(None) };
            positions.push(position);
        }
        let items = positions.len().checked_div(rows).unwrap_or_default();
        Ok(Some(Tensor::from_vec(positions, (items, rows), cos.device())?))
    }
}

/// Takes tables of cosines and sines out of a file, as the frequencies that they are of. They tell those where their first
/// row is of position 0, and each row one position further.
///
/// # Errors
/// If candle fails.
pub fn take_tables(record: &mut Record) -> Result<Option<Tables>> {
    for names in TABLES {
        let named = |name: &str| {
            let is_it = |entry: &Entry| is_called(&entry.name, &[name]);
            record.entries.iter().position(is_it)
        };
        let [Some(cos), Some(sin)] = names.map(named) else { continue };
        let [cos, sin] = [cos, sin].map(|at| record.entries[at].clone());
        let own = frequencies(&cos.tensor, &sin.tensor)?;
        let (found, factor, elsewhere) = if let Some(found) = own {
            (found, written(&cos.tensor)?.first().copied(), None)
        } else {
            let of_some = of_some_angles(&cos.tensor, &sin.tensor)?;
            let Some((pairing, factor)) = of_some else { continue };
            let tables = [cos.tensor.clone(), sin.tensor.clone()];
            ((cos.tensor.clone(), pairing), Some(factor), Some(tables))
        };
        let (freqs, pairing) = found;
        let factor = factor.filter(|factor| (factor - 1.0).abs() >= EXACT);
        record.entries.retain(|entry| entry.name != cos.name && entry.name != sin.name);
        let freqs = Entry::of(format!("{}, {}", cos.name, sin.name), freqs);
        return Ok(Some(Tables { freqs, pairing, factor, elsewhere }));
    }
    Ok(None)
}

/// The frequencies of tables (…, position, feature), one a pair of features, and which features are a pair where the tables
/// have a column for both.
fn frequencies(cos: &Tensor, sin: &Tensor) -> Result<Option<(Tensor, Option<Pairing>)>> {
    let [.., rows, width] = *cos.dims() else { return Ok(None) };
    if cos.dims() != sin.dims() || rows < 2 || width == 0 {
        return Ok(None);
    }
    let [cosines, sines] = [numbers(cos)?, numbers(sin)?];
    // The cosine of position 0 is 1.
    let Some(factor) = cosines.first().copied().filter(|factor| *factor > 0.0) else {
        return Ok(None);
    };
    let freqs: Vec<f64> =
        (0..width).map(|at| sines[width + at].atan2(cosines[width + at])).collect();
    let is_of_angle = |at: usize| {
        let (sine, cosine) = (freqs[at % width] * (at / width % rows) as f64).sin_cos();
        let is_it = |found: f64, angle: f64| (found - factor * angle).abs() < EXACT;
        is_it(sines[at], sine) && is_it(cosines[at], cosine)
    };
    if !(0..cosines.len()).all(is_of_angle) {
        return Ok(None);
    }
    let pairing = pairing(&freqs);
    let own: Vec<f64> = match pairing {
        Some(Pairing::Half) => freqs[..width / 2].to_vec(),
        Some(Pairing::Interleaved) => freqs.into_iter().step_by(2).collect(),
        None => freqs,
    };
    Ok(Some((Tensor::from_vec(own.clone(), own.len(), cos.device())?, pairing)))
}

/// Which columns of a row of tables are of one pair of features, where there is a column for both.
fn pairing(row: &[f64]) -> Option<Pairing> {
    let (first, second) = row.split_at(row.len() / 2);
    let bits = |number: Option<&f64>| number.map(|number| number.to_bits());
    let in_pairs = || row.chunks(2).all(|pair| bits(pair.first()) == bits(pair.last()));
    match () {
        // One column is a pair of itself.
        () if first.len() < 2 => None,
        () if first == second => Some(Pairing::Half),
        () if in_pairs() => Some(Pairing::Interleaved),
        () => None,
    }
}

/// Of tables whose cells are cosines and sines of some angles: which features are a pair, and what they are multiplied by.
fn of_some_angles(cos: &Tensor, sin: &Tensor) -> Result<Option<(Option<Pairing>, f64)>> {
    let [.., width] = *cos.dims() else { return Ok(None) };
    let [cosines, sines] = [numbers(cos)?, numbers(sin)?];
    let lengths: Vec<f64> = cosines.iter().zip(&sines).map(|(c, s)| c.hypot(*s)).collect();
    let Some(factor) = lengths.first().copied().filter(|factor| *factor > 0.0) else {
        return Ok(None);
    };
    let is_it = cos.dims() == sin.dims() && lengths.iter().all(|own| (own - factor).abs() < EXACT);
    // At position 0 all angles are one.
    let row = sines.chunks(width).find(|row| row.iter().any(|sine| *sine != 0.0));
    Ok(row.filter(|_| is_it).map(|row| (pairing(row), factor)))
}
