//! Several ranks as one device: how was the model split over them, and what did they do wrong with the pieces?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use candle_core::Tensor;

use super::join::{Joined, natural};
use super::measure::{Source, apart, tolerance_of};
use base::error::{Error, Result, shown};
use file::{Bundle, Info, Join, Piece, Recording};
use foreign::{ModelPart, Node, nodes, shifted};

/// So many names of tensors are told.
const MOST_NAMES: usize = 4;

/// What ranks split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Heads and features: tensor parallelism.
    Heads,
    /// Tokens: context or sequence parallelism.
    Tokens,
    /// Layers: pipeline stages.
    Stages,
}

/// How many ranks split what, as `heads=4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unshard {
    /// What is split.
    pub split: Split,
    /// Over how many.
    pub count: usize,
}

impl FromStr for Unshard {
    type Err = String;

    /// `heads=4`, `tokens=2`, `stages=2`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (word, number) = text.split_once('=').unwrap_or((text, ""));
        let split = match word.trim() {
            "heads" => Split::Heads,
            "tokens" => Split::Tokens,
            "stages" => Split::Stages,
            _ => {
                return Err(
                    tr!("say what the ranks split, as heads=4, tokens=2 or stages=2").to_owned()
                );
            }
        };
        let count = number.trim().parse().ok().filter(|count| *count >= 2);
        let count = count
            .ok_or_else(|| tr!("give the number of ranks, from 2 up, as heads=4").to_owned())?;
        Ok(Self { split, count })
    }
}

/// The ranks of a recording, joined.
pub struct Ranks {
    pub passes: Vec<Bundle>,
    /// The records of attentions: what each is called, and its file, one for each rank that has it.
    pub records: Vec<(String, PathBuf)>,
    /// How many ranks there are, and where they are recorded.
    pub count: usize,
    pub place: PathBuf,
    /// Whether they are the stages of a pipeline.
    pub are_stages: bool,
    /// What was joined, in words.
    pub told: Vec<String>,
    /// That a stage got other numbers than the one before it gave.
    pub odd: Option<String>,
    /// What was given then, and what was got.
    pub handed: Vec<[String; 2]>,
    /// Orders in which the pieces of ranks stand, of tokens or of other axes.
    pub orders: Vec<Vec<usize>>,
    /// Tensors that all ranks should have the same, and a rank that does not.
    pub drifted: Vec<(String, usize)>,
}

impl Ranks {
    /// A recording of one device.
    pub fn of_one(recording: Recording) -> Self {
        let records = recording.records.into_iter().map(|path| (stem(&path), path)).collect();
        Self {
            passes: recording.passes,
            records,
            count: 1,
            place: PathBuf::new(),
            are_stages: false,
            told: Vec::new(),
            odd: None,
            handed: Vec::new(),
            orders: Vec::new(),
            drifted: Vec::new(),
        }
    }

    /// The same with passes one after the other, as the steps of a cache are, as one pass: tokens stand behind each other, in what all passes have.
    pub fn in_one_pass(mut self, place: &Path) -> Self {
        let passes = std::mem::take(&mut self.passes);
        let Some(first) = passes.first() else { return self };
        let mut tensors = Vec::new();
        for info in first.infos() {
            let same = |file: &Bundle| file.infos().iter().position(|own| own.name == info.name);
            let places: Vec<Option<usize>> = passes.iter().map(same).collect();
            let shape = |rank: usize, at: usize| {
                passes.get(rank)?.infos().get(at).map(|info| info.shape.clone())
            };
            // Of ids (item, token) and hidden states (item, token, feature) tokens are the second axis, of positions the first.
            let axis = usize::from(info.shape.len() > 2 || !info.dtype.is_float());
            let mut pieces = Vec::new();
            for (rank, at) in places.iter().enumerate() {
                let own = at.and_then(|at| Some((at, shape(rank, at)?)));
                let Some((at, shape)) = own.filter(|(_, shape)| shape.len() == info.shape.len())
                else {
                    continue;
                };
                let Some(count) = shape.get(axis).copied() else { continue };
                pieces.push(Piece { rank, at, first: 0, count });
            }
            // The mask of a step covers all keys so far.
            let is_mask = info.name.ends_with("mask");
            let (Some(last), false) = (pieces.last(), pieces.len() < passes.len()) else {
                continue;
            };
            let mut shape_of_all = info.shape.clone();
            let join = if is_mask {
                shape_of_all = shape(last.rank, last.at).unwrap_or_default();
                Join::One(last.rank, last.at)
            } else {
                if let Some(length) = shape_of_all.get_mut(axis) {
                    *length = pieces.iter().map(|piece| piece.count).sum();
                }
                Join::Pieces(axis, pieces)
            };
            tensors.push((Info { shape: shape_of_all, ..info.clone() }, join));
        }
        self.passes = vec![Bundle::joined(place, passes, tensors)];
        self
    }

