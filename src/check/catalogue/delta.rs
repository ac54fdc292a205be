//! Which mistakes of the delta rule are known? Those of a token follow from the operation, these are of its chunks.

use std::collections::HashSet;

use super::{Mistake, Situation, Way, after, none, omitted, one, replace};
use crate::candidate::Edits;
use base::error::Result;
use program::{ChunkSlip, Delta, DeltaStage, Kind, Name, Op, Scaling};

pub(super) const SILENT: &str = "The outputs stay of the right size and the loss still falls; only what is far away is remembered worse.";
pub(super) const FIRST: &str =
    "The tokens of the first chunk are right, and short tests have no second one.";
pub(super) const CARRIED: &str =
    "state = state * g_last.exp() + (k * (g_last - g).exp()).mT @ v_new";
pub(super) const READ: &str = "o = (q * g.exp()) @ state + (q @ k.mT * decay_mask).tril() @ v_new";
const SCALED: &str = "o_t = state.mT @ (q_t * head_dim**-0.5)";
const INVERSE: &str = "T = inv(I + (k_beta @ k.mT * decay_mask).tril(-1))";
const SUBSTITUTED: &str = "for i in range(1, C): T[i, :i] = T[i, :i] + T[i, :i] @ T[:i, :i]";
pub(super) const SUBTRACTED: &str = "v_new = T @ v_beta - T @ (k_beta * g.exp()) @ state";

