//! What did ranks do wrong with the sums and pieces of a part, where that gives its numbers?

use candle_core::Tensor;

use super::cut;
use super::exact::Exact;
use super::measure::{Measure, Source, apart, tolerance_of};
use super::part::{Parameters, Reading};
use super::sides::Sides;
use base::error::{Error, Result, shown};
use file::{open_place, open_ranks};
use foreign::{Node, is_record};
use program::{Name, added_up};

/// What ranks did wrong with a part, where that gives its numbers: partial sums that are added twice, a bias that each rank adds,
/// or pieces in another order.
pub fn slip(sides: &Sides, at: usize, rows: &[usize]) -> Result<Option<String>> {
    let count = sides.right.ranks.count;
    // Stages add nothing up.
    if sides.right.ranks.are_stages {
        return Ok(sides.right.ranks.told.get(1).cloned());
    }
    let (Some(node), Some([meant, own])) = (sides.nodes().get(at), sides.picked(at, rows)?) else {
        return Ok(None);
    };
    let tolerance = tolerance_of(&own)?.max(tolerance_of(&meant)?) * 4.0;
    let is = |other: &Tensor| -> Result<bool> { Ok(apart(other, &own)? <= tolerance) };
    if is(&(meant.clone() * times(count))?)? {
        return Ok(Some(tr!(
            "it is {count} times what it should be: sums that the ranks had added up already are added up again",
            count
        )));
    }
    for (name, bias) in biases(sides, node)? {
        let others = (bias.to_dtype(meant.dtype())? * times(count - 1))?;
        if others.dims().last() == meant.dims().last() && is(&meant.broadcast_add(&others)?)? {
            return Ok(Some(tr!(
                "each of the {count} ranks adds {name}, so that it is added {count} times",
                count,
                name = shown(&name)
            )));
        }
    }
    let name = sides.partner(at).map(|(_, node)| node.name.as_str());
    let drifted = sides.right.ranks.drifted.iter().find(|(own, _)| Some(own.as_str()) == name);
    if let Some((name, rank)) = drifted {
        return Ok(Some(tr!(
            "all ranks should have the same {name}, and rank {rank} has another one: it goes on with its own part, or adds up others",
            name = shown(name),
            rank
        )));
    }
    let width = node.width();
    if !width.is_multiple_of(count) {
        return Ok(None);
    }
    let block = |tensor: &Tensor, at: usize| -> Result<Tensor> {
        Ok(tensor.narrow(2, at * width / count, width / count)?.contiguous()?)
    };
    let mut order = Vec::new();
    for rank in 0..count {
        for slot in 0..count {
            if apart(&block(&meant, slot)?, &block(&own, rank)?)? <= tolerance {
                order.push(slot);
                break;
            }
        }
    }
    let is_once = (0..count).all(|slot| order.contains(&slot));
    let listed: Vec<String> = order.iter().map(usize::to_string).collect();
    Ok((is_once && order.len() == count).then(|| {
        tr!(
            "the pieces of the ranks are put together in the order {order}",
            order = listed.join(", ")
        )
    }))
}

/// That the gate and the first projection of an MLP, one behind the other in a matrix, are cut over the ranks as if this were one:
/// a rank has a stretch of the two together, and takes its halves as its parts of both.
pub fn cut_as_one(
    sides: &Sides,
    exact: &mut Exact,
    (at, found): (usize, Measure),
    rows: &[usize],
) -> Result<Option<String>> {
    let Some((input, reading, mut parameters)) = exact.as_program(at)? else { return Ok(None) };
    let taken = |name: Name| reading.taken.iter().find(|(own, _)| *own == name).map(|(_, own)| own);
    for place in [0, 1] {
        let both = [Name::MLP_GATE, Name::MLP_UP].map(|names| taken(names[place]));
        let [Some(gate), Some(up)] = both else { continue };
        let of = |name: &str| parameters.iter().find(|(own, _)| own == name).map(|(_, own)| own);
        let (Some(one), Some(other)) = (of(&gate.name), of(&up.name)) else { return Ok(None) };
        let axis = usize::from(gate.is_transposed);
        let is_packed = gate.name == up.name;
        let parts = if is_packed { one.chunk(2, axis)? } else { vec![one.clone(), other.clone()] };
        let Some(cut) = cut::cut_as_one(&parts, axis, sides.right.ranks.count)? else {
            return Ok(None);
        };
        let (gate, up) = (gate.name.clone(), up.name.clone());
        let others: Vec<(String, Tensor)> = if is_packed {
            vec![(gate, Tensor::cat(&cut, axis)?)]
        } else {
            [gate, up].into_iter().zip(cut).collect()
        };
        for (name, other) in others {
            parameters.retain(|(own, _)| *own != name);
            parameters.push((name, other.contiguous()?));
        }
    }
    let (Some([_, x]), Some([_, own])) =
        (sides.picked_by(input, at, rows)?, sides.picked(at, rows)?)
    else {
        return Ok(None);
    };
    let given = reading.gives(&x, &parameters)?;
    let is_it = given
        .is_some_and(|given| apart(&own, &given).is_ok_and(|off| off <= 4.0 * found.tolerance));
    Ok(is_it.then(|| {
        tr!("the matrix of gate and first projection, one behind the other, is cut over the ranks as one: the first ranks have of the gate alone, the last of the projection").to_owned()
    }))
}

