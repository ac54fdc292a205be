//! How do tensors of several ranks make up those of one device? Shapes say it, and where they do not, numbers do.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::measure::{apart, tolerance_of};
use base::error::Result;
use file::{Bundle, Info, Join, Piece, open_place};
use foreign::{ModelPart, Node, nodes, projected, read_as_logits};
use program::{Name, wide};

/// So many numbers of each piece tell which one it is.
const SAMPLE: usize = 4096;

/// A tensor of one rank: the rank, and the tensor's place in its file.
type Own = (usize, usize);

/// Heads, and what they become before scores, the last of it first.
pub const BEHIND: [(Name, [Name; 3]); 2] = [
    (Name::QHeads, [Name::QRot, Name::QClipped, Name::QNorm]),
    (Name::KHeads, [Name::KRot, Name::KClipped, Name::KNorm]),
];

/// How tensors of one shape stand to each other.
#[derive(PartialEq)]
enum Alike {
    Same,
    /// They add up.
    Sum,
    /// They should be the same, and this one is furthest from the reference.
    Apart(Own),
}

/// How the tensors of some ranks were joined.
#[derive(Debug, Clone, Default)]
pub struct Joined {
    /// The records of the reference's attentions.
    records: Vec<(String, PathBuf)>,
    /// How many tensors are the same on all ranks, added up, or side by side.
    pub counts: [usize; 3],
    /// Tensors whose pieces stand in another order than the ranks do: of each rank, or half of one, the piece that it holds; and
    /// how many ranks one behind the other should hold the same.
    pub orders: BTreeMap<(Vec<usize>, usize), Vec<String>>,
    /// Tensors that all ranks should have the same, and the rank that is furthest from the reference.
    pub drifted: Vec<(String, usize)>,
    /// Orders that are known, by the length of the axis.
    known: HashMap<usize, Vec<usize>>,
    /// Whether tensors are partial sums, by their names in any layer.
    sums: HashMap<String, bool>,
}

impl Joined {
    /// Nothing yet, of which the reference has these records of attentions.
    pub fn beside(records: Vec<(String, PathBuf)>) -> Self {
        Self { records, ..Self::default() }
    }

    /// The tensors of ranks as those of one device, in the shapes of `whole`.
    pub fn join(&mut self, whole: &Bundle, path: &Path, ranks: Vec<Bundle>) -> Result<Bundle> {
        let mut all: Vec<(Info, Vec<Own>)> = Vec::new();
        for (rank, file) in ranks.iter().enumerate() {
            for (at, info) in file.infos().iter().enumerate() {
                match all.iter_mut().find(|(known, _)| known.name == info.name) {
                    Some((_, own)) => own.push((rank, at)),
                    None => all.push((info.clone(), vec![(rank, at)])),
                }
            }
        }
        let mut joins: Vec<Option<(Info, Join)>> = vec![None; all.len()];
        let logits = logits(whole, &ranks);
        // What is wrong may come near to nothing, and is joined as that of other layers; so these are first.
        for is_last in [false, true] {
            for ((info, own), place) in
                all.iter().zip(&mut joins).filter(|(_, place)| place.is_none())
            {
                let of_logits = logits.as_ref().filter(|(name, _)| *name == info.name);
                let meant = beside(whole, &info.name).or(of_logits.map(|(_, at)| *at));
                let Some((join, shape)) = self.of((whole, meant), &ranks, own, (info, is_last))?
                else {
                    continue;
                };
                let shape = shape.unwrap_or(info.shape.clone());
                *place = Some((Info { shape, ..info.clone() }, join));
            }
        }
        Ok(Bundle::joined(path, ranks, joins.into_iter().flatten().collect()))
    }

