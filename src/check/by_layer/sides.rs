//! Two recordings of a whole model, opened: which of their tensors stand beside each other.

use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::align::{Alignment, align};
use super::computed::with_computed;
use super::measure::{Beside, Measure, Source, measure};
use super::part::Parameters;
use super::ranks::{Ranks, Unshard};
use super::tokens_first::put_items_first;
use base::error::{Error, Result};
use file::{Bundle, Recording, open_ranks};
use foreign::{ModelPart, Node, is_record, matched, nodes, read_as_logits};

/// A side of the comparison.
pub struct Side {
    pub ranks: Ranks,
    /// The nodes of each forward pass.
    pub nodes: Vec<Vec<Node>>,
}

/// A row of a node of the reference, and one of a pass of the port.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub left: usize,
    pub pass: usize,
    pub right: usize,
}

/// Both sides.
pub struct Sides {
    pub left: Side,
    pub right: Side,
    /// For each node of the reference, its place among the nodes of each of the port's passes.
    pub beside: Vec<Vec<Option<usize>>>,
    pub alignment: Alignment,
    /// Which rows of a decoder's tokens do, where it has others than the encoder.
    of_decoder: Option<Alignment>,
}

impl Side {
    fn new(place: &Path, ranks: Ranks) -> Result<Self> {
        let all: Vec<Vec<Node>> = ranks.passes.iter().map(nodes).collect();
        if all.iter().all(Vec::is_empty) {
            let what = tr!("holds no tensor that a part of a model gave");
            let fix = tr!(
                "record the whole model, by mha_trace.record(model, everything=True), or name tensors by their modules"
            );
            return Err(Error::file(place, what, fix));
        }
        Ok(Self { ranks, nodes: all })
    }

    /// A tensor of a pass.
    pub fn source(&self, pass: usize, node: &Node) -> Option<Source<'_>> {
        let file = self.ranks.passes.get(pass)?;
        Some(Source { file, at: node.at, width: node.width() })
    }

    /// The parameters of a part, without those of several experts together.
    pub fn parameters(&self, path: &str) -> Result<Parameters> {
        self.below(path, |_, rank| rank < 3)
    }

    /// The parameters of a mixture of experts.
    pub fn mixture(&self, path: &str) -> Result<Parameters> {
        self.below(path, |name, rank| rank < 3 || name.starts_with("experts."))
    }

    /// What is held below a path, and no part gave, of what is asked for by its name and its number of axes.
    fn below(&self, path: &str, is_asked: impl Fn(&str, usize) -> bool) -> Result<Parameters> {
        let mut all = Parameters::new();
        for file in &self.ranks.passes {
            for (at, info) in file.infos().iter().enumerate() {
                let own =
                    info.name.strip_prefix(path).and_then(|rest| rest.strip_prefix(['.', '/']));
                let is_it = |own: &&str| {
                    !["in", "out", "input", "output"].contains(own)
                        && is_asked(own, info.shape.len())
                };
                if let Some(own) = own.filter(is_it).filter(|_| info.formula.is_none()) {
                    all.push((own.to_owned(), file.tensor_at(at)?));
                }
            }
        }
        Ok(all)
    }

    /// Whether a part chooses experts, by what its parameters are called.
    pub fn chooses(&self, path: &str) -> bool {
        let infos = self.ranks.passes.iter().flat_map(Bundle::infos);
        let mut own = infos.filter_map(|info| info.name.strip_prefix(path));
        own.any(|name| name.contains("expert") || name.contains("router"))
    }

    /// Whether what stands at a path is a part of an attention that was recorded.
    pub fn is_within_record(&self, path: &str) -> bool {
        let is_within = |(stem, _): &(String, PathBuf)| {
            path.strip_prefix(stem.as_str()).is_some_and(|rest| rest.starts_with('.'))
        };
        self.ranks.records.iter().any(is_within)
    }

    /// The records of the attention at a path: one of each rank that has it, or of each step of a cache.
    pub fn records(&self, path: &str) -> Vec<&PathBuf> {
        let is_within = |outer: &str, inner: &str| {
            inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        let own = |stem: &str| is_within(stem, path) || is_within(path, stem);
        let first = self.ranks.records.iter().find(|(stem, _)| own(stem));
        // Those of a cache's steps are numbered.
        let is_same = |stem: &str| {
            let number = first.and_then(|(first, _)| stem.strip_prefix(first.as_str()));
            number.is_some_and(|number| {
                let number = number.strip_prefix('.').unwrap_or(number);
                number.chars().all(|c| c.is_ascii_digit())
            })
        };
        let same = self.ranks.records.iter().filter(|(stem, _)| is_same(stem));
        same.map(|(_, path)| path).collect()
    }
}

