//! Which slopes of position biases do the recorded scores show?

use crate::candidate::{Candidate, cost};
use crate::cells::{cells_at, ratio};
use crate::grammar::numbers::short;
use crate::scope::Scope;
use base::error::Result;
use base::lang;
use program::{Biasing, Change, Edit, Kind, Name, Op};

/// Scores whose position biases have other slopes: each head shows its own.
///
/// # Errors
/// If candle fails.
pub fn candidate(scope: &Scope, at: Name) -> Result<Option<Candidate>> {
    let trace = scope.trace();
    let (Some(step), Some(slopes)) = (trace.step(at), trace.step(Name::AlibiSlopes)) else {
        return Ok(None);
    };
    let (Op::Biasing(Biasing::Add), Op::Biasing(Biasing::Slopes { slopes: meant })) =
        (&step.op, &slopes.op)
    else {
        return Ok(None);
    };
    let (Some(found), Some(inputs)) = (scope.recorded(at), scope.inputs(step)) else {
        return Ok(None);
    };
    let [scores, bias] = inputs[..] else { return Ok(None) };
    if found.dims() != scores.dims() {
        return Ok(None);
    }
    let found = found.sub(scores)?;
    let bias = bias.broadcast_as(found.shape())?;
    let mut slopes = Vec::new();
    for (head, meant) in meant.iter().enumerate() {
        slopes.push(meant * ratio(&cells_at(&found, 1, head)?, &cells_at(&bias, 1, head)?));
    }
    let list =
        |slopes: &[f64]| lang::list(&slopes.iter().map(|slope| short(*slope)).collect::<Vec<_>>());
    let told = tr!(
        "{at}: the slopes of the heads are {found}, and {meant} were meant",
        at = Name::AlibiSlopes,
        found = list(&slopes),
        meant = list(meant)
    );
    let change = Change::Replace(Biasing::Slopes { slopes }.into());
    let edits = vec![Edit::new(Name::AlibiSlopes, change)];
    Ok(Some(Candidate::new(Kind::Parameter, cost::FITTED, edits, told)))
}
