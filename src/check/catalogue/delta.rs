//! Which mistakes of the delta rule are known? Those of a token follow from the operation, these are of its chunks: what stands
//! in a slot of their form in place of the right value.

use std::collections::HashSet;

use super::{Mistake, Situation, Way, after, none, omitted, one, replace};
use crate::candidate::Edits;
use base::error::Result;
use program::ChunkBeta::{Column, Power};
use program::ChunkDecay::{FromFirst, Nothing, Padded, Parts, Single, ToEnd};
use program::ChunkInverse::{
    Diagonal, EndsEarly, FirstOrder, LeftOut, Merged, Transposed, Uncleared, Undecayed, Unmasked,
};
use program::ChunkMerge::{Added, WithoutFirst, WithoutSecond};
use program::ChunkSlip::{self, Decay, Inverse, State, Times};
use program::ChunkUse::{Carried, Keys, Read, Subtracted, Values, Within, Written};
use program::{
    Change, ChunkDecay, ChunkMerge, ChunkState, Delta, DeltaStage, Edit, Kind, Name, Op, Scaling,
};

pub(super) const SILENT: &str = "The outputs stay of the right size and the loss still falls; only what is far away is remembered worse.";
pub(super) const FIRST: &str =
    "The tokens of the first chunk are right, and short tests have no second one.";
pub(super) const CARRIED: &str =
    "state = state * g_last.exp() + (k * (g_last - g).exp()).mT @ v_new";
pub(super) const READ: &str = "o = (q * g.exp()) @ state + (q @ k.mT * decay_mask).tril() @ v_new";
const SCALED: &str = "o_t = state.mT @ (q_t * head_dim**-0.5)";
const INVERSE: &str = "T = inv(I + (k_beta @ k.mT * decay_mask).tril(-1))";
const SUBSTITUTED: &str = "for i in range(1, C): T[i, :i] = T[i, :i] + T[i, :i] @ T[:i, :i]";
const MERGED: &str = "T_21 = -T_22 @ A_21 @ T_11";
const VALUES: &str = "u = T @ v_beta";
const FACTORS: &str = "w = T @ (k_beta * g.exp())";
pub(super) const SUBTRACTED: &str = "v_new = T @ v_beta - T @ (k_beta * g.exp()) @ state";

/// What is multiplied by the inverse.
const BOTH: &[program::ChunkUse] = &[Values, Subtracted];

/// What decays.
const ALL_DECAYS: &[program::ChunkUse] = &[Carried, Written, Read, Subtracted, Within, Keys];