macro_rules! way {
    ($slip:ident $(($($size:expr),+))?, $summary:literal, $wrong:literal, $right:expr) => {
        Way {
            summary: $summary,
            wrong: $wrong,
            right: $right,
            edits: |run| $crate::catalogue::delta::in_chunks(run, ChunkSlip::$slip $(($($size),+))?),
        }
    };
}
pub(super) use way;

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "delta-scale",
        kind: Kind::Parameter,
        silent: "A norm behind the heads takes it back.",
        ways: &[
            Way {
                summary: "the queries are not divided by √d_k",
                wrong: "o_t = state.mT @ q_t",
                right: SCALED,
                edits: |run| if run.has(Name::VNew) { omitted(run, Name::QScaled) } else { none() },
            },
            Way {
                summary: "the queries are scaled twice",
                wrong: "o = chunk_gated_delta_rule(q * head_dim**-0.5, k, v, g, beta)  # which scales, too",
                right: "o = chunk_gated_delta_rule(q, k, v, g, beta)",
                edits: |run| {
                    let again = Scaling::By { factor: run.config.scale_factor() };
                    let is_delta = run.has(Name::VNew);
                    if is_delta { one([after(Name::QScaled, again, &[])]) } else { none() }
                },
            },
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-inverse",
        kind: Kind::Replaced,
        silent: SILENT,
        ways: &[
            way!(
                Diagonal,
                "the diagonal of the keys' matrix is not cleared before the forward substitution",
                "T = -(k_beta @ k.mT * decay_mask).masked_fill(triu(diagonal=1), 0)",
                INVERSE
            ),
            way!(
                FirstOrder,
                "the inverse of the keys' matrix is cut off behind its first order",
                "T = I - (k_beta @ k.mT * decay_mask).tril(-1)",
                INVERSE
            ),
            way!(
                OtherSign,
                "the triangular system of a chunk has the other sign: what its earlier tokens wrote is added, not subtracted",
                "v_new = solve_triangular(I - A, v_beta)",
                "v_new = solve_triangular(I + A, v_beta)"
            ),
            way!(
                LastUncorrected(true),
                "the forward substitution ends one row early: from the last token of each chunk nothing of its own chunk is subtracted",
                "for i in range(1, C - 1): T[i, :i] = T[i, :i] + T[i, :i] @ T[:i, :i]",
                SUBSTITUTED
            ),
            way!(
                LastUncorrected(false),
                "the forward substitution ends one row early: from the last token of each full chunk nothing of its own chunk is subtracted",
                "for i in range(1, C - 1): T[i, :i] = T[i, :i] + T[i, :i] @ T[:i, :i]",
                SUBSTITUTED
            ),
            way!(
                NoBetaWithin,
                "beta is missing in the keys' matrix whose inverse is taken",
                "A = (k @ k.mT * decay_mask).tril(-1)",
                "A = (k_beta @ k.mT * decay_mask).tril(-1)"
            ),
            way!(
                Blocks(4),
                "the inverse of the keys' matrix is that of its blocks of 4 tokens: those beside the diagonal are left out",
                "T = block_diag(*(inverse(I + A[i : i + 4, i : i + 4]) for i in range(0, C, 4)))",
                INVERSE
            ),
            way!(
                Blocks(8),
                "the inverse of the keys' matrix is that of its blocks of 8 tokens: those beside the diagonal are left out",
                "T = block_diag(*(inverse(I + A[i : i + 8, i : i + 8]) for i in range(0, C, 8)))",
                INVERSE
            ),
            way!(
                Blocks(16),
                "the inverse of the keys' matrix is that of its blocks of 16 tokens: those beside the diagonal are left out",
                "T = block_diag(*(inverse(I + A[i : i + 16, i : i + 16]) for i in range(0, C, 16)))",
                INVERSE
            ),
            way!(
                Blocks(32),
                "the inverse of the keys' matrix is that of its blocks of 32 tokens: those beside the diagonal are left out",
                "T = block_diag(*(inverse(I + A[i : i + 32, i : i + 32]) for i in range(0, C, 32)))",
                INVERSE
            ),
            way!(
                MergedWithoutSecond,
                "the inverse of the keys' matrix is put together from those of two halves of a chunk, and beside the diagonal that of the second is missing: −A₂₁ A₁₁⁻¹",
                "T_21 = -A_21 @ T_11",
                "T_21 = -T_22 @ A_21 @ T_11"
            ),
            way!(
                MergedWithoutFirst,
                "the inverse of the keys' matrix is put together from those of two halves of a chunk, and beside the diagonal that of the first is missing: −A₂₂⁻¹ A₂₁",
                "T_21 = -T_22 @ A_21",
                "T_21 = -T_22 @ A_21 @ T_11"
            ),
            way!(
                MergedPlain,
                "the inverse of the keys' matrix is put together from those of two halves of a chunk, and beside the diagonal both are missing: −A₂₁",
                "T_21 = -A_21",
                "T_21 = -T_22 @ A_21 @ T_11"
            ),
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-reset",
        kind: Kind::Omitted,
        silent: FIRST,
        ways: &[
            way!(
                Reset,
                "the state is not carried across chunks: each starts from zeros",
                "state = torch.zeros_like(state)  # within the loop",
                CARRIED
            ),
            way!(
                ResetAll,
                "each chunk starts from zeros, the first as well",
                "state = torch.zeros_like(state)  # within the loop",
                CARRIED
            ),
            way!(
                Overwritten,
                "what a chunk writes replaces the state that was carried to it",
                "state = (k * (g_last - g).exp()).mT @ v_new",
                CARRIED
            ),
            way!(
                Restart,
                "each chunk starts from the initial state again",
                "state = initial_state  # within the loop",
                CARRIED
            ),
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-within",
        kind: Kind::Omitted,
        silent: FIRST,
        ways: &[
            way!(
                ReadWithin,
                "queries read from their own chunk alone: what the state has is not added",
                "o = (q @ k.mT * decay_mask).tril() @ v_new",
                READ
            ),
            way!(
                ReadBefore,
                "queries read from the chunks before alone, not from their own",
                "o = (q * g.exp()) @ state",
                READ
            ),
            way!(
                DeltaWithin,
                "what is subtracted from a value is of its own chunk alone, not of the state",
                "v_new = T @ v_beta",
                SUBTRACTED
            ),
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-decay",
        kind: Kind::Omitted,
        silent: SILENT,
        ways: &[
            way!(
                CarryUndecayed,
                "the state that is carried across a chunk does not decay over it",
                "state = state + (k * (g_last - g).exp()).mT @ v_new",
                CARRIED
            ),
            way!(
                NothingDecays,
                "the state that was carried to a chunk decays nowhere in it",
                "state = state + …; o = q @ state + …; v_new = … - T @ k_beta @ state",
                CARRIED
            ),
            way!(
                CarryByLast,
                "the state that is carried across a chunk decays by the last token alone: g was not added up",
                "state = state * g[..., -1].exp() + …  # g without cumsum",
                CARRIED
            ),
            way!(
                PaddedEnd,
                "the decay up to the end of a last chunk that is not full is read from what fills it up: the final state is not decayed by it",
                "g_last = g[..., chunk_size - 1]",
                CARRIED
            ),
            way!(
                SubtractedUndecayed,
                "what is subtracted of the state is solved with the keys' matrix without its decay, and the values with it",
                "w = inv(I + (k_beta @ k.mT).tril(-1)) @ (k_beta * g.exp())",
                "w = T @ (k_beta * g.exp())"
            ),
            way!(
                ValuesUndecayed,
                "the values are solved with the keys' matrix without its decay, and what is subtracted of the state with it",
                "u = inv(I + (k_beta @ k.mT).tril(-1)) @ v_beta",
                "u = T @ v_beta"
            ),
            way!(
                ValuesDecayed,
                "the values of a chunk are decayed from its start, as what is subtracted of the state is",
                "u = T @ (v_beta * g.exp())",
                "u = T @ v_beta"
            ),
            way!(
                IntraInclusive,
                "what queries read within their chunk is decayed by each key's own decay too: g one token early",
                "o = (q * g.exp()) @ state + (q @ k.mT * (g[i] - g[j - 1]).exp()).tril() @ v_new",
                READ
            ),
            way!(
                WriteUndecayed,
                "what a chunk writes is carried on without the decay up to its end",
                "state = state * g_last.exp() + k.mT @ v_new",
                CARRIED
            ),
            way!(
                InterUndecayed,
                "what queries read of the state is not decayed within their chunk",
                "o = q @ state + (q @ k.mT * decay_mask).tril() @ v_new",
                READ
            ),
            way!(
                InterExclusive,
                "what queries read of the state is decayed by the tokens before their own alone: the sum of g is exclusive",
                "o = (q * (g_cumsum - g).exp()) @ state + (q @ k.mT * decay_mask).tril() @ v_new",
                READ
            ),
            way!(
                DeltaUndecayed,
                "what is subtracted of the state is not decayed within the chunk",
                "v_new = T @ v_beta - T @ k_beta @ state",
                SUBTRACTED
            ),
            way!(
                IntraUndecayed,
                "what queries read within their chunk is not decayed",
                "o = (q * g.exp()) @ state + (q @ k.mT).tril() @ v_new",
                READ
            ),
            way!(
                IntraDeltaUndecayed,
                "what is subtracted within a chunk is not decayed",
                "T = inv(I + (k_beta @ k.mT).tril(-1))",
                INVERSE
            ),
            way!(
                Cumulative,
                "the decay is added up over all tokens, not from the start of each chunk",
                "g = g.cumsum(-1)  # over the sequence",
                "g = g.view(B, H, -1, size).cumsum(-1)"
            ),
            way!(
                CumulativeRead,
                "what queries and keys read of the state is decayed by all tokens before, not from the start of their chunk",
                "o = (q * g_all.exp()) @ state + …  # g_all = g.cumsum(-1) over the sequence",
                READ
            ),
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-unmasked",
        kind: Kind::Mask,
        silent: "Training looks better than it should, as in every leak of later tokens.",
        ways: &[
            way!(
                Unmasked,
                "the inner mask is missing: queries read what later tokens of their chunk write",
                "o = (q * g.exp()) @ state + (q @ k.mT * decay_mask) @ v_new",
                READ
            ),
            way!(
                StateAfter,
                "queries read the state after their chunk in place of the one before it",
                "state = update(state); o = (q * g.exp()) @ state + …",
                "o = (q * g.exp()) @ state + …; state = update(state)"
            ),
        ],
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-rest",
        kind: Kind::Omitted,
        silent: "Nothing is lost where the length is a multiple of the chunk's.",
        ways: &[way!(
            FullChunks,
            "the tokens behind the last full chunk are left out",
            "for i in range(tokens // size): …",
            "for i in range(ceil(tokens / size)): …  # padded with zeros"
        )],
        seen: &[],
    },
];

/// Beyond so many tokens, chunks are of the sizes that kernels have.
const MANY: usize = 64;

/// The steps of the delta rule in chunks of each size: all of them with the mistake, and where there are several, each alone.
#[allow(clippy::unnecessary_wraps, reason = "it ends what makes a mistake's edits")]
pub(super) fn in_chunks(run: &Situation, slip: ChunkSlip) -> Result<Vec<Edits>> {
    let steps: Vec<(Name, &Delta)> = run
        .right
        .steps()
        .iter()
        .filter_map(|step| match &step.op {
            Op::Delta(own) => Some((step.name, own)),
            _ => None,
        })
        .collect();
    let spans = steps.iter().flat_map(|(_, own)| own.spans.iter().flatten());
    let longest = spans.map(|(from, to)| to - from).max().unwrap_or(0);
    let mut sizes: Vec<usize> =
        [64, 32, 16, 128].into_iter().filter(|size| *size < longest).collect();
    // Of the others those that are small, a multiple of 4, or cut the tokens evenly.
    let is_likely = |size: &usize| *size <= 8 || size.is_multiple_of(4) || longest % size == 0;
    if longest <= MANY {
        sizes.extend((2..longest).filter(|size| ![16, 32].contains(size) && is_likely(size)));
    }
    // States of chunks that were recorded say how long these are.
    let stated = steps.iter().find_map(|(_, own)| match own.stage {
        DeltaStage::Chunks(size) => Some(size),
        _ => None,
    });
    if let Some(size) = stated {
        sizes = vec![size];
    }
    if slip.is_within() {
        sizes.push(longest);
    }
    // Chunks that leave as many tokens in the last are alike; one that has room for all is never full.
    let rest = |size: usize| {
        let spans = steps.iter().flat_map(|(_, own)| own.spans.iter().flatten());
        spans.map(|(from, to)| (to - from) % size).collect::<Vec<_>>()
    };
    if slip == ChunkSlip::PaddedEnd {
        sizes.extend(Some(64).filter(|size| *size > longest));
        let mut known = HashSet::new();
        sizes.retain(|size| known.insert(rest(*size)));
    }
    // Where all chunks are full, their last tokens are their last rows.
    if slip == ChunkSlip::LastUncorrected(false) {
        sizes.retain(|size| rest(*size).iter().any(|rest| *rest > 0));
    }
    // Without the rest of chunks of any size, any token may be the first that is left out.
    if slip == ChunkSlip::FullChunks {
        sizes.retain(|size| size.is_power_of_two());
    }
    let mut all = Vec::new();
    for size in sizes {
        let edit = |(at, own): &(Name, &Delta)| Some(replace(*at, own.in_chunks(size, slip)?));
        let edits: Edits = steps.iter().filter_map(edit).collect();
        // At one step alone these are what other mistakes are.
        if edits.len() > 1 && !slip.is_of_all() {
            all.extend(edits.iter().map(|edit| vec![edit.clone()]));
        }
        if !edits.is_empty() {
            all.push(edits);
        }
    }
    Ok(all)
}
