//! Where mistakes of backward passes stand in a run: the edits of `gradients`.

use candle_core::{DType, Tensor};

use super::{Situation, after, before, none, omit, one, read, replace};
use crate::candidate::Edits;
use crate::cells::cells;
use crate::readoff::kept_of_sum;
use base::error::Result;
use program::{
    Along, Apart, Change, Collect, Edit, Gradient, Heads, KeepSome, Name, Op, Product, Rotary,
    Rotate, Scaling, Slip, Step, Total, Weighting,
};

impl Situation<'_> {
    /// The gradients of queries and of keys as their product makes them.
    pub(super) fn factors(&self) -> Vec<Name> {
        let read = self.inputs(Name::ScoresRaw).into_iter().map(Name::gradient);
        read.filter(|name| self.right.computes(*name)).collect()
    }
}

/// The gradient of the scores that softmax reads.
pub(super) fn of_softmax(run: &Situation) -> Option<Name> {
    let scores = run.inputs(Name::Weights).first()?.gradient();
    let is_it = run.op(scores) == Some(&Gradient::Softmax.into());
    is_it.then_some(scores)
}

/// The gradient of the values that weights are applied to.
pub(super) fn of_values(run: &Situation) -> Option<Name> {
    let at = run.inputs(Name::HeadOutputs).get(1)?.gradient();
    (run.op(at) == Some(&Product::Transposed.into())).then_some(at)
}

pub(super) fn fed(at: Name, slip: Slip, reads: &[Name]) -> Edit {
    Edit::new(at, Change::Feed(0, slip.into(), reads.to_vec()))
}

pub(super) fn drops(run: &Situation) -> bool {
    matches!(run.op(Name::Weights.gradient()), Some(Op::Weighting(Weighting::Dropout { .. })))
}

/// Dropout of other weights in the backward pass: those that the recorded gradient of the weights shows, or else that of the
/// values.
pub(super) fn drops_others(run: &Situation) -> Result<Vec<Edits>> {
    let (Some(Op::Weighting(Weighting::Dropout { p })), Some(at)) =
        (run.op(Name::Weights.gradient()), of_values(run))
    else {
        return none();
    };
    let factor = (1.0 - p).recip();
    let d_output = Name::HeadOutputs.gradient();
    let value = |name: Name| run.right.step(name).map(|step| &step.value);
    let shown =
        run.recorded.get(&Name::Weights.gradient()).map(|found| found.ne(0.0)).transpose()?;
    let keep = match (shown, run.recorded.get(&at), value(Name::Weights), value(d_output)) {
        (Some(keep), ..) => keep,
        (None, Some(found), Some(weights), Some(d)) => {
            let weights = weights.transpose(2, 3)?.contiguous()?;
            match kept_of_sum(found, &weights, d)? {
                Some((own, _)) => own.keep.transpose(2, 3)?.contiguous()?,
                None => return none(),
            }
        }
        _ => return none(),
    };
    let kept = Weighting::KeepSome(KeepSome { keep, factor });
    let dropped = vec![Name::WeightsDropped.gradient()];
    one([
        Edit::new(Name::Weights.gradient(), Change::Become(kept.clone().into(), dropped)),
        read(at, [Name::Weights, d_output]),
        before(at, 0, kept, &[]),
    ])
}

/// Delta as the sum of the squares of these numbers.
pub(super) fn deltas_of(run: &Situation, of: Name) -> Result<Vec<Edits>> {
    let (Some(step), true) = (run.right.step(of), run.has(Name::Delta)) else { return none() };
    let sum = Gradient::Collect(Collect::over_last(&step.axes));
    one([Edit::new(Name::Delta, Change::Become(sum.into(), vec![of, of]))])
}

/// The gradient of queries (0) or keys (1) of the scores' gradients before they are scaled.
pub(super) fn unscaled(run: &Situation, slot: usize) -> Result<Vec<Edits>> {
    let Some(at) = run.factors().get(slot).copied() else { return none() };
    let to_unscaled = |name: Name| {
        if name == Name::ScoresRaw.gradient() { Name::Scores.gradient() } else { name }
    };
    one([read(at, run.inputs(at).into_iter().map(to_unscaled).collect::<Vec<_>>())])
}

pub(super) fn scaled_twice(run: &Situation, at: &[Name]) -> Result<Vec<Edits>> {
    let scale = run.op(Name::ScoresRaw.gradient()).cloned();
    let (Some(scale @ Op::Scaling(_)), [at, ..]) = (scale, at) else { return none() };
    one([after(*at, scale, &[])])
}