/// Ways to fill slots: the slip, what it is, the wrong line and the right one.
macro_rules! ways {
    ($($slip:expr => $summary:expr, $wrong:expr, $right:expr;)+) => {
        &[$(Way {
            summary: $summary,
            wrong: $wrong,
            right: $right,
            edits: |run| $crate::catalogue::delta::in_chunks(run, $slip),
        }),+]
    };
}
pub(super) use ways;

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
        ways: ways! {
            Inverse(BOTH, Diagonal) =>
                "the diagonal of the keys' matrix is not cleared before the forward substitution",
                "T = -(k_beta @ k.mT * decay_mask).masked_fill(triu(diagonal=1), 0)", INVERSE;
            Inverse(BOTH, Uncleared) =>
                "nothing of the keys' matrix is cleared before the forward substitution: its upper triangle stays",
                "T = -(k_beta @ k.mT * decay_mask)", INVERSE;
            Inverse(BOTH, Unmasked) =>
                "the keys' matrix whose inverse is taken has its upper triangle and its diagonal, too",
                "T = inv(I + k_beta @ k.mT * decay_mask)", INVERSE;
            Inverse(BOTH, FirstOrder) =>
                "the inverse of the keys' matrix is cut off behind its first order",
                "T = I - (k_beta @ k.mT * decay_mask).tril(-1)", INVERSE;
            Inverse(&[Values], FirstOrder) =>
                "the values are multiplied by the first order of the inverse alone, what is subtracted of the state by all of it",
                "u = (I - A) @ v_beta", VALUES;
            Inverse(&[Subtracted], FirstOrder) =>
                "what is subtracted of the state is multiplied by the first order of the inverse alone, the values by all of it",
                "w = (I - A) @ (k_beta * g.exp())", FACTORS;
            Times(Keys, -1.0) =>
                "the triangular system of a chunk has the other sign: what its earlier tokens wrote is added, not subtracted",
                "v_new = solve_triangular(I - A, v_beta)", "v_new = solve_triangular(I + A, v_beta)";
            Times(Keys, 0.0) =>
                "the inverse of the keys' matrix is left out: nothing is subtracted that is of the same chunk",
                "v_new = v_beta - (k_beta * g.exp()) @ state", SUBTRACTED;
            Inverse(&[Values], LeftOut) =>
                "the values are not multiplied by the inverse of the keys' matrix, what is subtracted of the state is",
                "u = v_beta", VALUES;
            Inverse(&[Subtracted], LeftOut) =>
                "what is subtracted of the state is not multiplied by the inverse of the keys' matrix, the values are",
                "w = k_beta * g.exp()", FACTORS;
            Inverse(BOTH, Transposed) =>
                "the inverse of the keys' matrix is transposed",
                "v_new = T.mT @ v_beta - T.mT @ (k_beta * g.exp()) @ state", SUBTRACTED;
            Inverse(&[Values], Transposed) =>
                "the values are multiplied by the transpose of the inverse",
                "u = T.mT @ v_beta", VALUES;
            Inverse(&[Subtracted], Transposed) =>
                "what is subtracted of the state is multiplied by the transpose of the inverse",
                "w = T.mT @ (k_beta * g.exp())", FACTORS;
            Inverse(BOTH, EndsEarly { is_token: true }) =>
                "the forward substitution ends one row early: from the last token of each chunk nothing of its own chunk is subtracted",
                "for i in range(1, C - 1): T[i, :i] = T[i, :i] + T[i, :i] @ T[:i, :i]", SUBSTITUTED;
            Inverse(BOTH, EndsEarly { is_token: false }) =>
                "the forward substitution ends one row early: from the last token of each full chunk nothing of its own chunk is subtracted",
                "for i in range(1, C - 1): T[i, :i] = T[i, :i] + T[i, :i] @ T[:i, :i]", SUBSTITUTED;
            ChunkSlip::Beta(&[Keys], Power(0)) =>
                "beta is missing in the keys' matrix whose inverse is taken",
                "A = (k @ k.mT * decay_mask).tril(-1)", "A = (k_beta @ k.mT * decay_mask).tril(-1)";
            ChunkSlip::Beta(&[Keys], Column) =>
                "the keys' matrix whose inverse is taken has the beta of the column's token, not of the row's",
                "A = (k @ k_beta.mT * decay_mask).tril(-1)", "A = (k_beta @ k.mT * decay_mask).tril(-1)";
            Inverse(BOTH, Merged(0, ChunkMerge::Nothing)) =>
                "the inverse of the keys' matrix is that of its blocks: those beside the diagonal are left out",
                "T = block_diag(*(inverse(I + A[i : i + n, i : i + n]) for i in range(0, C, n)))", INVERSE;
            Inverse(BOTH, Merged(0, Added)) =>
                "the inverse of the keys' matrix is put together from those of two blocks, and what is beside the diagonal has the other sign: +A₂₂⁻¹ A₂₁ A₁₁⁻¹",
                "T_21 = T_22 @ A_21 @ T_11", MERGED;
            Inverse(BOTH, Merged(0, WithoutSecond)) =>
                "the inverse of the keys' matrix is put together from those of two blocks, and beside the diagonal that of the second is missing: −A₂₁ A₁₁⁻¹",
                "T_21 = -A_21 @ T_11", MERGED;
            Inverse(BOTH, Merged(0, WithoutFirst)) =>
                "the inverse of the keys' matrix is put together from those of two blocks, and beside the diagonal that of the first is missing: −A₂₂⁻¹ A₂₁",
                "T_21 = -T_22 @ A_21", MERGED;
            Inverse(BOTH, Merged(0, ChunkMerge::Plain)) =>
                "the inverse of the keys' matrix is put together from those of two blocks, and beside the diagonal both are missing: −A₂₁",
                "T_21 = -A_21", MERGED;
            Inverse(&[Subtracted], Undecayed) =>
                "what is subtracted of the state is solved with the keys' matrix without its decay, and the values with it",
                "w = inv(I + (k_beta @ k.mT).tril(-1)) @ (k_beta * g.exp())", FACTORS;
            Inverse(&[Values], Undecayed) =>
                "the values are solved with the keys' matrix without its decay, and what is subtracted of the state with it",
                "u = inv(I + (k_beta @ k.mT).tril(-1)) @ v_beta", VALUES;
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-reset",
        kind: Kind::Omitted,
        silent: FIRST,
        ways: ways! {
            ChunkSlip::Reset =>
                "the state is not carried across chunks: each starts from zeros",
                "state = torch.zeros_like(state)  # within the loop", CARRIED;
            ChunkSlip::ResetAll =>
                "each chunk starts from zeros, the first as well",
                "state = torch.zeros_like(state)  # within the loop", CARRIED;
            Times(Carried, 0.0) =>
                "what a chunk writes replaces the state that was carried to it",
                "state = (k * (g_last - g).exp()).mT @ v_new", CARRIED;
            Times(Written, 0.0) =>
                "what a chunk writes is not carried on",
                "state = state * g_last.exp()", CARRIED;
            ChunkSlip::Restart =>
                "each chunk starts from the initial state again",
                "state = initial_state  # within the loop", CARRIED;
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-decay",
        kind: Kind::Omitted,
        silent: SILENT,
        ways: ways! {
            Decay(&[Carried], Nothing) =>
                "the state that is carried across a chunk does not decay over it",
                "state = state + (k * (g_last - g).exp()).mT @ v_new", CARRIED;
            Decay(&[Carried, Read, Subtracted], Nothing) =>
                "the state that was carried to a chunk decays nowhere in it",
                "state = state + …; o = q @ state + …; v_new = … - T @ k_beta @ state", CARRIED;
            Decay(&[Carried, Written], Padded) =>
                "the decay up to the end of a last chunk that is not full is read from what fills it up: the final state is not decayed by it",
                "g_last = g[..., chunk_size - 1]", CARRIED;
            Decay(&[Carried], Padded) =>
                "the decay up to the end of a last chunk that is not full is read from what fills it up: the state that was carried to it does not decay",
                "state = state * g_padded[..., chunk_size - 1].exp() + …", CARRIED;
            Decay(&[Written], Padded) =>
                "the decay up to the end of a last chunk that is not full is read from what fills it up: what it writes grows by the decay that it had",
                "state = … + (k * (g_padded[..., chunk_size - 1] - g).exp()).mT @ v_new", CARRIED;
            Decay(&[Values], ChunkDecay::Power(1.0)) =>
                "the values of a chunk are decayed from its start, as what is subtracted of the state is",
                "u = T @ (v_beta * g.exp())", VALUES;
            Decay(&[Written], Nothing) =>
                "what a chunk writes is carried on without the decay up to its end",
                "state = state * g_last.exp() + k.mT @ v_new", CARRIED;
            Decay(&[Carried, Written], Nothing) =>
                "neither the state that is carried across a chunk nor what this writes is decayed up to its end",
                "state = state + k.mT @ v_new", CARRIED;
            Decay(&[Read], Nothing) =>
                "what queries read of the state is not decayed within their chunk",
                "o = q @ state + (q @ k.mT * decay_mask).tril() @ v_new", READ;
            Decay(&[Subtracted], Nothing) =>
                "what is subtracted of the state is not decayed within the chunk",
                "v_new = T @ v_beta - T @ k_beta @ state", SUBTRACTED;
            Decay(&[Subtracted, Read], Nothing) =>
                "neither what is subtracted of the state nor what queries read of it is decayed within the chunk",
                "o = q @ state + …; v_new = … - T @ k_beta @ state", READ;
            Decay(&[Within], Nothing) =>
                "what queries read within their chunk is not decayed",
                "o = (q * g.exp()) @ state + (q @ k.mT).tril() @ v_new", READ;
            Decay(&[Keys], Nothing) =>
                "what is subtracted within a chunk is not decayed",
                "T = inv(I + (k_beta @ k.mT).tril(-1))", INVERSE;
            Decay(&[Keys, Within], Nothing) =>
                "nothing within a chunk is decayed, neither what is subtracted nor what queries read",
                "decay_mask = ones(C, C).tril()", "decay_mask = (g[:, None] - g[None]).exp().tril()";
            Decay(&[Carried, Read, Subtracted], FromFirst) =>
                "the decay is added up over all tokens, not from the start of each chunk",
                "g = g.cumsum(-1)  # over the sequence", "g = g.view(B, H, -1, size).cumsum(-1)";
            Decay(ALL_DECAYS, Single) =>
                "the decay is not added up over the tokens of a chunk: it is that of single tokens everywhere",
                "g_cumsum = g", "g_cumsum = g.cumsum(-1)";
            Decay(ALL_DECAYS, Parts(0)) =>
                "the decay is added up over parts of a chunk, not over all of it",
                "g = g.view(B, H, -1, part).cumsum(-1)", "g = g.view(B, H, -1, size).cumsum(-1)";
            Decay(&[Read, Subtracted], FromFirst) =>
                "what queries and keys read of the state is decayed by all tokens before, not from the start of their chunk",
                "o = (q * g_all.exp()) @ state + …  # g_all = g.cumsum(-1) over the sequence", READ;
            Decay(&[Read], FromFirst) =>
                "what queries read of the state is decayed by all tokens before, not from the start of their chunk",
                "o = (q * g_all.exp()) @ state + …  # g_all = g.cumsum(-1) over the sequence", READ;
            Decay(&[Subtracted], FromFirst) =>
                "what is subtracted of the state is decayed by all tokens before, not from the start of the chunk",
                "w = T @ (k_beta * g_all.exp())  # g_all = g.cumsum(-1) over the sequence", FACTORS;
            Decay(&[Carried], FromFirst) =>
                "the state that is carried across a chunk decays by all tokens before, not by those of the chunk",
                "state = state * g_all[..., -1].exp() + …  # g_all = g.cumsum(-1) over the sequence", CARRIED;
            Decay(&[Read], ToEnd) =>
                "what queries read of the state is decayed up to the end of their chunk, not up to their token",
                "o = (q * g_last.exp()) @ state + …", READ;
            Decay(&[Subtracted], ToEnd) =>
                "what is subtracted of the state is decayed up to the end of the chunk, not up to its token",
                "w = T @ (k_beta * g_last.exp())", FACTORS;
            Decay(&[Within], ToEnd) =>
                "what queries read within their chunk is decayed up to its end, not up to their token",
                "o = … + (q @ k.mT * (g_last - g[j]).exp()).tril() @ v_new", READ;
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-unmasked",
        kind: Kind::Mask,
        silent: "Training looks better than it should, as in every leak of later tokens.",
        ways: ways! {
            ChunkSlip::Unmasked =>
                "the inner mask is missing: queries read what later tokens of their chunk write",
                "o = (q * g.exp()) @ state + (q @ k.mT * decay_mask) @ v_new", READ;
            State(&[Read], ChunkState::After) =>
                "queries read the state after their chunk in place of the one before it",
                "state = update(state); o = (q * g.exp()) @ state + …",
                "o = (q * g.exp()) @ state + …; state = update(state)";
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-rest",
        kind: Kind::Omitted,
        silent: "Nothing is lost where the length is a multiple of the chunk's.",
        ways: ways! {
            ChunkSlip::FullChunks =>
                "the tokens behind the last full chunk are left out",
                "for i in range(tokens // size): …",
                "for i in range(ceil(tokens / size)): …  # padded with zeros";
        },
        seen: &[],
    },
];

/// The sizes of the parts that a chunk is cut into.
const PARTS: [usize; 4] = [4, 8, 16, 32];

/// Beyond so many tokens, chunks are of the sizes that kernels have.
const MANY: usize = 64;

/// The steps of the delta rule in chunks of each size: all of them with the mistake, and where there are several, some alone.
pub(super) fn in_chunks(run: &Situation, slip: ChunkSlip) -> Result<Vec<Edits>> {
    if slip.part() == Some(0) {
        let all = PARTS.map(|size| in_chunks(run, slip.in_parts(size)));
        return Ok(all.into_iter().collect::<Result<Vec<_>>>()?.concat());
    }
    let steps: Vec<(Name, &Delta)> = run
        .right
        .steps()
        .iter()
        .filter_map(|step| match &step.op {
            Op::Delta(own) => Some((step.name, own)),
            _ => None,
        })
        .collect();
    let mut all = Vec::new();
    for size in sizes(&steps, slip) {
        let edit = |(at, own): &(Name, &Delta)| {
            let other = own.in_chunks(size, slip)?;
            if !other.needs_beta() {
                return Some(replace(*at, other));
            }
            let read = |name: Name| Some(run.right.read_by(run.right.step(name)?));
            let own = read(*at)?.into_iter().chain(read(Name::VNew)?.get(2).copied());
            let read = own.map(|read| read.name).collect();
            Some(Edit::new(*at, Change::Become(other.into(), read)))
        };
        let is_seen = |at: Name| {
            matches!(at, Name::VNew | Name::HeadOutputs) || run.recorded.contains_key(&at)
        };
        let steps = steps.iter().filter(|(at, _)| is_seen(*at));
        let edits: Edits = steps.filter_map(edit).collect();
        // At one step alone most are what others are.
        if edits.len() > 1 {
            let is_alone = |at: Name| slip.is_of_one() || at == Name::FinalState;
            all.extend(edits.iter().filter(|edit| is_alone(edit.at)).map(|one| vec![one.clone()]));
        }
        if !edits.is_empty() {
            all.push(edits);
        }
    }
    Ok(all)
}

/// The sizes of chunks in which a mistake is tried.
fn sizes(steps: &[(Name, &Delta)], slip: ChunkSlip) -> Vec<usize> {
    let spans = || steps.iter().flat_map(|(_, own)| own.spans.iter().flatten());
    let longest = spans().map(|(from, to)| to - from).max().unwrap_or(0);
    let mut sizes: Vec<usize> =
        [64, 32, 16, 128].into_iter().filter(|size| *size < longest).collect();
    // Of the others those that are small, a multiple of 4, or cut the tokens evenly.
    let is_likely = |size: &usize| *size <= 8 || size.is_multiple_of(4) || longest % size == 0;
    if longest <= MANY {
        sizes.extend((2..longest).filter(|size| ![16, 32].contains(size) && is_likely(size)));
    }
    if slip.is_within() {
        sizes.push(longest);
    }
    // Chunks that leave as many tokens in the last are alike; one that has room for all is never full.
    let rest = |size: usize| spans().map(|(from, to)| (to - from) % size).collect::<Vec<_>>();
    let is_padded = matches!(slip, Decay(_, ChunkDecay::Padded));
    if is_padded {
        sizes.extend(Some(64).filter(|size| *size > longest));
    }
    // A file may say how long they are.
    let stated = steps.iter().find_map(|(_, own)| match own.stage {
        DeltaStage::Chunks(size) => Some(size),
        _ => None,
    });
    if let Some(size) = stated {
        sizes = vec![size];
    }
    // In a single chunk that no state is before, others are mistakes of single tokens, or none.
    let has_initial = steps.iter().any(|(_, own)| own.has_initial);
    let may_be_one = slip.is_within() || has_initial || is_padded;
    sizes.retain(|size| may_be_one || *size < longest);
    if is_padded {
        let mut known = HashSet::new();
        sizes.retain(|size| known.insert(rest(*size)));
    }
    // Where all chunks are full, their last tokens are their last rows.
    if matches!(slip, Inverse(_, EndsEarly { is_token: false })) {
        sizes.retain(|size| rest(*size).iter().any(|rest| *rest > 0));
    }
    // Without the rest of chunks of any size, any token may be the first that is left out.
    if slip == ChunkSlip::FullChunks {
        sizes.retain(|size| size.is_power_of_two());
    }
    // A part is smaller than its chunk; where two are put together wrongly, larger chunks give the same.
    sizes.retain(|size| slip.part().is_none_or(|part| part < *size));
    match slip {
        Inverse(_, Merged(part, merge)) if merge != ChunkMerge::Nothing && stated.is_none() => {
            vec![2 * part].into_iter().filter(|_| !sizes.is_empty()).collect()
        }
        _ => sizes,
    }
}
