//! Mistakes of the factor 1/√`d_k`.

use candle_core::Tensor;

use super::{Mutation, Site, one};
use crate::config::root;
use crate::error::Result;

const SILENT: &str = "The weights still sum to 1; they are only too flat or too sharp.";
const FIX: &str = "scores = q @ k.transpose(-2, -1) / math.sqrt(head_dim)";

pub const ALL: &[Mutation] = &[
    Mutation {
        id: "scale-missing",
        summary: "the scores are not divided by √d_k",
        silent: SILENT,
        example: "scores = q @ k.transpose(-2, -1)",
        fix: FIX,
        steps: &["scores"],
        faulty: |site| times(site, 1.0),
    },
    Mutation {
        id: "scale-sqrt-d-model",
        summary: "the scores are divided by √d_model in place of √d_k",
        silent: SILENT,
        example: "scores = q @ k.transpose(-2, -1) / math.sqrt(d_model)",
        fix: FIX,
        steps: &["scores"],
        faulty: |site| times(site, 1.0 / root(site.config.d_model)),
    },
    Mutation {
        id: "scale-sqrt-heads",
        summary: "the scores are divided by √heads in place of √d_k",
        silent: SILENT,
        example: "scores = q @ k.transpose(-2, -1) / math.sqrt(n_heads)",
        fix: FIX,
        steps: &["scores"],
        faulty: |site| times(site, 1.0 / root(site.config.heads)),
    },
    Mutation {
        id: "scale-d-k",
        summary: "the scores are divided by d_k, not by its root",
        silent: SILENT,
        example: "scores = q @ k.transpose(-2, -1) / head_dim",
        fix: FIX,
        steps: &["scores"],
        faulty: |site| times(site, root(site.config.head_dim).powi(-2)),
    },
    Mutation {
        id: "scale-inverted",
        summary: "the scores are multiplied by √d_k",
        silent: SILENT,
        example: "scores = q @ k.transpose(-2, -1) * math.sqrt(head_dim)",
        fix: FIX,
        steps: &["scores"],
        faulty: |site| times(site, 1.0 / site.config.scale_factor()),
    },
    Mutation {
        id: "scale-twice",
        summary: "q (or the dot products) is scaled, and so are the scores",
        silent: SILENT,
        example: "q = q * head_dim**-0.5  # and then: scores = q @ k.transpose(-2, -1) / math.sqrt(head_dim)",
        fix: "scale once, either q or the scores",
        steps: &["q"],
        faulty: twice,
    },
    Mutation {
        id: "scale-twice",
        summary: "q (or the dot products) is scaled, and so are the scores",
        silent: SILENT,
        example: "scores = (q @ k.transpose(-2, -1) * head_dim**-0.5) / math.sqrt(head_dim)",
        fix: "scale once, either q or the scores",
        steps: &["scores_raw"],
        faulty: twice,
    },
];

fn times(site: &Site, factor: f64) -> Result<Vec<Tensor>> {
    let scores = site.input().map(|scores| scores.affine(factor, 0.0)).transpose()?;
    one(scores)
}

fn twice(site: &Site) -> Result<Vec<Tensor>> {
    one(Some(site.correct()?.affine(site.config.scale_factor(), 0.0)?))
}
