//! Which mistakes of the factor 1/√`d_k` are known?

use super::{Mistake, Situation, Way, after, none, one, replace};
use crate::candidate::Edits;
use base::error::Result;
use program::{Kind, Name, Scaling};

const SILENT: &str = "The weights still sum to 1; they are only too flat or too sharp.";
const RIGHT: &str = "scores = q @ k.transpose(-2, -1) / math.sqrt(head_dim)";
const ONCE: &str = "scale once, either q or the scores";
const TWICE: &str = "both q (or the dot products) and the scores are scaled";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "scale-missing",
        kind: Kind::Omitted,
        silent: SILENT,
        ways: &[Way {
            summary: "the scores are not divided by √d_k",
            wrong: "scores = q @ k.transpose(-2, -1)",
            right: RIGHT,
            edits: |_| times(1.0),
        }],
        seen: &["mlc-ai/mlc-llm#3426", "delzac/cntkx#10"],
    },
    Mistake {
        id: "scale-sqrt-d-model",
        kind: Kind::Parameter,
        silent: SILENT,
        ways: &[Way {
            summary: "the scores are divided by √d_model instead of √d_k",
            wrong: "scores = q @ k.transpose(-2, -1) / math.sqrt(d_model)",
            right: RIGHT,
            edits: |run| times(1.0 / root(run.config.sizes.d_model)),
        }],
        seen: &["Graylab/DL4Proteins-notebooks#12", "FareedKhan-dev/train-llm-from-scratch#3"],
    },
    Mistake {
        id: "scale-sqrt-heads",
        kind: Kind::Parameter,
        silent: SILENT,
        ways: &[Way {
            summary: "the scores are divided by √heads instead of √d_k",
            wrong: "scores = q @ k.transpose(-2, -1) / math.sqrt(n_heads)",
            right: RIGHT,
            edits: |run| times(1.0 / root(run.config.sizes.heads)),
        }],
        seen: &["tenstorrent/tt-metal#56789"],
    },
    Mistake {
        id: "scale-d-k",
        kind: Kind::Parameter,
        silent: SILENT,
        ways: &[Way {
            summary: "the scores are divided by d_k, not by its root",
            wrong: "scores = q @ k.transpose(-2, -1) / head_dim",
            right: RIGHT,
            edits: |run| times(root(run.config.sizes.head_dim).powi(-2)),
        }],
        seen: &[],
    },
    Mistake {
        id: "scale-inverted",
        kind: Kind::Parameter,
        silent: SILENT,
        ways: &[Way {
            summary: "the scores are multiplied by √d_k",
            wrong: "scores = q @ k.transpose(-2, -1) * math.sqrt(head_dim)",
            right: RIGHT,
            edits: |run| times(1.0 / run.config.scale_factor()),
        }],
        seen: &["esceptico/perceiver-io#9"],
    },
    Mistake {
        id: "scale-twice",
        kind: Kind::Repeated,
        silent: SILENT,
        ways: &[
            Way {
                summary: "the scores are scaled twice",
                wrong: "scores = q @ k.transpose(-2, -1) / math.sqrt(head_dim) / math.sqrt(head_dim)",
                right: ONCE,
                edits: |run| again(run, Name::Scores),
            },
            Way {
                summary: TWICE,
                wrong: "q = q * head_dim**-0.5  # and then: scores = q @ k.transpose(-2, -1) / math.sqrt(head_dim)",
                right: ONCE,
                edits: |run| again(run, Name::Q),
            },
            Way {
                summary: TWICE,
                wrong: "scores = (q @ k.transpose(-2, -1) * head_dim**-0.5) / math.sqrt(head_dim)",
                right: ONCE,
                edits: |run| again(run, Name::ScoresRaw),
            },
        ],
        seen: &[],
    },
];

fn root(size: usize) -> f64 {
    (size as f64).sqrt()
}

fn times(factor: f64) -> Result<Vec<Edits>> {
    one([replace(Name::Scores, Scaling::By { factor })])
}

fn again(run: &Situation, at: Name) -> Result<Vec<Edits>> {
    if !run.has(at) {
        return none();
    }
    one([after(at, Scaling::By { factor: run.config.scale_factor() }, &[])])
}
