//! Which mistakes with numbers in few bits are known?

use super::{Mistake, Situation, Way, after, none, omit, read, replace};
use crate::candidate::Edits;
use crate::grammar::bits::is_alike_for_keys;
use base::error::Result;
use program::{Dequantize, Edit, Kind, Name};

/// The ways to make a mistake with keys, with values, and with both; each has its summary.
macro_rules! of_both {
    ($wrong:literal, $right:literal, $edit:expr, $keys:literal, $values:literal, $both:literal) => {
        &[
            Way { summary: $keys, wrong: $wrong, right: $right, edits: |run| of(run, &[1], $edit) },
            Way {
                summary: $values,
                wrong: $wrong,
                right: $right,
                edits: |run| of(run, &[2], $edit),
            },
            Way {
                summary: $both,
                wrong: $wrong,
                right: $right,
                edits: |run| of(run, &[1, 2], $edit),
            },
        ]
    };
}

pub const ALL: &[Mistake] = &[
    Mistake {
        id: "quantized-scale-missing",
        kind: Kind::Omitted,
        silent: "Codes are numbers too. Where the scale is near 1, the output looks plausible.",
        ways: of_both!(
            "scores = q @ k_cache.float().mT",
            "scores = q @ (k_cache.float() * k_scale).mT",
            |_, [.., name]| Some(omit(name)),
            "the keys in few bits are used without their scale",
            "the values in few bits are used without their scale",
            "keys and values in few bits are used without their scales"
        ),
        seen: &["vllm-project/vllm#17005"],
    },
    Mistake {
        id: "quantized-scale-twice",
        kind: Kind::Repeated,
        silent: "One place scales what it reads and another what it computes: each is right by itself.",
        ways: of_both!(
            "k = k_cache.float() * k_scale; scores = q @ k.mT * (sm_scale * k_scale)",
            "k = k_cache.float() * k_scale; scores = q @ k.mT * sm_scale",
            |_, [_, _, scale, _, name]| Some(after(name, Dequantize::RIGHT, &[scale])),
            "the scale of the keys in few bits is applied twice",
            "the scale of the values in few bits is applied twice",
            "the scales of keys and values in few bits are applied twice"
        ),
        seen: &[],
    },
    Mistake {
        id: "quantized-scale-inverted",
        kind: Kind::Replaced,
        silent: "Libraries keep the scale or its inverse under names that differ in a word, and both have one shape.",
        ways: of_both!(
            "k = k_cache.float() / k_scale",
            "k = k_cache.float() * k_scale",
            |_, [.., name]| {
                let is_multiplied = false;
                Some(replace(name, Dequantize { is_multiplied, ..Dequantize::RIGHT }))
            },
            "the keys in few bits are divided by their scale",
            "the values in few bits are divided by their scale",
            "keys and values in few bits are divided by their scales"
        ),
        seen: &[],
    },
    Mistake {
        id: "quantized-scale-of-other",
        kind: Kind::Input,
        silent: "The scales of keys and values have one shape.",
        ways: of_both!(
            "v = v_cache.float() * k_scale",
            "v = v_cache.float() * v_scale",
            of_other,
            "the keys in few bits are scaled by v_scale in place of k_scale",
            "the values in few bits are scaled by k_scale in place of v_scale",
            "k_scale and v_scale change places"
        ),
        seen: &[],
    },
    Mistake {
        id: "quantized-zero-point-missing",
        kind: Kind::Omitted,
        silent: "A constant is added to every number, and softmax hides what all keys of a row have in common.",
        ways: of_both!(
            "k = k_cache.float() * k_scale",
            "k = (k_cache.float() - k_zero_point) * k_scale",
            without_zero_point,
            "the zero point of the keys is left out",
            "the zero point of the values is left out",
            "the zero points of keys and values are left out"
        ),
        seen: &[],
    },
];

/// An edit at each of these: queries, keys and values; none unless all are given in few bits.
fn of(
    run: &Situation,
    slots: &[usize],
    edit: fn(&Situation, [Name; 5]) -> Option<Edit>,
) -> Result<Vec<Edits>> {
    let edit = |slot: &usize| {
        let names @ [.., name] = Name::FEW_BITS[*slot];
        run.has(name).then(|| edit(run, names)).flatten()
    };
    match slots.iter().map(edit).collect::<Option<Edits>>() {
        Some(edits) => Ok(vec![edits]),
        None => none(),
    }
}

/// What is read without its zero point. The mean of the keys, which softmax hides, is told in other words.
fn without_zero_point(run: &Situation, [.., name]: [Name; 5]) -> Option<Edit> {
    match run.inputs(name)[..] {
        _ if is_alike_for_keys(run.right, name) => None,
        [codes, scale, _] => Some(read(name, [codes, scale])),
        _ => None,
    }
}

/// The scales of values for keys, or of keys for values.
fn of_other(run: &Situation, [_, _, scale, _, name]: [Name; 5]) -> Option<Edit> {
    let other = if scale == Name::KScale { Name::VScale } else { Name::KScale };
    let fits = run.has(other) && run.shape(other) == run.shape(scale);
    let of_other = |input: Name| if input == scale { other } else { input };
    let inputs = run.inputs(name).into_iter().map(of_other);
    fits.then(|| read(name, inputs.collect::<Vec<_>>()))
}
