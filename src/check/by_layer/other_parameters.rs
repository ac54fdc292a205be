//! Does a part of the port work with parameters of another layer, where it recorded none?

use super::exact::{Exact, FEW, in_numbers};
use super::measure::{Measure, apart};
use base::error::{Result, shown};
use foreign::shifted;

impl Exact<'_> {
    /// That a part gives what it would with the parameters of the reference's same part in another layer: all, or one of them.
    pub fn parameters_of_another(&mut self, at: usize, found: Measure) -> Result<Option<String>> {
        let Some((input, reading, parameters)) = self.as_program(at)? else { return Ok(None) };
        let rows = self.sides.some_rows(at, found.row, FEW);
        let (Some([_, x]), Some([_, recorded])) =
            (self.sides.picked_by(input, at, &rows)?, self.sides.picked(at, &rows)?)
        else {
            return Ok(None);
        };
        let nodes = self.sides.nodes();
        let Some((node, layer)) = nodes.get(at).and_then(|node| Some((node, node.layer?))) else {
            return Ok(None);
        };
        for other in nodes.iter().filter(|other| other.part == node.part) {
            let by = other.layer.map_or(0, |number| number.abs_diff(layer));
            let is_same =
                shifted(&node.name, by) == other.name || shifted(&other.name, by) == node.name;
            if by == 0 || !is_same {
                continue;
            }
            let others = in_numbers(self.sides.left.parameters(&other.path)?)?;
            let gives = |all: &[(String, candle_core::Tensor)]| -> Result<bool> {
                let given = reading.gives(&x, &all.to_vec())?;
                Ok(given.is_some_and(|given| {
                    apart(&recorded, &given).is_ok_and(|off| off <= found.tolerance)
                }))
            };
            if gives(&others)? {
                return Ok(Some(tr!(
                    "its parameters are those of {other}",
                    other = shown(&other.path)
                )));
            }
            for (place, (name, own)) in parameters.iter().enumerate() {
                let same = others
                    .iter()
                    .find(|(known, own_of)| known == name && own_of.dims() == own.dims());
                let Some((_, tensor)) = same else { continue };
                let mut all = parameters.clone();
                all[place].1 = tensor.clone();
                if gives(&all)? {
                    let known = format!("{}.{name}", other.path);
                    return Ok(Some(tr!(
                        "its parameter {name} holds the numbers of the reference's {known}",
                        name = shown(name),
                        known = shown(&known)
                    )));
                }
            }
        }
        Ok(None)
    }
}
