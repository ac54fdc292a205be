//! The terms of gradients that follow no short rule.

use candle_core::Tensor;

use super::gradient::{Gradient, slope};
use super::norm::Norm;
use super::relative::Relative;
use crate::axis::unravel;
use crate::misread::{Misread, at, read};
use crate::terms::{Term, Value, factor};
use crate::working::Exponentials;
use base::error::Result;

impl Gradient {
    /// The terms of a cell.
    ///
    /// # Errors
    /// If there is no such cell.
    pub(super) fn by_cell(&self, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
        match self {
            Self::Clip { limit } => {
                let [d, x] = read(inputs)?;
                let is_within = x.at(cell)?.value.abs() <= *limit;
                let within = factor(tr!("1 within ±{limit}, else 0", limit), f64::from(is_within));
                // Nothing comes back beyond it, NaN neither.
                let own = if is_within { vec![d.at(cell)?, within] } else { vec![within] };
                Ok(vec![Term(own)])
            }
            Self::Gate { map } => {
                let [d, x, gate] = read(inputs)?;
                let own = gate.at(cell)?;
                let slope = number(&slope(*map, gate.tensor)?, cell)?;
                let slope = factor(format!("{}′({})", map.name(), own.name), slope).made_of(&own);
                Ok(vec![Term(vec![d.at(cell)?, x.at(cell)?, slope])])
            }
            Self::Sinks => sinks(read(inputs)?, at(cell)?),
            Self::Norm(norm) => normed(norm, inputs, cell),
            Self::NormWeight { norm, .. } => {
                let [d, x] = read(inputs)?;
                let numbers = norm.value(x.tensor, &[])?;
                let rows = every(numbers.dims(), |place| is_of(place, cell));
                let term = |place: Vec<usize>| {
                    let own = factor(tr!("the normed number"), number(&numbers, &place)?);
                    Ok(Term(vec![d.at(&place)?, own]))
                };
                rows.map(term).collect()
            }
            Self::Table { relative, .. } => bucket(relative, read(inputs)?, at(cell)?),
            Self::Picked { picked, .. } => picked.collected(read(inputs)?, at(cell)?),
            Self::Pairs(own) => own.terms(inputs, cell),
            Self::Product(_)
            | Self::Collect(_)
            | Self::Back { .. }
            | Self::Softmax
            | Self::SoftCap { .. } => Ok(Vec::new()),
        }
    }
}

/// Every cell of a tensor of which this is true.
fn every(dims: &[usize], is_it: impl Fn(&[usize]) -> bool) -> impl Iterator<Item = Vec<usize>> {
    let all = (0..dims.iter().product::<usize>()).map(|place| unravel(place, dims));
    all.filter(move |place| is_it(place))
}

/// Whether a cell of heads meets this cell of a weight (feature) or (head, feature).
fn is_of(place: &[usize], weight: &[usize]) -> bool {
    match weight {
        [head, feature] => place.get(1) == Some(head) && place.last() == Some(feature),
        _ => place.last() == weight.last(),
    }
}

/// The number of a tensor that is broadcast to a cell.
fn number(tensor: &Tensor, cell: &[usize]) -> Result<f64> {
    let name = crate::Name::Within;
    Ok(Value { name, tensor }.broadcast_at(cell)?.value)
}

fn sinks([scores, sinks, delta]: [Value; 3], [head]: [usize; 1]) -> Result<Vec<Term>> {
    let (batch, _, queries, _) = scores.tensor.dims4()?;
    let rows = (0..batch).flat_map(|item| (0..queries).map(move |query| [item, head, query]));
    let term = |row: [usize; 3]| {
        let own = Exponentials::of(&scores, Some(&sinks), &row)?;
        let sink = own.sink.as_ref().ok_or(Misread)?;
        let share = tr!("−share of {sink}", sink = sink.score.name);
        let share = factor(share, -sink.exp / own.sum).made_of(&sink.score);
        Ok(Term(vec![share, delta.at(&row)?]))
    };
    rows.map(term).collect()
}

fn bucket(own: &Relative, [d]: [Value; 1], [row, head]: [usize; 2]) -> Result<Vec<Term>> {
    let pairs = (0..own.queries).flat_map(|query| (0..own.keys).map(move |key| (query, key)));
    let of_row = pairs.filter(|(query, key)| own.row(*query, *key) == row);
    of_row.map(|(query, key)| Ok(Term(vec![d.at(&[head, query, key])?]))).collect()
}

fn normed(norm: &Norm, inputs: &[Value], cell: &[usize]) -> Result<Vec<Term>> {
    let [d, x, weight @ ..] = inputs else { return Err(Misread.into()) };
    let weights: Vec<&Tensor> = weight.iter().map(|weight| weight.tensor).collect();
    let parts = norm.gradient_parts(d.tensor, x.tensor, &weights)?;
    let root =
        || Ok::<_, base::error::Error>(factor("1 / root", number(&parts.root, cell)?.recip()));
    let given = factor("g", number(&parts.given, cell)?).made_of(&d.at(cell)?);
    let own = factor("−n", -number(&parts.normed, cell)?).made_of(&x.at(cell)?);
    let along = factor("mean(g · n)", number(&parts.along, cell)?);
    let mut terms = vec![Term(vec![given, root()?]), Term(vec![own, along, root()?])];
    if let Some(mean) = &parts.mean {
        terms.push(Term(vec![factor("−mean(g)", -number(mean, cell)?), root()?]));
    }
    Ok(terms)
}