/// What recordings call the logits that a model gives in the end.
const LOGITS: &str = "logits";

/// What goes into a part of the port and is not what goes into it in the reference, where an earlier part gave that, is put
/// beside that: a node of its own, between the two. So it is asked what the port made it of.
fn with_other_inputs(
    left: &mut Side,
    right: &Side,
    beside: Vec<Vec<Option<usize>>>,
) -> Vec<Vec<Option<usize>>> {
    let (Some(nodes), [others]) = (left.nodes.first(), right.nodes.as_slice()) else {
        return beside;
    };
    let of = |at: usize| beside.get(at).and_then(|own| own.first().copied().flatten());
    let taken: Vec<usize> = (0..nodes.len()).filter_map(of).collect();
    let (mut all, mut places, mut moved) = (Vec::new(), Vec::new(), Vec::new());
    for (at, node) in nodes.iter().enumerate() {
        let mut node = node.clone();
        node.reads = node.reads.iter().filter_map(|at| moved.get(*at).copied()).collect();
        let read = nodes.get(at).and_then(|node| nodes.get(*node.reads.first()?));
        let other =
            of(at).and_then(|at| others.get(at)).and_then(|other| match *other.reads.as_slice() {
                [read] => Some((read, others.get(read)?)),
                _ => None,
            });
        // What a module within an attention gives may stand beside the attention itself, which reads something else.
        let is_inner = of(at).and_then(|at| others.get(at)).is_some_and(|own| {
            right.is_within_record(&own.path) && !left.is_within_record(&node.path)
        });
        if let (Some(read), Some((place, other)), [_]) = (read, other, node.reads.as_slice())
            && !is_inner
            && other.is_input
            && !read.is_input
            && !taken.contains(&place)
            && read.shape == other.shape
        {
            let mut between = Node { reads: Vec::new(), eps: None, ..read.clone() };
            between.name.clone_from(&other.name);
            between.path.clone_from(&node.path);
            (between.is_input, between.part, between.layer) =
                (true, ModelPart::Between, node.layer);
            node.reads = vec![all.len()];
            all.push(between);
            places.push(vec![Some(place)]);
        }
        all.push(node);
        places.push(beside.get(at).cloned().unwrap_or_default());
        // What a stage got in place of what the one before it gave is what all behind it reads.
        let gave = of(at).and_then(|at| others.get(at));
        let handed =
            right.ranks.handed.iter().find(|[own, _]| gave.is_some_and(|gave| gave.name == *own));
        let got = handed.and_then(|[_, got]| others.iter().position(|other| other.name == *got));
        if let (Some(place), Some(gave)) = (got, all.last()) {
            let Node { name, path, layer, .. } = others[place].clone();
            let (reads, part) = (vec![all.len() - 1], ModelPart::Between);
            all.push(Node { name, path, layer, reads, part, is_input: true, ..gave.clone() });
            places.push(vec![Some(place)]);
        }
        moved.push(all.len() - 1);
    }
    // The logits of a model are those of its last layer, where it does nothing more with them: that is so where a recording
    // that says what each part reads has no others.
    let logits = |node: &&Node| node.part == ModelPart::Logits && node.layer.is_none();
    let (one, other) =
        (all.iter().rposition(|node| logits(&node)), others.iter().rposition(|node| logits(&node)));
    if let (Some(one), Some(other)) = (one, other)
        && all[one].shape == others[other].shape
        && places[one].first() != Some(&Some(other))
    {
        if all[one].name == LOGITS && !others[other].reads.is_empty() {
            places[one] = vec![Some(other)];
        } else if others[other].name == LOGITS && !all[one].reads.is_empty() {
            all.push(Node {
                name: LOGITS.to_owned(),
                path: LOGITS.to_owned(),
                reads: vec![one],
                ..all[one].clone()
            });
            places.push(vec![Some(other)]);
        }
    }
    left.nodes = vec![all];
    places
}