    /// How one tensor is made of those of the ranks, and which shape it has then; nothing where that is not clear, and others
    /// are to be looked at first.
    fn of(
        &mut self,
        (whole, meant): (&Bundle, Option<usize>),
        ranks: &[Bundle],
        own: &[Own],
        (info, is_last): (&Info, bool),
    ) -> Result<Option<(Join, Option<Vec<usize>>)>> {
        let Some((rank, at)) = own.first().copied() else {
            return Ok(Some((Join::One(0, 0), None)));
        };
        let record = if meant.is_none() { self.recorded(&info.name)? } else { None };
        let (whole, meant) = record.as_ref().map_or((whole, meant), |(file, at)| (file, Some(*at)));
        let one = Some((Join::One(rank, at), None));
        let shapes: Vec<&[usize]> = own
            .iter()
            .filter_map(|(rank, at)| Some(ranks.get(*rank)?.infos().get(*at)?.shape.as_slice()))
            .collect();
        let (Some(shape), true) = (shapes.first().copied(), own.len() > 1) else { return Ok(one) };
        let known = meant.and_then(|at| Some((at, whole.infos().get(at)?.shape.as_slice())));
        if let Some((at, meant)) = known.filter(|(_, meant)| *meant != shape) {
            let axis = (0..meant.len().min(shape.len())).rev().find(|axis| {
                let long: usize = shapes.iter().filter_map(|shape| shape.get(*axis)).sum();
                meant[*axis] != shape[*axis] && long.is_multiple_of(meant[*axis].max(1))
            });
            let Some(axis) = axis.filter(|_| meant.len() == shape.len()) else { return Ok(one) };
            let Some(pieces) = self.pieces((whole, at), axis, ranks, (own, is_last))? else {
                return Ok(None);
            };
            let long = pieces.iter().map(|piece| piece.count).sum();
            let mut shape = shape.to_vec();
            shape[axis] = long;
            self.counts[2] += 1;
            return Ok(Some((Join::Pieces(axis, pieces), Some(shape))));
        }
        if shapes.iter().any(|other| *other != shape) {
            return Ok(in_order(&shapes, ranks, own).or(one));
        }
        let alike =
            self.alike(known.map(|(at, _)| (whole, at)), ranks, own, (&info.name, is_last))?;
        let Some(alike) = alike else { return Ok(None) };
        self.counts[usize::from(alike == Alike::Sum)] += 1;
        Ok(match alike {
            Alike::Same => one,
            Alike::Sum => Some((Join::Sum(own.to_vec()), None)),
            Alike::Apart((rank, place)) => {
                self.drifted.push((info.name.clone(), rank));
                Some((Join::One(rank, place), None))
            }
        })
    }

    /// The record of the attention that a module of that name stands in, and where it has what that gives.
    fn recorded(&self, name: &str) -> Result<Option<(Bundle, usize)>> {
        let path = name.strip_suffix(".out").unwrap_or(name);
        let Some((stem, module)) = path.rsplit_once('.') else { return Ok(None) };
        let mut own = self.records.iter().filter(|(own, _)| own == stem);
        let (Some(given), Some((_, path)), None) = (projected(module), own.next(), own.next())
        else {
            return Ok(None);
        };
        let file = open_place(path)?;
        let at = file.infos().iter().position(|info| info.name == given.as_str());
        Ok(at.map(|at| (file, at)))
    }

