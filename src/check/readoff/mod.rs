//! Which mistakes do the recorded values of a step show by themselves: cells left out, rows in other places, positions and
//! frequencies that are not the run's?

mod blocked;
mod cells;
mod counted;
mod dropout;
mod frequencies;
mod operand;
mod operand_words;
mod part_keys;
mod positions;
mod rows;
mod seen;
mod slopes;
mod sources;
mod updates;

pub use dropout::kept_of_sum;

use super::candidate::{Candidate, cost};
use super::scope::Scope;
use base::error::Result;
use config::Sizes;
use program::Name;

/// Beyond so many places of an axis they are not looked for elsewhere.
const MOST_PLACES: usize = 128;

/// So many of several things are told.
const TOLD: usize = 3;

/// The first of several things, and how many more there are.
fn tell_some(all: &[String], between: &str) -> String {
    let listed = all[..all.len().min(TOLD)].join(between);
    match all.len().saturating_sub(TOLD) {
        0 => listed,
        more => tr!("{listed}; and {more} more", listed, more),
    }
}

/// The mistakes that the values of a wrong step show, whatever it is.
pub fn of_places(scope: &Scope, at: Name, sizes: &Sizes) -> Result<Vec<Candidate>> {
    let mut all = positions::candidates(scope, at)?;
    let sources = sources::candidates(scope, at)?;
    // Where it is known what they were taken from, places that are mixed up say less.
    if sources.is_empty() {
        all.extend(rows::moved(scope, at)?);
        all.extend(rows::moved_in_items(scope, at)?);
    }
    all.extend(sources);
    all.extend(operand::candidates(scope, at, sizes)?);
    all.extend(frequencies::candidates(scope, at)?);
    all.extend(rows::packed(scope, at)?);
    all.extend(slopes::candidate(scope, at)?);
    Ok(all)
}

/// Masks that follow a plain rule, such as lengths.
pub fn of_rules(scope: &Scope, at: Name) -> Result<Vec<Candidate>> {
    let mut all = cells::masks(scope, at)?;
    all.retain(|one| one.cost < cost::FITTED);
    Ok(all)
}

/// Numbers that are left out at random, and masks.
pub fn of_cells(scope: &Scope, at: Name, sizes: &Sizes) -> Result<Vec<Candidate>> {
    let mut all = cells::candidates(scope, at)?;
    all.extend(seen::candidate(scope, at, sizes)?);
    all.extend(part_keys::candidate(scope, at, sizes)?);
    all.extend(updates::candidates(scope, at)?);
    Ok(all)
}