/// Both sides, each as of one device, with the axes of items and tokens as the reference has them.
fn both_ranks(left: &Path, right: &Path, stated: Option<Unshard>) -> Result<(Ranks, Ranks)> {
    let one = open_ranks(left, is_record)?;
    let mut other = open_ranks(right, is_record)?;
    let is_turned = match one.as_slice() {
        [Recording { passes, .. }] if !passes.is_empty() => {
            put_items_first(&passes[0], &mut other)?
        }
        _ => false,
    };
    let (one, mut other) = as_devices([left, right], [one, other], stated)?;
    if is_turned {
        other.told.push(
            tr!("the port has its tokens before the items of the batch, which is read as such")
                .to_owned(),
        );
    }
    Ok((one, other))
}

/// Ranks of both sides as one device each.
fn as_devices(
    [left, right]: [&Path; 2],
    [one, other]: [Vec<Recording>; 2],
    stated: Option<Unshard>,
) -> Result<(Ranks, Ranks)> {
    let (left_place, right_place) = (left, right);
    let only = |mut ranks: Vec<Recording>| {
        if ranks.len() == 1 { ranks.pop().ok_or(ranks) } else { Err(ranks) }
    };
    let (left_ranks, right_ranks) = (only(one), only(other));
    let joined = |one: &Ranks, place: &Path, ranks: Vec<Recording>| match one.passes.first() {
        Some(whole) => Ranks::join((one, whole), place, ranks, stated),
        None => Err(Error::file(
            place,
            tr!("holds no tensor that a part of a model gave"),
            tr!("record the whole model, by mha_trace.record(model, everything=True)"),
        )),
    };
    match (left_ranks, right_ranks) {
        (Ok(left), Ok(right)) if stated.is_none() => {
            let (one, other) = (Ranks::of_one(left), Ranks::of_one(right));
            // What the reference did in several passes stands beside one pass of the port, or beside the same ones.
            let (count, others) = (one.passes.len(), other.passes.len());
            let one = if count > 1 { one.in_one_pass(left_place) } else { one };
            let other =
                if count > 1 && count == others { other.in_one_pass(right_place) } else { other };
            Ok((one, other))
        }
        (Ok(_), Ok(_)) => Err(Error::file(
            right,
            tr!("is no recording of several ranks"),
            "put the recording of each rank into a folder of its own, rank0, rank1 and so on, or leave out --unshard",
        )),
        (Ok(left), Err(ranks)) => {
            let left = Ranks::of_one(left);
            let right = joined(&left, right, ranks)?;
            Ok((left, right))
        }
        (Err(ranks), Ok(right)) => {
            let right = Ranks::of_one(right);
            Ok((joined(&right, left, ranks)?, right))
        }
        (Err(_), Err(_)) => Err(Error::file(
            left,
            tr!("is of several ranks, and so is the other recording"),
            "record one of the two on a single device: it says how tensors were split",
        )),
    }
}

impl Sides {
    /// Opens both sides. Where one is of several ranks, these are joined as the other one has it.
    pub fn open(left: &Path, right: &Path, stated: Option<Unshard>) -> Result<Self> {
        let (left_ranks, right_ranks) = both_ranks(left, right, stated)?;
        let mut right_side = Side::new(right, right_ranks)?;
        let has = |name: &str| right_side.nodes.iter().flatten().any(|node| node.name == name);
        let mut left_side = Side::new(left, with_computed(left_ranks, has)?)?;
        // The passes of a cache may stand beside one of all tokens.
        let last = left_side.nodes.len().saturating_sub(1);
        for (pass, others) in right_side.nodes.iter_mut().enumerate() {
            if let Some(own) = left_side.nodes.get_mut(pass.min(last)) {
                read_as_logits(own, others);
            }
        }
        let own = left_side.nodes.first().map(Vec::as_slice).unwrap_or_default();
        let beside: Vec<Vec<Option<usize>>> =
            right_side.nodes.iter().map(|nodes| matched(own, nodes)).collect();
        let beside: Vec<Vec<Option<usize>>> = (0..own.len())
            .map(|at| beside.iter().map(|pass| pass.get(at).copied().flatten()).collect())
            .collect();
        if beside.iter().flatten().all(Option::is_none) {
            let what = tr!("no part of it is beside one of the other recording");
            return Err(Error::file(
                right,
                what,
                "name tensors by their modules, as in model.layers.0.mlp.out",
            ));
        }
        let beside = with_other_inputs(&mut left_side, &right_side, beside);
        let (alignment, of_decoder) = align(&left_side.ranks.passes, &right_side.ranks.passes)?;
        Ok(Self { left: left_side, right: right_side, beside, alignment, of_decoder })
    }

