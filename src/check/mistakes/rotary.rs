//! What do people get wrong in rotary positions?

use base::lang;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Knob, Other, Range, Sibling, others, positions};
use program::{
    Axes, Frequencies, Kind, Longrope, Pairing, Precision, RopeScaling, Rotary, Rotate, Stage,
    Turn, signed, whole,
};

pub fn knobs(own: &Rotary) -> Vec<Knob> {
    match own {
        Rotary::Frequencies(own) => of_frequencies(own),
        Rotary::Rotate(own) => of_rotation(own),
    }
}

pub fn siblings(own: &Rotary, inputs: &[&Axes]) -> Vec<Sibling> {
    match own {
        Rotary::Frequencies(own) => unscaled(own).into_iter().chain(exchanged(own)).collect(),
        Rotary::Rotate(own) => {
            turned_otherwise(own).into_iter().chain(broken(own, inputs)).collect()
        }
    }
}

/// The knob of the frequencies' base.
pub const ROPE_BASE: &str = "rope_base";

/// The knob of what a rotation multiplies by: a number of its own, which follows from no size of the run.
pub fn rotation_factor() -> &'static str {
    tr!("attention factor")
}

/// The numbers of scalings that code can have wrong.
const SCALING: [&str; 7] = [
    "partial_rotary_factor",
    "factor",
    "original_max_position_embeddings",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
];

fn of_frequencies(own: &Frequencies) -> Vec<Knob> {
    let bases = [1e4, 5e5, 1e6, 1e5, 1e3, 100.0, 1e7, 1e2, 1e8];
    let base = (ROPE_BASE, own.base);
    let base = Knob::new(own, base, Range::Positive, &bases, |own, base| {
        own.base = base;
        base > 0.0
    });
    let dims = ("rope_dims", own.dims as f64);
    let most = signed(2 * own.dims);
    let dims = Knob::new(own, dims, Range::Whole(2, most), &[], |own, dims| {
        own.dims = whole(dims).unwrap_or_default();
        // Of `longrope` there are as many factors as pairs.
        own.dims >= 2 && own.dims.is_multiple_of(2) && own.numbers().is_ok()
    });
    // Of `longrope` the one list or the other is taken.
    let scaling = own.scaling.as_ref().filter(|own| !matches!(own, RopeScaling::Longrope(_)));
    let stated = scaling.and_then(|scaling| serde_json::to_value(scaling).ok());
    let scaling = SCALING.into_iter().filter_map(|name| {
        let value = stated.as_ref()?.get(name)?.as_f64()?;
        let common = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
        Some(Knob::new(own, (name, value), Range::Stated, &common, move |own, value| {
            let other = own.scaling.as_ref().and_then(|scaling| with(scaling, name, value));
            own.scaling = other;
            own.scaling.is_some()
        }))
    });
    [base, dims].into_iter().chain(scaling).collect()
}

/// A scaling with another number.
fn with(scaling: &RopeScaling, name: &str, value: f64) -> Option<RopeScaling> {
    Some(match scaling {
        RopeScaling::Linear { .. } => RopeScaling::Linear { factor: value },
        RopeScaling::Dynamic { max_position_embeddings, .. } => {
            let max_position_embeddings = *max_position_embeddings;
            RopeScaling::Dynamic { factor: value, max_position_embeddings }
        }
        RopeScaling::Llama3(own) => RopeScaling::Llama3(with_key(own, name, value)?),
        RopeScaling::Yarn(own) => RopeScaling::Yarn(with_key(own, name, value)?),
        RopeScaling::Proportional(own) => RopeScaling::Proportional(with_key(own, name, value)?),
        RopeScaling::Default | RopeScaling::Longrope(_) => return None,
    })
}

/// The same keys, one of them with another number.
fn with_key<T: Serialize + DeserializeOwned>(own: &T, name: &str, value: f64) -> Option<T> {
    let mut keys = serde_json::to_value(own).ok()?;
    let stated = keys.get_mut(name)?;
    let whole = stated.is_u64().then(|| whole(value.trunc()).unwrap_or_default());
    *stated = whole.map_or_else(|| json!(value), |whole| json!(whole));
    serde_json::from_value(keys).ok()
}

fn of_rotation(own: &Rotate) -> Vec<Knob> {
    let factor =
        Knob::new(own, (rotation_factor(), own.factor), Range::Factor, &[1.0], |own, factor| {
            own.factor = factor;
            true
        });
    let first = signed(own.first);
    let bounds = (own.first, -first.min(64) - 8, first.saturating_add(32));
    let turn = Turn::of(own.clone());
    let first = positions::first(&turn, bounds, |turn, first| {
        #[allow(clippy::cast_possible_truncation, reason = "a whole number")]
        let first = first as i64;
        turn.first = vec![first];
        true
    });
    let name = (tr!("step from position to position"), 1.0);
    let step = Knob::new(&turn, name, Range::Whole(3, 64), &[3.0], |turn, step| {
        turn.step = step;
        true
    });
    // Given positions have no first, and no step.
    let counted = own.places.is_none().then_some([first, step]);
    counted.into_iter().flatten().chain([factor]).collect()
}