    /// The recordings of ranks as that of one device, as `one` has it in a pass.
    pub fn join(
        (one, whole): (&Self, &Bundle),
        place: &Path,
        mut ranks: Vec<Recording>,
        stated: Option<Unshard>,
    ) -> Result<Self> {
        let count = ranks.len();
        if let Some(stated) = stated.filter(|stated| stated.count != count) {
            let what =
                tr!("holds {count} ranks where {stated} are stated", count, stated = stated.count);
            return Err(Error::file(
                place,
                what,
                "put the recording of each rank into a folder of its own: rank0, rank1 and so on",
            ));
        }
        let starts = match stated {
            Some(Unshard { split: Split::Heads | Split::Tokens, .. }) => None,
            _ => starts(whole, &ranks, stated.is_some()),
        };
        for (rank, start) in ranks.iter_mut().zip(starts.iter().flatten()) {
            for info in rank.passes.iter_mut().flat_map(Bundle::infos_mut) {
                info.name = shifted(&info.name, *start);
                info.formula = info.formula.as_deref().map(|formula| shifted_call(formula, *start));
            }
        }
        let mut records = Vec::new();
        for (at, rank) in ranks.iter().enumerate() {
            let start = starts.as_ref().and_then(|starts| starts.get(at)).copied().unwrap_or(0);
            records.extend(
                rank.records.iter().map(|path| (shifted(&stem(path), start), path.clone())),
            );
        }
        let mut told = Vec::new();
        let most = ranks.iter().map(|rank| rank.passes.len()).max().unwrap_or(0);
        let mut passes: Vec<Vec<Bundle>> = (0..most).map(|_| Vec::new()).collect();
        for rank in ranks {
            for (pass, file) in passes.iter_mut().zip(rank.passes) {
                pass.push(file);
            }
        }
        let mut joined = Joined::beside(one.records.clone());
        let mut handed = Vec::new();
        let join = |own: Vec<Bundle>| match &starts {
            Some(_) => staged(place, own, (&mut told, &mut handed)),
            None => joined.join(whole, place, own),
        };
        let passes = passes.into_iter().map(join).collect::<Result<_>>()?;
        let [same, sums, split] = joined.counts;
        let how = if starts.is_some() {
            tr!("{count} pipeline stages are joined", count)
        } else {
            tr!(
                "{count} ranks are joined; tensors side by side: {split}, added up: {sums}, the same on all ranks: {same}",
                count,
                split,
                sums,
                same
            )
        };
        let odd = told.first().cloned();
        told.insert(0, how);
        told.extend(joined.odd());
        Ok(Self {
            passes,
            records,
            count,
            place: place.to_owned(),
            are_stages: starts.is_some(),
            told,
            odd,
            handed,
            orders: joined.orders.into_keys().map(|(slots, _)| slots).collect(),
            drifted: joined.drifted,
        })
    }
}

fn stem(path: &Path) -> String {
    path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default()
}

/// A call with the layers of what it reads shifted: `LlamaMLP(model.layers.0.in, eps=1e-06)`.
fn shifted_call(formula: &str, by: usize) -> String {
    let Some((class, rest)) = formula.split_once('(') else { return formula.to_owned() };
    let all = rest
        .split(", ")
        .map(|own| if own.contains('=') { own.to_owned() } else { shifted(own, by) });
    format!("{class}({})", all.collect::<Vec<_>>().join(", "))
}

/// The layers that a file has.
fn layers(file: &Bundle) -> BTreeSet<usize> {
    nodes(file).iter().filter_map(|node| node.layer).collect()
}

/// By how much each rank's layers are to be shifted, if ranks are the stages of a pipeline: each has layers of its own.
fn starts(whole: &Bundle, ranks: &[Recording], is_stated: bool) -> Option<Vec<usize>> {
    let own: Vec<BTreeSet<usize>> =
        ranks.iter().map(|rank| rank.passes.first().map(layers).unwrap_or_default()).collect();
    let total: usize = own.iter().map(BTreeSet::len).sum();
    let all: BTreeSet<usize> = own.iter().flatten().copied().collect();
    if all.len() == total && total > 0 {
        return Some(vec![0; ranks.len()]);
    }
    let is_counted_anew = own.iter().all(|own| own.first().is_none_or(|first| *first == 0));
    if !(is_counted_anew && (is_stated || total == layers(whole).len())) {
        return None;
    }
    let mut next = 0;
    let start = |own: &BTreeSet<usize>| {
        let start = next;
        next += own.len();
        start
    };
    Some(own.iter().map(start).collect())
}

