//! Which rotary frequencies do the recorded rotations show?

use std::f64::consts::{PI, TAU};

use candle_core::Tensor;

use crate::candidate::{Candidate, cost};
use crate::cells::cells;
use crate::grammar::numbers::short;
use crate::scope::Scope;
use crate::thresholds::LEAST_CELLS;
use base::error::Result;
use base::lang;
use program::{Along, Change, Edit, Kind, Name, Op, Pairing, Rotary, Rotate, Slip};

/// Factors that people put on frequencies, and what they are.
const FACTORS: [(f64, &str); 6] = [
    (TAU, "2π"),
    (1.0 / TAU, "1/(2π)"),
    (PI, "π"),
    (1.0 / PI, "1/π"),
    (PI / 180.0, "π/180"),
    (180.0 / PI, "180/π"),
];

/// A recorded rotation, and what it read.
pub struct Rotation<'e> {
    /// What should have been done.
    pub rotate: &'e Rotate,
    /// What was recorded: (batch, head, token, `head_dim`).
    pub found: &'e Tensor,
    /// The heads before it.
    pub heads: &'e Tensor,
    /// The angle of each pair from one position to the next.
    pub freqs: &'e Tensor,
}

impl<'e> Rotation<'e> {
    /// That of a step; nothing where it is no rotation, or too little was recorded.
    pub fn of(scope: &'e Scope, at: Name) -> Option<Self> {
        let step = scope.trace().step(at)?;
        let Op::Rotary(Rotary::Rotate(rotate)) = &step.op else { return None };
        let [heads, freqs] = scope.inputs(step)?[..] else { return None };
        Some(Self { rotate, found: scope.recorded(at)?, heads, freqs })
    }
}

/// Rotations by other frequencies: each pair of features shows its own.
///
/// # Errors
/// If candle fails.
pub fn candidates(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let Some(rotation) = Rotation::of(scope, at) else { return Ok(all) };
    let meant = cells(rotation.freqs)?;
    let mut told = Vec::new();
    for (factor, name) in FACTORS {
        let told_so = tr!("multiplied by {name}", name);
        told.push((vec![factor; meant.len()], told_so, cost::FITTED));
    }
    if let Some((found, factor)) = of_pairs(&rotation, &meant)?
        && let Some(words) = tell(&found, &meant)
    {
        let factors = ratios(&found, &meant);
        all.extend(with_factor(scope, rotation.rotate, (&factors, factor), &words));
        told.push((factors, words, cost::FITTED + 1));
    }
    for (factors, told, cost) in told {
        let slip = || Op::from(Slip::Along(0, Along::Each(factors.clone())));
        let edits = [
            (Name::RopeFreqs, Change::After(slip(), Vec::new()), cost),
            (at, Change::Before(1, slip(), Vec::new()), cost + 2),
        ];
        for (edited, change, cost) in edits {
            let summary = tr!("{edited}: the frequencies are {told}", edited, told);
            let edits = vec![Edit::new(edited, change)];
            all.push(Candidate::new(Kind::Parameter, cost, edits, summary));
        }
    }
    Ok(all)
}

/// Rotations by other frequencies whose cosines and sines are multiplied by another number, too, as with other scaling.
fn with_factor(
    scope: &Scope,
    right: &Rotate,
    (factors, factor): (&[f64], f64),
    words: &str,
) -> Option<Candidate> {
    // What f32 numbers tell of it.
    let is_another = (factor - right.factor).abs() > 1e-4 * right.factor.abs();
    let own = |name: Name| {
        let Op::Rotary(Rotary::Rotate(rotate)) = &scope.trace().step(name)?.op else { return None };
        let rotate = Rotate { factor, ..rotate.clone() };
        Some(Edit::new(name, Change::Replace(Rotary::Rotate(rotate).into())))
    };
    let of_freqs = Op::from(Slip::Along(0, Along::Each(factors.to_vec())));
    let mut edits = vec![Edit::new(Name::RopeFreqs, Change::After(of_freqs, Vec::new()))];
    edits.extend([Name::QRot, Name::KRot].into_iter().filter_map(own));
    let summary = tr!(
        "{edited}: the frequencies are {words}, and cosine and sine are multiplied by {factor}, where {meant} was meant",
        edited = Name::RopeFreqs,
        words,
        factor = short(factor),
        meant = short(right.factor)
    );
    is_another.then(|| Candidate::new(Kind::Parameter, cost::FITTED + 2, edits, summary))
}

