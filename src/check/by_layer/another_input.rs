//! What does a part of the port read in place of what it should?

use candle_core::Tensor;

use super::exact::{Exact, FEW};
use super::measure::{Measure, apart, tolerance_of};
use super::part::{Parameters, Reading};
use super::sums::{MOST, choices, terms as terms_of};
use base::error::{Result, shown};
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
        for (norm, of_norm, own) in self.norms_about(at, found)? {
            for (place, x) in &earlier {
                let Some(x) = of_norm.gives(x, &own)? else { continue };
                if let Some(given) = reading.gives(&x, &parameters)?
                    && apart(&recorded, &given)? <= found.tolerance
                {
                    return Ok(Some(format!("{norm}({})", self.told(&[(*place, 1.0)]))));
                }
            }
        }
        Ok(None)
    }

    /// That a norm of a sum, as one behind a residual is, is of one term alone, and the others are added behind it.
    pub fn normed_alone(&mut self, at: usize, found: Measure) -> Result<Option<String>> {
        let Some((input, reading, parameters)) = self.as_program(at)? else { return Ok(None) };
        let rows = self.sides.some_rows(at, found.row, FEW);
        let Some([_, recorded]) = self.sides.picked(at, &rows)? else { return Ok(None) };
        let (terms, earlier) = (self.terms(input)?, self.earlier(input, &rows, 0)?);
        let parameters = self.of_port(at, parameters, found)?;
        for alone in terms.iter().filter(|_| terms.len() > 1) {
            let value = |term: &usize| earlier.iter().find(|(place, _)| place == term);
            let Some(given) = value(alone).map(|(_, x)| reading.gives(x, &parameters)) else {
                continue;
            };
            let Some(given) = given? else { continue };
            let others: Vec<usize> = terms.iter().copied().filter(|term| term != alone).collect();
            let parts = others.iter().filter_map(value).map(|(_, own)| Ok(own.clone()));
            let sum = added_up(std::iter::once(Ok(given)).chain(parts))?;
            if apart(&recorded, &sum)? <= found.tolerance {
                let of = |all: &[usize]| {
                    let all: Vec<(usize, f64)> = all.iter().map(|at| (*at, 1.0)).collect();
                    shown(&self.told(&all)).into_owned()
                };
                return Ok(Some(tr!(
                    "it is the norm of {term} alone, and {others} is added behind it",
                    term = of(&[*alone]),
                    others = of(&others)
                )));
            }
        }
        Ok(None)
    }

    /// The norms of the layer of a node, and those of none, as the one behind all layers: their paths, and what they are,
    /// with the port's parameters.
    fn norms_about(
        &mut self,
        at: usize,
        found: Measure,
    ) -> Result<Vec<(String, Reading, Parameters)>> {
        let nodes = self.sides.nodes();
        let Some(layer) = nodes.get(at).map(|node| node.layer) else { return Ok(Vec::new()) };
        let is_it =
            |own: &Node| own.part == ModelPart::Norm && (own.layer == layer || own.layer.is_none());
        let mut all = Vec::new();
        for (place, node) in
            nodes.iter().enumerate().filter(|(place, own)| *place != at && is_it(own))
        {
            if let Some((_, reading, parameters)) = self.as_program(place)? {
                let parameters = self.of_port(place, parameters, found)?;
                all.push((node.path.clone(), reading, parameters));
            }
        }
        Ok(all)
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
        let rows = self.sides.some_rows(at, found.row, FEW);
        let meant: Vec<(usize, f64)> = self.terms(at)?.into_iter().map(|at| (at, 1.0)).collect();
        let Some([_, recorded]) = self.sides.picked(at, &rows)?.filter(|_| !meant.is_empty())
        else {
            return Ok(None);
        };
        let mut earlier = self.earlier(at, &rows, 1)?;
        earlier.retain(|(_, x)| x.dims() == recorded.dims());
        for (norm, reading, parameters) in self.norms_about(at, found)? {
            for places in (1..=MOST).flat_map(|count| choices(earlier.len(), count)) {
                let parts = || places.iter().filter_map(|place| earlier.get(*place));
                let x = added_up(parts().map(|(_, own)| Ok(own.clone())))?;
                if let Some(given) = reading.gives(&x, &parameters)?
                    && apart(&recorded, &given)? <= found.tolerance
                {
                    let terms: Vec<(usize, f64)> = parts().map(|(at, _)| (*at, 1.0)).collect();
                    let made = format!("{norm}({})", self.told(&terms));
                    return Ok(Some([self.told(&meant), made]));
                }
            }
        }
        Ok(None)
    }

    /// That the port lacks the module that a part reads, and the part reads what that should have read: the place of the one
    /// that is left out, and what is to be said.
    pub fn left_out(&mut self, at: usize, found: Measure) -> Result<Option<(usize, String)>> {
        let nodes = self.sides.nodes();
        let read = |at: usize| nodes.get(at).map_or(&[][..], |node| node.reads.as_slice());
        let [input] = *read(at) else { return Ok(None) };
        let [source] = *read(input) else { return Ok(None) };
        let (Some(own), Some(meant)) = (nodes.get(input), nodes.get(source)) else {
            return Ok(None);
        };
        let is_module = !own.is_input && own.shape == meant.shape;
        if !is_module || self.sides.partner(input).is_some() || self.sides.partner(source).is_none()
        {
            return Ok(None);
        }
        let other = self.another_input(at, found)?;
        Ok(other.filter(|other| *other == meant.name).map(|other| {
            let (path, other) = (shown(&own.path), shown(&other).into_owned());
            (
                input,
                tr!(
                    "{path} is left out: what should read what it gives reads {other}",
                    path,
                    other
                ),
            )
        }))
    }
}
