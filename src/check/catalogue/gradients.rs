//! Mistakes of backward passes: those that people write themselves, as kernels do.

use super::backward::{
    all_tiled, clipped, deltas_of, drops, drops_others, fed, of_bias, of_groups, of_softmax,
    of_values, one_of_group, overwritten, recomputed, scaled_twice, skipped, tiled, turned,
    unscaled,
};
use super::{Mistake, Way, after, none, omit, omitted, one, read};
use program::{Change, Edit, Kind, Name, Op, Scaling, Slip, Weigh, Weighting};

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
                edits: |run| scaled_twice(run, run.factors().get(..1).unwrap_or_default()),
            },
            Way {
                summary: "the gradient of the keys is scaled twice",
                wrong: "dK = scale * dS.mT @ (scale * Q)",
                right: "dK = scale * dS.mT @ Q",
                edits: |run| scaled_twice(run, run.factors().get(1..).unwrap_or_default()),
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
                Ok(of_groups(run, |at, times| {
                    let factor = (times as f64).recip();
                    vec![after(at, Scaling::By { factor }, &[])]
                }))
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
                edits: |run| Ok([one_of_group(run, true), one_of_group(run, false)].concat()),
            },
            Way {
                summary: "the gradients of query heads go to the wrong key heads (0 1 0 1)",
                wrong: "dK = dK.view(B, H // H_kv, H_kv, S, d_k).sum(1)",
                right: RIGHT_GROUP,
                edits: |run| Ok([of_groups(run, |at, _| tiled(run, at)), all_tiled(run)].concat()),
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
                summary: "the weights' gradients are scaled by 1 / (1 − p), and none is dropped",
                wrong: "dP = dO @ V.mT / (1 - p)",
                right: "dP = dO @ V.mT * keep / (1 - p)",
                edits: |run| {
                    let Some(Op::Weighting(Weighting::Dropout { p })) =
                        run.op(Name::Weights.gradient())
                    else {
                        return none();
                    };
                    let scale = Scaling::By { factor: (1.0 - p).recip() };
                    let reads = vec![Name::WeightsDropped.gradient()];
                    one([Edit::new(Name::Weights.gradient(), Change::Become(scale.into(), reads))])
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
            Way {
                summary: "the backward pass drops other weights than the forward pass did: another seed or offset",
                wrong: "keep = torch.rand_like(P) >= p  # drawn anew",
                right: "keep = ctx.keep, or the same seed and offset",
                edits: drops_others,
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
        id: "gradient-clipped",
        kind: Kind::Inserted,
        silent: "The gradient has the right signs, and training goes on.",
        ways: &[Way {
            summary: "the numbers of a gradient are clipped, and those that it is made into are not",
            wrong: "grad.clamp_(-c, c)  # a hook, or clip_grad_value_",
            right: "compare the gradients before they are clipped",
            edits: clipped,
        }],
        seen: &[],
    },
    Mistake {
        id: "gradient-tile-skipped",
        kind: Kind::Omitted,
        silent: "Most of the gradient is right.",
        ways: &[Way {
            summary: "some rows of a gradient are never written: they are 0",
            wrong: "grid = (T // block,)",
            right: "grid = (triton.cdiv(T, block),)",
            edits: skipped,
        }],
        seen: &["flagos-ai/FlagGems#3395"],
    },
];
