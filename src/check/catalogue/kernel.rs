//! Which mistakes of kernels are known: in what they keep of a row, and in packed documents?

use super::{Mistake, Situation, Way, after, before, none, omit, one, read, replace};
use crate::candidate::Edits;
use base::error::Result;
use program::{ByPosition, Edit, Kind, Masking, Name, Scaling, Slip, Weigh, signed};

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "lse-base-2",
        kind: Kind::Replaced,
        silent: "Kernels exponentiate in base 2, and the output does not depend on the base of the logarithm.",
        ways: &[Way {
            summary: "the log-sum-exp is kept in base 2",
            wrong: "lse = m + log2(l)  # with scores times log2(e)",
            right: "lse = (m + log2(l)) * ln(2)",
            edits: |run| {
                let factor = std::f64::consts::LOG2_E;
                of_lse(run, after(Name::Lse, Scaling::By { factor }, &[]))
            },
        }],
        seen: &[],
    },
    Mistake {
        id: "lse-without-maximum",
        kind: Kind::Omitted,
        silent: "The output does not depend on it; the backward pass does.",
        ways: &[Way {
            summary: "the log-sum-exp leaves out the maximum that was subtracted",
            wrong: "lse = torch.log(l)",
            right: "lse = m + torch.log(l)",
            edits: |run| of_lse(run, before(Name::Lse, 0, Slip::Weigh(Weigh::LessLargest), &[])),
        }],
        seen: &[],
    },
    Mistake {
        id: "documents-see-each-other",
        kind: Kind::Mask,
        silent: "Every row still sums to 1; only rows behind the first document differ.",
        ways: &[Way {
            summary: "the documents of a packed row see each other",
            wrong: "flash_attn_func(q, k, v, causal=True)",
            right: "flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, …, causal=True)",
            edits: together,
        }],
        seen: &[],
    },
    Mistake {
        id: "selection-missing",
        kind: Kind::Mask,
        silent: "Every row still sums to 1, and dense attention looks better than it should, only slower.",
        ways: &[Way {
            summary: "the keys that were chosen are not used: all others are read as well",
            wrong: "weights = torch.softmax(scores.masked_fill(causal, -inf), -1)",
            right: "weights = torch.softmax(scores.masked_fill(causal | ~chosen, -inf), -1)",
            edits: |run| {
                let mut parts = run.inputs(Name::Mask);
                let count = parts.len();
                parts.retain(|part| *part != Name::SelectionMask);
                match parts.len() {
                    own if own == count => none(),
                    0 => one([omit(Name::MaskedScores)]),
                    _ => one([read(Name::Mask, parts)]),
                }
            },
        }],
        seen: &[],
    },
];

fn of_lse(run: &Situation, edit: Edit) -> Result<Vec<Edits>> {
    if run.has(Name::Lse) { one([edit]) } else { none() }
}

/// The mask without the part that keeps documents apart; a causal one runs through the whole row then.
fn together(run: &Situation) -> Result<Vec<Edits>> {
    let parts = run.inputs(Name::Mask);
    if !parts.contains(&Name::DocumentMask) {
        return none();
    }
    let others: Vec<Name> =
        parts.iter().copied().filter(|part| *part != Name::DocumentMask).collect();
    if others.is_empty() {
        return one([omit(Name::MaskedScores)]);
    }
    let mut all = vec![vec![read(Name::Mask, others.clone())]];
    let causal = super::mask::by_position(run, Name::CausalMask);
    if let Some(causal) = causal.filter(|causal| !causal.shifts.is_empty()) {
        let whole = |keys: usize, rows: usize| {
            let count = |count: usize| signed(count);
            count(keys).saturating_sub(count(rows))
        };
        for first in [0, whole(causal.keys, causal.queries)] {
            let mask = ByPosition { first, shifts: Vec::new(), ..causal.clone() };
            let mask = replace(Name::CausalMask, Masking::ByPosition(mask));
            all.push(vec![mask, read(Name::Mask, others.clone())]);
        }
    }
    Ok(all)
}