/// Edits of the gradients of shared keys and values, together and of each alone, and how many query heads share one.
pub(super) fn of_groups(run: &Situation, edits: impl Fn(Name, usize) -> Edits) -> Vec<Edits> {
    let own = [Name::KRepeated, Name::VRepeated].into_iter().filter_map(|repeated| {
        let Some(Op::Heads(Heads::Repeat { times, .. })) = run.op(repeated) else { return None };
        let at = run.inputs(repeated).first()?.gradient();
        Some(edits(at, *times)).filter(|_| run.right.computes(at))
    });
    let own: Vec<Edits> = own.collect();
    std::iter::once(own.concat()).chain(own).filter(|edits| !edits.is_empty()).collect()
}

/// Shared keys and values with the gradient of the first or the last query head alone.
pub(super) fn one_of_group(run: &Situation, is_last: bool) -> Vec<Edits> {
    of_groups(run, |at, times| {
        let heads = run.inputs(at).first().map(|read| run.shape(*read));
        let heads = heads.and_then(|shape| shape.get(1).copied()).unwrap_or_default();
        let kept = if is_last { times.saturating_sub(1) } else { 0 };
        let others = (0..heads).filter(|head| head % times.max(1) != kept).collect();
        vec![before(at, 0, Slip::Along(1, Along::Zero(others)), &[])]
    })
}

/// Every gradient that is a sum, without one of its parts, or with one alone.
#[allow(clippy::unnecessary_wraps, reason = "it makes a mistake's edits")]
pub(super) fn overwritten(run: &Situation) -> Result<Vec<Edits>> {
    let mut all = Vec::new();
    for step in run.right.steps() {
        let Op::Total(Total(parts)) = &step.op else { continue };
        let inputs = run.inputs(step.name);
        let mut first = 0;
        for (op, count) in parts {
            let own = inputs.get(first..first + count).unwrap_or_default().to_vec();
            first += count;
            all.push(vec![Edit::new(step.name, Change::Become(op.clone(), own))]);
        }
    }
    Ok(all)
}

/// Weights that are computed anew from unmasked scores; in the gradient of the values too, or in that of the scores alone.
pub(super) fn recomputed(run: &Situation, in_values: bool) -> Result<Vec<Edits>> {
    let Some(at) = of_softmax(run).filter(|_| of_values(run).is_some()) else { return none() };
    if !run.has(Name::MaskedScores) {
        return none();
    }
    let apart = anew(run, vec![omit(Name::MaskedScores)]);
    let behind = run.right.descendants(|step| step.name == at);
    let behind = run.right.steps().iter().zip(behind).filter(|(_, is_behind)| *is_behind);
    let of_scores: Vec<Name> = behind.map(|(step, _)| step.name).chain([at]).collect();
    let by =
        apart.by.iter().copied().filter(|name| in_values || of_scores.contains(name)).collect();
    one([Edit::new(at, Change::Apart(Apart { by, ..apart }))])
}

/// Edits of what the backward pass alone computes anew, with the log-sum-exp and the output of the forward pass.
fn anew(run: &Situation, edits: Edits) -> Apart {
    let is_gradient = |step: &&Step| step.name.is_gradient() && step.is_computed();
    let by = run.right.steps().iter().filter(is_gradient).map(|step| step.name).collect();
    Apart { by, edits, kept: vec![Name::Lse, Name::Delta] }
}

/// A backward pass that takes the key heads of all query heads in the order 0 1 0 1.
pub(super) fn all_tiled(run: &Situation) -> Vec<Edits> {
    let repeated = [Name::KRepeated, Name::VRepeated].into_iter().filter_map(|repeated| {
        let Some(Op::Heads(Heads::Repeat { times, .. })) = run.op(repeated) else { return None };
        let at = run.inputs(repeated).first()?.gradient();
        let tile = replace(repeated, Heads::Repeat { times: *times, is_tiled: true });
        Some((at, [vec![tile], tiled(run, at)].concat()))
    });
    let repeated: Vec<(Name, Edits)> = repeated.collect();
    let Some((at, _)) = repeated.first() else { return Vec::new() };
    let edits: Edits = repeated.iter().flat_map(|(_, edits)| edits.clone()).collect();
    let everywhere = anew(run, edits);
    // Kernels of keys and values are others than those of queries.
    let of_keys = Apart { by: repeated.iter().map(|(at, _)| *at).collect(), ..everywhere.clone() };
    [everywhere, of_keys].map(|own| vec![Edit::new(*at, Change::Apart(own))]).to_vec()
}

