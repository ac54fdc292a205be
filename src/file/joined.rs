//! How are tensors that stand in the files of several ranks read as those of one device?

use std::path::{Path, PathBuf};

use candle_core::Tensor;

use super::bundle::{Bundle, Info, Tensors};
use base::error::Result;
use program::{Misread, added_up, wide};

/// A stretch of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// The rank that has it.
    pub rank: usize,
    /// The tensor's place in the rank's file.
    pub at: usize,
    /// Where it begins.
    pub first: usize,
    /// How long it is.
    pub count: usize,
}

/// How a tensor is made of those of the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Join {
    /// It is that of one rank: the rank, and the tensor's place in its file.
    One(usize, usize),
    /// It is the sum of those of some ranks.
    Sum(Vec<(usize, usize)>),
    /// It is pieces of them, side by side along an axis.
    Pieces(usize, Vec<Piece>),
    /// It is that of one rank with its first two axes the other way round.
    Turned(usize, usize),
}

/// The tensors of ranks as those of one file.
struct Joined {
    ranks: Vec<Bundle>,
    joins: Vec<(Vec<usize>, Join)>,
}

impl Bundle {
    /// The tensors of the files of several ranks, as those of one file.
    #[must_use]
    pub fn joined(path: &Path, ranks: Vec<Self>, tensors: Vec<(Info, Join)>) -> Self {
        let config = ranks.iter().find_map(Self::config).cloned();
        let (mut infos, mut joins) = (Vec::new(), Vec::new());
        for (info, join) in tensors {
            joins.push((info.shape.clone(), join));
            infos.push(info);
        }
        Self::new(path, config, infos, Box::new(Joined { ranks, joins }))
    }
}

impl Tensors for Joined {
    fn read(&self, at: usize) -> Result<Tensor> {
        let (shape, _) = self.joins.get(at).ok_or(Misread)?;
        Ok(self.read_some(at, 0, shape.iter().product())?.reshape(shape.as_slice())?)
    }

    fn read_some(&self, at: usize, first: usize, count: usize) -> Result<Tensor> {
        let (shape, join) = self.joins.get(at).ok_or(Misread)?;
        let of = |rank: usize| self.ranks.get(rank).ok_or(Misread);
        match join {
            Join::One(rank, at) => of(*rank)?.some_of(*at, first, count),
            Join::Sum(terms) => {
                // Partial sums in 16 bits are added in f32, as the reduction does at least.
                let own = |(rank, at): &(usize, usize)| {
                    of(*rank)?.some_of(*at, first, count).and_then(|own| wide(&own))
                };
                added_up(terms.iter().map(own))
            }
            Join::Pieces(axis, pieces) => {
                let inner: usize = shape.iter().skip(axis + 1).product();
                let whole = inner * shape.get(*axis).ok_or(Misread)?;
                self.side_by_side(pieces, *axis, [inner, whole.max(1)], [first, count])
            }
            Join::Turned(rank, at) => turned(of(*rank)?, *at, shape, [first, count]),
        }
    }

    fn others(&self) -> Vec<PathBuf> {
        self.ranks.iter().map(|rank| rank.path().to_owned()).collect()
    }
}

/// Numbers of a tensor of such a shape that stands in a file with its first two axes the other way round.
fn turned(file: &Bundle, at: usize, shape: &[usize], [first, count]: [usize; 2]) -> Result<Tensor> {
    let [outer, own, rest @ ..] = shape else { return Err(Misread.into()) };
    let (outer, own) = (*outer, (*own).max(1));
    let inner = rest.iter().product::<usize>().max(1);
    let (from, to) = (first / inner, (first + count).div_ceil(inner));
    let mut parts = Vec::new();
    let mut row = from;
    while row < to {
        let (place, start) = (row / own, row % own);
        let long = (own - start).min(to - row);
        let all = file.some_of(at, start * outer * inner, long * outer * inner)?;
        parts.push(all.reshape((long, outer, inner))?.narrow(1, place, 1)?.flatten_all()?);
        row += long;
    }
    Ok(Tensor::cat(&parts, 0)?.narrow(0, first - from * inner, count)?)
}

