//! What do people get wrong in biases of scores?

use super::{Knob, Other, Range, Sibling, others};
use program::{
    Biasing, Distance, Distances, Kind, Picked, Precision, Relative, RelativeBias, Slip,
    alibi_slopes, signed, whole,
};

pub fn knobs(own: &Biasing) -> Vec<Knob> {
    match own {
        Biasing::Relative(own) => of_relative(own),
        Biasing::Distances(own) => {
            let bound = signed(own.keys.max(own.queries));
            let (name, range) = (tr!("position of the first query"), Range::Whole(0, bound));
            let first = own.first as f64;
            vec![Knob::new(own, (name, first), range, &[0.0], |own, first| {
                whole(first).map(|first| own.first = first).is_some()
            })]
        }
        Biasing::Slopes { slopes } => {
            let (name, slopes) = (tr!("factor of the slopes"), slopes.clone());
            let common = [-1.0, 0.5, 2.0];
            vec![Knob::new(own, (name, 1.0), Range::Factor, &common, move |own, factor| {
                let slopes = slopes.iter().map(|slope| slope * factor).collect();
                *own = Biasing::Slopes { slopes };
                true
            })]
        }
        Biasing::Picked(own) => of_positions(own),
        Biasing::Sum { .. } | Biasing::Add => Vec::new(),
    }
}

/// The distances of relative positions: what the last bucket is of, and where queries begin.
fn of_positions(own: &Picked) -> Vec<Knob> {
    let bound = signed(own.keys.max(own.queries));
    let (name, first) = (tr!("position of the first query"), own.first as f64);
    let first = Knob::new(own, (name, first), Range::Whole(0, bound), &[], |own, first| {
        whole(first).map(|first| own.first = first).is_some()
    });
    let usual = [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0];
    let (name, most) = ("max_relative_positions", own.max_distance as f64);
    let near = [&[most + 1.0, most - 1.0], &usual[..]].concat();
    let most = Knob::new(own, (name, most), Range::Whole(2, 1024), &near, |own, most| {
        whole(most).map(|most| own.max_distance = most).is_some()
            && own.max_distance > own.span / 2 + 1
    });
    let most = own.is_logarithmic.then_some(most);
    let (name, last) = (tr!("row of distance 0"), signed(own.span).saturating_mul(2) - 1);
    let near = [own.span as f64 - 1.0, own.span as f64 + 1.0, 0.0];
    let zero =
        Knob::new(own, (name, own.zero as f64), Range::Whole(0, last), &near, |own, zero| {
            whole(zero).map(|zero| own.zero = zero).is_some()
        });
    [first, zero].into_iter().chain(most).collect()
}

fn of_relative(own: &Relative) -> Vec<Knob> {
    if own.sort == RelativeBias::Grid {
        return Vec::new();
    }
    let usual: &[f64] = &[8.0, 16.0, 20.0, 32.0, 64.0, 128.0, 256.0];
    let knob =
        |name, value: usize, (least, usual): (i64, &[f64]), set: fn(&mut Relative, usize)| {
            let value = value as f64;
            let common = [&[value + 1.0, value - 1.0], usual].concat();
            Knob::new(own, (name, value), Range::Whole(least, 512), &common, move |own, value| {
                let Some(value) = whole(value) else { return false };
                set(own, value);
                own.exact() > 0 && own.max_distance > own.exact()
            })
        };
    vec![
        knob("relative_max_distance", own.max_distance, (2, usual), |own, to| {
            own.max_distance = to;
        }),
        knob("relative_buckets", own.buckets, (4, usual), |own, to| {
            own.buckets = own.buckets.min(to);
        }),
        knob(tr!("position of the first query"), own.first, (0, &[]), |own, to| own.first = to),
    ]
}

pub fn siblings(own: &Biasing) -> Vec<Sibling> {
    match own {
        Biasing::Add => {
            let less = Slip::Add { factor: -1.0, addend: 0.0 };
            vec![
                Sibling::new(less, Kind::Replaced, tr!("the bias is subtracted")),
                Sibling::new(
                    Slip::Product,
                    Kind::Replaced,
                    tr!("the scores are multiplied by the bias"),
                ),
            ]
        }
        Biasing::Slopes { slopes } => other_slopes(slopes),
        Biasing::Distances(own) => other_distances(own),
        Biasing::Relative(own) => other_buckets(own),
        Biasing::Picked(own) => other_positions(own),
        Biasing::Sum { .. } => Vec::new(),
    }
}

fn other_slopes(own: &[f64]) -> Vec<Sibling> {
    let heads = own.len();
    let powers = |first: usize| {
        let slope = |at: usize| (-8.0 * at as f64 / heads as f64).exp2();
        (first..first + heads).map(slope).collect::<Vec<f64>>()
    };
    let raised = |power: f64| own.iter().map(|slope| slope.powf(power)).collect();
    let mut all = vec![
        (powers(0), tr!("the slopes begin with 2^0, not with 2^(−8 / heads)").to_owned()),
        (powers(1), tr!("the slopes are those of a power of two, 2^(−8 i / heads)").to_owned()),
    ];
    for ranks in [2, 4].into_iter().filter(|ranks| heads.is_multiple_of(*ranks) && heads > *ranks) {
        let told = tr!("the slopes are those of heads / {ranks}, {ranks} times over", ranks);
        all.push((alibi_slopes(heads / ranks).repeat(ranks), told));
    }
    for (power, told) in [
        (0.5, tr!("the slopes are powers of 2^(−4 / heads), not of 2^(−8 / heads)")),
        (2.0, tr!("the slopes are powers of 2^(−16 / heads), not of 2^(−8 / heads)")),
    ] {
        all.push((raised(power), told.to_owned()));
    }
    let of = |(slopes, told)| Sibling::new(Biasing::Slopes { slopes }, Kind::Parameter, told);
    all.into_iter().map(of).collect()
}

