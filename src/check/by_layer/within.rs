//! What is wrong within a layer of which the port recorded no more than what it gives? The reference's own numbers are followed
//! through the layer, with one term of a sum or one norm left out.

use std::collections::HashMap;

use candle_core::Tensor;

use super::exact::{Exact, FEW};
use super::measure::{Measure, apart};
use base::error::{Result, shown};
use foreign::ModelPart;
use program::added_up;

impl Exact<'_> {
    /// What is left out in a layer that gives what it gave, where the port recorded nothing within it and what it reads agrees.
    pub fn within_layer(&mut self, at: usize, found: Measure) -> Result<Option<String>> {
        let nodes = self.sides.nodes();
        let Some(layer) = nodes.get(at).and_then(|node| node.layer) else { return Ok(None) };
        let inner =
            (0..at).filter(|place| nodes.get(*place).map(|own| own.layer) == Some(Some(layer)));
        let inner: Vec<usize> = inner.collect();
        if inner.is_empty() || inner.iter().any(|place| self.sides.partner(*place).is_some()) {
            return Ok(None);
        }
        let rows = self.sides.some_rows(at, found.row, FEW);
        let Some([_, recorded]) = self.sides.picked(at, &rows)? else { return Ok(None) };
        let known: HashMap<usize, Tensor> = self.earlier(at, &rows, 0)?.into_iter().collect();
        let places: Vec<usize> = inner.into_iter().chain([at]).collect();
        for (start, place) in places.iter().copied().enumerate() {
            let Some(node) = nodes.get(place) else { continue };
            let name = |at: usize| nodes.get(at).map_or("", |node| node.name.as_str());
            let mut changes = Vec::new();
            if self.is_sum(place)? {
                let terms = self.terms(place)?;
                for left in terms.iter().filter(|_| terms.len() > 1) {
                    let others: Vec<usize> =
                        terms.iter().copied().filter(|term| term != left).collect();
                    let (term, sum) = (shown(name(*left)), shown(name(place)));
                    changes
                        .push((others, tr!("{term} is not added where {sum} is made", term, sum)));
                }
            } else if node.part == ModelPart::Norm && node.reads.len() == 1 {
                let path = shown(&node.path);
                changes.push((node.reads.clone(), tr!("the norm {path} is left out", path)));
            }
            for (terms, told) in changes {
                let Some(made) = sum_of(&terms, &known, &HashMap::new())? else { continue };
                let behind = places.get(start..).unwrap_or_default();
                let given = self.followed(behind, made, &known)?;
                if given.is_some_and(|given| {
                    apart(&recorded, &given).is_ok_and(|off| off <= 4.0 * found.tolerance)
                }) {
                    return Ok(Some(told));
                }
            }
        }
        Ok(None)
    }

    /// What the last of these nodes is where the first is made otherwise; nothing where a node between cannot be computed again.
    fn followed(
        &mut self,
        places: &[usize],
        made: Tensor,
        known: &HashMap<usize, Tensor>,
    ) -> Result<Option<Tensor>> {
        let [first, behind @ ..] = places else { return Ok(None) };
        let mut changed = HashMap::from([(*first, made)]);
        for place in behind {
            let is_sum = self.is_sum(*place)?;
            let reads = match self.sides.nodes().get(*place) {
                _ if is_sum => self.terms(*place)?,
                Some(node) => node.reads.clone(),
                None => Vec::new(),
            };
            if !reads.iter().any(|read| changed.contains_key(read)) {
                continue;
            }
            let own = if is_sum {
                sum_of(&reads, known, &changed)?
            } else if let Some((input, reading, parameters)) = self.as_program(*place)?
                && let Some(x) = changed.get(&input)
            {
                reading.gives(x, &parameters)?
            } else {
                None
            };
            let Some(own) = own else { return Ok(None) };
            changed.insert(*place, own);
        }
        Ok(places.last().and_then(|last| changed.remove(last)))
    }
}

/// The sum of nodes, some of which have changed.
fn sum_of(
    terms: &[usize],
    known: &HashMap<usize, Tensor>,
    changed: &HashMap<usize, Tensor>,
) -> Result<Option<Tensor>> {
    let of = |term: &usize| changed.get(term).or_else(|| known.get(term)).cloned();
    let all: Option<Vec<Tensor>> = terms.iter().map(of).collect();
    all.map(|all| added_up(all.into_iter().map(Ok))).transpose()
}
