//! Which tensor of a recording of a whole model is beside which of another one's?

use std::collections::{HashMap, HashSet};

use super::names::last_segment;
use super::whole::{Node, Part, layer_of, stack_of};

/// Which node of the other recording each is beside: the one of its name; else, of those that no name has, what gives the same
/// in a recording; else the one that stands at the same place, by layer, part and order, and has rows of the same width, of the
/// same last name if there is one.
#[must_use]
pub fn matched(left: &[Node], right: &[Node]) -> Vec<Option<usize>> {
    let places: HashMap<&str, usize> =
        right.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let mut found: Vec<Option<usize>> =
        left.iter().map(|node| places.get(node.name.as_str()).copied()).collect();
    let taken: HashSet<usize> = found.iter().copied().flatten().collect();
    let mut open: Vec<usize> = (0..right.len()).filter(|at| !taken.contains(at)).collect();
    // Where both have a module of one name, what goes into it has its name too.
    let has = |nodes: &[Node], own: &Node| {
        own.is_input && nodes.iter().any(|other| other.path == own.path)
    };
    open.retain(|at| right.get(*at).is_some_and(|own| !has(left, own)));
    // Of modules within each other the innermost comes first.
    let mut outer = open.clone();
    outer.sort_by_key(|at| right.get(*at).map(|own| usize::MAX - own.path.len()));
    for at in outer {
        let Some(last) = right.get(at).and_then(|own| last_within(left, own)) else { continue };
        open.retain(|own| *own != at);
        if let Some(place) = found.get_mut(last) {
            place.get_or_insert(at);
        }
    }
    let (keys, others) = (keys(left), keys(right));
    // Names tell by their ends where each side has one alone; else the place in the layer does, and else the order.
    for step in [Told::Name, Told::Rank, Told::Order] {
        for (at, key) in keys.iter().enumerate() {
            if found.get(at) != Some(&None) || left.get(at).is_none_or(|own| has(right, own)) {
                continue;
            }
            let is_it = |other: &usize| others.get(*other).is_some_and(|other| other.is(key, step));
            let is_alike = |(at, own): &(usize, &Key)| {
                found.get(*at) == Some(&None) && own.is(key, Told::Name)
            };
            let is_one = || {
                keys.iter().enumerate().filter(is_alike).count() == 1
                    && open.iter().filter(|at| is_it(at)).count() == 1
            };
            if step == Told::Name && !is_one() {
                continue;
            }
            if let Some(chosen) = open.iter().position(is_it) {
                found[at] = Some(open.remove(chosen));
            }
        }
    }
    found
}

/// By what a node without a partner of its name is told.
#[derive(Clone, Copy, PartialEq)]
enum Told {
    Name,
    Rank,
    Order,
}

/// What a node and its partner have in common.
struct Key<'a> {
    kind: (Option<usize>, Part, usize),
    /// Whether it goes into a module, into a whole layer, and stands behind all layers.
    place: [bool; 3],
    rank: u32,
    name: &'a str,
}

fn keys(nodes: &[Node]) -> Vec<Key<'_>> {
    let mut has_layers = false;
    let mut all = Vec::with_capacity(nodes.len());
    for node in nodes {
        has_layers |= node.layer.is_some();
        let inner = layer_of(&node.path).1;
        // What goes into a layer goes into none of the modules in it but the first.
        let is_whole = node.is_input && inner.is_empty();
        let is_behind = has_layers && node.layer.is_none() || node.part == Part::Logits;
        let place = [node.is_input, is_whole, is_behind];
        let kind = (node.layer, node.part, node.width());
        all.push(Key { kind, place, rank: node.rank, name: last_segment(inner) });
    }
    all
}

impl Key<'_> {
    fn is(&self, other: &Self, told: Told) -> bool {
        (self.kind, self.place) == (other.kind, other.place)
            && match told {
                Told::Name => self.name == other.name,
                Told::Rank => self.rank == other.rank,
                Told::Order => true,
            }
    }
}

