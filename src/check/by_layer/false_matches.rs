//! Which tensors stand beside each other by their names, and are not the same all the same?

use std::collections::HashSet;

use super::measure::{Measure, apart, tolerance_of};
use super::sides::Sides;
use super::{FAR, Judge};
use base::error::Result;
use foreign::{ModelPart, Node, shifted};

/// So many rows tell which tensor one is.
const FEW: usize = 32;
/// A tensor is another one than it seems where that is so many times nearer,
const NEARER: f64 = 4.0;
/// and no further than that from it, relative to a row.
const NEAR: f64 = 0.5;

/// An embedding that stands beside another one by its name, and has the numbers of something else that goes into the first
/// layer, is put beside that: it may be words and positions together, or what a factor was applied to.
pub fn by_numbers(sides: &mut Sides) -> Result<()> {
    let is_free = |sides: &Sides, at: usize| sides.partner(at).is_none();
    let is_embedding = |node: &Node| node.part == ModelPart::Embedding && node.layer.is_none();
    let end = (0..sides.nodes().len())
        .find(|at| !is_free(sides, *at) && !sides.nodes().get(*at).is_some_and(is_embedding))
        .unwrap_or(0);
    let agrees = |sides: &Sides, at: usize| -> Result<bool> {
        Ok(sides.measured(at)?.is_some_and(|found| found.agrees()))
    };
    for at in 0..end {
        let has_other_name = match (sides.nodes().get(at), sides.partner(at)) {
            (Some(node), Some((_, other))) => node.name != other.name,
            _ => false,
        };
        if !has_other_name || agrees(sides, at)? {
            continue;
        }
        for place in at + 1..end {
            if is_free(sides, place) {
                sides.beside.swap(at, place);
                if agrees(sides, place)? {
                    break;
                }
                sides.beside.swap(at, place);
            }
        }
    }
    Ok(())
}

/// A module of a layer that stands beside another one by its place, and has the numbers of a third tensor of the layer, is put
/// beside that, and so in all layers: what is called attention may end behind its projection, its residual or a norm.
pub fn within_layers(sides: &mut Sides) -> Result<()> {
    for at in 0..sides.nodes().len() {
        let Some(place) = nearer(sides, at)? else { continue };
        let (nodes, mut moves) = (sides.nodes(), Vec::new());
        for (to, beside) in in_layers(nodes, at, &nodes[place].name) {
            if let Some(from) = nodes.iter().position(|node| node.name == beside)
                && sides.partner(from).is_none()
            {
                moves.push((to, from));
            }
        }
        for (to, from) in moves {
            sides.beside.swap(to, from);
        }
    }
    Ok(())
}

/// The places of a node's name in its layer and in those behind it, and what another of its layer is called there.
fn in_layers(nodes: &[Node], at: usize, other: &str) -> Vec<(usize, String)> {
    let own = &nodes[at];
    let of = |(to, node): (usize, &Node)| {
        let by = node.layer?.checked_sub(own.layer?)?;
        (node.name == shifted(&own.name, by)).then(|| (to, shifted(other, by)))
    };
    nodes.iter().enumerate().skip(at).filter_map(of).collect()
}

/// A name without the numbers in it, that of its layer among them.
fn numberless(name: &str) -> String {
    name.split(|c: char| c.is_ascii_digit()).collect()
}

/// A tensor that stands beside none, and whose numbers one of the port's in the same layer has that stands beside none either,
/// is put beside that, and so in all layers: names of other code may say nothing.
pub fn left_over(sides: &mut Sides) -> Result<()> {
    if sides.right.nodes.len() != 1 {
        return Ok(());
    }
    let others = sides.right.nodes[0].clone();
    let mut tried = HashSet::new();
    for at in 0..sides.nodes().len() {
        for (place, other) in others.iter().enumerate() {
            let node = &sides.nodes()[at];
            let fits =
                node.layer.is_some() && node.layer == other.layer && node.shape == other.shape;
            let is_free = || sides.partner(at).is_none() && stands_alone(sides, place);
            let names = || [&node.name, &other.name].map(|name| numberless(name));
            if !fits || !is_free() || !tried.insert(names()) {
                continue;
            }
            let rows = sides.some_rows(at, 0, FEW);
            sides.beside[at] = vec![Some(place)];
            let picked = sides.picked(at, &rows)?;
            sides.beside[at] = vec![None];
            let Some([meant, own]) = picked else { continue };
            let tolerance = tolerance_of(&meant)?.max(tolerance_of(&own)?);
            if apart(&meant, &own)? <= tolerance {
                put_beside(sides, at, place);
            }
        }
    }
    Ok(())
}

/// Whether a tensor of the port stands beside none.
fn stands_alone(sides: &Sides, place: usize) -> bool {
    !sides.beside.iter().any(|own| own.first() == Some(&Some(place)))
}

