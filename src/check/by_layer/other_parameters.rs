//! Does a part of the port work with parameters of another layer, where it recorded none, or with others of its rows?

use candle_core::Tensor;

use super::exact::{Exact, FEW, in_numbers};
use super::measure::{Measure, apart};
use base::error::{Result, shown};
use foreign::{ModelPart, shifted};
use program::Name;

impl Exact<'_> {
    /// That a part gives what it would with the parameters of the reference's same part in another layer: all, or one of them; or
    /// a norm with those of another norm of its layer.
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
            let is_neighbour = by == 0 && node.part == ModelPart::Norm && other.path != node.path;
            if !is_neighbour && (by == 0 || !is_same) {
                continue;
            }
            let others = in_numbers(self.sides.left.parameters(&other.path)?)?;
            let gives = |all: &[(String, Tensor)]| -> Result<bool> {
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

    /// That an MLP takes its gate and its first projection in turns from the matrix that has both, one behind the other: row by
    /// row, the gate first or the projection.
    pub fn in_turns(&mut self, at: usize, found: Measure) -> Result<Option<String>> {
        let Some((input, reading, parameters)) = self.as_program(at)? else { return Ok(None) };
        let taken = |name| reading.taken.iter().find(|(own, _)| *own == name).map(|(_, own)| own);
        let [Some(gate), Some(up)] =
            [Name::MLP_GATE, Name::MLP_UP].map(|[weight, ..]| taken(weight))
        else {
            return Ok(None);
        };
        let rows = self.sides.some_rows(at, found.row, FEW);
        let (Some([_, x]), Some([_, recorded]), true) = (
            self.sides.picked_by(input, at, &rows)?,
            self.sides.picked(at, &rows)?,
            gate.name == up.name,
        ) else {
            return Ok(None);
        };
        let bias = gate.name.strip_suffix("weight").map(|path| format!("{path}bias"));
        for is_gate_first in [true, false] {
            let mut all = self.of_port(at, parameters.clone(), found)?;
            for (name, own) in &mut all {
                let is_matrix = *name == gate.name;
                if !is_matrix && Some(&*name) != bias.as_ref() {
                    continue;
                }
                let axis = usize::from(is_matrix && gate.is_transposed);
                let half = own.dim(axis)? / 2;
                // The rows of a half as every other one of both.
                let in_turns = |first: usize| (0..half).map(move |at| 2 * at + first);
                let places = if is_gate_first == gate.is_first() {
                    in_turns(0).chain(in_turns(1))
                } else {
                    in_turns(1).chain(in_turns(0))
                };
                let places = places.map(|at| u32::try_from(at).unwrap_or(u32::MAX));
                let places = Tensor::from_iter(places, own.device())?;
                *own = own.index_select(&places, axis)?;
            }
            let given = reading.gives(&x, &all)?;
            if given.is_some_and(|given| {
                apart(&recorded, &given).is_ok_and(|off| off <= found.tolerance)
            }) {
                let name = shown(&gate.name).into_owned();
                return Ok(Some(if is_gate_first {
                    tr!(
                        "it takes the rows of {name} in turns as gate and first projection, and they are its halves",
                        name
                    )
                } else {
                    tr!(
                        "it takes the rows of {name} in turns as first projection and gate, and they are its halves",
                        name
                    )
                }));
            }
        }
        Ok(None)
    }
}