fn other_distances(own: &Distances) -> Vec<Sibling> {
    let sorts: [(Distance, Other<Distances>); 4] = [
        (
            Distance::Absolute,
            ("the distance is that of query and key", |own| own.sort = Distance::Absolute),
        ),
        (
            Distance::Signed,
            ("the distance has a sign: keys to come are favoured, not disfavoured", |own| {
                own.sort = Distance::Signed;
            }),
        ),
        (
            Distance::FromLast,
            ("the distance is that from the last key, the same for every query", |own| {
                own.sort = Distance::FromLast;
            }),
        ),
        (
            Distance::FromFirst,
            ("the bias grows with the key's position, the same for every query", |own| {
                own.sort = Distance::FromFirst;
            }),
        ),
    ];
    let sorts = sorts.into_iter().filter(|(sort, _)| *sort != own.sort).map(|(_, other)| other);
    let mut all = others(own, Kind::Replaced, &sorts.collect::<Vec<_>>());
    let rounded = if own.is_narrow {
        "positions and products are not rounded to bf16"
    } else {
        "positions and products are rounded to bf16"
    };
    all.extend(others(own, Kind::Precision, &[(rounded, |own| own.is_narrow ^= true)]));
    let narrow: [(Precision, Other<Distances>); 2] = [
        (
            Precision::Bf16,
            (
                "positions are rounded to bf16, which holds whole numbers up to 256 and then every other one",
                |own| own.positions = Some(Precision::Bf16),
            ),
        ),
        (
            Precision::F16,
            (
                "positions are rounded to f16, which holds whole numbers up to 2048 and then every other one",
                |own| own.positions = Some(Precision::F16),
            ),
        ),
    ];
    let places = own.first + own.queries.max(own.keys);
    let is_other =
        |precision: Precision| own.positions.is_none() && places > precision.most_whole();
    let narrow = narrow.into_iter().filter(|(precision, _)| is_other(*precision));
    all.extend(others(own, Kind::Replaced, &narrow.map(|(_, other)| other).collect::<Vec<_>>()));
    #[allow(clippy::float_cmp, reason = "1 exactly")]
    if own.factor != 1.0 {
        let unscaled = "the biases are not scaled: they are added after the scaling";
        let twice = "the biases are added twice, as in eager attention";
        all.extend(others(own, Kind::Omitted, &[(unscaled, |own| own.factor = 1.0)]));
        all.extend(others(own, Kind::Repeated, &[(twice, |own| own.factor *= 2.0)]));
    }
    all
}

fn other_buckets(own: &Relative) -> Vec<Sibling> {
    let exchanged: Other<Relative> =
        ("query and key change places: it goes by query − key, not by key − query", |own| {
            own.is_backwards ^= true;
        });
    let linear: Other<Relative> =
        ("every distance has a bucket of its own, up to the last: no logarithm", |own| {
            own.is_linear = true;
        });
    let rows: &[Other<Relative>] = match own.sort {
        RelativeBias::Grid => &[exchanged],
        RelativeBias::Bidirectional => &[
            exchanged,
            linear,
            ("the buckets are one-sided: later keys count as 0 away", |own| {
                own.sort = RelativeBias::OneSided;
            }),
        ],
        RelativeBias::OneSided => &[
            exchanged,
            linear,
            ("the buckets are bidirectional: half of them are kept for later keys", |own| {
                own.sort = RelativeBias::Bidirectional;
            }),
        ],
    };
    others(own, Kind::Replaced, rows)
}

fn other_positions(own: &Picked) -> Vec<Sibling> {
    let backwards: Other<Picked> =
        ("the distance is key − query, not query − key", |own| own.is_backwards ^= true);
    let absolute: Other<Picked> =
        ("the distance has no sign: earlier and later keys are alike", |own| {
            own.is_absolute = true;
        });
    let turned: Other<Picked> = if own.is_of_keys {
        ("it is not transposed: the products of each key stand in the row of a query", |own| {
            own.is_turned ^= true;
        })
    } else {
        ("it is transposed: the products of each query stand in the column of a key", |own| {
            own.is_turned ^= true;
        })
    };
    let both: Other<Picked> =
        ("rows and columns change places, and the distance has the other sign", |own| {
            own.is_backwards ^= true;
            own.is_turned ^= true;
        });
    let mut rows = vec![backwards, absolute, turned, both];
    if own.is_logarithmic {
        rows.push((
            "every distance has a position of its own, up to the last: no logarithm",
            |own| {
                own.is_logarithmic = false;
            },
        ));
    }
    others(own, Kind::Replaced, &rows)
}
