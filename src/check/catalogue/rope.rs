//! Which mistakes of rotary positions are known?

use super::{Mistake, Situation, Way, after, before, none, omit, omitted, one, replace};
use crate::candidate::Edits;
use base::error::Result;
use program::{Edit, Kind, Name, Op, Pairing, Rotary, Rotate, signed};

const BOTH: &[Name] = &[Name::QRot, Name::KRot];
const PAIRS: &str =
    "A rotation of other pairs keeps all norms, and the scores still depend on relative positions.";
const HALVES: &str = "x1, x2 = x.chunk(2, dim=-1)";
const NEIGHBOURS: &str = "x1, x2 = x[..., 0::2], x[..., 1::2]";
const POSITIONS: &str =
    "q, k = rope(q, positions), rope(k, positions)  # positions = past_len + arange(T)";
const VALUES: &str = "the values are turned by their positions too";
const NOT_VALUES: &str = "q, k = rope(q), rope(k)";
const APPLIED: &str = "q, k = apply_rope(q, k)";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "rope-interleaved",
        kind: Kind::Replaced,
        silent: PAIRS,
        ways: &[Way {
            summary: "features are paired as (2i, 2i + 1) instead of (i, i + r/2)",
            wrong: NEIGHBOURS,
            right: HALVES,
            edits: |run| in_pairs(run, Pairing::Interleaved),
        }],
        seen: &["ooples/AiDotNet#2074", "rasbt/LLMs-from-scratch#747"],
    },
    Mistake {
        id: "rope-half",
        kind: Kind::Replaced,
        silent: PAIRS,
        ways: &[Way {
            summary: "features are paired as (i, i + r/2) instead of (2i, 2i + 1)",
            wrong: HALVES,
            right: NEIGHBOURS,
            edits: |run| in_pairs(run, Pairing::Half),
        }],
        seen: &["ooples/AiDotNet#2074", "rasbt/LLMs-from-scratch#747"],
    },
    Mistake {
        id: "rope-position-offset",
        kind: Kind::Parameter,
        silent: "Queries and keys that are off alike give the right scores; only beside a cache, or where one of them \
                 is off, it shows.",
        ways: &[
            Way {
                summary: "the rotary positions of queries and keys start from the wrong number",
                wrong: "q, k = rope(q, torch.arange(T)), rope(k, torch.arange(T))  # behind a cache",
                right: POSITIONS,
                edits: |run| shifted(run, BOTH),
            },
            Way {
                summary: "the rotary positions of the queries start from the wrong number",
                wrong: "q = rope(q, torch.arange(1, T + 1))",
                right: POSITIONS,
                edits: |run| shifted(run, &[Name::QRot]),
            },
            Way {
                summary: "the rotary positions of the keys start from the wrong number",
                wrong: "k = rope(k, torch.arange(1, T + 1))",
                right: POSITIONS,
                edits: |run| shifted(run, &[Name::KRot]),
            },
        ],
        seen: &["huggingface/transformers#43082", "huggingface/candle#3743"],
    },
    Mistake {
        id: "rope-on-values",
        kind: Kind::Inserted,
        silent: "The values keep their norms.",
        ways: &[
            Way {
                summary: VALUES,
                wrong: "q, k, v = rope(q), rope(k), rope(v)",
                right: NOT_VALUES,
                edits: |run| turned(run, Name::VHeads, None),
            },
            Way {
                summary: VALUES,
                wrong: "v = torch.cat([v_past, rope(v)], dim=2)",
                right: NOT_VALUES,
                edits: |run| turned(run, Name::VCached, Some(1)),
            },
            Way {
                summary: VALUES,
                wrong: "v = rope(v).repeat_interleave(H // H_kv, dim=1)",
                right: NOT_VALUES,
                edits: |run| turned(run, Name::VRepeated, Some(0)),
            },
            Way {
                summary: VALUES,
                wrong: "out = weights @ rope(v)",
                right: NOT_VALUES,
                edits: |run| turned(run, Name::HeadOutputs, Some(1)),
            },
        ],
        seen: &[],
    },
    Mistake {
        id: "rope-q-only",
        kind: Kind::Omitted,
        silent: "The shapes do not tell, and the scores still depend on the position of the query.",
        ways: &[Way {
            summary: "only the queries are rotated",
            wrong: "q, _ = apply_rope(q, k)",
            right: APPLIED,
            edits: |run| omitted(run, Name::KRot),
        }],
        seen: &[],
    },
    Mistake {
        id: "rope-k-only",
        kind: Kind::Omitted,
        silent: "The shapes do not tell, and the scores still depend on the position of the key.",
        ways: &[Way {
            summary: "only the keys are rotated",
            wrong: "_, k = apply_rope(q, k)",
            right: APPLIED,
            edits: |run| omitted(run, Name::QRot),
        }],
        seen: &[],
    },
    Mistake {
        id: "rope-missing",
        kind: Kind::Omitted,
        silent: "Short sequences do nearly as well without positions.",
        ways: &[Way {
            summary: "neither queries nor keys are turned by their positions",
            wrong: "apply_rope(q, k)  # the result is dropped",
            right: APPLIED,
            edits: |run| {
                if run.has(Name::QRot) { one([omit(Name::QRot), omit(Name::KRot)]) } else { none() }
            },
        }],
        seen: &[],
    },
];

