//! Which mistakes of the four projections are known: transposed, without bias, in each other's place?

use super::{Mistake, Situation, Way, before, none, omitted, one, read};
use crate::candidate::Edits;
use base::error::Result;
use config::{Sizes, Start};
use program::{Edit, Heads, Kind, Name, Projection, Rearrange};

const SWAPPED: &str = "All three projections have one shape.";

/// The two mistakes that each projection can have by itself.
macro_rules! single {
    ($transposed:literal, $missing:literal, $step:expr, $name:literal) => {
        [
            Mistake {
                id: $transposed,
                kind: Kind::Axes,
                silent: "A square weight fits either way round.",
                ways: &[Way {
                    summary: concat!("the ", $name, " projection computes x·W instead of x·Wᵀ"),
                    wrong: "x @ weight + bias",
                    right: "x @ weight.T + bias  # nn.Linear stores (out, in)",
                    edits: |run| transposed(run, $step),
                }],
                seen: &["AutoGPTQ/AutoGPTQ#139"],
            },
            Mistake {
                id: $missing,
                kind: Kind::Omitted,
                silent: "The shapes do not tell, and fresh models have small biases.",
                ways: &[Way {
                    summary: concat!("the ", $name, " projection leaves out its bias"),
                    wrong: "x @ weight.T",
                    right: "x @ weight.T + bias",
                    edits: |run| without_bias(run, $step),
                }],
                seen: &["sbryngelson/ANEForge#253"],
            },
        ]
    };
}

const QUERY: [Mistake; 2] = single!("weight-transposed-q", "bias-missing-q", Name::Q, "query");
const KEY: [Mistake; 2] = single!("weight-transposed-k", "bias-missing-k", Name::K, "key");
const VALUE: [Mistake; 2] = single!("weight-transposed-v", "bias-missing-v", Name::V, "value");
const OUTPUT: [Mistake; 2] =
    single!("weight-transposed-o", "bias-missing-o", Name::Output, "output");

/// Two projections that change places.
macro_rules! swapped {
    ($id:literal, $left:ident $right:ident, $summary:literal, $wrong:literal, $correct:literal,
     $core:literal, $kernel:literal) => {
        Mistake {
            id: $id,
            kind: Kind::Input,
            silent: SWAPPED,
            ways: &[
                Way {
                    summary: $summary,
                    wrong: $wrong,
                    right: $correct,
                    edits: |run| swapped(run, Name::$left, Name::$right),
                },
                Way {
                    summary: $core,
                    wrong: $kernel,
                    right: "scaled_dot_product_attention(q, k, v)",
                    edits: |run| exchanged(run, Name::$left, Name::$right),
                },
            ],
            seen: &[],
        }
    };
}

const OTHERS: [Mistake; 5] = [
    swapped!(
        "qk-swapped",
        Q K,
        "the query and key projections change places",
        "q, k = k_proj(x), q_proj(x)",
        "q, k = q_proj(x), k_proj(x)",
        "q and k change places",
        "scaled_dot_product_attention(k, q, v)"
    ),
    swapped!(
        "kv-swapped",
        K V,
        "the key and value projections change places",
        "k, v = v_proj(x), k_proj(x)",
        "k, v = k_proj(x), v_proj(x)",
        "k and v change places",
        "scaled_dot_product_attention(q, v, k)"
    ),
    swapped!(
        "qv-swapped",
        Q V,
        "the query and value projections change places",
        "q, v = v_proj(x), q_proj(x)",
        "q, v = q_proj(x), v_proj(x)",
        "q and v change places",
        "scaled_dot_product_attention(v, k, q)"
    ),
    Mistake {
        id: "packed-qkv-per-head",
        kind: Kind::Input,
        silent: "The packed matrix has one shape in both layouts.",
        ways: &[
            Way {
                summary: "a packed QKV matrix of three blocks is read as q, k, v of head 0, of head 1, …",
                wrong: "q, k, v = qkv(x).view(B, T, H, 3 * d_k).chunk(3, dim=-1)",
                right: "q, k, v = qkv(x).chunk(3, dim=-1)",
                edits: |run| packed(run, in_blocks, per_head),
            },
            Way {
                summary: "a packed QKV matrix of q, k, v of head 0, of head 1, … is read as three blocks",
                wrong: "q, k, v = qkv(x).chunk(3, dim=-1)",
                right: "q, k, v = qkv(x).view(B, T, H, 3 * d_k).chunk(3, dim=-1)",
                edits: |run| packed(run, per_head, in_blocks),
            },
        ],
        seen: &["lablup/mlxcel#928", "sgl-project/sglang#40127"],
    },
    Mistake {
        id: "output-projection-missing",
        kind: Kind::Omitted,
        silent: "Both have one shape.",
        ways: &[Way {
            summary: "the concatenated heads are returned as the output",
            wrong: "return concat",
            right: "return out_proj(concat)",
            edits: |run| omitted(run, Name::Output),
        }],
        seen: &["awf/functional-transformer#8"],
    },
];

