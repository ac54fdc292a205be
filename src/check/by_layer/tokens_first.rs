//! Does a recording have its tokens before the items of a batch, as those of Megatron have, where the other one has items first?

use super::measure::{Beside, Source, measure};
use base::error::Result;
use file::{Bundle, Info, Join, Recording};
use foreign::{Node, matched, nodes};

/// Puts items first in recordings of one pass whose tokens come before them. Whether that was so.
pub fn put_items_first(whole: &Bundle, recordings: &mut [Recording]) -> Result<bool> {
    let mut was_any = false;
    for recording in recordings {
        let [pass] = recording.passes.as_slice() else { continue };
        let path = pass.path().to_owned();
        if let Some(tensors) = with_items_first(whole, pass)? {
            let passes = std::mem::take(&mut recording.passes);
            recording.passes = vec![Bundle::joined(&path, passes, tensors)];
            was_any = true;
        }
    }
    Ok(was_any)
}

/// How the tensors of a file are made of it with items first, if its tokens come before them, where the reference has items
/// first; nothing where that is not so.
fn with_items_first(own: &Bundle, other: &Bundle) -> Result<Option<Vec<(Info, Join)>>> {
    let (own_nodes, other_nodes) = (nodes(own), nodes(other));
    let beside = matched(&own_nodes, &other_nodes);
    let pairs = own_nodes.iter().zip(beside);
    let pairs: Vec<(&Node, &Node)> = pairs
        .filter_map(|(node, at)| Some((node, other_nodes.get(at?)?)))
        .filter(|(node, _)| node.shape.len() > 2)
        .collect();
    let Some((first, partner)) = pairs.first().copied() else { return Ok(None) };
    let (items, tokens) = (first.shape[0], first.shape[1]);
    let is_turned = |(node, other): &(&Node, &Node)| {
        node.shape[0] == items
            && other.shape.len() == node.shape.len()
            && other.shape[0] != items
            && other.shape[1] == items
    };
    let are_tokens_first = items > 1
        && (pairs.iter().all(is_turned)
            || numbers_are_turned([own, other], [first, partner], [items, tokens])?);
    if !are_tokens_first {
        return Ok(None);
    }
    let is_node = |at: usize| other_nodes.iter().any(|node| node.at == at);
    let turned = |(at, info): (usize, &Info)| {
        let mut info = info.clone();
        match *info.shape.as_slice() {
            [_, own, _, ..] if own == items && is_node(at) => info.shape.swap(0, 1),
            [rows, _] if rows == items * tokens && is_node(at) => {
                info.shape.splice(..1, [items, tokens]);
            }
            _ => return (info, Join::One(0, at)),
        }
        (info, Join::Turned(0, at))
    };
    Ok(Some(other.infos().iter().enumerate().map(turned).collect()))
}

/// Whether the rows of one part agree in that order alone: as many items as tokens, and rows of all of them without an axis of
/// items, leave the order open.
fn numbers_are_turned(
    [own, other]: [&Bundle; 2],
    [node, partner]: [&Node; 2],
    [items, tokens]: [usize; 2],
) -> Result<bool> {
    /// Rows that agree in one order differ by many times their rounding in another, if they are not all alike.
    const MUCH: f64 = 10.0;
    if node.rows() != items * tokens
        || partner.rows() != node.rows()
        || partner.width() != node.width()
    {
        return Ok(false);
    }
    let left = Source { file: own, at: node.at, width: node.width() };
    let right = [Some(Source { file: other, at: partner.at, width: partner.width() })];
    let plain = [Beside { left: 0, pass: 0, right: 0, count: node.rows() }];
    let row = |left: usize| Beside {
        left,
        pass: 0,
        right: left % tokens * items + left / tokens,
        count: 1,
    };
    let turned: Vec<Beside> = (0..node.rows()).map(row).collect();
    let Some(plain) = measure(left, &right, &plain)?.filter(|plain| !plain.agrees()) else {
        return Ok(false);
    };
    let turned = measure(left, &right, &turned)?;
    Ok(turned.is_some_and(|turned| {
        turned.error * MUCH < plain.error && turned.usual * MUCH < plain.usual
    }))
}
