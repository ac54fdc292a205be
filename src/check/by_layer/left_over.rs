//! Which tensors are compared with none of the other side?

use std::collections::HashSet;

use super::measure::Measure;
use super::sides::Sides;
use foreign::{ModelPart, Node, is_weight};

/// What was not compared, by its names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOver {
    /// Of the reference, logits first.
    pub left: Vec<String>,
    /// Of the port.
    pub right: Vec<String>,
    /// The logits of the reference, and what of the port stands behind its layers, where neither is compared.
    pub end: Option<[String; 2]>,
}

impl LeftOver {
    /// What of both sides was measured beside nothing.
    pub fn of(sides: &Sides, measured: &[Option<Measure>]) -> Self {
        let is_measured = |at: &usize| measured.get(*at).is_some_and(Option::is_some);
        let nodes = sides.nodes();
        let mut missing: Vec<&Node> =
            (0..nodes.len()).filter(|at| !is_measured(at)).filter_map(|at| nodes.get(at)).collect();
        missing.sort_by_key(|node| node.part != ModelPart::Logits);
        let left: Vec<String> = missing.iter().map(|node| node.name.clone()).collect();
        let (mut right, mut ends) = (Vec::new(), Vec::new());
        for (pass, own) in sides.right.nodes.iter().enumerate() {
            let place = |at: usize| sides.beside.get(at)?.get(pass).copied().flatten();
            let taken: HashSet<usize> =
                (0..nodes.len()).filter(is_measured).filter_map(place).collect();
            let layers = own.iter().rposition(|node| node.layer.is_some());
            for (at, node) in own.iter().enumerate().filter(|(at, _)| !taken.contains(at)) {
                right.push(node.name.clone());
                let may_be_end =
                    !node.is_input && !matches!(node.part, ModelPart::Embedding | ModelPart::Norm);
                if may_be_end && layers.is_some_and(|layers| at > layers) {
                    ends.push(node.name.clone());
                }
            }
            right.extend(unread(sides, pass));
        }
        let mut known = HashSet::new();
        right.retain(|name| known.insert(name.clone()));
        let mut logits = (0..nodes.len())
            .filter(|at| nodes.get(*at).is_some_and(|node| node.part == ModelPart::Logits));
        let is_open = !logits.any(|at| is_measured(&at));
        let meant = missing.first().filter(|node| node.part == ModelPart::Logits);
        let end = meant.zip(ends.last()).filter(|_| is_open);
        let end = end.map(|(meant, own)| [meant.name.clone(), own.clone()]);
        Self { left, right, end }
    }
}

/// The tensors of a pass of the port that are read as no node: single rows.
fn unread(sides: &Sides, pass: usize) -> Vec<String> {
    let (Some(file), Some(nodes)) =
        (sides.right.ranks.passes.get(pass), sides.right.nodes.get(pass))
    else {
        return Vec::new();
    };
    let is_said = nodes.iter().any(|node| !node.reads.is_empty());
    let infos = file.infos().iter().enumerate();
    let left = infos.filter(|(at, info)| {
        let is_row = info.dtype.is_float() && info.shape.iter().product::<usize>() > 1;
        is_row && !is_said && !is_weight(&info.name) && nodes.iter().all(|node| node.at != *at)
    });
    left.map(|(_, info)| info.name.clone()).collect()
}
