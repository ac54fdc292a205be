//! Which mistakes are known of what multiplies the parts of the delta rule's chunks: of where their decays begin and end, of
//! the base that these are in, of β and of the scale?

use std::f64::consts::{LN_2, LOG2_E};

use super::delta::{CARRIED, FIRST, READ, SILENT, SUBTRACTED, in_chunks, ways};
use super::{Mistake, Way};
use program::ChunkDecay::{Back, Before, Parts, Power, Single};
use program::ChunkSlip::{Beta, Decay, Times};
use program::ChunkUse::{Carried, Keys, Read, Subtracted, Values, Within, Written};
use program::{ChunkBeta, Kind};

/// The decay of some parts, in the words and the code that these have, with what stands there in place of g.
macro_rules! decay_of {
    ([$($part:ident)+] $what:literal, $before:literal [$i:literal $(- $j:literal)?] $after:literal;
     $decay:expr, $how:literal, ($row:literal, $row_end:literal) ($column:literal, $column_end:literal) $exp:literal $right:literal) => {
        Way {
            summary: concat!($what, " ", $how),
            wrong: concat!($before, "(", $row, $i, $row_end, $(" - ", $column, $j, $column_end,)? ")", $exp, $after),
            right: concat!($before, "(g[", $i, "]", $(" - g[", $j, "]",)? ")", $right, $after),
            edits: |run| in_chunks(run, Decay(&[$($part),+], $decay)),
        }
    };
}

/// The same for every part that has a key's side.
macro_rules! by_key {
    ($([$($how:tt)+])+) => { &[$(
        decay_of!([Within] "what queries read within their chunk", "o = … + (q @ k.mT * " ["i" - "j"] ").tril() @ v_new"; $($how)+),
        decay_of!([Keys] "what is subtracted within a chunk", "A = (k_beta @ k.mT * " ["i" - "j"] ").tril(-1)"; $($how)+),
        decay_of!([Keys Within] "all that is subtracted and read within a chunk", "decay_mask = " ["i" - "j"] ".tril()"; $($how)+),
        decay_of!([Written] "what a chunk writes", "state = … + (k * " ["-1" - "j"] ").mT @ v_new"; $($how)+),
    )+] };
}

/// The same for all parts.
macro_rules! everywhere {
    ($([$($how:tt)+])+) => { &[$(
        decay_of!([Carried] "the state that is carried across a chunk", "state = state * " ["-1"] " + …"; $($how)+),
        decay_of!([Written] "what a chunk writes", "state = … + (k * " ["-1" - "j"] ").mT @ v_new"; $($how)+),
        decay_of!([Carried Written] "the state behind a chunk", "to_end = " ["-1" - "j"] ""; $($how)+),
        decay_of!([Read] "what queries read of the state", "o = (q * " ["i"] ") @ state + …"; $($how)+),
        decay_of!([Read Within] "all that queries read", "read_decay = " ["i"] ""; $($how)+),
        decay_of!([Subtracted] "what is subtracted of the state", "w = T @ (k_beta * " ["i"] ")"; $($how)+),
        decay_of!([Subtracted Read] "all that is subtracted and read of the state", "decay = " ["i"] ""; $($how)+),
        decay_of!([Within] "what queries read within their chunk", "o = … + (q @ k.mT * " ["i" - "j"] ").tril() @ v_new"; $($how)+),
        decay_of!([Keys] "what is subtracted within a chunk", "A = (k_beta @ k.mT * " ["i" - "j"] ").tril(-1)"; $($how)+),
        decay_of!([Keys Within] "all that is subtracted and read within a chunk", "decay_mask = " ["i" - "j"] ".tril()"; $($how)+),
    )+] };
}

/// A part of what queries read that is multiplied by the scale once more, or by what takes it back.
macro_rules! scaled {
    ($part:ident, $factor:ident, $summary:literal, $wrong:literal) => {
        Way {
            summary: $summary,
            wrong: $wrong,
            right: READ,
            edits: |run| in_chunks(run, Times($part, run.config.scale_factor().$factor())),
        }
    };
}

