//! Mistakes of backward passes: those that people write themselves, as kernels do.

use super::{Mistake, Situation, Way, after, before, none, omit, omitted, one, read, replace};
use crate::candidate::Edits;
use base::error::Result;
use candle_core::Tensor;
use program::{
    Along, Change, Collect, Edit, Gradient, Heads, Kind, Name, Op, Rotary, Rotate, Scaling, Slip,
    Weigh, Weighting,
};

const SILENT: &str = "The shapes are right and the loss still falls, only more slowly.";
const RIGHT_DS: &str = "dS = P * (dP - delta)  # delta = (dO * O).sum(-1, keepdim=True)";
const RIGHT_GROUP: &str = "dK = dK.view(B, H_kv, H // H_kv, S, d_k).sum(2)";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "gradient-delta-missing",
        kind: Kind::Omitted,
        silent: SILENT,
        ways: &[Way {
            summary: "delta is left out: softmax takes nothing back of the weights' gradients",
            wrong: "dS = P * dP",
            right: RIGHT_DS,
            edits: |run| {
                let become_product = |scores: Name| {
                    let reads = vec![Name::Weights, Name::Weights.gradient()];
                    vec![Edit::new(scores, Change::Become(Slip::Product.into(), reads))]
                };
                Ok(of_softmax(run).map(become_product).into_iter().collect())
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "gradient-delta-of-others",
        kind: Kind::Input,
        silent: "dV is right, and so is the forward pass.",
        ways: &[
            Way {
                summary: "delta is the sum of d_output · d_output, not of output · d_output",
                wrong: "delta = (dO * dO).sum(-1, keepdim=True)",
                right: RIGHT_DS,
                edits: |run| deltas_of(run, Name::HeadOutputs.gradient()),
            },
            Way {
                summary: "delta is the sum of output · output, not of output · d_output",
                wrong: "delta = (O * O).sum(-1, keepdim=True)",
                right: RIGHT_DS,
                edits: |run| deltas_of(run, Name::HeadOutputs),
            },
        ],
        seen: &["Dao-AILab/flash-attention#2481"],
    },
    Mistake {
        id: "gradient-scale-missing",
        kind: Kind::Omitted,
        silent: SILENT,
        ways: &[
            Way {
                summary: "the gradients of queries and keys are not scaled",
                wrong: "dQ, dK = dS @ K, dS.mT @ Q",
                right: "dQ, dK = scale * dS @ K, scale * dS.mT @ Q",
                edits: |run| omitted(run, Name::ScoresRaw.gradient()),
            },
            Way {
                summary: "the gradient of the queries is not scaled",
                wrong: "dQ = dS @ K",
                right: "dQ = scale * dS @ K",
                edits: |run| unscaled(run, 0),
            },
            Way {
                summary: "the gradient of the keys is not scaled",
                wrong: "dK = dS.mT @ Q",
                right: "dK = scale * dS.mT @ Q",
                edits: |run| unscaled(run, 1),
            },
        ],
        seen: &[],
    },
    Mistake {
        id: "gradient-scale-twice",
        kind: Kind::Repeated,
        silent: SILENT,
        ways: &[
            Way {
                summary: "the gradients of queries and keys are scaled twice",
                wrong: "dS = scale * P * (dP - delta); dQ = scale * dS @ K",
                right: "dS = P * (dP - delta); dQ = scale * dS @ K",
                edits: |run| scaled_twice(run, &[Name::ScoresRaw.gradient()]),
            },
            Way {
                summary: "the gradient of the queries is scaled twice",
                wrong: "dQ = scale * dS @ (scale * K)",
                right: "dQ = scale * dS @ K",
                edits: |run| {
                    scaled_twice(run, &run.factors().get(..1).unwrap_or_default().to_vec())
                },
            },
            Way {
                summary: "the gradient of the keys is scaled twice",
                wrong: "dK = scale * dS.mT @ (scale * Q)",
                right: "dK = scale * dS.mT @ Q",
                edits: |run| {
                    scaled_twice(run, &run.factors().get(1..).unwrap_or_default().to_vec())
                },
            },
        ],
        seen: &[],
    },
    Mistake {
        id: "gradient-heads-averaged",
        kind: Kind::Axes,
        silent: SILENT,
        ways: &[Way {
            summary: "the gradients of query heads that share a key head are averaged, not added up",
            wrong: "dK = dK.view(B, H_kv, H // H_kv, S, d_k).mean(2)",
            right: RIGHT_GROUP,
            edits: |run| {
                of_groups(run, |at, times| {
                    #[allow(clippy::cast_precision_loss, reason = "heads are few")]
                    let factor = (times as f64).recip();
                    vec![after(at, Scaling::By { factor }, &[])]
                })
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "gradient-heads-overwritten",
        kind: Kind::Axes,
        silent: "With one query head for every key head nothing differs.",
        ways: &[
            Way {
                summary: "the gradient of one query head overwrites those of the others that share its key head",
                wrong: "dK[:, h // (H // H_kv)] = dK_h  # for each query head h",
                right: "dK[:, h // (H // H_kv)] += dK_h",
                edits: |run| {
                    let last = one_of_group(run, true)?;
                    Ok([last, one_of_group(run, false)?].concat())
                },
            },
            Way {
                summary: "the gradients of query heads go to the wrong key heads (0 1 0 1)",
                wrong: "dK = dK.view(B, H // H_kv, H_kv, S, d_k).sum(1)",
                right: RIGHT_GROUP,
                edits: |run| {
                    of_groups(run, |at, times| {
                        let Some(Op::Gradient(Gradient::Collect(own))) = run.op(at) else {
                            return Vec::new();
                        };
                        let mut tiled = own.clone();
                        tiled.view.swap(1, 2);
                        tiled.over = vec![1];
                        if times < 2 {
                            Vec::new()
                        } else {
                            vec![replace(at, Gradient::Collect(tiled))]
                        }
                    })
                },
            },
        ],
        seen: &["XunhaoLai/native-sparse-attention-triton#27"],
    },
    Mistake {
        id: "gradient-overwritten",
        kind: Kind::Omitted,
        silent: "The gradient that comes last looks like one.",
        ways: &[Way {
            summary: "gradients of several uses of one tensor overwrite each other where they should be added up",
            wrong: "x.grad = dQ @ W_q  # and then x.grad = dK @ W_k",
            right: "x.grad = dQ @ W_q + dK @ W_k + dV @ W_v",
            edits: overwritten,
        }],
        seen: &[],
    },
    Mistake {
        id: "gradient-mask-missing",
        kind: Kind::Mask,
        silent: "The forward pass is masked, so that the outputs are right.",
        ways: &[
            Way {
                summary: "the backward pass computes the weights anew without the mask",
                wrong: "P = torch.exp(scores - lse)",
                right: "P = torch.exp(scores.masked_fill(mask, -inf) - lse)",
                edits: |run| recomputed(run, true),
            },
            Way {
                summary: "the scores' gradients are of weights without the mask",
                wrong: "dS = torch.exp(scores - lse) * (dP - delta)",
                right: RIGHT_DS,
                edits: |run| recomputed(run, false),
            },
        ],
        seen: &[],
    },
    Mistake {
        id: "gradient-weights-unnormalised",
        kind: Kind::Omitted,
        silent: "The outputs are divided by the sum; only the backward pass lacks it.",
        ways: &[Way {
            summary: "the values' gradients are of exponentials that are not divided by their sum",
            wrong: "dV = torch.exp(scores - m).mT @ dO",
            right: "dV = torch.exp(scores - lse).mT @ dO",
            edits: |run| {
                let Some(scores) = run.inputs(Name::Weights).first().copied() else {
                    return none();
                };
                let slip = Slip::Weigh(Weigh::Unnormalised);
                Ok(of_values(run).map(|at| vec![fed(at, slip, &[scores])]).into_iter().collect())
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "gradient-dropout",
        kind: Kind::Random,
        silent: "Dropout is random anyway, and evaluation does not use it.",
        ways: &[
            Way {
                summary: "the weights' gradients do not go through dropout",
                wrong: "dP = dO @ V.mT",
                right: "dP = dO @ V.mT * keep / (1 - p)",
                edits: |run| {
                    if drops(run) { one([omit(Name::Weights.gradient())]) } else { none() }
                },
            },
            Way {
                summary: "the weights' gradients are dropped and not scaled by 1 / (1 − p)",
                wrong: "dP = dO @ V.mT * keep",
                right: "dP = dO @ V.mT * keep / (1 - p)",
                edits: |run| {
                    let reads = vec![Name::WeightsDropped.gradient(), Name::DropoutKeep];
                    let product = Change::Become(Slip::Product.into(), reads);
                    if drops(run) {
                        one([Edit::new(Name::Weights.gradient(), product)])
                    } else {
                        none()
                    }
                },
            },
            Way {
                summary: "the values' gradients are of the weights before dropout",
                wrong: "dV = P.mT @ dO",
                right: "dV = P_dropped.mT @ dO",
                edits: |run| {
                    let Some(at) = of_values(run).filter(|_| drops(run)) else { return none() };
                    one([read(at, [Name::Weights, Name::HeadOutputs.gradient()])])
                },
            },
        ],
        seen: &[],
    },
    Mistake {
        id: "gradient-rotation-forward",
        kind: Kind::Replaced,
        silent: "A rotation has the same size in either direction.",
        ways: &[
            Way {
                summary: "gradients are rotated as queries and keys are, not back",
                wrong: "dq, dk = apply_rotary(dq, cos, sin), apply_rotary(dk, cos, sin)",
                right: "dq, dk = apply_rotary(dq, cos, -sin), apply_rotary(dk, cos, -sin)",
                edits: |run| turned(run, &[Name::QRot, Name::KRot], true),
            },
            Way {
                summary: "the gradient of the queries is rotated forward, not back",
                wrong: "dq = apply_rotary(dq, cos, sin)",
                right: "dq = apply_rotary(dq, cos, -sin)",
                edits: |run| turned(run, &[Name::QRot], true),
            },
            Way {
                summary: "the gradient of the keys is rotated forward, not back",
                wrong: "dk = apply_rotary(dk, cos, sin)",
                right: "dk = apply_rotary(dk, cos, -sin)",
                edits: |run| turned(run, &[Name::KRot], true),
            },
            Way {
                summary: "gradients of rotated queries and keys are not rotated back",
                wrong: "q.grad, k.grad = dq_rot, dk_rot",
                right: "q.grad, k.grad = apply_rotary(dq_rot, cos, -sin), apply_rotary(dk_rot, cos, -sin)",
                edits: |run| turned(run, &[Name::QRot, Name::KRot], false),
            },
        ],
        seen: &[],
    },
    Mistake {
        id: "gradient-softcap-missing",
        kind: Kind::Omitted,
        silent: "Far below the cap its derivative is 1.",
        ways: &[Way {
            summary: "the derivative of the soft cap is left out",
            wrong: "dS = P * (dP - delta)",
            right: "dS = P * (dP - delta) * (1 - (scores / softcap) ** 2)",
            edits: |run| {
                let before = run.inputs(Name::ScoresCapped).first().map(|scores| scores.gradient());
                before.map_or_else(none, |at| omitted(run, at))
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "gradient-bias-of-one-item",
        kind: Kind::Axes,
        silent: "With one item in the batch nothing differs.",
        ways: &[Way {
            summary: "a bias gets the gradient of one item of the batch, or their mean, not their sum",
            wrong: "bias.grad = dS[0]",
            right: "bias.grad = dS.sum(0)",
            edits: of_bias,
        }],
        seen: &[],
    },
    Mistake {
        id: "gradient-tile-skipped",
        kind: Kind::Omitted,
        silent: "Most of the gradient is right.",
        ways: &[Way {
            summary: "some rows of a gradient are never written: they are 0",
            wrong: "for start in range(0, T - block, block): …",
            right: "for start in range(0, T, block): …",
            edits: skipped,
        }],
        seen: &["flagos-ai/FlagGems#3395"],
    },
];

impl Situation<'_> {
    /// The gradients of queries and of keys as their product makes them.
    fn factors(&self) -> Vec<Name> {
        let read = self.inputs(Name::ScoresRaw).into_iter().map(Name::gradient);
        read.filter(|name| self.right.computes(*name)).collect()
    }
}

/// The gradient of the scores that softmax reads.
fn of_softmax(run: &Situation) -> Option<Name> {
    let scores = run.inputs(Name::Weights).first()?.gradient();
    let is_it = run.op(scores) == Some(&Gradient::Softmax.into());
    is_it.then_some(scores)
}

/// The gradient of the values that weights are applied to.
fn of_values(run: &Situation) -> Option<Name> {
    let at = run.inputs(Name::HeadOutputs).get(1)?.gradient();
    (run.op(at) == Some(&Gradient::Transposed.into())).then_some(at)
}

fn fed(at: Name, slip: Slip, reads: &[Name]) -> Edit {
    Edit::new(at, Change::Feed(0, slip.into(), reads.to_vec()))
}

fn drops(run: &Situation) -> bool {
    matches!(run.op(Name::Weights.gradient()), Some(Op::Weighting(Weighting::Dropout { .. })))
}

/// Delta as the sum of the squares of these numbers.
fn deltas_of(run: &Situation, of: Name) -> Result<Vec<Edits>> {
    let (Some(step), true) = (run.right.step(of), run.has(Name::Delta)) else { return none() };
    let sum = Gradient::Collect(Collect::over_last(&step.axes));
    one([Edit::new(Name::Delta, Change::Become(sum.into(), vec![of, of]))])
}

/// The gradient of queries (0) or keys (1) of the scores' gradients before they are scaled.
fn unscaled(run: &Situation, slot: usize) -> Result<Vec<Edits>> {
    let Some(at) = run.factors().get(slot).copied() else { return none() };
    let to_unscaled = |name: Name| {
        if name == Name::ScoresRaw.gradient() { Name::Scores.gradient() } else { name }
    };
    one([read(at, run.inputs(at).into_iter().map(to_unscaled).collect::<Vec<_>>())])
}

fn scaled_twice(run: &Situation, at: &[Name]) -> Result<Vec<Edits>> {
    let scale = run.op(Name::ScoresRaw.gradient()).cloned();
    let (Some(scale @ Op::Scaling(_)), [at, ..]) = (scale, at) else { return none() };
    one([after(*at, scale, &[])])
}

/// Edits of the gradients of shared keys and values, together and of each alone, and how many query heads share one.
fn of_groups(run: &Situation, edits: impl Fn(Name, usize) -> Edits) -> Result<Vec<Edits>> {
    let own = [Name::KRepeated, Name::VRepeated].into_iter().filter_map(|repeated| {
        let Some(Op::Heads(Heads::Repeat { times, .. })) = run.op(repeated) else { return None };
        let at = run.inputs(repeated).first()?.gradient();
        Some(edits(at, *times)).filter(|_| run.right.computes(at))
    });
    let own: Vec<Edits> = own.collect();
    Ok(std::iter::once(own.concat()).chain(own).filter(|edits| !edits.is_empty()).collect())
}

/// Shared keys and values with the gradient of the first or the last query head alone.
fn one_of_group(run: &Situation, is_last: bool) -> Result<Vec<Edits>> {
    of_groups(run, |at, times| {
        let heads = run.inputs(at).first().map(|read| run.shape(*read));
        let heads = heads.and_then(|shape| shape.get(1).copied()).unwrap_or_default();
        let kept = if is_last { times.saturating_sub(1) } else { 0 };
        let others = (0..heads).filter(|head| head % times.max(1) != kept).collect();
        vec![before(at, 0, Slip::Along(1, Along::Zero(others)), &[])]
    })
}

/// Every gradient that is a sum, without one of its parts, or with one alone.
fn overwritten(run: &Situation) -> Result<Vec<Edits>> {
    let mut all = Vec::new();
    for step in run.right.steps() {
        let Op::Gradient(Gradient::Total(parts)) = &step.op else { continue };
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
fn recomputed(run: &Situation, in_values: bool) -> Result<Vec<Edits>> {
    let (Some(at), Some(values)) = (of_softmax(run), of_values(run)) else { return none() };
    let reads = run.inputs(Name::MaskedScores);
    let [unmasked, _] = reads.as_slice() else { return none() };
    let anew = |at| fed(at, Slip::Anew, &[*unmasked, Name::MaskedScores]);
    let mut edits = vec![anew(at), omit(unmasked.gradient())];
    edits.extend(in_values.then(|| anew(values)));
    one(edits)
}

/// Gradients of what is rotated, rotated forward or not at all.
fn turned(run: &Situation, rotated: &[Name], is_forward: bool) -> Result<Vec<Edits>> {
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
fn of_bias(run: &Situation) -> Result<Vec<Edits>> {
    let at = Name::AttnBias.gradient();
    let items = run.inputs(at).first().and_then(|read| run.shape(*read).first().copied());
    let (Some(items @ 2..), Some(Op::Gradient(Gradient::Collect(own)))) = (items, run.op(at))
    else {
        return none();
    };
    if !own.over.contains(&0) {
        return none();
    }
    #[allow(clippy::cast_precision_loss, reason = "items are few")]
    let mean = Scaling::By { factor: (items as f64).recip() };
    let others = [(1..items).collect(), (0..items - 1).collect()];
    let of_one = others.map(|others| vec![before(at, 0, Slip::Along(0, Along::Zero(others)), &[])]);
    Ok(of_one.into_iter().chain([vec![after(at, mean, &[])]]).collect())
}

/// The recorded gradients that are 0 at some places of their tokens, all together and each alone.
fn skipped(run: &Situation) -> Result<Vec<Edits>> {
    let mut own = Vec::new();
    for (name, recorded) in run.recorded {
        let axis = recorded.rank().saturating_sub(2);
        if !matches!(name, Name::Gradient(_)) || recorded.rank() < 3 || !run.right.computes(*name) {
            continue;
        }
        let Some(right) = run.right.step(*name) else { continue };
        let is_zero = |tensor: &Tensor, at: usize| -> Result<bool> {
            let most = tensor.narrow(axis, at, 1)?.abs()?.max_all()?;
            Ok(most.to_dtype(candle_core::DType::F64)?.to_scalar::<f64>()? == 0.0)
        };
        let mut places = Vec::new();
        for at in 0..recorded.dim(axis)? {
            if is_zero(recorded, at)? && !is_zero(&right.value, at)? {
                places.push(at);
            }
        }
        if !places.is_empty() {
            own.push((*name, after(*name, Slip::Along(axis, Along::Zero(places)), &[])));
        }
    }
    own.sort_by_key(|(name, _)| *name);
    let own: Edits = own.into_iter().map(|(_, edit)| edit).collect();
    let each = own.iter().map(|edit| vec![edit.clone()]);
    Ok(std::iter::once(own.clone()).chain(each).filter(|edits| !edits.is_empty()).collect())
}