    /// What was aligned, in words.
    pub fn aligned_in_words(&self) -> Option<String> {
        let both = [self.of_decoder.as_ref(), Some(&self.alignment)];
        both.into_iter().flatten().find_map(|own| own.told.clone())
    }

    /// What is to be said where the tokens are not the same.
    pub fn warning(&self) -> Option<String> {
        let both = [Some(&self.alignment), self.of_decoder.as_ref()];
        both.into_iter().flatten().find_map(|own| own.warning.clone())
    }

    /// The nodes of the reference, in order of execution.
    pub fn nodes(&self) -> &[Node] {
        self.left.nodes.first().map(Vec::as_slice).unwrap_or_default()
    }

    /// The node of the port beside one of the reference, and its pass: the first that has it.
    pub fn partner(&self, at: usize) -> Option<(usize, &Node)> {
        let found =
            self.beside.get(at)?.iter().enumerate().find_map(|(pass, at)| Some((pass, (*at)?)))?;
        Some((found.0, self.right.nodes.get(found.0)?.get(found.1)?))
    }

    /// How far a node is apart on both sides; nothing where the port does not have it, or rows of another width or number.
    pub fn measured(&self, at: usize) -> Result<Option<Measure>> {
        let Some(node) = self.nodes().get(at) else { return Ok(None) };
        let Some(left) = self.left.source(0, node) else { return Ok(None) };
        let Some(rows) = self.rows(at) else { return Ok(None) };
        measure(left, &self.sources(at), &rows)
    }