/// Reads as logits what two models give in the end, behind all of their layers, whatever it is called: where one names its
/// logits, what is as wide in the other; where neither does, what is as wide in both, and nothing in a layer is.
pub fn read_as_logits(left: &mut [Node], right: &mut [Node]) {
    let is_end = |node: &&Node| {
        let may_be = matches!(node.part, Part::Logits | Part::Linear | Part::Other);
        may_be && node.layer.is_none() && !node.is_input
    };
    let is_named = |node: &&Node| is_end(node) && node.part == Part::Logits;
    let named = |nodes: &[Node]| nodes.iter().rfind(is_named).map(Node::width);
    let end = |nodes: &[Node]| {
        let width = nodes.iter().rfind(is_end).map(Node::width)?;
        let is_inner = nodes.iter().any(|node| node.layer.is_some() && node.width() == width);
        (!is_inner).then_some(width)
    };
    let (one, other) = (named(left), named(right));
    let width = match (one, other) {
        (None, None) => end(left).filter(|width| end(right) == Some(*width)),
        _ => one.or(other),
    };
    let Some(width) = width else { return };
    for nodes in [left, right] {
        let place = nodes.iter().rposition(|node| is_end(&node) && node.width() == width);
        let has_one = nodes.iter().any(|node| is_named(&node) && node.width() == width);
        if let Some(last) = place.filter(|_| !has_one).and_then(|at| nodes.get_mut(at)) {
            last.part = Part::Logits;
        }
    }
}

/// The node of a recording that is what a module gives which has others within: what its last one does stands under that one's
/// name alone. The module may stand in a stack of layers that is called otherwise.
fn last_within(recording: &[Node], own: &Node) -> Option<usize> {
    let starts = |path: &str| path.starts_with(['.', '/']);
    let inner = layer_of(&own.path).1;
    let is_of_layer = |node: &Node| own.layer.is_some() && are_of_one_layer(recording, node, own);
    let is_within = |node: &Node| {
        let is_below = |path: &str, outer: &str| path.strip_prefix(outer).is_some_and(starts);
        let within = layer_of(&node.path).1;
        is_below(&node.path, &own.path)
            || is_of_layer(node) && (inner.is_empty() || is_below(within, inner))
    };
    let is_module =
        |node: &Node| node.path == own.path || is_of_layer(node) && layer_of(&node.path).1 == inner;
    let is_said = recording.iter().any(|node| !node.reads.is_empty())
        && !recording.iter().any(|node| !node.is_input && is_module(node));
    let last = recording.iter().rposition(|node| !node.is_input && is_within(node));
    let is_it = |at: &usize| recording.get(*at).is_some_and(|last| last.width() == own.width());
    last.filter(is_it).filter(|_| is_said && !own.is_input)
}

/// Whether a node of a recording stands in the layer of another recording's: of the only stack of layers, or of one that is called
/// the same.
fn are_of_one_layer(recording: &[Node], node: &Node, own: &Node) -> bool {
    let words = |path: &str| -> Vec<String> {
        let words = stack_of(path).split(|c: char| !c.is_alphanumeric());
        words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    };
    let is_another =
        |other: &Node| other.layer.is_some() && stack_of(&other.path) != stack_of(&node.path);
    let (one, other) = (words(&node.path), words(&own.path));
    let is_called_so = one.ends_with(&other) || other.ends_with(&one);
    node.layer == own.layer && (is_called_so || !recording.iter().any(is_another))
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;

    fn node(path: &str, reads: Vec<usize>) -> Node {
        Node {
            at: 0,
            name: format!("{path}.out"),
            path: path.to_owned(),
            is_input: false,
            part: Part::Embedding,
            rank: 0,
            layer: None,
            reads,
            eps: None,
            shape: vec![2, 3],
            dtype: DType::F32,
        }
    }

    #[test]
    fn ends_of_names_tell_before_order_does() {
        let of =
            |all: &[&str]| -> Vec<Node> { all.iter().map(|own| node(own, Vec::new())).collect() };
        let found = matched(&of(&["model.wte", "model.wpe"]), &of(&["wpe", "wte"]));
        assert_eq!(found, [Some(1), Some(0)]);
        let found = matched(&of(&["model.words", "model.places"]), &of(&["a", "b"]));
        assert_eq!(found, [Some(0), Some(1)]);
    }

    #[test]
    fn a_module_is_beside_its_last_part_in_a_recording() {
        let left = [node("bert.emb.words", Vec::new()), node("bert.emb.norm", vec![0])];
        let right = [node("bert.emb", Vec::new()), node("bert", Vec::new())];
        assert_eq!(matched(&left, &right), [None, Some(0)]);
        // What was recorded itself is not its last part.
        let right =
            [Node { name: "bert.emb.norm".to_owned(), ..node("bert.emb.norm", Vec::new()) }];
        let left = [left, [node("bert.emb.norm.scale", vec![0]), node("bert", vec![0])]].concat();
        assert_eq!(matched(&left, &right), [None, Some(0), None, None]);
    }
}
