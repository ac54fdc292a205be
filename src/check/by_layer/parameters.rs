//! Which parameters of a port are not the reference's?

use candle_core::Tensor;

use super::measure::{apart, tolerance_of};
use super::rows::Rows;
use crate::cells::cells;
use base::error::{Result, shown};
use program::wide;

/// The facts on parameters of the port that are not those of the reference.
pub fn differing(
    meant: &[(String, Tensor)],
    own: &[(String, Tensor)],
    ranks: usize,
) -> Result<Vec<String>> {
    let (mut facts, mut rows) = (Vec::new(), Rows::new(meant));
    for (name, other) in own {
        let Some((_, right)) = meant.iter().find(|(known, _)| known == name) else { continue };
        let is = |right: &Tensor| -> Result<bool> {
            let (right, other) = (wide(right)?, wide(other)?.contiguous()?);
            Ok(right.dims() == other.dims()
                && apart(&right, &other)? <= tolerance_of(&other)?.max(tolerance_of(&right)?))
        };
        if is(right)? {
            continue;
        }
        if let Some(number) = throughout(other)? {
            let name = shown(name);
            facts.push(tr!("its parameter {name} is {number} throughout", name, number));
            continue;
        }
        let mut another = None;
        for (known, tensor) in meant.iter().filter(|(known, _)| known != name) {
            if is(tensor)? {
                another = Some(known);
                break;
            }
        }
        let of_rows = if another.is_some() { None } else { rows.told(name, other)? };
        facts.push(match another {
            Some(known) => tr!(
                "its parameter {name} holds the numbers of the reference's {known}",
                name = shown(name),
                known = shown(known)
            ),
            None if right.rank() == 2 && is(&right.t()?.contiguous()?)? => {
                tr!("its parameter {name} is the reference's, transposed", name = shown(name))
            }
            None if of_rows.is_some() => of_rows.unwrap_or_default(),
            None if right.dims() != other.dims() => tr!(
                "its parameter {name} has the shape {own}, and the reference's {meant}",
                name = shown(name),
                own = format!("{:?}", other.dims()),
                meant = format!("{:?}", right.dims())
            ),
            None => tr!(
                "its parameter {name} has other numbers than the reference's",
                name = shown(name)
            ),
        });
    }
    facts.extend(rows.of_ranks(ranks));
    Ok(facts)
}

/// The number that all of several numbers are, as where a parameter was never loaded.
fn throughout(tensor: &Tensor) -> Result<Option<f64>> {
    let cells = cells(tensor)?;
    let first = cells.first().copied().filter(|_| cells.len() > 1);
    #[allow(clippy::float_cmp, reason = "the same bits")]
    Ok(first.filter(|first| cells.iter().all(|cell| cell == first)))
}