    /// The port's tensors of a node, in each pass.
    fn sources(&self, at: usize) -> Vec<Option<Source<'_>>> {
        let width = self.nodes().get(at).map(Node::width);
        let places = self.beside.get(at).map(Vec::as_slice).unwrap_or_default();
        let source = |(pass, place): (usize, &Option<usize>)| {
            let node = self.right.nodes.get(pass)?.get((*place)?)?;
            self.right.source(pass, node).filter(|source| Some(source.width) == width)
        };
        places.iter().enumerate().map(source).collect()
    }

    /// Which rows of a node stand beside which of the port.
    pub fn rows(&self, at: usize) -> Option<Vec<Beside>> {
        let node = self.nodes().get(at)?;
        let places = self.beside.get(at)?;
        let counts: Vec<Option<usize>> = places
            .iter()
            .enumerate()
            .map(|(pass, place)| Some(self.right.nodes.get(pass)?.get((*place)?)?.rows()))
            .collect();
        let is_of_encoder = node.path.contains("encoder") && !node.path.contains("decoder");
        let of_decoder = self.of_decoder.as_ref().filter(|_| !is_of_encoder);
        let rows = of_decoder.and_then(|own| own.rows(node.rows(), &counts));
        rows.or_else(|| self.alignment.rows(node.rows(), &counts))
    }

    /// How many of so many tokens each pass of the port has, at a node.
    pub fn passes(&self, at: usize, tokens: usize) -> Vec<usize> {
        let places = self.beside.get(at).map(Vec::as_slice).unwrap_or_default();
        let rows = |(pass, place): (usize, &Option<usize>)| {
            Some(self.right.nodes.get(pass)?.get((*place)?)?.rows())
        };
        let rows: Vec<usize> = places.iter().enumerate().filter_map(rows).collect();
        let items = rows.iter().sum::<usize>().checked_div(tokens).unwrap_or(1).max(1);
        rows.into_iter().map(|rows| rows / items).collect()
    }

    /// Which rows of a node stand beside which of the port's one pass, where they do not stand in the same places.
    pub fn aligned(&self, at: usize) -> Option<Vec<Beside>> {
        let rows = self.rows(at).filter(|_| self.right.nodes.len() == 1)?;
        rows.iter().any(|own| own.left != own.right).then_some(rows)
    }

    /// The rows of a node that the port's one pass has, too, where these are not all, or stand in other places.
    pub fn kept(&self, at: usize) -> Option<Vec<usize>> {
        let beside = self.rows(at).filter(|_| self.right.nodes.len() == 1)?;
        let rows: Vec<usize> =
            beside.iter().flat_map(|own| own.left..own.left + own.count).collect();
        let are_all = Some(rows.len()) == self.nodes().get(at).map(Node::rows);
        let stand_elsewhere = beside.iter().any(|own| own.left != own.right);
        let are_others = !are_all || stand_elsewhere || self.alignment.is_packed;
        (!rows.is_empty() && are_others).then_some(rows)
    }

    /// Rows of a node of the reference, in f32, as (1, rows, width).
    pub fn picked_left(&self, at: usize, rows: &[usize]) -> Result<Option<Tensor>> {
        let source = self.nodes().get(at).and_then(|node| self.left.source(0, node));
        let source = source.filter(|_| !rows.is_empty());
        source.map(|source| source.picked(rows)).transpose()
    }

    /// Rows of a node on both sides, in f32, as (1, rows, width): of the reference, and of the port.
    pub fn picked(&self, at: usize, rows: &[usize]) -> Result<Option<[Tensor; 2]>> {
        self.picked_by(at, at, rows)
    }

    /// The same of what rows of another node read: a side may have what is one for all items, as positions are, once.
    pub fn picked_by(&self, at: usize, by: usize, rows: &[usize]) -> Result<Option<[Tensor; 2]>> {
        match self.places(at, by, rows) {
            Some(places) => self.of_pairs(at, &places),
            None => Ok(None),
        }
    }

    /// Where the rows of a node stand that rows of another one read.
    fn places(&self, at: usize, by: usize, rows: &[usize]) -> Option<Vec<Row>> {
        let beside = self.rows(by)?;
        let left = |at: usize| self.nodes().get(at).map(Node::rows);
        let of = |row: usize, all: usize, fewer: usize| {
            (fewer > 0 && all.is_multiple_of(fewer)).then(|| row % fewer)
        };
        let place = |row: &usize| {
            let own = beside.iter().find(|own| (own.left..own.left + own.count).contains(row))?;
            let port = |at: usize| {
                let place = self.beside.get(at)?.get(own.pass)?;
                Some(self.right.nodes.get(own.pass)?.get((*place)?)?.rows())
            };
            let right = of(own.right + row - own.left, port(by)?, port(at)?)?;
            Some(Row { left: of(*row, left(by)?, left(at)?)?, pass: own.pass, right })
        };
        rows.iter().map(place).collect()
    }

    /// Rows of a node beside those of the port, at most so many: one of the reference may stand beside several.
    pub fn pairs(&self, at: usize, most: usize) -> Option<Vec<Row>> {
        let row = |own: Beside, at: usize| Row {
            left: own.left + at,
            pass: own.pass,
            right: own.right + at,
        };
        let beside = self.rows(at)?.into_iter();
        Some(beside.flat_map(|own| (0..own.count).map(move |at| row(own, at))).take(most).collect())
    }

    /// The numbers of pairs, in f32, as (1, rows, width).
    pub fn of_pairs(&self, at: usize, rows: &[Row]) -> Result<Option<[Tensor; 2]>> {
        let sources = self.sources(at);
        let mut other = Vec::with_capacity(rows.len());
        for row in rows {
            let Some(source) = sources.get(row.pass).copied().flatten() else { return Ok(None) };
            other.push(source.picked(&[row.right])?);
        }
        let left: Vec<usize> = rows.iter().map(|row| row.left).collect();
        let Some(left) = self.picked_left(at, &left)? else { return Ok(None) };
        Ok(Some([left, Tensor::cat(&other, 1)?]))
    }

    /// The rows of a node that both sides have, or the reference alone, at most so many, `worst` among them.
    pub fn some_rows(&self, at: usize, worst: usize, most: usize) -> Vec<usize> {
        let all: Vec<usize> = match self.rows(at) {
            Some(all) => all.iter().flat_map(|own| own.left..own.left + own.count).collect(),
            None => (0..self.nodes().get(at).map_or(0, Node::rows)).collect(),
        };
        let step = (all.len() / most.max(1)).max(1);
        let mut some: Vec<usize> =
            all.into_iter().step_by(step).take(most.saturating_sub(1)).collect();
        if !some.contains(&worst) {
            some.push(worst);
        }
        some.sort_unstable();
        some
    }
}