impl Joined {
    /// Numbers of a tensor of pieces: of each piece no more is read than what lies in the rows that are asked for.
    fn side_by_side(
        &self,
        pieces: &[Piece],
        axis: usize,
        [inner, whole]: [usize; 2],
        [first, count]: [usize; 2],
    ) -> Result<Tensor> {
        let end = first + count;
        let (from, to) = (first / whole, end.div_ceil(whole).max(first / whole + 1));
        // Of a single row only the pieces within the range are read.
        let is_single = to - from == 1;
        let (mut parts, mut place, mut skipped) = (Vec::new(), from * whole, None);
        for piece in pieces {
            let long = piece.count * inner;
            let is_outside = is_single && (place + long <= first || place >= end);
            if !is_outside {
                skipped.get_or_insert(place);
                parts.push(self.block(piece, axis, inner, [from, to])?);
            }
            place += if is_single { long } else { 0 };
        }
        let start = if is_single { skipped.unwrap_or(first) } else { from * whole };
        Ok(Tensor::cat(&parts, 1)?.flatten_all()?.narrow(0, first - start, count)?)
    }

    /// A piece in some of the rows that stand outside its axis, as (rows, numbers).
    fn block(
        &self,
        piece: &Piece,
        axis: usize,
        inner: usize,
        [from, to]: [usize; 2],
    ) -> Result<Tensor> {
        let file = self.ranks.get(piece.rank).ok_or(Misread)?;
        let shape = &file.infos().get(piece.at).ok_or(Misread)?.shape;
        let own = shape.get(axis).ok_or(Misread)? * inner;
        let (rows, long) = (to - from, piece.count * inner);
        if rows == 1 || own == long {
            let flat =
                file.some_of(piece.at, from * own + piece.first * inner, (rows - 1) * own + long)?;
            return Ok(flat.reshape((rows, long))?);
        }
        let all = file.some_of(piece.at, from * own, rows * own)?.reshape((rows, own))?;
        Ok(all.narrow(1, piece.first * inner, long)?)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::record::{Entry, Record};

    #[test]
    fn pieces_are_read_as_the_whole() {
        let numbers: Vec<f32> = (0..48u8).map(f32::from).collect();
        let whole = Tensor::new(numbers.as_slice(), &Device::Cpu)
            .and_then(|own| own.reshape((2, 6, 4)))
            .expect("fits");
        let cut = |axis: usize, first: usize, count: usize| {
            whole.narrow(axis, first, count).and_then(|own| own.contiguous()).expect("fits")
        };
        let file = |tensor: Tensor| {
            let record = Record { config: None, entries: vec![Entry::of("a", tensor)] };
            Bundle::of_record(Path::new("rank"), record)
        };
        for axis in [1, 2] {
            let half = whole.dims()[axis] / 2;
            let ranks = vec![file(cut(axis, half, half)), file(cut(axis, 0, half))];
            let piece = |rank, first, count| Piece { rank, at: 0, first, count };
            let pieces = vec![piece(1, 0, 1), piece(1, 1, half - 1), piece(0, 0, half)];
            let info = Info::of(&Entry::of("a", whole.clone()));
            let joined =
                Bundle::joined(Path::new("all"), ranks, vec![(info, Join::Pieces(axis, pieces))]);
            for (first, count) in [(0, 48), (5, 2), (23, 9), (30, 18), (0, 24)] {
                let own: Vec<f32> = joined
                    .some_of(0, first, count)
                    .and_then(|own| Ok(own.to_vec1()?))
                    .expect("reads");
                let meant: Vec<f32> = numbers[first..first + count].to_vec();
                assert_eq!(own, meant, "axis {axis}, from {first}");
            }
        }
    }
}
