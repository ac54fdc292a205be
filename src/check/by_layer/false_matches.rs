//! Which tensors stand beside each other by their names, and are not the same all the same?

use std::collections::HashSet;

use super::sides::Sides;
use super::{FAR, Judge};
use base::error::Result;
use foreign::{ModelPart, Node};

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

impl Judge<'_> {
    /// The names of a node and of the port's beside it, where they have two.
    pub fn other_names(&self, at: usize) -> Option<[&str; 2]> {
        let (own, (_, other)) = (self.sides.nodes().get(at)?, self.sides.partner(at)?);
        (own.name != other.name).then_some([&own.name, &other.name])
    }

    /// Where a tensor stands beside another one by its order alone, and what is behind it agrees though it does not, the two
    /// are not the same: neither are those of these names in other layers.
    pub fn dismiss_false_matches(&mut self) {
        let numberless = |name: &str| name.split(|c: char| c.is_ascii_digit()).collect::<String>();
        let names = |at: usize| Some(self.other_names(at)?.map(numberless));
        let others: Vec<(usize, [String; 2])> =
            (0..self.measured.len()).filter_map(|at| Some((at, names(at)?))).collect();
        let differs = |at: usize| self.measured[at].is_some_and(|found| !found.agrees());
        let is_false = |(at, _): &&(usize, [String; 2])| differs(*at) && self.is_undone(*at);
        let wrong: HashSet<&[String; 2]> =
            others.iter().filter(is_false).map(|(_, names)| names).collect();
        for (at, _) in others.iter().filter(|(_, names)| wrong.contains(names)) {
            self.measured[*at] = None;
        }
    }

    /// Whether what is off in a part has no effect on what its layer gives, or on the end of the model: the port has something
    /// else in its place, or does elsewhere what the reference does in it.
    pub fn is_undone(&self, at: usize) -> bool {
        let Some(Some(found)) = self.measured.get(at) else { return false };
        let nodes = self.sides.nodes();
        let is_measured = |place: &usize| self.measured.get(*place).is_some_and(Option::is_some);
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
            let end = self.measured.get(*end).copied().flatten();
            end.is_some_and(|end| end.agrees() && end.error * FAR < found.error)
        })
    }
}
