//! Mistakes of what later models added to the scores: windows, position biases, soft caps.

use candle_core::Tensor;

use super::mask::with_causal;
use super::{Mutation, Site, one};
use crate::error::Result;
use crate::source::{alibi, alibi_slopes, before_window};
use crate::trace::Op;

pub const ALL: &[Mutation] = &[
    Mutation {
        id: "window-off-by-one",
        summary: "the sliding window is one key wider or narrower",
        silent: "Sequences shorter than the window do not show it.",
        example: "mask = causal | (query - key > window)",
        fix: "mask = causal | (query - key >= window)  # the last `window` keys, itself included",
        steps: &["masked_scores"],
        faulty: |site| {
            let Some(window) = site.config.window else { return one(None) };
            let mut both = Vec::new();
            for other in [window + 1, window - 1] {
                let hides = |query, key| key > query || before_window(Some(other), query, key);
                both.extend(with_causal(site, hides)?);
            }
            Ok(both)
        },
    },
    Mutation {
        id: "alibi-slopes",
        summary: "the position biases have the slopes of another head count, order or sign",
        silent: "Every head still has a slope, and the biases still grow with the distance.",
        example: "slopes = [2 ** (-8 * (h + 1) / n) for h in range(n)]  # n is no power of two",
        fix: "slopes of the next lower power of two, then every other one of the next higher",
        steps: &["scores_biased"],
        faulty: |site| if site.config.alibi { other_slopes(site) } else { one(None) },
    },
    Mutation {
        id: "softcap-missing",
        summary: "the scores are not capped",
        silent: "Only scores near the cap differ much.",
        example: "scores = scores  # the model's softcap is not read",
        fix: "scores = softcap * torch.tanh(scores / softcap)",
        steps: &["scores_capped"],
        faulty: |site| one(site.input().cloned()),
    },
    Mutation {
        id: "softcap-after-mask",
        summary: "the scores are capped after the mask, which makes blocked ones −C",
        silent: "A cap of 50 leaves blocked keys next to no weight, unless a row's scores are all low.",
        example: "scores = softcap * torch.tanh(scores.masked_fill(mask, -1e9) / softcap)",
        fix: "scores = (softcap * torch.tanh(scores / softcap)).masked_fill(mask, -1e9)",
        steps: &["scores_capped", "masked_scores"],
        faulty: |site| match (site.step.name.as_str(), site.config.softcap) {
            ("scores_capped", _) => one(site.input().cloned()),
            (_, Some(cap)) => one(Some(Op::SoftCap { cap }.eval(&[&site.correct()?])?)),
            (_, None) => one(None),
        },
    },
];

/// The scores under the biases of other slopes: those of a plain geometric series, from its second or first term, in
/// reverse, with the other sign, and those of the next power of two.
fn other_slopes(site: &Site) -> Result<Vec<Tensor>> {
    let (Some(scores), Some(bias)) = (site.input(), site.value("attn_bias")) else {
        return one(None);
    };
    let heads = site.config.heads;
    let right = alibi_slopes(heads);
    #[allow(clippy::cast_precision_loss, reason = "heads are few")]
    let series = |from: usize| -> Vec<f64> {
        (from..from + heads).map(|at| (-8.0 * at as f64 / heads as f64).exp2()).collect()
    };
    let reversed: Vec<f64> = right.iter().rev().copied().collect();
    let negative: Vec<f64> = right.iter().map(|slope| -slope).collect();
    let of_more: Vec<f64> =
        alibi_slopes(heads.next_power_of_two()).into_iter().take(heads).collect();
    let of_one_more: Vec<f64> = alibi_slopes(heads + 1).into_iter().take(heads).collect();
    let own = alibi(site.config, &right)?.to_dtype(scores.dtype())?;
    let mut faulty = Vec::new();
    for slopes in [series(1), series(0), reversed, negative, of_more, of_one_more] {
        if slopes == right {
            continue;
        }
        let other = alibi(site.config, &slopes)?.to_dtype(scores.dtype())?;
        // A float mask beside the biases stays.
        let bias = bias.broadcast_add(&other.sub(&own)?)?;
        faulty.push(site.step.op.eval(&[scores, &bias])?);
    }
    Ok(faulty)
}
