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
        let Some((freqs, pairing)) = frequencies(&cos.tensor, &sin.tensor)? else { continue };
        let factor = written(&cos.tensor)?.first().copied();
        let factor = factor.filter(|factor| (factor - 1.0).abs() >= EXACT);
        record.entries.retain(|entry| entry.name != cos.name && entry.name != sin.name);
        let freqs = Entry::of(format!("{}, {}", cos.name, sin.name), freqs);
        return Ok(Some(Tables { freqs, pairing, factor }));
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
    #[allow(clippy::cast_precision_loss, reason = "a file has few positions")]
    let is_of_angle = |at: usize| {
        let (sine, cosine) = (freqs[at % width] * (at / width % rows) as f64).sin_cos();
        let is_it = |found: f64, angle: f64| (found - factor * angle).abs() < EXACT;
        is_it(sines[at], sine) && is_it(cosines[at], cosine)
    };
    if !(0..cosines.len()).all(is_of_angle) {
        return Ok(None);
    }
    let (first, second) = freqs.split_at(width / 2);
    let bits = |freq: Option<&f64>| freq.map(|freq| freq.to_bits());
    let in_pairs = || freqs.chunks(2).all(|pair| bits(pair.first()) == bits(pair.last()));
    let (own, pairing): (Vec<f64>, _) = match () {
        () if first == second => (first.to_vec(), Some(Pairing::Half)),
        () if in_pairs() => (freqs.into_iter().step_by(2).collect(), Some(Pairing::Interleaved)),
        () => (freqs, None),
    };
    // One column is a pair of itself.
    let pairing = pairing.filter(|_| own.len() > 1);
    Ok(Some((Tensor::from_vec(own.clone(), own.len(), cos.device())?, pairing)))
}
