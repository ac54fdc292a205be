//! What faulty code has in place of softmax and dropout's scale, and the numbers that it changes in them.

use super::functions::{Map, Weigh};
use super::slip::Slip;
use super::weights::Weighting;
use crate::axis::Axes;
use crate::slips::{Kind, Knob, Range, Sibling};

/// How many scores of a row code keeps that keeps the largest.
const TOP: [usize; 10] = [2, 3, 4, 5, 6, 7, 8, 16, 32, 64];

/// What is easily taken for an operation that makes weights.
pub(super) fn siblings(weighting: &Weighting, inputs: &[&Axes]) -> Vec<Sibling> {
    if let Weighting::DropoutScale { p } = weighting {
        // 1 / (1 − p) is the other number for these.
        let scale =
            |p: f64, kind, told: &str| Sibling::new(Weighting::DropoutScale { p }, kind, told);
        return vec![
            scale(0.0, Kind::Omitted, tr!("kept weights are not multiplied by 1 / (1 − p)")),
            scale(1.0 - p, Kind::Parameter, tr!("kept weights are divided by p, not by 1 − p")),
            scale(
                1.0 - (1.0 - p).recip(),
                Kind::Parameter,
                tr!("kept weights are multiplied by 1 − p, not divided by it"),
            ),
        ];
    }
    let Weighting::Softmax { empty_row, axis_from_last: 1 } = weighting else { return Vec::new() };
    let weigh = |weigh: Weigh, told: &str| Sibling::new(Slip::Weigh(weigh), Kind::Replaced, told);
    let keys = inputs.first().map_or(0, |scores| scores.last_size());
    let mut all = vec![
        weigh(Weigh::BaseTwo, tr!("softmax has base 2 in place of e")),
        weigh(Weigh::Plus(1.0), tr!("1 is added to softmax's sum")),
        weigh(Weigh::Log, tr!("log-softmax in place of softmax")),
        weigh(Weigh::Unnormalised, tr!("the exponentials are not divided by their sum")),
        weigh(Weigh::Linear, tr!("the scores are divided by their sum, without exponentials")),
        weigh(
            Weigh::ByLargest,
            tr!("the scores are divided by their largest, without exponentials"),
        ),
        weigh(Weigh::Largest, tr!("the largest score takes all the weight")),
        weigh(Weigh::Negative, tr!("softmax of the scores with the other sign")),
    ];
    for map in [Map::Relu, Map::Softplus, Map::Absolute, Map::Square, Map::Sigmoid] {
        let told = tr!(
            "{value} of the scores, divided by its sum, in place of softmax",
            value = map.name()
        );
        all.push(Sibling::new(Slip::Weigh(Weigh::Share(map)), Kind::Replaced, told));
    }
    for count in TOP.into_iter().filter(|count| (*count as u128) < keys) {
        let told = tr!("only the {count} largest scores of a row are kept", count);
        all.push(weigh(Weigh::Top(count), &told));
    }
    for map in [Map::Relu, Map::Exp, Map::Sigmoid] {
        let told = tr!(
            "{value} of the scores, divided by their number, in place of softmax",
            value = map.name()
        );
        all.push(Sibling::new(Slip::Weigh(Weigh::Mean(map)), Kind::Replaced, told));
    }
    all.push(weigh(Weigh::Equal, tr!("every visible key has the same weight")));
    for map in [Map::Sigmoid, Map::Exp, Map::Relu] {
        let told = tr!("{value} in place of softmax", value = map.name());
        all.push(Sibling::new(Slip::Map(map), Kind::Replaced, told));
    }
    let over = |over: &[usize], told: &str| {
        Sibling::new(Slip::Weigh(Weigh::Over(over.to_vec())), Kind::Axes, told)
    };
    all.extend([
        over(&[1, 2], tr!("softmax runs over queries and keys together")),
        over(&[1, 3], tr!("softmax runs over heads and keys together")),
        over(&[1, 2, 3], tr!("softmax runs over heads, queries and keys together")),
        over(&[1, 4], tr!("softmax runs over items and keys together")),
        over(&[3, 4], tr!("softmax runs over items and heads together")),
    ]);
    if inputs.first().is_some_and(|scores| scores.rank() == 4) {
        let softmax = Weighting::Softmax { empty_row: *empty_row, axis_from_last: 4 };
        all.push(Sibling::new(
            softmax,
            Kind::Axes,
            tr!("softmax runs over the items of the batch"),
        ));
    }
    all
}

/// The numbers of such an operation that faulty code changes.
pub(super) fn knobs(weighting: &Weighting) -> Vec<Knob> {
    if let Weighting::DropoutScale { p } = weighting {
        return vec![Knob {
            name: tr!("p of the scale"),
            value: *p,
            range: Range::Stated,
            common: vec![0.1, 0.2, 0.25, 0.3, 0.4, 0.5],
            with: Box::new(|p| (p < 1.0).then(|| Weighting::DropoutScale { p }.into())),
        }];
    }
    let Weighting::Softmax { axis_from_last: 1, .. } = weighting else { return Vec::new() };
    vec![Knob {
        name: tr!("the number of zeros beside the scores"),
        value: 0.0,
        range: Range::Whole(1, 64),
        common: Vec::new(),
        with: Box::new(|count| Some(Slip::Weigh(Weigh::Plus(count)).into())),
    }]
}