/// The biases of a part of the reference, or of what is recorded of its attention.
fn biases(sides: &Sides, node: &Node) -> Result<Vec<(String, Tensor)>> {
    let mut all = sides.left.parameters(&node.path)?;
    if let [path] = sides.left.records(&node.path).as_slice() {
        let record = open_place(path)?;
        let name = Name::BO.as_str();
        all.extend(record.tensor(name)?.map(|own| (name.to_owned(), own)));
    }
    all.retain(|(_, own)| own.rank() == 1);
    Ok(all)
}

fn times(count: usize) -> f64 {
    count as f64
}

/// The term of a sum whose parts on the ranks are not added up, how far that on a rank is from what it should be, and what is to
/// be said: on each rank the sum is that of its own terms. Where the port did not record the sum, what it is read by is that of
/// these.
pub fn goes_alone(
    sides: &Sides,
    (at, terms, behind): (usize, &[usize], Option<(Reading, Parameters)>),
    rows: &[usize],
) -> Result<Option<(usize, f64, String)>> {
    let mut partial = None;
    if terms.is_empty() || sides.right.ranks.are_stages || sides.right.ranks.count < 2 {
        return Ok(None);
    }
    let ranks = open_ranks(&sides.right.ranks.place, is_record)?;
    let own = |rank: usize, at: usize| -> Result<Option<Tensor>> {
        let (Some(file), Some((0, node))) =
            (ranks.get(rank).and_then(|rank| rank.passes.first()), sides.partner(at))
        else {
            return Ok(None);
        };
        let place =
            file.infos().iter().position(|info| info.name == node.name && info.shape == node.shape);
        place.map(|at| Source { file, at, width: node.width() }.picked(rows)).transpose()
    };
    for rank in 0..ranks.len() {
        let Some(given) = own(rank, at)? else { return Ok(None) };
        let mut parts = Vec::new();
        for term in terms {
            let of_rank = |rank| match sides.partner(*term) {
                None if behind.is_some() => sides.picked_left(*term, rows),
                _ => own(rank, *term),
            };
            let (Some(one), Some(first)) = (of_rank(rank)?, of_rank(0)?) else {
                return Ok(None);
            };
            if apart(&first, &one)? > tolerance_of(&one)? {
                let meant = sides.picked_left(*term, rows)?;
                partial = meant.map(|meant| Ok::<_, Error>((*term, apart(&meant, &one)?)));
            }
            parts.push(Ok(one));
        }
        let mut sum = added_up(parts.into_iter())?;
        if let Some((reading, parameters)) = &behind {
            let Some(read) = reading.gives(&sum, parameters)? else { return Ok(None) };
            sum = read;
        }
        if apart(&sum, &given)? > tolerance_of(&given)? * 4.0 {
            return Ok(None);
        }
    }
    let Some((term, off)) = partial.transpose()? else { return Ok(None) };
    let name = sides.nodes().get(term).map_or("", |node| node.name.as_str());
    let told = tr!(
        "each rank goes on with its own partial sums of {name}: they are not added up",
        name = shown(name)
    );
    Ok(Some((term, off, told)))
}