/// The frequency of each pair, if the pairs are turned by angles that grow evenly from token to token, and what cosine and sine
/// are multiplied by.
fn of_pairs(rotation: &Rotation, meant: &[f64]) -> Result<Option<(Vec<f64>, f64)>> {
    let Rotation { rotate, found, heads, .. } = *rotation;
    let (batch, count, tokens, width) = heads.dims4()?;
    // A frequency must hold for more angles than one.
    let is_even = rotate.places.is_none();
    if !is_even
        || found.dims() != heads.dims()
        || tokens < 3
        || batch * count * tokens < LEAST_CELLS
    {
        return Ok(None);
    }
    let (heads, found) = (cells(heads)?, cells(found)?);
    let pairs = meant.len();
    // The numbers of a pair before it is turned, times those behind: (cosine, sine, their own squares).
    let products = |pair: usize, token: usize| {
        let (first, second) = match rotate.pairing {
            Pairing::Half => (pair, pair + pairs),
            Pairing::Interleaved => (2 * pair, 2 * pair + 1),
        };
        let (mut cosine, mut sine, mut squares) = (0.0, 0.0, 0.0);
        for head in 0..batch * count {
            let row = (head * tokens + token) * width;
            let (x, y) = (heads[row + first], heads[row + second]);
            let (u, v) = (found[row + first], found[row + second]);
            cosine += x * u + y * v;
            sine += x * v - y * u;
            squares += x * x + y * y;
        }
        (cosine, sine, squares)
    };
    let angle = |pair: usize, token: usize| {
        let (cosine, sine, _) = products(pair, token);
        sine.atan2(cosine)
    };
    let frequency = |pair: usize| {
        let near = |angle: f64, expected: f64| angle + TAU * ((expected - angle) / TAU).round();
        // The first token's angle says nothing at position 0: each further one says it more exactly.
        let mut frequency = near(angle(pair, 1) - angle(pair, 0), 0.0);
        let start = near(angle(pair, 0), frequency * rotate.first as f64);
        for token in 2..tokens {
            let by = token as f64;
            frequency = (near(angle(pair, token), start + frequency * by) - start) / by;
        }
        if rotate.first > 0 {
            let last = (rotate.first + tokens - 1) as f64;
            frequency = near(angle(pair, tokens - 1), frequency * last) / last;
        }
        frequency
    };
    let found: Vec<f64> = (0..pairs).map(frequency).collect();
    let (cosine, sine, squares) = products(0, 0);
    let factor = cosine.hypot(sine) / squares;
    let are_finite = found.iter().all(|frequency| frequency.is_finite()) && factor.is_finite();
    Ok(are_finite.then_some((found, factor)))
}

/// What each frequency is multiplied by.
fn ratios(found: &[f64], meant: &[f64]) -> Vec<f64> {
    let ratio = |(found, meant): (&f64, &f64)| if *meant == 0.0 { 1.0 } else { found / meant };
    found.iter().zip(meant).map(ratio).collect()
}

/// What the frequencies are, in words: those of another base, or each by itself. Nothing where they are those that
/// were meant, as far as angles tell.
fn tell(found: &[f64], meant: &[f64]) -> Option<String> {
    // Angles are f32 numbers of a few turns.
    let is_near = |left: f64, right: f64| (left - right).abs() <= 1e-5 * right.abs().max(1e-3);
    let others: Vec<(usize, f64, f64)> = (0..found.len())
        .map(|pair| (pair, found[pair], meant[pair]))
        .filter(|(_, found, meant)| !is_near(*found, *meant))
        .collect();
    if others.is_empty() {
        return None;
    }
    let pairs = found.len() as f64;
    if let [first, second, rest @ ..] = found
        && *first > 0.0
        && *second > 0.0
        && !rest.is_empty()
    {
        let ratio = second / first;
        let round = short(ratio.powf(-pairs).round());
        let of_base = (0_i32..).map(|pair| first * ratio.powi(pair));
        if found.iter().zip(of_base).all(|(found, own)| is_near(*found, own)) {
            let divisor = short((1e4 / first).round() / 1e4);
            return Some(if is_near(*first, 1.0) {
                tr!("those of base {round}, without scaling", round)
            } else {
                tr!(
                    "those of base {round}, all divided by {divisor}, as by linear scaling",
                    round,
                    divisor
                )
            });
        }
    }
    let shown: Vec<String> = others
        .iter()
        .take(4)
        .map(|(pair, found, meant)| {
            tr!(
                "{found} where {meant} was meant (pair {pair})",
                found = short(*found),
                meant = short(*meant),
                pair
            )
        })
        .collect();
    let more = match others.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => tr!(", and {more} more", more),
    };
    Some(format!("{}{more}", lang::list(&shown)))
}