pub const ALL: &[Mistake] = &{
    let [q_weight, q_bias] = QUERY;
    let [k_weight, k_bias] = KEY;
    let [v_weight, v_bias] = VALUE;
    let [o_weight, o_bias] = OUTPUT;
    let [qk, kv, qv, packed, output] = OTHERS;
    [
        q_weight, q_bias, k_weight, k_bias, v_weight, v_bias, o_weight, o_bias, qk, kv, qv, packed,
        output,
    ]
};

/// The projected steps, and their parameters.
const PROJECTED: [(Name, Projection); 3] = [
    (Name::Q, Name::PROJECTIONS[0]),
    (Name::K, Name::PROJECTIONS[1]),
    (Name::V, Name::PROJECTIONS[2]),
];

fn transposed(run: &Situation, at: Name) -> Result<Vec<Edits>> {
    let inputs = run.inputs(at);
    let Some(step) = inputs.get(1).and_then(|weight| run.right.step(*weight)) else {
        return none();
    };
    let shape = step.axes.shape();
    let [outputs, inputs] = shape[..] else { return none() };
    if outputs != inputs {
        return none();
    }
    let result = step.axes.iter().collect();
    let turned = Rearrange { blocks: vec![], view: shape, order: vec![1, 0], result };
    one([before(at, 1, Heads::Rearrange(turned), &[])])
}

fn without_bias(run: &Situation, at: Name) -> Result<Vec<Edits>> {
    match run.inputs(at)[..] {
        [x, weight, _] => one([read(at, [x, weight])]),
        _ => none(),
    }
}

/// Two steps with each other's parameters, where these have the same shape.
fn swapped(run: &Situation, left: Name, right: Name) -> Result<Vec<Edits>> {
    let (of_left, of_right) = (run.inputs(left), run.inputs(right));
    let ([left_x, left_weight, ..], [right_x, right_weight, ..]) = (&of_left[..], &of_right[..])
    else {
        return none();
    };
    if run.shape(*left_weight) != run.shape(*right_weight) {
        return none();
    }
    let with = |x: &Name, others: &[Name]| [&[*x], &others[1..]].concat();
    one([read(left, with(left_x, &of_right)), read(right, with(right_x, &of_left))])
}

