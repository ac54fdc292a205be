//! Which mistakes are known of what multiplies the parts of the delta rule's chunks: of their decays' ends, of the base that
//! these are in, of β and of the scale?

use std::f64::consts::{LN_2, LOG2_E};

use super::delta::{CARRIED, FIRST, READ, SILENT, SUBTRACTED, in_chunks, way};
use super::{Mistake, Way};
use program::{ChunkDecay, ChunkSlip, Kind};

/// A part of what queries read that is multiplied by the scale once more, or by what takes it back.
macro_rules! scaled {
    ($slip:ident, $factor:ident, $summary:literal, $wrong:literal) => {
        Way {
            summary: $summary,
            wrong: $wrong,
            right: READ,
            edits: |run| in_chunks(run, ChunkSlip::$slip(run.config.scale_factor().$factor())),
        }
    };
}

const END: &str = "g_last = g[..., size - 1]";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "delta-chunk-end",
        kind: Kind::Replaced,
        silent: SILENT,
        ways: &[
            way!(
                EndBefore(1),
                "the decay up to the end of a chunk is read one token before its last",
                "g_last = g[..., size - 2]",
                END
            ),
            way!(
                EndBefore(2),
                "the decay up to the end of a chunk is read two tokens before its last",
                "g_last = g[..., size - 3]",
                END
            ),
            way!(
                EndBefore(3),
                "the decay up to the end of a chunk is read three tokens before its last",
                "g_last = g[..., size - 4]",
                END
            ),
            way!(
                EndBefore(usize::MAX),
                "the decay up to the end of a chunk is read at its first token",
                "g_last = g[..., 0]",
                END
            ),
            way!(
                CarryByBefore,
                "the state that is carried across a chunk decays as over the chunk before it, and not over the first",
                "state = state * g_last_before.exp() + …",
                CARRIED
            ),
            way!(
                CarryEndBefore(1),
                "the state that is carried across a chunk does not decay by its last token",
                "state = state * g[..., size - 2].exp() + …",
                CARRIED
            ),
            way!(
                WriteEndBefore(1),
                "what a chunk writes is carried on without the decay of its last token",
                "state = … + (k * (g[..., size - 2] - g).exp()).mT @ v_new",
                CARRIED
            ),
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-base",
        kind: Kind::Replaced,
        silent: SILENT,
        ways: &[
            way!(
                OtherBase(ChunkDecay::Carried, LOG2_E),
                "the state that is carried across a chunk decays by exp of a g that is in base 2",
                "state = state * g_last.exp() + …",
                "state = state * g_last.exp2() + …"
            ),
            way!(
                OtherBase(ChunkDecay::Carried, LN_2),
                "the state that is carried across a chunk decays by exp2 of a natural g",
                "state = state * g_last.exp2() + …",
                "state = state * g_last.exp() + …"
            ),
            way!(
                OtherBase(ChunkDecay::Written, LOG2_E),
                "what a chunk writes decays up to its end by exp of a g that is in base 2",
                "state = … + (k * (g_last - g).exp()).mT @ v_new",
                "state = … + (k * (g_last - g).exp2()).mT @ v_new"
            ),
            way!(
                OtherBase(ChunkDecay::Written, LN_2),
                "what a chunk writes decays up to its end by exp2 of a natural g",
                "state = … + (k * (g_last - g).exp2()).mT @ v_new",
                "state = … + (k * (g_last - g).exp()).mT @ v_new"
            ),
            way!(
                OtherBase(ChunkDecay::Read, LOG2_E),
                "what queries read of the state decays by exp of a g that is in base 2",
                "o = (q * g.exp()) @ state + …",
                "o = (q * g.exp2()) @ state + …"
            ),
            way!(
                OtherBase(ChunkDecay::Read, LN_2),
                "what queries read of the state decays by exp2 of a natural g",
                "o = (q * g.exp2()) @ state + …",
                "o = (q * g.exp()) @ state + …"
            ),
            way!(
                OtherBase(ChunkDecay::Subtracted, LOG2_E),
                "what is subtracted of the state decays by exp of a g that is in base 2",
                "w = T @ (k_beta * g.exp())",
                "w = T @ (k_beta * g.exp2())"
            ),
            way!(
                OtherBase(ChunkDecay::Subtracted, LN_2),
                "what is subtracted of the state decays by exp2 of a natural g",
                "w = T @ (k_beta * g.exp2())",
                "w = T @ (k_beta * g.exp())"
            ),
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-beta",
        kind: Kind::Repeated,
        silent: FIRST,
        ways: &[way!(
            DeltaTwice,
            "beta is applied twice to what is subtracted of the state",
            "v_new = T @ v_beta - T @ (k_beta * beta * g.exp()) @ state",
            SUBTRACTED
        )],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-scale",
        kind: Kind::Parameter,
        silent: SILENT,
        ways: &[
            scaled!(
                InterTimes,
                recip,
                "what queries read of the state is not divided by √d_k, what they read within their chunk is",
                "o = (q * g.exp()) @ state + scale * (q @ k.mT * decay_mask).tril() @ v_new"
            ),
            scaled!(
                IntraTimes,
                recip,
                "what queries read within their chunk is not divided by √d_k, what they read of the state is",
                "o = scale * (q * g.exp()) @ state + (q @ k.mT * decay_mask).tril() @ v_new"
            ),
            scaled!(
                InterTimes,
                abs,
                "what queries read of the state is scaled twice, what they read within their chunk is not",
                "o = scale * (q * scale * g.exp()) @ state + scale * (q @ k.mT * decay_mask).tril() @ v_new"
            ),
            scaled!(
                IntraTimes,
                abs,
                "what queries read within their chunk is scaled twice, what they read of the state is not",
                "o = scale * (q * g.exp()) @ state + scale * (q * scale @ k.mT * decay_mask).tril() @ v_new"
            ),
        ],
        seen: &[],
    },
];
