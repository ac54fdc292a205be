//! Which mistakes of the softmax are known, and which other conventions for rows without a visible key?

use candle_core::{D, Tensor};

use super::{Mistake, Situation, Way, after, none, omitted, one, replace};
use crate::candidate::Edits;
use base::error::Result;
use config;
use program::{CHUNK, EmptyRow, Fill, KeepSome, Kind, Masking, Name, Weigh, Weighting, chunk};

const EMPTY: &str = "It shows only where every key of a query is masked.";
const CHOOSE: &str = "choose one convention: `empty_rows` and `mask_fill` say which";
const NAN: &str = "a fully masked row becomes NaN";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "empty-row-zero",
        kind: Kind::Mask,
        silent: EMPTY,
        ways: &[Way {
            summary: "a fully masked row gets weights 0",
            wrong: "weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)",
            right: CHOOSE,
            edits: |run| {
                let Some(mask) = run.right.mask_of_scores() else { return none() };
                let zero = after(Name::Weights, Weighting::ZeroEmptyRows, &[mask.name]);
                if has_empty_rows(run)? { one([zero]) } else { none() }
            },
        }],
        seen: &["pytorch/pytorch#103749", "robertknight/rten#1321"],
    },
    Mistake {
        id: "empty-row-nan",
        kind: Kind::Mask,
        silent: EMPTY,
        ways: &[
            Way {
                summary: NAN,
                wrong: "weights = torch.softmax(scores.masked_fill(mask, float(\"-inf\")), dim=-1)",
                right: CHOOSE,
                edits: |run| {
                    let nan = replace(Name::Weights, Weighting::softmax(EmptyRow::Nan));
                    if has_empty_rows(run)? { one([nan]) } else { none() }
                },
            },
            Way {
                summary: NAN,
                wrong: "scores = scores.masked_fill(mask, float(\"-inf\"))",
                right: CHOOSE,
                edits: |run| filled(run, &[f64::NEG_INFINITY]),
            },
        ],
        seen: &["pytorch/pytorch#103749", "robertknight/rten#1321"],
    },
    Mistake {
        id: "empty-row-uniform",
        kind: Kind::Mask,
        silent: EMPTY,
        ways: &[Way {
            summary: "a fully masked row gets equal weights, as its keys share a finite fill",
            wrong: "scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)",
            right: CHOOSE,
            edits: |run| match run.config.dtype {
                config::DType::F64 => filled(run, &[f64::from(f32::MIN), -1e9, f64::MIN]),
                config::DType::F32 => filled(run, &[f64::from(f32::MIN), -1e9]),
            },
        }],
        seen: &["pytorch/pytorch#103749", "robertknight/rten#1321"],
    },
    Mistake {
        id: "softmax-over-queries",
        kind: Kind::Axes,
        silent: "All weights are in [0, 1], and with equal lengths every shape fits.",
        ways: &[Way {
            summary: "softmax runs over the queries: columns sum to 1, rows do not",
            wrong: "weights = torch.softmax(scores, dim=-2)",
            right: "weights = torch.softmax(scores, dim=-1)",
            edits: |_| over(2),
        }],
        seen: &["PetrochukM/PyTorch-NLP#2", "nerdai/llms-from-scratch-rs#30"],
    },
    Mistake {
        id: "softmax-over-heads",
        kind: Kind::Axes,
        silent: "All weights are in [0, 1].",
        ways: &[Way {
            summary: "softmax runs over the heads",
            wrong: "weights = torch.softmax(scores, dim=1)",
            right: "weights = torch.softmax(scores, dim=-1)",
            edits: |_| over(3),
        }],
        seen: &["labmlai/annotated_deep_learning_paper_implementations#146"],
    },
    Mistake {
        id: "softmax-missing",
        kind: Kind::Omitted,
        silent: "Nothing checks that weights are positive and sum to 1.",
        ways: &[Way {
            summary: "the raw scores are used as weights",
            wrong: "output = scores @ v",
            right: "output = torch.softmax(scores, dim=-1) @ v",
            edits: |run| omitted(run, Name::Weights),
        }],
        seen: &[],
    },
    Mistake {
        id: "dropout-active",
        kind: Kind::Random,
        silent: "The mean of the weights is right; the numbers differ from call to call.",
        ways: &[Way {
            summary: "dropout is left on in inference: some weights are 0, the others are scaled up",
            wrong: "weights = F.dropout(weights, p)",
            right: "weights = F.dropout(weights, p, training=self.training)",
            edits: dropped,
        }],
        seen: &["pytorch/pytorch#124464", "suno-ai/bark#662"],
    },
];

/// Whether the mask blocks every key of a query.
fn has_empty_rows(run: &Situation) -> Result<bool> {
    match run.right.mask_of_scores() {
        Some(mask) => Ok(mask.value.min_keepdim(D::Minus1)?.max_all()?.to_scalar::<u8>()? == 1),
        None => Ok(false),
    }
}

/// The scores with other fills, in a run with fully masked rows.
fn filled(run: &Situation, fills: &[f64]) -> Result<Vec<Edits>> {
    if !has_empty_rows(run)? || !run.has(Name::MaskedScores) {
        return none();
    }
    let with = |fill: &f64| vec![replace(Name::MaskedScores, Masking::Fill { fill: Fill(*fill) })];
    Ok(fills.iter().map(with).collect())
}

fn over(axis_from_last: usize) -> Result<Vec<Edits>> {
    one([replace(Name::Weights, Weigh::Over(vec![axis_from_last]))])
}

/// Dropout by what was found, if each of its cells is 0 or the right weight times one factor above 1.
fn dropped(run: &Situation) -> Result<Vec<Edits>> {
    let Some(weights) = run.right.step(Name::Weights) else { return none() };
    let recorded = run.recorded;
    let inputs = run.inputs(Name::Weights);
    let read: Option<Vec<&Tensor>> = inputs.iter().map(|name| recorded.get(name)).collect();
    let (Some(found), Some(read)) = (recorded.get(&Name::Weights), read) else { return none() };
    let correct = weights.op.eval(&read)?;
    let (correct, kept) = (correct.flatten_all()?, found.flatten_all()?);
    let (mut largest, mut factor, mut drops) = (0.0, 0.0, false);
    for start in (0..correct.elem_count()).step_by(CHUNK) {
        let pairs = chunk(&correct, start, CHUNK)?.into_iter().zip(chunk(&kept, start, CHUNK)?);
        for (correct, kept) in pairs.filter(|(correct, _)| *correct > 0.0) {
            drops |= kept <= 0.0;
            if kept > 0.0 && correct > largest {
                (largest, factor) = (correct, kept / correct);
            }
        }
    }
    if factor <= 1.0 || !drops {
        return none();
    }
    one([after(Name::Weights, Weighting::KeepSome(KeepSome { keep: found.gt(0.0)?, factor }), &[])])
}
