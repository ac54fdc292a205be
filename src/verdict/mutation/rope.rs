//! Mistakes of rotary positions.

use candle_core::Tensor;

use super::{Mutation, Site, one};
use crate::config::{Rope, Rotary};
use crate::error::Result;
use crate::trace::Op;

const BOTH: &[&str] = &["q_rot", "k_rot"];
const PAIRS: &str =
    "A rotation of other pairs keeps all norms, and the scores still depend on relative positions.";
const OFFSET: &str = "Queries and keys that are off alike give the right scores; only beside a cache, or where one of them \
                      is off, it shows.";
const OFFSET_FIX: &str =
    "q, k = rope(q, positions), rope(k, positions)  # positions = past_len + arange(T)";

/// A rotation of neighbours, of queries and keys, or of one of the two.
const fn interleaved(steps: &'static [&'static str]) -> Mutation {
    Mutation {
        id: "rope-interleaved",
        summary: "the neighbours 2i and 2i + 1 are turned, in place of i and i + r/2",
        silent: PAIRS,
        example: "x1, x2 = x[..., 0::2], x[..., 1::2]",
        fix: "x1, x2 = x.chunk(2, dim=-1)",
        steps,
        faulty: |site| in_pairs(site, Rope::Interleaved),
    }
}

/// A rotation of halves, likewise.
const fn halves(steps: &'static [&'static str]) -> Mutation {
    Mutation {
        id: "rope-half",
        summary: "i and i + r/2 are turned, in place of the neighbours 2i and 2i + 1",
        silent: PAIRS,
        example: "x1, x2 = x.chunk(2, dim=-1)",
        fix: "x1, x2 = x[..., 0::2], x[..., 1::2]",
        steps,
        faulty: |site| in_pairs(site, Rope::Half),
    }
}

/// Values that are turned at a step which hands them on.
const fn on_values(steps: &'static [&'static str], example: &'static str) -> Mutation {
    Mutation {
        id: "rope-on-values",
        summary: "the values are turned by their positions too",
        silent: "The values keep their norms.",
        example,
        fix: "q, k = rope(q), rope(k)",
        steps,
        faulty: |site| turned_values(site, &site.correct()?),
    }
}

pub const ALL: &[Mutation] = &[
    interleaved(BOTH),
    interleaved(&["q_rot"]),
    interleaved(&["k_rot"]),
    halves(BOTH),
    halves(&["q_rot"]),
    halves(&["k_rot"]),
    Mutation {
        id: "rope-position-offset",
        summary: "the rotary positions of queries and keys start from the wrong number",
        silent: OFFSET,
        example: "q, k = rope(q, torch.arange(T)), rope(k, torch.arange(T))  # behind a cache",
        fix: OFFSET_FIX,
        steps: BOTH,
        faulty: |site| shifted(site, |_, rope| rope.offset),
    },
    Mutation {
        id: "rope-position-offset",
        summary: "the rotary positions of the queries start from the wrong number",
        silent: OFFSET,
        example: "q = rope(q, torch.arange(1, T + 1))",
        fix: OFFSET_FIX,
        steps: &["q_rot"],
        faulty: |site| shifted(site, |first, _| first),
    },
    Mutation {
        id: "rope-position-offset",
        summary: "the rotary positions of the keys start from the wrong number",
        silent: OFFSET,
        example: "k = rope(k, torch.arange(1, T + 1))",
        fix: OFFSET_FIX,
        steps: &["k_rot"],
        faulty: |site| shifted(site, |first, _| first),
    },
    on_values(&["v_heads"], "q, k, v = rope(q), rope(k), rope(v)"),
    on_values(&["v_cached"], "v = torch.cat([v_past, rope(v)], dim=2)"),
    on_values(&["v_repeated"], "v = rope(v).repeat_interleave(H // H_kv, dim=1)"),
    Mutation {
        faulty: |site| {
            let [weights, values] = site.inputs.as_slice() else { return one(None) };
            let values = turned_values(site, values)?;
            values.iter().map(|values| site.step.op.eval(&[weights, values])).collect()
        },
        ..on_values(&["head_outputs"], "out = weights @ rope(v)")
    },
    Mutation {
        id: "rope-q-only",
        summary: "the rotation reaches the queries alone",
        silent: "The shapes do not tell, and the scores still depend on the position of the query.",
        example: "q, _ = apply_rope(q, k)",
        fix: "q, k = apply_rope(q, k)",
        steps: &["k_rot"],
        faulty: |site| one(site.input().cloned()),
    },
    Mutation {
        id: "rope-k-only",
        summary: "the rotation reaches the keys alone",
        silent: "The shapes do not tell, and the scores still depend on the position of the key.",
        example: "_, k = apply_rope(q, k)",
        fix: "q, k = apply_rope(q, k)",
        steps: &["q_rot"],
        faulty: |site| one(site.input().cloned()),
    },
    Mutation {
        id: "rope-missing",
        summary: "neither queries nor keys are turned by their positions",
        silent: "Short sequences do nearly as well without positions.",
        example: "apply_rope(q, k)  # the result is dropped",
        fix: "q, k = apply_rope(q, k)",
        steps: BOTH,
        faulty: |site| one(site.input().cloned()),
    },
];

/// The rotation of other pairs.
fn in_pairs(site: &Site, other: Rope) -> Result<Vec<Tensor>> {
    match site.step.op {
        Op::Rotate { pairing, first, factor } if pairing != other => {
            let faulty = Op::Rotate { pairing: other, first, factor };
            one(Some(faulty.eval(&site.inputs)?))
        }
        _ => one(None),
    }
}

/// The rotation from the first position of all, as if no token came before, and from the positions next to the right
/// one; `came_before` is how many tokens did.
fn shifted(site: &Site, came_before: impl Fn(usize, &Rotary) -> usize) -> Result<Vec<Tensor>> {
    let (Op::Rotate { pairing, first, factor }, Some(rope)) = (site.step.op, &site.config.rope)
    else {
        return one(None);
    };
    let before = came_before(first, rope);
    let mut starts = vec![first + 1];
    if before > 0 {
        starts.push(first - 1);
    }
    if before > 1 {
        starts.push(first - before);
    }
    let from = |first| Op::Rotate { pairing, first, factor }.eval(&site.inputs);
    starts.into_iter().map(from).collect()
}

/// The values turned as the keys are, but for those of a cache.
fn turned_values(site: &Site, values: &Tensor) -> Result<Vec<Tensor>> {
    let (Some(rope), Some(freqs)) = (&site.config.rope, site.value("rope_freqs")) else {
        return one(None);
    };
    let op = Op::Rotate { pairing: rope.pairing, first: rope.offset, factor: rope.factor() };
    let (all, own) = (values.dim(2)?, site.config.own_keys());
    let cached = all.saturating_sub(own);
    let turned = op.eval(&[&values.narrow(2, cached, own)?.contiguous()?, freqs])?;
    one(Some(if cached == 0 {
        turned
    } else {
        Tensor::cat(&[&values.narrow(2, 0, cached)?.contiguous()?, &turned], 2)?
    }))
}
