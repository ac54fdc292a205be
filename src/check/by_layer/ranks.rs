//! Several ranks as one device: how was the model split over them, and what did they do wrong with the pieces?

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use candle_core::Tensor;

use super::join::{Joined, natural};
use super::measure::{Source, apart, tolerance_of};
use super::sides::Sides;
use base::error::{Error, Result, shown};
use file::{Bundle, Info, Join, Recording, open_ranks};
use foreign::{ModelPart, Node, is_record, nodes, shifted};

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
    place: PathBuf,
    are_stages: bool,
    /// What was joined, in words.
    pub told: Vec<String>,
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
        }
    }

    /// The recordings of ranks as that of one device, as `whole` has it.
    pub fn join(
        whole: &Bundle,
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
        let mut joined = Joined::default();
        let join = |own: Vec<Bundle>| match &starts {
            Some(_) => staged(place, own, &mut told),
            None => joined.join(whole, place, own),
        };
        let passes = passes.into_iter().map(join).collect::<Result<_>>()?;
        told.insert(0, match &starts {
            Some(_) => tr!("{count} pipeline stages are joined", count).to_owned(),
            None => {
                let [same, sums, split] = joined.counts;
                tr!("{count} ranks are joined; tensors side by side: {split}, added up: {sums}, the same on all ranks: {same}", count, split, sums, same)
            }
        });
        told.extend(joined.odd());
        Ok(Self {
            passes,
            records,
            count,
            place: place.to_owned(),
            are_stages: starts.is_some(),
            told,
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
fn staged(place: &Path, stages: Vec<Bundle>, told: &mut Vec<String>) -> Result<Bundle> {
    let mut tensors: Vec<(Info, Join)> = Vec::new();
    let mut before: Option<(usize, Node)> = None;
    for (rank, file) in stages.iter().enumerate() {
        let all = nodes(file);
        // What a whole layer got, or else the first part in it.
        let inputs = all.iter().filter(|node| node.is_input && node.layer.is_some());
        let got = inputs.min_by_key(|node| (node.layer, (node.rank + 10) % 100));
        let mut handed = None;
        if let (Some(got), Some((last, gave))) = (got, before.take()) {
            let (Some(one), Some(other)) =
                (first_rows(stages.get(last), &gave)?, first_rows(Some(file), got)?)
            else {
                continue;
            };
            handed = Some(got.at);
            let is_it = one.dims() == other.dims() && apart(&one, &other)? <= tolerance_of(&other)?;
            if !is_it {
                told.push(tr!(
                    "stage {rank} got other numbers than stage {last} gave ({name})",
                    rank,
                    last,
                    name = shown(&gave.name)
                ));
                if let Some(own) = tensors.iter_mut().find(|(info, _)| info.name == gave.name) {
                    own.1 = Join::One(rank, got.at);
                }
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

/// What ranks did wrong with a part, where that gives its numbers: partial sums that are added twice or not at all, a bias that
/// each rank adds, or pieces in another order.
pub fn slip(sides: &Sides, at: usize, terms: &[usize], rows: &[usize]) -> Result<Option<String>> {
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
    if is(&(meant.clone() * count as f64)?)? {
        return Ok(Some(tr!(
            "it is {count} times what it should be: sums that the ranks had added up already are added up again",
            count
        )));
    }
    for (name, bias) in biases(sides, node)? {
        let others = (bias.to_dtype(meant.dtype())? * (count - 1) as f64)?;
        if others.dims().last() == meant.dims().last() && is(&meant.broadcast_add(&others)?)? {
            return Ok(Some(tr!(
                "each of the {count} ranks adds {name}, so that it is added {count} times",
                count,
                name = shown(&name)
            )));
        }
    }
    if let Some(name) = goes_alone(sides, at, terms, rows)? {
        return Ok(Some(tr!(
            "each rank goes on with its own partial sums of {name}: they are not added up",
            name = shown(&name)
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

/// The biases of a part of the reference, or of what is recorded of its attention.
fn biases(sides: &Sides, node: &Node) -> Result<Vec<(String, Tensor)>> {
    let mut all = sides.left.parameters(&node.path)?;
    if let [path] = sides.left.records(&node.path).as_slice() {
        let record = file::open_place(path)?;
        for name in [program::Name::BO.as_str()] {
            all.extend(record.tensor(name)?.map(|own| (name.to_owned(), own)));
        }
    }
    all.retain(|(_, own)| own.rank() == 1);
    Ok(all)
}

/// The term of a sum whose parts on the ranks are not added up: on each rank it is the sum of its own terms.
fn goes_alone(sides: &Sides, at: usize, terms: &[usize], rows: &[usize]) -> Result<Option<String>> {
    let mut partial = None;
    if terms.is_empty() {
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
        let mut sum: Option<Tensor> = None;
        for term in terms {
            let (Some(one), Some(first)) = (own(rank, *term)?, own(0, *term)?) else {
                return Ok(None);
            };
            if apart(&first, &one)? > tolerance_of(&one)? {
                partial = sides.nodes().get(*term).map(|node| node.name.clone());
            }
            sum = Some(sum.map_or(Ok(one.clone()), |sum| sum.add(&one))?);
        }
        let Some(sum) = sum else { return Ok(None) };
        if apart(&sum, &given)? > tolerance_of(&given)? * 4.0 {
            return Ok(None);
        }
    }
    Ok(partial)
}