/// The rotation at a step.
fn rotation<'a>(run: &'a Situation, at: Name) -> Option<&'a Rotate> {
    let Some(Op::Rotary(Rotary::Rotate(rotate))) = run.op(at) else { return None };
    Some(rotate)
}

/// The rotation of other pairs, of both, of the queries, of the keys.
fn in_pairs(run: &Situation, pairing: Pairing) -> Result<Vec<Edits>> {
    let other = |at: &Name| {
        let rotate = rotation(run, *at).filter(|rotate| rotate.pairing != pairing)?;
        Some(replace(*at, Rotary::Rotate(Rotate { pairing, ..rotate.clone() })))
    };
    let both: Vec<Edit> = BOTH.iter().filter_map(other).collect();
    if both.is_empty() {
        return none();
    }
    let each = both.iter().map(|edit| vec![edit.clone()]);
    Ok(std::iter::once(both.clone()).chain(each).collect())
}

/// The rotation from the first position of all, as if no token came before, and from the positions next to the right
/// one.
fn shifted(run: &Situation, steps: &[Name]) -> Result<Vec<Edits>> {
    let Some(rope) = &run.config.rope else { return none() };
    // How many tokens came before the first: of both, those before X; of one, those before its own.
    let came_before = match steps {
        [only] => rotation(run, *only).map_or(0, |rotate| rotate.first),
        _ => rope.offset,
    };
    let mut shifts = vec![1];
    if came_before > 0 {
        shifts.push(-1);
    }
    if came_before > 1 {
        shifts.push(-signed(came_before));
    }
    let shifted = |shift: i64| {
        let edit = |at: &Name| {
            let rotate = rotation(run, *at).filter(|rotate| rotate.places.is_none())?;
            let first = usize::try_from(i64::try_from(rotate.first).ok()? + shift).ok()?;
            Some(replace(*at, Rotary::Rotate(Rotate { first, ..rotate.clone() })))
        };
        steps.iter().map(edit).collect::<Option<Edits>>()
    };
    Ok(shifts.into_iter().filter_map(shifted).collect())
}

/// The values turned as the keys are, at a step that hands them on or reads them.
fn turned(run: &Situation, at: Name, slot: Option<usize>) -> Result<Vec<Edits>> {
    let Some(rope) = run.config.rope.as_ref().filter(|_| run.has(at)) else { return none() };
    // Behind a cache, whose values came turned or not, only the run's own are.
    if run.has(Name::VCached) && ![Name::VHeads, Name::VCached].contains(&at) {
        return none();
    }
    let rotate = rope.rotate(0);
    let rotate = Rotary::Rotate(rotate);
    one([match slot {
        Some(slot) => before(at, slot, rotate, &[Name::RopeFreqs]),
        None => after(at, rotate, &[Name::RopeFreqs]),
    }])
}