/// In a run that starts behind the projections, or has recorded what these gave, two of queries, keys and values in each
/// other's place wherever they are read.
fn exchanged(run: &Situation, left: Name, right: Name) -> Result<Vec<Edits>> {
    let are_recorded = [left, right].iter().all(|name| run.recorded.contains_key(name));
    if (run.right.computes(left) || run.config.start == Start::Inputs) && !are_recorded {
        return none();
    }
    let heads = |name| match name {
        Name::Q if !run.has(Name::Q) => Name::QHeads,
        Name::K if !run.has(Name::K) => Name::KHeads,
        Name::V if !run.has(Name::V) => Name::VHeads,
        name => name,
    };
    let (left, right) = (heads(left), heads(right));
    if !run.has(left) || !run.has(right) || run.shape(left) != run.shape(right) {
        return none();
    }
    let other = |name: Name| match name {
        name if name == left => right,
        name if name == right => left,
        name => name,
    };
    let readers = run.right.steps().iter().map(|step| (step.name, run.inputs(step.name)));
    let readers = readers.filter(|(_, read)| read.contains(&left) || read.contains(&right));
    let edit = |(at, inputs): (Name, Vec<Name>)| {
        read(at, inputs.into_iter().map(other).collect::<Vec<_>>())
    };
    one(readers.map(edit).collect::<Edits>())
}

/// The blocks of `d_k` rows of a packed matrix: of which projection, and which head.
type Order = Vec<(usize, usize)>;

/// All query heads, all key heads, all value heads.
fn in_blocks(sizes: &Sizes) -> Order {
    let heads = [(0, sizes.heads), (1, sizes.kv_heads), (2, sizes.kv_heads)];
    let blocks = |(part, heads): (usize, usize)| (0..heads).map(move |head| (part, head));
    heads.into_iter().flat_map(blocks).collect()
}

/// The query heads of key head 0, key head 0, value head 0, those of key head 1, …
fn per_head(sizes: &Sizes) -> Order {
    let shared = sizes.shared();
    let group = |head: usize| {
        let queries = (head * shared..(head + 1) * shared).map(|query| (0, query));
        queries.chain([(1, head), (2, head)])
    };
    (0..sizes.kv_heads).flat_map(group).collect()
}

/// The projections by the rows that a packed matrix yields when it is stored in one order and read in another.
fn packed(
    run: &Situation,
    stored: fn(&Sizes) -> Order,
    read: fn(&Sizes) -> Order,
) -> Result<Vec<Edits>> {
    let sizes = &run.config.sizes;
    // Memory has a matrix of its own.
    if sizes.is_cross {
        return none();
    }
    let (stored, read) = (stored(sizes), read(sizes));
    let mut edits = Vec::new();
    for (part, (at, parameters)) in PROJECTED.into_iter().enumerate() {
        let from = stored.iter().zip(&read).filter(|(_, to)| to.0 == part).map(|(from, _)| *from);
        let from: Order = from.collect();
        edits.push(of_blocks(run, at, 1, part, &from, parameters.0, |(weight, _)| weight));
        if run.has(parameters.1) {
            edits.push(of_blocks(run, at, 2, part, &from, parameters.1, |(_, bias)| bias));
        }
    }
    Ok(vec![edits])
}

/// A projection that reads in a slot these blocks of the three projections' weights, or of their biases.
fn of_blocks(
    run: &Situation,
    at: Name,
    slot: usize,
    part: usize,
    from: &Order,
    own: Name,
    which: fn(Projection) -> Name,
) -> Edit {
    let others: Vec<usize> = (0..3).filter(|other| *other != part).collect();
    let rows = |part: usize| run.shape(which(PROJECTED[part].1)).first().copied().unwrap_or(0);
    // The parameter itself stands first, then the others.
    let start = |of: usize| match others.iter().position(|other| *other == of) {
        None => 0,
        Some(at) => rows(part) + others[..at].iter().map(|other| rows(*other)).sum::<usize>(),
    };
    let head_dim = run.config.sizes.head_dim;
    let shape = run.shape(own);
    let blocks = from.iter().map(|(of, head)| (start(*of) + head * head_dim, head_dim)).collect();
    let result = run.right.step(own).map(|step| step.axes.iter().collect()).unwrap_or_default();
    let order = (0..shape.len()).collect();
    let beside: Vec<Name> = others.iter().map(|other| which(PROJECTED[*other].1)).collect();
    before(at, slot, Heads::Rearrange(Rearrange { blocks, view: shape, order, result }), &beside)
}