/// Puts two tensors beside each other, and those of their names in all layers.
fn put_beside(sides: &mut Sides, at: usize, place: usize) {
    for (to, beside) in in_layers(sides.nodes(), at, &sides.right.nodes[0][place].name) {
        let from = sides.right.nodes[0].iter().position(|node| node.name == beside);
        if let Some(from) =
            from.filter(|from| stands_alone(sides, *from) && sides.partner(to).is_none())
        {
            sides.beside[to] = vec![Some(from)];
        }
    }
}

/// The tensor without a partner whose numbers the port has where it has a module of another name beside a node of the layer.
fn nearer(sides: &Sides, at: usize) -> Result<Option<usize>> {
    let nodes = sides.nodes();
    let (Some(node), Some((_, other))) = (nodes.get(at), sides.partner(at)) else {
        return Ok(None);
    };
    let is_stream = matches!(other.part, ModelPart::Norm | ModelPart::Between | ModelPart::Layer);
    if node.layer.is_none() || node.name == other.name || is_stream {
        return Ok(None);
    }
    let rows = sides.some_rows(at, 0, FEW);
    let Some([meant, own]) = sides.picked(at, &rows)? else { return Ok(None) };
    let (off, tolerance) = (apart(&meant, &own)?, tolerance_of(&meant)?.max(tolerance_of(&own)?));
    let mut best = None;
    let mut most = if off <= tolerance { 0.0 } else { (off / NEARER).min(NEAR) };
    for (place, free) in nodes.iter().enumerate() {
        let is_free =
            free.layer == node.layer && free.shape == node.shape && sides.partner(place).is_none();
        if is_free && let Some(meant) = sides.picked_left(place, &rows)? {
            let off = apart(&meant, &own)?;
            if off < most {
                (best, most) = (Some(place), off);
            }
        }
    }
    Ok(best)
}

/// Where a tensor stands beside another one by its order alone, and what is behind it agrees though it does not, the two are not
/// the same: neither are those of these names in other layers. Their places.
pub fn false_ones(sides: &Sides, measured: &[Option<Measure>]) -> Vec<usize> {
    let names = |at: usize| Some(other_names(sides, at)?.map(numberless));
    let others: Vec<(usize, [String; 2])> =
        (0..measured.len()).filter_map(|at| Some((at, names(at)?))).collect();
    let differs =
        |at: usize| measured.get(at).copied().flatten().is_some_and(|found| !found.agrees());
    let is_false =
        |(at, _): &&(usize, [String; 2])| differs(*at) && is_undone(sides, measured, *at);
    let wrong: HashSet<&[String; 2]> =
        others.iter().filter(is_false).map(|(_, names)| names).collect();
    others.iter().filter(|(_, names)| wrong.contains(names)).map(|(at, _)| *at).collect()
}

/// The names of a node and of the port's beside it, where they have two.
pub fn other_names(sides: &Sides, at: usize) -> Option<[&str; 2]> {
    let (own, (_, other)) = (sides.nodes().get(at)?, sides.partner(at)?);
    (own.name != other.name).then_some([&own.name, &other.name])
}

impl Judge<'_> {
    /// Whether what is off in a part has no effect on what its layer gives, or on the end of the model.
    pub fn is_undone(&self, at: usize) -> bool {
        is_undone(self.sides, &self.measured, at)
    }
}

/// Whether what is off in a part has no effect on what its layer gives, or on the end of the model: the port has something else
/// in its place, or does elsewhere what the reference does in it.
fn is_undone(sides: &Sides, measured: &[Option<Measure>], at: usize) -> bool {
    let Some(Some(found)) = measured.get(at) else { return false };
    let nodes = sides.nodes();
    let is_measured = |place: &usize| measured.get(*place).is_some_and(Option::is_some);
    let behind: Vec<usize> = (at + 1..nodes.len()).filter(is_measured).collect();
    let layer = |place: usize| nodes.get(place).and_then(|node| node.layer);
    // The layers that a node stands among: `model.layers.`. Others belong to those behind them where all of these are of one
    // stack; else only the end of the model counts.
    let stack = |place: usize| {
        let node = nodes.get(place).filter(|node| node.layer.is_some());
        node.and_then(|node| node.path.split(|c: char| c.is_ascii_digit()).next())
    };
    let stacks: HashSet<&str> = (at..nodes.len()).filter_map(stack).collect();
    let only = stacks.iter().next().copied().filter(|_| stacks.len() == 1);
    let among = |place: usize| stack(place).or(only);
    let ends = behind.iter().zip(behind.iter().skip(1).map(Some).chain([None]));
    let mut ends = ends.filter(|(own, next)| {
        let is_of_them = among(at).is_some() && among(at) == stack(**own);
        next.is_none_or(|next| is_of_them && layer(*next) != layer(**own))
    });
    ends.any(|(end, _)| {
        let end = measured.get(*end).copied().flatten();
        end.is_some_and(|end| end.agrees() && end.error * FAR < found.error)
    })
}
