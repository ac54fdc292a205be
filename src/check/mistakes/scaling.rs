//! What do people get wrong where numbers are scaled?

use super::{Knob, Other, Range, Sibling, norm, others, positions};
use program::{
    Axes, Dequantize, Kind, Map, Scaling, ScoreSlip, Slip, Temperature, ZeroPoint, signed, whole,
};

pub fn knobs(own: &Scaling) -> Vec<Knob> {
    let scale = |value: f64| {
        vec![Knob::new(own, ("scale", value), Range::Factor, &[1.0], |own, factor| {
            *own = Scaling::By { factor };
            true
        })]
    };
    match own {
        Scaling::Norm(norm) => norm::knobs(norm),
        Scaling::Root { .. } | Scaling::By { .. } => own.factor().map(scale).unwrap_or_default(),
        Scaling::SoftCap { cap } => {
            let common = [1.0, 5.0, 10.0, 20.0, 30.0, 50.0, 100.0];
            vec![Knob::new(own, ("softcap", *cap), Range::Positive, &common, |own, cap| {
                *own = Scaling::SoftCap { cap };
                cap > 0.0
            })]
        }
        Scaling::Clip { limit } => {
            vec![Knob::new(own, ("clip", *limit), Range::Positive, &[], |own, limit| {
                *own = Scaling::Clip { limit };
                limit > 0.0
            })]
        }
        Scaling::Gate { .. } | Scaling::Exp { .. } | Scaling::Dequantize(_) => Vec::new(),
        Scaling::Temperature(temperature) => of_temperature(temperature),
    }
}

fn of_temperature(own: &Temperature) -> Vec<Knob> {
    let scale = ("q_temperature", own.scale);
    let scale = Knob::new(own, scale, Range::Stated, &[0.1, 1.0], |own, scale| {
        own.scale = scale;
        true
    });
    let floor = ("q_temperature_floor", own.floor);
    let floor = Knob::new(own, floor, Range::Stated, &[], |own, floor| {
        own.floor = floor;
        floor > 0.0
    });
    let first = own.first + own.offset;
    let last = signed(first).saturating_add(32);
    let first = positions::first(own, (first, 0, last), |own, first| {
        own.offset = 0;
        whole(first).map(|first| own.first = first).is_some()
    });
    // Given positions have no first.
    [scale, floor].into_iter().chain(own.places.is_none().then_some(first)).collect()
}

pub fn siblings(own: &Scaling, inputs: &[&Axes]) -> Vec<Sibling> {
    match own {
        Scaling::Norm(norm) => norm::siblings(norm, inputs),
        Scaling::SoftCap { cap } => {
            let limit = *cap;
            let clipped = tr!("the scores are clipped at the cap, without tanh");
            let bare = tr!("tanh of the scores, without the cap");
            let unscaled = ScoreSlip::Cap { outer: 1.0, inner: cap.recip() };
            let told = tr!("tanh is not multiplied by the cap");
            vec![
                Sibling::new(Scaling::Clip { limit }, Kind::Replaced, clipped),
                Sibling::new(Slip::Map(Map::Tanh), Kind::Replaced, bare),
                Sibling::new(Slip::Scores(unscaled), Kind::Omitted, told),
            ]
        }
        Scaling::Clip { limit } => {
            let (limit, cap) = (*limit, *limit);
            let soft = tr!("the numbers are capped softly, by tanh, not clipped");
            let bound =
                |above, told: &str| Sibling::new(Slip::Bound { limit, above }, Kind::Omitted, told);
            vec![
                Sibling::new(Scaling::SoftCap { cap }, Kind::Replaced, soft),
                bound(true, tr!("the numbers are clipped from above alone")),
                bound(false, tr!("the numbers are clipped from below alone")),
            ]
        }
        Scaling::Gate { map } => {
            let value = map.name();
            let gate = |map: Map| {
                let other = map.name();
                let told = tr!("the gate goes through {other}, not through {value}", other, value);
                Sibling::new(Scaling::Gate { map }, Kind::Replaced, told)
            };
            let told = tr!("the gate does not go through {value}", value);
            let bare = Sibling::new(Slip::Product, Kind::Omitted, told);
            Map::ALL.into_iter().filter(|other| other != map).map(gate).chain([bare]).collect()
        }
        Scaling::Temperature(own) => {
            let told = "the quotient of position and q_temperature_floor is not rounded down";
            let mut all = others(own, Kind::Replaced, &[(told, |own| own.is_floored = false)]);
            let with = |places| Temperature { places, ..own.clone() };
            all.extend(own.places.iter().flat_map(|places| positions::mistaken(places, with)));
            all
        }
        Scaling::Exp { .. } => {
            let all = [
                (0.0, Kind::Omitted, tr!("the decay is left out: nothing of the state fades")),
                (2.0, Kind::Repeated, tr!("the decay is applied twice")),
                (-1.0, Kind::Replaced, tr!("the exponent has the other sign: the state grows")),
                (0.5, Kind::Replaced, tr!("the exponent is halved")),
                (
                    std::f64::consts::LN_2,
                    Kind::Replaced,
                    tr!("it is 2 to the power, and not e: exp2 in place of exp"),
                ),
                (
                    std::f64::consts::LOG2_E,
                    Kind::Replaced,
                    tr!("the exponent is multiplied by log2(e), and exp taken of it"),
                ),
            ];
            let other = |(factor, kind, told)| Sibling::new(Scaling::Exp { factor }, kind, told);
            all.into_iter().map(other).collect()
        }
        Scaling::Dequantize(own) => {
            let rows: [Other<Dequantize>; 3] = [
                ("the numbers are divided by their scale", |own| own.is_multiplied = false),
                ("the zero point is added, not subtracted", |own| own.zero = ZeroPoint::Added),
                ("the zero point is subtracted from the scaled numbers", |own| {
                    own.zero = ZeroPoint::Behind;
                }),
            ];
            let count = if inputs.len() > 2 { rows.len() } else { 1 };
            others(own, Kind::Replaced, &rows[..count])
        }
        Scaling::Root { .. } | Scaling::By { .. } => Vec::new(),
    }
}
