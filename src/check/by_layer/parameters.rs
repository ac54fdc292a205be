//! Which parameters of a port are not the reference's?

use candle_core::Tensor;

use super::measure::{apart, tolerance_of};
use crate::cells::cells;
use base::error::{Result, shown};
use program::wide;

/// The facts on parameters of the port that are not those of the reference.
pub fn differing(meant: &[(String, Tensor)], own: &[(String, Tensor)]) -> Result<Vec<String>> {
    let mut facts = Vec::new();
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
        facts.push(match another {
            Some(known) => tr!(
                "its parameter {name} holds the numbers of the reference's {known}",
                name = shown(name),
                known = shown(known)
            ),
            None if right.rank() == 2 && is(&right.t()?.contiguous()?)? => {
                tr!("its parameter {name} is the reference's, transposed", name = shown(name))
            }
            None if has_same_rows(right, other)? => tr!(
                "its parameter {name} has the reference's rows in another order",
                name = shown(name)
            ),
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
    Ok(facts)
}

/// The number that all of several numbers are, as where a parameter was never loaded.
fn throughout(tensor: &Tensor) -> Result<Option<f64>> {
    let cells = cells(tensor)?;
    let first = cells.first().copied().filter(|_| cells.len() > 1);
    #[allow(clippy::float_cmp, reason = "the same bits")]
    Ok(first.filter(|first| cells.iter().all(|cell| cell == first)))
}

/// Whether a tensor has the rows of another one, in another order: those of its first axis.
fn has_same_rows(right: &Tensor, other: &Tensor) -> Result<bool> {
    let rows = |own: &Tensor| -> Result<Vec<Vec<u32>>> {
        let own = wide(own)?;
        let rows = if own.rank() > 1 { own.flatten_from(1)? } else { own.unsqueeze(1)? };
        let mut rows: Vec<Vec<u32>> = rows
            .to_vec2::<f32>()?
            .into_iter()
            .map(|row| row.into_iter().map(f32::to_bits).collect())
            .collect();
        rows.sort_unstable();
        Ok(rows)
    };
    Ok(right.rank() > 0 && right.dims() == other.dims() && rows(right)? == rows(other)?)
}
