//! Which mistakes are known of what later models added to the scores: windows, position biases, soft caps?

use super::mask::by_position;
use super::{Mistake, Situation, Way, after, none, omit, omitted, one, replace};
use crate::candidate::Edits;
use base::error::Result;
use program::{
    Biasing, ByPosition, Kind, Masking, Name, Op, Scaling, ScoreSlip, Slip, alibi_slopes, signed,
};

/// The line of a window as it should be.
const WINDOW: &str =
    "mask = causal | (query - key >= window)  # the last window keys, itself included";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "window-off-by-one",
        kind: Kind::Parameter,
        silent: "Sequences shorter than the window do not show it.",
        ways: &[
            Way {
                summary: "the sliding window is one key wider",
                wrong: "mask = causal | (query - key > window)",
                right: WINDOW,
                edits: |run| of_window(run, 1),
            },
            Way {
                summary: "the sliding window is one key narrower",
                wrong: "mask = causal | (query - key >= window - 1)",
                right: WINDOW,
                edits: |run| of_window(run, -1),
            },
        ],
        seen: &["huggingface/transformers#39408", "huggingface/transformers#29623"],
    },
    Mistake {
        id: "alibi-slopes",
        kind: Kind::Parameter,
        silent: "Every head still has a slope, and the biases still grow with the distance.",
        ways: &[Way {
            summary: "the ALiBi slopes are those of another number of heads, in another order, or of the wrong sign",
            wrong: "slopes = [2 ** (-8 * (h + 1) / n) for h in range(n)]  # n is no power of two",
            right: "slopes of the next lower power of two, then every other one of the next higher",
            edits: other_slopes,
        }],
        seen: &["ml-explore/mlx#3071", "paiml/aprender#2143"],
    },
    Mistake {
        id: "softcap-missing",
        kind: Kind::Omitted,
        silent: "Only scores near the cap differ much.",
        ways: &[Way {
            summary: "the scores are not capped",
            wrong: "scores = scores  # the model's softcap is not read",
            right: "scores = softcap * torch.tanh(scores / softcap)",
            edits: |run| omitted(run, Name::ScoresCapped),
        }],
        seen: &[],
    },
    Mistake {
        id: "softcap-undivided",
        kind: Kind::Omitted,
        silent: "The scores stay within the cap, and only grow towards it too early.",
        ways: &[Way {
            summary: "the scores are not divided by the soft cap before tanh",
            wrong: "scores = softcap * torch.tanh(scores)",
            right: "scores = softcap * torch.tanh(scores / softcap)",
            edits: |run| {
                let Some(Op::Scaling(Scaling::SoftCap { cap })) = run.op(Name::ScoresCapped) else {
                    return none();
                };
                let slip = Slip::Scores(ScoreSlip::Cap { outer: *cap, inner: 1.0 });
                one([replace(Name::ScoresCapped, slip)])
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "softcap-after-mask",
        kind: Kind::Moved,
        silent: "A cap of 50 leaves blocked keys next to no weight, unless a row's scores are all low.",
        ways: &[Way {
            summary: "the scores are capped after the mask, which makes blocked ones −C",
            wrong: "scores = softcap * torch.tanh(scores.masked_fill(mask, -1e9) / softcap)",
            right: "scores = (softcap * torch.tanh(scores / softcap)).masked_fill(mask, -1e9)",
            edits: |run| {
                let Some(cap) = run.op(Name::ScoresCapped) else { return none() };
                if !run.has(Name::MaskedScores) {
                    return none();
                }
                one([omit(Name::ScoresCapped), after(Name::MaskedScores, cap.clone(), &[])])
            },
        }],
        seen: &["onnx/onnx#7865", "microsoft/onnxruntime#28370"],
    },
];

/// The window has so many keys more.
fn of_window(run: &Situation, more: i64) -> Result<Vec<Edits>> {
    let Some(own) = by_position(run, Name::WindowMask) else { return none() };
    let Some((_, window, with)) = own.hides.number() else { return none() };
    let other = usize::try_from(signed(window) + more).unwrap_or_default();
    let mask = Masking::ByPosition(ByPosition { hides: with(other), ..own.clone() });
    one(vec![replace(Name::WindowMask, mask)])
}

/// Other slopes: those of a plain geometric series, from its second or first term, in reverse, sorted, with the other sign, and
/// those of the next power of two and of one more head.
fn other_slopes(run: &Situation) -> Result<Vec<Edits>> {
    let Some(Op::Biasing(Biasing::Slopes { slopes: right })) = run.op(Name::AlibiSlopes) else {
        return none();
    };
    let heads = right.len();
    let series = |from: usize| -> Vec<f64> {
        (from..from + heads).map(|at| (-8.0 * at as f64 / heads as f64).exp2()).collect()
    };
    let reversed: Vec<f64> = right.iter().rev().copied().collect();
    let negative: Vec<f64> = right.iter().map(|slope| -slope).collect();
    let first_of = |count: usize| alibi_slopes(count).into_iter().take(heads).collect();
    let mut rising = right.clone();
    rising.sort_by(f64::total_cmp);
    let falling = rising.iter().rev().copied().collect();
    let all: [Vec<f64>; 8] = [
        series(1),
        series(0),
        reversed,
        rising,
        falling,
        negative,
        first_of(heads.next_power_of_two()),
        first_of(heads + 1),
    ];
    let others = all.into_iter().filter(|slopes| slopes != right);
    Ok(others.map(|slopes| vec![replace(Name::AlibiSlopes, Biasing::Slopes { slopes })]).collect())
}
