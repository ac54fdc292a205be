//! Which positions do the recorded rotations show?

use std::ops::RangeInclusive;

use candle_core::Tensor;

use super::MOST_PLACES;
use super::frequencies::Rotation;
use crate::candidate::{Candidate, cost};
use crate::cells::distance;
use crate::fit::least;
use crate::scope::Scope;
use base::error::Result;
use base::lang;
use program::{Change, Edit, Kind, Name, Op, Slip, Turn, signed};

/// Positions are looked for up to this one, however few the tokens are.
const MOST_PLACES_TRIED: i64 = 128;

/// Rotations of which every item starts at a position of its own.
pub fn candidates(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let mut all = Vec::new();
    let Some(rotation) = Rotation::of(scope, at) else { return Ok(all) };
    let Rotation { rotate, found, .. } = rotation;
    let items = found.dim(0)?;
    let own = i64::try_from(rotate.first).unwrap_or_default();
    // As far as positions go that run on from item to item, or are those of another one.
    let reach = signed(keys(scope).max(1).saturating_mul(items + 1)).clamp(32, 256);
    let mut firsts = Vec::new();
    for item in 0..items {
        let first = |tensor: &Tensor| tensor.narrow(0, item, 1)?.narrow(2, 0, 1);
        let (heads, found) = (first(rotation.heads)?, first(found)?);
        let one = Rotation { heads: &heads, found: &found, ..rotation };
        firsts.extend(first_position(&one, own - reach..=own + reach)?);
    }
    all.extend(token_positions(scope, at, &rotation)?);
    let meant = match &rotate.places {
        Some(places) => places.told(),
        None => own.to_string(),
    };
    let told: Vec<String> = firsts.iter().map(ToString::to_string).collect();
    let summary = tr!(
        "{at}: the items' first positions are {told}, not {meant}",
        at,
        told = lang::list(&told),
        meant
    );
    let turn = Slip::Turn(Turn::counted(rotate, firsts));
    all.push(Candidate::new(
        Kind::Parameter,
        cost::FITTED,
        vec![Edit::new(at, Change::Replace(turn.into()))],
        summary,
    ));
    Ok(all)
}

/// Rotations of which every token has a position of its own, as far as their numbers tell.
fn token_positions(scope: &Scope, at: Name, rotation: &Rotation) -> Result<Option<Candidate>> {
    let Rotation { rotate, found, .. } = *rotation;
    let tokens = found.dim(2)?;
    if tokens * found.dim(0)? > MOST_PLACES {
        return Ok(None);
    }
    let items = found.dim(0)?;
    // As far as positions go in steps, or where the tokens of all items are counted together.
    let most = signed((items + 2) * keys(scope).max(rotate.first + tokens)).max(MOST_PLACES_TRIED);
    let mut places = Vec::new();
    for item in 0..items {
        let mut own = Vec::new();
        for token in 0..tokens {
            let one = |tensor: &Tensor| -> Result<Tensor> {
                Ok(tensor.narrow(0, item, 1)?.narrow(2, token, 1)?.contiguous()?)
            };
            let (heads, found) = (one(rotation.heads)?, one(found)?);
            let one = Rotation { heads: &heads, found: &found, ..*rotation };
            own.extend(first_position(&one, 0..=most - 1)?);
        }
        places.push(own);
    }
    let list =
        |own: &Vec<i64>| lang::list(&own.iter().map(ToString::to_string).collect::<Vec<_>>());
    let told = if places.windows(2).all(|pair| pair[0] == pair[1]) {
        places.truncate(1);
        places.first().map(list).unwrap_or_default()
    } else {
        let items = places.iter().enumerate();
        let items = items.map(|(item, own)| tr!("{own} of item {item}", own = list(own), item));
        items.collect::<Vec<_>>().join("; ")
    };
    let summary = tr!("{at}: the tokens' positions are {told}", at, told);
    let turn = Slip::Turn(Turn { places, ..Turn::of(rotate.clone()) });
    Ok(Some(Candidate::new(
        Kind::Parameter,
        cost::FITTED,
        vec![Edit::new(at, Change::Replace(turn.into()))],
        summary,
    )))
}

/// How many keys a query has.
fn keys(scope: &Scope) -> usize {
    let keys = scope.trace().step(Name::Weights).map_or(0, |weights| weights.axes.last_size());
    usize::try_from(keys).unwrap_or(usize::MAX / 2)
}

/// The first position in a range that comes nearest to recorded heads.
fn first_position(rotation: &Rotation, range: RangeInclusive<i64>) -> Result<Option<i64>> {
    least(range, |first| {
        let turn = Turn::counted(rotation.rotate, vec![first]);
        let value = Op::from(Slip::Turn(turn)).eval(&[rotation.heads, rotation.freqs])?;
        distance(rotation.found, &value)
    })
}