    /// Whether tensors of one shape are partial sums, or the same on all ranks, or should be the same.
    fn alike(
        &mut self,
        meant: Option<(&Bundle, usize)>,
        ranks: &[Bundle],
        own: &[Own],
        (name, is_last): (&str, bool),
    ) -> Result<Option<Alike>> {
        let samples: Vec<Tensor> = own
            .iter()
            .filter_map(|(rank, at)| Some(sample(ranks.get(*rank)?, *at, 0, SAMPLE)))
            .collect::<Result<_>>()?;
        let Some((first, others)) = samples.split_first() else { return Ok(Some(Alike::Same)) };
        let mut are_same = true;
        let mut sum = first.clone();
        for other in others {
            are_same &= agree(first, other)?;
            sum = sum.add(other)?;
        }
        if are_same {
            return Ok(Some(Alike::Same));
        }
        let Some((whole, at)) = meant else { return Ok(Some(Alike::Sum)) };
        let meant = sample(whole, at, 0, SAMPLE)?;
        let [of_sum, of_one] = [apart(&meant, &sum)?, apart(&meant, first)?];
        let mut is_sum = of_sum < of_one;
        if of_sum.min(of_one) <= NEAR {
            self.sums.insert(in_any_layer(name), is_sum);
        } else if let Some(usual) = self.sums.get(&in_any_layer(name)) {
            is_sum = *usual;
        } else if !is_last {
            return Ok(None);
        } else {
            is_sum |= is_same_behind(ranks, name)?;
        }
        if is_sum {
            return Ok(Some(Alike::Sum));
        }
        // The rank that is furthest from the reference, the first of such.
        let mut worst = (f64::NEG_INFINITY, own.first().copied());
        for (sample, own) in samples.iter().zip(own) {
            let off = apart(&meant, sample)?;
            if off > worst.0 {
                worst = (off, Some(*own));
            }
        }
        Ok(worst.1.map(Alike::Apart))
    }

    /// The pieces of a tensor along an axis, in the order in which the reference has them; nothing where their numbers do not say
    /// it, and others are to be looked at first.
    fn pieces(
        &mut self,
        (whole, at): (&Bundle, usize),
        axis: usize,
        ranks: &[Bundle],
        (own, is_last): (&[Own], bool),
    ) -> Result<Option<Vec<Piece>>> {
        let Some(info) = whole.infos().get(at) else { return Ok(Some(Vec::new())) };
        let total = info.shape.get(axis).copied().unwrap_or(1);
        let all = natural_pieces(ranks, own, axis);
        let unit = all.first().map_or(0, |piece| piece.count);
        if all.iter().any(|piece| piece.count != unit) || unit == 0 {
            return Ok(Some(all));
        }
        let copies = (unit * all.len()).checked_div(total).unwrap_or(1).max(1);
        let place = Place { whole, at, axis, ranks, copies };
        let mut best = place.arranged(&all)?;
        // Of halves any may stand anywhere, as chunks of long sequences do.
        if unit.is_multiple_of(2) && copies == 1 {
            let halves = halved(&all);
            let other = place.arranged(&halves)?;
            if other.error < best.error / FAR {
                best = other;
            }
        }
        if best.error > NEAR {
            if !is_last {
                return Ok(None);
            }
            best.slots =
                self.known.get(&total).cloned().unwrap_or_else(|| natural(all.len(), copies));
        } else if copies == 1 {
            self.known.entry(total).or_insert_with(|| best.slots.clone());
        }
        if best.slots != natural(best.slots.len(), copies) {
            self.orders.entry((best.slots.clone(), copies)).or_default().push(info.name.clone());
        }
        let units = if best.slots.len() > all.len() { halved(&all) } else { all };
        let mut placed: Vec<(usize, Piece)> = best.slots.into_iter().zip(units).collect();
        placed.sort_by_key(|(slot, _)| *slot);
        placed.dedup_by_key(|(slot, _)| *slot);
        Ok(Some(placed.into_iter().map(|(_, piece)| piece).collect()))
    }
}

/// Chunks of unequal lengths, as those of a long prompt are, beside nothing: one behind the other, where they differ along one
/// axis alone.
fn in_order(
    shapes: &[&[usize]],
    ranks: &[Bundle],
    own: &[Own],
) -> Option<(Join, Option<Vec<usize>>)> {
    let shape = shapes.first()?;
    let differs = |axis: &usize| shapes.iter().any(|other| other.get(*axis) != shape.get(*axis));
    let axis = (0..shape.len()).find(differs)?;
    let pieces = natural_pieces(ranks, own, axis);
    let with = |count: usize| {
        let mut whole = shape.to_vec();
        whole[axis] = count;
        whole
    };
    let fits = |own: &&[usize]| own.get(axis).is_some_and(|count| with(*count) == **own);
    let whole = with(pieces.iter().map(|piece| piece.count).sum());
    shapes.iter().all(fits).then_some((Join::Pieces(axis, pieces), Some(whole)))
}