fn unscaled(own: &Frequencies) -> Option<Sibling> {
    let kind = own.scaling.as_ref()?.kind();
    let told = tr!("the frequencies are not scaled ({kind})", kind);
    Some(Sibling::new(Frequencies { scaling: None, ..own.clone() }, Kind::Omitted, told))
}

/// Frequencies by the other list of factors.
fn exchanged(own: &Frequencies) -> Option<Sibling> {
    let Some(RopeScaling::Longrope(scaling)) = &own.scaling else { return None };
    let (right, wrong) = if scaling.is_long(own.positions) {
        (tr!("long"), tr!("short"))
    } else {
        (tr!("short"), tr!("long"))
    };
    let (short_factor, long_factor) = (scaling.long_factor.clone(), scaling.short_factor.clone());
    let other = Longrope { short_factor, long_factor, ..scaling.clone() };
    let told = tr!("the {wrong} factors are taken, not the {right} ones", wrong, right);
    let scaling = Some(RopeScaling::Longrope(other));
    Some(Sibling::new(Frequencies { scaling, ..own.clone() }, Kind::Parameter, told))
}

/// Positions that count up from the first one otherwise.
const COUNTED: [Other<Turn>; 3] = [
    ("positions are counted backwards", |turn| turn.step = -1.0),
    ("every token has the position of the first", |turn| turn.step = 0.0),
    ("positions are those of the heads, not of the tokens", |turn| turn.is_by_head = true),
];

fn turned_otherwise(own: &Rotate) -> Vec<Sibling> {
    let right = Turn::of(own.clone());
    let end = if own.is_at_end {
        "the first features are turned, not the last"
    } else {
        "the last features are turned, not the first"
    };
    let rows: [Other<Turn>; 9] = [
        ("the rotation goes the other way: the sine has the wrong sign", |turn| {
            turn.right.is_backwards ^= true;
        }),
        ("sine and cosine change places", |turn| turn.is_exchanged = true),
        ("the two pairings are mixed: cosines and sines are laid out for the other one", |turn| {
            turn.angles = other(turn.right.pairing);
        }),
        ("the two pairings are mixed: partners are those of the other one", |turn| {
            turn.right.pairing = other(turn.right.pairing);
        }),
        ("the other pairs are turned", |turn| {
            turn.right.pairing = other(turn.right.pairing);
            turn.angles = turn.right.pairing;
        }),
        ("the other pairs are turned, and the other way", |turn| {
            turn.right.is_backwards ^= true;
            turn.right.pairing = other(turn.right.pairing);
            turn.angles = turn.right.pairing;
        }),
        ("the minus sign of the rotation is missing", |turn| turn.is_unsigned = true),
        (end, |turn| turn.right.is_at_end ^= true),
        (
            "the rotation is made in place: the second partner reads the first as that has become",
            |turn| turn.is_in_place = true,
        ),
    ];
    let mut all = others(&right, Kind::Replaced, &rows);
    match &own.places {
        None => all.extend(others(&right, Kind::Replaced, &COUNTED)),
        Some(places) => {
            let with = |places| Rotate { places, ..own.clone() };
            all.extend(positions::exchanged(places, with));
        }
    }
    let stages = [
        (Stage::Positions, "positions"),
        (Stage::Angles, "angles"),
        (Stage::Whole, "positions, frequencies and angles"),
        (Stage::Tables, "cosines and sines"),
        (Stage::AnglesAndTables, "angles and their cosines and sines"),
        (Stage::WholeAndTables, "positions, frequencies, angles, and their cosines and sines"),
    ];
    for precision in Precision::ALL {
        for (stage, name) in stages {
            let turn = Turn { rounded: Some((stage, precision)), ..right.clone() };
            let (name, precision) = (lang::text(name), precision.name());
            let told = tr!("the {name} are computed in {precision}", name, precision);
            all.push(Sibling::new(turn, Kind::Precision, told));
        }
    }
    all
}

/// Rotations by positions that do not go on as they should, where they count up from 0.
fn broken(own: &Rotate, inputs: &[&Axes]) -> Vec<Sibling> {
    if own.places.is_some() || own.first != 0 {
        return Vec::new();
    }
    let tokens = inputs.first().and_then(|heads| heads.shape().get(2).copied());
    let sibling = |(places, told)| {
        let turn = Turn { places: vec![places], ..Turn::of(own.clone()) };
        Sibling::new(turn, Kind::Parameter, told)
    };
    positions::broken(tokens.unwrap_or_default()).into_iter().map(sibling).collect()
}

fn other(pairing: Pairing) -> Pairing {
    match pairing {
        Pairing::Half => Pairing::Interleaved,
        Pairing::Interleaved => Pairing::Half,
    }
}
