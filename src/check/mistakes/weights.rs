//! What do people get wrong where scores become weights?

use super::{Knob, Range, Sibling};
use base::lang;
use program::{Axes, Differential, Kind, LambdaSlip, Map, PairSlip, Slip, Weigh, Weighting};

pub fn knobs(own: &Weighting) -> Vec<Knob> {
    match own {
        Weighting::DropoutScale { p } => {
            let (name, common) = (tr!("p of the scale"), [0.1, 0.2, 0.25, 0.3, 0.4, 0.5]);
            vec![Knob::new(own, (name, *p), Range::Stated, &common, |own, p| {
                *own = Weighting::DropoutScale { p };
                p < 1.0
            })]
        }
        Weighting::Softmax { .. } => {
            let name = tr!("the number of zeros beside the scores");
            let none = Slip::Weigh(Weigh::Plus(0.0));
            let zeros = Knob::new(&none, (name, 0.0), Range::Whole(1, 64), &[], |own, count| {
                *own = Slip::Weigh(Weigh::Plus(count));
                true
            });
            let (name, usual) = (tr!("what is added to softmax's sum"), [1e-3, 1e-4, 1e-5, 1e-6]);
            let epsilon = Knob::new(&none, (name, 0.0), Range::Positive, &usual, |own, epsilon| {
                *own = Slip::Weigh(Weigh::Epsilon(epsilon));
                true
            });
            vec![zeros, epsilon]
        }
        Weighting::Differential(own @ Differential::Lambda { init, slip }) => {
            let (about, slip) = ((tr!("λ_init"), *init), *slip);
            vec![Knob::new(own, about, Range::Stated, &[0.2, 0.5, 0.8], move |own, init| {
                *own = Differential::Lambda { init, slip };
                true
            })]
        }
        Weighting::LogSumExp
        | Weighting::Differential(Differential::Weights { .. })
        | Weighting::ZeroEmptyRows
        | Weighting::Dropout { .. }
        | Weighting::MeanOverHeads
        | Weighting::KeepSome(_) => Vec::new(),
    }
}

pub fn siblings(own: &Weighting, inputs: &[&Axes]) -> Vec<Sibling> {
    match own {
        Weighting::DropoutScale { p } => {
            // 1 / (1 − p) is the other number for these.
            let scale =
                |p: f64, kind, told: &str| Sibling::new(Weighting::DropoutScale { p }, kind, told);
            let undone = 1.0 - (1.0 - p).recip();
            let times = tr!("kept weights are multiplied by 1 − p, not divided by it");
            vec![
                scale(0.0, Kind::Omitted, tr!("kept weights are not multiplied by 1 / (1 − p)")),
                scale(1.0 - p, Kind::Parameter, tr!("kept weights are divided by p, not by 1 − p")),
                scale(undone, Kind::Parameter, times),
            ]
        }
        Weighting::Softmax { .. } => of_softmax(inputs),
        Weighting::Differential(own) => of_differential(*own),
        Weighting::LogSumExp
        | Weighting::ZeroEmptyRows
        | Weighting::Dropout { .. }
        | Weighting::MeanOverHeads
        | Weighting::KeepSome(_) => Vec::new(),
    }
}

/// In the place of exp(s − lse).
pub fn anew() -> Vec<Sibling> {
    let other = |slip: Slip, told: &str| Sibling::new(slip, Kind::Replaced, told);
    vec![
        other(
            Slip::Anew { factor: std::f64::consts::LN_2 },
            tr!("exp2 in place of exp, of scores and a log-sum-exp to the base e"),
        ),
        other(
            Slip::Anew { factor: std::f64::consts::LOG2_E },
            tr!("exp in place of exp2, of scores and a log-sum-exp to the base 2"),
        ),
        other(Slip::Map(Map::Exp), tr!("the log-sum-exp is not subtracted")),
    ]
}

