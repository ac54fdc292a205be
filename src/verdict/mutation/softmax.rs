//! Mistakes of the softmax, and other conventions for rows without a visible key.

use candle_core::{D, DType, Tensor};

use super::{Mutation, Site, one};
use crate::config::{self, EmptyRows, Fill};
use crate::error::Result;
use crate::trace::Op;

const EMPTY: &str = "It shows only where every key of a query is masked.";
const EMPTY_FIX: &str = "choose one convention: --empty-rows and --mask-fill say which";

pub const ALL: &[Mutation] = &[
    Mutation {
        id: "empty-row-zero",
        summary: "a fully masked row gets weights 0",
        silent: EMPTY,
        example: "weights = torch.softmax(scores, dim=-1).nan_to_num(0.0)",
        fix: EMPTY_FIX,
        steps: &["weights"],
        faulty: |site| {
            let (Some(rows), weights) = (empty_rows(site)?, site.correct()?) else {
                return one(None);
            };
            one(Some(rows.where_cond(&weights.zeros_like()?, &weights)?))
        },
    },
    Mutation {
        id: "empty-row-nan",
        summary: "a fully masked row becomes NaN",
        silent: EMPTY,
        example: "weights = torch.softmax(scores.masked_fill(mask, float(\"-inf\")), dim=-1)",
        fix: EMPTY_FIX,
        steps: &["weights"],
        faulty: |site| match (empty_rows(site)?, site.input()) {
            (Some(_), Some(scores)) => {
                one(Some(Op::Softmax { empty_rows: EmptyRows::Nan }.eval(&[scores])?))
            }
            _ => one(None),
        },
    },
    Mutation {
        id: "empty-row-nan",
        summary: "a fully masked row becomes NaN",
        silent: EMPTY,
        example: "scores = scores.masked_fill(mask, float(\"-inf\"))",
        fix: EMPTY_FIX,
        steps: &["masked_scores"],
        faulty: |site| filled(site, f64::NEG_INFINITY),
    },
    Mutation {
        id: "empty-row-uniform",
        summary: "a fully masked row gets equal weights, as its keys share a finite fill",
        silent: EMPTY,
        example: "scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)",
        fix: EMPTY_FIX,
        steps: &["masked_scores"],
        faulty: |site| {
            let mut fills = vec![f64::from(f32::MIN), -1e9];
            if site.config.dtype == config::DType::F64 {
                fills.push(f64::MIN);
            }
            let filled: Result<Vec<Vec<Tensor>>> =
                fills.iter().map(|fill| filled(site, *fill)).collect();
            Ok(filled?.into_iter().flatten().collect())
        },
    },
    Mutation {
        id: "softmax-over-queries",
        summary: "softmax runs over the queries: columns sum to 1, rows do not",
        silent: "All weights are in [0, 1], and with equal lengths every shape fits.",
        example: "weights = torch.softmax(scores, dim=-2)",
        fix: "weights = torch.softmax(scores, dim=-1)",
        steps: &["weights"],
        faulty: |site| over(site, 2),
    },
    Mutation {
        id: "softmax-over-heads",
        summary: "softmax runs over the heads",
        silent: "All weights are in [0, 1].",
        example: "weights = torch.softmax(scores, dim=1)",
        fix: "weights = torch.softmax(scores, dim=-1)",
        steps: &["weights"],
        faulty: |site| over(site, 1),
    },
    Mutation {
        id: "softmax-missing",
        summary: "the raw scores are used as weights",
        silent: "Nothing checks that weights are positive and sum to 1.",
        example: "output = scores @ v",
        fix: "output = torch.softmax(scores, dim=-1) @ v",
        steps: &["weights"],
        faulty: |site| one(site.input().cloned()),
    },
    Mutation {
        id: "dropout-active",
        summary: "dropout is left on in inference: some weights are 0, the others are scaled up",
        silent: "The mean of the weights is right; the numbers differ from call to call.",
        example: "weights = F.dropout(weights, p)",
        fix: "weights = F.dropout(weights, p, training=self.training)",
        steps: &["weights"],
        faulty: dropped,
    },
];

/// True throughout the rows whose keys are all masked, in the shape of the scores; nothing if there are none.
fn empty_rows(site: &Site) -> Result<Option<Tensor>> {
    let (Some(mask), Some(scores)) = (site.value("mask"), site.input()) else { return Ok(None) };
    let rows = mask.min_keepdim(D::Minus1)?;
    if rows.max_all()?.to_scalar::<u8>()? == 0 {
        return Ok(None);
    }
    Ok(Some(rows.broadcast_as(scores.shape())?.contiguous()?))
}

/// The scores with another fill, in a run with fully masked rows.
fn filled(site: &Site, fill: f64) -> Result<Vec<Tensor>> {
    match (empty_rows(site)?, site.input(), site.value("mask")) {
        (Some(_), Some(scores), Some(mask)) => {
            one(Some(Op::MaskFill { fill: Fill(fill) }.eval(&[scores, mask])?))
        }
        _ => one(None),
    }
}

fn over(site: &Site, axis: usize) -> Result<Vec<Tensor>> {
    one(site.input().map(|scores| candle_nn::ops::softmax(scores, axis)).transpose()?)
}

/// What was found, if each of its cells is 0 or the right weight times one factor above 1.
fn dropped(site: &Site) -> Result<Vec<Tensor>> {
    let Some(found) = site.found else { return one(None) };
    let correct = site.correct()?;
    let values = |tensor: &Tensor| tensor.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>();
    let pairs: Vec<(f64, f64)> = values(&correct)?.into_iter().zip(values(found)?).collect();
    let visible = || pairs.iter().filter(|(correct, _)| *correct > 0.0);
    let largest = visible()
        .filter(|(_, found)| *found > 0.0)
        .max_by(|left, right| left.0.total_cmp(&right.0));
    let Some(scale) = largest.map(|(correct, found)| found / correct) else { return one(None) };
    if scale <= 1.0 || visible().all(|(_, found)| *found > 0.0) {
        return one(None);
    }
    let keep = found.gt(0.0)?.to_dtype(correct.dtype())?;
    one(Some(correct.affine(scale, 0.0)?.mul(&keep)?))
}