/// Gradients of what is rotated, rotated forward or not at all.
pub(super) fn turned(run: &Situation, rotated: &[Name], is_forward: bool) -> Result<Vec<Edits>> {
    let edits = rotated.iter().filter_map(|rotated| {
        let at = run.inputs(*rotated).first()?.gradient();
        let Some(Op::Rotary(Rotary::Rotate(own))) = run.op(at) else { return None };
        let forward = Rotate { is_backwards: !own.is_backwards, ..own.clone() };
        Some(if is_forward { replace(at, Rotary::Rotate(forward)) } else { omit(at) })
    });
    let edits: Edits = edits.collect();
    if edits.len() == rotated.len() { one(edits) } else { none() }
}

/// The gradient of a bias of scores, of the first item, of the last, or the mean of all.
pub(super) fn of_bias(run: &Situation) -> Result<Vec<Edits>> {
    let at = Name::AttnBias.gradient();
    let items = run.inputs(at).first().and_then(|read| run.shape(*read).first().copied());
    let (Some(items @ 2..), Some(Op::Gradient(Gradient::Collect(own)))) = (items, run.op(at))
    else {
        return none();
    };
    if !own.over.contains(&0) {
        return none();
    }
    let mean = Scaling::By { factor: (items as f64).recip() };
    let others = [(1..items).collect(), (0..items - 1).collect()];
    let of_one = others.map(|others| vec![before(at, 0, Slip::Along(0, Along::Zero(others)), &[])]);
    Ok(of_one.into_iter().chain([vec![after(at, mean, &[])]]).collect())
}

/// The recorded gradients that are 0 at some places of their tokens, all together and each alone.
pub(super) fn skipped(run: &Situation) -> Result<Vec<Edits>> {
    let mut own = Vec::new();
    for (name, recorded) in run.recorded {
        let axis = recorded.rank().saturating_sub(2);
        if !name.is_gradient() || recorded.rank() < 3 || !run.right.computes(*name) {
            continue;
        }
        let Some(right) = run.right.step(*name) else { continue };
        let is_zero = |tensor: &Tensor, at: usize| -> Result<bool> {
            let most = tensor.narrow(axis, at, 1)?.abs()?.max_all()?;
            Ok(most.to_dtype(DType::F64)?.to_scalar::<f64>()? == 0.0)
        };
        let (mut places, mut is_written) = (Vec::new(), false);
        for at in 0..recorded.dim(axis)? {
            if !is_zero(recorded, at)? {
                is_written = true;
            } else if !is_zero(&right.value, at)? {
                places.push(at);
            }
        }
        // What is 0 throughout was never computed.
        if !places.is_empty() && is_written {
            own.push((*name, after(*name, Slip::Along(axis, Along::Zero(places)), &[])));
        }
    }
    own.sort_by_key(|(name, _)| *name);
    let own: Edits = own.into_iter().map(|(_, edit)| edit).collect();
    let each = own.iter().map(|edit| vec![edit.clone()]);
    Ok(std::iter::once(own.clone()).chain(each).filter(|edits| !edits.is_empty()).collect())
}

/// Gradients of which no number is further from 0 than one that some of them have, and which should be.
pub(super) fn clipped(run: &Situation) -> Result<Vec<Edits>> {
    let mut all: Vec<(Name, f64)> = Vec::new();
    for (name, recorded) in run.recorded {
        let Some(right) = run.right.step(*name).filter(|_| name.is_gradient()) else { continue };
        let (found, right) = (cells(recorded)?, cells(&right.value)?);
        let most = |numbers: &[f64]| numbers.iter().fold(0.0, |most: f64, one| most.max(one.abs()));
        let limit = most(&found);
        let at_limit = found.iter().filter(|one| one.abs() >= limit).count();
        if limit > 0.0 && at_limit > 1 && most(&right) > limit {
            all.push((*name, limit));
        }
    }
    all.sort_by_key(|(name, _)| *name);
    let clip = |(name, limit): (Name, f64)| vec![after(name, Scaling::Clip { limit }, &[])];
    Ok(all.into_iter().map(clip).collect())
}

/// The gradient of shared keys or values of query heads that are taken in the order 0 1 0 1.
pub(super) fn tiled(run: &Situation, at: Name) -> Edits {
    let Some(Op::Gradient(Gradient::Collect(own))) = run.op(at) else { return Vec::new() };
    let mut tiled = own.clone();
    tiled.view.swap(1, 2);
    tiled.over = vec![1];
    vec![replace(at, Gradient::Collect(tiled))]
}