fn of_differential(own: Differential) -> Vec<Sibling> {
    match own {
        Differential::Lambda { init, .. } => {
            let without = Differential::Lambda { init: 0.0, slip: None };
            let other = |slip: &LambdaSlip| {
                let other = Differential::Lambda { init, slip: Some(*slip) };
                Sibling::new(other, Kind::Replaced, slip.told())
            };
            let without = Sibling::new(without, Kind::Omitted, tr!("λ_init is not added"));
            LambdaSlip::ALL.iter().map(other).chain([without]).collect()
        }
        Differential::Weights { .. } => {
            let other = |slip: &PairSlip| {
                let other = Differential::Weights { slip: Some(*slip) };
                Sibling::new(other, Kind::Replaced, slip.told())
            };
            PairSlip::ALL.iter().map(other).collect()
        }
    }
}

/// What stands in the place of softmax.
const REPLACED: [(Weigh, &str); 8] = [
    (Weigh::OfTimes(std::f64::consts::LN_2), "softmax has base 2 in place of e"),
    (Weigh::Plus(1.0), "1 is added to softmax's sum"),
    (Weigh::Log, "log-softmax in place of softmax"),
    (Weigh::Unnormalised, "the exponentials are not divided by their sum"),
    (Weigh::Linear, "the scores are divided by their sum, without exponentials"),
    (Weigh::ByLargest, "the scores are divided by their largest, without exponentials"),
    (Weigh::Largest, "the largest score takes all the weight"),
    (Weigh::OfTimes(-1.0), "softmax of the scores with the other sign"),
];

/// Along which axes, counted from the last, softmax runs in place of the keys.
const OVER: [(&[usize], &str); 6] = [
    (&[1, 2], "softmax runs over queries and keys together"),
    (&[1, 3], "softmax runs over heads and keys together"),
    (&[1, 2, 3], "softmax runs over heads, queries and keys together"),
    (&[1, 4], "softmax runs over items and keys together"),
    (&[3, 4], "softmax runs over items and heads together"),
    (&[4], "softmax runs over the items of the batch"),
];

/// How many scores of a row code keeps that keeps the largest.
const TOP: [usize; 10] = [2, 3, 4, 5, 6, 7, 8, 16, 32, 64];

fn of_softmax(inputs: &[&Axes]) -> Vec<Sibling> {
    let (keys, rank) = inputs.first().map_or((0, 0), |scores| (scores.last_size(), scores.rank()));
    let replaced = |slip: Slip, told: &str| Sibling::new(slip, Kind::Replaced, lang::text(told));
    let plain = REPLACED.into_iter().map(|(weigh, told)| replaced(Slip::Weigh(weigh), told));
    let shares = [Map::Relu, Map::Softplus, Map::Absolute, Map::Square, Map::Sigmoid].map(|map| {
        let value = map.name();
        let told = tr!("{value} of the scores, divided by its sum, in place of softmax", value);
        replaced(Slip::Weigh(Weigh::Share(map)), &told)
    });
    let top = TOP.into_iter().filter(|count| (*count as u128) < keys).map(|count| {
        let told = tr!("only the {count} largest scores of a row are kept", count);
        replaced(Slip::Weigh(Weigh::Top(count)), &told)
    });
    let means = [Map::Relu, Map::Exp, Map::Sigmoid].map(|map| {
        let value = map.name();
        let told =
            tr!("{value} of the scores, divided by their number, in place of softmax", value);
        replaced(Slip::Weigh(Weigh::Mean(map)), &told)
    });
    let equal = replaced(Slip::Weigh(Weigh::Equal), "every visible key has the same weight");
    let maps = [Map::Sigmoid, Map::Exp, Map::Relu].map(|map| {
        replaced(Slip::Map(map), &tr!("{value} in place of softmax", value = map.name()))
    });
    let over = OVER.into_iter().filter(|(over, _)| over.len() > 1 || rank == 4);
    let over = over
        .map(|(over, told)| Sibling::new(Weigh::Over(over.to_vec()), Kind::Axes, lang::text(told)));
    plain.chain(shares).chain(top).chain(means).chain([equal]).chain(maps).chain(over).collect()
}