/// The files of stages as one. What a stage got is what the one before it gave.
fn staged(
    place: &Path,
    stages: Vec<Bundle>,
    (told, odd): (&mut Vec<String>, &mut Vec<[String; 2]>),
) -> Result<Bundle> {
    let mut tensors: Vec<(Info, Join)> = Vec::new();
    let mut before: Option<(usize, Node)> = None;
    for (rank, file) in stages.iter().enumerate() {
        let all = nodes(file);
        // What a whole layer got, or else the first part in it; what went into a later part, others made in the stage.
        let place = |node: &Node| (node.layer, (node.rank + 10) % 100);
        let of_layers = || all.iter().filter(|node| node.layer.is_some());
        let got = of_layers().filter(|node| node.is_input).min_by_key(|node| place(node));
        let made = of_layers().filter(|node| !node.is_input && node.part != ModelPart::Layer);
        let first_made = made.map(place).min();
        let got = got.filter(|got| first_made.is_none_or(|made| place(got) <= made));
        let mut handed = None;
        if let (Some(got), Some((last, gave))) = (got, before.take()) {
            let (Some(one), Some(other)) =
                (first_rows(stages.get(last), &gave)?, first_rows(Some(file), got)?)
            else {
                continue;
            };
            let tolerance = tolerance_of(&other)?;
            if apart(&one, &other)? <= tolerance {
                handed = Some(got.at);
            } else {
                let name = shown(&gave.name).into_owned();
                let others = stages.get(last).map(nodes).unwrap_or_default();
                let mut instead = None;
                for node in others.iter().filter(|node| node.name != gave.name) {
                    let own = first_rows(stages.get(last), node)?;
                    if own.is_some_and(|own| apart(&own, &other).is_ok_and(|off| off <= tolerance))
                    {
                        instead = Some(shown(&node.name).into_owned());
                    }
                }
                told.push(match instead {
                    Some(instead) => tr!(
                        "stage {rank} got {instead}, and stage {last} was to give {name}",
                        rank,
                        instead,
                        last,
                        name
                    ),
                    None => tr!(
                        "stage {rank} got other numbers than stage {last} gave ({name})",
                        rank,
                        last,
                        name
                    ),
                });
                odd.push([gave.name, got.name.clone()]);
            }
        }
        let infos = file.infos().iter().enumerate().filter(|(at, _)| Some(*at) != handed);
        for (at, info) in infos {
            if !tensors.iter().any(|(known, _)| known.name == info.name) {
                tensors.push((info.clone(), Join::One(rank, at)));
            }
        }
        let gave = all.into_iter().filter(|node| node.part == ModelPart::Layer);
        before = gave.max_by_key(|node| node.layer).map(|node| (rank, node));
    }
    Ok(Bundle::joined(place, stages, tensors))
}

/// The first rows of a node.
fn first_rows(file: Option<&Bundle>, node: &Node) -> Result<Option<Tensor>> {
    let Some(file) = file else { return Ok(None) };
    let source = Source { file, at: node.at, width: node.width() };
    source.picked(&(0..node.rows().min(8)).collect::<Vec<_>>()).map(Some)
}

impl Joined {
    /// What stands in another order than the ranks do, in words.
    pub fn odd(&self) -> Vec<String> {
        let listed = |all: &[usize]| {
            let all: Vec<String> = all.iter().map(usize::to_string).collect();
            all.join(", ")
        };
        let told = |((slots, copies), names): (&(Vec<usize>, usize), &Vec<String>)| {
            let shown_names: Vec<&str> =
                names.iter().take(MOST_NAMES).map(String::as_str).collect();
            let (order, names) = (listed(slots), shown(&shown_names.join(", ")).into_owned());
            if *copies > 1 {
                let usual = listed(&natural(slots.len(), *copies));
                tr!(
                    "the ranks hold the pieces {order} of {names}, where {usual} are those of their heads",
                    order,
                    names,
                    usual
                )
            } else {
                tr!("the ranks hold the pieces {order} of the reference's {names}", order, names)
            }
        };
        self.orders.iter().map(told).collect()
    }
}