const END: &str = "g_last = g[..., size - 1]";

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "delta-chunk-end",
        kind: Kind::Replaced,
        silent: SILENT,
        ways: ways! {
            Decay(&[Carried, Written], Back { row: 1, column: 0 }) =>
                "the decay up to the end of a chunk is read one token before its last",
                "g_last = g[..., size - 2]", END;
            Decay(&[Carried, Written], Back { row: 2, column: 0 }) =>
                "the decay up to the end of a chunk is read two tokens before its last",
                "g_last = g[..., size - 3]", END;
            Decay(&[Carried, Written], Back { row: 3, column: 0 }) =>
                "the decay up to the end of a chunk is read three tokens before its last",
                "g_last = g[..., size - 4]", END;
            Decay(&[Carried, Written], Back { row: usize::MAX, column: 0 }) =>
                "the decay up to the end of a chunk is read at its first token",
                "g_last = g[..., 0]", END;
            Decay(&[Carried], Back { row: 1, column: 0 }) =>
                "the state that is carried across a chunk does not decay by its last token",
                "state = state * g[..., size - 2].exp() + …", CARRIED;
            Decay(&[Read], Back { row: 1, column: 0 }) =>
                "what queries read of the state is decayed by the tokens before their own alone: the sum of g is exclusive",
                "o = (q * (g_cumsum - g).exp()) @ state + (q @ k.mT * decay_mask).tril() @ v_new", READ;
            Decay(&[Subtracted], Back { row: 1, column: 0 }) =>
                "what is subtracted of the state is decayed by the tokens before alone: the sum of g is exclusive",
                "w = T @ (k_beta * (g_cumsum - g).exp())", "w = T @ (k_beta * g_cumsum.exp())";
            Decay(&[Subtracted, Read], Back { row: 1, column: 0 }) =>
                "all that is subtracted and read of the state is decayed by the tokens before alone: the sum of g is exclusive",
                "decay = (g_cumsum - g).exp()", "decay = g_cumsum.exp()";
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-exclusive",
        kind: Kind::Replaced,
        silent: SILENT,
        ways: by_key! {
            [Back { row: 1, column: 1 }, "is decayed from before each key's token to before the last: the sum of g is exclusive", ("g[", " - 1]") ("g[", " - 1]") ".exp()" ".exp()"]
            [Back { row: 0, column: 1 }, "is decayed by each key's own decay too: g one token early", ("g[", "]") ("g[", " - 1]") ".exp()" ".exp()"]
            [Back { row: 1, column: 0 }, "is not decayed by the last token that it should be: g one token early", ("g[", " - 1]") ("g[", "]") ".exp()" ".exp()"]
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-base",
        kind: Kind::Replaced,
        silent: SILENT,
        ways: everywhere! {
            [Power(LOG2_E), "decays by exp of a g that is in base 2", ("g[", "]") ("g[", "]") ".exp()" ".exp2()"]
            [Power(LN_2), "decays by exp2 of a natural g", ("g[", "]") ("g[", "]") ".exp2()" ".exp()"]
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-twice",
        kind: Kind::Repeated,
        silent: SILENT,
        ways: everywhere! {
            [Power(2.0), "is decayed twice", ("2 * g[", "]") ("2 * g[", "]") ".exp()" ".exp()"]
            [Power(-1.0), "grows in place of decaying: the exponent has the other sign", ("-g[", "]") ("-g[", "]") ".exp()" ".exp()"]
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-sum",
        kind: Kind::Replaced,
        silent: SILENT,
        ways: everywhere! {
            [Single, "decays by single tokens: g was not added up", ("g_of_token[", "]") ("g_of_token[", "]") ".exp()" ".exp()"]
            [Before, "decays as over the chunk before it, and not over the first", ("g_before[", "]") ("g_before[", "]") ".exp()" ".exp()"]
            [Parts(0), "decays on each side from the start of that side's own part of the chunk", ("g_of_part[", "]") ("g_of_part[", "]") ".exp()" ".exp()"]
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-beta",
        kind: Kind::Repeated,
        silent: FIRST,
        ways: ways! {
            Beta(&[Subtracted], ChunkBeta::Power(2)) =>
                "beta is applied twice to what is subtracted of the state",
                "v_new = T @ v_beta - T @ (k_beta * beta * g.exp()) @ state", SUBTRACTED;
            Beta(&[Subtracted], ChunkBeta::Power(0)) =>
                "beta is left out of what is subtracted of the state",
                "v_new = T @ v_beta - T @ (k * g.exp()) @ state", SUBTRACTED;
            Beta(&[Values, Subtracted], ChunkBeta::Power(2)) =>
                "beta is applied twice to all that the inverse is multiplied by",
                "v_new = T @ (v_beta * beta) - T @ (k_beta * beta * g.exp()) @ state", SUBTRACTED;
            Beta(&[Values, Subtracted], ChunkBeta::Power(0)) =>
                "beta is left out of all that the inverse is multiplied by",
                "v_new = T @ v - T @ (k * g.exp()) @ state", SUBTRACTED;
            Beta(&[Keys], ChunkBeta::Power(2)) =>
                "beta is applied twice in the keys' matrix whose inverse is taken",
                "A = (k_beta * beta @ k.mT * decay_mask).tril(-1)", "A = (k_beta @ k.mT * decay_mask).tril(-1)";
        },
        seen: &[],
    },
    Mistake {
        id: "delta-chunk-scale",
        kind: Kind::Parameter,
        silent: SILENT,
        ways: &[
            scaled!(
                Read,
                recip,
                "what queries read of the state is not divided by √d_k, what they read within their chunk is",
                "o = (q * g.exp()) @ state + scale * (q @ k.mT * decay_mask).tril() @ v_new"
            ),
            scaled!(
                Within,
                recip,
                "what queries read within their chunk is not divided by √d_k, what they read of the state is",
                "o = scale * (q * g.exp()) @ state + (q @ k.mT * decay_mask).tril() @ v_new"
            ),
            scaled!(
                Read,
                abs,
                "what queries read of the state is scaled twice, what they read within their chunk is not",
                "o = scale * (q * scale * g.exp()) @ state + scale * (q @ k.mT * decay_mask).tril() @ v_new"
            ),
            scaled!(
                Within,
                abs,
                "what queries read within their chunk is scaled twice, what they read of the state is not",
                "o = scale * (q * g.exp()) @ state + scale * (q * scale @ k.mT * decay_mask).tril() @ v_new"
            ),
        ],
        seen: &[],
    },
];