/// All of a tensor along an axis that each rank has, in the order of the ranks.
fn natural_pieces(ranks: &[Bundle], own: &[Own], axis: usize) -> Vec<Piece> {
    let long = |(rank, at): Own| ranks.get(rank)?.infos().get(at)?.shape.get(axis).copied();
    own.iter()
        .filter_map(|own| Some(Piece { rank: own.0, at: own.1, first: 0, count: long(*own)? }))
        .collect()
}

/// Whether all ranks have the same behind the layer of a tensor, as a residual stream or another layer has it: what differs between
/// them within the layer was added up before that.
fn is_same_behind(ranks: &[Bundle], name: &str) -> Result<bool> {
    let Some((first, others)) = ranks.split_first() else { return Ok(false) };
    let all = nodes(first);
    let Some(at) = all.iter().position(|node| node.name == name) else { return Ok(false) };
    let layer = all.get(at).and_then(|node| node.layer);
    let is_behind = |node: &&Node| node.layer != layer || node.part == ModelPart::Layer;
    for node in all.iter().skip(at + 1).filter(is_behind) {
        let place = |file: &Bundle| {
            let is_it = |info: &Info| info.name == node.name && info.shape == node.shape;
            file.infos().iter().position(is_it)
        };
        let places: Option<Vec<usize>> = others.iter().map(place).collect();
        let Some(places) = places else { continue };
        let meant = sample(first, node.at, 0, SAMPLE)?;
        let mut are_same = true;
        for (file, place) in others.iter().zip(places) {
            are_same = are_same && agree(&meant, &sample(file, place, 0, SAMPLE)?)?;
        }
        if are_same {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Where the tensor stands that one of a name is beside: one of its name, or of what heads become, as a function of attention
/// gets them.
fn beside(whole: &Bundle, name: &str) -> Option<usize> {
    let place = |name: &str| whole.infos().iter().position(|known| known.name == name);
    let behind = BEHIND.iter().find(|(heads, _)| heads.as_str() == name);
    let behind = behind.into_iter().flat_map(|(_, behind)| behind);
    place(name).or_else(|| behind.map(|name| name.as_str()).find_map(place))
}

/// What ranks call their logits, or their pieces of them, and where those of the reference stand.
fn logits(whole: &Bundle, ranks: &[Bundle]) -> Option<(String, usize)> {
    let (mut meant, own) = (nodes(whole), nodes(ranks.first()?));
    for times in [1, ranks.len()] {
        let mut own = own.clone();
        for node in own.iter_mut().filter(|node| node.layer.is_none()) {
            node.shape.last_mut().into_iter().for_each(|width| *width *= times);
        }
        read_as_logits(&mut meant, &mut own);
        let last = |nodes: &[Node]| {
            let is_it = |node: &&Node| node.part == ModelPart::Logits && node.layer.is_none();
            nodes.iter().rfind(is_it).map(|node| (node.name.clone(), node.at, node.width()))
        };
        if let (Some((_, at, width)), Some((name, _, own))) = (last(&meant), last(&own))
            && width == own
        {
            return Some((name, at));
        }
    }
    None
}

/// A piece that is so near to its place in the reference is the one that belongs there.
const NEAR: f64 = 0.2;
/// A place is another one than it seems where that is so many times nearer.
const FAR: f64 = 4.0;

/// Where pieces stand in the reference.
struct Arranged {
    slots: Vec<usize>,
    /// How far the worst piece is off.
    error: f64,
}

/// An axis of a tensor of the reference, over which ranks are to be placed.
struct Place<'a> {
    whole: &'a Bundle,
    at: usize,
    axis: usize,
    ranks: &'a [Bundle],
    /// So many ranks one behind the other have the same piece.
    copies: usize,
}

impl Place<'_> {
    /// The places that pieces of one length have by their numbers; those in order of ranks where numbers do not say it.
    fn arranged(&self, pieces: &[Piece]) -> Result<Arranged> {
        let usual = natural(pieces.len(), self.copies);
        let count = usual.last().map_or(0, |last| last + 1);
        let mut found = Arranged { slots: Vec::new(), error: 0.0 };
        for (piece, own) in pieces.iter().zip(&usual) {
            let mut best = (*own, self.off(piece, *own)?);
            let natural = best.1;
            for slot in (0..count).filter(|slot| slot != own) {
                let off = self.off(piece, slot)?;
                if off < natural / FAR && off < best.1 {
                    best = (slot, off);
                }
            }
            found.slots.push(best.0);
            found.error = found.error.max(best.1);
        }
        let is_once = (0..count).all(|slot| found.slots.contains(&slot));
        Ok(if self.copies > 1 || is_once {
            found
        } else {
            Arranged { slots: usual, error: f64::INFINITY }
        })
    }

    /// How far a piece is from what the reference has in a place, in the first and the last row.
    fn off(&self, piece: &Piece, slot: usize) -> Result<f64> {
        let shape = |file: &Bundle, at: usize| file.infos().get(at).map(|info| info.shape.clone());
        let Some((file, own)) =
            self.ranks.get(piece.rank).and_then(|file| Some((file, shape(file, piece.at)?)))
        else {
            return Ok(f64::INFINITY);
        };
        let meant = shape(self.whole, self.at).unwrap_or_default();
        let product = |shape: &[usize]| shape.iter().product::<usize>();
        let split = |shape: &[usize]| {
            let (outer, rest) = shape.split_at(self.axis.min(shape.len()));
            (product(outer), product(rest), product(rest.get(1..).unwrap_or_default()))
        };
        let ((outer, long, inner), (_, total, _)) = (split(&own), split(&meant));
        let count = SAMPLE.min(piece.count * inner);
        let mut error = 0.0;
        for row in [0, outer.saturating_sub(1)] {
            let (from, to) =
                (row * long + piece.first * inner, row * total + slot * piece.count * inner);
            let other = sample(file, piece.at, from, count)?;
            error = f64::max(error, apart(&sample(self.whole, self.at, to, count)?, &other)?);
        }
        Ok(error)
    }
}

/// The places of pieces in order of ranks.
pub fn natural(count: usize, copies: usize) -> Vec<usize> {
    (0..count).map(|at| at / copies.max(1)).collect()
}

fn halved(pieces: &[Piece]) -> Vec<Piece> {
    let halves = |piece: &Piece| {
        let count = piece.count / 2;
        [Piece { count, ..*piece }, Piece { first: count, count, ..*piece }]
    };
    pieces.iter().flat_map(halves).collect()
}

/// Numbers of a tensor from a place on, as one row in f32; as many as there are.
fn sample(file: &Bundle, at: usize, first: usize, count: usize) -> Result<Tensor> {
    let all: usize = file.infos().get(at).map_or(0, |info| info.shape.iter().product());
    let flat = file.some_of(at, first, count.min(all.saturating_sub(first)))?;
    wide(&flat.reshape((1, 1, flat.elem_count()))?)
}

/// A name without the numbers of layers.
fn in_any_layer(name: &str) -> String {
    name.split(|c: char| c.is_ascii_digit()).collect()
}

fn agree(left: &Tensor, right: &Tensor) -> Result<bool> {
    Ok(apart(left, right)? <= tolerance_of(left)?.max(tolerance_of(right)?))
}
