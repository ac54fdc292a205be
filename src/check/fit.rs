//! Which number comes nearest to what was recorded?

use super::candidate::Candidate;
use super::cells::{cells, is_number};
use super::mistakes::Range;
use super::scope::Scope;
use super::thresholds::{AS_LOWERED, AS_MEANT};
use base::error::Result;
use program::Name;

/// A number that a candidate leaves open.
pub struct Free<'f> {
    /// The number that is meant.
    pub meant: f64,
    pub range: Range,
    /// The numbers that people write there.
    pub usual: Vec<f64>,
    /// Whether one or two digits are all that rounding leaves of it.
    pub is_rough: bool,
    /// The candidate with this number; nothing where that makes no sense.
    pub with: Box<dyn Fn(f64) -> Option<Candidate> + 'f>,
}

impl Free<'_> {
    /// The candidates that a fitted number may stand for: with the plain one that is so near, and with itself.
    pub fn candidates(&self, fitted: f64) -> Vec<Candidate> {
        // Rounding alone fits a number that is as good as the meant one.
        if (fitted - self.meant).abs() <= AS_MEANT * self.meant.abs() {
            return Vec::new();
        }
        let near = |value: &&f64| (*value - fitted).abs() <= 2e-3 * value.abs();
        let plain = self.usual.iter().find(near).copied().or_else(|| rounded(fitted));
        let stated = if self.range == Range::Stated { stated(fitted) } else { Some(fitted) };
        // So does that of fewer bits, in whose place nobody writes a number of many digits.
        let is_lowered = matches!(self.range, Range::Factor | Range::Positive)
            && (fitted - self.meant).abs() <= AS_LOWERED * self.meant.abs();
        let stated = stated.filter(|_| plain.is_some() || !is_lowered);
        let rough = few_digits(fitted).into_iter().filter(|_| self.is_rough);
        rough
            .chain(plain.filter(|_| stated.is_some()))
            .chain(stated)
            .filter_map(&self.with)
            .collect()
    }
}

/// A number with so many digits.
fn with_digits(number: f64, digits: usize) -> Option<f64> {
    format!("{number:.*e}", digits - 1).parse().ok()
}

/// The number with few digits that is so near that the difference tells nothing.
fn rounded(fitted: f64) -> Option<f64> {
    let is_near = |value: &f64| (value - fitted).abs() <= 1e-4 * fitted.abs();
    (1..=3).filter_map(|digits| with_digits(fitted, digits)).find(is_near)
}

/// The numbers of one digit and of two that a fitted one may stand for.
fn few_digits(fitted: f64) -> Vec<f64> {
    let is_near = |value: &f64| (value - fitted).abs() <= 0.1 * fitted.abs();
    (1..=2).filter_map(|digits| with_digits(fitted, digits)).filter(is_near).collect()
}

/// The number of a config that a fitted one stands for: whole, or of few digits. One that is neither is none, as a few
/// frequencies would fit any number.
fn stated(fitted: f64) -> Option<f64> {
    let whole = Some(fitted.round()).filter(|whole| (whole - fitted).abs() <= 1e-3 * fitted.abs());
    whole.filter(|whole| *whole >= 1.0).or_else(|| rounded(fitted))
}

/// How many points of a wide range are tried before the best is refined, to each side.
const GRID: i32 = 80;

/// How far a point of the grid is from the next, as a power of e.
const SPACING: f64 = 0.25;

/// The largest score that is tried, and with the other sign the lowest.
const SCORES: i32 = 20;

/// So many times the best is made better at most; it is the best long before.
const ITERATIONS: usize = 30;

/// What no number would be further off by, so that fills of masks do not outweigh all else.
const FAR: f64 = 1e3;

/// The search for numbers, in the smallest of some scopes that shows a candidate.
pub struct Fitter<'s, 'a> {
    pub whole: &'s Scope<'a>,
    /// Parts of the run, the smallest first.
    pub parts: &'s [Scope<'a>],
    /// Whether the run is so large that a number which no part shows is not looked for.
    pub is_large: bool,
    /// The recorded steps that are wrong.
    pub wrong: &'s [Name],
}

impl Fitter<'_, '_> {
    /// The numbers that come nearest to what was recorded.
    pub fn fit(&self, free: &Free) -> Result<Vec<f64>> {
        let best = match free.range {
            // What is meant changes nothing, which says nothing of how to go on.
            Range::Factor => {
                let start = if free.meant == 0.0 { 1.0 } else { 1.5 * free.meant };
                self.refined(free, start, |number| number, f64::INFINITY)?
            }
            Range::Positive | Range::Stated => {
                let centre = if free.meant > 0.0 { free.meant.ln() } else { 1e-6_f64.ln() };
                let grid = (-GRID..=GRID).map(|at| centre + f64::from(at) * SPACING);
                let Some(start) = self.nearest(free, grid.map(f64::exp))? else {
                    return Ok(Vec::new());
                };
                self.refined(free, start.ln(), f64::exp, SPACING)?
            }
            Range::Whole(from, to) => self.nearest(free, (from..=to).map(|at| at as f64))?,
            Range::Cell => return self.extremes(),
            Range::Score => {
                let grid = (-SCORES..=SCORES).map(f64::from);
                let Some(start) = self.nearest(free, grid)? else { return Ok(Vec::new()) };
                self.refined(free, start, |number| number, 1.0)?
            }
        };
        Ok(best.into_iter().filter(|number| number.is_finite()).collect())
    }

