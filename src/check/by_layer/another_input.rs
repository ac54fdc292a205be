//! What does a part of the port read in place of what it should?

use candle_core::Tensor;

use super::exact::{Exact, FEW};
use super::measure::{Measure, apart, tolerance_of};
use super::sums::{MOST, choices, terms as terms_of};
use base::error::Result;
use foreign::{ModelPart, Node};
use program::added_up;

impl Exact<'_> {
    /// What stands before a part from which it would give what it gave, in place of what it should read: a node, or the sum of
    /// two.
    pub fn another_input(&mut self, at: usize, found: Measure) -> Result<Option<String>> {
        let Some((input, reading, parameters)) = self.as_program(at)? else { return Ok(None) };
        let rows = self.sides.some_rows(at, found.row, FEW);
        let Some([_, recorded]) = self.sides.picked(at, &rows)? else { return Ok(None) };
        let parameters = self.of_port(at, parameters, found)?;
        if let Some((name, x)) = self.read_in_port(at, input, &rows)?
            && let Some(given) = reading.gives(&x, &parameters)?
            && apart(&recorded, &given)? <= found.tolerance
        {
            return Ok(Some(name));
        }
        // What the port does not have is what the reference has, where it is right up to here.
        let side = usize::from(self.sides.partner(input).is_some());
        let mut earlier = self.earlier(at, &rows, side)?;
        let width = self.sides.nodes().get(input).map(Node::width);
        earlier.retain(|(_, x)| x.dims().last().copied() == width);
        // One of them, or the sum of two.
        for places in (1..=2).flat_map(|count| choices(earlier.len(), count)) {
            let parts = || places.iter().filter_map(|place| earlier.get(*place));
            if parts().map(|(place, _)| *place).eq([input]) {
                continue;
            }
            let x = added_up(parts().map(|(_, own)| Ok(own.clone())))?;
            if let Some(given) = reading.gives(&x, &parameters)?
                && apart(&recorded, &given)? <= found.tolerance
            {
                let terms: Vec<(usize, f64)> = parts().map(|(place, _)| (*place, 1.0)).collect();
                return Ok(Some(self.told(&terms)));
            }
        }
        Ok(None)
    }

    /// What the port says that a part reads, where that is no node of the reference: its name, with what it is the sum of
    /// where it is a norm of one, and its rows.
    fn read_in_port(
        &self,
        at: usize,
        input: usize,
        rows: &[usize],
    ) -> Result<Option<(String, Tensor)>> {
        let right = &self.sides.right;
        let (Some((0, node)), [nodes]) = (self.sides.partner(at), right.nodes.as_slice()) else {
            return Ok(None);
        };
        let read = |node: &Node| match *node.reads.as_slice() {
            [read] => nodes.get(read),
            _ => None,
        };
        let known = self.sides.partner(input).map(|(_, node)| node.name.as_str());
        let Some(other) = read(node).filter(|other| Some(other.name.as_str()) != known) else {
            return Ok(None);
        };
        let picked =
            |node: &Node| right.source(0, node).map(|source| source.picked(rows)).transpose();
        let Some(x) = picked(other)?
            .filter(|_| other.rows() == node.rows() && self.sides.aligned(at).is_none())
        else {
            return Ok(None);
        };
        let mut told = other.name.clone();
        if let Some(behind) = read(other).filter(|_| other.part == ModelPart::Norm)
            && let Some(own) = picked(behind)?
        {
            let terms = terms_of(&own, &self.earlier(at, rows, 1)?, tolerance_of(&own)?)?;
            let terms: Vec<(usize, f64)> = terms.into_iter().map(|at| (at, 1.0)).collect();
            if !terms.is_empty() {
                told = tr!("{told}, made of {terms}", told, terms = self.told(&terms));
            }
        }
        Ok(Some((told, x)))
    }

    /// What a step between modules is in the reference, and in the port where that is a norm of its layer of other nodes or of
    /// their sum, as where branches in parallel are run one after the other.
    pub fn normed_terms(&mut self, at: usize, found: Measure) -> Result<Option<[String; 2]>> {
        let layer = |at: usize| self.sides.nodes().get(at).map(|node| (node.layer, node.part));
        let Some((own, _)) = layer(at) else { return Ok(None) };
        let norms: Vec<usize> = (0..self.sides.nodes().len())
            .filter(|norm| layer(*norm) == Some((own, ModelPart::Norm)))
            .collect();
        let rows = self.sides.some_rows(at, found.row, FEW);
        let meant: Vec<(usize, f64)> = self.terms(at)?.into_iter().map(|at| (at, 1.0)).collect();
        let Some([_, recorded]) = self.sides.picked(at, &rows)?.filter(|_| !meant.is_empty())
        else {
            return Ok(None);
        };
        let mut earlier = self.earlier(at, &rows, 1)?;
        earlier.retain(|(_, x)| x.dims() == recorded.dims());
        for norm in norms {
            let Some((_, reading, parameters)) = self.as_program(norm)? else { continue };
            let parameters = self.of_port(norm, parameters, found)?;
            for places in (1..=MOST).flat_map(|count| choices(earlier.len(), count)) {
                let parts = || places.iter().filter_map(|place| earlier.get(*place));
                let x = added_up(parts().map(|(_, own)| Ok(own.clone())))?;
                if let Some(given) = reading.gives(&x, &parameters)?
                    && apart(&recorded, &given)? <= found.tolerance
                {
                    let terms: Vec<(usize, f64)> = parts().map(|(at, _)| (*at, 1.0)).collect();
                    let norm = self.sides.nodes().get(norm).map_or("", |own| own.path.as_str());
                    let made = format!("{norm}({})", self.told(&terms));
                    return Ok(Some([self.told(&meant), made]));
                }
            }
        }
        Ok(None)
    }
}
