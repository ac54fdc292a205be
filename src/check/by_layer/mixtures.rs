//! Is a port's mixture of experts the reference's, for the port's own input?

use candle_core::Tensor;

use super::experts::Experts;
use super::measure::{Measure, tolerance_of};
use super::mixture::Mixture;
use super::sides::Sides;
use base::error::Result;

/// So many rows tell what a mixture is.
const FEW: usize = 8;
/// So many tell how far its middle row is off.
const MANY: usize = 64;

/// In what a mixture of experts differs from the reference's; nothing where it is read as none, or as the same.
pub fn differences(sides: &Sides, at: usize, found: Measure) -> Result<Vec<String>> {
    let Some((port, meant, made)) = beside(sides, at, found, FEW)? else { return Ok(Vec::new()) };
    let own = port.read(&made, Some(&meant), found.tolerance)?;
    Ok(own.map(|own| own.differences(&meant)).unwrap_or_default())
}

/// How far the middle row of a mixture of experts is from what the port's own input should give.
pub fn usually_off(sides: &Sides, at: usize, found: Measure) -> Result<Option<f64>> {
    let found = beside(sides, at, found, MANY)?;
    found.map(|(port, meant, made)| port.usually_off(&meant, &made)).transpose()
}

/// The port's own inputs of a mixture, in so many rows, the mixture that the reference's is, and what the port gave.
fn beside(
    sides: &Sides,
    at: usize,
    found: Measure,
    count: usize,
) -> Result<Option<(Experts, Mixture, Tensor)>> {
    let Some((node, [input])) = sides.nodes().get(at).map(|node| (node, node.reads.as_slice()))
    else {
        return Ok(None);
    };
    let parameters = sides.left.mixture(&node.path)?;
    let rows = sides.some_rows(at, found.row, FEW);
    let (Some([x, _]), Some([meant, _])) = (sides.picked(*input, &rows)?, sides.picked(at, &rows)?)
    else {
        return Ok(None);
    };
    let Some(reference) = Experts::new(&x, &parameters)? else { return Ok(None) };
    let Some(meant) = reference.read(&meant, None, tolerance_of(&meant)?)? else {
        return Ok(None);
    };
    let rows = sides.some_rows(at, found.row, count);
    let (Some([_, x]), Some([_, made])) = (sides.picked(*input, &rows)?, sides.picked(at, &rows)?)
    else {
        return Ok(None);
    };
    Ok(Experts::new(&x, &parameters)?.map(|port| (port, meant, made)))
}