    /// The scopes in which a number is looked for, the smallest first.
    fn scopes(&self) -> impl Iterator<Item = &Scope<'_>> {
        self.parts.iter().chain(Some(self.whole).filter(|_| !self.is_large))
    }

    /// The lowest and the highest number of the first wrong step: what a mask writes is one of them.
    fn extremes(&self) -> Result<Vec<f64>> {
        let recorded = self.wrong.first().and_then(|wrong| self.whole.recorded(*wrong));
        let Some(recorded) = recorded.map(cells).transpose()? else { return Ok(Vec::new()) };
        let least = recorded.iter().copied().fold(f64::INFINITY, f64::min);
        let most = recorded.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Ok(vec![least, most])
    }

    /// Of some numbers, the first that leaves the least.
    pub fn nearest(
        &self,
        free: &Free,
        numbers: impl IntoIterator<Item = f64>,
    ) -> Result<Option<f64>> {
        let mut best: Option<(f64, f64)> = None;
        for number in numbers {
            let Some(residual) = self.residual(free, number)? else { continue };
            let size: f64 = residual.iter().map(|left| left.abs()).sum();
            if best.is_none_or(|(least, _)| size < least) {
                best = Some((size, number));
            }
        }
        Ok(best.map(|(_, number)| number))
    }

    /// The number near a start that leaves the least squares, by the method of Gauss and Newton: what the residual changes by
    /// with the number says how far to go, `most` at most. `number` is what a place on the line stands for.
    fn refined(
        &self,
        free: &Free,
        start: f64,
        number: impl Fn(f64) -> f64,
        most: f64,
    ) -> Result<Option<f64>> {
        let at = |place: f64| self.residual(free, number(place));
        let squares = |residual: &[f64]| residual.iter().map(|left| left * left).sum::<f64>();
        // Where 0 is meant, other numbers may be as large as any.
        let mut place = start;
        let Some(mut residual) = at(place)? else { return Ok(None) };
        let mut width = 1e-2 * place.abs().max(1e-2);
        for _ in 0..ITERATIONS {
            let Some(beside) = at(place + width)? else { break };
            let slope = residual.iter().zip(&beside).map(|(left, beside)| (beside - left) / width);
            let (along, steep) =
                slope.zip(&residual).fold((0.0, 0.0), |(along, steep), (slope, left)| {
                    (along + slope * left, steep + slope * slope)
                });
            if steep == 0.0 {
                break;
            }
            let mut by = (-along / steep).clamp(-most, most);
            let mut better = None;
            for _ in 0..5 {
                better = at(place + by)?.filter(|next| squares(next) < squares(&residual));
                if better.is_some() {
                    break;
                }
                by /= 4.0;
            }
            let Some(next) = better else { break };
            (place, residual) = (place + by, next);
            width =
                (by.abs() / 8.0).clamp(1e-6 * place.abs().max(1e-3), 1e-2 * place.abs().max(1e-2));
        }
        Ok(Some(number(place)))
    }

    /// What is left of the wrong steps that a number changes: recorded less predicted, of each cell.
    fn residual(&self, free: &Free, number: f64) -> Result<Option<Vec<f64>>> {
        let candidate = (free.with)(number);
        let program = candidate.and_then(|candidate| candidate.program(self.whole.trace()));
        let Some(program) = program else {
            return Ok(None);
        };
        let part = |scope: &'_ Scope<'_>| scope.part_of(&program);
        let Some((scope, program)) = self.scopes().find_map(|scope| Some((scope, part(scope)?)))
        else {
            return Ok(None);
        };
        let Some(prediction) = scope.predict_all(&program) else { return Ok(None) };
        let mut residual = Vec::new();
        for name in prediction.changed.iter().filter(|name| self.wrong.contains(name)) {
            if let Some((recorded, value)) = scope.recorded(*name).zip(prediction.value(*name)) {
                let pairs = cells(recorded)?.into_iter().zip(cells(value)?);
                residual.extend(pairs.map(|(recorded, value)| left_of(recorded, value)));
            }
        }
        Ok(Some(residual).filter(|residual| !residual.is_empty()))
    }
}

/// What is left of a cell.
fn left_of(recorded: f64, value: f64) -> f64 {
    match (is_number(recorded), is_number(value)) {
        (true, true) => (recorded - value).clamp(-FAR, FAR),
        (true, false) => FAR,
        (false, _) => 0.0,
    }
}

/// Of some values, the first that has the least error.
pub fn least<V: Copy>(
    values: impl IntoIterator<Item = V>,
    error: impl Fn(V) -> Result<f64>,
) -> Result<Option<V>> {
    let mut best: Option<(f64, V)> = None;
    for value in values {
        let error = error(value)?;
        if best.is_none_or(|(least, _)| error < least) {
            best = Some((error, value));
        }
    }
    Ok(best.map(|(_, value)| value))
}
