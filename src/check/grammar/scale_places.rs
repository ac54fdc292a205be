//! Which scales does a kernel read at a place of memory that is another's?

use candle_core::Tensor;

use super::{Grammar, after};
use crate::candidate::cost;
use base::error::Result;
use program::{Along, Axis, Block, Change, Edit, Heads, Kind, Name, Rearrange, Slip, Step};

/// The scale that is read for the keys (0) or the values (1) of a head.
type ScaleOf<'a> = &'a dyn Fn(usize, usize) -> f64;

impl Grammar<'_> {
    /// Scales of keys and values of one list, whose two axes are taken for each other.
    pub(super) fn scales_of_one_list(&mut self) {
        let both = [Name::KDequantized, Name::VDequantized];
        let [Some((keys, counts)), Some((values, others))] = both.map(|name| self.by_head(name))
        else {
            return;
        };
        let [1, heads] = counts else { return };
        if counts != others || heads < 2 {
            return;
        }
        let (apart, beside) = ([keys.clone(), values.clone()].concat(), [keys, values]);
        let flat: Vec<f64> = (0..2 * heads).map(|at| beside[at % 2][at / 2]).collect();
        let rules: [(ScaleOf, &str); 2] = [
            (
                &|own, head| apart[2 * head + own],
                tr!(
                    "the scales of all keys stand before those of all values, and are read as if those of each head stood side by side (k0 v0 k1 v1 …)"
                ),
            ),
            (
                &|own, head| flat[own * heads + head],
                tr!(
                    "the scales of each head stand side by side (k0 v0 k1 v1 …), and are read as if those of all keys stood before those of all values"
                ),
            ),
        ];
        for (read, told) in rules {
            let edit = |own: usize| {
                let factors = (0..heads).map(|head| read(own, head) / beside[own][head]);
                let each = Slip::Along(1, Along::Each(factors.collect()));
                Edit::new(both[own], Change::before(1, each))
            };
            let edits = [edit(0), edit(1)].to_vec();
            self.add_all(Kind::Axes, cost::COMMON, edits, both[0], told);
        }
    }

    /// A scale for each token that is read as one for each feature, or the other way round, where there are as many.
    pub(super) fn scales_along_others(&mut self) {
        for name in Name::FEW_BITS.map(|[.., scaled]| scaled) {
            let Some(step) = self.right.step(name) else { continue };
            let read = self.right.read_by(step);
            let (Some(codes), Some(scale)) = (read.first(), read.get(1)) else { continue };
            let axes: Vec<(Axis, usize)> = scale.axes.iter().collect();
            let [.., tokens, features] = codes.axes.shape()[..] else { continue };
            let &[.., (token, of_tokens), (feature, of_features)] = &axes[..] else { continue };
            let is_one = of_tokens.min(of_features) == 1 && of_tokens.max(of_features) == tokens;
            if !is_one || tokens != features || tokens < 2 {
                continue;
            }
            let last = axes.len() - 1;
            let mut result = axes.clone();
            (result[last - 1], result[last]) = ((token, of_features), (feature, of_tokens));
            let mut order: Vec<usize> = (0..axes.len()).collect();
            order.swap(last - 1, last);
            let view = scale.axes.shape();
            let turned = Heads::Rearrange(Rearrange { blocks: Vec::new(), view, order, result });
            let told = if of_tokens == 1 {
                tr!("the scale of each feature is applied to the token of its number")
            } else {
                tr!("the scale of each token is applied to the feature of its number")
            };
            self.add(Kind::Axes, cost::COMMON, name, Change::before(1, turned), told);
        }
    }

    /// Scales of blocks of queries that are read by the block of the keys, and the other way round.
    pub(super) fn scales_of_other_blocks(&mut self) {
        let scale = |name: Name| {
            let step = self.right.step(name)?;
            let own = self.right.read_by(step).get(1).copied()?;
            Some((own, Self::group(own, 2)?.0)).filter(|_| own.axes.shape().last() == Some(&1))
        };
        let [queries, keys] = [Name::QDequantized, Name::KDequantized].map(scale);
        let Some(scores) = self.right.step(Name::ScoresRaw) else { return };
        let shape = scores.axes.shape();
        let [_, _, rows, columns] = shape[..] else { return };
        let mut made = Vec::new();
        if let Some((own, size)) = queries {
            let told = tr!(
                "the block of the keys picks the scale of the queries ({size} tokens each)",
                size
            );
            made.push((of_other_block(own, size, columns, true), told));
        }
        if let Some((own, size)) = keys.filter(|(own, _)| own.axes.shape().get(1) == shape.get(1)) {
            let told = tr!(
                "the block of the queries picks the scale of the keys ({size} tokens each)",
                size
            );
            made.push((of_other_block(own, size, rows, false), told));
        }
        for (cells, told) in made {
            let Ok(cells) = cells else { continue };
            let rescaled = Slip::Rescaled(Block { cells, fill: 0.0 });
            self.add(Kind::Axes, cost::COMMON, Name::ScoresRaw, after(rescaled, &[]), told);
        }
    }
}

/// What scores are off by whose queries, or keys, have the scale at the block of the other of the two, of which there are so
/// many.
fn of_other_block(scale: &Step, size: usize, others: usize, is_of_queries: bool) -> Result<Tensor> {
    let own = scale.value.contiguous()?;
    let last = own.dim(2)?.saturating_sub(1);
    let places = (0..others).map(|at| u32::try_from((at / size.max(1) * size).min(last)));
    let places: Vec<u32> = places.collect::<Result<_, _>>().map_err(candle_core::Error::wrap)?;
    let read = own.index_select(&Tensor::new(places, own.device())?, 2)?;
    Ok(if is_of_queries {
        read.transpose(2, 3)?.broadcast_div(&own)?
    } else {
        read.broadcast_div(&own.transpose(2, 3)?)?
    })
}
